"""The function for ``writeStream.foreachBatch``: decode, hand over, encode, write, and note what is done."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.propagate import inject
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from py4j.protocol import Py4JError
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from headerware.core.context import wall_clock_ms
from headerware.core.errors import ConfigError
from headerware.spark_bridge.batches.ledger import Ledger
from headerware.spark_bridge.batches.sinks import Batch, Sink, sink_of
from headerware.spark_bridge.chain_source import ChainLike, chain_source
from headerware.spark_bridge.classic import require_classic
from headerware.spark_bridge.decoding import DecodePlan
from headerware.spark_bridge.executors.counts import CountsAccumulator, QueryAccumulators
from headerware.spark_bridge.executors.reassembly import ReassemblyOptions
from headerware.spark_bridge.failures import split_failures
from headerware.spark_bridge.frames.schema import (
    ARRIVED,
    IDENTITY,
    RAW,
    SOURCE,
    STATUS,
    Status,
    check_read,
    struct_from_json,
    with_columns,
    with_status,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from headerware.spark_bridge.chain_source import TaskSpec
    from headerware.spark_bridge.decoding import Decoded


_log: Final = logging.getLogger("headerware.spark_bridge")
_OWN: Final = (STATUS, ARRIVED, RAW, IDENTITY)
_NO_QUERY: Final = "expected to be called by a streaming query; pass this to writeStream.foreachBatch(...)"
_W3C: Final = TraceContextTextMapPropagator()


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """What a batch came to.

    Counts come from the executors: a task that was tried again counts again.

    Args:
        batch: the batch's number.
        query_id: the streaming query's id.
        skipped: the ledger says that it was done before; nothing was counted.
        replay: it was begun before, and not finished.
        waiting: slices that wait for the next batch.
        decoded: counts of the reading chain: ``records_in``, ``records_out``, ``bytes_in``, ``bytes_out``,
            ``refused``, and ``steps``: counters by interceptor, as ``client.stats()`` has them.
        encoded: the same of the writing chain.
    """

    batch: int
    query_id: str
    skipped: bool = False
    replay: bool = False
    waiting: int = 0
    decoded: Mapping[str, Any] = {}
    encoded: Mapping[str, Any] = {}


def foreach_batch(
    chain: ChainLike,
    sink: Sink | Callable[[DataFrame, int], Any],
    *,
    checkpoint: str | os.PathLike[str],
    transform: Callable[[DataFrame, int], DataFrame] | None = None,
    dead_letters: Sink | Callable[[DataFrame, int], Any] | None = None,
    value: DataType | str | None = None,
    key: DataType | str | None = None,
    job: str | None = None,
    cluster_id: str | None = None,
    window_batches: int = 100,
    window_ms: int | None = None,
    discard_waiting: bool = False,
    on_progress: Callable[[Progress], Any] | None = None,
    dead_letter_topic: str = "{topic}.dead-letter",
    dead_letter_headers: Literal["connect", "spring"] = "connect",
) -> ForeachBatch:
    """Return the function for ``writeStream.foreachBatch``.

    Of each batch it decodes the rows, hands the clean frame to ``transform``, and what comes of it to the
    sink. The clean frame has the connector's columns and ``source``, a struct of topic, partition and offset:
    keep that one for the sink to know each row again in a replay. docs/spark.md says what holds where the
    driver or a task dies.

    Args:
        chain: the chain that reads: a :class:`Chain`, a flat configuration, or the path of a TOML file.
        sink: :func:`kafka_sink`, :func:`writer_sink`, or a function of frame and batch id.
        checkpoint: the query's checkpoint folder, or another that is as safe: the ledger is below it, in
            ``headerware/<query id>``.
        transform: takes the clean frame and the batch's number, and gives the frame to write.
        dead_letters: a sink for the dead letters of rows that a chain refuses, such as
            ``kafka_sink({"kafka.bootstrap.servers": ...})``. Without one a refused row fails the query.
        value: the type of the column ``value`` where the chain deserializes; see :func:`decode`.
        key: the same of the column ``key``.
        job: what trails call this work; Spark's application name where it is None.
        cluster_id: the id of the cluster that is read from, for signatures; None leaves it open.
        window_batches: with ``dedup`` in the chain: how many batches back repeats are looked for.
        window_ms: the same in milliseconds, where it is less.
        discard_waiting: with a chain that has lost its ``slice``: forget the slices that still wait.
        on_progress: called on the driver when a batch is through.
        dead_letter_topic: the topic of dead letters; ``{topic}`` is the row's own.
        dead_letter_headers: whose names the reason gets, Connect's or Spring's.

    Raises:
        ConfigError: what is wrong with the chain or the sinks.
    """
    source, loaded = chain_source(chain)
    if not os.fspath(checkpoint):
        raise ConfigError("expected a folder, found an empty text", path="checkpoint")
    if window_batches < 0 or (window_ms or 0) < 0:
        wrong = "window_batches" if window_batches < 0 else "window_ms"
        raise ConfigError("expected 0 or more", path=wrong)
    if getattr(dead_letters, "has_chain", False):
        raise ConfigError(
            "a dead letter goes as it came, with headers that a chain refuses; give a kafka_sink without "
            "a chain",
            path="dead_letters",
        )
    return ForeachBatch(
        _ReadChain(source, loaded, value, key),
        sink_of(sink, "sink"),
        checkpoint=os.fspath(checkpoint),
        transform=transform,
        dead_letters=None if dead_letters is None else sink_of(dead_letters, "dead_letters"),
        job=job,
        cluster_id=cluster_id,
        dead_letter_options={
            "dead_letter_topic": dead_letter_topic,
            "dead_letter_headers": dead_letter_headers,
        },
        window=(window_batches, window_ms),
        discard_waiting=discard_waiting,
        on_progress=on_progress,
    )


class _ReadChain(NamedTuple):
    """The chain that reads, and the types that it gives."""

    source: Any
    chain: Any
    value: DataType | str | None
    key: DataType | str | None


class ForeachBatch:
    """What Spark calls with each micro-batch; made by :func:`foreach_batch`.

    ``progress`` is what the last batch came to. It is for one query: Spark calls it with one batch at a time.
    """

    def __init__(
        self,
        reading: _ReadChain,
        sink: Sink,
        *,
        checkpoint: str,
        transform: Callable[[DataFrame, int], DataFrame] | None,
        dead_letters: Sink | None,
        job: str | None,
        cluster_id: str | None,
        dead_letter_options: dict[str, Any],
        window: tuple[int, int | None],
        discard_waiting: bool,
        on_progress: Callable[[Progress], Any] | None,
    ) -> None:
        self.progress: Progress | None = None
        self._reading = reading
        self._sink = sink
        self._checkpoint = checkpoint
        self._transform = transform
        self._dead_letters = dead_letters
        self._job = job
        self._cluster_id = cluster_id
        self._dead_letter_routes = dead_letter_options
        self._window = window
        self._discard_waiting = discard_waiting
        self._on_progress = on_progress
        self._ledger: tuple[str, Ledger] | None = None
        self._accumulators: tuple[Any, QueryAccumulators] | None = None

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Work on one batch; what is raised fails the query, which then replays the batch."""
        require_classic(frame)
        spark = frame.sparkSession
        query_id = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
        if query_id is None:
            raise ConfigError(_NO_QUERY)
        ledger = self._opened(spark, query_id)
        offsets = read_up_to(spark, query_id, batch_id)
        if ledger.is_committed(batch_id, offsets):
            _log.info("batch %d of %s was written before; skipping it", batch_id, query_id)
            self._report(Progress(batch=batch_id, query_id=query_id, skipped=True))
            return
        batch = Batch(
            spark,
            id=batch_id,
            query_id=query_id,
            job=self._job or spark.sparkContext.appName or "spark",
            dead_letters=self._dead_letters,
            dead_letter_options=self._dead_letter_routes,
            accumulators=self._reset_accumulators(spark),
        )
        try:
            progress = self._work_on(frame, batch, ledger, offsets)
        finally:
            batch.release()
            ledger.identities.release()
        self._report(progress)

    def _work_on(self, frame: DataFrame, batch: Batch, ledger: Ledger, offsets: str | None) -> Progress:
        fingerprint = self._reading.source.fingerprint
        begun = ledger.begin(batch.id, chain=fingerprint, now_ms=wall_clock_ms(), offsets=offsets)
        if begun.previous_chain not in {None, fingerprint}:
            _log.info("the chain has changed; from batch %d on it is the new one", batch.id)
        plan = self._plan(frame)
        spec = plan.task_spec(job=batch.job, cluster_id=self._cluster_id, **self._dead_letter_routes)
        stages = DecodeStages(plan, spec, batch, ledger, begun.now_ms)
        found = stages.decoded(frame, discard_waiting=self._discard_waiting)
        with ExitStack() as stack:
            if stages.is_traced:
                batch.carrier = stack.enter_context(stages.span(found))
            self._write(found, batch, stages)
        ledger.commit(batch.id)
        return Progress(
            batch=batch.id,
            query_id=batch.query_id,
            replay=begun.replay,
            waiting=found.waiting,
            decoded=_without_traces(batch.decoded),
            encoded=_without_traces(batch.encoded),
        )

    def _write(self, found: DecodedBatch, batch: Batch, stages: DecodeStages) -> None:
        clean = found.frame
        if self._dead_letters is not None:
            clean, dead_letters = split_failures(clean)
            if found.refused is None or found.refused:
                batch.publish_dead_letters(dead_letters)
        clean = stages.deduplicated(clean).drop(*_OWN)
        if found.uncomputed is not None:
            batch.uncomputed = found.uncomputed._replace(frame=clean)
        self._sink.write(clean if self._transform is None else self._transformed(clean, batch.id), batch)

    def _transformed(self, clean: DataFrame, batch_id: int) -> DataFrame:
        assert self._transform is not None  # noqa: S101 - the caller has looked
        given = self._transform(clean, batch_id)
        if not hasattr(given, "sparkSession"):
            raise ConfigError(
                f"expected a function that gives a DataFrame, found {type(given).__name__}; to write in "
                "the function itself, pass it as the sink",
                path="transform",
            )
        return given

    def _plan(self, frame: DataFrame) -> DecodePlan:
        reading = self._reading
        failures: Literal["fail", "route"] = "fail" if self._dead_letters is None else "route"
        return DecodePlan(
            frame, reading.source, reading.chain, value=reading.value, key=reading.key, failures=failures
        )

    def _reset_accumulators(self, spark: SparkSession) -> QueryAccumulators:
        """Return the query's counters, at 0; pyspark keeps every accumulator for ever, so there are two."""
        context = spark.sparkContext
        if self._accumulators is None or self._accumulators[0] is not context:
            self._accumulators = (
                context,
                QueryAccumulators(CountsAccumulator(spark), CountsAccumulator(spark)),
            )
        for accumulator in self._accumulators[1]:
            accumulator.clear()
        return self._accumulators[1]

    def _opened(self, spark: SparkSession, query_id: str) -> Ledger:
        if self._ledger is None or self._ledger[0] != query_id:
            batches, time_ms = self._window
            opened = Ledger.open(spark, self._checkpoint, query_id, window_batches=batches, window_ms=time_ms)
            self._ledger = (query_id, opened)
        return self._ledger[1]

    def _report(self, progress: Progress) -> None:
        self.progress = progress
        if self._on_progress is not None:
            self._on_progress(progress)


