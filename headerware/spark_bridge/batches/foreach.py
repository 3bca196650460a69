"""The function for ``writeStream.foreachBatch``: decode a batch, transform it, write it, and commit it.

A batch is decoded in stages: first the rows that stand alone, then new slices together with waiting slices;
then repeats are dropped. If the ledger says that a batch is committed, the batch is skipped.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack, contextmanager, suppress
from types import UnionType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.propagate import inject
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from headerware.core.context import wall_clock_ms
from headerware.core.errors import ConfigError, HeaderwareError
from headerware.interceptors.audit import Audit
from headerware.interceptors.lineage import Lineage
from headerware.interceptors.metrics import Metrics
from headerware.spark_bridge.batches.ledger import Ledger
from headerware.spark_bridge.batches.observers import REPORT_COLUMNS, Observers, is_traced
from headerware.spark_bridge.batches.sinks import Batch, Sink, prepare, sink_of, tell_done
from headerware.spark_bridge.batches.storage import Storage
from headerware.spark_bridge.chain_source import ChainLike, LoadedChain, chain_source
from headerware.spark_bridge.decoding import DecodePlan
from headerware.spark_bridge.driver import driver_of, require_classic, spark_errors
from headerware.spark_bridge.executors.counts import NoCounts, QueryAccumulators
from headerware.spark_bridge.executors.reassembly import ReassemblyOptions
from headerware.spark_bridge.executors.shipping import reason_of
from headerware.spark_bridge.failures import TaskError, split_failures
from headerware.spark_bridge.frames.schema import (
    ARRIVED,
    COUNTS,
    IDENTITY,
    RAW,
    SOURCE,
    STATUS,
    Status,
    require_free,
    struct_from_json,
    with_columns,
    with_counts,
    with_status,
)
from headerware.spark_bridge.origin import Origin, cluster_of, warn_of_other_topics
from headerware.spark_bridge.session import speculates

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from contextlib import AbstractContextManager

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from headerware.core.chain import Chain
    from headerware.spark_bridge.batches.lineage import QueryLineage
    from headerware.spark_bridge.chain_source import TaskSpec
    from headerware.spark_bridge.decoding import Decoded
    from headerware.spark_bridge.executors.counts import CountsAccumulator, RowCounts


_log: Final = logging.getLogger("headerware.spark_bridge")
_OWN: Final = (STATUS, ARRIVED, RAW, IDENTITY, COUNTS)
_NO_QUERY: Final = (
    "expected to be called by a streaming query; pass this function to writeStream.foreachBatch(...)"
)
_SPECULATES: Final = (
    "expected false for a chain with 'audit', found true: if Spark runs a task twice, one attempt may use "
    "rows that the other has kept, and the counts of the other are lost; start the query with --conf "
    "spark.speculation=false"
)
_METADATA: Final = "metadata"
_INTERNAL: Final = frozenset({"traces", "given", "audit", "native"})
_STATUSES: Final = (None, *Status)
_RECORDS: Final = (None, Status.DONE, Status.FAILED, Status.SLICE)
_IDENTITIES: Final = "identities"
_W3C: Final = TraceContextTextMapPropagator()


class BatchProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a batch.

    Counts come from the executors. A part of a batch counts once, also if its task is tried again. With Spark
    Connect, ``decoded`` is empty unless the batch is kept and counted, and ``encoded`` is always empty: see
    docs/spark.md.

    Args:
        batch: the batch's number.
        query_id: the streaming query's id.
        skipped: the ledger says that the batch was committed before; nothing was counted.
        replay: the batch was begun before, and not finished.
        waiting: the number of slices that wait for the next batch.
        decoded: counts of the reading chain: ``records_in``, ``records_out``, ``bytes_in``, ``bytes_out``,
            ``refused``, and ``steps``: counters by interceptor, as ``client.stats()`` has them; with
            ``lineage`` in the chain also ``topics``: records by topic.
        encoded: the same counts of the writing chain.

    As text it is one line: ``batch 17: 1,204 in, 1,198 out, 3 refused, 3 slices wait``.
    """

    batch: int
    query_id: str
    skipped: bool = False
    replay: bool = False
    waiting: int = 0
    decoded: Mapping[str, Any] = {}
    encoded: Mapping[str, Any] = {}

    def __str__(self) -> str:
        """Return the result in one line."""
        if self.skipped:
            return f"batch {self.batch}: committed before, skipped"
        counts = self.decoded.get
        parts = [f"{counts('records_in', 0):,} in", f"{counts('records_out', 0):,} out"]
        parts = parts if self.decoded else ["done"]
        refused = counts("refused", 0) + self.encoded.get("refused", 0)
        parts += [f"{refused:,} refused"] if refused else []
        parts += [f"{self.waiting:,} slices wait"] if self.waiting else []
        return f"batch {self.batch}: {', '.join(parts)}{' (a replay)' if self.replay else ''}"


