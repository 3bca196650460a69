"""The function for ``writeStream.foreachBatch``: decode, hand over, encode, write, and note what is done."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from headerware.core.context import wall_clock_ms
from headerware.core.errors import ConfigError
from headerware.spark_bridge.batches.batch import Batch, Counter, Counters, Progress
from headerware.spark_bridge.batches.ledger import Ledger
from headerware.spark_bridge.batches.offsets import read_up_to
from headerware.spark_bridge.batches.sinks import Sink, sink_of
from headerware.spark_bridge.batches.stages import Found, Stages
from headerware.spark_bridge.chain_source import ChainLike, chain_source
from headerware.spark_bridge.classic import require_classic
from headerware.spark_bridge.decoding import DecodePlan
from headerware.spark_bridge.failures import split_failures
from headerware.spark_bridge.frames.schema import ARRIVED, IDENTITY, RAW, STATUS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

_log: Final = logging.getLogger("headerware.spark_bridge")
_OWN: Final = (STATUS, ARRIVED, RAW, IDENTITY)
_NO_QUERY: Final = "expected to be called by a streaming query; pass this to writeStream.foreachBatch(...)"


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
        _Reading(source, loaded, value, key),
        sink_of(sink, "sink"),
        checkpoint=os.fspath(checkpoint),
        transform=transform,
        dead_letters=None if dead_letters is None else sink_of(dead_letters, "dead_letters"),
        job=job,
        cluster_id=cluster_id,
        letters={"dead_letter_topic": dead_letter_topic, "dead_letter_headers": dead_letter_headers},
        window=(window_batches, window_ms),
        discard_waiting=discard_waiting,
        on_progress=on_progress,
    )


class _Reading(NamedTuple):
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
        reading: _Reading,
        sink: Sink,
        *,
        checkpoint: str,
        transform: Callable[[DataFrame, int], DataFrame] | None,
        dead_letters: Sink | None,
        job: str | None,
        cluster_id: str | None,
        letters: dict[str, Any],
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
        self._letters = letters
        self._window = window
        self._discard_waiting = discard_waiting
        self._on_progress = on_progress
        self._ledger: tuple[str, Ledger] | None = None
        self._counters: tuple[Any, Counters] | None = None

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
            letters=self._letters,
            counters=self._begun(spark),
        )
        try:
            progress = self._work_on(frame, batch, ledger, offsets)
        finally:
            batch.release()
            ledger.seen.release()
        self._report(progress)

    def _work_on(self, frame: DataFrame, batch: Batch, ledger: Ledger, offsets: str | None) -> Progress:
        fingerprint = self._reading.source.fingerprint
        begun = ledger.begin(batch.id, chain=fingerprint, now_ms=wall_clock_ms(), offsets=offsets)
        if begun.previous_chain not in {None, fingerprint}:
            _log.info("the chain has changed; from batch %d on it is the new one", batch.id)
        plan = self._plan(frame)
        work = plan.work(job=batch.job, cluster_id=self._cluster_id, **self._letters)
        stages = Stages(plan, work, batch, ledger, begun.now_ms)
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
            decoded=_shown(batch.decoded),
            encoded=_shown(batch.encoded),
        )

    def _write(self, found: Found, batch: Batch, stages: Stages) -> None:
        clean = found.frame
        if self._dead_letters is not None:
            clean, letters = split_failures(clean)
            if found.refused is None or found.refused:
                batch.bury(letters)
        clean = stages.unrepeated(clean).drop(*_OWN)
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

    def _begun(self, spark: SparkSession) -> Counters:
        """Return the query's counters, at 0; pyspark keeps every accumulator for ever, so there are two."""
        context = spark.sparkContext
        if self._counters is None or self._counters[0] is not context:
            self._counters = (context, Counters(Counter(spark), Counter(spark)))
        for counter in self._counters[1]:
            counter.clear()
        return self._counters[1]

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


def _shown(counter: Counter) -> dict[str, Any]:
    return {name: value for name, value in counter.counts.items() if name != "traces"}