class DecodedBatch(NamedTuple):
    """A decoded batch: all its rows but those that wait, and what is known of it."""

    frame: DataFrame
    records: int = 0
    waiting: int = 0
    refused: int | None = None
    """None where nobody has counted yet."""
    topics: tuple[str, ...] = ()
    uncomputed: Decoded | None = None
    """What the frame is decoded from, if that is left to whoever writes it."""


class _Counts(NamedTuple):
    """What is known of decoded rows."""

    by_status: Mapping[Status | None, int]
    topics: tuple[str, ...]
    places: int
    """The number of Kafka partitions that have slices."""
    is_split: bool
    """Whether the rows of a Kafka partition are in several tasks."""


class DecodeStages:
    """The stages of one batch's decoding, each called once, in the order in which they stand here.

    Args:
        plan: what the batch's frame and the chain come to.
        spec: what the executors are told.
        batch: the batch.
        ledger: what earlier batches left; the batch was begun there.
        now_ms: the batch's time, the same in a replay, in milliseconds since 1970.
    """

    def __init__(self, plan: DecodePlan, spec: TaskSpec, batch: Batch, ledger: Ledger, now_ms: int) -> None:
        self._plan = plan
        self._batch = batch
        self._ledger = ledger
        self._now_ms = now_ms
        self.accumulator: Final = batch.decoded
        self.is_traced: Final[bool] = is_traced()
        schema = with_status(with_columns(plan.schema, source=SOURCE), typed=bool(plan.typed))
        self._spec = spec.replace(schema=schema.json())

    def decoded(self, frame: DataFrame, *, discard_waiting: bool) -> DecodedBatch:
        """Decode a batch; slices of messages that are not whole yet are left in the ledger.

        Args:
            frame: the rows, as the connector gives them.
            discard_waiting: whether slices that wait are forgotten where the chain has no ``slice`` now.

        Raises:
            ConfigError: columns are missing, or slices wait and are not to be forgotten.
        """
        check_read(frame, needs_position=True)
        read = frame.withColumn("source", F.struct("topic", "partition", "offset"))
        reassembles = self._plan.reassembles
        lazily = self._plan.lazily_alone(read, self._spec, self.accumulator.pickled, reassembles=reassembles)
        alone = lazily.frame
        carried = self._carried(discard_waiting=discard_waiting)
        if not self._reads_twice:
            return DecodedBatch(alone, uncomputed=None if self._plan.typed else lazily)
        counts = self._counted(self._batch.cache(alone))
        found = DecodedBatch(
            alone.where(_is(None, Status.FAILED)),
            records=sum(counts.by_status.values()) - counts.by_status[Status.POSITION],
            refused=counts.by_status[Status.FAILED],
            topics=counts.topics,
        )
        if carried is None and not counts.by_status[Status.SLICE]:
            return found
        parts = alone.where(_is(Status.SLICE, Status.POSITION))
        if carried is None:
            return self._reassembled(parts, counts.places if counts.is_split else 0, found)
        parts = parts.unionByName(carried)
        return self._reassembled(parts, self._counted(parts).places, found)

    def span(self, found: DecodedBatch) -> AbstractContextManager[dict[str, str]]:
        """Make the batch's span, with links to the traces of its records; it gives the trace context."""
        attributes = {"messaging.batch.message_count": found.records, "spark.batch.id": self._batch.id}
        return batch_span(found.topics, self.accumulator.counts.get("traces", ()), attributes)

    def deduplicated(self, frame: DataFrame) -> DataFrame:
        """Leave out what this batch or an earlier one has had already."""
        if not self._plan.dedups:
            return frame
        fresh = self._ledger.identities.fresh(frame, self._batch.id, IDENTITY)
        self._ledger.identities.record(self._batch.id, fresh, IDENTITY)
        return fresh

    @property
    def _reads_twice(self) -> bool:
        plan = self._plan
        return plan.reassembles or plan.dedups or self.is_traced or self._batch.dead_letters is not None

    def _counted(self, rows: DataFrame) -> _Counts:
        """Count rows, which also computes and keeps them where they are cached.

        It has no groups, for those are shuffled into ``spark.sql.shuffle.partitions`` tasks in a stream.
        """
        statuses = (None, *Status)
        place = F.struct("topic", "partition")
        found = rows.agg(
            *(F.count(F.when(_is(status), 1)) for status in statuses),
            F.collect_set("topic"),
            F.collect_set(F.when(_is(Status.SLICE), place)),
            F.collect_set(F.when(_is(Status.POSITION), place)),
        )
        ((*numbers, topics, with_slices, read),) = found.collect()
        by_status = dict(zip(statuses, numbers, strict=True))
        is_split = len(read) < by_status[Status.POSITION]  # each task says which places it has read
        return _Counts(by_status, tuple(topics), len(with_slices), is_split)

    def _carried(self, *, discard_waiting: bool) -> DataFrame | None:
        schema = struct_from_json(self._spec.schema)
        if self._plan.reassembles:
            return self._ledger.carried(self._batch.id, like=schema)
        if self._ledger.carried(self._batch.id) is None:
            return None
        if not discard_waiting:
            raise ConfigError(
                "slices wait in the ledger, and the chain has no 'slice' now; put it back until they are "
                "through, or pass discard_waiting=True to forget them",
                path="chain",
            )
        self._ledger.leave(self._batch.id, None)
        return None

    def _reassembled(self, parts: DataFrame, tasks: int, found: DecodedBatch) -> DecodedBatch:
        options = ReassemblyOptions(batch_ms=self._now_ms, incomplete="carry")
        reassembled = self._batch.cache(
            self._plan.reassembled(parts, self._spec, options, self.accumulator.pickled, tasks=tasks)
        )
        counts = self._counted(reassembled).by_status
        waiting = counts[Status.SLICE]
        self._ledger.leave(self._batch.id, reassembled.where(_is(Status.SLICE)) if waiting else None)
        return found._replace(
            frame=found.frame.unionByName(reassembled.where(_is(None, Status.FAILED))),
            waiting=waiting,
            refused=(found.refused or 0) + counts[Status.FAILED],
        )


