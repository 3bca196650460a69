"""Glue slices together: the consuming side of ``slice``.

One caller at a time. A message belongs to one partition and to one signer: the same id elsewhere, from
another signer, or without a signature is another message, so that a foreign slice neither gets into a message
nor takes it along when it is refused.

What is wrong with a slice is found before anything of it is kept; its message is then given up whole,
and what still comes of that message is thrown away and counted (``late``). Giving up for want of time,
room or neighbours surfaces through ``poll`` as a ReassemblyError at the message's first slice, and the
safe offset stays behind it until then. Two kinds are only counted: messages whose first slice was never
seen (``orphans``: a start in mid-message), and stray repeats of a message that was delivered
(``duplicates``: a producer that sends again).
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from math import inf
from typing import TYPE_CHECKING, Final, cast

import msgspec

from headerware.core.errors import ReassemblyError, WireFormatError
from headerware.interceptors.slice_pending import Key, PartitionOffsets, Pending, Place
from headerware.interceptors.slice_wire import HEADER, SliceHeader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headerware.core.context import Context
    from headerware.core.record import Record

CLOSED_LIMIT: Final = 10_000
"""How many messages are remembered as delivered or given up."""

_COUNTS: Final[tuple[str, ...]] = ("glued", "duplicates", "orphans", "late", "expired", "evicted")
_log: Final = logging.getLogger("headerware")


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What bounds the pool; the options of the same names say what each means."""

    max_message_bytes: int
    max_pending_bytes: int
    max_pending_messages: int
    expire_ms: int
    max_gap: int


