"""Reassemble slices into messages: the consuming side of ``slice``, for one caller at a time.

A message belongs to one partition and to one signer. Slices with the same id from another partition or
signer, or without a signature, belong to another message. So a foreign slice does not get into a message, and
a message is not given up because a foreign slice is refused.

A slice is checked before any part of it is kept. If a slice is wrong, its complete message is given up, and
further slices of the message are discarded and counted (``late``). A message is also given up if its slices
do not arrive in time or within ``max_gap`` offsets, or if there is no room. Then ``poll`` returns a
ReassemblyError at the message's first slice, and until then the safe offset is not after that slice. Two
kinds of messages are only counted: messages whose first slice was never seen (``orphans``, after a start in
mid-message), and repeats of a delivered message (``duplicates``, from a producer that sends again).

If the step publishes dead letters, the slices of such a message that have arrived become dead letters, each
as it was on the wire; so do slices that arrive later, after their wait has ended. Redriven together, the
slices make the message again.

Memory grows with the bytes that have arrived, never with the numbers that a header states.
"""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_left
from collections import OrderedDict
from enum import Enum
from io import BytesIO
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from msgspec import structs

from headerware.core.batch import header_names
from headerware.core.errors import ReassemblyError, WireFormatError
from headerware.core.record import ORIGINAL, Record
from headerware.core.services import Closes, Counts, Reassembles
from headerware.interceptors.slice.header import SLICE_HEADER, SliceHeader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from headerware.core.batch import Batch
    from headerware.core.hooks import HookResult

MAX_CLOSED: Final = 10_000
"""How many messages are remembered as delivered or given up."""
MAX_SPANS: Final = 10_000
"""How many delivered messages of a partition are remembered, by their first and last offsets."""

# Upper bounds of the memory that the parts of a pending message take in addition to their bytes.
_MESSAGE_BYTES: Final = 1_500
_EARLY_BYTES: Final = 200
_HEADER_BYTES: Final = 200
_OFFSET_BYTES: Final = 16

_COUNTS: Final[tuple[str, ...]] = ("glued", "duplicates", "orphans", "late", "expired", "evicted")
_log: Final = logging.getLogger("headerware")

_TopicPartition = tuple[str, int | None]
_MessageKey = tuple[str, int | None, bytes, tuple[str, bytes] | None]
"""A topic, a partition, a message id, and the signer of the slices: None if no step has verified them."""


class _Failure(NamedTuple):
    """The error of a message that was given up, and the size of the slices kept for dead letters."""

    topic_partition: _TopicPartition
    start: int | None
    held_bytes: int
    error: ReassemblyError


class _End(Enum):
    """The outcome of a message that is no longer pending."""

    DELIVERED = 1
    DISCARDED = 2
    DEAD_LETTERED = 3
    ORPHANED = 4


