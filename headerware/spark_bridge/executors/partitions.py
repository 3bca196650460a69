"""Which partition gets a message that its key does not decide, so that its slices stay together."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headerware.core.record import Record

_HEADER = "hw.id"
_LOCAL = "dedup"


class Picker:
    """Pick a partition by what a message is, so that a replay picks the same.

    Args:
        counts: how many partitions topics have, for one frame at a time; one that is not listed is taken to
            have one.
    """

    __slots__ = ("counts",)

    def __init__(self, counts: Mapping[str, int] | None = None) -> None:
        self.counts: Mapping[str, int] = counts or {}

    def __call__(self, record: Record) -> int | None:
        """Return the partition, or None for Kafka's partitioner to choose by the key."""
        if record.key is not None:
            return None
        return crc32(_seed(record)) % (self.counts.get(record.topic) or 1)


def _seed(record: Record) -> bytes:
    """Return what is the same in a replay: the identity, or else the value."""
    # The header may have gone into a packed block of ids; what it was made from stays with the record.
    identity = record.local.get(_LOCAL) if record.local else None
    if identity is not None:
        encoded: bytes = identity.encode()
        return encoded
    header = record.headers.last(_HEADER)
    return (record.value if header is None else header) or b""
