"""Days and years as Java's calendar counts them: Julian up to 4 October 1582, Gregorian from 15 October.

Days are counted as Python's ``date.toordinal`` does, 1 being 1 January of the Gregorian year 1, but without
an end at either side. Weekdays are numbered from Sunday, 1, to Saturday, 7.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Final

from headerware.connect.data.times import DAY_MS
from headerware.connect.java.dates.days import fields_of

EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
CUTOVER_DAY: Final = date(1582, 10, 15).toordinal()
CUTOVER_YEAR: Final = 1582
GREGORIAN: Final = datetime(1583, 1, 1, tzinfo=UTC)
"""From the first year on that is wholly Gregorian, a ``datetime`` has the same parts as a moment."""
_JULIAN_SHIFT: Final = -1
"""1 January of the Julian year 1 is the day -1."""
_DAYS_BEFORE: Final = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)
_MARCH: Final = 3


def is_leap(year: int, *, julian: bool) -> bool:
    """Return whether a year has a 29 February."""
    return year % 4 == 0 and (julian or year % 100 != 0 or year % 400 == 0)


def day_of(year: int, month: int, day: int, *, julian: bool) -> int:
    """Return the day of a date.

    Args:
        year: the year; 0 is the one before 1.
        month: from 1 to 12.
        day: of the month, of any size.
        julian: in which of the two calendars.
    """
    before = year - 1
    days = before * 365 + before // 4 + _DAYS_BEFORE[month - 1] + day
    days += _JULIAN_SHIFT - 1 if julian else before // 400 - before // 100
    return days + (month >= _MARCH and is_leap(year, julian=julian))


def date_of(day: int) -> tuple[int, int, int]:
    """Return the year, month and day of the month of a day, in the calendar of its time."""
    return fields_of(day - EPOCH_DAY)


def weekday_on_or_before(day: int, weekday: int) -> int:
    """Return the last day that is such a weekday, not after the given one."""
    return day - (day - weekday + 1) % 7


class Moment:
    """A point in time of any year, under the names that a ``datetime`` has for its parts.

    Args:
        local_ms: milliseconds since the epoch, of the local time.
        zone: how the zone is written as ``Z`` has it, and its short and long names.
    """

    __slots__ = (
        "astronomical_year",
        "day",
        "hour",
        "microsecond",
        "minute",
        "month",
        "ordinal",
        "second",
        "zone",
    )

    def __init__(self, local_ms: int, zone: tuple[str, str, str] | None = None) -> None:
        days, of_day = divmod(local_ms, DAY_MS)
        self.ordinal: int = days + EPOCH_DAY
        year, month, day = date_of(self.ordinal)
        self.astronomical_year: int = year
        self.month: int = month
        self.day: int = day
        seconds, milliseconds = divmod(of_day, 1000)
        self.hour: int = seconds // 3600
        self.minute: int = seconds // 60 % 60
        self.second: int = seconds % 60
        self.microsecond: int = milliseconds * 1000
        self.zone: tuple[str, str, str] | None = zone

    @property
    def year(self) -> int:
        """The year of the era; the one before 1 is 1, too."""
        return self.astronomical_year if self.astronomical_year > 0 else 1 - self.astronomical_year

    def toordinal(self) -> int:
        """Return the day."""
        return self.ordinal

    def weekday(self) -> int:
        """Return the weekday, Monday being 0."""
        return (self.ordinal - 1) % 7
