"""Decode streams with Spark's own state: the slices of one message may come in different micro-batches.

Three stages follow one another. :func:`decode_to_ipc` decodes the rows that stand alone, where they were
read, and writes them as Arrow IPC streams, because the operator knows only pandas and no value of a row may
be converted. A slice is passed on unchanged, in a stream of its own. :class:`ReassemblyProcessor` passes
finished streams on and puts slices together: the slices that wait are in the state of their topic and
partition, by offset, with the time of the batch that brought them. :func:`ipc_to_rows` turns the streams into
columns again.

A slice's stream waits in the checkpoint with its schema. Later versions of this code must be able to read it,
even if the frame has other columns by then.

Spark fixes a batch's time with its offsets and versions the state with the batch, so a replay has the same
slices, the same clock and the same outcome. A worker process keeps none of them.
"""

from __future__ import annotations

import pickle
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal

import pandas as pd
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from headerware.core.errors import ConfigError, MissingPartError
from headerware.core.hooks import Place
from headerware.core.order import place_of
from headerware.core.record import Record
from headerware.spark_bridge.chain_source import ChainLike, Failures, chain_source
from headerware.spark_bridge.decoding import DecodePlan
from headerware.spark_bridge.executors.counts import TaskCounter
from headerware.spark_bridge.executors.decoding import DecodeTask
from headerware.spark_bridge.executors.open_chain import open_chain
from headerware.spark_bridge.executors.reassembly import ReassembleTask, ReassemblyOptions
from headerware.spark_bridge.executors.shipping import shipped, spare_next_task
from headerware.spark_bridge.frames.arrow_types import arrow_schema
from headerware.spark_bridge.frames.column_limits import MAX_RECORDS_OPTION
from headerware.spark_bridge.frames.output import FLUSH_BYTES, position_rows
from headerware.spark_bridge.frames.records import column
from headerware.spark_bridge.frames.schema import ARRIVED, RAW, STATUS, Status, with_status
from headerware.spark_bridge.origin import Origin, cluster_of, warn_of_other_topics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StatefulProcessorHandle
    from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, MapState, TimerValues
    from pyspark.sql.types import DataType

    from headerware.core.chain import Chain

    Batches = Iterable[pa.RecordBatch]
    KeyedRow = tuple[str, int, int, int, bytes | None]


_STAGES: Final = "headerware.spark_bridge.stateful:"
_PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
# The operator's batches are bounded by records alone: this many bytes of finished rows at most.
_BATCH_BYTES: Final = 256 << 20
_STREAM_BYTES: Final = (16 << 10, 1 << 20)
_NOT_STREAMING: Final = (
    "expected a frame of readStream, found one of read; use decode(), which needs no state"
)
_NO_SLICE: Final = (
    "there is no 'slice' step, so no row waits for others; use decode(). If slices wait in a checkpoint, "
    "keep the step until these slices are reassembled"
)
_DEDUP: Final = (
    "'dedup' needs the identities of all records, which this function does not keep; use foreach_batch(), "
    "whose ledger keeps them, or remove the step and use Spark's "
    "dropDuplicatesWithinWatermark() on a column of your own"
)
_NO_PROTOBUF: Final = (
    "protobuf is missing here, and Spark's transformWithStateInPandas needs it on the driver and on each "
    "executor: pip install 'protobuf>=5.28.3'"
)
_NO_STATE: Final = (
    "this pyspark's client of Spark Connect cannot send functions with state; use foreach_batch(), whose "
    "ledger keeps slices"
)
_IPC_ROWS: Final = StructType([StructField("rows", BinaryType())])
"""What the operator returns: finished rows."""
_KEYED_IPC_ROWS: Final = StructType([
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("status", IntegerType()),
    StructField("rows", BinaryType()),
])  # fmt: skip
"""What the operator takes: streams of finished rows, streams of one slice, and positions without rows."""
_OFFSET: Final = StructType([StructField("offset", LongType())])
_KEYED_ARROW: Final = pa.schema([
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("status", pa.int32()),
    ("rows", pa.binary()),
])  # fmt: skip
_STATUS_COLUMNS: Final = frozenset({STATUS, ARRIVED, RAW})


