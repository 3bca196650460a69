"""Compaction by header as a batch job, for a topic that outgrows one process.

The rules are those of the worker (``headerware.ops.compaction``), so both keep the same records, in the same
order. The workers judge each record by its key, time and headers; values go to them only if a chain is to
verify records. What is known of a record after that has a hundred bytes, and is kept for the rest of the job:
the winners are found among these rows, and only the records that are written are fetched and shuffled.

Spark's sink has no transactions: a task that is tried again writes its records again. So the target is one
that the broker compacts: a winner that comes twice is the last record of its key both times.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import msgspec
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from headerware.core.errors import ConfigError
from headerware.core.printable import counted
from headerware.ops.compaction.rules import OLDEST, Rule
from headerware.ops.compaction.worker import Result
from headerware.spark_bridge.admin import KafkaAdmin
from headerware.spark_bridge.chain_source import ChainLike, chain_source
from headerware.spark_bridge.classic import require_classic
from headerware.spark_bridge.executors.compaction import JUDGED, SETTLED, Judging
from headerware.spark_bridge.executors.shipping import shipped
from headerware.spark_bridge.session import kafka_source

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame, SparkSession

_JUDGE: Final = "headerware.spark_bridge.executors.compaction:judge_records"
_SETTLE: Final = "headerware.spark_bridge.executors.compaction:settle_messages"
_SETTLED: Final = [field.split()[0] for field in SETTLED.split(", ")]
_POSITION: Final = ["partition", "offset"]
_COPY: Final = -1
"""Where records of the target count as standing: before all of the source."""


class CompactedTopic(Result, kw_only=True):
    """What a job has done, or would do.

    Args:
        ends: up to where it has read each partition of the source; the next job's ``since``.
    """

    ends: dict[int, int] = msgspec.field(default_factory=dict)


def compact_topic(
    spark: SparkSession,
    options: Mapping[str, Any],
    source: str,
    target: str,
    rule: Rule,
    *,
    beside: str,
    chain: ChainLike | None = None,
    since: Mapping[int, int] | None = None,
    execute: bool = False,
) -> CompactedTopic:
    """Keep of each key of a topic the record with the highest version, in a copy that the broker compacts.

    It keeps what ``headerware compact`` keeps, of what the source has when the job begins. Each record goes
    into the same partition, in order, with key, value and headers; its time is that of writing, for Spark's
    sink cannot set another. If the job fails, run it again: what it has written comes once more, and changes
    nothing, except that what is left untouched stands in ``beside`` twice.

    Args:
        spark: the session.
        options: of Spark's Kafka source and sink, such as ``kafka.bootstrap.servers``; those that begin with
            ``kafka.`` are for both.
        source: the topic that is read; it is not changed.
        target: the topic that is written, with ``cleanup.policy=compact`` and as many partitions. What it
            has of earlier jobs counts, too; nobody else writes to it.
        rule: where the version of a record stands.
        beside: the topic for what cannot be judged, with as many partitions and without compaction.
        chain: a chain with ``sign``; what it does not verify is left untouched.
        since: where the last job ended, by partition: what was decided before is read, and not written again.
        execute: whether to do it; else it is only counted what would be done.

    Returns:
        the counts, as the worker has them.

    Raises:
        ConfigError: the topics do not fit, and it is to be executed; or the session is Spark Connect's.
        AdminError: the cluster does not answer, or a topic does not exist.
        MissingPartError: the session has no Kafka connector.
    """
    require_classic(spark)
    names = [source, target, beside]
    if len(set(names)) < len(names):
        raise ConfigError(f"expected different topics, found {', '.join(names)}")
    with KafkaAdmin(spark, options) as admin:
        problems = _problems(admin, source, target, beside)
        begins = admin.begin_offsets([source, target])
        ends = admin.end_offsets([source, target], committed=True)
        cluster_id = admin.cluster_id()
    if execute and problems:
        raise ConfigError("; ".join(problems))
    shipped_chain = None if chain is None else chain_source(chain)[0]
    judging = Judging(topic=source, rule=rule, chain=shipped_chain, cluster_id=cluster_id)
    # Both passes over the source, and a stage that is computed again, see the same records.
    records = _read(spark, options, source, begins, ends)
    copies = _read(spark, options, target, begins, ends)
    done = dict(since or {})
    judged = _judged(records, judging).persist()
    told = _told(judged, _judged(copies, judging), done).persist()
    try:
        result = CompactedTopic(source=source, target=target, executed=execute, problems=problems)
        result.ends = {number: end for (topic, number), end in ends.items() if topic == source}
        result.missed = sum(
            max(0, begin - done.get(number, begin))
            for (topic, number), begin in begins.items()
            if topic == source
        )
        _count(told, result)
        judged.unpersist()  # what is told is kept by now
        if execute:
            # First what would be lost if the job failed in between and were not run again.
            if result.untouched:
                readable = told.where("outcome = 'untouched' AND why != 'unreadable'")
                _write(records, readable, options, beside)
            if result.written:
                _write(records, told.where("outcome = 'wins'"), options, target)
    finally:
        judged.unpersist()
        told.unpersist()
    return result


def _problems(admin: KafkaAdmin, source: str, target: str, beside: str) -> list[str]:
    """Return why it cannot be done as it is."""
    names = [source, target, beside]
    counts, configs = admin.partition_counts(names), admin.topic_configs(names)
    problems = [
        f"{name} needs {counted(counts[source], 'partition')}, but it has {counts[name]}; create it so"
        for name in (target, beside)
        if counts[name] != counts[source]
    ]
    if configs[target]["cleanup.policy"] != "compact":
        problems.append(
            f"{target} needs cleanup.policy=compact: Spark may write a record twice, and only there that "
            f"changes nothing"
        )
    if "compact" in configs[beside]["cleanup.policy"]:
        problems.append(f"{beside} is compacted; what is left untouched needs cleanup.policy=delete")
    limit = "max.message.bytes"
    problems += [
        f"{name} has a smaller {limit} than {source}; give it as much"
        for name in (target, beside)
        if int(configs[name][limit]) < int(configs[source][limit])
    ]
    return problems


def _read(
    spark: SparkSession,
    options: Mapping[str, Any],
    topic: str,
    begins: Mapping[tuple[str, int], int],
    ends: Mapping[tuple[str, int], int],
) -> DataFrame:
    """Return what a topic has between offsets."""

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
    return kafka_source(spark.read, {**options, **own})


def _judged(frame: DataFrame, judging: Judging) -> DataFrame:
    """Return what is known of each record by itself."""
    value = F.lit(None).cast("binary") if judging.chain is None else F.col("value")
    taken = frame.select(
        F.lit(judging.topic).alias("topic"),
        *("partition", "offset", "timestamp", "timestampType", "key", "headers"),
        value.alias("value"),
        F.octet_length("value").alias("value_bytes"),
    )
    return taken.mapInArrow(shipped(_JUDGE, judging), JUDGED)


def _told(judged: DataFrame, copies: DataFrame, since: Mapping[int, int]) -> DataFrame:
    """Return what becomes of each record."""
    slices = judged.where("message IS NOT NULL").repartition("partition", "message")
    in_order = slices.sortWithinPartitions("partition", "message", "offset")
    settled = judged.where("message IS NULL").select(*_SETTLED)
    settled = settled.unionByName(in_order.mapInArrow(shipped(_SETTLE), SETTLED))
    # Of a message in slices the first has key and version.
    copied = copies.where("number = 0").withColumn("at", F.lit(_COPY).cast("long"))
    ranked = settled.select("digest", "version", "at").unionByName(copied.select("digest", "version", "at"))
    # A key's digest is that of its partition, too.
    best = (
        ranked.where("digest IS NOT NULL")
        .groupBy("digest")
        .agg(F.max(F.struct("version", "at")).alias("best"))
    )
    lost = (
        F.when(F.col("version") == F.col("best.version"), "tie")
        .when(F.col("version") == F.lit(OLDEST), "no_version")
        .otherwise("older")
    )
    outcome = (
        F.when(F.col("at").isNull(), "waits")
        .when(F.col("why").isNotNull(), "untouched")
        .when(F.col("at") == F.col("best.at"), "wins")
        .otherwise("loses")
    )
    told = settled.join(best, "digest", "left").withColumn("outcome", outcome)
    told = told.withColumn("why", F.when(F.col("outcome") == "loses", lost).otherwise(F.col("why")))
    if since:
        told = told.where(F.coalesce("at", "offset") >= _by_partition(since))
    return told.select(*_POSITION, "at", "outcome", "why", "size", "tombstone")


def _by_partition(offsets: Mapping[int, int]) -> Column:
    """Return an offset by the column ``partition``; 0 for one that is not listed."""
    found = F.lit(0).cast("long")
    for number, offset in offsets.items():
        found = F.when(F.col("partition") == number, offset).otherwise(found)
    return found


def _count(told: DataFrame, result: Result) -> None:
    """Add up what becomes of the records."""
    sums = told.groupBy("outcome", "why").agg(
        F.count("*").alias("records"),
        F.sum("size").alias("size"),
        F.sum(F.col("tombstone").cast("long")).alias("tombstones"),
    )
    for outcome, why, records, size, tombstones in sums.collect():
        result.records += records
        result.size_bytes += 0 if why == "unreadable" else size
        if outcome == "wins":
            result.written, result.written_bytes, result.tombstones = records, size, tombstones
        elif outcome == "untouched":
            result.untouched[why] = records
        elif outcome == "loses":
            result.lost[why] = records
        else:
            result.waiting += records


def _write(records: DataFrame, chosen: DataFrame, options: Mapping[str, Any], topic: str) -> None:
    """Write records as they are, each partition by one task.

    A message in slices comes where its last slice came, and its slices as they came: on a compacted topic
    the one with the message's key is the last.
    """
    rows = records.select(*_POSITION, "key", "value", "headers").join(
        chosen.select(*_POSITION, "at"), _POSITION
    )
    in_order = rows.repartition("partition").sortWithinPartitions("partition", "at", "offset")
    own = {name: value for name, value in options.items() if name.lower().startswith("kafka.")}
    writer = in_order.select("key", "value", "headers", "partition").write.format("kafka")
    writer.options(**own, topic=topic).save()
