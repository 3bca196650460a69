"""The sinks of a batch: Kafka through a chain, any DataFrameWriter, or a function."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from headerware.core.errors import ConfigError
from headerware.core.hooks import Place
from headerware.core.order import place_of
from headerware.interceptors.lineage import Lineage
from headerware.interceptors.lineage.jobs import Dataset, kafka_namespace
from headerware.interceptors.metrics import Metrics
from headerware.spark_bridge.admin import KafkaAdmin
from headerware.spark_bridge.batches.observers import Observers
from headerware.spark_bridge.chain_source import ChainLike, chain_source, has_step, log
from headerware.spark_bridge.driver import described, spark_errors
from headerware.spark_bridge.encoding import EncodePlan, warn_of_idle_identity
from headerware.spark_bridge.failures import split_failures
from headerware.spark_bridge.origin import warn_of_other_topics
from headerware.spark_bridge.session import speculates

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

    from headerware.spark_bridge.decoding import Decoded
    from headerware.spark_bridge.executors.counts import QueryAccumulators


_COLUMNS: Final = ("topic", "key", "value", "headers", "partition")
_TWICE: Final = (
    "kafka_sink: spark.speculation is true, and no 'dedup' in the chain that writes gives rows identities: a "
    "task that Spark runs twice writes its rows twice, and readers get both"
)
_JAVA_MAX_BYTES: Final = 1_048_576
_UNMEASURED: Final = (
    "kafka_sink: 'metrics' in the chain that writes measures nothing, because Spark Connect has no "
    "accumulators; put the step into the chain that reads"
)
_MISSING: Final = re.compile(r"Topic (\S+) not present in metadata")
"""The error of Kafka's producer after it has waited for a topic that does not exist."""


class Batch:
    """The batch that a sink writes; without a sink for dead letters, refused rows fail the query."""

    def __init__(
        self,
        spark: SparkSession,
        *,
        id: int,  # noqa: A002 - Spark's name
        query_id: str,
        job: str,
        dead_letters: Any = None,
        dead_letter_options: Mapping[str, Any] | None = None,
        accumulators: QueryAccumulators,
    ) -> None:
        self.spark = spark
        self.id = id
        self.query_id = query_id
        self.job = job
        self.dead_letters: Any = dead_letters
        self.dead_letter_options: Mapping[str, Any] = dead_letter_options or {}
        self.carrier: dict[str, str] = {}
        """The trace context of the batch, as headers."""
        self.decoded: Final = accumulators.decoded
        self.encoded: Final = accumulators.encoded
        self.uncomputed: Decoded | None = None
        """The decoded frame, if it is not computed yet, for a sink that encodes it in the same pass."""
        self.is_replay = False
        """Whether the batch was begun before, and not finished."""
        self._work: list[str] = []
        self._cached: list[DataFrame] = []

    @property
    def output(self) -> str:
        """The name of what is written now, the same in a replay: the query's id, and the work."""
        return "/".join([self.query_id, *self._work])

    def cache(self, frame: DataFrame) -> DataFrame:
        """Keep a frame that is read more than once, until the batch is done."""
        self._cached.append(frame.persist())
        return frame

    @contextmanager
    def described(self, work: str) -> Iterator[None]:
        """Describe the jobs of a block, for Spark's pages and listeners: ``orders, batch 17: write``."""
        self._work.append(work)
        try:
            with described(self.spark, f"{self.job}, batch {self.id}: {work}"):
                yield
        finally:
            self._work.pop()

    def publish_dead_letters(self, dead_letters: DataFrame, topics: Collection[str] | None = None) -> None:
        """Write dead letters, if there are any; if their topics are not known, the frame is read twice."""
        if self.dead_letters is None:
            raise ConfigError("the query has no sink for dead letters", path="dead_letters")
        with self.described("dead letters"):
            if topics is None:
                ((topics,),) = dead_letters.agg(F.collect_set("topic")).collect()
            if not topics:
                return
            sink, self.dead_letters = self.dead_letters, None
            try:
                prepare(sink, self.spark, topics, "dead_letters")
                sink.write(dead_letters, self)  # a dead letter that is refused fails the query
            finally:
                self.dead_letters = sink

    def release(self) -> None:
        """Release the frames that were kept."""
        while self._cached:
            self._cached.pop().unpersist()


class Sink(Protocol):
    """A sink takes the rows of a batch; it is called on the driver, once a batch, and again in a replay."""

    def write(self, frame: DataFrame, batch: Batch) -> None:
        """Write the rows; an error fails the query."""


