"""Convert values to booleans and numbers (KIP-145's ``Values.convertToBoolean`` and so on).

The ``kafka_4_3`` mode narrows as Java does: integers wrap, fractions fall away. The ``strict`` mode refuses
what does not fit; floats are rounded to the nearest of their width, but not to infinity nor, unless they are
zero, to zero.
"""

from __future__ import annotations

import math
from decimal import Decimal as DecimalNumber
from typing import Any, TypeVar

from headerware.connect.data.numbers import Float32, Int8, Int16, Int32
from headerware.connect.data.schema import Schema
from headerware.connect.data.times import is_time
from headerware.connect.errors import ConnectDataError, NullValueError
from headerware.connect.java.numbers import to_float64
from headerware.connect.modes import KAFKA_4_3, STRICT, Mode
from headerware.connect.values.numbers_of import (
    exact_number,
    narrowed_float64,
    narrowed_int64,
    whole_number,
)
from headerware.connect.values.parse import parse_string

_Sized = TypeVar("_Sized", Int8, Int16, Int32)
_EXACT_FLOAT64 = 1 << 53
_EXACT_FLOAT32 = 1 << 24


def convert_to_boolean(schema: Schema | None, value: Any, *, mode: Mode = "strict") -> bool | None:
    """Convert a value to a boolean.

    Args:
        schema: what the value is; None for a schemaless one.
        value: a boolean, ``true`` or ``false`` as text, or a number, of which 0 is false and the others true.
        mode: ``strict`` wants whole numbers, and no points in time.

    Raises:
        ConnectDataError: the value is none of these.
        NullValueError: in ``kafka_4_3``, the text is ``null``.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        parsed = parse_string(value, mode=mode)
        if parsed is None:
            raise NullValueError("expected a boolean, found the text of null")
        if isinstance(parsed.value, bool):
            return parsed.value
    if mode == KAFKA_4_3:
        return narrowed_int64(schema, value) != 0
    if is_time(value):
        raise ConnectDataError("expected a boolean, found a point in time")
    number = exact_number(schema, value)
    if number == 0:
        return False
    # All that counts is that it is whole: it may be of any size.
    if isinstance(number, DecimalNumber) and number.adjusted() > 18:
        if number != number.to_integral_value():
            raise ConnectDataError("expected a whole number, found one with a fraction")
        return True
    return whole_number(schema, number) != 0


def convert_to_byte(schema: Schema | None, value: Any, *, mode: Mode = "strict") -> Int8 | None:
    """Convert a number, a text or a point in time to an int8.

    Args:
        schema: what the value is; None for a schemaless one. A point in time needs one.
        value: the value; null stays null.
        mode: ``strict`` refuses what has a fraction or does not fit; ``kafka_4_3`` cuts it off.

    Raises:
        ConnectDataError: the value stands for no such number.
    """
    return _sized(Int8, schema, value, mode)


def convert_to_short(schema: Schema | None, value: Any, *, mode: Mode = "strict") -> Int16 | None:
    """Convert a number, a text or a point in time to an int16; see :func:`convert_to_byte`."""
    return _sized(Int16, schema, value, mode)


def convert_to_integer(schema: Schema | None, value: Any, *, mode: Mode = "strict") -> Int32 | None:
    """Convert a number, a text or a point in time to an int32; see :func:`convert_to_byte`."""
    return _sized(Int32, schema, value, mode)


def _sized(width: type[_Sized], schema: Schema | None, value: Any, mode: Mode) -> _Sized | None:
    if value is None or isinstance(value, width):
        return value
    if mode == STRICT:
        return width(whole_number(schema, value))
    return width.wrapped(narrowed_int64(schema, value))


def convert_to_long(schema: Schema | None, value: Any, *, mode: Mode = "strict") -> int | None:
    """Convert a number, a text or a point in time to an int64; see :func:`convert_to_byte`."""
    if value is None:
        return None
    if mode == KAFKA_4_3:
        return narrowed_int64(schema, value)
    whole = whole_number(schema, value)
    if not -(1 << 63) <= whole < 1 << 63:
        raise ConnectDataError("expected an integer of 64 bits, found a larger one")
    return whole


def convert_to_float(schema: Schema | None, value: Any, *, mode: Mode = "strict") -> Float32 | None:
    """Convert a number, a text or a point in time to a float32.

    Args:
        schema: what the value is; None for a schemaless one. A point in time needs one.
        value: the value; null stays null.
        mode: ``strict`` refuses an integer that the float cannot hold exactly, and what is too large or too
            small for it.

    Raises:
        ConnectDataError: the value stands for no such number.
    """
    if value is None or isinstance(value, Float32):
        return value
    if mode == KAFKA_4_3:
        return Float32(narrowed_float64(schema, value))
    number = exact_number(schema, value)
    made = Float32(to_float64(number))
    _check_rounding(number, made, _EXACT_FLOAT32)
    return made


def convert_to_double(schema: Schema | None, value: Any, *, mode: Mode = "strict") -> float | None:
    """Convert a number, a text or a point in time to a float64; see :func:`convert_to_float`."""
    if value is None:
        return None
    if mode == KAFKA_4_3:
        return narrowed_float64(schema, value)
    number = exact_number(schema, value)
    made = to_float64(number)
    _check_rounding(number, made, _EXACT_FLOAT64)
    return made


def _check_rounding(number: float | DecimalNumber, made: float, exact_to: int) -> None:
    """Refuse a float that says something else than the number: infinity, zero, or another integer."""
    if isinstance(number, int) and abs(number) > exact_to and (math.isinf(made) or int(made) != number):
        raise ConnectDataError("expected an integer that the float can hold exactly, found a larger one")
    if math.isinf(made) and not (isinstance(number, float) and math.isinf(number)):
        raise ConnectDataError("expected a number that the float can hold, found a larger one")
    if made == 0 and number != 0:
        raise ConnectDataError("expected a number that the float can hold, found one nearer to zero")
