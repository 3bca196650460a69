"""Compute reads from committed offsets: the records that groups read between two moments, if known.

The offsets of each moment are compared with the offsets of the moment before. If a group's offset moved
forward, the group read the records in between; these reads count for the hour of the earlier moment. Reads
are unknown for records that the job does not cover, for groups that had no offset at the earlier moment, and
for groups whose offset moved back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import pairwise

import msgspec

from headerware.ops.chargeback.rules import require_zone
from headerware.ops.chargeback.usage import Usage

GroupPartition = tuple[str, str, int]
"""A group, a topic and a partition."""
_GroupHour = tuple[str, str, datetime]
"""A group, a topic and an hour."""


class GroupOffset(msgspec.Struct, frozen=True):
    """The committed offset of a consumer group at a moment.

    Args:
        group: the group.
        topic: the topic.
        partition: the partition.
        offset: the next offset that the group will read.
        at: the moment, with its time zone; the same for all offsets that were read together.
    """

    group: str
    topic: str
    partition: int
    offset: int
    at: datetime


class Covered(msgspec.Struct, frozen=True):
    """The offsets of a partition whose records are available to count.

    Args:
        topic: the topic.
        partition: the partition.
        begin: the first offset.
        end: the offset after the last.
    """

    topic: str
    partition: int
    begin: int
    end: int


class ReadRange(msgspec.Struct, frozen=True):
    """Offsets that a group read in an hour (UTC) and whose records are available; ``end`` is exclusive."""

    group: str
    topic: str
    partition: int
    begin: int
    end: int
    hour: datetime


class Reads(msgspec.Struct, frozen=True):
    """The reads between two moments.

    The records in ``ranges`` are still to be counted. ``rows`` need no counting: unknown
    reads, and topics that no group read.
    """

    ranges: tuple[ReadRange, ...] = ()
    rows: tuple[Usage, ...] = ()


def read_ranges(offsets: Iterable[GroupOffset], covered: Iterable[Covered]) -> Reads:
    """Return the ranges that groups read between the moments at which their offsets were taken.

    With fewer than two moments the result is empty. Each moment needs a time zone. Topics in ``covered`` that
    no group read get a row too.
    """
    moments = _by_moment(offsets)
    if len(moments) < 2:
        return Reads()
    bounds = {(each.topic, each.partition): each for each in covered}
    ranges: list[ReadRange] = []
    unknown: dict[_GroupHour, int | None] = {}
    for (since, earlier), (_, later) in pairwise(sorted(moments.items())):
        ranges.extend(_between_moments(since, earlier, later, bounds, unknown))
    read = {each.topic for each in ranges} | {topic for _, topic, _ in unknown}
    idle = sorted({topic for topic, _ in bounds} - read)
    return Reads(tuple(ranges), (*_unknown_rows(unknown), *map(unread, idle)))


def reads_between(
    since: datetime,
    earlier: Mapping[GroupPartition, int],
    later: Mapping[GroupPartition, int],
    covered: Iterable[Covered],
) -> Reads:
    """Return the ranges that groups read between two moments, and the unknown reads.

    Unlike :func:`read_ranges`, this accepts a moment without offsets, and returns no rows for topics that no
    group read.
    """
    bounds = {(each.topic, each.partition): each for each in covered}
    unknown: dict[_GroupHour, int | None] = {}
    ranges = tuple(_between_moments(since, earlier, later, bounds, unknown))
    return Reads(ranges, tuple(_unknown_rows(unknown)))


def _between_moments(
    since: datetime,
    earlier: Mapping[GroupPartition, int],
    later: Mapping[GroupPartition, int],
    bounds: Mapping[tuple[str, int], Covered],
    unknown: dict[_GroupHour, int | None],
) -> Iterator[ReadRange]:
    """Yield the ranges to count, and add the unknown reads to ``unknown``."""
    for reader, end in later.items():
        found, missing = _between(reader, earlier.get(reader), end, bounds.get(reader[1:]), since)
        yield from found
        if missing != 0:
            _add(unknown, (reader[0], reader[1], _hour(since)), missing)


def _between(
    reader: GroupPartition, begin: int | None, end: int, bounds: Covered | None, since: datetime
) -> tuple[list[ReadRange], int | None]:
    """Return the range to count, and the number of offsets that cannot be counted; None if unknown."""
    if begin is None or end < begin:
        return [], None
    low, high = (begin, begin) if bounds is None else (max(begin, bounds.begin), min(end, bounds.end))
    if low >= high:
        return [], end - begin
    return [ReadRange(*reader, low, high, _hour(since))], end - begin - (high - low)


def _by_moment(offsets: Iterable[GroupOffset]) -> dict[datetime, dict[GroupPartition, int]]:
    moments: defaultdict[datetime, dict[GroupPartition, int]] = defaultdict(dict)
    for each in offsets:
        require_zone(each.at, "offsets.at")
        moments[each.at][each.group, each.topic, each.partition] = each.offset
    return moments


def _add(unknown: dict[_GroupHour, int | None], key: _GroupHour, count: int | None) -> None:
    before = unknown.get(key, 0)
    unknown[key] = None if before is None or count is None else before + count


def _hour(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def _unknown_rows(unknown: Mapping[_GroupHour, int | None]) -> list[Usage]:
    return [_unknown(*key, records) for key, records in sorted(unknown.items())]


def _unknown(group: str, topic: str, hour: datetime, records: int | None) -> Usage:
    return Usage(
        hour=hour, topic=topic, direction="out", group=group, records=records, bytes=None, source="unknown"
    )


def unread(topic: str) -> Usage:
    """Return a row which tells that no group read the topic."""
    return Usage(hour=None, topic=topic, direction="out", records=0, bytes=0, source="offsets")
