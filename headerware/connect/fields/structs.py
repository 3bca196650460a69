"""Check structs, compare and alter their schemas, and copy their values by index."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from headerware.connect.data.schema import Schema, Type
from headerware.connect.data.struct import Struct
from headerware.connect.errors import ConnectDataError
from headerware.connect.modes import STRICT
from headerware.core.bounded_cache import BoundedCache

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from headerware.connect.data.schema import Field
    from headerware.connect.modes import Mode

Copy = Callable[[list[Any]], list[Any]]
"""Returns a new list of values made from an old one."""
_MAX_PAIRS: Final = 64
_SERIALIZED: Final = ": transforms work on objects, so serialize after them, and deserialize before them"


def require_map(value: Any, purpose: str) -> dict[str, Any]:
    """Return a value without a schema, or raise ConnectDataError unless it is a dict."""
    if not isinstance(value, dict):
        is_serialized = isinstance(value, bytes | str)
        raise ConnectDataError(
            f"expected a dict for {purpose}, because there is no schema, found {type(value).__name__}"
            f"{_SERIALIZED if is_serialized else ''}"
        )
    return value


def require_struct(value: Any, purpose: str) -> Struct:
    """Return a value, or raise ConnectDataError unless it is a struct."""
    if not isinstance(value, Struct):
        raise ConnectDataError(f"expected a struct for {purpose}, found {type(value).__name__}")
    return value


class SameSchemas:
    """Compare schemas, and remember equal pairs: a record and its struct may have two equal schema objects.

    A plan reads a struct by index, so it would read the wrong fields of a struct with another schema.
    """

    __slots__ = ("_equal",)

    def __init__(self) -> None:
        # By the identity of the first schema. The pair is kept, so that no other schema gets this identity.
        self._equal: Final[BoundedCache[int, tuple[Schema, Schema]]] = BoundedCache(_MAX_PAIRS)

    def __call__(self, one: Schema, other: Schema) -> bool:
        """Return whether two schemas are equal."""
        if one is other:
            return True
        try:
            if self._equal[id(one)][1] is other:
                return True
        except KeyError:
            pass
        if one != other:
            return False
        self._equal[id(one)] = (one, other)
        return True

    def struct(self, value: Any, schema: Schema, purpose: str) -> Struct:
        """Return a value, or raise ConnectDataError unless it is a struct of a schema."""
        struct = require_struct(value, purpose)
        if struct.schema is not schema and not self(struct.schema, schema):
            raise another_schema(schema)
        return struct


def another_schema(schema: Schema) -> ConnectDataError:
    """Return the error for a struct whose schema is not the schema of its record."""
    return ConnectDataError(
        f"the schemas are not the same: the record says {schema}, but holds a struct of another schema"
    )


def altered(schema: Schema, **facts: Any) -> Schema:
    """Return a copy of a schema in which some arguments of ``Schema`` are replaced."""
    kind = schema.type
    own: dict[str, Any] = {
        "optional": schema.optional,
        "default": schema.default,
        "name": schema.name,
        "version": schema.version,
        "doc": schema.doc,
        "parameters": schema.parameters,
        "fields": schema.fields if kind is Type.STRUCT else (),
        "key_schema": schema.key_schema if kind is Type.MAP else None,
        "value_schema": schema.value_schema if kind in {Type.MAP, Type.ARRAY} else None,
    }
    return Schema(kind, **{**own, **facts})


def copier(
    sources: Sequence[Field],
    targets: Sequence[Schema],
    *,
    mode: Mode,
    with_default: bool,
    unchecked: Container[int] = (),
) -> Copy:
    """Return a function that copies the values of ``sources``, in this order, to the schemas ``targets``.

    Nulls at the indices ``unchecked`` are not checked, since another value replaces them.
    """
    pick = _picker([field.index for field in sources])
    watched: list[tuple[int, Any, bool, str]] = []
    for at, (field, target) in enumerate(zip(sources, targets, strict=True)):
        default = field.schema.default if with_default else None
        checked = at not in unchecked and not may_be_null(target, mode)
        if checked or default is not None:
            watched.append((at, default, checked, field.name))
    if not watched:
        return pick

    def copy(values: list[Any]) -> list[Any]:
        made = pick(values)
        if None in made:
            for at, default, checked, name in watched:
                if made[at] is None:
                    if default is None and checked:
                        raise null_in_required(name)
                    made[at] = default
        return made

    return copy


def _picker(indices: Sequence[int]) -> Copy:
    if len(indices) > 1:
        get = itemgetter(*indices)
        return lambda values: list(get(values))
    return lambda values: [values[at] for at in indices]


def may_be_null(schema: Schema, mode: Mode) -> bool:
    """Return whether a field may be null; a default stands for null in the strict mode, not in Kafka."""
    return schema.optional or (mode == STRICT and schema.default is not None)


def null_in_required(name: str) -> ConnectDataError:
    """Return the error for a null in a field that must not be null."""
    return ConnectDataError(f"expected a value for the required field {name!r}, found null")
