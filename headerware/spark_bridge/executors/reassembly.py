"""Reassemble messages from their slices, partition by partition.

The rows come sorted by topic, partition and offset, so that the rows of a partition are together. They are
new slices, slices that earlier batches left waiting, and positions: how far the partition was read. At the
end of a partition the slices of incomplete messages go on as they came, to wait for the next batch, or fail.
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
from headerware.spark_bridge.executors.counts import TaskCounter
from headerware.spark_bridge.executors.open_chain import OpenChain, open_chain
from headerware.spark_bridge.executors.task import NO_POSITION, Task
from headerware.spark_bridge.frames.output import FLUSH_BYTES, OutputRows
from headerware.spark_bridge.frames.records import column, read_records
from headerware.spark_bridge.frames.schema import ARRIVED, IDENTITY, STATUS, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Batches = Iterable[pa.RecordBatch]
    TopicPartitionKey = tuple[str, int | None]


Incomplete = Literal["carry", "fail", "leave"]
"""The treatment of messages that are incomplete at the end of a partition's rows."""

_FOREVER_MS: Final = 1 << 62
_BEFORE_ALL_MS: Final = 0
"""A time at which no message has expired, to poll for messages that were given up for other reasons."""
_CUT_OFF: Final = (
    "the frame ends before this message does; read on to its last slice, or leave such messages for a later "
    'read with incomplete="leave"'
)


class ReassemblyOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to reassemble the messages of one batch, at its time in ms since the epoch, if it has one."""

    batch_ms: int | None = None
    incomplete: Incomplete = "fail"


def reassemble(spec: bytes, accumulator: bytes, options: bytes) -> Callable[[Batches], Iterator[Any]]:
    """Begin a task that reassembles messages; all arguments are pickled, and the accumulator twice."""
    chain = open_chain(spec)
    counter = TaskCounter(chain.session, pickle.loads(accumulator))  # noqa: S301 - Spark's own channel
    return ReassembleTask(chain, counter, pickle.loads(options))  # noqa: S301 - as above


class _WaitingRows:
    """The waiting rows of one partition, as they came; nothing else of their batches is kept."""

    def __init__(self) -> None:
        self._rows: dict[int, tuple[pa.RecordBatch, int]] = {}

    def keep(self, batch: pa.RecordBatch, offsets: list[int | None], waiting: set[int]) -> None:
        """Keep the rows of a batch that wait, and forget those that no longer wait."""
        self._rows = {offset: row for offset, row in self._rows.items() if offset in waiting}
        new = [index for index, offset in enumerate(offsets) if offset in waiting]
        taken = batch.take(pa.array(new, pa.int32()))
        for row, index in enumerate(new):
            offset = offsets[index]
            if offset is not None:
                self._rows[offset] = (taken, row)

    def take(self, offsets: Iterable[int]) -> list[pa.RecordBatch]:
        """Return the rows at some offsets, and forget them."""
        found = [self._rows.pop(offset) for offset in sorted(offsets) if offset in self._rows]
        return [batch.slice(row, 1) for batch, row in found]

    def clear(self) -> None:
        """Forget all."""
        self._rows.clear()


class ReassembleTask(Task):
    """Reassemble the messages of one task, partition after partition."""

    def __init__(self, chain: OpenChain, counter: TaskCounter, options: ReassemblyOptions) -> None:
        super().__init__(chain, counter, ("key", "value", "headers", "topic", "timestamp"), chain.spec.typed)
        self._options = options
        self._waiting_rows = _WaitingRows()
        self._topic_partition: TopicPartitionKey | None = None

    def _map_batch(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        begin = 0
        topic_partitions = zip(column(batch, "topic"), column(batch, "partition"), strict=True)
        for topic_partition, group in groupby(topic_partitions):
            length = len(list(group))
            if topic_partition != self._topic_partition:
                yield from self._finish()
                self._topic_partition = topic_partition
            yield from self._feed(batch.slice(begin, length))
            begin += length

    def _feed(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        records = read_records(batch)
        rows = OutputRows(batch, self._schema)
        index_by_offset: dict[int | None, int] = {}
        offsets = [record.offset for record in records]
        states = zip(records, column(batch, STATUS), column(batch, ARRIVED), strict=False)
        for index, (record, status, arrived_ms) in enumerate(states):
            if status == Status.POSITION:
                offsets[index] = None
                self._session.reached(record.topic, record.partition or 0, record.offset or 0)
            else:
                index_by_offset[record.offset] = index
                self._chain.clock.ms = arrived_ms if arrived_ms is not None else self._options.batch_ms
                try:
                    self._take(rows, index, record)
                except HeaderwareError as error:
                    self._refuse(rows, index, record, error)
                    yield from self._fail_siblings(rows, index_by_offset, records, error)
            # Poll now, while the rows are at hand; by time, messages expire only after the partition's last
            # row.
            for given_up in self._session.poll(_BEFORE_ALL_MS):
                yield from self._fail_siblings(rows, index_by_offset, records, given_up)
            if rows.size_bytes > FLUSH_BYTES:
                yield self._flush(rows, records)
        if len(rows):
            yield self._flush(rows, records)
        self._waiting_rows.keep(batch, offsets, self._waiting())

    def _take(self, rows: OutputRows, index: int, record: Record) -> None:
        if record.partition is None or record.offset is None:
            raise InterceptorError(NO_POSITION)
        identities = self._chain.identities
        identities.clear()  # of an earlier message that a later step refused
        outcome = self._session.consume_outcome(record)
        if outcome is DROP:
            return
        # A message is passed on completely or not at all.
        for each in list(flat(outcome)):
            rows.add(index, each)
            for identity in identities.values():
                rows.mark({IDENTITY: identity})

    def _fail_siblings(
        self, rows: OutputRows, index_by_offset: dict[int | None, int], records: list[Record], error: Outcome
    ) -> Iterator[pa.RecordBatch]:
        """Fail the slices that were given up with another, for the same reason."""
        if not isinstance(error, ReassemblyError):
            return
        offsets = error.offsets
        for offset in offsets:
            if offset in index_by_offset:
                self._refuse(rows, index_by_offset[offset], records[index_by_offset[offset]], error)
        yield from self._fail_waiting(offsets, error)

    def _fail_waiting(self, offsets: Iterable[int], error: HeaderwareError) -> Iterator[pa.RecordBatch]:
        for batch in self._waiting_rows.take(offsets):
            (record,) = read_records(batch)
            rows = OutputRows(batch, self._schema)
            self._refuse(rows, 0, record, error)
            yield self._flush(rows, [record])

    def _finish(self) -> Iterator[pa.RecordBatch]:
        """End a partition: give up expired messages, and let the others wait or fail."""
        if self._topic_partition is None:
            return
        options = self._options
        self._chain.clock.ms = options.batch_ms
        for error in self._session.poll(_BEFORE_ALL_MS if options.batch_ms is None else options.batch_ms):
            if isinstance(error, ReassemblyError):
                yield from self._fail_waiting(error.offsets, error)
        if options.incomplete == "carry":
            yield from self._keep_waiting()
        elif options.incomplete == "fail":
            for error in self._session.poll(_FOREVER_MS):
                if isinstance(error, ReassemblyError):
                    yield from self._fail_waiting(error.offsets, _cut_off(error))
        self._release()

    def _keep_waiting(self) -> Iterator[pa.RecordBatch]:
        for batch in self._waiting_rows.take(self._waiting()):
            (record,) = read_records(batch)
            rows = OutputRows(batch, self._schema)
            rows.keep(0, self._typed.without_objects(record))
            arrived_ms = next(iter(column(batch, ARRIVED)))
            arrived_ms = self._options.batch_ms if arrived_ms is None else arrived_ms
            rows.mark({STATUS: Status.SLICE, ARRIVED: arrived_ms, **self._typed.raw(record)})
            yield self._flush(rows, [record])

    def _waiting(self) -> set[int]:
        """Return the offsets that wait; only this partition's, since the session forgets the others."""
        return {offset for offsets in self._session.waiting_offsets().values() for offset in offsets}

    def _release(self) -> None:
        """Drop what the session keeps of the partition, since the next task may read it again."""
        if self._topic_partition is not None:
            self._session.revoke([self._topic_partition])  # type: ignore[list-item]  # always with a partition
        self._topic_partition = None
        self._waiting_rows.clear()


def _cut_off(error: ReassemblyError) -> ReassemblyError:
    """Return the error of a message that continues after the end of the frame."""
    return ReassemblyError(
        _CUT_OFF, step=error.step, topic=error.topic, partition=error.partition, offset=error.offset
    )
