"""What rewriting structs takes: check them, compare and alter their schemas, copy their values."""

from __future__ import annotations

from collections.abc import Callable
from headerware.connect.data.schema import Schema
from headerware.connect.data.schema import Type
from headerware.connect.data.struct import Struct
from headerware.connect.errors import ConnectDataError
from headerware.connect.fields.rewrites import Edits
from headerware.connect.modes import STRICT
from operator import itemgetter
from typing import Any
from typing import Final
from typing import TYPE_CHECKING
from typing import TypeVar

if TYPE_CHECKING:
    from collections.abc import Container
    from collections.abc import Sequence
    from headerware.connect.data.schema import Field
    from headerware.connect.modes import Mode

def require_map(value: Any, purpose: str) -> dict[str, Any]:
    """Return a schemaless value that is a dict.

    Raises:
        ConnectDataError: it is something else.
    """
    if not isinstance(value, dict):
        raise ConnectDataError(
            f"expected a dict for {purpose}, as values without a schema are, found {type(value).__name__}"
        )
    return value


def require_struct(value: Any, purpose: str) -> Struct:
    """Return a value that is a struct.

    Raises:
        ConnectDataError: it is something else.
    """
    if not isinstance(value, Struct):
        raise ConnectDataError(f"expected a struct for {purpose}, found {type(value).__name__}")
    return value


def altered(schema: Schema, **facts: Any) -> Schema:
    """Return a schema that says some things differently.

    Args:
        schema: the schema.
        facts: what differs, by the names of :class:`~headerware.connect.data.schema.Schema`'s arguments.
    """
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


_KEPT: Final = 64
"""The pairs that are remembered; a stream has few, and a flood of schemas must not fill the memory."""


class SameSchemas:
    """Compare schemas, and remember those that agree: a record's and its struct's may be two objects."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[int, tuple[Schema, Schema]] = {}

    def __call__(self, one: Schema, other: Schema) -> bool:
        """Say whether two schemas are the same."""
        if one is other:
            return True
        known = self._known.get(id(one))
        if known is not None and known[0] is one and known[1] is other:
            return True
        if one != other:
            return False
        if len(self._known) >= _KEPT:
            self._known = {}
        self._known[id(one)] = (one, other)
        return True


Copy = Callable[[list[Any]], list[Any]]
"""Gives a new list of values of an old one."""


def copier(
    sources: Sequence[Field],
    targets: Sequence[Schema],
    *,
    mode: Mode,
    with_default: bool,
    unchecked: Container[int] = (),
) -> Copy:
    """Return a function that copies a struct's values.

    Args:
        sources: the fields to copy, in the order of what comes out.
        targets: the schemas that the values are for, likewise.
        mode: see :func:`may_be_null`.
        with_default: whether a null becomes its field's default.
        unchecked: the places where null is no matter, since something else comes there.
    """
    pick = picker([field.index for field in sources])
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


def picker(indices: Sequence[int]) -> Copy:
    """Return a function that makes a list of some values."""
    if len(indices) > 1:
        get = itemgetter(*indices)
        return lambda values: list(get(values))
    return lambda values: [values[at] for at in indices]


def may_be_null(schema: Schema, mode: Mode) -> bool:
    """Whether null is a value of a field; where a default stands for it, strict keeps it, Kafka does not."""
    return schema.optional or (mode == STRICT and schema.default is not None)


def null_in_required(name: str) -> ConnectDataError:
    """Make the error for a null where there may be none."""
    return ConnectDataError(f"expected a value for the required field {name!r}, found null")


E = TypeVar("E")


def struct_of(schema: Schema, value: Any, purpose: str) -> Struct:
    """Give a value that is a struct of a schema; a plan reads by index, and would take one field for another.

    Raises:
        ConnectDataError: it is no struct, or one of another schema.
    """
    struct = require_struct(value, purpose)
    if struct.schema is not schema and struct.schema != schema:
        raise ConnectDataError(f"the record says {schema}, but holds a struct of another schema")
    return struct


def without_missing(edits: Edits[E], schema: Schema, key: str) -> Edits[E]:
    """Return those edits whose fields a schema has.

    Args:
        edits: the edits.
        schema: the schema.
        key: the configuration's key, for errors.

    Raises:
        ConnectDataError: something on the way to a field is no struct.
    """
    kept = []
    for path in edits.paths:
        if path.find(schema) is None:
            continue
        node = edits.root
        for step in path.steps:
            node = node.children[step]
        assert node.edit is not None  # noqa: S101 - that is what is at the end of a path
        kept.append((path, node.edit))
    return Edits(kept, key)