class Reassembler(Reassembles, Counts, Closes):
    """Collect slices until their messages are complete."""

    def __init__(
        self,
        now_ms: Callable[[], int],
        *,
        max_message_bytes: int,
        max_pending_bytes: int,
        max_pending_messages: int,
        expire_ms: int,
        max_gap: int,
        dead_letters: bool = False,
    ) -> None:
        self._now_ms = now_ms
        self._max_message_bytes = max_message_bytes
        self._max_pending_bytes = max_pending_bytes
        self._max_pending_messages = max_pending_messages
        self._expire_ms = expire_ms
        self._max_gap = max_gap
        self._dead_letters = dead_letters
        self._pending: OrderedDict[_MessageKey, _PendingMessage] = OrderedDict()
        self._pending_bytes = 0
        self._partitions: dict[_TopicPartition, _PartitionOffsets] = {}
        self._closed: OrderedDict[_MessageKey, _End] = OrderedDict()
        """The latest messages that were delivered or given up."""
        self._failures: list[_Failure] = []
        """The errors that wait for ``poll``."""
        self._failed_bytes = 0
        self._expiry_due: float = inf
        self._counts: dict[str, int] = dict.fromkeys(_COUNTS, 0)

    def on_consume(self, record: Record) -> HookResult:
        """Return a record that is not a slice; for a slice, return the message that it completes, if any."""
        for name, _ in record.headers:
            if name == SLICE_HEADER:
                return self._take(record)
        if self._pending:
            self._advance(record)
        return record

    def on_consume_batch(self, batch: Batch) -> Batch:
        """Return a batch without slices; if there are any, or some wait, leave all to :meth:`on_consume`."""
        return batch.leave() if self._pending or SLICE_HEADER in header_names(batch.headers) else batch

    def is_waiting(self) -> bool:
        """Return whether a message is incomplete."""
        return bool(self._pending)

    def poll(self, now_ms: int) -> list[ReassemblyError]:
        """Give up messages that have waited too long; return all errors since the last poll."""
        if now_ms >= self._expiry_due:
            self._expire(now_ms)
        failures, self._failures, self._failed_bytes = self._failures, [], 0
        return [failure.error for failure in failures]

    def is_due(self) -> bool:
        """Return whether the dead letters of given up messages should be stored before more is read."""
        return (
            self._failed_bytes > self._max_pending_bytes // 2
            or len(self._failures) > self._max_pending_messages // 2
        )

    def safe_offset(self, topic: str, partition: int, position: int) -> int:
        """Return the largest offset up to ``position`` from which a restart loses nothing."""
        offsets = self._partitions.get((topic, partition))
        if offsets is None:
            return position
        safe = min(offsets.smallest_start, offsets.start_of_delivered(position))
        for failure in self._failures:
            if failure.start is not None and failure.topic_partition == (topic, partition):
                safe = min(safe, failure.start)
        return int(safe)

    def safe_offsets(self) -> dict[tuple[str, int], int]:
        """Return the start of each partition's oldest message that is pending, or given up but not polled."""
        safe = {
            topic_partition: offsets.smallest_start
            for topic_partition, offsets in self._partitions.items()
            if offsets.pending
        }
        for failure in self._failures:
            if failure.start is not None:
                safe[failure.topic_partition] = min(failure.start, safe.get(failure.topic_partition, inf))
        return {cast("tuple[str, int]", key): int(offset) for key, offset in safe.items()}

    def waiting_offsets(self) -> dict[tuple[str, int], list[int]]:
        """Return the offsets of the slices of pending messages, by partition."""
        waiting: dict[_TopicPartition, list[int]] = {}
        for topic_partition, offsets in self._partitions.items():
            for message in offsets.pending.values():
                waiting.setdefault(topic_partition, []).extend(message.offsets)
        return cast("dict[tuple[str, int], list[int]]", waiting)

    def reached(self, topic: str, partition: int, offset: int) -> None:
        """Give up the messages whose last slice is more than ``max_gap`` before a partition's offset."""
        offsets = self._partitions.get((topic, partition))
        if offsets is None or offset <= offsets.gap_at:
            return
        for message in offsets.beyond_gap(offset):
            reason = f"no other came for more than {self._max_gap} offsets (max_gap)"
            self._give_up(message, "expired", reason)

    def seek(self, topic: str, partition: int, offset: int) -> int:
        """Return the offset to begin at, and forget messages that will be read again or were skipped.

        If the offset lies inside a message that was delivered in this session, the returned offset is that of
        the message's first slice. A pending message that began before the offset is kept, because its first
        slices will not come again, unless more than ``max_gap`` offsets are skipped.
        """
        self._reopen({(topic, partition)})
        offsets = self._partitions.get((topic, partition))
        if offsets is None:
            return offset
        begin = offsets.start_of_delivered(offset)
        for message in offsets.unneeded(begin):
            self._forget(message)
        return begin

    def revoke(self, partitions: Iterable[_TopicPartition]) -> None:
        """Forget the messages of partitions that have gone to another consumer, which reads them again."""
        gone = set(partitions)
        self._reopen(gone)
        for message in [message for key, message in self._pending.items() if key[:2] in gone]:
            self._forget(message)
        for topic_partition in gone:
            self._partitions.pop(topic_partition, None)
        self._failures = [failure for failure in self._failures if failure.topic_partition not in gone]
        self._failed_bytes = sum(failure.held_bytes for failure in self._failures)
        # Summed up again, because this also repairs the sum after an interrupt.
        self._pending_bytes = sum(message.held_bytes for message in self._pending.values())

    def stats(self) -> dict[str, int]:
        """Return the counters, and the number and size of pending messages."""
        return {
            **self._counts,
            "pending_messages": len(self._pending),
            "pending_bytes": self._pending_bytes,
        }

    def close(self) -> None:
        """Forget all messages; the offsets of incomplete ones were never committed."""
        self._pending.clear()
        self._partitions.clear()
        self._closed.clear()
        self._failures.clear()
        self._pending_bytes = self._failed_bytes = 0

    def _take(self, record: Record) -> list[Record]:
        self._advance(record)
        header = _header_of(record)
        verified = record.verified
        signer = None if verified is None else verified.signer
        key = (record.topic, record.partition, header.message_id, signer)
        end = self._closed.get(key)
        if end is _End.ORPHANED and header.index == 0:
            # The message is no orphan: it begins again, so that it is reported if it stays incomplete.
            del self._closed[key]
        elif end in {_End.DISCARDED, _End.ORPHANED}:
            self._counts["late"] += 1
            return []
        message = self._pending.get(key)
        problem = self._problem(header, record, message)
        if problem is not None:
            raise self._refused(key, problem)
        if message is None:
            message = self._pending[key] = _PendingMessage(key, header)
            self._pending_bytes += message.held_bytes
        elif message.has(header.index):
            self._counts["duplicates"] += 1
            return []
        self._make_room(message, message.cost(header.index, record, keeps_original=self._dead_letters))
        self._add(message, header.index, record)
        return [self._finish(message, record)] if message.is_complete else []

    def _problem(self, header: SliceHeader, record: Record, message: _PendingMessage | None) -> str | None:
        """Return the problem of a slice, by itself or compared with earlier slices, or None."""
        if problem := header.problem():
            return f"hw.slice states {problem}"
        if header.total_bytes > self._max_message_bytes:
            return (
                f"hw.slice states {header.total_bytes} bytes in all; "
                f"max_message_bytes is {self._max_message_bytes}"
            )
        found = 0 if record.value is None else len(record.value)
        if found != header.payload_bytes:
            return f"slice {header.index} has {found} bytes; hw.slice states {header.payload_bytes}"
        if message is not None and not message.header.same_message(header):
            return (
                f"hw.slice states {header.whole_in_words}; "
                f"earlier slices stated {message.header.whole_in_words}"
            )
        return None

    def _refused(self, key: _MessageKey, problem: str) -> ReassemblyError:
        """Drop a message because of one of its slices; return the error, without the slice's position."""
        message = self._pending.get(key)
        dropped = 0
        if message is not None:
            dropped = message.received
            self._forget(message)
        self._close(key, _End.DEAD_LETTERED if self._dead_letters else _End.DISCARDED)
        error = ReassemblyError(f"{problem}; the earlier slices of its message are dropped, too ({dropped})")
        error.offsets = () if message is None else tuple(message.offsets)
        if message is not None and dropped and self._dead_letters:
            # The slice at hand has a dead letter of its own.
            self._fail(message, f"{problem} (a later slice of the same message)")
        return error

    def _make_room(self, message: _PendingMessage, need: int) -> None:
        """Evict the oldest pending messages, but not the one that needs the room."""
        while (
            self._pending_bytes + need > self._max_pending_bytes
            or len(self._pending) > self._max_pending_messages
        ):
            oldest = next((other for other in self._pending.values() if other is not message), None)
            if oldest is None:
                problem = f"its message does not fit into max_pending_bytes ({self._max_pending_bytes})"
                raise self._refused(message.key, problem)
            why = "newer messages had no room in max_pending_bytes or max_pending_messages"
            self._evict(oldest, message.key, why)

    def _evict(self, oldest: _PendingMessage, newer: _MessageKey, why: str) -> None:
        """Give up the oldest message for a newer one; refuse the newer if too many errors wait."""
        is_full = self._dead_letters and self._failed_bytes + oldest.held_bytes > self._max_pending_bytes
        if is_full or len(self._failures) >= self._max_pending_messages:
            problem = f"no room, and {len(self._failures)} errors of evicted messages wait for poll()"
            raise self._refused(newer, problem)
        self._give_up(oldest, "evicted", f"evicted, because {why}")

    def _add(self, message: _PendingMessage, index: int, record: Record) -> None:
        before, now = message.held_bytes, self._now_ms()
        message.add(index, record, now, keeps_original=self._dead_letters)
        self._pending_bytes += message.held_bytes - before
        self._expiry_due = min(self._expiry_due, now + self._expire_ms)
        if record.offset is not None and record.partition is not None:
            self._offsets_of(message).add(message)

    def _finish(self, message: _PendingMessage, last: Record) -> Record:
        assembled = message.assembled(last)
        if message.start is not None and message.last_offset is not None and last.partition is not None:
            self._offsets_of(message).add_delivered(message.start, message.last_offset)
        self._forget(message)
        self._close(message.key, _End.DELIVERED)
        self._counts["glued"] += 1
        return assembled

    def _advance(self, record: Record) -> None:
        if record.offset is not None and record.partition is not None:
            self.reached(record.topic, record.partition, record.offset)

    def _expire(self, now_ms: int) -> None:
        expire_ms = self._expire_ms
        for message in [other for other in self._pending.values() if other.arrived_ms + expire_ms <= now_ms]:
            self._give_up(message, "expired", f"no other came for {expire_ms} ms (expire_ms)")
        arrived = min((other.arrived_ms for other in self._pending.values()), default=inf)
        self._expiry_due = arrived + expire_ms

    def _give_up(self, message: _PendingMessage, count: str, reason: str) -> None:
        """Drop a pending message, and queue its error for ``poll``, unless it is a repeat or an orphan."""
        self._forget(message)
        before, end = self._closed.get(message.key), _End.DISCARDED
        if before is _End.DELIVERED:
            self._counts["duplicates"] += message.received
        elif message.first is None and before is not _End.DEAD_LETTERED:
            self._discard_orphan(message)
            end = _End.ORPHANED
        else:
            self._counts[count] += 1
            self._fail(message, f"{message.received} of {message.header.count} slices came: {reason}")
            end = _End.DEAD_LETTERED if self._dead_letters else end
        self._close(message.key, end)

    def _fail(self, message: _PendingMessage, text: str) -> None:
        """Queue the error of a message for ``poll``, at its first slice if that has arrived."""
        topic, partition = message.key[:2]
        offset = message.start if message.first is None else message.first.offset
        error = ReassemblyError(text, topic=topic, partition=partition, offset=offset)
        error.offsets = tuple(message.offsets)
        error.arrived = message.originals if self._dead_letters else None
        held_bytes = message.held_bytes if self._dead_letters else 0
        self._failures.append(_Failure(message.key[:2], message.start, held_bytes, error))
        self._failed_bytes += held_bytes

    def _discard_orphan(self, message: _PendingMessage) -> None:
        self._counts["orphans"] += 1
        if self._counts["orphans"] == 1:
            _log.warning(
                "slices of a message in %s[%s] were discarded, because its first slice was never seen: "
                "reading began in mid-message, or a later record has replaced the slice in a compacted topic "
                "(further messages are only counted)",
                message.key[0],
                message.key[1],
            )

    def _forget(self, message: _PendingMessage) -> None:
        if self._pending.pop(message.key, None) is None:
            return
        self._pending_bytes -= message.held_bytes
        offsets = self._partitions.get(message.key[:2])
        if offsets is not None:
            offsets.remove(message)

    def _close(self, key: _MessageKey, end: _End) -> None:
        self._closed.pop(key, None)
        self._closed[key] = end
        if len(self._closed) > MAX_CLOSED:
            self._closed.popitem(last=False)

    def _reopen(self, partitions: set[_TopicPartition]) -> None:
        for key in [key for key in self._closed if key[:2] in partitions]:
            del self._closed[key]

    def _offsets_of(self, message: _PendingMessage) -> _PartitionOffsets:
        topic_partition = message.key[:2]
        offsets = self._partitions.get(topic_partition)
        if offsets is None:
            offsets = self._partitions[topic_partition] = _PartitionOffsets(self._max_gap)
        return offsets


