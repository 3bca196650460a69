"""Convert values to other types (KIP-145's ``Values.convertTo...``), in two modes.

``kafka_4_3`` converts as Java does: integers wrap, fractions are dropped, floats saturate. ``strict`` keeps
the number, and raises an error if information would be lost; a float may be rounded to the nearest float of
its width, but neither to infinity nor to zero.
"""

from __future__ import annotations

import math
from datetime import datetime
from decimal import Decimal as DecimalNumber
from typing import Any, Final, TypeVar

from headerware.connect.data.logical import TIME_TYPES, Date, Decimal, Time, of_unscaled, scale_of
from headerware.connect.data.numbers import Float32, Int8, Int16, Int32, wrapped_int64
from headerware.connect.data.schema import DATE, TIME, TIMESTAMP, Schema
from headerware.connect.data.struct import Struct
from headerware.connect.data.times import DAY_MS, Instant, from_epoch_ms, is_time, to_epoch_ms
from headerware.connect.errors import ConnectDataError, NullValueError
from headerware.connect.java.calendar import EPOCH_DAY, date_of, day_of
from headerware.connect.java.numbers import decimal_or_none, is_number, parse_decimal, to_float64, to_int64
from headerware.connect.java.text import float64_text, number_text
from headerware.connect.modes import KAFKA_4_3, STRICT, Mode
from headerware.connect.values.parse import decimal_of, parse_nested, parse_string

_Sized = TypeVar("_Sized", Int8, Int16, Int32)
_EXACT_FLOAT64: Final = 1 << 53
_EXACT_FLOAT32: Final = 1 << 24
_MAX_DIGITS: Final = 10_000
"""Zeros are added up to this many digits; a small text can stand for a number that fills the memory."""
_1970_BC_MS: Final = (day_of(1 - 1970, 1, 1, julian=True) - EPOCH_DAY) * DAY_MS


# Booleans and numbers


def convert_to_boolean(schema: Schema | None, value: Any, *, mode: Mode = "strict") -> bool | None:
    """Convert a value to a boolean.

    Args:
        schema: the schema of the value; None for a schemaless one.
        value: a boolean, ``true`` or ``false`` as text, or a number: 0 is false, all others are true.
        mode: ``strict`` refuses fractions and points in time.

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
        return _narrowed_int64(_number(schema, value, mode)) != 0
    if is_time(value):
        raise ConnectDataError("expected a boolean, found a point in time")
    number = _number(schema, value, mode)
    if not _is_whole(number):
        raise ConnectDataError("expected a whole number, found a fraction, infinity or NaN")
    return number != 0


def convert_to_byte(schema: Schema | None, value: Any, *, mode: Mode = "strict") -> Int8 | None:
    """Convert a number, a text or a point in time to an int8.

    Args:
        schema: the schema of the value; None for a schemaless one. A point in time needs one.
        value: the value; null stays null.
        mode: ``strict`` refuses fractions and numbers that do not fit; ``kafka_4_3`` drops the fraction and
        the highest bits.

    Raises:
        ConnectDataError: the value is not such a number.
    """
    return None if value is None else _sized(Int8, schema, value, mode)


def convert_to_short(schema: Schema | None, value: Any, *, mode: Mode = "strict") -> Int16 | None:
    """Convert a number, a text or a point in time to an int16; see :func:`convert_to_byte`."""
    return None if value is None else _sized(Int16, schema, value, mode)


def convert_to_integer(schema: Schema | None, value: Any, *, mode: Mode = "strict") -> Int32 | None:
    """Convert a number, a text or a point in time to an int32; see :func:`convert_to_byte`."""
    return None if value is None else _sized(Int32, schema, value, mode)


def convert_to_long(schema: Schema | None, value: Any, *, mode: Mode = "strict") -> int | None:
    """Convert a number, a text or a point in time to an int64; see :func:`convert_to_byte`."""
    return None if value is None else _int64(schema, value, mode)


def convert_to_float(schema: Schema | None, value: Any, *, mode: Mode = "strict") -> Float32 | None:
    """Convert a number, a text or a point in time to a float32.

    Args:
        schema: the schema of the value; None for a schemaless one. A point in time needs one.
        value: the value; null stays null.
        mode: ``strict`` refuses an integer that the float cannot hold exactly, and a number that is too large
            or too small for it.

    Raises:
        ConnectDataError: the value is not such a number.
    """
    if value is None or isinstance(value, Float32):
        return value
    number = _number(schema, value, mode)
    made = Float32(to_float64(number))
    if mode == STRICT:
        _check_rounding(number, made, _EXACT_FLOAT32)
    return made


def convert_to_double(schema: Schema | None, value: Any, *, mode: Mode = "strict") -> float | None:
    """Convert a number, a text or a point in time to a float64; see :func:`convert_to_float`."""
    if value is None:
        return None
    number = _number(schema, value, mode)
    made = to_float64(number)
    if mode == STRICT:
        _check_rounding(number, made, _EXACT_FLOAT64)
    return made


def _sized(width: type[_Sized], schema: Schema | None, value: Any, mode: Mode) -> _Sized:
    if isinstance(value, width):
        return value
    number = _number(schema, value, mode)
    made = width.wrapped(_narrowed_int64(number))
    if mode == STRICT and made != number:
        raise _loss(number, width.bits)
    return made


def _int64(schema: Schema | None, value: Any, mode: Mode) -> int:
    number = _number(schema, value, mode)
    made = _narrowed_int64(number)
    if mode == STRICT and made != number:
        raise _loss(number, 64)
    return made


def _narrowed_int64(number: float | DecimalNumber) -> int:
    return number if type(number) is int and -(1 << 63) <= number < 1 << 63 else to_int64(number)


def _number(schema: Schema | None, value: Any, mode: Mode) -> float | DecimalNumber:
    """Return a value's number: a decimal for a text, and the encoded number for a logical type."""
    if isinstance(value, DecimalNumber) and not value.is_finite():
        raise ConnectDataError("expected a finite decimal number, found infinity or NaN")
    if is_number(value):
        number: float | DecimalNumber = value
        return number
    if isinstance(value, str):
        if mode == STRICT and not value.isascii():
            raise ConnectDataError("expected a number in ASCII digits, found a text with other characters")
        read = decimal_or_none(value)
        if read is None:
            raise ConnectDataError("expected a number, found other text")
        return read
    if schema is not None and is_time(value) and schema.name in TIME_TYPES:
        return TIME_TYPES[schema.name].from_logical(schema, value)
    described = "without a schema" if schema is None else f"of schema {schema}"
    raise ConnectDataError(f"expected a number, found a value of class {type(value).__name__} {described}")


