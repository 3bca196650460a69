"""Copy a topic by the worker's rules in a batch job, for a topic that is too large for one process.

The job has the rules of the worker (``headerware.ops.compaction``), so both keep the same records, in the
same order. Spark's Python workers judge each record by its key, time and headers; they get values only if a
chain verifies records. The result is a row of a hundred bytes for each record, which is cached for the rest
of the job. From these rows the job chooses the records, and only the chosen records are fetched and shuffled.

Spark's sink has no transactions, and sets no times. So the tasks write by themselves, one task for each
partition, in transactions that also hold the progress: see ``headerware.ops.compaction.job``.
"""

from __future__ import annotations

import json
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaException
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from headerware.core.context import wall_clock_ms
from headerware.core.errors import ConfigError, HeaderwareError
from headerware.ops.compaction.rules import OLDEST, CopyRule, Lost
from headerware.ops.compaction.worker import Compaction, CompactionResult
from headerware.spark_bridge.admin import KafkaAdmin, admin_settings
from headerware.spark_bridge.chain_source import ChainLike, chain_source
from headerware.spark_bridge.driver import require_classic
from headerware.spark_bridge.executors.compaction import (
    JUDGED,
    REPEATED,
    VERDICTS,
    WRITTEN,
    Judging,
    Writing,
)
from headerware.spark_bridge.executors.shipping import shipped
from headerware.spark_bridge.origin import kafka_source
from headerware.spark_bridge.session import speculates

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame, SparkSession


_EXECUTOR: Final = "headerware.spark_bridge.executors.compaction"
_JUDGE: Final = f"{_EXECUTOR}:judge_records"
_JUDGE_MESSAGES: Final = f"{_EXECUTOR}:judge_messages"
_WRITE: Final = f"{_EXECUTOR}:write_records"
_VERDICTS: Final = [field.split()[0] for field in VERDICTS.split(", ")]
_POSITION: Final = ["partition", "offset"]
_COPY: Final = -1
"""The offset of records of the target, before all offsets of the source."""
_TASK_RECORDS: Final = 500_000
"""How many records one task compares. Spark's own number of tasks does not depend on the records, and is
fixed where the result is cached."""
_PLAIN: Final = "PLAINTEXT"
_SPECULATES: Final = (
    "expected false for a job that writes, found true: Spark would run slow tasks twice, and each attempt "
    "would end the transactions of the other; start the job with --conf spark.speculation=false"
)
_READ_OPTIONS: Final = ("subscribe", "assign", "starting", "ending", "failondataloss")
"""The prefixes of options that choose topics and offsets, or allow lost records."""