class _Payload:
    """The values of the slices of a message that have arrived."""

    __slots__ = ("_buffer", "_early", "_next")

    def __init__(self) -> None:
        self._buffer = BytesIO()
        self._next = 0
        self._early: dict[int, bytes] = {}
        """The slices that arrived early; they wait until the buffer has all slices before them."""

    def has(self, index: int) -> bool:
        """Return whether a slice has arrived."""
        return index < self._next or index in self._early

    def overhead_bytes(self, index: int) -> int:
        """Return an upper bound of the memory that a slice takes in addition to its bytes."""
        return 0 if index == self._next else _EARLY_BYTES

    def write(self, index: int, value: bytes) -> None:
        """Keep the value of a slice."""
        if index != self._next:
            self._early[index] = value
            return
        self._buffer.write(value)
        self._next += 1
        while self._early and (following := self._early.pop(self._next, None)) is not None:
            self._buffer.write(following)
            self._next += 1

    def read(self, header: SliceHeader) -> bytes:
        """Return the value of a slice."""
        if header.index in self._early:
            return self._early[header.index]
        begin = header.index * header.slice_bytes
        with self._buffer.getbuffer() as written:
            return bytes(written[begin : begin + header.payload_bytes])

    def read_all(self) -> bytes:
        """Return the value of the message."""
        return self._buffer.getvalue()


