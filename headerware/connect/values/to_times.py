"""Convert values to dates, times and timestamps (KIP-145's ``Values.convertToDate`` and so on).

A timestamp becomes the day, or the time of day, that it lies in; a date the midnight that it begins with.
``kafka_4_3`` takes the day after for timestamps before 1970.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from headerware.connect.data.logical import Date, Time
from headerware.connect.data.numbers import Int32, wrapped_int64
from headerware.connect.data.schema import DATE, TIME, TIMESTAMP, Schema
from headerware.connect.data.times import DAY_MS, Instant, from_epoch_ms, is_time, to_epoch_ms
from headerware.connect.errors import ConnectDataError, NullValueError
from headerware.connect.java.dates.iso import time_of_day_ms
from headerware.connect.modes import STRICT, Mode
from headerware.connect.values.numbers_of import narrowed_int64, whole_number
from headerware.connect.values.parse import parse_string


def convert_to_date(schema: Schema | None, value: Any, *, mode: Mode = "strict") -> datetime | Instant | None:
    """Convert a value to a date, which is its midnight in UTC.

    Args:
        schema: what the value is; None for a schemaless one.
        value: a date or timestamp, a number of days since the epoch, or the text of one of these.
        mode: ``strict`` takes a schemaless point in time for a timestamp; ``kafka_4_3`` takes it as it is.

    Raises:
        ConnectDataError: the value is none of these; in ``kafka_4_3``, it is null.
        NullValueError: in ``kafka_4_3``, the text is ``null``.
    """
    if mode == STRICT:
        return _strict_date(schema, value)
    value = _read(value)
    name = None if schema is None else schema.name
    if is_time(value):
        if schema is None or name == DATE:
            return _time(value)
        if name == TIMESTAMP:
            epoch_ms = to_epoch_ms(value)
            days = epoch_ms // DAY_MS if epoch_ms >= 0 else -(-epoch_ms // DAY_MS)
            return Date.to_logical(Date.SCHEMA, Int32.wrapped(days))
    return Date.to_logical(Date.SCHEMA, Int32.wrapped(narrowed_int64(schema, value)))


def convert_to_time(schema: Schema | None, value: Any, *, mode: Mode = "strict") -> datetime | Instant | None:
    """Convert a value to a time of day, which is a point in time on the first day.

    Args:
        schema: what the value is; None for a schemaless one.
        value: a time or timestamp, a number of milliseconds since midnight, or the text of one of these.
        mode: ``strict`` takes a schemaless point in time for a timestamp; ``kafka_4_3`` takes it as it is.

    Raises:
        ConnectDataError: the value is none of these; in ``kafka_4_3``, it is null.
        NullValueError: in ``kafka_4_3``, the text is ``null``.
    """
    if mode == STRICT:
        return _strict_time(schema, value)
    value = _read(value)
    name = None if schema is None else schema.name
    if is_time(value):
        if schema is None or name == TIME:
            return _time(value)
        if name == TIMESTAMP:
            return Time.to_logical(Time.SCHEMA, Int32.wrapped(time_of_day_ms(to_epoch_ms(value))))
    return Time.to_logical(Time.SCHEMA, Int32.wrapped(narrowed_int64(schema, value)))


def convert_to_timestamp(
    schema: Schema | None, value: Any, *, mode: Mode = "strict"
) -> datetime | Instant | None:
    """Convert a value to a timestamp.

    Args:
        schema: what the value is; None for a schemaless one.
        value: a point in time, a number of milliseconds since the epoch, or the text of one of these.
        mode: ``strict`` refuses a time of day, which has no day; ``kafka_4_3`` puts it on the first one.

    Raises:
        ConnectDataError: the value is none of these; in ``kafka_4_3``, it is null.
        NullValueError: in ``kafka_4_3``, the text is ``null``.
    """
    if mode == STRICT:
        return _strict_timestamp(schema, value)
    value = _read(value)
    if is_time(value):
        if schema is None or schema.name == TIMESTAMP:
            return _time(value)
        if schema.name == DATE:
            return from_epoch_ms(wrapped_int64(Date.from_logical(schema, value) * DAY_MS))
        if schema.name == TIME:
            return from_epoch_ms(Time.from_logical(schema, value))
    return from_epoch_ms(narrowed_int64(schema, value))


def _read(value: Any) -> Any:
    """Return a text's value, and any other as it is, but null."""
    if value is None:
        raise ConnectDataError("expected a point in time, found null")
    if not isinstance(value, str):
        return value
    parsed = parse_string(value, mode="kafka_4_3")
    if parsed is None:
        raise NullValueError("expected a point in time, found the text of null")
    return parsed.value


def _strict_date(schema: Schema | None, value: Any) -> datetime | Instant | None:
    name, value = _strictly(schema, value)
    if value is None:
        return None
    if name == TIME:
        raise ConnectDataError("expected a date, found a time of day")
    if name == DATE:
        Date.from_logical(Date.SCHEMA, value)
        return _time(value)
    if name == TIMESTAMP:
        return from_epoch_ms(to_epoch_ms(value) // DAY_MS * DAY_MS)
    return Date.to_logical(Date.SCHEMA, Int32(whole_number(schema, value)))


def _strict_time(schema: Schema | None, value: Any) -> datetime | Instant | None:
    name, value = _strictly(schema, value)
    if value is None:
        return None
    if name == DATE:
        raise ConnectDataError("expected a time of day, found a date")
    if name == TIMESTAMP:
        return from_epoch_ms(to_epoch_ms(value) % DAY_MS)
    of_day = Time.from_logical(Time.SCHEMA, value) if name == TIME else whole_number(schema, value)
    return Time.to_logical(Time.SCHEMA, of_day)


def _strict_timestamp(schema: Schema | None, value: Any) -> datetime | Instant | None:
    name, value = _strictly(schema, value)
    if value is None:
        return None
    if name == TIME:
        raise ConnectDataError("expected a timestamp, found a time of day, which has no day")
    if name == DATE:
        Date.from_logical(Date.SCHEMA, value)
    if name is not None:
        return _time(value)
    return from_epoch_ms(_int64(whole_number(schema, value)))


def _strictly(schema: Schema | None, value: Any) -> tuple[str | None, Any]:
    """Return the name of the logical type that a value has, or None for a number, and the value."""
    if isinstance(value, str):
        parsed = parse_string(value)
        if parsed is None or parsed.value is None:
            raise ConnectDataError("expected a point in time, found the text of null")
        schema, value = parsed
    if not is_time(value):
        return None, value
    name = TIMESTAMP if schema is None else schema.name
    if name not in _TIME_NAMES:
        raise ConnectDataError(f"expected the schema of a point in time, found {schema}")
    return name, value


_TIME_NAMES = frozenset({DATE, TIME, TIMESTAMP})


def _int64(number: int) -> int:
    if not -(1 << 63) <= number < 1 << 63:
        raise ConnectDataError("expected milliseconds in 64 bits, found more")
    return number


def _time(value: Any) -> datetime | Instant:
    found: datetime | Instant = value
    return found
