"""Java's ``GregorianCalendar``: Julian up to 4 October 1582, Gregorian from 15 October, and lenient.

Days are counted as ``date.toordinal`` does, 1 being 1 January of the Gregorian year 1, but without limits.
The year before 1 is 0. Weekdays are numbered from Sunday, 1, to Saturday, 7.

Fields of dates may contradict each other and may be of any size. The fields that were set last determine the
day: the day of the month; a week of the month, or a count of a weekday in it; the day of the year; or a week
of the year. A number that is too large carries over: the 45th of January is the 14th of February.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Final

from headerware.connect.data.numbers import Int32, wrapped_int64
from headerware.connect.data.times import DAY_MS

EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
CUTOVER_YEAR: Final = 1582
GREGORIAN: Final = datetime(1583, 1, 1, tzinfo=UTC)
"""From the first wholly Gregorian year on, a ``datetime`` has the same fields as a :class:`Moment`."""
_CUTOVER_DAY: Final = date(1582, 10, 15).toordinal()
_JULIAN_YEAR_1: Final = -1
"""The day of 1 January of the Julian year 1."""
_DAYS_BEFORE_MONTH: Final = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365)
_MARCH: Final = 3
_SUNDAY: Final = 1
_WEEK: Final = 7
_MONTH_AND_DAY: Final = frozenset({"month", "day"})
_INSTEAD_OF_DAY: Final = ("day_of_year", "week_of_year", "week_of_month", "nth_weekday", "weekday")


def day_of(year: int, month: int, day: int, *, julian: bool) -> int:
    """Return the day of a date; the day of the month may be of any size, the month is from 1 to 12."""
    before = year - 1
    days = before * 365 + before // 4 + _DAYS_BEFORE_MONTH[month - 1] + day
    days += _JULIAN_YEAR_1 - 1 if julian else before // 400 - before // 100
    return days + (month >= _MARCH and _is_leap(year, julian=julian))


def _is_leap(year: int, *, julian: bool) -> bool:
    return year % 4 == 0 and (julian or year % 100 != 0 or year % 400 == 0)


def date_of(day: int) -> tuple[int, int, int]:
    """Return the year, month and day of the month, in the calendar of that time."""
    if day >= _CUTOVER_DAY:
        return gregorian_date_of(day)
    # The years are taken from 1 March of the year 0, so that a leap day is the last day of its year.
    era, day_of_era = divmod(day + 307, 1461)
    year_of_era = (day_of_era - day_of_era // 1460) // 365
    return _from_march(era * 4 + year_of_era, day_of_era - 365 * year_of_era)


def gregorian_date_of(day: int) -> tuple[int, int, int]:
    """Return the year, month and day of the month in ISO 8601, which is always Gregorian."""
    era, day_of_era = divmod(day + 305, 146_097)
    leaps = day_of_era // 1460 - day_of_era // 36_524 + day_of_era // 146_096
    year_of_era = (day_of_era - leaps) // 365
    first_day = 365 * year_of_era + year_of_era // 4 - year_of_era // 100
    return _from_march(era * 400 + year_of_era, day_of_era - first_day)


def _from_march(year: int, day_of_year: int) -> tuple[int, int, int]:
    """Return the date of a day of a year that begins in March."""
    month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month + 2) // 5 + 1
    return (year, month + 3, day) if month < 10 else (year + 1, month - 9, day)


def weekday_on_or_before(day: int, weekday: int) -> int:
    """Return the last day with this weekday that is not after the given day."""
    return day - (day - weekday + 1) % _WEEK


class Moment:
    """A point in time of any year, with the attributes and methods of a ``datetime`` that are needed here."""

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
        """The year of the era: both 1 AD and 1 BC are 1."""
        return self.astronomical_year if self.astronomical_year > 0 else 1 - self.astronomical_year

    def toordinal(self) -> int:
        """Return the day."""
        return self.ordinal

    def weekday(self) -> int:
        """Return the weekday, Monday being 0."""
        return (self.ordinal - 1) % 7


_Fields = Mapping[str, int]
"""Fields in the order in which they were set. ``month`` counts from 0, ``weekday`` from
Sunday, 1; ``era`` is 0 before the year 1; ``zone_ms`` is the offset from UTC."""


def epoch_ms_of(fields: _Fields) -> int:
    """Return the milliseconds since the epoch, of the local time unless the fields have a zone's offset."""
    order = _order(fields)
    days, of_day = divmod(_time_of_day(fields, order), DAY_MS)
    if "week_year" in fields and order["week_year"] > order.get("year", 0):
        made = _date_of_week(fields, days)
        fields = {name: value for name, value in fields.items() if name not in made} | made
    day = _day(fields, days)
    return wrapped_int64((day - EPOCH_DAY) * DAY_MS + of_day - fields.get("zone_ms", 0))


def _order(fields: _Fields) -> dict[str, int]:
    """Return the order in which fields were set, from 1."""
    return {name: number for number, name in enumerate(fields, 1)}


def _wrapped(number: int) -> int:
    return int(Int32.wrapped(number))


def _time_of_day(fields: _Fields, order: Mapping[str, int]) -> int:
    half = max(order["hour"], order["half"]) if "hour" in order and "half" in order else 0
    of_day = order.get("hour_of_day", 0)
    if of_day and of_day >= half:
        hours = fields["hour_of_day"]
    else:
        hours = fields.get("hour", 0) + 12 * fields.get("half", 0)
    minutes = hours * 60 + fields.get("minute", 0)
    return (minutes * 60 + fields.get("second", 0)) * 1000 + fields.get("millisecond", 0)


