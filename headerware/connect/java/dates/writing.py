"""Write points in time by a pattern, in English and UTC."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from headerware.connect.java.dates.calendar import (
    CUTOVER_YEAR,
    Moment,
    date_of,
    day_of,
    weekday_on_or_before,
)

if TYPE_CHECKING:
    from headerware.connect.java.dates.pattern import Piece

Parts = datetime | Moment
"""What fields are read from; a datetime is in UTC, and of the Gregorian calendar whatever its year."""
Reader = Callable[[Any], Any]
"""Gives a field of :data:`Parts`."""

MONTHS: Final = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MOST_DIGITS: Final = 309
"""Java pads numbers to so many digits, and no more."""
_LONG: Final = 4
_NAMED_MONTH: Final = 3
_SUNDAY: Final = 1


def writer(pieces: Sequence[Piece]) -> Callable[[Parts], str]:
    """Compile a pattern to a function that writes points in time."""
    template, readers = "", []
    for piece in pieces:
        if not piece.letter:
            template += piece.text.replace("%", "%%")
            continue
        form, reader = _FIELDS[piece.letter](piece.width)
        template += form
        readers.append(reader)
    if not readers:
        text = template % ()
        return lambda _: text
    return lambda parts: template % tuple([read(parts) for read in readers])


def _number(read: Reader) -> Callable[[int], tuple[str, Reader]]:
    return lambda count: (f"%0{min(count, _MOST_DIGITS)}d", read)


def _year(read: Reader) -> Callable[[int], tuple[str, Reader]]:
    def compiled(count: int) -> tuple[str, Reader]:
        if count == 2:
            return "%s", lambda parts: _two_digits(read(parts))
        # The sign of a year before 1 does not count as one of the digits.
        return "%s", lambda parts: _padded(read(parts), min(count, _MOST_DIGITS))

    return compiled


def _two_digits(year: int) -> str:
    return f"{year % 100:02d}" if year >= 0 else f"-{-year % 100:02d}"


def _padded(number: int, digits: int) -> str:
    return f"{number:0{digits}d}" if number >= 0 else f"-{-number:0{digits}d}"


def _text(short: Reader, long: Reader) -> Callable[[int], tuple[str, Reader]]:
    return lambda count: ("%s", long if count >= _LONG else short)


def _month(count: int) -> tuple[str, Reader]:
    if count < _NAMED_MONTH:
        return f"%0{count}d", attrgetter("month")
    if count == _NAMED_MONTH:
        return "%s", lambda parts: MONTHS[parts.month - 1][:3]
    return "%s", lambda parts: MONTHS[parts.month - 1]


def _iso_zone(count: int) -> tuple[str, Reader]:
    def read(parts: Parts) -> str:
        offset = _zone(parts)[0]
        if offset == "+0000":
            return "Z"
        return {1: offset[:3], 2: offset, 3: f"{offset[:3]}:{offset[3:]}"}[count]

    return "%s", read


_UTC_ZONE: Final = ("+0000", "UTC", "Coordinated Universal Time")


def _zone(parts: Parts) -> tuple[str, str, str]:
    return (parts.zone or _UTC_ZONE) if isinstance(parts, Moment) else _UTC_ZONE


def _of_zone(at: int) -> Reader:
    return lambda parts: _zone(parts)[at]


def _era(parts: Parts) -> str:
    return "BC" if isinstance(parts, Moment) and parts.astronomical_year < 1 else "AD"


def _astronomical_year(parts: Parts) -> int:
    return parts.astronomical_year if isinstance(parts, Moment) else parts.year


def _first_day(parts: Parts, year: int) -> int:
    """Return the day of 1 January of a year."""
    return day_of(year, 1, 1, julian=isinstance(parts, Moment) and year <= CUTOVER_YEAR)


def _day_in_year(parts: Parts) -> int:
    return parts.toordinal() - _first_day(parts, _astronomical_year(parts)) + 1


def _week(parts: Parts) -> int:
    """Return the number of a week: weeks open on Sunday, the first one has 1 January."""
    day, year = parts.toordinal(), _astronomical_year(parts)
    opening = weekday_on_or_before(day, _SUNDAY)
    if opening + 6 >= _first_day(parts, year + 1):
        return 1
    return (opening - weekday_on_or_before(_first_day(parts, year), _SUNDAY)) // 7 + 1


def _week_year(parts: Parts) -> int:
    """Return the year that a week counts for."""
    year = _astronomical_year(parts)
    left = _first_day(parts, year + 1) - parts.toordinal()
    # Before the year 1, Java looks for the weekday of the next 1 January in the other era.
    following = _first_day(parts, year + 1 if year > 0 else -year)
    return year + (left <= following - weekday_on_or_before(following, _SUNDAY))


def _week_in_month(parts: Parts) -> int:
    day = parts.toordinal()
    first = _first_of_month(parts)
    return (weekday_on_or_before(day, _SUNDAY) - weekday_on_or_before(first, _SUNDAY)) // 7 + 1


def _first_of_month(parts: Parts) -> int:
    """Return the first day of the month; October 1582 lacks ten days."""
    day = parts.toordinal()
    first = day - parts.day + 1
    year, month, _ = date_of(first) if isinstance(parts, Moment) else (parts.year, parts.month, 1)
    same = (year, month) == (_astronomical_year(parts), parts.month)
    return first if same else first + 10


_FIELDS: Final[dict[str, Callable[[int], tuple[str, Reader]]]] = {
    "G": _text(_era, _era),
    "y": _year(attrgetter("year")),
    "Y": _year(_week_year),
    "M": _month,
    "L": _month,
    "w": _number(_week),
    "W": _number(_week_in_month),
    "D": _number(_day_in_year),
    "d": _number(attrgetter("day")),
    "F": _number(lambda parts: (parts.toordinal() - _first_of_month(parts)) // 7 + 1),
    "E": _text(lambda parts: WEEKDAYS[parts.weekday()][:3], lambda parts: WEEKDAYS[parts.weekday()]),
    "u": _number(lambda parts: parts.weekday() + 1),
    "a": _text(*[lambda parts: "AM" if parts.hour < 12 else "PM"] * 2),
    "H": _number(attrgetter("hour")),
    "k": _number(lambda parts: parts.hour or 24),
    "K": _number(lambda parts: parts.hour % 12),
    "h": _number(lambda parts: parts.hour % 12 or 12),
    "m": _number(attrgetter("minute")),
    "s": _number(attrgetter("second")),
    "S": _number(lambda parts: parts.microsecond // 1000),
    "z": _text(_of_zone(1), _of_zone(2)),
    "Z": _text(_of_zone(0), _of_zone(0)),
    "X": _iso_zone,
}
