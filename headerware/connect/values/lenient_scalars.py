"""Numbers, dates and times as Kafka 4.3 finds them in a token of text."""

from __future__ import annotations

import math
import re
import struct
from decimal import Decimal as DecimalNumber
from typing import Final

from headerware.connect.data.logical import Date, Time, Timestamp
from headerware.connect.data.numbers import Float32, Int8, Int16, Int32
from headerware.connect.data.schema import (
    BOOLEAN_SCHEMA,
    FLOAT32_SCHEMA,
    FLOAT64_SCHEMA,
    INT8_SCHEMA,
    INT16_SCHEMA,
    INT32_SCHEMA,
    INT64_SCHEMA,
    SchemaAndValue,
)
from headerware.connect.data.times import from_epoch_ms
from headerware.connect.java.dates.iso import LENIENT
from headerware.connect.java.numbers import decimal_or_none, float32_of_decimal, to_float64
from headerware.connect.values.exact_scalars import time_of
from headerware.connect.values.shapes import decimal_of

_FRACTION: Final = re.compile(r"[+-]?[0-9]{1,15}\.[0-9]{0,7}[1-9]")
"""A number with a fraction of so few digits that rounding it twice, by way of 64 bits, gives the same."""
WORDS: Final[dict[str, SchemaAndValue | None]] = {
    "null": None,
    "true": SchemaAndValue(BOOLEAN_SCHEMA, value=True),
    "false": SchemaAndValue(BOOLEAN_SCHEMA, value=False),
}
_TIME_SCHEMAS: Final = dict(zip(LENIENT, (Date.SCHEMA, Time.SCHEMA, Timestamp.SCHEMA), strict=True))
_INT8_VALUES: Final = [SchemaAndValue(INT8_SCHEMA, Int8.wrapped(low)) for low in range(256)]
_FLOAT32: Final = struct.Struct(">f")
_GREGORIAN: Final = "1583"
"""Years from here on are the same to Java and to Python, and times of day are read alike."""


def integer(number: int) -> SchemaAndValue:
    """Return an integer of 64 bits in the narrowest type."""
    if -0x80 <= number < 0x80:
        return _INT8_VALUES[number & 0xFF]
    if -0x8000 <= number < 0x8000:
        return SchemaAndValue(INT16_SCHEMA, int.__new__(Int16, number))
    if -0x80000000 <= number < 0x80000000:
        return SchemaAndValue(INT32_SCHEMA, int.__new__(Int32, number))
    return SchemaAndValue(INT64_SCHEMA, number)


def number_of(token: str) -> SchemaAndValue | None:
    """Read a number in the narrowest type; None where the token is none."""
    number = decimal_or_none(token)
    return None if number is None else _narrowest(number, token)


def scalar_of(token: str) -> SchemaAndValue | None:
    """Read a number or a point in time; None where the token is none."""
    first = token[0]
    if first.isdecimal() and first < "\U00010000":
        return usual_of(token) or temporal_of(token) or number_of(token)
    return number_of(token) if first in "+-" else None


def _narrowest(number: DecimalNumber, token: str) -> SchemaAndValue:
    whole = _int64_of(number)
    if whole is not None:
        return integer(whole)
    exponent = number.as_tuple().exponent
    scale = -exponent if isinstance(exponent, int) else 0
    if scale != 0:
        if math.isfinite(narrow := float32_of_decimal(token)):
            return SchemaAndValue(FLOAT32_SCHEMA, narrow)
        if math.isfinite(wide := to_float64(number)):
            return SchemaAndValue(FLOAT64_SCHEMA, wide)
    return SchemaAndValue(decimal_of(scale), number)


def _int64_of(number: DecimalNumber) -> int | None:
    """Return a whole number of 64 bits; None for any other."""
    if not number:
        return 0
    if not 0 <= number.adjusted() < 20:
        return None
    whole = int(number)
    return whole if whole == number and -(1 << 63) <= whole < 1 << 63 else None


def usual_of(token: str) -> SchemaAndValue | None:
    """Read the dates, times, integers and fractions that everybody reads alike; None for all else."""
    if len(token) < 19 and token.isascii() and token.isdecimal():
        return integer(int(token))
    if _FRACTION.fullmatch(token) is not None:
        (narrow,) = _FLOAT32.unpack(_FLOAT32.pack(float(token)))
        return SchemaAndValue(FLOAT32_SCHEMA, float.__new__(Float32, narrow))
    return _usual_time(token)


def _usual_time(token: str) -> SchemaAndValue | None:
    return time_of(token) if token > _GREGORIAN or token[2:3] == ":" else None


def temporal_of(token: str) -> SchemaAndValue | None:
    """Read a date, a time or a timestamp; None where the token is none."""
    if (usual := _usual_time(token)) is not None:
        return usual
    if "\\" in token:
        token = token.replace("\\:", ":")
    length = len(token)
    if not token.isascii():
        length += sum(char > "\uffff" for char in token)
    read = LENIENT.get(length)
    epoch_ms = None if read is None else read(token)
    return None if epoch_ms is None else SchemaAndValue(_TIME_SCHEMAS[length], from_epoch_ms(epoch_ms))
