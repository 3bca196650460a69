"""Store committed offsets and the usage of streams as Parquet, and read them back.

Each micro-batch of a stream is counted by itself, and written to a folder that a replay overwrites:

    <path>/query=<id>/batch=<n>/*.parquet

Nothing is kept in memory between batches, so there is no window and no watermark. A late record counts in the
hour of its timestamp. A batch that is replayed after a failure has the same number and the same records, and
so the same folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from headerware.core.errors import ConfigError
from headerware.ops.chargeback.reads import GroupOffset
from headerware.ops.chargeback.rules import require_zone
from headerware.spark_bridge.chargeback.counting import KEYS, OFFSETS, USAGE, usage
from headerware.spark_bridge.driver import require_classic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_QUERY_ID: Final = "sql.streaming.queryId"


def snapshot(
    spark: SparkSession,
    path: str,
    offsets: Iterable[tuple[str, str, int, int]],
    *,
    at: datetime | None = None,
) -> list[GroupOffset]:
    """Store the offsets that groups have committed now, and return them.

    Args:
        spark: the session.
        path: a folder of Parquet; each call adds a small file.
        offsets: tuples of group, topic, partition and offset; pass all offsets that were read at one moment
            in one call.
        at: the moment, with a time zone; None takes the current time.

    Raises:
        ConfigError: the moment has no time zone.
    """
    require_zone(at, "at")
    at = at or datetime.now(UTC)
    stored = [GroupOffset(*each, at) for each in offsets]
    rows = [(each.group, each.topic, each.partition, each.offset, at) for each in stored]
    spark.createDataFrame(rows, OFFSETS).coalesce(1).write.mode("append").parquet(path)
    return stored


def stored_offsets(
    spark: SparkSession, path: str, *, since: datetime | None = None, until: datetime | None = None
) -> list[GroupOffset]:
    """Read stored offsets, for ``usage(..., offsets=...)``.

    Args:
        spark: the session.
        path: the folder that :func:`snapshot` writes.
        since: the first moment, with a time zone, or None for all.
        until: the last moment, with a time zone, or None for all.

    Raises:
        ConfigError: a moment has no time zone.
    """
    require_zone(since, "since")
    require_zone(until, "until")
    from pyspark.sql import functions as sql  # noqa: PLC0415

    frame = spark.read.schema(OFFSETS).parquet(path)
    if since is not None:
        frame = frame.where(sql.col("at") >= sql.lit(since))
    if until is not None:
        frame = frame.where(sql.col("at") <= sql.lit(until))
    # Spark's timestamps come to Python in the driver's own time zone; microseconds have none.
    frame = frame.withColumn("at", sql.unix_micros("at"))
    return [
        GroupOffset(row.group, row.topic, row.partition, row.offset, _utc_datetime(row.at))
        for row in frame.collect()
    ]


def _utc_datetime(microseconds: int) -> datetime:
    seconds, rest = divmod(microseconds, 10**6)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest)


def usage_sink(path: str) -> Callable[[DataFrame, int], None]:
    """Return a function for ``writeStream.foreachBatch`` that counts incoming traffic.

    A stream of records does not show outgoing traffic: count that from audit counts or committed offsets, in
    a batch job over the same time.

    Each micro-batch is counted by itself. So slices whose first slice came in an earlier batch have neither
    owner nor producer.

    Args:
        path: the folder; several queries may share it. A query that restarts with a new checkpoint has a new
            id. Records that it reads again are counted twice, so give it a new folder.

    Raises:
        ConfigError: raised by the returned function, if no streaming query calls it, if the batch lacks a
            column or has one of another type, or if the batch is Spark Connect's.
    """

    def write_usage(batch: DataFrame, batch_id: int) -> None:
        require_classic(batch, "usage_sink()", "use a classic session, or usage() over a batch of the topic")
        folder = f"{path}/query={_query_id(batch.sparkSession)}/batch={batch_id}"
        usage(batch).coalesce(1).write.mode("overwrite").parquet(folder)

    return write_usage


def stored_usage(spark: SparkSession, path: str) -> DataFrame:
    """Read the usage that :func:`usage_sink` wrote, summed over all batches, in the columns of ``usage``.

    While a replayed batch overwrites its folder, its usage is missing, in part or in full.

    Args:
        spark: the session.
        path: the folder.
    """
    from pyspark.sql import functions as sql  # noqa: PLC0415

    frame = spark.read.schema(USAGE).option("recursiveFileLookup", "true").parquet(path)
    sums = (sql.sum(name).alias(name) for name in ("records", "bytes", "malformed"))
    return frame.groupBy(*KEYS).agg(*sums).select(frame.columns)


def _query_id(spark: SparkSession) -> str:
    found = spark.sparkContext.getLocalProperty(_QUERY_ID)
    if not found:
        raise ConfigError(
            "the function that usage_sink returns must be called by writeStream.foreachBatch; found no "
            "streaming query"
        )
    return str(found)
