"""Read points in time by a pattern as Java's ``SimpleDateFormat`` does: leniently.

The text is read up to the end of the pattern, and the rest is ignored. White space may precede a field. A
number may have any size, the digits of any script, and even an exponent; the calendar carries over numbers
that are out of range.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import zip_longest
from typing import Final, NamedTuple

from headerware.connect.data.numbers import Int32
from headerware.connect.java.calendar import epoch_ms_of
from headerware.connect.java.date_patterns import MONTHS, WEEKDAYS, Piece
from headerware.connect.java.zones import NamedZone, read_iso_zone, read_zone

_CENTURY: Final = 100
_NUMERIC_MONTH: Final = 2
_BLANKS: Final = " \t"


class LenientMoment(NamedTuple):
    """A point in time, and the zone that the text names, in which Java's formatter then writes."""

    epoch_ms: int
    zone: NamedZone | None = None


class _Reading:
    """The fields that have been read from a text, in the order in which they were set."""

    __slots__ = ("ambiguous", "century_start", "fields", "text", "zone")

    def __init__(self, text: str, century_start: datetime) -> None:
        self.text: str = text
        self.century_start: datetime = century_start
        self.fields: dict[str, int] = {}
        self.ambiguous: bool = False
        self.zone: NamedZone | None = None

    def set(self, field: str, value: int) -> None:
        self.fields.pop(field, None)
        self.fields[field] = value


class _Span(NamedTuple):
    """The part of the text in which to look for a field."""

    start: int
    """The index after the previous field."""
    at: int
    """The index after white space, too."""
    end: int
    """The index at which the field must end if the next field follows directly; else the end of the text."""


_Step = Callable[[_Reading, _Span], int | None]
"""Reads one field, and returns the index after it; None if there is no such field."""


def lenient_reader(pieces: Sequence[Piece], created: datetime) -> Callable[[str], LenientMoment | None]:
    """Compile a pattern to a function that reads a text, and returns None if the text does not fit.

    Years of two digits lie within the 80 years before ``created`` and the 20 years after it.
    """
    century_start = _century_start(created)
    steps = [_compiled(piece, following) for piece, following in zip_longest(pieces, pieces[1:])]

    def read(text: str) -> LenientMoment | None:
        reading = _Reading(text, century_start)
        at: int | None = 0
        for step in steps:
            at = step(reading, at)  # type: ignore[arg-type]  # None ends the loop
            if at is None:
                return None
        return _resolved(reading) if at else None

    return read


def _century_start(created: datetime) -> datetime:
    try:
        return created.replace(year=created.year - 80)
    except ValueError:
        return created.replace(year=created.year - 80, day=28)


def _resolved(reading: _Reading) -> LenientMoment:
    fields = reading.fields
    epoch_ms = _in_zone(fields, reading.zone)
    if reading.ambiguous and epoch_ms < int(reading.century_start.timestamp() * 1000):
        for year in ("year", "week_year"):
            if year in fields:
                fields[year] += _CENTURY
        epoch_ms = _in_zone(fields, reading.zone)
    return LenientMoment(epoch_ms, reading.zone)


def _in_zone(fields: dict[str, int], zone: NamedZone | None) -> int:
    local_ms = epoch_ms_of(fields)
    return local_ms if zone is None or "zone_ms" in fields else zone.to_utc(local_ms)


def _compiled(piece: Piece, following: Piece | None) -> Callable[[_Reading, int], int | None]:
    if not piece.letter:
        literal = piece.text

        def match(reading: _Reading, start: int) -> int | None:
            return start + len(literal) if reading.text.startswith(literal, start) else None

        return match
    make_step = _STEPS.get(piece.letter)
    read = _number_step(_NUMBERS[piece.letter]) if make_step is None else make_step(piece.width)
    width = piece.width if following is not None and _is_number(following) else None

    def field(reading: _Reading, start: int) -> int | None:
        text, at = reading.text, start
        length = len(text)
        while at < length and text[at] in _BLANKS:
            at += 1
        if at == length:
            return None
        return read(reading, _Span(start, at, length if width is None else start + width))

    return field


