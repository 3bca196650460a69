"""What the glue knows: one incomplete message, and the offsets of one partition.

Nothing here is allocated from what a header declares; memory grows with the bytes that came.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from io import BytesIO
from math import inf
from typing import Final

from headerware.core.record import Record
from headerware.interceptors.slice_wire import HEADER, SliceHeader

SPANS_LIMIT: Final = 10_000
_MESSAGE_BYTES: Final = 1_500
_EARLY_BYTES: Final = 200
_HEADER_BYTES: Final = 200
_OFFSET_BYTES: Final = 16

Place = tuple[str, int | None]
"""A topic and a partition."""
Key = tuple[str, int | None, bytes, tuple[str, bytes] | None]
"""A topic, a partition, a message id, and who signed the slices: None if nothing has verified them."""


class Pending:
    """One message of which slices are missing.

    Args:
        key: where it is and its id.
        header: that of the slice which came first.
    """

    __slots__ = (
        "_buffer",
        "_early",
        "arrived_ms",
        "first",
        "header",
        "held_bytes",
        "key",
        "last_offset",
        "next_index",
        "offsets",
        "received",
        "start",
    )

    def __init__(self, key: Key, header: SliceHeader) -> None:
        self.key: Final = key
        self.header: Final = header
        self.first: Record | None = None
        """Slice 0 without its value, once it has come."""
        self.received: int = 0
        self.next_index: int = 0
        self.offsets: Final = array("q")
        """Where its slices were, in the order of coming."""
        self.start: int | None = None
        """The smallest offset of its slices."""
        self.last_offset: int | None = None
        self.arrived_ms: int = 0
        self.held_bytes: int = _MESSAGE_BYTES
        """An upper bound of the memory that it holds."""
        self._buffer = BytesIO()
        self._early: dict[int, bytes] = {}

    @property
    def is_complete(self) -> bool:
        """Whether all slices have come."""
        return self.received == self.header.count

    def has(self, index: int) -> bool:
        """Return whether a slice has come before."""
        return index < self.next_index or index in self._early

    def cost(self, index: int, record: Record) -> int:
        """Return an upper bound of the memory that one more slice takes."""
        size = len(record.value) + _OFFSET_BYTES + (0 if index == self.next_index else _EARLY_BYTES)
        if index == 0:
            size += len(record.key or b"")
            for name, value in record.headers:
                size += _HEADER_BYTES + len(name) * 4 + len(value or b"")
            verified = record.verified
            if verified is not None and verified.uncovered:  # kept with the first slice's state
                size += sum(_HEADER_BYTES + len(name) * 4 for name in verified.uncovered)
                size += sum(len(value or b"") for _, value in verified.set_aside)
        return size

    def add(self, index: int, record: Record, now_ms: int) -> None:
        """Take one more slice; those that come early wait beside the buffer."""
        self.held_bytes += self.cost(index, record)
        self.received += 1
        self.arrived_ms = now_ms
        self._move(record.offset)
        if index == 0:
            self.first = record.with_value(None, record.headers.remove(HEADER))
        if index != self.next_index:
            self._early[index] = record.value
            return
        self._buffer.write(record.value)
        self.next_index += 1
        while self._early and (following := self._early.pop(self.next_index, None)) is not None:
            self._buffer.write(following)
            self.next_index += 1

    def message(self, last: Record) -> Record:
        """Return the whole message, which has the position of the slice that came last."""
        first = self.first
        assert first is not None  # noqa: S101 - a complete message has its first slice
        return Record(
            first.topic,
            self._buffer.getvalue(),
            first.key,
            first.headers,
            last.partition,
            first.timestamp_ms,
            first.timestamp_type,
            last.offset,
            last.leader_epoch,
            first.local,
        )

    def _move(self, offset: int | None) -> None:
        if offset is None:
            return
        self.offsets.append(offset)
        self.start = offset if self.start is None else min(self.start, offset)
        self.last_offset = offset if self.last_offset is None else max(self.last_offset, offset)


class PartitionOffsets:
    """What is incomplete in one partition, and where messages that were delivered begin and end.

    Args:
        max_gap: how many offsets an incomplete message waits for its next slice.
    """

    __slots__ = ("_floor", "_max_gap", "_spans", "gap_at", "pending")

    def __init__(self, max_gap: int) -> None:
        self.pending: Final[dict[Key, Pending]] = {}
        self._floor: float | None = inf
        self.gap_at: float = inf
        """No message expires by gap up to this offset."""
        self._max_gap = max_gap
        # Ends and starts in one list, so that no interrupt comes between the two.
        self._spans: list[tuple[int, int]] = []

    @property
    def floor(self) -> float:
        """The smallest offset at which anything incomplete begins; infinite where nothing is."""
        if self._floor is None:
            starts = (other.start for other in self.pending.values() if other.start is not None)
            self._floor = min(starts, default=inf)
        return self._floor

    def watch(self, pending: Pending) -> None:
        """Take notice that a slice was added to an incomplete message."""
        assert pending.start is not None  # noqa: S101 - only messages with offsets come here
        assert pending.last_offset is not None  # noqa: S101 - as above
        self.pending[pending.key] = pending
        if self._floor is not None:
            self._floor = min(self._floor, pending.start)
        self.gap_at = min(self.gap_at, pending.last_offset + self._max_gap)

    def unwatch(self, pending: Pending) -> None:
        """Forget a message that is complete or given up."""
        if self.pending.pop(pending.key, None) is not None and pending.start == self._floor:
            self._floor = None
        if not self.pending:
            self.gap_at = inf

    def behind(self, offset: int) -> list[Pending]:
        """Return the messages whose last slice lies too far before an offset."""
        limits = [(other, (other.last_offset or 0) + self._max_gap) for other in self.pending.values()]
        self.gap_at = min((limit for _, limit in limits if limit >= offset), default=inf)
        return [other for other, limit in limits if limit < offset]

    def unneeded(self, begin: int) -> list[Pending]:
        """Return the messages that a start at an offset reads again in full, or has left far behind."""
        gap = self._max_gap
        return [
            other
            for other in self.pending.values()
            if (other.start or 0) >= begin or (other.last_offset or 0) + gap < begin
        ]

    def delivered(self, start: int, end: int) -> None:
        """Remember where a message began and ended, for the latest 10,000."""
        at = bisect_left(self._spans, (end,))
        if at < len(self._spans) and self._spans[at][0] == end:
            self._spans[at] = end, min(start, self._spans[at][1])
            return
        self._spans.insert(at, (end, start))
        if len(self._spans) > SPANS_LIMIT:
            del self._spans[: SPANS_LIMIT // 10]

    def covering(self, position: int) -> int:
        """Return the first slice of the delivered messages that a position cuts through, or the position."""
        at = bisect_left(self._spans, (position,))
        return min([position, *(start for _, start in self._spans[at:])])
