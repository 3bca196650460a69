"""Dates and times as Kafka Connect writes and reads them, which is as Java's ``SimpleDateFormat`` does.

    yyyy-MM-dd                     Date
    HH:mm:ss.SSS'Z'                Time
    yyyy-MM-dd'T'HH:mm:ss.SSS'Z'   Timestamp

Reading is lenient: a field may be any integer, with blanks before it, even ``-3``, ``2E3``, ``NaN`` or ``∞``,
and what follows the pattern is left unread.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from headerware.connect.data.numbers import Int32, wrapped_int64
from headerware.connect.data.times import DAY_MS
from headerware.connect.java.dates.days import fields_of, gregorian_fields_of, lenient_epoch_ms
from headerware.connect.java.numbers import in_ascii_digits, saturated

_INT32_MAX: Final = (1 << 31) - 1
_INT64_MAX: Final = (1 << 63) - 1
_FIELD: Final = r"[ \t]*(NaN|-?∞|-?[0-9]+(?:E-?[0-9]+)?)"
_DATE_FIELDS: Final = f"{_FIELD}-{_FIELD}-{_FIELD}"
_TIME_FIELDS: Final = rf"{_FIELD}:{_FIELD}:{_FIELD}\.{_FIELD}Z"
_DATE: Final = re.compile(_DATE_FIELDS)
_TIME: Final = re.compile(_TIME_FIELDS)
_TIMESTAMP: Final = re.compile(f"{_DATE_FIELDS}T{_TIME_FIELDS}")


def lenient_date(text: str) -> int | None:
    """Read a date; gives milliseconds since the epoch, or None where it is none."""
    match = _DATE.match(in_ascii_digits(text))
    if match is None:
        return None
    year, month, day = map(_field, match.groups())
    return lenient_epoch_ms(year, month, day, 0)


def lenient_time(text: str) -> int | None:
    """Read a time of day; gives milliseconds since the epoch, or None where it is none."""
    match = _TIME.match(in_ascii_digits(text))
    return None if match is None else lenient_epoch_ms(1970, 1, 1, _of_day(*match.groups()))


def lenient_timestamp(text: str) -> int | None:
    """Read a timestamp; gives milliseconds since the epoch, or None where it is none."""
    match = _TIMESTAMP.match(in_ascii_digits(text))
    if match is None:
        return None
    year, month, day, *clock = match.groups()
    return lenient_epoch_ms(_field(year), _field(month), _field(day), _of_day(*clock))


LENIENT: Final[dict[int, Callable[[str], int | None]]] = {
    len("2017-05-21"): lenient_date,
    len("16:31:05.387Z"): lenient_time,
    len("2017-05-21T16:31:05.387Z"): lenient_timestamp,
}
"""What reads a text of this many UTF-16 units."""


def _of_day(hour: str, minute: str, second: str, millisecond: str) -> int:
    minutes = _field(hour) * 60 + _field(minute)
    return (minutes * 60 + _field(second)) * 1000 + _field(millisecond)


def _field(text: str) -> int:
    """Narrow the number of a field to 32 bits, as Java does: integers wrap, the rest saturates."""
    mantissa, _, power = text.partition("E")
    digits = mantissa.lstrip("-")
    negative = mantissa != digits
    if not digits.isdecimal():
        return saturated(float(mantissa.replace("∞", "inf")), _INT32_MAX)
    digits = digits.lstrip("0")
    point = int(Int32.wrapped(len(digits) + int(Int32.wrapped(int(power or 0)))))
    significant = digits.rstrip("0")
    if not significant:
        return 0
    if len(significant) <= point <= 19:
        whole = int(significant.ljust(point, "0"))
        if whole <= _INT64_MAX + negative:
            return int(Int32.wrapped(-whole if negative else whole))
    size = float(f"0.{significant}E{point}")
    return saturated(-size if negative else size, _INT32_MAX)


def kafka_text(epoch_ms: int) -> str:
    """Write a point in time as Kafka guesses its type: before the second day a time, at midnight a date."""
    if epoch_ms < DAY_MS:
        return time_text(epoch_ms)
    return timestamp_text(epoch_ms) if epoch_ms % DAY_MS else date_text(epoch_ms)


def date_text(epoch_ms: int) -> str:
    """Write the day of a point in time, as ISO 8601 has it."""
    year, month, day = gregorian_fields_of(epoch_ms // DAY_MS)
    return f"{year:04}-{month:02}-{day:02}"


def time_text(epoch_ms: int) -> str:
    """Write the time of day of a point in time."""
    seconds, milliseconds = divmod(epoch_ms % DAY_MS, 1000)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{milliseconds:03}Z"


def timestamp_text(epoch_ms: int) -> str:
    """Write the day and the time of day of a point in time."""
    return f"{date_text(epoch_ms)}T{time_text(epoch_ms)}"


def time_of_day_ms(epoch_ms: int) -> int:
    """Move a point in time to the first day, as Kafka does by setting the calendar's year, month and day.

    The era stays: what lies before our era goes to the year 1970 BC.
    """
    days, of_day = divmod(epoch_ms, DAY_MS)
    year, _, _ = fields_of(days)
    return of_day if year > 0 else wrapped_int64(lenient_epoch_ms(1 - 1970, 1, 1, of_day))
