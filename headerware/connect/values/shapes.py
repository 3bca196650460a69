"""The schemas of arrays and maps that are read from text, one object for equal ones."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from headerware.connect.data.logical import Decimal
from headerware.connect.data.schema import (
    FLOAT32_SCHEMA,
    FLOAT64_SCHEMA,
    INT8_SCHEMA,
    INT16_SCHEMA,
    INT32_SCHEMA,
    INT64_SCHEMA,
    Schema,
    Type,
)

_RANKS: Final = {
    schema.type: rank
    for rank, schema in enumerate(
        (INT8_SCHEMA, INT16_SCHEMA, INT32_SCHEMA, INT64_SCHEMA, FLOAT32_SCHEMA, FLOAT64_SCHEMA)
    )
}
_KEPT: Final = 256
"""The schemas that are kept; a stream has few, and a flood of them must not fill the memory."""

MAX_DEPTH: Final = 100
"""How deep arrays and maps may be nested in a text; what goes deeper stays text."""


@lru_cache(_KEPT)
def array_of(element: Schema | None) -> Schema:
    """Return the schema of arrays; None where nothing is known of their elements."""
    return Schema(Type.ARRAY, value_schema=element)


@lru_cache(_KEPT)
def map_of(key: Schema | None, value: Schema | None) -> Schema:
    """Return the schema of maps; None where nothing is known of their keys or values."""
    return Schema(Type.MAP, key_schema=key, value_schema=value)


@lru_cache(_KEPT)
def decimal_of(scale: int) -> Schema:
    """Return the schema of decimals with so many digits after the point."""
    return Decimal.schema(scale)


@lru_cache(_KEPT)
def optional(schema: Schema) -> Schema:
    """Return a schema that admits null, too."""
    nested = schema.type is Type.ARRAY or schema.type is Type.MAP
    return Schema(
        schema.type,
        optional=True,
        name=schema.name,
        version=schema.version,
        parameters=schema.parameters,
        key_schema=schema.key_schema if schema.type is Type.MAP else None,
        value_schema=schema.value_schema if nested else None,
    )


def widened(one: Schema, other: Schema) -> Schema | None:
    """Return the schema that Kafka takes for values of both: the wider number, or else the last of one type.

    Args:
        one: the schema so far.
        other: the next value's; where the types are the same it counts, whatever the names say.
    """
    if one.type is other.type:
        return other
    if one.type in _RANKS and other.type in _RANKS:
        return one if _RANKS[one.type] > _RANKS[other.type] else other
    return None
