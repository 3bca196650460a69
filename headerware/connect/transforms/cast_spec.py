"""What Cast is to do: ``field:type,other:type``, or a type alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from headerware.connect.data.schema import Type
from headerware.connect.errors import ConnectConfigError, EmptyPairError
from headerware.connect.fields.lists import java_split, pairs, split_escaped
from headerware.connect.fields.paths import parse_path
from headerware.connect.fields.rewrites import Edits
from headerware.connect.java.numbers import BLANKS
from headerware.connect.modes import STRICT, Mode
from headerware.connect.transforms.cast_kafka import TARGETS

if TYPE_CHECKING:
    from collections.abc import Sequence

SPEC: Final = "spec"


class FieldCasts(NamedTuple):
    """The types to cast fields to.

    Args:
        by_name: by the field's name; in ``kafka_4_3``.
        edits: by the field's path; in the strict mode.
    """

    by_name: dict[str, Type]
    edits: Edits[Type] | None = None


class Spec(NamedTuple):
    """What to cast.

    Args:
        whole: the type to cast the whole key or value to; None where fields are cast.
        fields: the fields to cast.
    """

    whole: Type | None
    fields: FieldCasts = FieldCasts({})


def parse_spec(values: Sequence[str], mode: Mode) -> Spec:
    """Read what to cast.

    Args:
        values: the items of the list.
        mode: strict knows dots and escapes, and refuses a field that is named twice.

    Raises:
        ConnectConfigError: an item is neither a field with its type nor a type, or a type cannot be cast to.
    """
    return _exact(values, mode) if mode == STRICT else _kafka(values)


def refuse_spec(values: Sequence[str] | None) -> str | None:
    """Say why a list cannot be a spec; None where it may be one.

    Raises:
        ConnectConfigError: an item is neither a field with its type nor a type, or a type cannot be cast to.
    """
    if not values:
        return "expected a type, or fields and their types, found nothing"
    if not any("\\" in value for value in values):
        # Kafka reads it here already, before any other key.
        _kafka(values)
    return None


def _exact(values: Sequence[str], mode: Mode) -> Spec:
    whole = [value for value in values if len(split_escaped(value, ":")) == 1]
    if whole:
        if len(values) > 1:
            raise _not_alone()
        return Spec(_type(whole[0]))
    edits = [(parse_path(name.strip(), mode, SPEC), _type(kind)) for name, kind in pairs(values, mode, SPEC)]
    return Spec(None, FieldCasts({}, Edits(edits, SPEC)))


def _kafka(values: Sequence[str]) -> Spec:
    whole, by_name = None, {}
    for value in values:
        parts = java_split(value, ":")
        if len(parts) > 2:
            raise ConnectConfigError(f"expected field:type or a type, found {value!r}", path=SPEC)
        if not parts:
            raise EmptyPairError(f"expected field:type or a type, found {value!r}", path=SPEC)
        if len(parts) == 1:
            whole = _type(parts[0])
        else:
            by_name[parts[0].strip(BLANKS)] = _type(parts[1])
    if whole is not None and len(values) > 1:
        raise _not_alone()
    return Spec(whole, FieldCasts(by_name))


def _not_alone() -> ConnectConfigError:
    return ConnectConfigError(
        "a type that stands without a field casts the whole value, and stands alone", path=SPEC
    )


def _type(text: str) -> Type:
    name = text.strip(BLANKS)
    kind = _TYPES.get(name.upper())
    if kind is None:
        known = ", ".join(kind.value for kind in Type if kind in TARGETS)
        raise ConnectConfigError(f"nothing is cast to {name!r}; there are {known}", path=SPEC)
    return kind


_TYPES: Final = {kind.name: kind for kind in TARGETS}
