"""The frame of every task that takes rows through a chain: batches in, batches out, refused rows, counts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final

from headerware.spark_bridge.frames import output
from headerware.spark_bridge.frames.output import TypedRows, arrow_schema
from headerware.spark_bridge.frames.records import collector_paused
from headerware.spark_bridge.frames.schema import STATUS, WITH_STATUS, Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from headerware.core.errors import HeaderwareError
    from headerware.core.record import Record
    from headerware.spark_bridge.executors.counts import Tally
    from headerware.spark_bridge.executors.open_chain import Opened
    from headerware.spark_bridge.frames.output import Rows

_COLUMNS: Final = {
    "topic": output.topics,
    "key": output.keys,
    "value": output.values,
    "headers": output.headers,
    "partition": output.partitions,
    "timestamp": output.timestamps,
}
WAITING: Final = "a step holds the record back; in Spark only slice may, and only on consume"
NO_POSITION: Final = "a slice without its partition and offset; keep these columns"


class Task(ABC):
    """One task's rows; a subclass says in ``_mapped`` what becomes of a batch.

    Args:
        ready: the chain.
        tally: counts for the driver.
        computed: the columns that are made from the records; others are carried along.
        typed: the columns among key and value that hold objects when they go on.
    """

    def __init__(
        self, ready: Opened, tally: Tally, computed: Iterable[str], typed: frozenset[str] = frozenset()
    ) -> None:
        self._ready = ready
        self._session = ready.session
        self._tally = tally
        self._schema = arrow_schema(ready.work.schema)
        self._says_status = STATUS in self._schema.names
        self._typed = TypedRows(typed, self._schema)
        self._computed = {name: _COLUMNS[name] for name in computed}

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Map the task's batches."""
        made = {*self._computed, *WITH_STATUS}
        try:
            for batch in batches:
                self._schema = output.resolved(self._schema, batch.schema, made)
                with collector_paused():
                    yield from self._mapped(batch)
            yield from self._ended()
        finally:
            self._forget()
            self._tally.report()

    @abstractmethod
    def _mapped(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Map one batch."""

    def _ended(self) -> Iterable[pa.RecordBatch]:
        """Return what goes on after the last batch."""
        return ()

    def _forget(self) -> None:  # noqa: B027 - not every task keeps something
        """Drop what the chain keeps of this task, also if it was cut off."""

    def _refuse(self, rows: Rows, index: int, original: Record, error: HeaderwareError) -> None:
        """Let a row fail, as it came; raise if failures are to fail the job."""
        failure = self._failure(error, original)
        rows.keep(index, self._typed.without_objects(original))
        rows.mark({"failure": failure})
        if self._says_status:
            rows.mark({STATUS: Status.FAILED})

    def _failure(self, error: HeaderwareError, original: Record) -> dict[str, Any]:
        self._tally.counts["refused"] += 1
        return self._ready.refused(error, original)

    def _flushed(self, rows: Rows, originals: Sequence[Record]) -> pa.RecordBatch:
        batch = self._typed.batch(rows, self._computed, originals, self._failure)
        self._tally.count_out(rows)
        rows.clear()
        return batch
