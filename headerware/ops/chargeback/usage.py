"""A row of usage: owner, producer, topic, hour and amount of traffic, and the source of the figures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Final, Literal

import msgspec

_HOUR_MS: Final = 3_600_000
_LAST_HOUR: Final = int(datetime(9999, 12, 31, 23, tzinfo=UTC).timestamp()) // 3600

Direction = Literal["in", "out"]
"""``in`` is traffic produced into Kafka, ``out`` is traffic read from Kafka."""

Source = Literal["records", "audit", "offsets", "unknown"]
"""The source of a figure: the records themselves, the consumers' own counts, or the offsets that groups
committed; ``unknown`` if there is none."""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """The traffic of one owner's producer into or out of one topic in one hour.

    Args:
        hour: the start of the hour, in UTC; None for records without a timestamp, or with one out of range.
        topic: the topic.
        owner: the owner that the last ``hw.owner`` names; None without that header.
        producer: the service that began the trail; None if it is unknown.
        direction: into or out of Kafka.
        group: the consumer group that read; None for incoming records.
        records: the number of records; for unknown reads, how many offsets the group advanced, or None if
            that is not known.
        bytes: their size on the wire, by :func:`~headerware.ops.chargeback.record_bytes`; None for unknown
            reads.
        malformed: how many of the records have a trail or a block of header ids that cannot be read.
        source: the source of the figures.
    """

    hour: datetime | None
    topic: str
    owner: str | None = None
    producer: str | None = None
    direction: Direction
    group: str | None = None
    records: int | None
    bytes: int | None
    malformed: int = 0
    source: Source


def audited_reads(counts: Iterable[tuple[str, str | None, int, int, int]]) -> Iterator[Usage]:
    """Yield the reads that consumer groups reported, as a row for each topic, group and hour.

    Args:
        counts: topic, group, milliseconds since the epoch, records and bytes. A time that is out of range
            counts in the first hour of 1970 or in the last hour of the year 9999.
    """
    sums: defaultdict[tuple[str, str | None, int], list[int]] = defaultdict(lambda: [0, 0])
    for topic, group, at_ms, records, size in counts:
        total = sums[topic, group, at_ms // _HOUR_MS]
        total[0] += records
        total[1] += size
    for (topic, group, hour), (records, size) in sorted(sums.items(), key=lambda item: str(item[0])):
        yield Usage(
            hour=datetime.fromtimestamp(min(max(hour, 0), _LAST_HOUR) * 3600, UTC),
            topic=topic,
            direction="out",
            group=group,
            records=records,
            bytes=size,
            source="audit",
        )