class _PendingMessage:
    """An incomplete message; ``header`` is the header of the slice that arrived first."""

    __slots__ = (
        "_originals",
        "_payload",
        "arrived_ms",
        "first",
        "header",
        "held_bytes",
        "key",
        "last_offset",
        "offsets",
        "received",
        "start",
    )

    def __init__(self, key: _MessageKey, header: SliceHeader) -> None:
        self.key: Final = key
        self.header: Final = header
        self.first: Record | None = None
        """Slice 0 without its value, once it has arrived."""
        self.received: int = 0
        self.offsets: Final = array("q")
        """The offsets of its slices, in the order of arrival."""
        self.start: int | None = None
        """The smallest offset of its slices."""
        self.last_offset: int | None = None
        self.arrived_ms: int = 0
        self.held_bytes: int = _MESSAGE_BYTES
        """An upper bound of the memory that it holds."""
        self._payload: Final = _Payload()
        self._originals: dict[int, Record] = {}
        """The slices as they were on the wire, by index, if they are kept. A value that no step has changed
        is kept in the payload only."""

    @property
    def is_complete(self) -> bool:
        """Whether all slices have arrived."""
        return self.received == self.header.count

    def has(self, index: int) -> bool:
        """Return whether a slice has arrived."""
        return self._payload.has(index)

    def cost(self, index: int, record: Record, *, keeps_original: bool) -> int:
        """Return an upper bound of the memory that one more slice takes."""
        size = len(record.value) + _OFFSET_BYTES + self._payload.overhead_bytes(index)
        if index == 0:
            size += _size_without_value(record)
            verified = record.verified
            if verified is not None and verified.uncovered:  # kept with the first slice's state
                size += sum(_HEADER_BYTES + len(name) * 4 for name in verified.uncovered)
                size += sum(len(value or b"") for _, value in verified.set_aside)
        if keeps_original and (original := _original(record)) is not None:
            size += _EARLY_BYTES + _size_without_value(original)
            size += 0 if original.value is None else len(original.value)
        return size

    def add(self, index: int, record: Record, now_ms: int, *, keeps_original: bool) -> None:
        """Add a slice."""
        cost = self.cost(index, record, keeps_original=keeps_original)
        self._payload.write(index, record.value)
        self.held_bytes += cost
        self.received += 1
        self.arrived_ms = now_ms
        self._note_offset(record.offset)
        if index == 0:
            self.first = _without_original(record).with_value(None, record.headers.remove(SLICE_HEADER))
        if keeps_original and (original := _original(record)) is not None:
            self._originals[index] = original

    def originals(self) -> Iterator[Record]:
        """Yield the slices that have arrived, as they were on the wire, in order of index."""
        for index, original in sorted(self._originals.items()):
            if original.value is not None:
                yield original
                continue
            header = structs.replace(self.header, index=index)
            yield original.with_value(self._payload.read(header))

    def assembled(self, last: Record) -> Record:
        """Return the message, with the position of the slice that arrived last."""
        first = self.first
        assert first is not None  # noqa: S101 - a complete message has its first slice
        return Record(
            first.topic,
            self._payload.read_all(),
            first.key,
            first.headers,
            last.partition,
            first.timestamp_ms,
            first.timestamp_type,
            last.offset,
            last.leader_epoch,
            first.local,
        )

    def _note_offset(self, offset: int | None) -> None:
        if offset is None:
            return
        self.offsets.append(offset)
        self.start = offset if self.start is None else min(self.start, offset)
        self.last_offset = offset if self.last_offset is None else max(self.last_offset, offset)