def kafka_sink(
    options: Mapping[str, Any],
    chain: ChainLike | None = None,
    *,
    identity: Collection[str] | None = None,
    cluster_id: str | None = None,
    partition_counts: Mapping[str, int] | None = None,
) -> Sink:
    """Write to Kafka, with headers, through the sending half of a chain.

    The connector cannot set timestamps: records get the time of writing.

    Args:
        options: options of Spark's Kafka sink, such as ``kafka.bootstrap.servers`` and ``topic``; with
            ``topic``, all rows go to this topic.
        chain: the chain; None writes rows as they are.
        identity: with ``dedup`` in the chain: the columns that identify a row within its batch, and are
            the same in a replay. None takes the position at which the row was read, its column ``source``.
        cluster_id: the cluster's id, for signatures; None asks the cluster, and an empty text means no id.
        partition_counts: the number of partitions by topic, for messages in slices without a key; None asks
            the cluster.

    Raises:
        ConfigError: ``kafka.bootstrap.servers`` is missing, or the chain is wrong. The query fails
            with ConfigError, before anything is written, if ``topic`` does not exist.
    """
    return _KafkaSink(
        dict(options), chain, identity=identity, cluster_id=cluster_id, partition_counts=partition_counts
    )


def writer_sink(write: Callable[[DataFrameWriter, Batch], Any]) -> Sink:
    """Write through any DataFrameWriter.

    A batch may be replayed: write each batch to a folder of its own, and overwrite it::

        writer_sink(lambda writer, batch: writer.mode("overwrite").parquet(f"{path}/batch={batch.id}"))

    :func:`table_sink` appends to Delta and Iceberg tables.

    Args:
        write: takes the writer and the batch, and saves.
    """
    return _WriterSink(write)


def sink_of(sink: Sink | Callable[[DataFrame, int], Any], name: str) -> Sink:
    """Return the sink; make one of a function of frame and batch id."""
    if hasattr(sink, "write"):
        return sink
    if callable(sink):
        return _FunctionSink(sink)
    raise ConfigError(
        f"expected kafka_sink(...), table_sink(...), writer_sink(...) or a function of frame and batch id, "
        f"found {type(sink).__name__}",
        path=name,
    )


def prepare(sink: Sink, spark: SparkSession, topics: Iterable[str], path: str) -> None:
    """Let a sink check the topics that it will write to; ``path`` is the option that names the sink."""
    if isinstance(sink, _KafkaSink):
        sink.require_topics(spark, topics, path)


def tell_done(sink: Sink, batch: Batch) -> None:
    """Tell a sink that a batch is done, so that the sink adds the batch to its metrics."""
    if isinstance(sink, _KafkaSink):
        sink.done(batch)


class _WriterSink:
    def __init__(self, write: Callable[[DataFrameWriter, Batch], Any]) -> None:
        self._write = write

    def write(self, frame: DataFrame, batch: Batch) -> None:
        self._write(frame.write, batch)


class _FunctionSink:
    def __init__(self, function: Callable[[DataFrame, int], Any]) -> None:
        self._function = function

    def write(self, frame: DataFrame, batch: Batch) -> None:
        self._function(frame, batch.id)


