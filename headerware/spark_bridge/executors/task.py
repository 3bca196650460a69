"""The base of all tasks that take rows through a chain: batches in and out, refused rows, counts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import chain
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from headerware.core.batch import Batch
from headerware.core.errors import HeaderwareError, InterceptorError
from headerware.core.runner import Outcome, flat
from headerware.spark_bridge.frames import output
from headerware.spark_bridge.frames.arrow_types import arrow_schema
from headerware.spark_bridge.frames.output import TypedRows
from headerware.spark_bridge.frames.records import PART_BYTES, column, gc_paused, topics_of
from headerware.spark_bridge.frames.schema import SPARSE_COLUMNS, STATUS, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa

    from headerware.core.record import Record
    from headerware.spark_bridge.executors.counts import Part, TaskCounter
    from headerware.spark_bridge.executors.open_chain import OpenChain
    from headerware.spark_bridge.frames.output import OutputRows

_COLUMNS: Final = {
    "topic": output.topics,
    "key": output.keys,
    "value": output.values,
    "headers": output.headers,
    "partition": output.partitions,
    "timestamp": output.timestamps,
    "verified": output.verified,
}
_HELD_BACK: Final = "a step holds the record back; in Spark only slice may, and only on consume"
_OBJECT_BYTES: Final = 256
"""The assumed size of an object."""
NO_POSITION: Final = "a slice without its partition and offset; keep these columns"


def _parts_of(records: Sequence[Record]) -> Iterator[Sequence[Record]]:
    """Return the records in parts, so that finished rows can leave before the next part begins."""
    begin = size_bytes = 0
    for at, record in enumerate(records):
        value = record.value
        size_bytes += len(value) if isinstance(value, bytes) else _OBJECT_BYTES
        if size_bytes >= PART_BYTES:
            yield records[begin : at + 1]
            begin, size_bytes = at + 1, 0
    if begin < len(records):
        yield records[begin:]


class Task(ABC):
    """Take one task's rows through a chain; a subclass maps a batch in ``_map_batch``.

    The ``computed`` columns are made from the records, other columns are copied; ``typed`` columns hold
    objects in the result.
    """

    def __init__(
        self,
        chain: OpenChain,
        counter: TaskCounter,
        computed: Iterable[str],
        typed: frozenset[str] = frozenset(),
    ) -> None:
        self._chain = chain
        self._session = chain.session
        self._counter = counter
        self._schema = arrow_schema(chain.spec.schema)
        self._says_status = STATUS in self._schema.names
        self._typed = TypedRows(typed, self._schema)
        further = ("verified",) if chain.spec.verified else ()
        self._computed = {name: _COLUMNS[name] for name in (*computed, *further)}

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        made = {*self._computed, *SPARSE_COLUMNS}
        batch = None
        try:
            for batch in batches:
                if batch.num_rows:
                    self._counter.begin(self._part(batch))
                self._schema = output.resolve_schema(self._schema, batch.schema, made)
                with gc_paused():
                    yield from self._map_batch(batch)
            yield from self._finish()
        finally:
            self._release()
            self._counter.report(**self._chain.observed())
        if self._counter.row is not None and batch is not None:
            yield output.counts_row(self._schema, self._counter.row)

    def _part(self, batch: pa.RecordBatch) -> Part | None:
        """Return the identity of these rows: the first row's position, or None if it has none."""
        names = ("topic", "partition", "offset", "value")
        topic, partition, offset, value = (next(iter(column(batch.slice(0, 1), name))) for name in names)
        if partition is None or offset is None:
            return None
        seed = (
            crc32(value) if isinstance(value, bytes) else None
        )  # tells rows apart that were made of one record
        return type(self).__name__, topic, partition, offset, seed

    def _outcomes(
        self, go: Callable[[Sequence[Record]], Sequence[Outcome]], records: Sequence[Record]
    ) -> Iterable[Outcome]:
        """Return the outcomes of a batch, or of records part by part."""
        return go(records) if isinstance(records, Batch) else chain.from_iterable(map(go, _parts_of(records)))

    @abstractmethod
    def _map_batch(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Map one batch."""

    def _finish(self) -> Iterable[pa.RecordBatch]:
        """Return the batches that follow the last one."""
        return ()

    def _release(self) -> None:  # noqa: B027 - not every task keeps something
        """Drop what the chain keeps of this task, also after an early end."""

    def _refuse(self, rows: OutputRows, index: int, original: Record, error: HeaderwareError) -> None:
        """Add a row as it came, with its failure; raise if failures fail the job."""
        failure = self._failure(error, original)
        rows.keep(index, self._typed.without_objects(original))
        rows.mark({"failure": failure})
        if self._says_status:
            rows.mark({STATUS: Status.FAILED})

    def _expanded(self, rows: OutputRows, index: int, original: Record, outcome: Outcome) -> list[Record]:
        """Return the records of an outcome that is not just one, or refuse the row and return none.

        A message is passed on completely or not at all: an error at its last slice discards the first ones.
        """
        try:
            found = list(flat(outcome))
            if not found:
                raise InterceptorError(_HELD_BACK)
        except HeaderwareError as error:
            self._refuse(rows, index, original, error)
            return []
        return found

    def _failure(self, error: HeaderwareError, original: Record) -> dict[str, Any]:
        self._counter.counts["refused"] += 1
        return self._chain.refused(error, original)

    def _flush(self, rows: OutputRows, originals: Sequence[Record]) -> pa.RecordBatch:
        batch = self._typed.batch(rows, self._computed, originals, self._failure)
        self._counter.count_out(rows)
        if self._chain.observes:
            given = rows.going()
            self._chain.give(given)
            self._counter.count_topics(topics_of(given), "given")
        rows.clear()
        return batch
