"""Decode streams with Spark's own state: slices of one message may come in different micro-batches."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal

from pyspark import cloudpickle

from headerware.core.errors import ConfigError, MissingPartError
from headerware.core.hooks import Place
from headerware.core.order import place_of
from headerware.spark_bridge.chain_source import ChainLike, chain_source
from headerware.spark_bridge.decoding import DecodePlan
from headerware.spark_bridge.executors.shipping import shipped
from headerware.spark_bridge.executors.stateful import PACKS, PLACED_PACKS, Reassembly
from headerware.spark_bridge.executors.work import Failures
from headerware.spark_bridge.frames.schema import with_status

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from headerware.core.chain import Chain

_STAGES: Final = "headerware.spark_bridge.executors.stateful:"
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
    work = plan.work(
        job=job,
        cluster_id=cluster_id,
        dead_letter_topic=dead_letter_topic,
        dead_letter_headers=dead_letter_headers,
    ).replace(schema=with_status(plan.schema, typed=bool(plan.typed)).json())
    spark = frame.sparkSession
    packs = frame.mapInArrow(shipped(f"{_STAGES}pack", work, _pack_bytes(spark)), PLACED_PACKS)
    gluing = Reassembly(_pickled(work), _expire_ms(loaded))
    by_partition = packs.groupBy("topic", "partition")
    whole = by_partition.transformWithStateInPandas(gluing, PACKS, "Append", "ProcessingTime")
    return whole.mapInArrow(shipped(f"{_STAGES}unpack"), plan.schema)


def _require_state(frame: DataFrame, plan: DecodePlan) -> None:
    if not frame.isStreaming:
        raise ConfigError(_NOT_STREAMING, path="frame")
    if plan.dedups:
        raise ConfigError(_DEDUP, path="chain")
    if not plan.gathers:
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


def _pickled(work: Any) -> bytes:
    pickled: bytes = cloudpickle.dumps(work)  # type: ignore[no-untyped-call]  # as pyspark has it
    return pickled
