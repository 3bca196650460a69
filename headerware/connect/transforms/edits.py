"""What the packs' plans share: structs of the schema that they are for, edits of fields that it may lack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from headerware.connect.errors import ConnectDataError
from headerware.connect.fields.requirements import require_struct
from headerware.connect.fields.rewrites import Edits

if TYPE_CHECKING:
    from headerware.connect.data.schema import Schema
    from headerware.connect.data.struct import Struct

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
