"""The rules for counting a record: its owner, its producer, its hour, and the message if it is a slice.

These rules use neither a client nor a clock. The counter in one process applies them to each record. In
Spark, SQL in the JVM does most of the work (``spark_bridge/chargeback/counting.py``), and the Python workers
use these rules.

Only the first slice of a message names the owner and the producer. Slices are therefore summed by message,
and get the names of the first slice afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from headerware.core.errors import ConfigError, WireFormatError
from headerware.core.headers import Headers
from headerware.interceptors.slice.header import SLICE_HEADER, SliceHeader
from headerware.interceptors.trail import TRAIL_HEADER
from headerware.ops.chargeback.names import (
    MAX_OWNER_BYTES,
    OWNER_HEADER,
    owner_name,
    producer_name,
    trail_opening,
)
from headerware.ops.chargeback.usage import Direction, Source, Usage
from headerware.registry.names import Names
from headerware.registry.wire.codec import HeaderIdCodec
from headerware.registry.wire.compact_keys import compact_key
from headerware.registry.wire.packed_block import HEADER as PACKED_HEADER

if TYPE_CHECKING:
    from collections.abc import Callable

HOUR_SECONDS: Final = 3600
BEYOND_CALENDARS: Final = 253_370_764_800
"""The start of the year 9999, in seconds since the epoch; timestamps from then on count as having no hour."""
_REMEMBERED: Final = 10_000

Pairs = Sequence[tuple[str, bytes | None]]
name_of_owner: Final = lru_cache(_REMEMBERED)(owner_name)
"""Return the owner that a header names; recent results are cached."""
name_of_producer: Final = lru_cache(_REMEMBERED)(producer_name)
"""Return the producer that the opening of a trail names; recent results are cached."""


class Named(NamedTuple):
    """The headers that chargeback reads, as bytes.

    Args:
        owner: the value of the last owner header, shortened.
        opening: the part of the last trail that names the producer.
        slice: the value of the last slice header.
        broken: whether the ids of the headers cannot be read; then the other fields are None.
    """

    owner: bytes | None = None
    opening: bytes | None = None
    slice: bytes | None = None
    broken: bool = False


_UNREADABLE: Final = Named(broken=True)
_READ: Final = (OWNER_HEADER, TRAIL_HEADER, SLICE_HEADER)


class Line(NamedTuple):
    """The key by which records are summed; ``hour`` is the number of hours since the epoch.

    Only slices have a ``partition`` and a ``message``, which is the message's id; ``first`` marks index 0.
    """

    hour: int | None
    topic: str
    owner: str | None
    producer: str | None
    direction: Direction
    group: str | None
    source: Source
    partition: int | None = None
    message: bytes | None = None
    first: bool = False


class Sum(NamedTuple):
    """The sums of a line; None for reads whose number or size is not known."""

    records: int | None
    bytes: int | None
    malformed: int = 0


def require_zone(moment: datetime | None, path: str) -> None:
    """Raise ConfigError for a moment without a time zone: Python takes it as the machine's local time."""
    if moment is not None and moment.utcoffset() is None:
        raise ConfigError("expected a moment with a time zone, found one without", path=path)


def hour_number(timestamp_ms: int) -> int | None:
    """Return the hour of a timestamp, counted from the epoch; None if the timestamp is out of range."""
    seconds = timestamp_ms // 1000
    return seconds // HOUR_SECONDS if 0 <= seconds < BEYOND_CALENDARS else None


def hour_begin(hour: int | None) -> datetime | None:
    """Return the start of an hour, in UTC."""
    return None if hour is None else datetime.fromtimestamp(hour * HOUR_SECONDS, UTC)


def named_reader(names: Names) -> Callable[[Pairs], Named]:
    """Return a function that reads headers as they are on the wire, with names, compact keys or packed ids.

    A packed block is decoded with all headers of the record; compact keys are only compared.
    """
    codec = HeaderIdCodec(names.id_of, names.name_of)
    known: dict[str, str] = {}
    for name in _READ:
        known[name] = name
        header_id = names.id_of(name)
        if header_id is not None:
            known[compact_key(header_id)] = name
    find = known.get

    def read(headers: Pairs) -> Named:
        owner = trail = part = None
        for name, value in headers:
            kind = find(name)
            if kind == OWNER_HEADER:
                owner = value
            elif kind == TRAIL_HEADER:
                trail = value
            elif kind == SLICE_HEADER:
                part = value
            elif name == PACKED_HEADER:
                return unpacked(codec, headers)
        return _named(owner, trail, part)

    return read


def unpacked(codec: HeaderIdCodec, headers: Pairs) -> Named:
    """Read the headers of a record with a packed block."""
    try:
        found = codec.decode(Headers(headers))
    except WireFormatError:
        return _UNREADABLE
    return _named(*map(found.last, _READ))


def _named(owner: bytes | None, trail: bytes | None, part: bytes | None) -> Named:
    opening = None if trail is None else trail_opening(trail)
    return Named((owner or b"")[:MAX_OWNER_BYTES], opening, part)


def slice_header(value: bytes | None) -> SliceHeader | None:
    """Decode a slice header; return None if the value is None or malformed."""
    if value is None:
        return None
    try:
        return SliceHeader.unpack(value)
    except WireFormatError:
        return None


def usage_of(lines: Iterable[tuple[Line, Sum]]) -> list[Usage]:
    """Return sums as rows of usage; all slices of a message get the names of its first slice.

    A slice's own names count only if the first slice has none, because a relay that does not know slices adds
    its own trail to each slice. If a message has several first slices, the names that sort first count, so
    that the result does not depend on the order.
    """
    kept = list(lines)
    first: dict[_Message, _Owners] = {}
    for line, _ in kept:
        if line.first:
            message = line.topic, line.partition, line.message
            first[message] = min(first.get(message, _names(line)), _names(line), key=_order)
    sums: dict[Line, Sum] = {}
    for line, own in kept:
        if line.message is None:
            plain = line
        else:
            owner, producer = first.get((line.topic, line.partition, line.message), (None, None))
            if not line.first:
                line = line._replace(owner=owner or line.owner, producer=producer or line.producer)  # noqa: PLW2901 - the same line
            plain = line._replace(partition=None, message=None, first=False)
        before = sums.get(plain)
        sums[plain] = own if before is None else added(before, own)
    return [
        Usage(
            hour=hour_begin(line.hour),
            topic=line.topic,
            owner=line.owner,
            producer=line.producer,
            direction=line.direction,
            group=line.group,
            records=own.records,
            bytes=own.bytes,
            malformed=own.malformed,
            source=line.source,
        )
        for line, own in sums.items()
    ]


def added(one: Sum, other: Sum) -> Sum:
    """Add two sums; a number that is not known in one is not known in the result."""
    return Sum(
        None if one.records is None or other.records is None else one.records + other.records,
        None if one.bytes is None or other.bytes is None else one.bytes + other.bytes,
        one.malformed + other.malformed,
    )


_Message = tuple[str, int | None, bytes | None]
_Owners = tuple[str | None, str | None]


def _names(line: Line) -> _Owners:
    return line.owner, line.producer


def _order(names: _Owners) -> list[tuple[bool, str]]:
    """Return a sort key in the order of Spark: None comes first."""
    return [(name is not None, name or "") for name in names]