def foreach_batch(
    chain: ChainLike,
    sink: Sink | Callable[[DataFrame, int], Any],
    *,
    checkpoint: str | os.PathLike[str],
    transform: Callable[[DataFrame, int], DataFrame] | None = None,
    dead_letters: Sink | Callable[[DataFrame, int], Any] | None = None,
    audit_reports: Sink | Callable[[DataFrame, int], Any] | None = None,
    value: DataType | str | None = None,
    key: DataType | str | None = None,
    verified: bool = False,
    job: str | None = None,
    cluster_id: str | None = None,
    window_batches: int = 100,
    window_ms: int | None = None,
    discard_waiting: bool = False,
    on_progress: Callable[[BatchProgress], Any] | None = None,
    dead_letter_topic: str = "{topic}.dead-letter",
    dead_letter_headers: Literal["connect", "spring", "headerware"] = "connect",
) -> ForeachBatch:
    """Return the function for ``writeStream.foreachBatch``.

    It decodes the rows of each batch, passes the decoded frame to ``transform`` and the result to the sink.
    The decoded frame has the connector's columns and ``source``, a struct of topic, partition and offset:
    keep this column, so that the sink recognizes each row in a replay. docs/spark.md says what is guaranteed
    when the driver or a task dies.

    Args:
        chain: the chain that reads: a :class:`Chain`, a flat configuration, or the path of a TOML file.
        sink: :func:`kafka_sink`, :func:`table_sink`, :func:`writer_sink`, or a function of frame and batch
            id.
        checkpoint: the query's checkpoint folder, the same as its ``checkpointLocation``: the ledger is below
            it, in ``headerware/<query id>``. With any other folder, the query fails before anything is
            written.
        transform: takes the decoded frame and the batch's number, and returns the frame to write.
        dead_letters: a sink for the dead letters of rows that a chain refuses, such as
            ``kafka_sink({"kafka.bootstrap.servers": ...})``. Without one a refused row fails the query.
        audit_reports: with ``audit`` in the chain: a sink for its reports, such as
            ``kafka_sink({"kafka.bootstrap.servers": ...})``. They have the columns topic, key and value.
        value: the type of the column ``value`` where the chain deserializes; see :func:`decode`.
        key: the type of the column ``key``, likewise.
        verified: whether to add a column ``verified``; see :func:`decode`.
        job: the name of this job in trails; None takes Spark's application name.
        cluster_id: the id of the cluster that is read from, for signatures; None takes the id that
            :func:`kafka_source` asked for, and an empty text means that it is unknown.
        window_batches: with ``dedup`` in the chain: how many batches back repeats are found.
        window_ms: how far back repeats are found in milliseconds, if that is less.
        discard_waiting: with a chain that no longer has ``slice``: forget the slices that still wait.
        on_progress: called on the driver when a batch is done.
        dead_letter_topic: the topic of dead letters; ``{topic}`` is the row's own.
        dead_letter_headers: the names of the headers with the reason: Connect's, Spring's or ours.

    Raises:
        ConfigError: the chain, a sink or an option is wrong.
        MissingPartError: the chain has ``lineage``, and openlineage-python is not installed.
    """
    loaded = chain_source(chain, "foreach_batch")
    if not os.fspath(checkpoint):
        raise ConfigError("expected a folder, found an empty text", path="checkpoint")
    if window_batches < 0 or (window_ms or 0) < 0:
        wrong = "window_batches" if window_batches < 0 else "window_ms"
        raise ConfigError("expected 0 or more", path=wrong)
    if getattr(dead_letters, "has_chain", False):
        raise ConfigError(
            "a dead letter is written unchanged, with headers that a chain refuses; give a kafka_sink "
            "without a chain",
            path="dead_letters",
        )
    _check_audit_reports(loaded.chain, audit_reports)
    return ForeachBatch(
        _ReadChain(loaded, value, key, verified),
        sink_of(sink, "sink"),
        checkpoint=os.fspath(checkpoint),
        transform=transform,
        dead_letters=None if dead_letters is None else sink_of(dead_letters, "dead_letters"),
        audit_reports=None if audit_reports is None else sink_of(audit_reports, "audit_reports"),
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


def _check_audit_reports(chain: Chain, sink: Any) -> None:
    """Raise ConfigError if no sink takes the reports of ``audit``, or if it has a chain."""
    topics = _report_topics(chain)
    if topics and sink is None:
        raise ConfigError(
            f"the chain has 'audit', whose reports go to topic {topics[0]}; give a sink for them, such as "
            'audit_reports=kafka_sink({"kafka.bootstrap.servers": ...})',
            path="audit_reports",
        )
    if sink is not None and not topics:
        _log.warning("audit_reports: the chain that reads has no 'audit', so there are no reports")
    if getattr(sink, "has_chain", False):
        raise ConfigError(
            "a report is written unchanged, for the readers of the audit; give a kafka_sink without a chain",
            path="audit_reports",
        )


def _has(kind: type[object] | UnionType, chain: Chain) -> bool:
    return any(isinstance(step, kind) for step in chain)


def _report_topics(chain: Chain) -> list[str]:
    return [step.audit_topic for step in chain if isinstance(step, Audit) and step.audit_topic is not None]


class _Metadata(msgspec.Struct):
    """The file ``metadata`` in a query's checkpoint, which Spark writes."""

    id: str


class _Query(NamedTuple):
    """The query that calls the function."""

    id: str
    checkpoint: Storage
    ledger: Ledger


class _ReadChain(NamedTuple):
    """The chain that reads, and the types of its columns."""

    loaded: LoadedChain
    value: DataType | str | None
    key: DataType | str | None
    verified: bool


class ForeachBatch:
    """The function that Spark calls with each micro-batch; made by :func:`foreach_batch`.

    ``progress`` is the result of the last batch. The function serves one query, whose batches come one
    at a time. With Spark Connect a copy of the function runs next to the server's driver, so ``progress`` of
    this one remains None; ``on_progress`` is called there.
    """

    def __init__(
        self,
        reading: _ReadChain,
        sink: Sink,
        *,
        checkpoint: str,
        transform: Callable[[DataFrame, int], DataFrame] | None,
        dead_letters: Sink | None,
        audit_reports: Sink | None,
        job: str | None,
        cluster_id: str | None,
        dead_letter_options: dict[str, Any],
        window: tuple[int, int | None],
        discard_waiting: bool,
        on_progress: Callable[[BatchProgress], Any] | None,
    ) -> None:
        self.progress: BatchProgress | None = None
        self._reading = reading
        self._sink = sink
        self._checkpoint = checkpoint
        self._transform = transform
        self._dead_letters = dead_letters
        self._audit_reports = audit_reports
        self._observers: Observers | None = None
        self._job = job
        self._given_cluster_id = cluster_id
        self._cluster_id: str | None = None
        self._dead_letter_routes = dead_letter_options
        self._window = window
        self._discard_waiting = discard_waiting
        self._on_progress = on_progress
        self._query: _Query | None = None
        self._accumulators: tuple[Any, QueryAccumulators] | None = None
        self._lineage = _query_lineage(reading.loaded.chain)

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Process one batch; an error fails the query, which then replays the batch.

        Raises:
            TaskError: a task failed and said why, for instance because the chain refused a row.
        """
        try:
            self._run(frame, batch_id)
        except spark_errors() as error:
            reason = reason_of(error)
            if reason is None:
                raise
            raise TaskError(f"batch {batch_id}: {reason}") from None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what belongs to a query that runs: Spark Connect sends the function before it starts."""
        kept = dict.fromkeys(("progress", "_observers", "_query", "_accumulators", "_lineage"))
        return {**self.__dict__, **kept}

    def _run(self, frame: DataFrame, batch_id: int) -> None:
        spark = frame.sparkSession
        driver = driver_of(spark)
        job = self._job or driver.app_name()
        try:
            running = driver.running_queries()
            if self._query is None or self._query.id not in running:
                self._query = self._begun(frame, running, job)
        except HeaderwareError as error:  # its message says all, and Spark prints a traceback three times
            raise error.with_traceback(None) from None
        query_id, ledger = self._query.id, self._query.ledger
        offsets = _end_offsets(self._query.checkpoint, batch_id)
        if ledger.is_committed(batch_id, offsets):
            _log.info("batch %d of %s was written before; skipping it", batch_id, query_id)
            self._report(BatchProgress(batch=batch_id, query_id=query_id, skipped=True))
            return
        batch = Batch(
            spark,
            id=batch_id,
            query_id=query_id,
            job=job,
            dead_letters=self._dead_letters,
            dead_letter_options=self._dead_letter_routes,
            accumulators=self._reset_accumulators(spark),
        )
        try:
            progress = self._process(frame, batch, ledger, offsets)
        finally:
            batch.release()
        if self._lineage is not None:
            written = getattr(self._sink, "written", None)
            read = progress.decoded.get("topics", {})
            self._lineage.report(
                spark,
                query_id,
                job=batch.job,
                read=read,
                written={} if written is None else written(batch),
            )
        self._report(progress)

    def _process(self, frame: DataFrame, batch: Batch, ledger: Ledger, offsets: str | None) -> BatchProgress:
        fingerprint = self._reading.loaded.source.fingerprint
        attempt = ledger.begin(batch.id, chain=fingerprint, now_ms=wall_clock_ms(), offsets=offsets)
        batch.is_replay = attempt.replay
        if attempt.previous_chain not in {None, fingerprint}:
            _log.info("the chain has changed; the new chain is used from batch %d on", batch.id)
        plan = self._plan(frame)
        spec = plan.task_spec(job=batch.job, cluster_id=self._cluster_id, **self._dead_letter_routes)
        counts = _has(Audit | Metrics, self._reading.loaded.chain)
        stages = _DecodeStages(plan, spec, batch, ledger, attempt.now_ms, counts=counts)
        found = stages.decoded(frame, discard_waiting=self._discard_waiting)
        with ExitStack() as stack:
            if stages.is_traced:
                batch.carrier = stack.enter_context(stages.span(found))
            self._write(found, batch, stages)
        observers = self._observers
        assert observers is not None  # noqa: S101 - the ledger is open
        self._report_audit(observers, batch, attempt.now_ms)
        ledger.commit(batch.id)
        observers.done(batch.decoded.counts)
        tell_done(self._sink, batch)
        return BatchProgress(
            batch=batch.id,
            query_id=batch.query_id,
            replay=attempt.replay,
            waiting=found.waiting,
            decoded=_shown(batch.decoded),
            encoded=_shown(batch.encoded),
        )

    def _write(self, found: _DecodedBatch, batch: Batch, stages: _DecodeStages) -> None:
        clean = found.frame
        if self._dead_letters is not None:
            clean, dead_letters = split_failures(clean)
            if found.letter_topics:
                batch.publish_dead_letters(dead_letters, found.letter_topics)
        clean = stages.deduplicated(clean, found.identities).drop(*_OWN)
        if found.uncomputed is not None:
            batch.uncomputed = found.uncomputed._replace(frame=clean)
        with batch.described("write"):
            written = clean if self._transform is None else self._transform_frame(clean, batch.id)
            self._sink.write(written, batch)

    def _report_audit(self, observers: Observers, batch: Batch, now_ms: int) -> None:
        """Write the audit reports of a batch, before its commit, so that a replay writes them again."""
        rows = observers.reports(
            batch.decoded.counts, query_id=batch.query_id, batch_id=batch.id, now_ms=now_ms
        )
        if rows and self._audit_reports is not None:
            reports = batch.spark.createDataFrame(rows, REPORT_COLUMNS).coalesce(1)
            with batch.described("audit reports"):
                self._audit_reports.write(reports, batch)

    def _transform_frame(self, clean: DataFrame, batch_id: int) -> DataFrame:
        assert self._transform is not None  # noqa: S101 - the caller checked it
        given = self._transform(clean, batch_id)
        if not hasattr(given, "sparkSession"):
            raise ConfigError(
                f"expected a function that returns a DataFrame, found {type(given).__name__}; to write in "
                "the function itself, pass it as the sink",
                path="transform",
            )
        return given

    def _plan(self, frame: DataFrame) -> DecodePlan:
        reading = self._reading
        require_free(frame, {"source"})
        failures: Literal["fail", "route"] = "fail" if self._dead_letters is None else "route"
        return DecodePlan(
            frame,
            *reading.loaded,
            value=reading.value,
            key=reading.key,
            verified=reading.verified,
            failures=failures,
        )

    def _reset_accumulators(self, spark: SparkSession) -> QueryAccumulators:
        """Return the query's accumulators, at 0; pyspark keeps each for ever, so all batches share them."""
        context = driver_of(spark).context
        if self._accumulators is None or self._accumulators[0] is not context:
            self._accumulators = (context, QueryAccumulators.of(spark))
        for accumulator in self._accumulators[1]:
            accumulator.clear()
        return self._accumulators[1]

    def _begun(self, frame: DataFrame, running: Collection[str], job: str) -> _Query:
        """Open the ledger of the query that runs, after a check of what the query needs before it writes."""
        spark = frame.sparkSession
        checkpoint = Storage(spark, self._checkpoint)
        query_id = _query_of(checkpoint, running)
        chain = self._reading.loaded.chain
        if _has(Lineage, chain):
            what = "lineage: the end of the query"
            require_classic(frame, what, "use a classic session, or take the step out of this chain")
        if _report_topics(chain) and speculates(spark):
            raise ConfigError(_SPECULATES, path="spark.speculation")
        for path, sink, topics in (
            ("sink", self._sink, ()),
            ("dead_letters", self._dead_letters, ()),
            ("audit_reports", self._audit_reports, _report_topics(chain)),
        ):
            if sink is not None:
                prepare(sink, spark, topics, path)
        self._observers = Observers(chain, "consumer", job)
        warn_of_other_topics(chain, Origin.of(frame).topics)
        self._cluster_id = cluster_of(frame, chain, self._given_cluster_id)
        batches, time_ms = self._window
        ledger = Ledger.open(spark, self._checkpoint, query_id, window_batches=batches, window_ms=time_ms)
        return _Query(query_id, checkpoint, ledger)

    def _report(self, progress: BatchProgress) -> None:
        self.progress = progress
        if self._on_progress is not None:
            self._on_progress(progress)


class _DecodedBatch(NamedTuple):
    """A decoded batch: all rows except waiting ones, and counts of the rows."""

    frame: DataFrame
    records: int = 0
    waiting: int = 0
    letter_topics: frozenset[str] = frozenset()
    """The topics of dead letters."""
    identities: int = 0
    """The number of rows with an identity."""
    topics: tuple[str, ...] = ()
    uncomputed: Decoded | None = None
    """The source of the frame, if the sink may decode and encode it in one pass."""


class _Counts(NamedTuple):
    """Counts of decoded rows."""

    by_status: Mapping[Status | None, int]
    topics: tuple[str, ...]
    letter_topics: frozenset[str]
    identities: int
    partitions: int
    """The number of Kafka partitions that have slices."""
    is_split: bool
    """Whether several tasks have rows of one Kafka partition."""


class _DecodeStages:
    """The stages of decoding one batch, each called once, in this order."""

    def __init__(
        self, plan: DecodePlan, spec: TaskSpec, batch: Batch, ledger: Ledger, now_ms: int, *, counts: bool
    ) -> None:
        self._plan = plan
        self._batch = batch
        self._ledger = ledger
        self._now_ms = now_ms
        self.is_traced: Final[bool] = is_traced()
        self._reads_twice = self._must_read_twice(counts=counts)
        uncounted = batch.decoded.by_row and not self._reads_twice
        self.accumulator: Final = NoCounts() if uncounted else batch.decoded
        schema = with_status(with_columns(plan.schema, source=SOURCE), typed=bool(plan.typed))
        schema = with_counts(schema) if self.accumulator.by_row else schema
        self._spec = spec.replace(schema=schema.json())

    def decoded(self, frame: DataFrame, *, discard_waiting: bool) -> _DecodedBatch:
        """Decode a batch, and leave the slices of incomplete messages in the ledger.

        If slices wait although the chain no longer has ``slice``, discard them if allowed, else raise.
        """
        # Rows that are not from Kafka have no position; a chain that needs positions has refused them by now.
        has_position = {"partition", "offset"} <= set(frame.columns)
        position = F.struct("topic", "partition", "offset") if has_position else F.lit(None).cast(SOURCE)
        read = frame.withColumn("source", position)
        reassembles = self._plan.reassembles
        decoded = self._plan.decoded(read, self._spec, self.accumulator.pickled, reassembles=reassembles)
        alone = decoded.frame
        carried = self._carried(discard_waiting=discard_waiting)
        if not self._reads_twice:
            return _DecodedBatch(alone, uncomputed=None if self._plan.typed else decoded)
        with self._batch.described("decode"):
            counts = self._count(self._batch.cache(alone))
        found = _DecodedBatch(
            alone.where(_has_status(None, Status.FAILED)),
            records=sum(counts.by_status[status] for status in _RECORDS),
            letter_topics=counts.letter_topics,
            identities=counts.identities,
            topics=counts.topics,
        )
        if carried is None and not counts.by_status[Status.SLICE]:
            return found
        parts = alone.where(_has_status(Status.SLICE, Status.POSITION))
        if carried is None:
            return self._reassembled(parts, counts.partitions if counts.is_split else 0, found)
        # Counting the partitions of the waiting slices would take another job; a core takes several.
        tasks = driver_of(frame.sparkSession).parallelism()
        return self._reassembled(parts.unionByName(carried), tasks, found)

    def span(self, found: _DecodedBatch) -> AbstractContextManager[dict[str, str]]:
        """Make the batch's span, with links to the traces of its records; yield the trace context."""
        attributes = {"messaging.batch.message_count": found.records, "spark.batch.id": self._batch.id}
        return _batch_span(found.topics, self.accumulator.counts.get("traces", ()), attributes)

    def deduplicated(self, frame: DataFrame, identities: int) -> DataFrame:
        """Leave out rows that repeat an identity of this batch or an earlier one, of so many identities."""
        if not self._plan.dedups:
            return frame
        with self._batch.described("find repeats"):
            return self._ledger.identities.fresh(frame, self._batch.id, IDENTITY, count=identities)

    def _must_read_twice(self, *, counts: bool) -> bool:
        """Return whether rows are kept and counted; ``counts`` says that the chain reports counts."""
        plan = self._plan
        if counts and self._batch.decoded.by_row:
            return True
        return plan.reassembles or plan.dedups or self.is_traced or self._batch.dead_letters is not None

    def _count(self, rows: DataFrame) -> _Counts:
        """Count rows, which also computes a cached frame.

        The count uses no groups, because a stream shuffles groups into ``spark.sql.shuffle.partitions``
        tasks.
        """
        topic_partition = F.struct("topic", "partition")
        (found,) = rows.agg(
            *self._numbers(),
            F.collect_set("topic").alias("topics"),
            F.collect_set(_letter_topic(rows)).alias("letter_topics"),
            F.collect_set(F.when(_has_status(Status.SLICE), topic_partition)).alias("with_slices"),
            F.collect_set(F.when(_has_status(Status.POSITION), topic_partition)).alias("read"),
            *self.accumulator.columns(),
        ).collect()
        self.accumulator.read(found)
        by_status, identities = _by_status(found)
        return _Counts(
            by_status,
            tuple(found.topics),
            frozenset(found.letter_topics),
            identities,
            partitions=len(found.with_slices),
            # each task reports the partitions that it read
            is_split=len(found.read) < by_status[Status.POSITION],
        )

    def _numbers(self) -> list[Any]:
        """Return columns that count the rows of each status, and the good rows with an identity."""
        identity = F.col(IDENTITY) if self._plan.dedups else F.lit(None)
        with_identity = F.when(_has_status(None) & F.col("source").isNotNull(), identity)
        numbers = {str(status): F.count(F.when(_has_status(status), 1)) for status in _STATUSES}
        numbers[_IDENTITIES] = F.count(with_identity)
        return [number.alias(name) for name, number in numbers.items()]

    def _carried(self, *, discard_waiting: bool) -> DataFrame | None:
        schema = struct_from_json(self._spec.schema)
        if self._plan.reassembles:
            return self._ledger.carried(self._batch.id, like=schema)
        if self._ledger.carried(self._batch.id) is None:
            return None
        if not discard_waiting:
            raise ConfigError(
                "slices wait in the ledger, and the chain has no 'slice' now; put the step back until these "
                "slices are reassembled, or pass discard_waiting=True to drop them",
                path="chain",
            )
        self._ledger.leave(self._batch.id, None)
        return None

    def _reassembled(self, parts: DataFrame, tasks: int, found: _DecodedBatch) -> _DecodedBatch:
        options = ReassemblyOptions(batch_ms=self._now_ms, incomplete="carry")
        reassembled = self._batch.cache(
            self._plan.reassembled(parts, self._spec, options, self.accumulator.pickled, tasks=tasks)
        )
        with self._batch.described("reassemble"):
            counted = Observation()
            columns = (*self._numbers(), *self.accumulator.columns())
            left = reassembled.observe(counted, *columns).where(_has_status(Status.SLICE)).drop(COUNTS)
            self._ledger.leave(self._batch.id, left)  # computes all rows
            self.accumulator.read(counted.get)
            by_status, identities = _by_status(counted.get)
            if not by_status[Status.SLICE]:
                self._ledger.leave(self._batch.id, None)
            letter_topics = found.letter_topics
            if by_status[Status.FAILED]:
                ((topics,),) = reassembled.agg(F.collect_set(_letter_topic(reassembled))).collect()
                letter_topics |= set(topics)
        return found._replace(
            frame=found.frame.unionByName(reassembled.where(_has_status(None, Status.FAILED))),
            waiting=by_status[Status.SLICE],
            letter_topics=letter_topics,
            identities=found.identities + identities,
        )


def _query_of(checkpoint: Storage, running: Collection[str]) -> str:
    """Return the id of the query whose checkpoint a folder is, and which is one of those that run.

    Spark writes the id into the checkpoint as the query starts for the first time.
    """
    if not running:
        raise ConfigError(_NO_QUERY)
    found = checkpoint.read_text(_METADATA) if checkpoint.exists(_METADATA) else None
    with suppress(msgspec.MsgspecError):  # a file of another program
        query_id = None if found is None else msgspec.json.decode(found, type=_Metadata).id
        if query_id is not None and query_id in running:
            return query_id
    whose = "no query has its checkpoint there" if found is None else "its file metadata is not this query's"
    raise ConfigError(
        f"expected the folder of this query's checkpoint, found {checkpoint.path()}, and {whose}; give "
        f'checkpoint= and .option("checkpointLocation", ...) the same folder',
        path="checkpoint",
    )


def _has_status(*statuses: Status | None) -> Any:
    column = F.col(STATUS)
    condition = column.isin([int(status) for status in statuses if status is not None])
    return column.isNull() | condition if None in statuses else condition


def _by_status(numbers: Any) -> tuple[dict[Status | None, int], int]:
    """Return the numbers of rows by status, and of identities, from the columns of ``_numbers``."""
    return {status: numbers[str(status)] for status in _STATUSES}, numbers[_IDENTITIES]


def _letter_topic(rows: DataFrame) -> Any:
    """Return the column of the topics to which refused rows go, null for other rows."""
    return F.col("failure.topic") if "failure" in rows.columns else F.lit(None).cast("string")


def _end_offsets(checkpoint: Storage, batch: int) -> str | None:
    """Return a fingerprint of the end offsets of a batch, which only a replay repeats.

    It is 16 hexadecimal digits over the offsets that Spark writes into its checkpoint before the batch: a
    line for each source, after a line with the version and one with the batch's time. Return None if a
    release of Spark keeps its offsets elsewhere.
    """
    name = f"offsets/{batch}"
    if not checkpoint.exists(name):
        return None
    _, _, *offsets = checkpoint.read_text(name).split("\n")
    return hashlib.sha256("\n".join(offsets).encode()).hexdigest()[:16]


@contextmanager
def _batch_span(
    topics: Iterable[str], traces: Iterable[str], attributes: Mapping[str, str | int]
) -> Iterator[dict[str, str]]:
    """Make a batch's span (OpenTelemetry's messaging conventions), and yield its context as headers.

    A single topic names the span; ``traces``, the ``traceparent`` headers of records, become links.
    """
    names = sorted(set(topics))
    destination = {"messaging.destination.name": names[0]} if len(names) == 1 else {}
    links = [trace.Link(context) for context in map(_span_context, traces) if context.is_valid]
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


def _span_context(traceparent: str) -> trace.SpanContext:
    context = _W3C.extract({"traceparent": traceparent}, Context())
    return trace.get_current_span(context).get_span_context()


def _query_lineage(chain: Any) -> QueryLineage | None:
    """Return the reporter of lineage, or None; only ``lineage`` in the chain needs OpenLineage's client."""
    found = next((step for step in chain if isinstance(step, Lineage)), None)
    if found is None:
        return None
    from headerware.spark_bridge.batches.lineage import query_lineage  # noqa: PLC0415 - it may not be there

    return query_lineage(found)


def _shown(accumulator: CountsAccumulator | RowCounts | NoCounts) -> dict[str, Any]:
    return {name: value for name, value in accumulator.counts.items() if name not in _INTERNAL}