class Glue:
    """Collect slices until their messages are whole.

    Args:
        limits: what bounds the pool.
        context: the session's; only its clock is read.
    """

    def __init__(self, limits: Limits, context: Context) -> None:
        self._limits = limits
        self._now_ms = context.now_ms
        self._pending: OrderedDict[Key, Pending] = OrderedDict()
        self._partitions: dict[Place, PartitionOffsets] = {}
        self._closed: OrderedDict[Key, bool] = OrderedDict()
        self._failures: list[tuple[int | None, ReassemblyError]] = []
        self._pending_bytes = 0
        self._expiry_due: float = inf
        self._counts: dict[str, int] = dict.fromkeys(_COUNTS, 0)

    def on_consume(self, record: Record) -> Record | list[Record]:
        """Return a record that is no slice; of slices nothing, and with the last one the message.

        Raises:
            ReassemblyError: a slice that contradicts itself or its message, or for which there is no room.
        """
        for name, _ in record.headers:
            if name == HEADER:
                return self._take(record)
        if self._pending:
            self._pass(record)
        return record

    def poll(self, now_ms: int) -> list[ReassemblyError]:
        """Give up what has waited too long, and give all that was given up since the last call.

        Args:
            now_ms: the time in milliseconds since the epoch.
        """
        if now_ms >= self._expiry_due:
            self._expire(now_ms)
        failures, self._failures = self._failures, []
        return [error for _, error in failures]

    def safe_offset(self, topic: str, partition: int, position: int) -> int:
        """Return the largest offset up to ``position`` from which a restart loses nothing."""
        offsets = self._partitions.get((topic, partition))
        if offsets is None:
            return position
        safe = min(offsets.floor, offsets.covering(position))
        for start, error in self._failures:
            if start is not None and (error.topic, error.partition) == (topic, partition):
                safe = min(safe, start)
        return int(safe)

    def safe_offsets(self) -> dict[tuple[str, int], int]:
        """Return where the oldest begins that is incomplete or given up but not yet polled, by partition."""
        safe = {place: offsets.floor for place, offsets in self._partitions.items() if offsets.pending}
        for start, error in self._failures:
            if start is not None and error.topic is not None:
                place = (error.topic, error.partition)
                safe[place] = min(start, safe.get(place, inf))
        return {cast("tuple[str, int]", place): int(offset) for place, offset in safe.items()}

    def waiting_offsets(self) -> dict[tuple[str, int], list[int]]:
        """Return where the slices of incomplete messages are, by partition."""
        waiting: dict[Place, list[int]] = {}
        for place, offsets in self._partitions.items():
            for pending in offsets.pending.values():
                waiting.setdefault(place, []).extend(pending.offsets)
        return cast("dict[tuple[str, int], list[int]]", waiting)

    def reached(self, topic: str, partition: int, offset: int) -> None:
        """Notice how far a partition has come, and give up what was left behind."""
        offsets = self._partitions.get((topic, partition))
        if offsets is None or offset <= offsets.gap_at:
            return
        for pending in offsets.behind(offset):
            why = f"none came for more than {self._limits.max_gap} offsets (max_gap)"
            self._give_up(pending, "expired", why)

    def seek(self, topic: str, partition: int, offset: int) -> int:
        """Return the offset at which to begin, and forget what will be read again or has been skipped.

        Inside of a message that was delivered in this session, that is its first slice. A message that
        began before is kept, for its first slices will not come again, unless more than ``max_gap``
        offsets are skipped.
        """
        self._reopen({(topic, partition)})
        offsets = self._partitions.get((topic, partition))
        if offsets is None:
            return offset
        begin = offsets.covering(offset)
        for pending in offsets.unneeded(begin):
            self._forget(pending)
        return begin

    def revoke(self, partitions: Iterable[Place]) -> None:
        """Forget all of partitions that have gone to another consumer, which will read it again."""
        gone = set(partitions)
        self._reopen(gone)
        for pending in [pending for key, pending in self._pending.items() if key[:2] in gone]:
            self._forget(pending)
        for place in gone:
            self._partitions.pop(place, None)
        self._failures = [kept for kept in self._failures if (kept[1].topic, kept[1].partition) not in gone]
        # Counted anew, for this also clears up after an interrupt.
        self._pending_bytes = sum(pending.held_bytes for pending in self._pending.values())

    def stats(self) -> dict[str, int]:
        """Return the counters, and what is pending now."""
        return {
            **self._counts,
            "pending_messages": len(self._pending),
            "pending_bytes": self._pending_bytes,
        }

    def close(self) -> None:
        """Forget everything; what was incomplete was never committed."""
        self._pending.clear()
        self._partitions.clear()
        self._closed.clear()
        self._failures.clear()
        self._pending_bytes = 0

    def _take(self, record: Record) -> list[Record]:
        self._pass(record)
        header = _read(record)
        verified = record.verified
        signer = None if verified is None else verified.signer
        key = (record.topic, record.partition, header.message_id, signer)
        if self._closed.get(key) is False:
            self._counts["late"] += 1
            return []
        pending = self._pending.get(key)
        problem = self._problem(header, record, pending)
        if problem is not None:
            raise self._refused(key, problem)
        if pending is None:
            pending = self._pending[key] = Pending(key, header)
            self._pending_bytes += pending.held_bytes
        elif pending.has(header.index):
            self._counts["duplicates"] += 1
            return []
        self._make_room(pending, pending.cost(header.index, record))
        self._add(pending, header.index, record)
        return [self._finish(pending, record)] if pending.is_complete else []

    def _problem(self, header: SliceHeader, record: Record, pending: Pending | None) -> str | None:
        if problem := header.problem():
            return f"hw.slice states {problem}"
        if header.total_bytes > self._limits.max_message_bytes:
            return (
                f"hw.slice states {header.total_bytes} bytes in all; "
                f"max_message_bytes is {self._limits.max_message_bytes}"
            )
        found = 0 if record.value is None else len(record.value)
        if found != header.payload_bytes:
            return f"slice {header.index} has {found} bytes; hw.slice states {header.payload_bytes}"
        if pending is not None and not pending.header.same_message(header):
            return f"hw.slice states {header.terms}; slices that came before stated {pending.header.terms}"
        return None

    def _refused(self, key: Key, problem: str) -> ReassemblyError:
        """Drop a message because of one of its slices, at whose position the session puts the error."""
        pending = self._pending.get(key)
        dropped = 0
        if pending is not None:
            dropped = pending.received
            self._forget(pending)
        self._close(key, is_delivered=False)
        error = ReassemblyError(f"{problem}; with it go the {dropped} slices of its message that had come")
        error.offsets = () if pending is None else tuple(pending.offsets)
        return error

    def _make_room(self, pending: Pending, need: int) -> None:
        """Evict the oldest incomplete messages, but not the one that needs the room."""
        limits = self._limits
        while (
            self._pending_bytes + need > limits.max_pending_bytes
            or len(self._pending) > limits.max_pending_messages
        ):
            oldest = next((other for other in self._pending.values() if other is not pending), None)
            if oldest is None:
                problem = f"its message does not fit into max_pending_bytes ({limits.max_pending_bytes})"
                raise self._refused(pending.key, problem)
            if len(self._failures) >= limits.max_pending_messages:
                problem = f"no room, and {len(self._failures)} errors of evicted messages wait for poll()"
                raise self._refused(pending.key, problem)
            why = "evicted, for newer ones had no room in max_pending_bytes or max_pending_messages"
            self._give_up(oldest, "evicted", why)

    def _add(self, pending: Pending, index: int, record: Record) -> None:
        before, now = pending.held_bytes, self._now_ms()
        pending.add(index, record, now)
        self._pending_bytes += pending.held_bytes - before
        self._expiry_due = min(self._expiry_due, now + self._limits.expire_ms)
        if record.offset is not None and record.partition is not None:
            self._offsets(pending.key[:2]).watch(pending)

    def _finish(self, pending: Pending, last: Record) -> Record:
        message = pending.message(last)
        if pending.start is not None and pending.last_offset is not None and last.partition is not None:
            self._offsets(pending.key[:2]).delivered(pending.start, pending.last_offset)
        self._forget(pending)
        self._close(pending.key, is_delivered=True)
        self._counts["glued"] += 1
        return message

    def _pass(self, record: Record) -> None:
        if record.offset is not None and record.partition is not None:
            self.reached(record.topic, record.partition, record.offset)

    def _expire(self, now_ms: int) -> None:
        waits = self._limits.expire_ms
        for pending in [other for other in self._pending.values() if other.arrived_ms + waits <= now_ms]:
            self._give_up(pending, "expired", f"none came for {waits} ms (expire_ms)")
        arrived = min((other.arrived_ms for other in self._pending.values()), default=inf)
        self._expiry_due = arrived + waits

    def _give_up(self, pending: Pending, count: str, why: str) -> None:
        """Drop an incomplete message, and queue its error for ``poll``, unless nobody misses it."""
        self._forget(pending)
        first = pending.first
        if self._closed.get(pending.key):
            self._counts["duplicates"] += pending.received
        elif first is None:
            self._discard_orphan(pending)
        else:
            self._counts[count] += 1
            text = f"{pending.received} of {pending.header.count} slices came: {why}"
            error = ReassemblyError(text, topic=first.topic, partition=first.partition, offset=first.offset)
            error.offsets = tuple(pending.offsets)
            self._failures.append((pending.start, error))
        self._close(pending.key, is_delivered=False)

    def _discard_orphan(self, pending: Pending) -> None:
        self._counts["orphans"] += 1
        if self._counts["orphans"] == 1:
            _log.warning(
                "slices of a message of %s[%s] were discarded, for its first slice was never seen, as after "
                "a start in mid-message (further ones are only counted)",
                pending.key[0],
                pending.key[1],
            )

    def _forget(self, pending: Pending) -> None:
        if self._pending.pop(pending.key, None) is None:
            return
        self._pending_bytes -= pending.held_bytes
        offsets = self._partitions.get(pending.key[:2])
        if offsets is not None:
            offsets.unwatch(pending)

    def _close(self, key: Key, *, is_delivered: bool) -> None:
        self._closed.pop(key, None)
        self._closed[key] = is_delivered
        if len(self._closed) > CLOSED_LIMIT:
            self._closed.popitem(last=False)

    def _reopen(self, places: set[Place]) -> None:
        for key in [key for key in self._closed if key[:2] in places]:
            del self._closed[key]

    def _offsets(self, place: Place) -> PartitionOffsets:
        offsets = self._partitions.get(place)
        if offsets is None:
            offsets = self._partitions[place] = PartitionOffsets(self._limits.max_gap)
        return offsets


def _read(record: Record) -> SliceHeader:
    values = record.headers.all(HEADER)
    if len(values) != 1:
        raise ReassemblyError(f"a slice has one hw.slice header, not {len(values)}")
    try:
        return SliceHeader.unpack(values[0])
    except WireFormatError as error:
        raise ReassemblyError(str(error)) from error
