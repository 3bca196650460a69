"""Java's calendar: Julian before 15 October 1582, Gregorian since, and lenient with every field.

A month of 13 is January of the next year, a 31st of February the 3rd of March, an hour of 99 four days on.
Years count on through 0 (1 BC) below. Times of day and days are in UTC.
"""

from __future__ import annotations

from typing import Final

from headerware.connect.data.numbers import Int32, wrapped_int64
from headerware.connect.data.times import DAY_MS

_GREGORIAN_SINCE: Final = -141_427
"""15 October 1582, in days since the epoch."""
_GREGORIAN_YEAR: Final = 1582
_WEEKDAYS: Final = ("Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def lenient_epoch_ms(year: int, month: int, day: int, of_day_ms: int) -> int:
    """Return the milliseconds since the epoch of fields that may be out of range.

    Args:
        year: the year; 0 is 1 BC.
        month: the month, from 1.
        day: the day of the month, from 1.
        of_day_ms: milliseconds since midnight.
    """
    years, month_index = divmod(int(Int32.wrapped(month - 1)), 12)
    actual = int(Int32.wrapped(year + years))
    more_days, of_day_ms = divmod(of_day_ms, DAY_MS)
    offset = more_days + day - 1
    julian = offset + _julian_days(actual, month_index + 1)
    gregorian = offset + _gregorian_days(actual, month_index + 1)
    is_gregorian = year >= _GREGORIAN_YEAR and gregorian >= _GREGORIAN_SINCE
    return wrapped_int64((gregorian if is_gregorian else julian) * DAY_MS + of_day_ms)


def fields_of(epoch_days: int) -> tuple[int, int, int]:
    """Return the year, the month and the day of days since the epoch."""
    if epoch_days >= _GREGORIAN_SINCE:
        return gregorian_fields_of(epoch_days)
    era, day_of_era = divmod(epoch_days + 719_470, 1461)
    year_of_era = (day_of_era - day_of_era // 1460) // 365
    return _from_march(era * 4 + year_of_era, day_of_era - 365 * year_of_era)


def gregorian_fields_of(epoch_days: int) -> tuple[int, int, int]:
    """Return the year, the month and the day of days since the epoch, as ISO 8601 has them: never Julian."""
    era, day_of_era = divmod(epoch_days + 719_468, 146_097)
    leaps = day_of_era // 1460 - day_of_era // 36_524 + day_of_era // 146_096
    year_of_era = (day_of_era - leaps) // 365
    first_day = 365 * year_of_era + year_of_era // 4 - year_of_era // 100
    return _from_march(era * 400 + year_of_era, day_of_era - first_day)


def _from_march(year: int, day_of_year: int) -> tuple[int, int, int]:
    """Return the date of a day of a year that begins in March, so that the leap day is its last."""
    month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month + 2) // 5 + 1
    return (year, month + 3, day) if month < 10 else (year + 1, month - 9, day)


def java_date_text(epoch_ms: int) -> str:
    """Write a point in time as ``java.util.Date.toString``: ``Sun May 21 16:31:05 UTC 2017``."""
    days, of_day = divmod(epoch_ms, DAY_MS)
    year, month, day = fields_of(days)
    seconds = of_day // 1000
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    of_era = year if year > 0 else 1 - year
    return f"{_WEEKDAYS[days % 7]} {_MONTHS[month - 1]} {day:02} {clock} UTC {of_era}"


def _gregorian_days(year: int, month: int) -> int:
    """Return the first day of a month, in days since the epoch."""
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    leaps = year_of_era // 4 - year_of_era // 100
    return era * 146_097 + year_of_era * 365 + leaps + _days_since_march(month) - 719_468


def _julian_days(year: int, month: int) -> int:
    year -= month <= 2
    era, year_of_era = divmod(year, 4)
    return era * 1461 + year_of_era * 365 + _days_since_march(month) - 719_470


def _days_since_march(month: int) -> int:
    return (153 * ((month - 3) % 12) + 2) // 5