def _is(*statuses: Status | None) -> Any:
    column = F.col(STATUS)
    condition = column.isin([int(status) for status in statuses if status is not None])
    return column.isNull() | condition if None in statuses else condition


def read_up_to(spark: SparkSession, query_id: str, batch: int) -> str | None:
    """Return a fingerprint of the offsets that a batch is read up to; it is the same in a replay only.

    Args:
        spark: the session that runs the batch.
        query_id: the streaming query's id.
        batch: the batch's number.

    Returns:
        16 hexadecimal digits; None in a release of Spark that keeps its queries elsewhere.
    """
    session: Any = spark
    try:
        queries = session._jsparkSession.sharedState().activeStreamingQueries()  # noqa: SLF001 - no public way
        query = queries.get(session._jvm.java.util.UUID.fromString(query_id))  # noqa: SLF001 - as above
        sources = query.offsetLog().get(batch).get().offsets()
        # As text, for what was read back from the checkpoint is of another class.
        offsets = [sources.apply(index) for index in range(sources.size())]
        texts = [offset.get().json() if offset.isDefined() else "" for offset in offsets]
    except (Py4JError, AttributeError, TypeError):
        return None
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def is_traced() -> bool:
    """Return whether anyone may record spans here; without an SDK nobody does."""
    # To ask a tracer would take a span, which whoever exports spans would see.
    nobody = (trace.ProxyTracerProvider, trace.NoOpTracerProvider)
    return not isinstance(trace.get_tracer_provider(), nobody)