def _is_whole(number: float | DecimalNumber) -> bool:
    if isinstance(number, DecimalNumber):
        return number == number.to_integral_value()
    return isinstance(number, int) or number.is_integer()


def _loss(number: float | DecimalNumber, bits: int) -> ConnectDataError:
    if not _is_whole(number):
        return ConnectDataError("expected a whole number, found a fraction, infinity or NaN")
    return ConnectDataError(f"expected an integer of {bits} bits, found a larger one")


def _check_rounding(number: float | DecimalNumber, made: float, exact_to: int) -> None:
    """Refuse a float that differs too much from the number: infinity, zero, or another integer."""
    if isinstance(number, int) and abs(number) > exact_to and (math.isinf(made) or int(made) != number):
        raise ConnectDataError("expected an integer that the float can hold exactly, found a larger one")
    if math.isinf(made) and not (isinstance(number, float) and math.isinf(number)):
        raise ConnectDataError("expected a number that the float can hold, found a larger one")
    if made == 0 and number != 0:
        raise ConnectDataError("expected a number that the float can hold, found a smaller one")


# Decimals


def convert_to_decimal(
    schema: Schema | None, value: Any, scale: int, *, mode: Mode = "strict"
) -> DecimalNumber | None:
    """Convert a number, a text or the bytes of a decimal to a decimal.

    Args:
        schema: the schema of the value; None for a schemaless one.
        value: the value.
        scale: the digits after the point. In ``kafka_4_3`` the scale applies only to bytes: other values keep
            their digits, and an integer becomes a float64 first, so that ``5`` becomes ``5.0``.
        mode: ``strict`` returns exactly the number, with zeros added or removed, or else refuses it.

    Raises:
        ConnectDataError: the value is not a decimal or, in ``strict``, needs another scale; in ``kafka_4_3``,
            it is null.
        NumberTextError: in ``kafka_4_3``, the value is not a number, infinity, a text that is not a number,
            or no bytes.
    """
    if mode == STRICT:
        return None if value is None else _exact_decimal(schema, value, scale)
    if isinstance(value, bytes | bytearray | memoryview):
        return Decimal.to_logical(decimal_of(scale), bytes(value))
    if isinstance(value, DecimalNumber):
        return value
    if is_number(value):
        return parse_decimal(float64_text(to_float64(value)))
    if isinstance(value, str):
        return parse_decimal(value)
    raise _refused("a decimal", value)


