"""Decode streams with Spark's own state: slices of one message may come in different micro-batches."""

from __future__ import annotations

import pickle
from importlib import import_module
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal

import pandas as pd
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
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
from headerware.spark_bridge.frames.output import FLUSH_BYTES, arrow_schema, position_rows
from headerware.spark_bridge.frames.records import column
from headerware.spark_bridge.frames.schema import ARRIVED, RAW, STATUS, Status, with_status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.stateful_processor import (
        ExpiredTimerInfo,
        MapState,
        StatefulProcessorHandle,
        TimerValues,
    )
    from pyspark.sql.types import DataType

    from headerware.core.chain import Chain

    Batches = Iterable[pa.RecordBatch]
    Row = tuple[str, int, int, int, bytes | None]


_STAGES: Final = "headerware.spark_bridge.stateful:"
_PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_RECORDS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"

# The operator's batches are bounded by records alone: this many bytes of finished rows at most.
_BATCH_BYTES: Final = 256 << 20
_PACK_BYTES: Final = (16 << 10, 1 << 20)

_NOT_STREAMING: Final = (
    "expected a frame of readStream, found one of read; use decode(), which needs no state"
)
_NO_SLICE: Final = (
    "there is no 'slice' step, so that no row waits for others; use decode(). Where slices wait in a "
    "checkpoint, the chain needs the step until they are through"
)
_DEDUP: Final = (
    "'dedup' needs a memory of all records, which this form does not keep; use foreach_batch(), whose ledger "
    "does, or leave it out and use Spark's dropDuplicatesWithinWatermark() on a column of your own"
)
_NO_PROTOBUF: Final = (
    "protobuf is missing here, and Spark's transformWithStateInPandas needs it on the driver and on each "
    "executor: pip install 'protobuf>=5.28.3'"
)


def decode_stateful(
    frame: DataFrame,
    chain: ChainLike,
    *,
    value: DataType | str | None = None,
    key: DataType | str | None = None,
    failures: Failures = "fail",
    job: str | None = None,
    cluster_id: str | None = None,
    dead_letter_topic: str = "{topic}.dead-letter",
    dead_letter_headers: Literal["connect", "spring"] = "connect",
) -> DataFrame:
    """Take a stream through a chain that puts messages together, as :func:`decode` takes a batch frame.

    Slices whose message is not whole yet wait in the query's state, as they came on the wire; a message is
    one row, once, at the place of its last slice, in the batch that brought that one. Partitions never mix.
    The bounds of ``slice`` hold for each partition. What waits too long is given up: by offsets in a batch
    that has rows of the partition, by time also in one that has none. The rows of a batch come in no order.

    The state is keyed by topic and partition, so a stream may read one cluster only. The query's output mode
    is append. Spark 4.0 goes on making empty batches for a query like this, also under
    ``trigger(availableNow=True)``, which so never ends; set
    ``spark.sql.streaming.noDataMicroBatches.enabled`` to false for it, and what waits expires in the next
    batch that has any rows. All slices of a partition in a batch are in memory at once, and at most 2 GiB of
    them in ``spark.sql.execution.arrow.maxRecordsPerBatch``: read less at a time by
    ``maxOffsetsPerTrigger``, or set that to 2,000 where slices have 900 KB.

    Args:
        frame: what ``readStream.format("kafka")`` gives with ``includeHeaders``.
        chain: a :class:`Chain`, a flat configuration, or the path of a TOML file. It may be another when the
            query is started again: slices that waited go through the new one.
        value: the type of the column ``value`` where the chain deserializes; see :func:`decode`.
        key: the same of the column ``key``.
        failures: what becomes of a row that the chain refuses, and of each slice of a message that is given
            up: ``fail`` fails the query, ``route`` adds a column ``failure``: see :func:`split_failures`.
        job: what trails call this work; Spark's application name where it is None.
        cluster_id: the id of the cluster that is read from, for signatures; None leaves it open.
        dead_letter_topic: the topic of dead letters; ``{topic}`` is the row's own.
        dead_letter_headers: whose names the reason gets, Connect's or Spring's.

    Raises:
        ConfigError: the frame is no stream; the chain has no ``slice``, or ``dedup``; the state store is not
            RocksDB; or a column is missing or of a wrong type; before anything runs.
        MissingPartError: the driver has no protobuf. An executor that has none fails its task, and says so.
    """
    source, loaded = chain_source(chain)
    plan = DecodePlan(frame, source, loaded, value=value, key=key, failures=failures)
    _require_state(frame, plan)
    spec = plan.task_spec(
        job=job,
        cluster_id=cluster_id,
        dead_letter_topic=dead_letter_topic,
        dead_letter_headers=dead_letter_headers,
    ).replace(schema=with_status(plan.schema, typed=bool(plan.typed)).json())
    spark = frame.sparkSession
    packs = frame.mapInArrow(shipped(f"{_STAGES}pack", spec, _pack_bytes(spark)), PLACED_PACKS)
    gluing = Reassembly(_pickled(spec), _expire_ms(loaded))
    by_partition = packs.groupBy("topic", "partition")
    whole = by_partition.transformWithStateInPandas(gluing, PACKS, "Append", "ProcessingTime")
    return whole.mapInArrow(shipped(f"{_STAGES}unpack"), plan.schema)


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