def _original(record: Record) -> Record | None:
    """Return a slice as it was on the wire, or None; without its value, if no step has changed the value."""
    original: Record | None = (record.local or {}).get(ORIGINAL)
    if original is None or original.value is not record.value:
        return original
    return original.with_value(None)


def _without_original(record: Record) -> Record:
    """Return a slice without its original: the message is made of several originals."""
    if not record.local or ORIGINAL not in record.local:
        return record
    others = {name: state for name, state in record.local.items() if name != ORIGINAL}
    return record.replace(local=others or None)


def _size_without_value(record: Record) -> int:
    """Return an upper bound of the memory that a record takes without its value."""
    size = len(record.key or b"")
    for name, value in record.headers:
        size += _HEADER_BYTES + len(name) * 4 + len(value or b"")
    return size


class _PartitionOffsets:
    """The pending messages of one partition, and the bounds of delivered ones."""

    __slots__ = ("_max_gap", "_smallest_start", "_spans", "gap_at", "pending")

    def __init__(self, max_gap: int) -> None:
        self.pending: Final[dict[_MessageKey, _PendingMessage]] = {}
        self._smallest_start: float | None = inf
        self.gap_at: float = inf
        """Up to this offset, no message has waited for more than ``max_gap`` offsets."""
        self._max_gap = max_gap
        # Ends and starts in one list, so that no interrupt comes between the two.
        self._spans: list[tuple[int, int]] = []

    @property
    def smallest_start(self) -> float:
        """The smallest offset at which a pending message begins; infinite if there is none."""
        if self._smallest_start is None:
            starts = (other.start for other in self.pending.values() if other.start is not None)
            self._smallest_start = min(starts, default=inf)
        return self._smallest_start

    def add(self, message: _PendingMessage) -> None:
        """Add a pending message, or update it after another slice."""
        assert message.start is not None  # noqa: S101 - only messages with offsets come here
        assert message.last_offset is not None  # noqa: S101 - as above
        self.pending[message.key] = message
        if self._smallest_start is not None:
            self._smallest_start = min(self._smallest_start, message.start)
        self.gap_at = min(self.gap_at, message.last_offset + self._max_gap)

    def remove(self, message: _PendingMessage) -> None:
        """Forget a message that is complete or given up."""
        if self.pending.pop(message.key, None) is not None and message.start == self._smallest_start:
            self._smallest_start = None
        if not self.pending:
            self.gap_at = inf

    def beyond_gap(self, offset: int) -> list[_PendingMessage]:
        """Return the messages whose last slice lies more than ``max_gap`` before an offset."""
        limits = [(other, (other.last_offset or 0) + self._max_gap) for other in self.pending.values()]
        self.gap_at = min((limit for _, limit in limits if limit >= offset), default=inf)
        return [other for other, limit in limits if limit < offset]

    def unneeded(self, begin: int) -> list[_PendingMessage]:
        """Return the messages that a start at an offset reads again completely, or skips by ``max_gap``."""
        gap = self._max_gap
        return [
            other
            for other in self.pending.values()
            if (other.start or 0) >= begin or (other.last_offset or 0) + gap < begin
        ]

    def add_delivered(self, start: int, end: int) -> None:
        """Remember the bounds of a message, for the latest 10,000."""
        at = bisect_left(self._spans, (end,))
        if at < len(self._spans) and self._spans[at][0] == end:
            self._spans[at] = end, min(start, self._spans[at][1])
            return
        self._spans.insert(at, (end, start))
        if len(self._spans) > MAX_SPANS:
            del self._spans[: MAX_SPANS // 10]

    def start_of_delivered(self, offset: int) -> int:
        """Return the start of the delivered messages around an offset, or the offset itself."""
        at = bisect_left(self._spans, (offset,))
        return min([offset, *(start for _, start in self._spans[at:])])


def _header_of(record: Record) -> SliceHeader:
    values = record.headers.all(SLICE_HEADER)
    if len(values) != 1:
        raise ReassemblyError(f"expected one hw.slice header, found {len(values)}")
    try:
        return SliceHeader.unpack(values[0])
    except WireFormatError as error:
        raise ReassemblyError(str(error)) from error