def _exact_decimal(schema: Schema | None, value: Any, scale: int) -> DecimalNumber:
    if isinstance(value, bytes | bytearray | memoryview):
        if not value:
            raise ConnectDataError("expected the bytes of a decimal, found none")
        return of_unscaled(int.from_bytes(bytes(value), "big", signed=True), scale)
    if is_time(value):
        raise _refused("a decimal", value)
    number = _number(schema, value, STRICT)
    if isinstance(number, float):
        if not math.isfinite(number):
            raise ConnectDataError("expected a decimal, found infinity or NaN")
        # From the text of the float: 0.1, not its 55 exact digits.
        number = DecimalNumber(number_text(number))
    return _rescaled(DecimalNumber(number), scale)


def _rescaled(number: DecimalNumber, scale: int) -> DecimalNumber:
    zeros = scale - scale_of(number)
    sign, digits, _ = number.as_tuple()
    if not number:
        return of_unscaled(0, scale)
    if zeros > 0 and zeros + len(digits) > _MAX_DIGITS:
        raise ConnectDataError(f"expected a decimal of at most {_MAX_DIGITS} digits, found a longer one")
    if zeros < 0 and any(digits[zeros:]):
        raise ConnectDataError(f"expected a decimal of {scale} digits after the point, found more")
    kept = digits + (0,) * zeros if zeros >= 0 else digits[:zeros]
    return DecimalNumber((sign, kept, -scale))


# Dates and times


