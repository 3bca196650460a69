"""From fields to a point in time, as Java's lenient calendar does it.

Fields may contradict each other and may be of any size. What was set last decides which of them make the
day: the day of the month; a week of the month, or a count of a weekday in it; the day of the year; or a week
of the year. What is too large carries over: the 45th of January is the 14th of February.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headerware.connect.data.numbers import Int32, wrapped_int64
from headerware.connect.data.times import DAY_MS
from headerware.connect.java.dates.calendar import (
    CUTOVER_DAY,
    CUTOVER_YEAR,
    EPOCH_DAY,
    date_of,
    day_of,
    is_leap,
    weekday_on_or_before,
)

Fields = Mapping[str, int]
"""Fields in the order in which they were set, the last one last. ``month`` counts from 0, ``weekday`` from
Sunday, 1; ``era`` is 0 before the year 1; ``zone_ms`` is the offset from UTC."""

_SUNDAY: Final = 1
_WEEK: Final = 7
_MONTH_DAYS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def epoch_ms(fields: Fields) -> int:
    """Return the local milliseconds since the epoch, less the offset of the zone where one is set."""
    days, of_day = divmod(_time_of_day(fields, _places(fields)), DAY_MS)
    if "week_year" in fields and _places(fields)["week_year"] > _places(fields).get("year", 0):
        made = _date_of_week(fields, days)
        fields = {name: value for name, value in fields.items() if name not in made} | made
    day = _day(fields, days)
    return wrapped_int64((day - EPOCH_DAY) * DAY_MS + of_day - fields.get("zone_ms", 0))


def _places(fields: Fields) -> dict[str, int]:
    """Return the order in which fields were set, from 1."""
    return {name: place for place, name in enumerate(fields, 1)}


def _wrapped(number: int) -> int:
    return int(Int32.wrapped(number))


def _time_of_day(fields: Fields, places: Mapping[str, int]) -> int:
    half = max(places["hour"], places["half"]) if "hour" in places and "half" in places else 0
    of_day = places.get("hour_of_day", 0)
    if of_day and of_day >= half:
        hours = fields["hour_of_day"]
    else:
        hours = fields.get("hour", 0) + 12 * fields.get("half", 0)
    minutes = hours * 60 + fields.get("minute", 0)
    return (minutes * 60 + fields.get("second", 0)) * 1000 + fields.get("millisecond", 0)


def _year(fields: Fields) -> int:
    year = fields.get("year", 1970)
    return _wrapped(1 - year) if fields.get("era") == 0 else year


def _day(fields: Fields, carried: int) -> int:
    """Return the day, in the calendar of its time.

    Args:
        fields: the fields.
        carried: the days that the time of day is too large by.
    """
    year, chosen = _year(fields), _chosen(_places(fields))
    if year > CUTOVER_YEAR or (year == CUTOVER_YEAR and "month" in chosen):
        gregorian = carried + _day_in(fields, year, chosen, julian=False)
        if gregorian >= CUTOVER_DAY:
            return gregorian
    return carried + _day_in(fields, year, chosen, julian=True)


def _chosen(places: Mapping[str, int]) -> frozenset[str]:
    """Name the fields that make the day: of those that make one together, the ones that were set last."""

    def latest(*names: str) -> int:
        return max(places[name] for name in names) if all(name in places for name in names) else 0

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
    weekday = {"weekday"} & set(places)
    after_week_of_year = latest("week_of_year")
    if best == of_month:
        return frozenset({"month", "day"})
    by_month = (best == week_of_month and latest("week_of_month") >= after_week_of_year) or (
        best == nth_weekday and latest("nth_weekday") >= after_week_of_year
    )
    if not by_month:
        return frozenset({"day_of_year"}) if best == of_year else frozenset({"week_of_year", *weekday})
    if week_of_month == nth_weekday:
        by_week = latest("week_of_month") >= latest("nth_weekday")
    else:
        by_week = best == week_of_month
    nth = {"nth_weekday"} if "nth_weekday" in places or week_of_month == nth_weekday else set()
    return frozenset({"month", *weekday, *({"week_of_month"} if by_week else nth)})


def _day_in(fields: Fields, year: int, chosen: frozenset[str], *, julian: bool) -> int:
    """Return the day that the chosen fields make in one of the two calendars."""
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
    length = _MONTH_DAYS[month] + (month == 1 and is_leap(year, julian=year <= CUTOVER_YEAR))
    last = _wrapped(length + _WEEK * (nth + 1))
    return _on_or_before(first + last - 1, weekday)


def _on_or_before(day: int, weekday: int) -> int:
    return weekday_on_or_before(day, _wrapped(weekday - 1) + 1)


def _first_week(first: int) -> int:
    """Return the Sunday on or before the first day of a year or month, which opens its first week."""
    return weekday_on_or_before(first, _SUNDAY)


def _date_of_week(fields: Fields, carried: int) -> dict[str, int]:
    """Return the era, year, month and day of a year of weeks, a week and a weekday."""
    week, weekday = fields.get("week_of_year", 1), fields.get("weekday", _SUNDAY)
    if not 1 <= weekday <= _WEEK:
        # Such weekdays still count from Monday, 1.
        weeks, from_monday = divmod(weekday - 1, _WEEK)
        week, weekday = _wrapped(week + weeks), (from_monday + 1) % _WEEK + 1
    without = {name: value for name, value in fields.items() if name != "week_year"}
    era = 0 if date_of(_day(without, carried))[0] < 1 else 1
    opening = {"era": era, "year": fields["week_year"], "week_of_year": 1, "weekday": _SUNDAY}
    # A year that is too large wraps around here already, and then perhaps not at midnight.
    first = wrapped_int64((_day(opening, 0) - EPOCH_DAY) * DAY_MS) // DAY_MS + EPOCH_DAY
    year, month, day = date_of(first + _wrapped(weekday - _SUNDAY + _WEEK * (week - 1)))
    return {"era": 1, "year": year, "month": month - 1, "day": day}
