"""The patterns of ``java.text.SimpleDateFormat``, and writing dates and times by them.

A pattern consists of repeated letters and literal text:

G era                 y year               Y year of the week    M, L month           w week in year
W week in month       D day in year        d day in month        F number of weekday in month
E weekday             u weekday, Monday 1  a AM, PM              H hour 0-23          k hour 1-24
K hour 0-11           h hour 1-12          m minute              s second             S millisecond
z name of the zone    Z +0100              X +01, XX +0100, XXX +01:00

Text between single quotes is literal, and so are all characters that are not ASCII letters. Two single quotes
stand for one. Names are in English.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, Final, NamedTuple

from headerware.connect.errors import ArgumentError
from headerware.connect.java.calendar import (
    CUTOVER_YEAR,
    Moment,
    date_of,
    day_of,
    weekday_on_or_before,
)

_LETTERS: Final = frozenset("GyYMLwWDdFEuaHkKhmsSzZX")
_QUOTE: Final = "'"
_ASCII: Final = frozenset(string.ascii_letters)
_LONGEST_ISO_ZONE: Final = 3


class Piece(NamedTuple):
    """A letter that is repeated ``width`` times, or else literal text."""

    letter: str
    width: int = 0
    text: str = ""


def parse_pattern(pattern: str) -> list[Piece]:
    """Split a pattern into its pieces; raise ArgumentError if a letter or a quote is wrong."""
    pieces: list[Piece] = []
    at, quoted = 0, False
    while at < len(pattern):
        character = pattern[at]
        if character == _QUOTE:
            if pattern.startswith(_QUOTE, at + 1):
                _add_text(pieces, _QUOTE)
                at += 1
            else:
                quoted = not quoted
        elif quoted or character not in _ASCII:
            _add_text(pieces, character)
        else:
            end = at + 1
            while end < len(pattern) and pattern[end] == character:
                end += 1
            pieces.append(_field(character, end - at))
            at = end - 1
        at += 1
    if quoted:
        raise ArgumentError("a single quote in the pattern is not closed; two of them stand for one")
    return pieces


def _add_text(pieces: list[Piece], text: str) -> None:
    if pieces and not pieces[-1].letter:
        pieces[-1] = Piece("", text=pieces[-1].text + text)
    else:
        pieces.append(Piece("", text=text))


def _field(letter: str, count: int) -> Piece:
    if letter not in _LETTERS:
        raise ArgumentError(
            f"the letter {letter!r} has no meaning in a pattern; quote it if it is literal text"
        )
    if letter == "X" and count > _LONGEST_ISO_ZONE:
        raise ArgumentError(f"expected X, XX or XXX in a pattern, found {count} of them")
    return Piece(letter, count)


_Parts = datetime | Moment
"""The point in time to write; a datetime is in UTC, and Gregorian in every year."""
_Getter = Callable[[Any], Any]

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
"""Java pads numbers to at most this many digits."""
_LONG: Final = 4
_NAMED_MONTH: Final = 3
_SUNDAY: Final = 1


def writer(pieces: Sequence[Piece]) -> Callable[[_Parts], str]:
    """Compile a pattern to a function that writes points in time."""
    template, getters = "", []
    for piece in pieces:
        if not piece.letter:
            template += piece.text.replace("%", "%%")
            continue
        form, getter = _FIELDS[piece.letter](piece.width)
        template += form
        getters.append(getter)
    if not getters:
        text = template % ()
        return lambda _: text
    return lambda parts: template % tuple([get(parts) for get in getters])


def _number(read: _Getter) -> Callable[[int], tuple[str, _Getter]]:
    return lambda count: (f"%0{min(count, _MOST_DIGITS)}d", read)


def _year(read: _Getter) -> Callable[[int], tuple[str, _Getter]]:
    def compiled(count: int) -> tuple[str, _Getter]:
        if count == 2:
            return "%s", lambda parts: _two_digits(read(parts))
        # The sign of a year before 1 does not count as one of the digits.
        return "%s", lambda parts: _padded(read(parts), min(count, _MOST_DIGITS))

    return compiled


def _two_digits(year: int) -> str:
    return f"{year % 100:02d}" if year >= 0 else f"-{-year % 100:02d}"


def _padded(number: int, digits: int) -> str:
    return f"{number:0{digits}d}" if number >= 0 else f"-{-number:0{digits}d}"


def _text(short: _Getter, long: _Getter) -> Callable[[int], tuple[str, _Getter]]:
    return lambda count: ("%s", long if count >= _LONG else short)


def _month(count: int) -> tuple[str, _Getter]:
    if count < _NAMED_MONTH:
        return f"%0{count}d", attrgetter("month")
    if count == _NAMED_MONTH:
        return "%s", lambda parts: MONTHS[parts.month - 1][:3]
    return "%s", lambda parts: MONTHS[parts.month - 1]


def _iso_zone(count: int) -> tuple[str, _Getter]:
    def read(parts: _Parts) -> str:
        offset = _zone(parts)[0]
        if offset == "+0000":
            return "Z"
        return {1: offset[:3], 2: offset, 3: f"{offset[:3]}:{offset[3:]}"}[count]

    return "%s", read


_UTC_ZONE: Final = ("+0000", "UTC", "Coordinated Universal Time")


def _zone(parts: _Parts) -> tuple[str, str, str]:
    return (parts.zone or _UTC_ZONE) if isinstance(parts, Moment) else _UTC_ZONE


def _of_zone(at: int) -> _Getter:
    return lambda parts: _zone(parts)[at]


def _era(parts: _Parts) -> str:
    return "BC" if isinstance(parts, Moment) and parts.astronomical_year < 1 else "AD"


def _astronomical_year(parts: _Parts) -> int:
    return parts.astronomical_year if isinstance(parts, Moment) else parts.year


def _first_day(parts: _Parts, year: int) -> int:
    """Return the day of 1 January of a year."""
    return day_of(year, 1, 1, julian=isinstance(parts, Moment) and year <= CUTOVER_YEAR)


def _day_in_year(parts: _Parts) -> int:
    return parts.toordinal() - _first_day(parts, _astronomical_year(parts)) + 1


def _week(parts: _Parts) -> int:
    """Return the number of a week: weeks begin on Sunday, the first one has 1 January."""
    day, year = parts.toordinal(), _astronomical_year(parts)
    sunday = weekday_on_or_before(day, _SUNDAY)
    if sunday + 6 >= _first_day(parts, year + 1):
        return 1
    return (sunday - weekday_on_or_before(_first_day(parts, year), _SUNDAY)) // 7 + 1


def _week_year(parts: _Parts) -> int:
    """Return the year that a week belongs to."""
    year = _astronomical_year(parts)
    left = _first_day(parts, year + 1) - parts.toordinal()
    # Before the year 1, Java looks for the weekday of the next 1 January in the other era.
    following = _first_day(parts, year + 1 if year > 0 else -year)
    return year + (left <= following - weekday_on_or_before(following, _SUNDAY))


def _week_in_month(parts: _Parts) -> int:
    day = parts.toordinal()
    first = _first_of_month(parts)
    return (weekday_on_or_before(day, _SUNDAY) - weekday_on_or_before(first, _SUNDAY)) // 7 + 1


def _first_of_month(parts: _Parts) -> int:
    """Return the first day of the month; October 1582 lacks ten days."""
    day = parts.toordinal()
    first = day - parts.day + 1
    year, month, _ = date_of(first) if isinstance(parts, Moment) else (parts.year, parts.month, 1)
    same = (year, month) == (_astronomical_year(parts), parts.month)
    return first if same else first + 10


_FIELDS: Final[dict[str, Callable[[int], tuple[str, _Getter]]]] = {
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