def copy_topic(
    spark: SparkSession,
    options: Mapping[str, Any],
    source: str,
    target: str,
    rule: CopyRule,
    *,
    side_topic: str | None = None,
    chain: ChainLike | None = None,
    conf: Mapping[str, Any] | None = None,
    group_id: str | None = None,
    execute: bool = False,
) -> CompactionResult:
    """Copy the records that a rule keeps: the highest version of each key, or records that have not expired.

    The job does the work of ``headerware compact`` or ``headerware retain --into`` for the records that the
    source has at the start. It shares the group of these workers: it begins where the worker or the last job
    has ended. The job fences a running worker, and its mark in the group's offsets keeps workers from
    starting until the job has ended. Each record goes unchanged into the same partition, in order. No record
    is copied twice, even if a task or the driver is killed. If the driver is killed, run the job again.

    Args:
        spark: the session.
        options: options of Spark's Kafka source, such as ``kafka.bootstrap.servers``; options that choose
            what is read, such as ``startingTimestamp`` and ``failOnDataLoss``, are ignored.
        source: the topic that is read; it is not changed.
        target: the topic that is written, with as many partitions; no other program writes to it.
        rule: the rule: a ``Rule`` of ``headerware.ops.compaction``, or a ``RetentionRule`` of
            ``headerware.ops.retention.rules``.
        side_topic: the topic for unresolved records; without it they go into the target.
        chain: a chain with ``sign``; records that it does not verify are unresolved, or are kept.
        conf: confluent-kafka's settings for the tasks that write. None takes the addresses in ``options``,
            which is enough for a cluster without authentication.
        group_id: the group whose offsets hold the progress; None takes the worker's group.
        execute: whether to copy; if false, the records that would be copied are only counted.

    Returns:
        the counts, in the form of the worker.

    Raises:
        ConfigError: ``execute`` is true, and the topics do not fit or the session speculates
            (``spark.speculation``); or the session is Spark Connect's.
        HeaderwareError: the group belongs to other work, another job has taken over, or the source ends
            before the group's progress.
        AdminError: the cluster does not answer, or a topic does not exist.
        MissingPartError: the session has no Kafka connector.
        confluent_kafka.KafkaException: the settings are wrong, or the cluster refuses a request.
    """
    require_classic(spark, "copy_topic()", "use a classic session, or the worker: headerware compact")
    if execute and speculates(spark):
        raise ConfigError(_SPECULATES, path="spark.speculation")
    shipped_chain, loaded = (None, None) if chain is None else chain_source(chain)
    conf = _client_settings(options) if conf is None else conf
    work = Compaction(conf, source, target, rule, side_topic=side_topic, chain=loaded, group_id=group_id)
    problems = work.problems(for_job=True)
    if execute and problems:
        raise ConfigError("; ".join(problems))
    job = uuid.uuid4().hex[:12]
    with work, KafkaAdmin(spark, options) as admin:
        begins = admin.begin_offsets([source, target])
        own = {number: begin for (topic, number), begin in begins.items() if topic == source}
        done = work.copied.begin(job, own, admin.fence_producers) if execute else work.copied.positions()
        try:
            ends = admin.end_offsets([source, target], committed=True)
            _require_uncut(source, done, ends)
            judging = Judging(
                topic=source,
                rule=rule.for_topic(source),
                now_ms=wall_clock_ms(),
                compacts="compact" in admin.topic_configs([target])[target]["cleanup.policy"],
                chain=shipped_chain,
                cluster_id=admin.cluster_id(),
            )
            result = CompactionResult(source=source, target=target, executed=execute, problems=problems)
            result.missed = sum(max(0, begin - done.get(number, begin)) for number, begin in own.items())
            # All passes over the source, and a stage that is computed again, see the same records.
            records = _read(spark, options, source, begins, ends)
            copies = _read(spark, options, target, begins, ends)
            judged = _judged(records, judging).persist()
            copied = None if rule.alone else _judged(copies, judging)
            tasks = 1 + sum(ends[each] - begin for each, begin in begins.items()) // _TASK_RECORDS
            before = {number: offset for number, offset in done.items() if offset > own.get(number, 0)}
            outcomes = _outcomes(judged, copied, rule.alone, before, tasks).persist()
            try:
                _count(outcomes, result)
                judged.unpersist()  # the outcomes are cached by now
                if execute and (result.written or result.unresolved):
                    _write(
                        records, outcomes, Writing(copied=work.copied, job=job), target, side_topic or target
                    )
            finally:
                judged.unpersist()
                outcomes.unpersist()
        except BaseException:
            if execute:
                # If this fails, the next job does it.
                with suppress(HeaderwareError, KafkaException):
                    work.copied.end(job, admin.fence_producers)
            raise
        if execute:
            own_ends = {number: end for (topic, number), end in ends.items() if topic == source}
            work.copied.end(job, admin.fence_producers, own_ends)
    return result


def _client_settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a client that writes, from Spark's options."""
    found = admin_settings(options, 0)
    protocol = found.get("security.protocol", _PLAIN)
    if protocol != _PLAIN:
        raise ConfigError(
            f"expected confluent-kafka's settings for the tasks that write, because Java's settings have "
            f"other names and files; found only kafka.security.protocol={protocol}",
            path="conf",
        )
    return {"bootstrap.servers": found["bootstrap.servers"]}


def _require_uncut(source: str, done: Mapping[int, int], ends: Mapping[tuple[str, int], int]) -> None:
    """Raise a HeaderwareError if a partition ends before its progress, as ``Compaction`` does."""
    for number, offset in sorted(done.items()):
        end = ends.get((source, number), offset)
        if offset > end:
            raise HeaderwareError(
                f"{source}[{number}] is done up to offset {offset}, but it ends at {end}: its leader is new "
                f"and does not know its end yet, so start the job again; or records were lost, so begin "
                f"anew, with another group and target"
            )


def _read(
    spark: SparkSession,
    options: Mapping[str, Any],
    topic: str,
    begins: Mapping[tuple[str, int], int],
    ends: Mapping[tuple[str, int], int],
) -> DataFrame:
    """Return the records of a topic between offsets."""

    def offsets(found: Mapping[tuple[str, int], int]) -> str:
        return json.dumps(
            {topic: {str(number): offset for (name, number), offset in found.items() if name == topic}}
        )

    own = {
        "subscribe": topic,
        "startingOffsets": offsets(begins),
        "endingOffsets": offsets(ends),
        "kafka.isolation.level": "read_committed",
    }
    others = {key: value for key, value in options.items() if not key.lower().startswith(_READ_OPTIONS)}
    return kafka_source(spark.read, {**others, **own})


def _judged(frame: DataFrame, judging: Judging) -> DataFrame:
    """Return the judgement of each record by itself."""
    stands_in = F.when(F.col("value").isNotNull(), F.lit(b""))
    taken = frame.select(
        F.lit(judging.topic).alias("topic"),
        *("partition", "offset", "timestamp", "timestampType", "key", "headers"),
        (stands_in if judging.chain is None else F.col("value")).alias("value"),
        F.octet_length("value").alias("value_bytes"),
    )
    return taken.mapInArrow(shipped(_JUDGE, judging), JUDGED)


