"""The number that a value stands for: as Kafka takes it, narrowed, or exactly."""

from __future__ import annotations

from decimal import Decimal as DecimalNumber
from typing import Any, Final

from headerware.connect.data.logical import TIME_TYPES
from headerware.connect.data.schema import Schema
from headerware.connect.data.times import is_time
from headerware.connect.errors import ConnectDataError
from headerware.connect.java.numbers import decimal_or_none, is_number, to_float64, to_int64

_INT64_DIGITS: Final = 19


def narrowed_int64(schema: Schema | None, value: Any) -> int:
    """Return a number, a text or a point in time as Kafka makes an int64 of it: what does not fit is cut off.

    Args:
        schema: what the value is; a point in time needs one.
        value: the value, not null.

    Raises:
        ConnectDataError: it stands for no number.
    """
    number = _as_number(schema, value)
    return number if type(number) is int and -(1 << 63) <= number < 1 << 63 else to_int64(number)


def narrowed_float64(schema: Schema | None, value: Any) -> float:
    """Return a number, a text or a point in time as Kafka makes a float64 of it.

    Args:
        schema: what the value is; a point in time needs one.
        value: the value, not null.

    Raises:
        ConnectDataError: it stands for no number.
    """
    return to_float64(_as_number(schema, value))


def whole_number(schema: Schema | None, value: Any) -> int:
    """Return the whole number that a value stands for.

    Args:
        schema: what the value is; a point in time needs one.
        value: the value, not null.

    Raises:
        ConnectDataError: it stands for none, or has a fraction.
    """
    number = exact_number(schema, value)
    if isinstance(number, int):
        return int(number)
    if isinstance(number, float):
        if not number.is_integer():
            raise ConnectDataError("expected a whole number, found a fraction, infinity or no number")
        return int(number)
    # Its size first: a small text can say a number that fills the memory.
    if number.adjusted() >= _INT64_DIGITS:
        raise ConnectDataError("expected an integer of 64 bits, found a larger one")
    whole = int(number)
    if whole != number:
        raise ConnectDataError("expected a whole number, found one with a fraction")
    return whole


def exact_number(schema: Schema | None, value: Any) -> float | DecimalNumber:
    """Return the number that a value stands for, as it is; a text's number is a decimal.

    Args:
        schema: what the value is; a point in time needs one.
        value: the value, not null.

    Raises:
        ConnectDataError: it stands for none.
    """
    if isinstance(value, str) and not value.isascii():
        raise ConnectDataError("expected a number in ASCII digits, found a text with other characters")
    return _as_number(schema, value)


def _as_number(schema: Schema | None, value: Any) -> float | DecimalNumber:
    if isinstance(value, DecimalNumber) and not value.is_finite():
        raise ConnectDataError("expected a finite decimal number, found infinity or no number")
    if is_number(value):
        number: float | DecimalNumber = value
        return number
    if isinstance(value, str):
        read = decimal_or_none(value)
        if read is not None:
            return read
        raise ConnectDataError("expected a number, found a text that is none")
    if schema is not None and is_time(value) and schema.name in TIME_TYPES:
        return TIME_TYPES[schema.name].from_logical(schema, value)
    described = "without a schema" if schema is None else f"of schema {schema}"
    raise ConnectDataError(f"expected a number, found a value of class {type(value).__name__} {described}")
