"""Decode frames that were read from Kafka: the consuming half of a chain, on the executors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from pyspark.sql import functions as F  # noqa: N812 - Spark's custom
from pyspark.sql.types import BinaryType, DataType, StructType
from pyspark.sql.window import Window

from headerware.core.errors import ConfigError
from headerware.core.hooks import Place
from headerware.spark_bridge.chain_source import (
    ChainLike,
    ChainSource,
    Failures,
    TaskSpec,
    chain_source,
    has_step,
    require_typed,
)
from headerware.spark_bridge.driver import driver_of
from headerware.spark_bridge.executors.decoding import slice_condition
from headerware.spark_bridge.executors.reassembly import ReassemblyOptions
from headerware.spark_bridge.executors.shipping import shipped
from headerware.spark_bridge.frames.arrow_types import require_arrow_type
from headerware.spark_bridge.frames.schema import (
    FAILURE,
    IDENTITY,
    OWN,
    VERIFIED,
    check_read,
    require_free,
    require_mappable,
    struct_from_json,
    with_columns,
)
from headerware.spark_bridge.origin import Origin, cluster_of, warn_of_other_topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headerware.core.chain import Chain

_EXECUTORS: Final = "headerware.spark_bridge.executors."
_IN_STREAMS: Final = (
    "the chain has {step!r}, which needs records of other micro-batches; use foreach_batch(), whose ledger "
    "keeps them, or decode_stateful()"
)


def decode(
    frame: DataFrame,
    chain: ChainLike,
    *,
    value: DataType | str | None = None,
    key: DataType | str | None = None,
    verified: bool = False,
    failures: Failures = "fail",
    incomplete: Literal["fail", "leave"] = "fail",
    job: str | None = None,
    cluster_id: str | None = None,
    dead_letter_topic: str = "{topic}.dead-letter",
    dead_letter_headers: Literal["connect", "spring", "headerware"] = "connect",
) -> DataFrame:
    """Decode a frame that was read from Kafka through a chain, as a consumer decodes its records.

    All columns are kept, in their order, also columns that the user added; only key, value and headers
    change. A message in slices becomes one row, at the position of its last slice.

    Args:
        frame: a frame of ``format("kafka")`` with ``includeHeaders``, a batch or a stream: topic, value and
            headers, and any other columns.
        chain: a :class:`Chain`, a flat configuration, or the path of a TOML file. The executors fill in
            ``${env:NAME}`` in a configuration or file; a Chain is sent with its options as they are.
        value: the type of the column ``value``, if the chain deserializes it: a Spark type, such as
            :func:`avro_type` returns, or its DDL. Without a type, steps that serialize are left out.
        key: the type of the column ``key``, likewise.
        verified: whether to add a column ``verified``: what the signature of a row says that ``sign`` has
            verified, with the fields of :class:`headerware.core.record.Verified`; null without a signature.
        failures: what happens to a row that the chain refuses. ``fail`` fails the job; ``route`` adds a
            column ``failure``, null for good rows, and keeps the row as it came: see :func:`split_failures`.
        incomplete: what happens to messages in slices that continue after the end of a batch frame: they
            fail, or are left to a later read.
        job: the name of this job in trails; None takes Spark's application name.
        cluster_id: the id of the cluster that was read from, for signatures; None takes the id
            that :func:`kafka_source` asked for, and an empty text means that it is unknown.
        dead_letter_topic: the topic of dead letters; ``{topic}`` is the row's own.
        dead_letter_headers: the names of the headers with the reason: Connect's, Spring's or ours.

    Raises:
        ConfigError: before anything runs: the chain is wrong, or a column is missing or of a wrong type.
    """
    source, loaded = chain_source(chain, "decode")
    plan = DecodePlan(frame, source, loaded, value=value, key=key, verified=verified, failures=failures)
    warn_of_other_topics(loaded, Origin.of(frame).topics)
    if frame.isStreaming:
        plan.require_standalone_rows()
    spec = plan.task_spec(
        job=job,
        cluster_id=cluster_of(frame, loaded, cluster_id),
        dead_letter_topic=dead_letter_topic,
        dead_letter_headers=dead_letter_headers,
    )
    if not plan.reassembles:
        return plan.deduplicated(plan.decoded(frame, spec).frame)
    may_be_slice = slice_condition()
    alone = plan.decoded(frame.where(~may_be_slice), spec).frame
    reassembled = plan.reassembled(frame.where(may_be_slice), spec, ReassemblyOptions(incomplete=incomplete))
    return plan.deduplicated(alone.unionByName(reassembled))


class Decoded(NamedTuple):
    """A frame of decoded rows that is not computed yet."""

    frame: DataFrame
    read: DataFrame
    """The frame from which the rows are decoded."""
    arguments: tuple[Any, ...]
    """The arguments of ``decode_rows`` on the executors."""


class DecodePlan:
    """How to decode a frame with a chain: the resulting schema, and which stages are needed."""

    def __init__(
        self,
        frame: DataFrame,
        source: ChainSource,
        chain: Chain,
        *,
        value: DataType | str | None = None,
        key: DataType | str | None = None,
        verified: bool = False,
        failures: Failures = "fail",
    ) -> None:
        self._frame = frame
        self._source = source
        self._failures = failures
        self._verified = verified
        self.reassembles: Final = has_step(chain, Place.SLICE)
        self.dedups: Final = has_step(chain, Place.DEDUP)
        self._step = "slice" if self.reassembles else "dedup"
        check_read(frame, needs_position=self.reassembles or self.dedups)
        require_free(frame, {*OWN, "verified"} if verified else OWN)
        require_mappable(frame)
        given = {"value": value, "key": key}
        types = {name: _type(kind, name) for name, kind in given.items() if kind is not None}
        require_typed(chain, types)
        self.typed: Final = frozenset(types)
        added: dict[str, DataType] = {"failure": FAILURE} if failures == "route" else {}
        if verified:
            added["verified"] = VERIFIED
        if self.dedups:
            added[IDENTITY] = BinaryType()
        self.schema: Final[StructType] = with_columns(frame.schema, **types, **added)

    def require_standalone_rows(self) -> None:
        """Raise ConfigError for a stream whose rows need the rows of other micro-batches."""
        if self.reassembles or self.dedups:
            raise ConfigError(_IN_STREAMS.format(step=self._step), path="chain")

    def task_spec(self, *, job: str | None, **settings: Any) -> TaskSpec:
        """Return the specification of the executors' tasks."""
        return TaskSpec(
            source=self._source,
            side="consumer",
            job=job or driver_of(self._frame.sparkSession).app_name(),
            failures=self._failures,
            typed=self.typed,
            verified=self._verified,
            schema=self.schema.json(),
            **settings,
        )

    def decoded(
        self, frame: DataFrame, spec: TaskSpec, accumulator: bytes | None = None, *, reassembles: bool = False
    ) -> Decoded:
        """Decode rows that stand alone; if slices are reassembled later, keep them, with their status."""
        arguments = (spec, accumulator, reassembles)
        mapped = shipped(f"{_EXECUTORS}decoding:decode_rows", *arguments)
        return Decoded(frame.mapInArrow(mapped, struct_from_json(spec.schema)), frame, arguments)

    def reassembled(
        self,
        frame: DataFrame,
        spec: TaskSpec,
        options: ReassemblyOptions,
        accumulator: bytes | None = None,
        *,
        tasks: int | None = None,
    ) -> DataFrame:
        """Reassemble messages from slices, which are shuffled into a number of tasks.

        The number is 0 if the slices of each Kafka partition are in one task already; if it is None, adaptive
        execution chooses it.
        """
        mapped = shipped(f"{_EXECUTORS}reassembly:reassemble", spec, accumulator, options)
        if tasks is None and not _is_adaptive(frame):  # Spark would start 200 tasks for six slices
            tasks = driver_of(frame.sparkSession).parallelism()
        if tasks != 0:
            numbers = () if tasks is None else (tasks,)
            frame = frame.repartition(*numbers, "topic", "partition")
        in_order = frame.sortWithinPartitions("topic", "partition", "offset")
        return in_order.mapInArrow(mapped, struct_from_json(spec.schema))

    def deduplicated(self, frame: DataFrame) -> DataFrame:
        """Keep the first row of each identity, and all rows without one."""
        if not self.dedups or frame.isStreaming:
            return frame
        position = F.to_json(F.struct("topic", "partition", "offset"))
        same = Window.partitionBy(F.coalesce(IDENTITY, position.cast("binary")))
        first = same.orderBy("topic", "partition", "offset")
        rank = "_hw_rank"
        # Keep all rows of one position: a hook may have made several rows of one record.
        ranked = frame.withColumn(rank, F.rank().over(first))
        return ranked.where(F.col(rank) == 1).drop(rank, IDENTITY)


def _is_adaptive(frame: DataFrame) -> bool:
    """Return whether Spark chooses the number of a shuffle's tasks itself, which it does not in streams."""
    return frame.sparkSession.conf.get("spark.sql.adaptive.enabled") == "true"


def _type(kind: DataType | str, name: str) -> DataType:
    found = kind if isinstance(kind, DataType) else _from_ddl(kind, name)
    require_arrow_type(found, name)
    return found


def _from_ddl(kind: str, name: str) -> DataType:
    from pyspark.errors import PySparkException  # noqa: PLC0415 - for its error only

    try:
        found: DataType = DataType.fromDDL(kind)
    except PySparkException as error:
        raise ConfigError(f"{kind!r} is not a type in Spark's DDL: {error}", path=name) from error
    return found