def _outcomes(
    judged: DataFrame, copies: DataFrame | None, alone: Lost | None, done: Mapping[int, int], tasks: int
) -> DataFrame:
    """Return the outcome of each record that is not done; ``copies`` are the records of the target."""
    slices = judged.where("message IS NOT NULL").repartition(tasks, "partition", "message")
    in_order = slices.sortWithinPartitions("partition", "message", "offset")
    verdicts = judged.where("message IS NULL").select(*_VERDICTS)
    verdicts = verdicts.unionByName(in_order.mapInArrow(shipped(_JUDGE_MESSAGES), VERDICTS))
    outcomes = _by_itself(verdicts, alone) if copies is None else _by_rank(verdicts, copies, tasks)
    if done:
        outcomes = outcomes.where(F.coalesce("at", "offset") >= _by_partition(done))
    return outcomes.select(*_POSITION, "at", "outcome", "why", "size", "tombstone")


def _by_itself(verdicts: DataFrame, alone: Lost | None) -> DataFrame:
    """Return the outcomes of records, each of which is judged alone."""
    why = F.col("why")
    outcome = (
        F.when(F.col("at").isNull() | (why == REPEATED), "waits")
        .when(why.isNull(), "loses")
        .when(why == "kept", "wins")
        .otherwise("unresolved")
    )
    outcomes = verdicts.withColumn("outcome", outcome)
    unresolved = F.when(F.col("outcome") == "unresolved", why)
    return outcomes.withColumn("why", F.when(F.col("outcome") == "loses", alone).otherwise(unresolved))


def _by_rank(verdicts: DataFrame, copies: DataFrame, tasks: int) -> DataFrame:
    """Return the outcomes of records, of which one for each key is kept."""
    # In a message in slices, the first slice has key and version.
    copied = copies.where("number = 0").withColumn("at", F.lit(_COPY).cast("long")).select(*_VERDICTS)
    # The digest of a key depends on its partition, too.
    keyed = verdicts.unionByName(copied).where("digest IS NOT NULL").repartition(tasks, "digest")
    best = F.max(F.struct("version", "at")).over(Window.partitionBy("digest"))
    ranked = keyed.withColumn("best", best).where(F.col("at") != _COPY)
    lost = (
        F.when(F.col("version") == F.col("best.version"), "tie")
        .when(F.col("version") == F.lit(OLDEST), "no_version")
        .otherwise("older")
    )
    wins = F.col("at") == F.col("best.at")
    ranked = ranked.withColumn("outcome", F.when(wins, "wins").otherwise("loses"))
    ranked = ranked.withColumn("why", F.when(~wins, lost)).drop("best")
    others = verdicts.where("digest IS NULL")
    waits = F.col("at").isNull() | (F.col("why") == REPEATED)
    return ranked.unionByName(others.withColumn("outcome", F.when(waits, "waits").otherwise("unresolved")))


def _by_partition(offsets: Mapping[int, int]) -> Column:
    """Return an offset by the column ``partition``; 0 for a partition that is not listed."""
    (first, at), *others = offsets.items()
    found = F.when(F.col("partition") == first, at)
    for number, offset in others:
        found = found.when(F.col("partition") == number, offset)
    return found.otherwise(0)


def _count(outcomes: DataFrame, result: CompactionResult) -> None:
    """Add the outcomes to the result."""
    sums = outcomes.groupBy("outcome", "why").agg(
        F.count("*").alias("records"),
        F.sum("size").alias("size"),
        F.sum(F.col("tombstone").cast("long")).alias("tombstones"),
    )
    for outcome, why, records, size, tombstones in sums.collect():
        result.records += records
        result.size_bytes += 0 if why == "unreadable" else size
        if outcome == "wins":
            result.written, result.written_bytes, result.tombstones = records, size, tombstones
        elif outcome == "unresolved":
            result.unresolved[why] = records
        elif outcome == "loses":
            result.lost[why] = records
        else:
            result.waiting += records


def _write(records: DataFrame, outcomes: DataFrame, writing: Writing, target: str, side_topic: str) -> None:
    """Write records unchanged, each partition by one task.

    A message in slices takes the offset of its last slice; its slices keep their order.
    """
    topic = F.when(F.col("outcome") == "wins", target).otherwise(side_topic).alias("topic")
    chosen = outcomes.where("outcome = 'wins' OR outcome = 'unresolved' AND why != 'unreadable'")
    columns = ("key", "value", "headers", "timestamp", "timestampType")
    rows = records.select(*_POSITION, *columns).join(chosen.select(*_POSITION, "at", topic), _POSITION)
    in_order = rows.repartition("partition").sortWithinPartitions("partition", "at", "offset")
    in_order.mapInArrow(shipped(_WRITE, writing), WRITTEN).collect()