def _year(fields: _Fields) -> int:
    year = fields.get("year", 1970)
    return _wrapped(1 - year) if fields.get("era") == 0 else year


def _day(fields: _Fields, carried: int) -> int:
    """Return the day, in the calendar of that time; the time of day has ``carried`` days too many."""
    year, chosen = _year(fields), _chosen(_order(fields))
    if year > CUTOVER_YEAR or (year == CUTOVER_YEAR and "month" in chosen):
        gregorian = carried + _day_in(fields, year, chosen, julian=False)
        if gregorian >= _CUTOVER_DAY:
            return gregorian
    return carried + _day_in(fields, year, chosen, julian=True)


def _chosen(order: Mapping[str, int]) -> frozenset[str]:
    """Return the fields that determine the day: the combination that was set last."""
    if order.keys().isdisjoint(_INSTEAD_OF_DAY):
        return _MONTH_AND_DAY

    def latest(*names: str) -> int:
        return max(order[name] for name in names) if all(name in order for name in names) else 0

    of_month, of_year = latest("day"), latest("day_of_year")
    week_of_month, nth_weekday = latest("week_of_month", "weekday"), latest("nth_weekday", "weekday")
    week_of_year = latest("week_of_year", "weekday")
    best = max(of_month, week_of_month, nth_weekday, of_year, week_of_year)
    if not best:
        week_of_month, week_of_year = latest("week_of_month"), latest("week_of_year")
        nth_weekday = max(latest("nth_weekday"), latest("weekday"))
        best = max(week_of_month, nth_weekday, week_of_year)
        if not best:
            best = of_month = latest("month")
    weekday = {"weekday"} & set(order)
    after_week_of_year = latest("week_of_year")
    if best == of_month:
        return _MONTH_AND_DAY
    by_month = (best == week_of_month and latest("week_of_month") >= after_week_of_year) or (
        best == nth_weekday and latest("nth_weekday") >= after_week_of_year
    )
    if not by_month:
        return frozenset({"day_of_year"}) if best == of_year else frozenset({"week_of_year", *weekday})
    if week_of_month == nth_weekday:
        by_week = latest("week_of_month") >= latest("nth_weekday")
    else:
        by_week = best == week_of_month
    nth = {"nth_weekday"} if "nth_weekday" in order or week_of_month == nth_weekday else set()
    return frozenset({"month", *weekday, *({"week_of_month"} if by_week else nth)})


def _day_in(fields: _Fields, year: int, chosen: frozenset[str], *, julian: bool) -> int:
    """Return the day that the chosen fields determine, Julian or Gregorian."""
    if "month" not in chosen:
        first = day_of(year, 1, 1, julian=julian)
        if "day_of_year" in chosen:
            return first + fields["day_of_year"] - 1
        week = _first_week(first)
        if "weekday" in chosen and fields["weekday"] != _SUNDAY:
            week = _on_or_before(week + 6, fields["weekday"])
        return week + _WEEK * (fields["week_of_year"] - 1)
    years, month = divmod(fields.get("month", 0), 12)
    year = _wrapped(year + years)
    first = day_of(year, month + 1, 1, julian=julian)
    if "day" in chosen:
        return first + fields.get("day", 1) - 1
    weekday = fields["weekday"] if "weekday" in chosen else _SUNDAY
    if "week_of_month" in chosen:
        week = _first_week(first)
        if "weekday" in chosen:
            week = _on_or_before(week + 6, weekday)
        return week + _wrapped(_WEEK * _wrapped(fields["week_of_month"] - 1))
    nth = fields["nth_weekday"] if "nth_weekday" in chosen else 1
    if nth >= 0:
        return _on_or_before(first + _wrapped(_WEEK * nth) - 1, weekday)
    length = (
        _DAYS_BEFORE_MONTH[month + 1]
        - _DAYS_BEFORE_MONTH[month]
        + (month == 1 and _is_leap(year, julian=year <= CUTOVER_YEAR))
    )
    last = _wrapped(length + _WEEK * (nth + 1))
    return _on_or_before(first + last - 1, weekday)


def _on_or_before(day: int, weekday: int) -> int:
    return weekday_on_or_before(day, _wrapped(weekday - 1) + 1)


def _first_week(first: int) -> int:
    """Return the Sunday on or before the first day of a year or month, on which its first week begins."""
    return weekday_on_or_before(first, _SUNDAY)


def _date_of_week(fields: _Fields, carried: int) -> dict[str, int]:
    """Return the era, year, month and day that a week year, a week and a weekday determine."""
    week, weekday = fields.get("week_of_year", 1), fields.get("weekday", _SUNDAY)
    if not 1 <= weekday <= _WEEK:
        # Other weekdays still count from Monday, 1.
        weeks, from_monday = divmod(weekday - 1, _WEEK)
        week, weekday = _wrapped(week + weeks), (from_monday + 1) % _WEEK + 1
    without = {name: value for name, value in fields.items() if name != "week_year"}
    era = 0 if date_of(_day(without, carried))[0] < 1 else 1
    first_of_year = {"era": era, "year": fields["week_year"], "week_of_year": 1, "weekday": _SUNDAY}
    # A year that is too large wraps around here already, and then perhaps not at midnight.
    first = wrapped_int64((_day(first_of_year, 0) - EPOCH_DAY) * DAY_MS) // DAY_MS + EPOCH_DAY
    year, month, day = date_of(first + _wrapped(weekday - _SUNDAY + _WEEK * (week - 1)))
    return {"era": 1, "year": year, "month": month - 1, "day": day}