class _KafkaSink:
    def __init__(
        self,
        options: dict[str, Any],
        chain: ChainLike | None,
        *,
        identity: Collection[str] | None,
        cluster_id: str | None,
        partition_counts: Mapping[str, int] | None,
    ) -> None:
        if "kafka.bootstrap.servers" not in options:
            raise ConfigError("expected the brokers' addresses, found none", path="kafka.bootstrap.servers")
        self._options = options
        self.topic = options.get("topic")
        self.cluster_options: Final = {name: value for name, value in options.items() if name != "topic"}
        self.has_chain: Final = chain is not None
        self._chain = None if chain is None else chain_source(chain, "kafka_sink")
        self._identity = identity
        warn_of_idle_identity(() if self._chain is None else self._chain[1], identity)
        self._cluster_id = cluster_id
        self._counts = partition_counts
        self._admin: KafkaAdmin | None = None
        self._observers: Observers | None = None
        self._found: set[str] = set()
        """Topics that exist."""
        self._has_warned = False
        if self._chain is not None and self.topic is not None:
            warn_of_other_topics(self._chain[1], (self.topic,))

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what belongs to a query that runs."""
        return {**self.__dict__, "_admin": None, "_observers": None}

    def require_topics(self, spark: SparkSession, topics: Iterable[str] = (), path: str = "sink") -> None:
        """Raise ConfigError if the sink's topic, or without it one of ``topics``, does not exist."""
        wanted = topics if self.topic is None else (self.topic,)
        if unknown := set(wanted) - self._found:
            self._ask(spark).require_topics(sorted(unknown), path=path)
            self._found |= unknown

    def write(self, frame: DataFrame, batch: Batch) -> None:
        self.require_topics(batch.spark)
        self._warn_of_speculation(batch.spark)
        uncomputed = batch.uncomputed
        decoded = uncomputed if uncomputed is not None and uncomputed.frame is frame else None
        if self.topic is not None:
            frame = frame.withColumn("topic", F.lit(self.topic))
        if self._chain is None:
            # A frame with offsets was read from Kafka: its partitions are the source's.
            self._save(frame.drop("partition") if "offset" in frame.columns else frame)
            return
        source, chain = self._chain
        if self._observers is None:
            self._observers = Observers(chain, "producer", batch.job)
            if batch.encoded.pickled is None and any(isinstance(step, Metrics) for step in chain):
                log.warning(_UNMEASURED)
        plan = EncodePlan(
            frame,
            source,
            chain,
            failures="fail" if batch.dead_letters is None else "route",
            identity=self._identity,
            occasion=f"{batch.id}",
        )
        spec = plan.task_spec(
            job=batch.job,
            scope=batch.query_id,
            cluster_id=self._cluster(batch),
            max_message_bytes=int(self._options.get("kafka.max.request.size", _JAVA_MAX_BYTES)),
            **batch.dead_letter_options,
        )
        counts = self._partitions(batch) if _needs_partitions(chain) else {}
        encoded = plan.encoded(
            spec, batch.encoded.pickled, batch.carrier, counts, decoded=decoded, topic=self.topic
        )
        if batch.dead_letters is None:
            self._save(encoded)
            return
        letters = batch.dead_letters
        if isinstance(letters, _KafkaSink) and letters.cluster_options == self.cluster_options:
            self._save(self._with_dead_letters(encoded, letters.topic), self.cluster_options)
            return
        good, dead_letters = split_failures(batch.cache(encoded))
        batch.publish_dead_letters(dead_letters)
        self._save(good)

    def _warn_of_speculation(self, spark: SparkSession) -> None:
        """Log once that tasks may write rows twice, unless rows have identities."""
        if self._has_warned:
            return
        self._has_warned = True
        dedups = self._chain is not None and has_step(self._chain[1], Place.DEDUP)
        if speculates(spark) and not dedups:
            log.warning(_TWICE)

    def done(self, batch: Batch) -> None:
        """Add a finished batch to the metrics."""
        if self._observers is not None:
            self._observers.done(batch.encoded.counts)

    def written(self, batch: Batch) -> Mapping[Dataset, int | None]:
        """Return the topics that a batch was written to: as ``lineage`` counted, else the one topic."""
        steps = () if self._chain is None else self._chain[1]
        counting = next((step for step in steps if isinstance(step, Lineage)), None)
        topics: Mapping[str, int | None] = {} if self.topic is None else {self.topic: None}
        namespace = kafka_namespace(self._options["kafka.bootstrap.servers"])
        if counting is not None:
            topics = batch.encoded.counts.get("topics", {})
            namespace = counting.dataset_namespace or namespace
        return {Dataset(namespace, topic): count for topic, count in topics.items()}

    def _with_dead_letters(self, encoded: DataFrame, letter_topic: str | None) -> DataFrame:
        """Return the rows with their topics, and refused rows as dead letters: one write takes both."""
        refused = F.col("failure").isNotNull()
        letter = {name: F.col(f"failure.{name}") for name in ("topic", "key", "value", "headers")}
        letter["partition"] = F.lit(None)
        good = {name: F.col(name) for name in _COLUMNS}
        if self.topic is not None:
            good["topic"] = F.lit(self.topic)
        if letter_topic is not None:
            letter["topic"] = F.lit(letter_topic)
        return encoded.select(
            *(F.when(refused, letter[name]).otherwise(good[name]).alias(name) for name in _COLUMNS)
        )

    def _save(self, frame: DataFrame, options: Mapping[str, Any] | None = None) -> None:
        columns = [name for name in _COLUMNS if name in frame.columns]
        options = self._options if options is None else options
        try:
            frame.select(*columns).write.format("kafka").options(**options).save()
        except spark_errors() as error:
            if missing := _MISSING.search(str(error)):
                raise ConfigError(
                    f"the cluster has no topic {missing[1]}, to which rows are written; create it",
                    path="sink",
                ) from error
            raise

    def _cluster(self, batch: Batch) -> str | None:
        if self._cluster_id is None:  # must succeed: a signature without the id is valid in any cluster
            self._cluster_id = self._ask(batch.spark).cluster_id()
        return self._cluster_id or None

    def _partitions(self, batch: Batch) -> Mapping[str, int]:
        if self._counts is not None:
            return self._counts
        return self._ask(batch.spark).partition_counts(None if self.topic is None else [self.topic])

    def _ask(self, spark: SparkSession) -> KafkaAdmin:
        if self._admin is None:
            self._admin = KafkaAdmin(spark, self._options)
        return self._admin


def _needs_partitions(chain: Any) -> bool:
    return any(place_of(step) in {Place.SLICE, Place.DEDUP} for step in chain)
