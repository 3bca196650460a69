"""Infer the schema of a value from its class (KIP-145's ``Values.inferSchema``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from headerware.connect.data.numbers import Float32, Int8, Int16, Int32
from headerware.connect.data.schema import (
    BOOLEAN_SCHEMA,
    BYTES_SCHEMA,
    FLOAT32_SCHEMA,
    FLOAT64_SCHEMA,
    INT8_SCHEMA,
    INT16_SCHEMA,
    INT32_SCHEMA,
    INT64_SCHEMA,
    STRING_SCHEMA,
    Schema,
    SchemaBuilder,
    Type,
)
from headerware.connect.data.struct import Struct
from headerware.connect.errors import ConnectDataError

_INT64: Final = range(-(1 << 63), 1 << 63)


def infer_schema(value: Any) -> Schema | None:
    """Return the schema of a value, inferred from its class.

    Args:
        value: the value. All items of a list or a dict count, but only by their types: as in Connect, arrays
            within an array have no element schema, and structs within an array have no fields.

    Returns:
        The schema; None for null, for points in time, decimals and integers beyond 64 bits, for an empty
        list or dict, and for a list or dict with items of several types or of unknown ones.

    Raises:
        SchemaBuilderError: a list or dict contains nothing but nulls.
        ConnectDataError: the value is nested too deeply.
    """
    try:
        return _inferred(value)
    except RecursionError:
        raise ConnectDataError("the value is nested too deeply for a schema") from None


def _inferred(value: Any) -> Schema | None:
    known = _SCHEMAS.get(type(value))
    if known is not None:
        return known
    infer = _INFERRED.get(type(value))
    if infer is not None:
        return infer(value)
    for kind in _SUBCLASSED:
        if isinstance(value, kind):
            return _SCHEMAS.get(kind) or _INFERRED[kind](value)
    return None


def _int(value: int) -> Schema | None:
    return INT64_SCHEMA if value in _INT64 else None


def _list(values: Any) -> Schema | None:
    if not values:
        return None
    items = _Items()
    return SchemaBuilder.array(items.schema()).build() if all(map(items.fits, values)) else None


def _map(entries: dict[Any, Any]) -> Schema | None:
    if not entries:
        return None
    keys, values = _Items(), _Items()
    if not all(keys.fits(key) and values.fits(value) for key, value in entries.items()):
        return None
    return SchemaBuilder.map(keys.schema(), values.schema()).build()


def _struct(value: Struct) -> Schema:
    return value.schema


class _Items:
    """The type that the items of a list, or the keys or values of a dict, have in common."""

    def __init__(self) -> None:
        self._type: Type | None = None
        self._nullable = False

    def fits(self, value: Any) -> bool:
        """Add an item, and return whether it is of the same type as the earlier items."""
        if value is None:
            self._nullable = True
            return True
        schema = _inferred(value)
        if schema is None:
            return False
        self._type = self._type or schema.type
        return self._type is schema.type

    def schema(self) -> Schema:
        """Return the schema of the items."""
        builder = SchemaBuilder(self._type)
        return (builder.optional() if self._nullable else builder).build()


_SCHEMAS: Final[dict[type, Schema]] = {
    str: STRING_SCHEMA,
    bool: BOOLEAN_SCHEMA,
    Int8: INT8_SCHEMA,
    Int16: INT16_SCHEMA,
    Int32: INT32_SCHEMA,
    Float32: FLOAT32_SCHEMA,
    float: FLOAT64_SCHEMA,
    bytes: BYTES_SCHEMA,
    bytearray: BYTES_SCHEMA,
    memoryview: BYTES_SCHEMA,
}
_INFERRED: Final[dict[type, Callable[[Any], Schema | None]]] = {
    int: _int,
    list: _list,
    tuple: _list,
    dict: _map,
    Struct: _struct,
}
# No int: its subclasses, such as BigInteger, are not integers of 64 bits.
_SUBCLASSED: Final = (str, float, bytes, list, tuple, dict, Struct)