def _is_number(piece: Piece) -> bool:
    """Return whether a field begins with digits, so that a field directly before it needs a fixed width."""
    if piece.letter in {"M", "L"}:
        return piece.width <= _NUMERIC_MONTH
    return piece.letter in _NUMBERS


_NUMBERS: Final = {
    "y": "year",
    "Y": "week_year",
    "D": "day_of_year",
    "d": "day",
    "w": "week_of_year",
    "W": "week_of_month",
    "F": "nth_weekday",
    "H": "hour_of_day",
    "k": "hour_of_day",
    "K": "hour",
    "h": "hour",
    "m": "minute",
    "s": "second",
    "S": "millisecond",
    "u": "weekday",
}
"""The numeric fields, by their letters."""


def _number_step(field: str, convert: Callable[[int], int] | None = None) -> _Step:
    def step(reading: _Reading, span: _Span) -> int | None:
        found = _number(reading, span)
        if found is None:
            return None
        value, end = found
        reading.set(field, value if convert is None else convert(value))
        return end

    return step


def _number(reading: _Reading, span: _Span) -> tuple[int, int] | None:
    return None if span.end > len(reading.text) else _integer(reading.text, span.at, span.end)


def _year_step(field: str, width: int) -> _Step:
    def step(reading: _Reading, span: _Span) -> int | None:
        found = _number(reading, span)
        if found is None:
            return None
        value, end = found
        if width <= 2 and end - span.at == 2 and reading.text[span.at : end].isdecimal():
            first = reading.century_start.year
            reading.ambiguous = value == first % _CENTURY
            value += first // _CENTURY * _CENTURY + (_CENTURY if value < first % _CENTURY else 0)
        reading.set(field, value)
        return end

    return step


def _month_step(width: int) -> _Step:
    if width > _NUMERIC_MONTH:
        return _MONTH_NAMES
    return _number_step("month", lambda value: int(Int32.wrapped(value - 1)))


def _weekday_from_iso(value: int) -> int:
    """Return the weekday from Sunday, 1; other numbers stay as they are, for the calendar to carry over."""
    return value % 7 + 1 if 1 <= value <= 7 else value


def _name_step(field: str, values: dict[str, int]) -> _Step:
    """Read the longest of some names, in any case, without white space before it."""
    folded = {name.lower(): value for name, value in values.items()}
    longest_first = sorted(values, key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, longest_first)), re.IGNORECASE)

    def step(reading: _Reading, span: _Span) -> int | None:
        match = pattern.match(reading.text, span.start)
        if match is None:
            return None
        # Some letters of other scripts match English letters, but do not become English in lower case.
        name = match[0].lower()
        value = folded.get(name)
        if value is None:
            value = next(value for known, value in folded.items() if re.fullmatch(known, name, re.IGNORECASE))
        reading.set(field, value)
        return match.end()

    return step


def _with_short(names: Sequence[str], first: int) -> dict[str, int]:
    return {form: number for number, name in enumerate(names, first) for form in (name, name[:3])}


_MONTH_NAMES: Final = _name_step("month", _with_short(MONTHS, 0))
_WEEKDAY_NAMES: Final = _name_step(
    "weekday", {name: number % 7 + 1 for name, number in _with_short(WEEKDAYS, 1).items()}
)
_HALVES: Final = _name_step("half", {"AM": 0, "PM": 1})
_ERAS: Final = _name_step("era", {"AD": 1, "BC": 0, "Anno Domini": 1, "Before Christ": 0})


def _zone_step(reading: _Reading, span: _Span) -> int | None:
    found = read_zone(reading.text, span.start, span.at)
    if found is None:
        return None
    zone, end = found
    if isinstance(zone, int):
        reading.set("zone_ms", zone)
        return end
    reading.zone = zone
    if zone.saving is not None:
        reading.fields.pop("zone_ms", None)
    return end