def decode_stateful(
    frame: DataFrame,
    chain: ChainLike,
    *,
    value: DataType | str | None = None,
    key: DataType | str | None = None,
    verified: bool = False,
    failures: Failures = "fail",
    job: str | None = None,
    cluster_id: str | None = None,
    dead_letter_topic: str = "{topic}.dead-letter",
    dead_letter_headers: Literal["connect", "spring", "headerware"] = "connect",
) -> DataFrame:
    """Decode a stream through a chain that reassembles messages, as :func:`decode` does for a batch frame.

    The slices of an incomplete message wait in the query's state, as they came on the wire. A message becomes
    one row, once, at the offset of its last slice, in the batch that brought that slice. Partitions never
    mix. The bounds of ``slice`` hold for each partition. A message that waits too long is given up: by
    offsets in a batch that has rows of its partition, by time also in a batch that has none. The rows of a
    batch come in no particular order.

    The state is keyed by topic and partition, so a stream may read one cluster only. The query's output mode
    is append. Spark 4.0 keeps making empty batches for such a query, so one with
    ``trigger(availableNow=True)`` never ends; set ``spark.sql.streaming.noDataMicroBatches.enabled`` to false
    for it, and messages expire in the next batch that has rows. All slices of a partition in a batch are in
    memory at once, and at most 2 GiB of them in ``spark.sql.execution.arrow.maxRecordsPerBatch`` records:
    read less at a time by ``maxOffsetsPerTrigger``, or set the number of records to 2,000 for slices of 900
    KB.

    Args:
        frame: a frame of ``readStream.format("kafka")`` with ``includeHeaders``.
        chain: a :class:`Chain`, a flat configuration, or the path of a TOML file. The chain may
            change when the query is started again: waiting slices then go through the new chain.
        value: the type of the column ``value``, if the chain deserializes it; see :func:`decode`.
        key: the type of the column ``key``, likewise.
        verified: whether to add a column ``verified``; see :func:`decode`.
        failures: what happens to a row that the chain refuses, and to each slice of a message that is given
            up: ``fail`` fails the query, ``route`` adds a column ``failure``: see :func:`split_failures`.
        job: the name of this job in trails; None takes Spark's application name.
        cluster_id: the id of the cluster that is read from, for signatures; None takes the id
            that :func:`kafka_source` asked for, and an empty text means that it is unknown.
        dead_letter_topic: the topic of dead letters; ``{topic}`` is the row's own.
        dead_letter_headers: the names of the headers with the reason: Connect's, Spring's or ours.

    Raises:
        ConfigError: before anything runs: the frame is no stream; the chain has no ``slice``, or has
            ``dedup``; the state store is not RocksDB; a column is missing or of a wrong type; or the session
            is Spark Connect's, and its client has no state for Python functions.
        MissingPartError: the driver has no protobuf. An executor without protobuf fails its task and says so.
    """
    source, loaded = chain_source(chain, "decode")
    plan = DecodePlan(frame, source, loaded, value=value, key=key, verified=verified, failures=failures)
    _require_state(frame, plan)
    warn_of_other_topics(loaded, Origin.of(frame).topics)
    spec = plan.task_spec(
        job=job,
        cluster_id=cluster_of(frame, loaded, cluster_id),
        dead_letter_topic=dead_letter_topic,
        dead_letter_headers=dead_letter_headers,
    ).replace(schema=with_status(plan.schema, typed=bool(plan.typed)).json())
    spark = frame.sparkSession
    streams = frame.mapInArrow(
        shipped(f"{_STAGES}decode_to_ipc", spec, _stream_bytes(spark)), _KEYED_IPC_ROWS
    )
    task = ReassemblyProcessor(_pickled(spec), _expire_ms(loaded))
    by_partition = streams.groupBy("topic", "partition")
    if not hasattr(by_partition, "transformWithStateInPandas"):
        raise ConfigError(_NO_STATE)
    reassembled = by_partition.transformWithStateInPandas(task, _IPC_ROWS, "Append", "ProcessingTime")
    return reassembled.mapInArrow(shipped(f"{_STAGES}ipc_to_rows"), plan.schema)


def _require_state(frame: DataFrame, plan: DecodePlan) -> None:
    if not frame.isStreaming:
        raise ConfigError(_NOT_STREAMING, path="frame")
    if plan.dedups:
        raise ConfigError(_DEDUP, path="chain")
    if not plan.reassembles:
        raise ConfigError(_NO_SLICE, path="chain")
    provider = frame.sparkSession.conf.get(_PROVIDER) or ""
    if "RocksDB" not in provider:  # others have their own, of the same name in another package
        raise ConfigError(
            f"expected a RocksDB state store, found {provider}; set it before the query starts: "
            f'spark.conf.set("{_PROVIDER}", "{_ROCKSDB}")',
            path=_PROVIDER,
        )
    try:
        import_module("google.protobuf")
    except ImportError as error:
        raise MissingPartError(_NO_PROTOBUF) from error


