"""Dates and times as text, by the patterns of ``java.text.SimpleDateFormat``, in English and UTC.

``kafka_4_3`` reads and writes as Java does: leniently, the Julian calendar up to 1582 included. ``strict``
uses the Gregorian calendar, as ISO 8601 and Python's ``datetime`` do. It reads only text that it would write:
the pattern must match the complete text, and every field must be in range; an offset from UTC may have any
size. It refuses patterns whose result is easily mistaken. A pattern that does not determine a point in time
can write, but not read: a day needs its month, a month its year, and minutes need their hour.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any, Final

from headerware.connect.data.times import Instant, from_epoch_ms, to_epoch_ms
from headerware.connect.errors import ArgumentError, ConnectDataError
from headerware.connect.java.calendar import GREGORIAN, Moment
from headerware.connect.java.date_patterns import MONTHS, WEEKDAYS, Piece, parse_pattern, writer
from headerware.connect.java.lenient_dates import lenient_reader
from headerware.connect.java.zones import NamedZone
from headerware.connect.modes import STRICT, Mode


class DateFormat:
    """Read and write points in time by a pattern; immutable, and safe for use by several threads."""

    __slots__ = ("_exact", "_lenient", "_unreadable", "_write", "mode", "pattern")

    def __init__(self, pattern: str, mode: Mode = STRICT) -> None:
        pieces = parse_pattern(pattern)
        if mode == STRICT:
            _refuse_ambiguous(pieces)
        self.pattern: Final[str] = pattern
        self.mode: Final[Mode] = mode
        self._write = writer(pieces)
        self._unreadable = _unreadable(pieces)
        self._exact = _strict_reader(pieces) if self._unreadable is None else None
        # As in Java, years of two digits are near the time at which the format is created.
        self._lenient = lenient_reader(pieces, datetime.now(UTC)) if mode != STRICT else None

    def format(self, value: datetime | Instant, zone: NamedZone | None = None) -> str:
        """Write a point in time, by default in UTC. The strict mode refuses years outside of 1 to 9999."""
        if value.__class__ is not datetime or value.tzinfo is not UTC:
            value = from_epoch_ms(to_epoch_ms(value))
        if isinstance(value, datetime) and zone is None and (self.mode == STRICT or value >= GREGORIAN):
            return self._write(value)
        if self.mode == STRICT:
            raise ConnectDataError("expected a point in time in the years 1 to 9999, found one beyond them")
        epoch_ms = to_epoch_ms(value)
        return self._write(Moment(epoch_ms) if zone is None else Moment(*zone.local(epoch_ms)))

    def parse(self, text: str) -> datetime | Instant:
        return self.parse_zoned(text)[0]

    def parse_zoned(self, text: str) -> tuple[datetime | Instant, NamedZone | None]:
        """Read a point in time, and the zone that the text names.

        Java's formatter then writes in this zone; this class does not keep it for the next text.
        """
        exact = self._exact(text) if self._exact is not None else None
        if self._lenient is None:
            if exact is None:
                raise ConnectDataError(self._refusal())
            return exact, None
        if exact is not None and exact >= GREGORIAN:
            return exact, None
        read = self._lenient(text)
        if read is None:
            raise ConnectDataError(self._refusal())
        return from_epoch_ms(read.epoch_ms), read.zone

    def _refusal(self) -> str:
        if self._unreadable is not None and self.mode == STRICT:
            return f"the pattern {self.pattern!r} writes, but cannot read: {self._unreadable}"
        exactly = " exactly" if self.mode == STRICT else ""
        return f"expected a text that fits the pattern {self.pattern!r}{exactly}, found other text"

    def __repr__(self) -> str:
        return f"DateFormat({self.pattern!r}, {self.mode!r})"

    def __reduce__(self) -> tuple[type[DateFormat], tuple[str, Mode]]:
        return DateFormat, (self.pattern, self.mode)


_MILLISECOND_DIGITS: Final = 3
_Rule = tuple[str, str, str]
_AMBIGUOUS: Final[tuple[_Rule, ...]] = (
    ("Y", "w", "Y is the year of a week; the year of a date is y"),
    ("w", "Y", "the week w of a year needs Y, the year of the week"),
    ("Kh", "a", "the hours K and h need a, for AM and PM; the hours from 0 to 23 are H"),
    ("d", "MLE", "the day d of a month needs the month M; m is the minute"),
)
"""Letters that each need one of the others, and the reason."""
_EXCLUSIVE: Final[tuple[_Rule, ...]] = (
    ("Y", "yMLdD", "Y is the year of a week; the year of a date is y"),
    ("D", "MLd", "D is the day in the year; the day in the month is d"),
    ("a", "Hk", "a, for AM and PM, goes with the hours K and h"),
)
"""A letter that excludes the others, and the reason."""


def _refuse_ambiguous(pieces: list[Piece]) -> None:
    letters = frozenset(piece.letter for piece in pieces)
    reasons = _broken(_AMBIGUOUS, letters)
    reasons += [reason for one, others, reason in _EXCLUSIVE if one in letters and letters & set(others)]
    if any(piece.letter == "S" and piece.width != _MILLISECOND_DIGITS for piece in pieces):
        reasons.append("S is a number of milliseconds, not a fraction: write SSS")
    if reasons:
        raise ArgumentError(f"the pattern is ambiguous: {reasons[0]}")


# Reading in the strict mode

_MOST_DIGITS: Final = {"y": 4, "D": 3, "S": 3, "u": 1}
_NUMERIC: Final = frozenset("yMLDduHkKhmsS")
_NUMERIC_MONTH: Final = 2
_ZONES: Final = frozenset("zZX")
_UTC: Final = frozenset({"Z", "UTC", "GMT"})
_LONG: Final = 4


_TO_READ: Final[tuple[_Rule, ...]] = (
    ("YwWF", "", "weeks are not read"),
    ("ML", "y", "a month without a year is not a date"),
    ("d", "ML", "a day without a month is not a date"),
    ("DEu", "y", "a day without a year is not a date"),
    ("Eu", "dD", "a weekday alone is not a date"),
    ("mS", "HkKh", "minutes or milliseconds without an hour are not a time"),
    ("s", "m", "seconds without minutes are not a time"),
    ("S", "s", "milliseconds without seconds are not a time"),
    ("a", "Kh", "AM and PM go with the hours K and h"),
    ("G", "y", "an era without a year is not a date"),
)


def _broken(rules: tuple[_Rule, ...], letters: frozenset[str]) -> list[str]:
    """Return the reasons of the rules that a pattern of these letters breaks."""
    return [reason for some, others, reason in rules if letters & set(some) and not letters & set(others)]


def _unreadable(pieces: Sequence[Piece]) -> str | None:
    """Return the reason why a pattern cannot read any text; None if it can read."""
    used = [piece.letter for piece in pieces if piece.letter]
    letters = frozenset(used)
    if len(used) != len(letters) or letters >= {"M", "L"} or len(letters & set("HkKh")) > 1:
        return "a field occurs twice"
    if not letters - set("GEuazZX"):
        return "it has no date and no time"
    if len(letters & _ZONES) > 1:
        return "a zone occurs twice"
    if any(piece.letter == "y" and piece.width == 2 for piece in pieces):
        return "a year of two digits does not say its century"
    for piece, following in pairwise(pieces):
        if _varies(piece) and following.letter in _NUMERIC and not _is_name(following):
            return f"nothing shows where {piece.letter * piece.width} ends"
    return next(iter(_broken(_TO_READ, letters)), None)


def _is_name(piece: Piece) -> bool:
    return piece.letter in {"M", "L"} and piece.width > _NUMERIC_MONTH


def _varies(piece: Piece) -> bool:
    digits = _MOST_DIGITS.get(piece.letter, 2)
    return piece.letter in _NUMERIC and not _is_name(piece) and piece.width < digits


def _strict_reader(pieces: Sequence[Piece]) -> Callable[[str], datetime | None]:
    """Compile a readable pattern to a function that reads a text, or returns None if it does not fit."""
    match = re.compile("".join(map(_expression, pieces)), re.ASCII).fullmatch
    letters = [piece.letter for piece in pieces if piece.letter]
    zone_at = next((at for at, letter in enumerate(letters) if letter in _ZONES), None)
    build = _builder([piece for piece in pieces if piece.letter])

    def read(text: str) -> datetime | None:
        found = match(text)
        if found is None:
            return None
        groups = found.groups()
        try:
            local = build(groups)
            if zone_at is None or groups[zone_at] in _UTC or local is None:
                return local
            offset = _offset(groups[zone_at])
            return None if offset is None else local - offset
        except (ValueError, OverflowError):
            return None

    return read


def _builder(fields: Sequence[Piece]) -> Callable[[Sequence[str]], datetime | None]:
    """Return a function that makes a local time from the texts of the fields."""
    positions = {piece.letter: at for at, piece in enumerate(fields) if piece.letter not in _ZONES}
    plain = all(not _is_name(piece) for piece in fields) and frozenset(positions) in _PLAIN
    if plain:
        order = [positions[letter] for letter in _IN_ORDER if letter in positions]
        return lambda groups: _plain(*[int(groups[at]) for at in order])
    converters = [
        (piece.letter, positions[piece.letter], _converter(piece))
        for piece in fields
        if piece.letter in positions
    ]
    return lambda groups: _built({letter: convert(groups[at]) for letter, at, convert in converters})


def _expression(piece: Piece) -> str:
    if not piece.letter:
        return re.escape(piece.text)
    if _is_name(piece):
        return _one_of(MONTHS if piece.width >= _LONG else [name[:3] for name in MONTHS])
    fixed = _EXPRESSIONS.get(piece.letter)
    if fixed is not None:
        return fixed(piece.width)
    digits, count = _MOST_DIGITS.get(piece.letter, 2), piece.width
    if count >= digits:
        return f"(0{{{count - digits}}}[0-9]{{{digits}}})"
    return f"([0-9]{{{count}}}|[1-9][0-9]{{{count},{digits - 1}}})"


def _one_of(words: Sequence[str]) -> str:
    return f"({'|'.join(words)})"


_EXPRESSIONS: Final[dict[str, Callable[[int], str]]] = {
    "G": lambda _: "(AD)",
    "a": lambda _: "(AM|PM)",
    "E": lambda count: _one_of(WEEKDAYS if count >= _LONG else [name[:3] for name in WEEKDAYS]),
    "z": lambda _: r"(UTC|GMT|GMT[+-][0-9]{2}:[0-9]{2}|[+-][0-9]{4})",
    "Z": lambda _: r"([+-][0-9]{4})",
    "X": lambda count: f"(Z|[+-][0-9]{{2}}{('', '[0-9]{2}', ':[0-9]{2}')[count - 1]})",
}


def _converter(piece: Piece) -> Callable[[str], Any]:
    if _is_name(piece):
        return lambda name: next(at for at, month in enumerate(MONTHS, 1) if month.startswith(name))
    if piece.letter == "E":
        return lambda name: next(at for at, day in enumerate(WEEKDAYS, 1) if day.startswith(name))
    return str if piece.letter in "Ga" else int


_IN_ORDER: Final = "yMdHmsS"


def _plain(
    year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0, millisecond: int = 0
) -> datetime:
    return datetime(year, month, day, hour, minute, second, millisecond * 1000, UTC)


_PLAIN: Final = {frozenset(_IN_ORDER[:length]) for length in (3, 4, 5, 6, 7)}
"""The sets of letters that are the arguments of a datetime."""


def _built(fields: dict[str, int | str]) -> datetime | None:
    """Return the point in time of the fields, by their letters; None if they contradict each other."""
    numbers = {letter: value for letter, value in fields.items() if isinstance(value, int)}
    hour = _hour(numbers, fields.get("a"))
    if hour is None:
        return None
    day = date(numbers.get("y", 1970), numbers.get("M", numbers.get("L", 1)), numbers.get("d", 1))
    if "D" in numbers:
        in_year = date(day.year, 1, 1) + timedelta(numbers["D"] - 1)
        if in_year.year != day.year or ("M" in numbers and in_year != day):
            return None
        day = in_year
    if any(numbers.get(letter, day.isoweekday()) != day.isoweekday() for letter in "Eu"):
        return None
    second, millisecond = numbers.get("s", 0), numbers.get("S", 0)
    return datetime(day.year, day.month, day.day, hour, numbers.get("m", 0), second, millisecond * 1000, UTC)


def _hour(numbers: dict[str, int], half: int | str | None) -> int | None:
    if "H" in numbers:
        return numbers["H"]
    if "k" in numbers:
        return numbers["k"] % 24 if 1 <= numbers["k"] <= 24 else None
    letter = next((letter for letter in "Kh" if letter in numbers), None)
    if letter is None:
        return 0
    first = 0 if letter == "K" else 1
    if not first <= numbers[letter] < first + 12:
        return None
    return numbers[letter] % 12 + (12 if half == "PM" else 0)


def _offset(zone: str) -> timedelta | None:
    digits = zone.removeprefix("GMT").replace(":", "")
    hours, minutes = int(digits[1:3]), int(digits[3:] or 0)
    if hours > 23 or minutes > 59:
        return None
    offset = timedelta(hours=hours, minutes=minutes)
    return -offset if digits[0] == "-" else offset
