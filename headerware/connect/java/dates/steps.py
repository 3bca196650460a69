"""How each field of a pattern is read leniently, as Java does."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from headerware.connect.data.numbers import Int32
from headerware.connect.java.dates.numbers import read_integer
from headerware.connect.java.dates.writing import MONTHS, WEEKDAYS
from headerware.connect.java.dates.zones import NamedZone, read_iso_zone, read_zone

if TYPE_CHECKING:
    from headerware.connect.java.dates.pattern import Piece

CENTURY: Final = 100
_NUMERIC_MONTH: Final = 2


class Reading:
    """A text on its way through a pattern.

    Args:
        text: the text.
        century_start: when the hundred years begin in which years of two digits lie.
    """

    __slots__ = ("ambiguous", "century_start", "fields", "text", "zone")

    def __init__(self, text: str, century_start: datetime) -> None:
        self.text: str = text
        self.century_start: datetime = century_start
        self.fields: dict[str, int] = {}
        self.ambiguous: bool = False
        self.zone: NamedZone | None = None

    def set(self, field: str, value: int) -> None:
        """Set a field; it is the last one set."""
        self.fields.pop(field, None)
        self.fields[field] = value


class Place(NamedTuple):
    """Where a field's text is.

    Args:
        start: where the text behind the field before begins.
        at: the same, behind the white space.
        end: where it must end, for the next field follows without a gap.
    """

    start: int
    at: int
    end: int


Step = Callable[[Reading, Place], int | None]
"""Reads one field, and gives the place behind it; None where there is none."""


def is_number(piece: Piece) -> bool:
    """Whether a field of such a piece begins with digits, so that the one before it has to end in time."""
    if piece.letter in {"M", "L"}:
        return piece.width <= _NUMERIC_MONTH
    return piece.letter in _NUMBERS


def _number(reading: Reading, place: Place) -> tuple[int, int] | None:
    if place.end > len(reading.text):
        return None
    return read_integer(reading.text, place.at, place.end)


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
"""The numeric fields of the letters."""
_ZERO: Final = {"k": 24, "h": 12}
"""What stands for 0."""


def _number_step(letter: str) -> Callable[[int], Step]:
    field, zero = _NUMBERS.get(letter, ""), _ZERO.get(letter)

    def step(reading: Reading, place: Place) -> int | None:
        found = _number(reading, place)
        if found is None:
            return None
        value, end = found
        reading.set(field, 0 if value == zero else value)
        return end

    return lambda _: step


def _iso_weekday(_: int) -> Step:
    def step(reading: Reading, place: Place) -> int | None:
        found = _number(reading, place)
        if found is None:
            return None
        value, end = found
        # What is no weekday stays as it is, for the calendar to carry over.
        reading.set("weekday", value % 7 + 1 if 1 <= value <= 7 else value)
        return end

    return step


def _year(field: str) -> Callable[[int], Step]:
    def of_count(count: int) -> Step:
        def step(reading: Reading, place: Place) -> int | None:
            found = _number(reading, place)
            if found is None:
                return None
            value, end = found
            if count <= 2 and end - place.at == 2 and reading.text[place.at : end].isdecimal():
                first = reading.century_start.year
                reading.ambiguous = value == first % CENTURY
                value += first // CENTURY * CENTURY + (CENTURY if value < first % CENTURY else 0)
            reading.set(field, value)
            return end

        return step

    return of_count


def _month(count: int) -> Step:
    if count > _NUMERIC_MONTH:
        return _MONTH_NAMES

    def step(reading: Reading, place: Place) -> int | None:
        found = _number(reading, place)
        if found is None:
            return None
        value, end = found
        reading.set("month", int(Int32.wrapped(value - 1)))
        return end

    return step


def _names(field: str, values: dict[str, int]) -> Step:
    """Read the longest of some names, in any case; white space before it is not passed over."""
    folded = {name.lower(): value for name, value in values.items()}
    longest_first = sorted(values, key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, longest_first)), re.IGNORECASE)

    def step(reading: Reading, place: Place) -> int | None:
        match = pattern.match(reading.text, place.start)
        if match is None:
            return None
        # Some letters of other scripts count as English ones, and stay what they are in lower case.
        name = match[0].lower()
        value = folded.get(name)
        if value is None:
            value = next(value for known, value in folded.items() if re.fullmatch(known, name, re.IGNORECASE))
        reading.set(field, value)
        return match.end()

    return step


def _with_short(names: Sequence[str], first: int) -> dict[str, int]:
    return {form: at for at, name in enumerate(names, first) for form in (name, name[:3])}


_MONTH_NAMES: Final = _names("month", _with_short(MONTHS, 0))
_WEEKDAY_NAMES: Final = _names("weekday", {name: at % 7 + 1 for name, at in _with_short(WEEKDAYS, 1).items()})
_HALVES: Final = _names("half", {"AM": 0, "PM": 1})
_ERAS: Final = _names("era", {"AD": 1, "BC": 0, "Anno Domini": 1, "Before Christ": 0})


def _zone(_: int) -> Step:
    def step(reading: Reading, place: Place) -> int | None:
        found = read_zone(reading.text, place.start, place.at)
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

    return step


def _iso_zone(count: int) -> Step:
    def step(reading: Reading, place: Place) -> int | None:
        found = read_iso_zone(reading.text, place.at, count)
        if found is None:
            return None
        offset_ms, end = found
        reading.set("zone_ms", offset_ms)
        return end

    return step


_OTHERS: Final[dict[str, Callable[[int], Step]]] = {
    "G": lambda _: _ERAS,
    "y": _year("year"),
    "Y": _year("week_year"),
    "M": _month,
    "L": _month,
    "E": lambda _: _WEEKDAY_NAMES,
    "u": _iso_weekday,
    "a": lambda _: _HALVES,
    "z": _zone,
    "Z": _zone,
    "X": _iso_zone,
}
"""How to read the fields that are not merely numbers."""


def step_of(piece: Piece) -> Step:
    """Return the function that reads a piece's field."""
    return _OTHERS.get(piece.letter, _number_step(piece.letter))(piece.width)