def _stream_bytes(spark: SparkSession) -> int:
    """Return the size of a stream of finished rows that keeps the operator's batches in bounds."""
    least, most = _STREAM_BYTES
    records = int(spark.conf.get(MAX_RECORDS_OPTION) or 0)
    return min(max(_BATCH_BYTES // records, least), most) if records > 0 else least


def _expire_ms(chain: Chain) -> int | None:
    """Return how long messages wait, if the step that reassembles them says it, as ``slice`` does."""
    waits = [getattr(step, "expire_ms", None) for step in chain if place_of(step) is Place.SLICE]
    return min((wait for wait in waits if wait is not None), default=None)


def _pickled(spec: Any) -> bytes:
    pickled: bytes = cloudpickle.dumps(spec)  # type: ignore[no-untyped-call]  # as pyspark has it
    return pickled


def decode_to_ipc(spec: bytes, limit_bytes: bytes) -> Callable[[Batches], Iterator[Any]]:
    """Begin a task that decodes rows and writes them as streams of about ``limit_bytes``, a pickled int."""
    _require_protobuf()
    chain = open_chain(spec)
    task = DecodeTask(chain, TaskCounter(chain.session, None), reassembles=True)
    limit: int = pickle.loads(limit_bytes)  # noqa: S301 - Spark's own channel
    return lambda batches: (_keyed(batch, limit) for batch in task(batches))


def ipc_to_rows() -> Callable[[Batches], Iterator[Any]]:
    """Begin a task that turns streams into columns again."""
    return _rows_of_streams


class ReassemblyProcessor(StatefulProcessor):
    """Spark's operator: called with the streams of each topic and partition, and when a message expires.

    ``expire_ms`` is how long an incomplete message waits for its next slice; if it is None, only a later
    batch with rows of the partition gives the message up.
    """

    def __init__(self, spec: bytes, expire_ms: int | None) -> None:
        self._spec: Final = spec
        self._expire_ms: Final = expire_ms

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Get the state. Spark calls this on the driver too, so the chain is not opened here."""
        self._handle = handle
        self._waiting: MapState = handle.getMapState("waiting", _OFFSET, _IPC_ROWS)

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: TimerValues,  # noqa: N803 - Spark's name
    ) -> Iterator[pd.DataFrame]:
        """Pass finished streams on, and reassemble slices with those that wait."""
        arrived: dict[int, bytes] = {}
        reached = -1
        for frame in rows:
            finished = frame.loc[frame["status"] == Status.DONE, ["rows"]]
            if len(finished):
                yield finished.reset_index(drop=True)
            slices = frame.loc[frame["status"] == Status.SLICE]
            # All are collected first, because the rows of a group come in no order.
            arrived.update(zip(slices["offset"].tolist(), slices["rows"], strict=True))
            positions = frame.loc[frame["status"] == Status.POSITION, "offset"].tolist()
            reached = max(reached, *positions)
        now_ms = timerValues.getCurrentProcessingTimeInMs()
        yield from self._reassembled(key, arrived, reached, now_ms)

    def handleExpiredTimer(  # noqa: N802 - Spark's name
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803 - Spark's name
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803 - Spark's name
    ) -> Iterator[pd.DataFrame]:
        """Give up messages that expired in a partition without new rows."""
        fired_ms = expiredTimerInfo.getExpiryTimeInMs()
        yield from self._reassembled(key, {}, -1, timerValues.getCurrentProcessingTimeInMs(), fired_ms)

    def close(self) -> None:
        """End the task; the chain stays open for the tasks that follow."""
        spare_next_task()

    def _reassembled(
        self, key: Any, arrived: dict[int, bytes], reached: int, now_ms: int, fired_ms: int = -1
    ) -> Iterator[pd.DataFrame]:
        waiting = {offset: bytes(rows) for (offset,), (rows,) in self._waiting.iterator()}
        if not waiting and not arrived:
            return
        chain = open_chain(self._spec)
        options = ReassemblyOptions(batch_ms=now_ms, incomplete="carry")
        task = ReassembleTask(chain, TaskCounter(chain.session, None), options)
        position = Record(str(key[0]), partition=int(key[1]), offset=reached)
        before = waiting.keys() - arrived.keys()  # a topic that was created again starts at 0
        gone = set(waiting)
        due = []
        for batch in task(_in_order({**waiting, **arrived}, position, chain.spec.schema)):
            offsets = _waiting_offsets(batch)
            for row, offset in offsets.items():
                gone.discard(offset)
                due.append(next(iter(column(batch.slice(row, 1), ARRIVED))))
                if offset not in before:
                    self._waiting.updateValue((offset,), (_to_ipc(batch.slice(row, 1)),))
            finished = _finished(batch, [row for row in range(batch.num_rows) if row not in offsets])
            if finished.num_rows:
                yield pd.DataFrame({"rows": [_to_ipc(finished)]})
        for offset in gone:
            self._waiting.removeKey((offset,))
        self._set_timer(due, now_ms, fired_ms)

    def _set_timer(self, arrived_ms: list[int], now_ms: int, fired_ms: int) -> None:
        """Set one timer, for the slice that expires first, or none if no slice waits.

        It may fire early, if a later slice of the same message has come since; then the next timer is set.
        """
        if self._expire_ms is None:
            return
        due = [at for at in (arrived + self._expire_ms for arrived in arrived_ms) if at > now_ms]
        wanted = {min(due)} if due else set()
        found = set(self._handle.listTimers())
        for timer_ms in found - wanted - {fired_ms}:  # Spark deletes the timer that has fired
            self._handle.deleteTimer(timer_ms)
        for timer_ms in wanted - found:
            self._handle.registerTimer(timer_ms)


def _require_protobuf() -> None:
    try:
        import_module("google.protobuf")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("Spark's stateful operator needs it", name="protobuf") from error


def _keyed(batch: pa.RecordBatch, limit_bytes: int) -> pa.RecordBatch:
    """Write a batch of decoded rows as streams with their keys."""
    keyed: list[KeyedRow] = []
    finished: list[int] = []
    key_columns = [column(batch, name) for name in ("topic", "partition", "offset", STATUS)]
    for row, (topic, partition, offset, status) in enumerate(zip(*key_columns, strict=True)):
        if status not in {Status.SLICE, Status.POSITION}:
            finished.append(row)
            continue
        rows = _to_ipc(batch.slice(row, 1)) if status == Status.SLICE else None
        keyed.append((topic, partition, offset, status, rows))
    keyed += (_keyed_row(piece) for piece in _split(_finished(batch, finished), limit_bytes))
    columns = list(zip(*keyed, strict=True))
    arrays = [pa.array(values, field.type) for values, field in zip(columns, _KEYED_ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_KEYED_ARROW)


def _keyed_row(batch: pa.RecordBatch) -> KeyedRow:
    """Return a stream of finished rows. The operator only passes it on, so the key of any row will do."""
    (topic,) = column(batch.slice(0, 1), "topic")
    (partition,) = column(batch.slice(0, 1), "partition")
    return (topic or "", -1 if partition is None else partition, -1, int(Status.DONE), _to_ipc(batch))


def _finished(batch: pa.RecordBatch, rows: list[int]) -> pa.RecordBatch:
    """Return some rows of a batch, without the columns for statuses."""
    chosen = batch.select([name for name in batch.schema.names if name not in _STATUS_COLUMNS])
    return chosen if len(rows) == batch.num_rows else chosen.take(pa.array(rows, pa.int64()))


def _waiting_offsets(batch: pa.RecordBatch) -> dict[int, int]:
    """Return the offsets of the rows that must wait, by row."""
    states = zip(column(batch, STATUS), column(batch, "offset"), strict=True)
    return {row: offset for row, (status, offset) in enumerate(states) if status == Status.SLICE}


def _in_order(streams: dict[int, bytes], position: Record, schema: str) -> Iterator[pa.RecordBatch]:
    """Return slices by offset, then the position up to which their partition was read, if any."""
    yield from _merged((streams.pop(offset) for offset in sorted(streams)), FLUSH_BYTES)
    if position.offset is not None and position.offset >= 0:
        yield position_rows(arrow_schema(schema), [position], {STATUS: Status.POSITION})


def _rows_of_streams(batches: Batches) -> Iterator[pa.RecordBatch]:
    schema = None
    for batch in batches:
        for found in _merged((rows.as_buffer() for rows in batch.column("rows")), FLUSH_BYTES):
            # Spark writes a task's batches as one stream, whose schema is that of the first.
            schema = found.schema if schema is None else schema
            yield _cast(found, schema)


def _to_ipc(batch: pa.RecordBatch) -> bytes:
    """Write rows as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


def _from_ipc(stream: bytes | pa.Buffer) -> Iterator[pa.RecordBatch]:
    """Read the rows of an Arrow IPC stream."""
    with pa.ipc.open_stream(stream) as reader:
        yield from reader


def _merged(streams: Iterable[bytes | pa.Buffer], limit_bytes: int) -> Iterator[pa.RecordBatch]:
    """Return the rows of streams in batches of about ``limit_bytes``; a new schema begins a new batch."""
    group: list[pa.RecordBatch] = []
    size_bytes = 0
    for batch in chain.from_iterable(map(_from_ipc, streams)):
        if group and (size_bytes > limit_bytes or not batch.schema.equals(group[0].schema)):
            yield from _combined(group)
            group, size_bytes = [], 0
        group.append(batch)
        size_bytes += batch.nbytes
    if group:
        yield from _combined(group)


def _combined(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    joint: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joint


def _split(batch: pa.RecordBatch, limit_bytes: int) -> Iterator[pa.RecordBatch]:
    """Split a batch into batches of about ``limit_bytes``, between rows."""
    rows = batch.num_rows
    step = max(1, rows * limit_bytes // max(1, batch.nbytes))
    for begin in range(0, rows, step):
        yield batch.slice(begin, step)


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Cast columns to the exact types of a schema, such as lists whose items may be null."""
    if batch.schema.equals(schema):
        return batch
    columns = [batch.column(field.name).cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
