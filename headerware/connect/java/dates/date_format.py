"""Dates and times as text, by the patterns of ``java.text.SimpleDateFormat``, in English and UTC.

``kafka_4_3`` reads and writes as Java does: leniently, the Julian calendar up to 1582 included. ``strict``
keeps to the Gregorian calendar, as ISO 8601 and Python's ``datetime`` do, reads only what it would write, and
refuses patterns that would write something else than they seem to.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from headerware.connect.data.times import Instant, from_epoch_ms, to_epoch_ms
from headerware.connect.errors import ArgumentError, ConnectDataError
from headerware.connect.java.dates.calendar import GREGORIAN, Moment
from headerware.connect.java.dates.exact import exact_reader, rule, unreadable
from headerware.connect.java.dates.pattern import Piece, parse_pattern
from headerware.connect.java.dates.reading import reader
from headerware.connect.java.dates.writing import writer
from headerware.connect.java.dates.zones import NamedZone
from headerware.connect.modes import STRICT, Mode

_MILLISECOND_DIGITS: Final = 3
_AMBIGUOUS: Final = (
    rule("Y", "w", "Y is the year that a week counts for; the year of a date is y"),
    rule("w", "Y", "a week in the year goes with Y, the year that it counts for"),
    rule("Kh", "a", "the hours K and h go with a, for AM and PM; the hours of the whole day are H"),
    rule("d", "MLE", "d is the day in the month, and there is no month, which is M; m is the minute"),
)
_EXCLUSIVE: Final = (
    ("Y", "yMLdD", "Y is the year that a week counts for; the year of a date is y"),
    ("D", "MLd", "D is the day in the year; the day in the month is d"),
    ("a", "Hk", "a, for AM and PM, goes with the hours K and h"),
)


class DateFormat:
    """Read and write points in time by a pattern; never changes, and is safe for use by several threads.

    Args:
        pattern: the pattern, see :mod:`headerware.connect.java.dates.pattern`.
        mode: strict, or lenient as Java is.

    Raises:
        ArgumentError: it is none; or, in the strict mode, one that is surely not meant.
    """

    __slots__ = ("_exact", "_lenient", "_unreadable", "_write", "mode", "pattern")

    def __init__(self, pattern: str, mode: Mode = STRICT) -> None:
        pieces = parse_pattern(pattern)
        if mode == STRICT:
            _refuse_ambiguous(pieces)
        self.pattern: Final[str] = pattern
        self.mode: Final[Mode] = mode
        self._write = writer(pieces)
        self._unreadable = unreadable(pieces)
        self._exact = exact_reader(pieces) if self._unreadable is None else None
        # Years of two digits are near the time at which the format is made, as in Java.
        self._lenient = reader(pieces, datetime.now(UTC)) if mode != STRICT else None

    def format(self, value: datetime | Instant, zone: NamedZone | None = None) -> str:
        """Write a point in time.

        Args:
            value: the point in time.
            zone: the zone to write in, where that is not UTC.

        Raises:
            ConnectDataError: it is beyond the years 1 to 9999, in the strict mode.
        """
        if value.__class__ is not datetime or value.tzinfo is not UTC:
            value = from_epoch_ms(to_epoch_ms(value))
        if isinstance(value, datetime) and zone is None and (self.mode == STRICT or value >= GREGORIAN):
            return self._write(value)
        if self.mode == STRICT:
            raise ConnectDataError("expected a point in time in the years 1 to 9999, found one beyond them")
        epoch_ms = to_epoch_ms(value)
        return self._write(Moment(epoch_ms) if zone is None else Moment(*zone.local(epoch_ms)))

    def parse(self, text: str) -> datetime | Instant:
        """Read a point in time.

        Raises:
            ConnectDataError: the text does not fit the pattern.
        """
        return self.parse_zoned(text)[0]

    def parse_zoned(self, text: str) -> tuple[datetime | Instant, NamedZone | None]:
        """Read a point in time, and the zone whose name stands in the text.

        Java's formatter goes on to write in that zone; ours keeps no zone from one text to the next.

        Raises:
            ConnectDataError: the text does not fit the pattern.
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
        return f"expected a text that fits the pattern {self.pattern!r}{exactly}, found another one"

    def __repr__(self) -> str:
        return f"DateFormat({self.pattern!r}, {self.mode!r})"

    def __reduce__(self) -> tuple[type[DateFormat], tuple[str, Mode]]:
        return DateFormat, (self.pattern, self.mode)


def _refuse_ambiguous(pieces: list[Piece]) -> None:
    letters = frozenset(piece.letter for piece in pieces)
    reasons = [broken.reason for broken in _AMBIGUOUS if broken.broken_by(letters)]
    reasons += [reason for one, others, reason in _EXCLUSIVE if one in letters and letters & set(others)]
    if any(piece.letter == "S" and piece.width != _MILLISECOND_DIGITS for piece in pieces):
        reasons.append("S counts milliseconds and is no fraction: there must be three of them")
    if reasons:
        raise ArgumentError(f"the pattern is ambiguous: {reasons[0]}")
