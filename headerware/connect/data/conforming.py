"""Between plain Python values and those that a schema describes: widths, structs, points in time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from typing import Any, Final

from headerware.connect.data.numbers import BigInteger, Float32, Int8, Int16, Int32
from headerware.connect.data.schema import Schema, Type
from headerware.connect.data.schema_and_value import SchemaAndValue
from headerware.connect.data.struct import Struct
from headerware.connect.data.times import Instant, from_epoch_ms, to_epoch_ms
from headerware.connect.data.validation import LOGICAL_CLASSES, described, validate_value
from headerware.connect.errors import ConnectDataError

_WIDTHS: Final[dict[Type, type]] = {
    Type.INT8: Int8,
    Type.INT16: Int16,
    Type.INT32: Int32,
    Type.INT64: int,
    Type.FLOAT32: Float32,
    Type.FLOAT64: float,
}
_FLOATS: Final = frozenset({Type.FLOAT32, Type.FLOAT64})
_INT64: Final = range(-(1 << 63), 1 << 63)
_TOO_DEEP: Final = "expected a value of fewer levels, found one nested too deeply"


def conformed(schema: Schema, value: Any, where: str = "value") -> Any:
    """Return a plain Python value the widths and shapes of a schema.

    Args:
        schema: the schema.
        value: the value; ints and floats within the range of their type, dates, times and datetimes, a
            mapping for a struct, any sequence for an array.
        where: what the value is called in errors.

    Raises:
        ConnectDataError: the value does not fit, and where; or it is nested too deeply.
    """
    try:
        return _conformed(schema, value, where)
    except RecursionError:
        raise ConnectDataError(_TOO_DEEP) from None


def _conformed(schema: Schema, value: Any, where: str) -> Any:
    if value is not None:
        convert = _converters.get(schema.type)
        if schema.name in LOGICAL_CLASSES:
            value = _as_time(value)
        elif convert is not None:
            value = convert(schema, value, where)
    elif schema.default is not None:
        return None
    validate_value(schema, value, where)
    return value


def _as_time(value: Any) -> Any:
    if isinstance(value, datetime | date | time):
        return from_epoch_ms(to_epoch_ms(value))
    return value


def _number(schema: Schema, value: Any, where: str) -> Any:
    width = _WIDTHS[schema.type]
    plain = type(value) is int or (type(value) is float and schema.type in _FLOATS)
    if not plain:
        return value
    if width is int and value not in _INT64:
        raise ConnectDataError(f"expected an integer of 64 bits for {where}")
    try:
        return width(value)
    except ConnectDataError as error:
        raise ConnectDataError(f"{where}: {error}") from error


def _array(schema: Schema, value: Any, where: str) -> Any:
    element = schema.value_schema
    if not isinstance(value, list | tuple) or element is None:
        return value
    return [_conformed(element, item, f"element of array {where}") for item in value]


def _map(schema: Schema, value: Any, where: str) -> Any:
    of_key, of_value = schema.key_schema, schema.value_schema
    if not isinstance(value, Mapping) or of_key is None or of_value is None:
        return value
    return {
        _conformed(of_key, key, f"key of map {where}"): _conformed(of_value, item, f"value of map {where}")
        for key, item in value.items()
    }


def _struct(schema: Schema, value: Any, where: str) -> Any:
    if not isinstance(value, Mapping):
        return value
    if unknown := [name for name in value if name not in schema.by_name]:
        known = ", ".join(schema.by_name)
        raise ConnectDataError(f"{described(schema)} at {where} has no field {unknown[0]!r}; it has: {known}")
    return Struct.trusted(
        schema,
        [_conformed(field.schema, value.get(field.name), f"field {field.name!r}") for field in schema.fields],
    )


_converters: Final[dict[Type, Callable[[Schema, Any, str], Any]]] = {
    **dict.fromkeys(_WIDTHS, _number),
    Type.ARRAY: _array,
    Type.MAP: _map,
    Type.STRUCT: _struct,
}


def plain(value: Any) -> Any:
    """Return a value as plain Python has it: structs as dicts, with defaults, and numbers without a width.

    A value beside its schema is given without it. Bytes are ``bytes``; points in time stay datetimes.

    Raises:
        ConnectDataError: the value is nested too deeply.
    """
    try:
        return _plain(value)
    except RecursionError:
        raise ConnectDataError(_TOO_DEEP) from None


def _plain(value: Any) -> Any:
    if isinstance(value, Struct):
        return {name: _plain(value[name]) for name in value}
    if isinstance(value, SchemaAndValue):
        return _plain(value.value)
    if isinstance(value, dict):
        return {_plain_key(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Int8 | Int16 | Int32 | BigInteger | Instant):
        return int(value)
    if isinstance(value, Float32):
        return float(value)
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    return value


def _plain_key(key: Any) -> Any:
    # A list that is a key is a tuple, and stays one.
    return tuple(map(_plain_key, key)) if isinstance(key, tuple) else _plain(key)