def _pack_bytes(spark: SparkSession) -> int:
    """Return a size for packs of finished rows, so that a batch of the operator stays in bounds."""
    least, most = _PACK_BYTES
    records = int(spark.conf.get(_RECORDS) or 0)
    return min(max(_BATCH_BYTES // records, least), most) if records > 0 else least


def _expire_ms(chain: Chain) -> int | None:
    """Return how long messages wait, where the step that gathers them says it as ``slice`` does."""
    waits = [getattr(step, "expire_ms", None) for step in chain if place_of(step) is Place.SLICE]
    return min((wait for wait in waits if wait is not None), default=None)


def _pickled(spec: Any) -> bytes:
    pickled: bytes = cloudpickle.dumps(spec)  # type: ignore[no-untyped-call]  # as pyspark has it
    return pickled


PACKS: Final = StructType([StructField("rows", BinaryType())])
"""What the operator gives: finished rows, packed."""
PLACED_PACKS: Final = StructType([
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("status", IntegerType()),
    StructField("rows", BinaryType()),
])  # fmt: skip
"""What it takes: packs of finished rows, slices (one a pack), and positions, which have no rows."""

_OFFSET: Final = StructType([StructField("offset", LongType())])
_PLACED: Final = pa.schema([
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("status", pa.int32()),
    ("rows", pa.binary()),
])  # fmt: skip
_INNER: Final = frozenset({STATUS, ARRIVED, RAW})


def pack(spec: bytes, limit_bytes: bytes) -> Callable[[Batches], Iterator[Any]]:
    """Begin a task that decodes rows and packs them.

    Args:
        spec: a pickled :class:`TaskSpec`.
        limit_bytes: a pickled int: about how large a pack of finished rows is.

    Raises:
        ModuleNotFoundError: a package is not here that Spark's operator needs.
    """
    _require_protobuf()
    chain = open_chain(spec)
    decoding = DecodeTask(chain, TaskCounter(chain.session, None), reassembles=True)
    limit: int = pickle.loads(limit_bytes)  # noqa: S301 - Spark's own channel
    return lambda batches: (_packs(batch, limit) for batch in decoding(batches))


def unpack() -> Callable[[Batches], Iterator[Any]]:
    """Begin a task that gives rows back as columns."""
    return _unpacked


class Reassembly(StatefulProcessor):
    """What Spark calls with the packs of each topic and partition, and when a message has waited too long.

    Args:
        spec: a pickled :class:`TaskSpec`; what is given has its schema, without the columns for statuses.
        expire_ms: how long an incomplete message waits for its next slice, in milliseconds; None where the
            chain does not say, and then only a later batch with rows of the partition looks for it.
    """

    def __init__(self, spec: bytes, expire_ms: int | None) -> None:
        self._spec: Final = spec
        self._expire_ms: Final = expire_ms

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Take the state, which also happens on the driver; the chain is not opened for it."""
        self._handle = handle
        self._waiting: MapState = handle.getMapState("waiting", _OFFSET, PACKS)

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: TimerValues,  # noqa: N803 - Spark's name
    ) -> Iterator[pd.DataFrame]:
        """Pass finished packs on, and put slices together with those that wait."""
        arrived: dict[int, bytes] = {}
        reached = -1
        for frame in rows:
            finished = frame.loc[frame["status"] == Status.DONE, ["rows"]]
            if len(finished):
                yield finished.reset_index(drop=True)
            slices = frame.loc[frame["status"] == Status.SLICE]
            # All of them, for the rows of a group come in no order.
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
        """Give up what has waited too long in a partition from which nothing came."""
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
        gluing = ReassembleTask(chain, TaskCounter(chain.session, None), options)
        position = Record(str(key[0]), partition=int(key[1]), offset=reached)
        before = waiting.keys() - arrived.keys()  # a topic that was made anew begins at 0 again
        gone = set(waiting)
        due = []
        for batch in gluing(_in_order({**waiting, **arrived}, position, chain.spec.schema)):
            offsets = _kept(batch)
            for row, offset in offsets.items():
                gone.discard(offset)
                due.append(next(iter(column(batch.slice(row, 1), ARRIVED))))
                if offset not in before:
                    self._waiting.updateValue((offset,), (packed(batch.slice(row, 1)),))
            finished = _finished(batch, [row for row in range(batch.num_rows) if row not in offsets])
            if finished.num_rows:
                yield pd.DataFrame({"rows": [packed(finished)]})
        for offset in gone:
            self._waiting.removeKey((offset,))
        self._set_timer(due, now_ms, fired_ms)

    def _set_timer(self, arrived_ms: list[int], now_ms: int, fired_ms: int) -> None:
        """Have one timer, for the first slice that may have waited too long; none where none waits.

        It may ring early, when a later slice of the same message has come since; the next one is set then.
        """
        if self._expire_ms is None:
            return
        due = [at for at in (arrived + self._expire_ms for arrived in arrived_ms) if at > now_ms]
        wanted = {min(due)} if due else set()
        found = set(self._handle.listTimers())
        for timer_ms in found - wanted - {fired_ms}:  # Spark deletes the one that it called for
            self._handle.deleteTimer(timer_ms)
        for timer_ms in wanted - found:
            self._handle.registerTimer(timer_ms)


def _require_protobuf() -> None:
    try:
        import_module("google.protobuf")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("Spark's stateful operator needs it", name="protobuf") from error


def _packs(batch: pa.RecordBatch, limit_bytes: int) -> pa.RecordBatch:
    """Pack a batch of decoded rows, slices and positions."""
    placed: list[Row] = []
    finished: list[int] = []
    places = [column(batch, name) for name in ("topic", "partition", "offset", STATUS)]
    for row, (topic, partition, offset, status) in enumerate(zip(*places, strict=True)):
        if status not in {Status.SLICE, Status.POSITION}:
            finished.append(row)
            continue
        rows = packed(batch.slice(row, 1)) if status == Status.SLICE else None
        placed.append((topic, partition, offset, status, rows))
    placed += (_placed(piece) for piece in pieces(_finished(batch, finished), limit_bytes))
    columns = list(zip(*placed, strict=True))
    arrays = [pa.array(values, field.type) for values, field in zip(columns, _PLACED, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_PLACED)


def _placed(batch: pa.RecordBatch) -> Row:
    """Pack finished rows. They pass the operator untouched, so that its key may be that of any of them."""
    (topic,) = column(batch.slice(0, 1), "topic")
    (partition,) = column(batch.slice(0, 1), "partition")
    return (topic or "", -1 if partition is None else partition, -1, int(Status.DONE), packed(batch))


def _finished(batch: pa.RecordBatch, rows: list[int]) -> pa.RecordBatch:
    """Return those rows of a batch that go on, without the columns for statuses."""
    chosen = batch.select([name for name in batch.schema.names if name not in _INNER])
    return chosen if len(rows) == batch.num_rows else chosen.take(pa.array(rows, pa.int64()))


def _kept(batch: pa.RecordBatch) -> dict[int, int]:
    """Return the offsets of the rows that are to wait, by row."""
    states = zip(column(batch, STATUS), column(batch, "offset"), strict=True)
    return {row: offset for row, (status, offset) in enumerate(states) if status == Status.SLICE}


def _in_order(packs: dict[int, bytes], position: Record, schema: str) -> Iterator[pa.RecordBatch]:
    """Return slices by offset, and then how far their partition was read, unless nothing was."""
    yield from joined((packs.pop(offset) for offset in sorted(packs)), FLUSH_BYTES)
    if position.offset is not None and position.offset >= 0:
        yield position_rows(arrow_schema(schema), [position], {STATUS: Status.POSITION})


def _unpacked(batches: Batches) -> Iterator[pa.RecordBatch]:
    schema = None
    for batch in batches:
        for found in joined((rows.as_buffer() for rows in batch.column("rows")), FLUSH_BYTES):
            # Spark writes a task's batches as one stream, whose schema is that of the first.
            schema = found.schema if schema is None else schema
            yield alike(found, schema)


def packed(batch: pa.RecordBatch) -> bytes:
    """Return rows as a pack."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    pack: bytes = sink.getvalue().to_pybytes()
    return pack


def unpacked(pack: bytes | pa.Buffer) -> Iterator[pa.RecordBatch]:
    """Return the rows of a pack."""
    with pa.ipc.open_stream(pack) as reader:
        yield from reader


def joined(packs: Iterable[bytes | pa.Buffer], limit_bytes: int) -> Iterator[pa.RecordBatch]:
    """Return the rows of packs in few batches, of about a size; packs of other schemas begin others.

    Args:
        packs: the packs, taken one at a time.
        limit_bytes: the size, in bytes.
    """
    group: list[pa.RecordBatch] = []
    size_bytes = 0
    for batch in chain.from_iterable(map(unpacked, packs)):
        if group and (size_bytes > limit_bytes or not batch.schema.equals(group[0].schema)):
            yield from _one(group)
            group, size_bytes = [], 0
        group.append(batch)
        size_bytes += batch.nbytes
    if group:
        yield from _one(group)


def pieces(batch: pa.RecordBatch, limit_bytes: int) -> Iterator[pa.RecordBatch]:
    """Cut a batch into pieces of about a size; a row is never cut.

    Args:
        batch: the rows.
        limit_bytes: the size, in bytes.
    """
    rows = batch.num_rows
    step = max(1, rows * limit_bytes // max(1, batch.nbytes))
    for begin in range(0, rows, step):
        yield batch.slice(begin, step)


def alike(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows with just the types of a schema, such as lists whose items may be null."""
    if batch.schema.equals(schema):
        return batch
    columns = [batch.column(field.name).cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _one(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    joint: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joint
