"""Read points in time by a pattern as Java does: leniently, and only as far as the pattern goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from headerware.connect.java.dates.resolving import epoch_ms
from headerware.connect.java.dates.steps import CENTURY, Place, Reading, is_number, step_of
from headerware.connect.java.dates.zones import NamedZone

if TYPE_CHECKING:
    from headerware.connect.java.dates.pattern import Piece

_BLANKS: Final = " \t"


class ReadMoment(NamedTuple):
    """What was read.

    Args:
        epoch_ms: the point in time.
        zone: the zone that a name in the text stands for; the same formatter would go on to write in it.
    """

    epoch_ms: int
    zone: NamedZone | None = None


def reader(pieces: Sequence[Piece], created: datetime) -> Callable[[str], ReadMoment | None]:
    """Compile a pattern to a function that reads texts; it gives None for one that does not fit.

    Args:
        pieces: the pattern.
        created: now: years of two digits lie within the 80 years before and 20 years after.
    """
    century_start = _century_start(created)
    steps = [
        _compiled(piece, pieces[index + 1] if index + 1 < len(pieces) else None)
        for index, piece in enumerate(pieces)
    ]

    def read(text: str) -> ReadMoment | None:
        reading = Reading(text, century_start)
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


def _resolved(reading: Reading) -> ReadMoment:
    fields = reading.fields
    read = _in_zone(fields, reading.zone)
    start_ms = int(reading.century_start.timestamp() * 1000)
    if reading.ambiguous and read < start_ms:
        for year in ("year", "week_year"):
            if year in fields:
                fields[year] += CENTURY
        read = _in_zone(fields, reading.zone)
    return ReadMoment(read, reading.zone)


def _in_zone(fields: dict[str, int], zone: NamedZone | None) -> int:
    local = epoch_ms(fields)
    return local if zone is None or "zone_ms" in fields else zone.to_utc(local)


def _compiled(piece: Piece, following: Piece | None) -> Callable[[Reading, int], int | None]:
    if not piece.letter:
        literal = piece.text

        def match(reading: Reading, start: int) -> int | None:
            return start + len(literal) if reading.text.startswith(literal, start) else None

        return match
    read = step_of(piece)
    width = piece.width if following is not None and is_number(following) else None

    def field(reading: Reading, start: int) -> int | None:
        text, at = reading.text, start
        length = len(text)
        while at < length and text[at] in _BLANKS:
            at += 1
        if at == length:
            return None
        return read(reading, Place(start, at, length if width is None else start + width))

    return field