def convert_to_date(schema: Schema | None, value: Any, *, mode: Mode = "strict") -> datetime | Instant | None:
    """Convert a value to a date, which is its midnight in UTC.

    Args:
        schema: the schema of the value; None for a schemaless one.
        value: a date or timestamp, a number of days since the epoch, or the text of one of these.
        mode: ``strict`` treats a schemaless point in time as a timestamp, and returns a timestamp's day.
            ``kafka_4_3`` returns a schemaless point in time as it is, and the following day for timestamps
            before 1970.

    Raises:
        ConnectDataError: the value is none of these; in ``kafka_4_3``, it is null.
        NullValueError: in ``kafka_4_3``, the text is ``null``.
    """
    name, schema, value = _time_type(schema, value, mode, DATE)
    if value is None:
        return None
    if name == DATE:
        if mode == STRICT:
            Date.from_logical(Date.SCHEMA, value)
        return _time(value)
    if name == TIMESTAMP:
        epoch_ms = to_epoch_ms(value)
        if mode == STRICT:
            return from_epoch_ms(epoch_ms // DAY_MS * DAY_MS)
        days = epoch_ms // DAY_MS if epoch_ms >= 0 else -(-epoch_ms // DAY_MS)
        return Date.to_logical(Date.SCHEMA, Int32.wrapped(days))
    if name == TIME and mode == STRICT:
        raise ConnectDataError("expected a date, found a time of day")
    return Date.to_logical(Date.SCHEMA, _sized(Int32, schema, value, mode))


def convert_to_time(schema: Schema | None, value: Any, *, mode: Mode = "strict") -> datetime | Instant | None:
    """Convert a value to a time of day, which is a point in time on the first day.

    Args:
        schema: the schema of the value; None for a schemaless one.
        value: a time or timestamp, a number of milliseconds since midnight, or the text of one of these.
        mode: ``strict`` treats a schemaless point in time as a timestamp; ``kafka_4_3`` returns it as it is.

    Raises:
        ConnectDataError: the value is none of these; in ``kafka_4_3``, it is null.
        NullValueError: in ``kafka_4_3``, the text is ``null``.
    """
    name, schema, value = _time_type(schema, value, mode, TIME)
    if value is None:
        return None
    if name == TIME:
        if mode == STRICT:
            Time.from_logical(Time.SCHEMA, value)
        return _time(value)
    if name == TIMESTAMP:
        epoch_ms = to_epoch_ms(value)
        of_day_ms = epoch_ms % DAY_MS if mode == STRICT else _time_of_day_ms(epoch_ms)
        return Time.to_logical(Time.SCHEMA, of_day_ms)
    if name == DATE and mode == STRICT:
        raise ConnectDataError("expected a time of day, found a date")
    return Time.to_logical(Time.SCHEMA, _sized(Int32, schema, value, mode))


def convert_to_timestamp(
    schema: Schema | None, value: Any, *, mode: Mode = "strict"
) -> datetime | Instant | None:
    """Convert a value to a timestamp.

    Args:
        schema: the schema of the value; None for a schemaless one.
        value: a point in time, a number of milliseconds since the epoch, or the text of one of these.
        mode: ``strict`` refuses a time of day, which has no date; ``kafka_4_3`` puts it on the first day.

    Raises:
        ConnectDataError: the value is none of these; in ``kafka_4_3``, it is null.
        NullValueError: in ``kafka_4_3``, the text is ``null``.
    """
    name, schema, value = _time_type(schema, value, mode, TIMESTAMP)
    if value is None:
        return None
    if name == TIMESTAMP:
        return _time(value)
    if name == DATE:
        days = Date.from_logical(Date.SCHEMA, value)
        return _time(value) if mode == STRICT else from_epoch_ms(wrapped_int64(days * DAY_MS))
    if name == TIME and mode == STRICT:
        raise ConnectDataError("expected a timestamp, found a time of day, which has no date")
    return from_epoch_ms(_int64(schema, value, mode))


def _time_type(
    schema: Schema | None, value: Any, mode: Mode, own: str
) -> tuple[str | None, Schema | None, Any]:
    """Read a text, and return the logical type of a point in time (None for a number), its schema and value.

    ``own`` is the logical type to convert to; Kafka assumes it for a schemaless point in time.
    """
    if value is None and mode == KAFKA_4_3:
        raise ConnectDataError("expected a point in time, found null")
    if isinstance(value, str):
        parsed = parse_string(value, mode=mode)
        if parsed is None:
            raise NullValueError("expected a point in time, found the text of null")
        if parsed.value is None:
            raise ConnectDataError("expected a point in time, found the text of null")
        # Kafka keeps the schema of the text.
        schema, value = parsed.schema if mode == STRICT else schema, parsed.value
    if not is_time(value):
        return None, schema, value
    if schema is None:
        return TIMESTAMP if mode == STRICT else own, schema, value
    if mode == STRICT and schema.name not in TIME_TYPES:
        raise ConnectDataError(f"expected the schema of a point in time, found {schema}")
    return schema.name, schema, value


def _time_of_day_ms(epoch_ms: int) -> int:
    """Return the time of day; for years BC, Kafka's wrong result, which is outside of a day.

    Kafka sets the year, month and day of the calendar, but not the era, and 1970 BC is not the first day.
    """
    days, of_day_ms = divmod(epoch_ms, DAY_MS)
    year, _, _ = date_of(days + EPOCH_DAY)
    return of_day_ms if year > 0 else int(Int32.wrapped(_1970_BC_MS + of_day_ms))


def _time(value: Any) -> datetime | Instant:
    found: datetime | Instant = value
    return found


# Lists, maps and structs


def convert_to_list(schema: Schema | None, value: Any, *, mode: Mode = "strict") -> list[Any] | None:
    """Convert a list, or the text of one, to a list.

    Args:
        schema: the schema of the value; None for a schemaless one.
        value: the value; a list stays as it is.
        mode: how a text is read.

    Raises:
        ConnectDataError: the value is neither; in ``kafka_4_3``, it is null.
        NullValueError: in ``kafka_4_3``, the text is ``null``.
    """
    del schema
    found = _container(value, mode)
    if found is None and mode == STRICT:
        return None
    if isinstance(found, list | tuple):
        return found if isinstance(found, list) else list(found)
    raise _refused("a list", found)


def convert_to_map(schema: Schema | None, value: Any, *, mode: Mode = "strict") -> dict[Any, Any] | None:
    """Convert a map, or the text of one, to a map.

    Args:
        schema: the schema of the value; None for a schemaless one.
        value: the value; a dict stays as it is.
        mode: how a text is read.

    Raises:
        ConnectDataError: the value is neither; in ``kafka_4_3``, it is null.
        NullValueError: in ``kafka_4_3``, the text is ``null``.
    """
    del schema
    found = _container(value, mode)
    if found is None and mode == STRICT:
        return None
    if isinstance(found, dict):
        return found
    raise _refused("a map", found)


def convert_to_struct(schema: Schema | None, value: Any, *, mode: Mode = "strict") -> Struct | None:
    """Return a struct as it is; no other value can be converted to one.

    Args:
        schema: the schema of the value; None for a schemaless one.
        value: the value.
        mode: in ``strict``, null stays null.

    Raises:
        ConnectDataError: the value is not a struct; in ``kafka_4_3``, it is null.
    """
    del schema
    if value is None and mode == STRICT:
        return None
    if isinstance(value, Struct):
        return value
    raise _refused("a struct", value)


def _container(value: Any, mode: Mode) -> Any:
    """Return the value of a text, and any other value as it is."""
    if not isinstance(value, str):
        return value
    if mode == STRICT:
        return parse_nested(value)
    parsed = parse_string(value, mode=mode)
    if parsed is None:
        raise NullValueError("expected a list or map, found the text of null")
    return parsed.value


def _refused(expected: str, value: Any) -> ConnectDataError:
    found = "null" if value is None else f"a value of class {type(value).__name__}"
    return ConnectDataError(f"expected {expected}, found {found}")