@contextmanager
def batch_span(
    topics: Iterable[str], traces: Iterable[str], attributes: Mapping[str, str | int]
) -> Iterator[dict[str, str]]:
    """Make a span for the processing of a batch, and give its context as headers have it.

    Args:
        topics: what was read; one topic names the span.
        traces: the ``traceparent`` of records, for links.
        attributes: the span's further attributes.
    """
    names = sorted(set(topics))
    destination = {"messaging.destination.name": names[0]} if len(names) == 1 else {}
    links = [trace.Link(context) for context in map(_context, traces) if context.is_valid]
    with trace.get_tracer("headerware").start_as_current_span(
        f"process {names[0]}" if len(names) == 1 else "process",
        kind=trace.SpanKind.CONSUMER,
        links=links,
        attributes={
            "messaging.system": "kafka",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            **destination,
            **attributes,
        },
    ):
        carrier: dict[str, str] = {}
        inject(carrier)
        yield carrier


def _context(traceparent: str) -> trace.SpanContext:
    context = _W3C.extract({"traceparent": traceparent}, Context())
    return trace.get_current_span(context).get_span_context()


def _without_traces(accumulator: CountsAccumulator) -> dict[str, Any]:
    return {name: value for name, value in accumulator.counts.items() if name != "traces"}