def _iso_zone_step(width: int) -> _Step:
    def step(reading: _Reading, span: _Span) -> int | None:
        found = read_iso_zone(reading.text, span.at, width)
        if found is None:
            return None
        offset_ms, end = found
        reading.set("zone_ms", offset_ms)
        return end

    return step


_STEPS: Final[dict[str, Callable[[int], _Step]]] = {
    "G": lambda _: _ERAS,
    "y": lambda width: _year_step("year", width),
    "Y": lambda width: _year_step("week_year", width),
    "M": _month_step,
    "L": _month_step,
    "E": lambda _: _WEEKDAY_NAMES,
    "u": lambda _: _number_step("weekday", _weekday_from_iso),
    "a": lambda _: _HALVES,
    "k": lambda _: _number_step("hour_of_day", lambda hour: 0 if hour == 24 else hour),
    "h": lambda _: _number_step("hour", lambda hour: 0 if hour == 12 else hour),
    "z": lambda _: _zone_step,
    "Z": lambda _: _zone_step,
    "X": _iso_zone_step,
}
"""By letter: makes the reader of a field of some width, for all fields that are not only numbers."""


# Integers as ``java.text.DecimalFormat`` reads them

_PLAIN: Final = re.compile(r"-?[0-9]{1,9}(?![0-9E\u0080-\uffff])")
# Java sees two characters in a digit beyond the basic plane, neither of which is a digit.
_DIGITS: Final = r"(?:(?![\U00010000-\U0010ffff])\d)+"
_INTEGER: Final = re.compile(rf"(-?)({_DIGITS})(?:E(-?)({_DIGITS}))?")
_INFINITY: Final = "\N{INFINITY}"
_INT64: Final = range(-(1 << 63), 1 << 63)
_INT32_MAX: Final = (1 << 31) - 1
_INT32_MIN: Final = -(1 << 31)
_INT64_DIGITS: Final = 19


def _integer(text: str, start: int, end: int) -> tuple[int, int] | None:
    """Return the int32 that begins at ``start``, and the index after it; None if there is none."""
    plain = _PLAIN.match(text, start, end)
    if plain is not None:
        return int(plain[0]), plain.end()
    if text.startswith("NaN", start, end):
        return 0, start + 3
    for infinite, number in ((_INFINITY, _INT32_MAX), (f"-{_INFINITY}", _INT32_MIN)):
        if text.startswith(infinite, start, end):
            return number, start + len(infinite)
    match = _INTEGER.match(text, start, end)
    if match is None:
        return None
    exponent = _int64(match[3], _ascii(match[4])) if match[4] else 0
    if exponent is None:
        return _int32(match[1], _ascii(match[2]), 0), match.end(2)
    return _int32(match[1], _ascii(match[2]), int(Int32.wrapped(exponent))), match.end()


def _ascii(digits: str) -> str:
    if not digits.isascii():
        digits = "".join(str(unicodedata.decimal(digit)) for digit in digits)
    return digits.lstrip("0") or "0"


def _int64(sign: str, digits: str) -> int | None:
    if len(digits) > _INT64_DIGITS:
        return None
    number = int(sign + digits)
    return number if number in _INT64 else None


def _int32(sign: str, digits: str, exponent: int) -> int:
    """Narrow to 32 bits: an integer of 64 bits wraps, any other number saturates or loses its fraction."""
    whole = len(digits) + exponent
    if digits == "0" or whole <= 0:
        # Java rounds a number that is nearly 1 upwards.
        return round(float(f"{sign}.{digits[:30]}")) if whole == 0 and digits.startswith("9" * 17) else 0
    significant = digits.rstrip("0")
    if whole <= _INT64_DIGITS and len(significant) <= whole:
        number = _int64(sign, significant.ljust(whole, "0"))
        if number is not None:
            return int(Int32.wrapped(number))
    if whole > _INT64_DIGITS:
        return _INT32_MIN if sign else _INT32_MAX
    rounded = float(f"{sign}{significant[:800]}E{whole - len(significant[:800])}")
    return max(_INT32_MIN, min(_INT32_MAX, math.trunc(rounded)))
