"""Read points in time by a pattern strictly: the whole text, as the pattern writes it, every field in range.

What a pattern says must make one point in time: a day needs its month and a month its year, minutes need
their hour. A pattern for which that is not so writes, but does not read. Offsets from UTC may be any.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headerware.connect.java.dates.writing import MONTHS, WEEKDAYS

if TYPE_CHECKING:
    from headerware.connect.java.dates.pattern import Piece

_MOST_DIGITS: Final = {"y": 4, "D": 3, "S": 3, "u": 1}
_NUMERIC: Final = frozenset("yMLDduHkKhmsS")
_NUMERIC_MONTH: Final = 2
_ZONES: Final = frozenset("zZX")
_UTC: Final = frozenset({"Z", "UTC", "GMT"})
_LONG: Final = 4
_YEAR_DIGITS: Final = 4


class PatternRule(NamedTuple):
    """Something that a pattern must not have.

    Args:
        letters: one of these,
        without: where none of these is there.
        reason: why not.
    """

    letters: frozenset[str]
    without: frozenset[str]
    reason: str

    def broken_by(self, letters: frozenset[str]) -> bool:
        """Return whether a pattern of these letters is refused."""
        return bool(letters & self.letters) and not letters & self.without


def rule(letters: str, without: str, reason: str) -> PatternRule:
    """Refuse one of these letters where none of the others is there."""
    return PatternRule(frozenset(letters), frozenset(without), reason)


_TO_READ: Final = (
    rule("YwWF", "", "weeks are not read"),
    rule("ML", "y", "a month without a year says no date"),
    rule("d", "ML", "a day without a month says no date"),
    rule("DEu", "y", "a day without a year says no date"),
    rule("Eu", "dD", "a weekday alone says no date"),
    rule("mS", "HkKh", "minutes or milliseconds without an hour say no time"),
    rule("s", "m", "seconds without minutes say no time"),
    rule("S", "s", "milliseconds without seconds say no time"),
    rule("a", "Kh", "AM and PM go with the hours K and h"),
    rule("G", "y", "an era without a year says no date"),
)


def unreadable(pieces: Sequence[Piece]) -> str | None:
    """Say why no text can be read by a pattern; None where it can."""
    used = [piece.letter for piece in pieces if piece.letter]
    letters = frozenset(used)
    if len(used) != len(letters) or letters >= {"M", "L"} or len(letters & set("HkKh")) > 1:
        return "a field stands there twice"
    if not letters - set("GEuazZX"):
        return "it has no date and no time"
    if len(letters & _ZONES) > 1:
        return "a zone stands there twice"
    if any(piece.letter == "y" and piece.width == 2 for piece in pieces):
        return "a year of two digits does not say its century"
    for piece, following in pairwise(pieces):
        if _varies(piece) and following.letter in _NUMERIC and not _is_name(following):
            return f"nothing shows where {piece.letter * piece.width} ends"
    return next((broken.reason for broken in _TO_READ if broken.broken_by(letters)), None)


def _is_name(piece: Piece) -> bool:
    return piece.letter in {"M", "L"} and piece.width > _NUMERIC_MONTH


def _varies(piece: Piece) -> bool:
    digits = _MOST_DIGITS.get(piece.letter, 2)
    return piece.letter in _NUMERIC and not _is_name(piece) and piece.width < digits


def exact_reader(pieces: Sequence[Piece]) -> Callable[[str], datetime | None]:
    """Compile a readable pattern to a function that reads texts; it gives None for one that does not fit."""
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
    """Return a function that builds the local time of the fields' texts."""
    places = {piece.letter: at for at, piece in enumerate(fields) if piece.letter not in _ZONES}
    plain = all(not _is_name(piece) for piece in fields) and frozenset(places) in _PLAIN
    if plain:
        order = [places[letter] for letter in _IN_ORDER if letter in places]
        return lambda groups: _plain(*[int(groups[at]) for at in order])
    converters = [
        (piece.letter, places[piece.letter], _converter(piece)) for piece in fields if piece.letter in places
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
"""The sets of letters from which a datetime is built without further ado."""


def _built(fields: dict[str, int | str]) -> datetime | None:
    """Build the point in time of the fields, by their letters; None where they contradict each other."""
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
