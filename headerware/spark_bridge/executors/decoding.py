"""Decode rows that stand alone; slices pass unchanged, because other tasks may have other slices."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, Final

from headerware.core.batch import Batch, header_names
from headerware.core.errors import InterceptorError
from headerware.core.hooks import DROP
from headerware.core.record import Record
from headerware.spark_bridge.executors.counts import TaskCounter
from headerware.spark_bridge.executors.open_chain import OpenChain, open_chain
from headerware.spark_bridge.executors.task import NO_POSITION, Task
from headerware.spark_bridge.frames import output
from headerware.spark_bridge.frames.output import FLUSH_BYTES, OutputRows
from headerware.spark_bridge.frames.records import (
    last_offsets,
    payload_bytes,
    read_parts,
    read_records,
    topics_of,
)
from headerware.spark_bridge.frames.schema import IDENTITY, STATUS, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import Column

    from headerware.core.runner import Outcome

    Batches = Iterable[pa.RecordBatch]

_SLICE_HEADERS: Final = frozenset({"hw.slice", "~E", "hw.ids"})


def decode_rows(spec: bytes, accumulator: bytes, reassembles: bytes) -> Callable[[Batches], Iterator[Any]]:
    """Begin a task that decodes rows; all arguments are pickled, and the accumulator twice."""
    chain = open_chain(spec)
    counter = TaskCounter(chain.session, pickle.loads(accumulator))  # noqa: S301 - Spark's own channel
    return DecodeTask(chain, counter, reassembles=pickle.loads(reassembles))  # noqa: S301 - as above


class DecodeTask(Task):
    """Decode one task's rows; if slices are reassembled later, the schema has the columns for statuses."""

    def __init__(self, chain: OpenChain, counter: TaskCounter, *, reassembles: bool) -> None:
        super().__init__(chain, counter, ("key", "value", "headers", "topic"), chain.spec.typed)
        self._identities = chain.identities
        self._reassembles = reassembles
        self._positions: dict[tuple[str, int], int] = {}

    def _map_batch(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for part, records in read_parts(batch, batch, read_records):
            yield from self._map_part(part, records)

    def _map_part(self, batch: pa.RecordBatch, records: Sequence[Record]) -> Iterator[pa.RecordBatch]:
        rows = OutputRows(batch, self._schema)
        self._count_in(batch, records)
        alone: Sequence[int] = range(len(records))
        if self._reassembles:
            alone = self._without_slices(rows, records)
        given = records if len(alone) == len(records) else [records[at] for at in alone]
        outcomes = self._outcomes(self._session.consume_outcomes, given)
        if isinstance(outcomes, Batch) and not self._identities and rows.take_all(outcomes):
            yield self._flush(rows, records)
            return
        results = zip(alone, outcomes, strict=True)
        while (stopped := rows.take(results, self._identities)) is not None:
            index, outcome = stopped
            if outcome.__class__ is not Record:
                self._take(rows, index, records[index], outcome)
            elif self._identities:
                self._identify(rows, records[index])
            if rows.size_bytes > FLUSH_BYTES:
                yield self._flush(rows, records)
        if len(rows):
            yield self._flush(rows, records)
        self._identities.clear()

    def _take(self, rows: OutputRows, index: int, record: Record, outcome: Outcome) -> None:
        """Process an outcome that is not one record."""
        if outcome is DROP:
            return
        found = self._expanded(rows, index, record, outcome)
        if not found:
            return
        identity = self._identities.pop((record.topic, record.partition, record.offset), None)
        for each in found:
            rows.add(index, each)
            if identity is not None:
                rows.mark({IDENTITY: identity})

    def _identify(self, rows: OutputRows, record: Record) -> None:
        identity = self._identities.pop((record.topic, record.partition, record.offset), None)
        rows.mark({IDENTITY: identity})

    def _without_slices(self, rows: OutputRows, records: Sequence[Record]) -> Sequence[int]:
        """Return the indices of rows that stand alone; keep slices as they came."""
        if isinstance(records, Batch) and header_names(records.headers).isdisjoint(_SLICE_HEADERS):
            return range(len(records))
        alone = []
        for index, record in enumerate(records):
            if not _may_be_slice(record.headers):
                alone.append(index)
            elif record.partition is None or record.offset is None:
                self._refuse(rows, index, record, InterceptorError(NO_POSITION))
            else:
                rows.keep(index, self._typed.without_objects(record))
                rows.mark({STATUS: Status.SLICE, **self._typed.raw(record)})
        return alone

    def _count_in(self, batch: pa.RecordBatch, records: Sequence[Record]) -> None:
        counter = self._counter
        counter.counts["records_in"] += batch.num_rows
        counter.counts["bytes_in"] += payload_bytes(batch)
        if self._chain.counts_topics:
            counter.count_topics(topics_of(records))
        if counter.wants_traces:
            counter.note_traces(records)
        if self._reassembles:
            for topic_partition, offset in last_offsets(batch):
                self._positions[topic_partition] = max(offset, self._positions.get(topic_partition, -1))

    def _finish(self) -> Iterator[pa.RecordBatch]:
        """Report how far each partition was read, so that messages can expire."""
        if not self._says_status:
            return
        positions = [
            Record(topic, partition=partition, offset=offset)
            for (topic, partition), offset in self._positions.items()
        ]
        if positions:
            yield output.position_rows(self._schema, positions, {STATUS: Status.POSITION})


def _may_be_slice(headers: Iterable[tuple[str, bytes | None]]) -> bool:
    """Return whether a row may be a slice.

    A packed block of header ids may hold the slice's header, and only decoding the block would tell. So rows
    with such a block are treated like slices: the chain decodes the block later. For other rows this is
    harmless.
    """
    return any(name in _SLICE_HEADERS for name, _ in headers)


def slice_condition() -> Column:
    """Return :func:`_may_be_slice` in SQL, for the column ``headers``; never null."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - Spark's custom; executors need no SQL

    found = F.exists("headers", lambda header: header["key"].isin(sorted(_SLICE_HEADERS)))
    return F.coalesce(found, F.lit(False))  # noqa: FBT003 - Spark's signature
