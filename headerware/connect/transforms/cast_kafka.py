"""Casts as Kafka does them: numbers wrap or saturate as in Java, fractions fall away, texts are Java's."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from headerware.connect.data.logical import TIME_TYPES
from headerware.connect.data.numbers import Float32, Int8, Int16, Int32
from headerware.connect.data.schema import Type
from headerware.connect.data.times import is_time
from headerware.connect.errors import ConnectDataError, NumberTextError, ValueClassError
from headerware.connect.java.numbers import (
    float32_of_decimal,
    is_number,
    parse_float32,
    parse_float64,
    parse_int8,
    parse_int16,
    parse_int32,
    parse_int64,
    saturated,
    to_float64,
    to_int64,
)
from headerware.connect.java.text import NUMBER_TEXTS, java_text, number_text
from headerware.connect.values.text import convert_to_string

if TYPE_CHECKING:
    from headerware.connect.data.schema import Schema

Convert = Callable[[Any], Any]
SOURCES: Final = frozenset(
    {
        Type.INT8,
        Type.INT16,
        Type.INT32,
        Type.INT64,
        Type.FLOAT32,
        Type.FLOAT64,
        Type.BOOLEAN,
        Type.STRING,
        Type.BYTES,
    }
)
"""What can be cast."""
TARGETS: Final = SOURCES - {Type.BYTES}
"""What can be cast to."""
_SCHEMALESS: Final = (str, bool, float, bytes, bytearray, memoryview, Int8, Int16, Int32)
_INT32_MAX: Final = (1 << 31) - 1
_EXACT_IN_FLOAT64: Final = 1 << 53


def kafka_cast(schema: Schema | None, target: Type) -> Convert:
    """Return the function that casts values of a schema; null stays null.

    Args:
        schema: the schema; None for values without one.
        target: the type to cast to.
    """
    cast = CASTS[target]
    if schema is None:
        return lambda value: None if value is None else _read(cast, castable(value))
    if schema.type not in SOURCES:
        kind = schema.type
        return lambda value: None if value is None else _refuse(kind)
    logical = TIME_TYPES.get(schema.name or "") if target is not Type.STRING else None
    if logical is None:
        return lambda value: None if value is None else _read(cast, value)
    encode, of = logical.from_logical, schema

    def encoded(value: Any) -> Any:
        if value is None:
            return None
        if not is_time(value):
            raise ValueClassError(f"expected a datetime for {of}, found {type(value).__name__}")
        return cast(encode(of, value))

    return encoded


def castable(value: Any) -> Any:
    """Return a value without a schema that can be cast.

    Raises:
        ConnectDataError: it has no schema of its own, or it holds other values.
    """
    if value.__class__ is int or isinstance(value, _SCHEMALESS):
        return value
    raise ConnectDataError(
        f"expected a number, a boolean, a str or bytes to cast, found {type(value).__name__}"
    )


def _refuse(kind: Type) -> Any:
    raise ConnectDataError(f"expected a number, boolean, string or bytes to cast, found {kind.value}")


def _read(cast: Convert, value: Any) -> Any:
    try:
        return cast(value)
    except NumberTextError as error:
        raise ConnectDataError(f"the value cannot be cast: {error}") from error


def _number(of_number: Convert, of_text: Callable[[str], Any]) -> Convert:
    """Return the cast to a type: of numbers, of booleans as 0 and 1, and of text."""

    def cast(value: Any) -> Any:
        if isinstance(value, str):
            return of_text(value)
        if isinstance(value, bool):
            return of_number(int(value))
        if is_number(value):
            return of_number(value)
        raise ConnectDataError(f"expected a number, a boolean or a str to cast, found {type(value).__name__}")

    return cast


def _narrowed(width: type[Int8 | Int16 | Int32]) -> Convert:
    # Floats go by way of 32 bits, where they saturate; anything else wraps.
    return lambda number: width.wrapped(
        saturated(number, _INT32_MAX) if isinstance(number, float) else to_int64(number)
    )


def _float32(number: Any) -> Float32:
    if isinstance(number, float) or (isinstance(number, int) and abs(number) <= _EXACT_IN_FLOAT64):
        return Float32(number)
    return float32_of_decimal(number_text(number))


def _text(value: Any) -> str:
    write = NUMBER_TEXTS.get(value.__class__)
    if write is not None:
        return write(value)
    if is_time(value):
        return str(convert_to_string(None, value, mode="kafka_4_3"))
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    return java_text(value)


CASTS: Final[dict[Type, Convert]] = {
    Type.INT8: _number(_narrowed(Int8), parse_int8),
    Type.INT16: _number(_narrowed(Int16), parse_int16),
    Type.INT32: _number(_narrowed(Int32), parse_int32),
    Type.INT64: _number(to_int64, parse_int64),
    Type.FLOAT32: _number(_float32, parse_float32),
    Type.FLOAT64: _number(to_float64, parse_float64),
    Type.BOOLEAN: _number(lambda number: to_int64(number) != 0, lambda text: text.lower() == "true"),
    Type.STRING: _text,
}
"""What casts to each type."""
