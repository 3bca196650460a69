"""Which partition gets a message that its key does not decide, so that its slices stay together."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headerware.core.record import Record

_IDENTITY = "hw.id"


class Picker:
    """Pick a partition by what a message is, so that a replay picks the same.

    Args:
        counts: how many partitions topics have; one that is not listed is taken to have one.
    """

    __slots__ = ("_counts",)

    def __init__(self, counts: Mapping[str, int]) -> None:
        self._counts = counts

    def __call__(self, record: Record) -> int | None:
        """Give the partition, or None for Kafka's partitioner to choose by the key."""
        if record.key is not None:
            return None
        last = record.headers.last(_IDENTITY)
        seed = record.value if last is None else last
        return crc32(seed or b"") % self._counts.get(record.topic, 1)
