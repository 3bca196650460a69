"""Put messages together from their slices, partition by partition.

The rows come sorted by topic, partition and offset, so that a partition's rows stand together; they are new
slices, slices that earlier batches left waiting, and positions: how far the partition was read. What
is incomplete at the end of a partition goes on as it came, to wait for the next batch, or fails.
"""

from __future__ import annotations

import pickle
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
import pyarrow as pa

from headerware.core.errors import HeaderwareError, InterceptorError, ReassemblyError
from headerware.core.hooks import DROP
from headerware.core.record import Record
from headerware.core.runner import Outcome, flat
from headerware.spark_bridge.executors.opened import Opened, opened
from headerware.spark_bridge.executors.progress import Tally
from headerware.spark_bridge.executors.slices import NO_POSITION
from headerware.spark_bridge.executors.task import Task
from headerware.spark_bridge.frames.output import FLUSH_BYTES, Rows
from headerware.spark_bridge.frames.records import column, read_records
from headerware.spark_bridge.frames.schema import ARRIVED, IDENTITY, STATUS, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Batches = Iterable[pa.RecordBatch]
    Place = tuple[str, int | None]

Incomplete = Literal["carry", "fail", "leave"]
"""What becomes of messages that are incomplete at the end of a partition's rows."""

_FOREVER_MS: Final = 1 << 62
_AT_ONCE_MS: Final = 0
"""A time at which nothing has waited too long, for what was given up for other reasons."""
_CUT_OFF: Final = (
    "the frame ends before this message does; read on to its last slice, or leave such messages for a later "
    'read with incomplete="leave"'
)


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for one batch.

    Args:
        batch_ms: its time, the same in a replay; None where there are no batches.
        incomplete: what becomes of incomplete messages.
    """

    batch_ms: int | None = None
    incomplete: Incomplete = "fail"


def glue(work: bytes, accumulator: bytes, terms: bytes) -> Callable[[Batches], Iterator[Any]]:
    """Begin a task that puts messages together.

    Args:
        work: a pickled :class:`Work`.
        accumulator: for :class:`Tally`, pickled twice; or a pickled None.
        terms: pickled :class:`Terms`.
    """
    ready = opened(work)
    tally = Tally(ready.session, pickle.loads(accumulator))  # noqa: S301 - Spark's own channel
    return Gluing(ready, tally, pickle.loads(terms))  # noqa: S301 - as above


class Held:
    """The rows of one partition that wait, as they came; nothing else of their batches is kept."""

    def __init__(self) -> None:
        self._rows: dict[int, tuple[pa.RecordBatch, int]] = {}

    def keep(self, batch: pa.RecordBatch, offsets: list[int | None], waiting: set[int]) -> None:
        """Keep those rows of a batch that wait, and let go of those that wait no more."""
        self._rows = {offset: row for offset, row in self._rows.items() if offset in waiting}
        new = [index for index, offset in enumerate(offsets) if offset in waiting]
        taken = batch.take(pa.array(new, pa.int32()))
        for row, index in enumerate(new):
            offset = offsets[index]
            if offset is not None:
                self._rows[offset] = (taken, row)

    def take(self, offsets: Iterable[int]) -> list[pa.RecordBatch]:
        """Return rows by their offsets, and forget them."""
        found = [self._rows.pop(offset) for offset in sorted(offsets) if offset in self._rows]
        return [batch.slice(row, 1) for batch, row in found]

    def clear(self) -> None:
        """Forget all."""
        self._rows.clear()


class Gluing(Task):
    """One task's partitions, one after the other."""

    def __init__(self, ready: Opened, tally: Tally, terms: Terms) -> None:
        super().__init__(ready, tally, ("key", "value", "headers", "topic", "timestamp"), ready.work.typed)
        self._terms = terms
        self._held = Held()
        self._place: Place | None = None

    def _mapped(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        begin = 0
        places = zip(column(batch, "topic"), column(batch, "partition"), strict=True)
        for place, run in groupby(places):
            length = len(list(run))
            if place != self._place:
                yield from self._ended()
                self._place = place
            yield from self._feed(batch.slice(begin, length))
            begin += length

    def _feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        records = read_records(batch)
        rows = Rows(batch, self._schema)
        here: dict[int | None, int] = {}
        offsets = [record.offset for record in records]
        states = zip(records, column(batch, STATUS), column(batch, ARRIVED), strict=False)
        for index, (record, status, arrived_ms) in enumerate(states):
            if status == Status.POSITION:
                offsets[index] = None
                self._session.reached(record.topic, record.partition or 0, record.offset or 0)
            else:
                here[record.offset] = index
                self._ready.clock.ms = arrived_ms if arrived_ms is not None else self._terms.batch_ms
                try:
                    self._take(rows, index, record)
                except HeaderwareError as error:
                    self._refuse(rows, index, record, error)
                    yield from self._fail_siblings(rows, here, records, error)
            # While the rows are at hand; by the clock nothing expires before the partition's last row.
            for given_up in self._session.poll(_AT_ONCE_MS):
                yield from self._fail_siblings(rows, here, records, given_up)
            if rows.size_bytes > FLUSH_BYTES:
                yield self._flushed(rows, records)
        if len(rows):
            yield self._flushed(rows, records)
        self._held.keep(batch, offsets, self._waiting())

    def _take(self, rows: Rows, index: int, record: Record) -> None:
        if record.partition is None or record.offset is None:
            raise InterceptorError(NO_POSITION)
        identities = self._ready.identities
        identities.clear()  # what was noted of a message that a later step refused is nobody else's
        outcome = self._session.consume_outcome(record)
        if outcome is DROP:
            return
        # All of it or nothing, as everywhere.
        for each in list(flat(outcome)):
            rows.add(index, each)
            for identity in identities.values():
                rows.mark({IDENTITY: identity})

    def _fail_siblings(
        self, rows: Rows, here: dict[int | None, int], records: list[Record], error: Outcome
    ) -> Iterator[pa.RecordBatch]:
        """Let the slices that were given up with another fail for the same reason."""
        if not isinstance(error, ReassemblyError):
            return
        offsets = error.offsets
        for offset in offsets:
            if offset in here:
                self._refuse(rows, here[offset], records[here[offset]], error)
        yield from self._fail_held(offsets, error)

    def _fail_held(self, offsets: Iterable[int], error: HeaderwareError) -> Iterator[pa.RecordBatch]:
        for batch in self._held.take(offsets):
            (record,) = read_records(batch)
            rows = Rows(batch, self._schema)
            self._refuse(rows, 0, record, error)
            yield self._flushed(rows, [record])

    def _ended(self) -> Iterator[pa.RecordBatch]:
        """End a partition: give up what has waited too long, and let the rest wait or fail."""
        if self._place is None:
            return
        terms = self._terms
        self._ready.clock.ms = terms.batch_ms
        for error in self._session.poll(_AT_ONCE_MS if terms.batch_ms is None else terms.batch_ms):
            if isinstance(error, ReassemblyError):
                yield from self._fail_held(error.offsets, error)
        if terms.incomplete == "carry":
            yield from self._carried()
        elif terms.incomplete == "fail":
            for error in self._session.poll(_FOREVER_MS):
                if isinstance(error, ReassemblyError):
                    yield from self._fail_held(error.offsets, _cut_off(error))
        self._forget()

    def _carried(self) -> Iterator[pa.RecordBatch]:
        for batch in self._held.take(self._waiting()):
            (record,) = read_records(batch)
            rows = Rows(batch, self._schema)
            rows.keep(0, self._typed.without_objects(record))
            arrived_ms = next(iter(column(batch, ARRIVED)))
            arrived_ms = self._terms.batch_ms if arrived_ms is None else arrived_ms
            rows.mark({STATUS: Status.SLICE, ARRIVED: arrived_ms, **self._typed.raw(record)})
            yield self._flushed(rows, [record])

    def _waiting(self) -> set[int]:
        """Return the offsets that wait; of this partition only, for the session forgets the others."""
        return {offset for offsets in self._session.waiting_offsets().values() for offset in offsets}

    def _forget(self) -> None:
        """Drop what the session keeps of a partition, for the next task may have it again."""
        if self._place is not None:
            self._session.revoke([self._place])  # type: ignore[list-item]  # a place without a partition is never kept
        self._place = None
        self._held.clear()


def _cut_off(error: ReassemblyError) -> ReassemblyError:
    """Say of an incomplete message what it is: one that the frame ends before."""
    return ReassemblyError(
        _CUT_OFF, step=error.step, topic=error.topic, partition=error.partition, offset=error.offset
    )
