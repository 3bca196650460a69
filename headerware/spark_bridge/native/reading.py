"""Read objects in a task of Spark: the engine's reader on its own thread, and rows made of its records."""

from __future__ import annotations

import gc
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from headerware.core.batch import Batch as RecordBatch
from headerware.core.errors import HeaderwareError, HeldBackError, SourceError, described
from headerware.core.hooks import DROP, FanOut
from headerware.core.record import Record
from headerware.core.stop_flag import StopFlag
from headerware.sources.engine.batches import BatchQueue
from headerware.sources.engine.decision import Decision, offset_key
from headerware.sources.engine.records import refused
from headerware.sources.engine.statistics import Statistics
from headerware.sources.engine.worker import ObjectReader
from headerware.spark_bridge.executors.open_chain import open_chain
from headerware.spark_bridge.frames.records import gc_paused, header_column
from headerware.spark_bridge.native.manifests import end_bytes, end_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import NamedTuple

    from headerware.sources.config import SourceConfig
    from headerware.sources.engine.batches import Batch
    from headerware.sources.extractor import Split
    from headerware.sources.source import NativeItem
    from headerware.spark_bridge.native.definition import SourceDefinition
    from headerware.spark_bridge.native.manifests import ManifestFolder
else:
    from typing import NamedTuple

_FLUSH_ROWS: Final = 10_000
_FLUSH_BYTES: Final = 16 << 20
_STOP_S: Final = 5.0
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")


class Part(NamedTuple):
    """An object to read, or a part of one."""

    item: NativeItem
    decision: Decision
    split: Split | None = None
    end: str | None = None
    """The file that says how far a growing object was read; None for other objects."""


class SourcePartition(InputPartition):
    """The parts that one task reads, in this order."""

    def __init__(self, parts: list[Part]) -> None:
        super().__init__(None)
        self.parts: Final = parts


def rows(
    definition: SourceDefinition, parts: list[Part], folder: ManifestFolder | None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some parts, in batches of Arrow.

    Raises:
        SourceError: a record or an object is bad, and the configuration says to stop.
    """
    config = definition.config()
    serializer = None if definition.serializer is None else open_chain(definition.serializer).session
    task = _Task(config, serializer, parts, folder)
    try:
        with gc_paused():
            yield from task.batches()
    finally:
        task.stop()


class _Task:
    """Read the parts of one task."""

    def __init__(
        self, config: SourceConfig, serializer: Any, parts: list[Part], folder: ManifestFolder | None
    ) -> None:
        self._config: Final = config
        self._serializer: Final = serializer
        self._parts: Final = parts
        self._folder: Final = folder
        self._stopping: Final = StopFlag()
        self._queue: Final = BatchQueue(config)
        self._thread: Final = Thread(target=self._read, name=f"headerware-source-{config.name}", daemon=True)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read, and yield rows."""
        config = self._config
        self._thread.start()
        records: list[Record] = []
        size_bytes, at = 0, 0
        while not self._queue.is_drained:
            for batch in self._queue.take(config.poll_records, config.poll_bytes, config.poll_wait_s):
                records += self._serialized(batch)
                records += batch.dead_letters
                size_bytes += batch.size_bytes
                if len(records) >= _FLUSH_ROWS or size_bytes >= _FLUSH_BYTES:
                    yield arrow_batch(records)
                    records, size_bytes = [], 0
                    gc.collect(1)  # what a source or a transformer leaves in cycles; records are gone by now
                if batch.is_last:
                    part, at = self._parts[at], at + 1
                    if part.end is not None:
                        self._say_end(part.end, batch)
        if records:
            yield arrow_batch(records)

    def stop(self) -> None:
        """Stop reading, also if Spark wants no more rows."""
        self._stopping.set()
        self._queue.stop()
        self._thread.join(_STOP_S)

    def _read(self) -> None:
        config = self._config
        error: BaseException | None = None
        try:
            with config.new_transformers() as transformers:
                retried = (OSError, *config.source.retried)
                reader = ObjectReader(
                    config,
                    transformers,
                    self._queue,
                    Statistics(),
                    self._stopping,
                    retried,
                    lists_again=False,
                )
                for part in self._parts:
                    key = offset_key(config, part.item.context.key)
                    reader.read(part.item, key, part.decision, part.split, self._known_end(part))
        except BaseException as raised:  # noqa: BLE001 - the consumer of the queue raises it
            error = None if self._stopping.is_set() else raised
        self._queue.end(error)

    def _known_end(self, part: Part) -> int | None:
        """Return the last record that an earlier attempt of this batch has read."""
        if part.end is None or self._folder is None:
            return None
        content = self._folder.read(part.end)
        return None if content is None else end_of(content).record_number

    def _say_end(self, name: str, batch: Batch) -> None:
        """Store how far a growing object was read; the first attempt that stores it decides for all."""
        if self._folder is None:
            return
        # Complete even if it was given up: else each batch would have it again.
        entry = batch.entry.replace(complete=True)
        first = end_of(self._folder.write_once(name, end_bytes(batch.key, entry)))
        if first.record_number != batch.entry.record_number:
            raise SourceError(
                f"another attempt has read object {self._config.key_text(batch.native_key)!r} to record "
                f"{first.record_number}, this one to {batch.entry.record_number}; it is read again"
            )

    def _serialized(self, batch: Batch) -> Sequence[Record]:
        """Return the records of a batch with bytes as keys and values.

        Raises:
            SourceError: a record cannot be serialized, and the configuration says to stop.
            HeldBackError: a step cannot decide now, so that the task is tried again.
        """
        if self._serializer is None:
            return batch.records
        made: list[Record] = []
        outcomes = self._serializer.send_outcomes(batch.records)
        if isinstance(outcomes, RecordBatch):
            return outcomes
        for at, outcome in enumerate(outcomes):
            if outcome.__class__ is Record:
                made.append(outcome)
            elif isinstance(outcome, HeldBackError):
                raise outcome
            elif isinstance(outcome, HeaderwareError):
                made += refused(self._config, batch, at, outcome, described(outcome))
            elif isinstance(outcome, list | FanOut):
                made += outcome
            elif outcome is not DROP:
                made.append(outcome)
        return made


def arrow_batch(records: list[Record]) -> pa.RecordBatch:
    """Return the rows of records.

    Raises:
        SourceError: a key or a value is neither bytes nor text.
    """
    times = [None if record.timestamp_ms is None else record.timestamp_ms * 1_000 for record in records]
    columns = {
        "key": _bytes("key", [record.key for record in records]),
        "value": _bytes("value", [record.value for record in records]),
        "headers": header_column([record.headers for record in records]),
        "topic": pa.array([record.topic for record in records], pa.string()),
        "partition": pa.array([record.partition for record in records], pa.int32()),
        "timestamp": pa.array(times, pa.int64()).cast(_TIMESTAMP),
    }
    return pa.RecordBatch.from_pydict(columns)


def _bytes(part: str, values: list[Any]) -> pa.Array:
    try:
        return pa.array(values, pa.binary())
    except (pa.ArrowException, TypeError):
        found = next((value for value in values if not isinstance(value, bytes | str | None)), None)
        raise SourceError(
            f"the {part} is a {type(found).__name__}, and rows hold bytes; give a serde or a converter in "
            "[kafka], such as interceptors = 'serialize' with a value"
        ) from None
