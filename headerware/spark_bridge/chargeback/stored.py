"""Parquet files for later jobs: offsets that consumer groups had committed, and the usage of streams.

Each micro-batch of a stream is counted by itself, and written to a folder that a replay overwrites:

    <path>/query=<id>/batch=<n>/*.parquet

There is no window and no watermark: a late record counts in its own hour, whenever it comes, and nothing is
held in memory from one batch to the next. A batch that is replayed after a failure has the same number and
the same records, and so the same folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from headerware.core.errors import ConfigError
from headerware.ops.chargeback.reads import GroupOffset
from headerware.spark_bridge.chargeback.counting import KEYS, OFFSETS, USAGE, usage

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
        offsets: group, topic, partition and offset of each; pass those of one moment in one call.
        at: the moment, with a time zone; None takes the current time.

    Raises:
        ConfigError: the moment has no time zone.
    """
    moment = at or datetime.now(UTC)
    if moment.tzinfo is None:
        raise ConfigError("expected a moment with a time zone, found one without", path="at")
    taken = [GroupOffset(*each, moment) for each in offsets]
    rows = [(each.group, each.topic, each.partition, each.offset, moment) for each in taken]
    spark.createDataFrame(rows, OFFSETS).coalesce(1).write.mode("append").parquet(path)
    return taken


def stored_offsets(
    spark: SparkSession, path: str, *, since: datetime | None = None, until: datetime | None = None
) -> list[GroupOffset]:
    """Read stored offsets, for ``usage(..., offsets=...)``.

    Args:
        spark: the session.
        path: the folder that :func:`snapshot` writes.
        since: the first moment, or None for all.
        until: the last moment, or None for all.
    """
    from pyspark.sql import functions as sql  # noqa: PLC0415

    kept = spark.read.schema(OFFSETS).parquet(path)
    if since is not None:
        kept = kept.where(sql.col("at") >= sql.lit(since))
    if until is not None:
        kept = kept.where(sql.col("at") <= sql.lit(until))
    plain = kept.withColumn("at", sql.unix_micros("at"))
    return [
        GroupOffset(row.group, row.topic, row.partition, row.offset, _moment(row.at))
        for row in plain.collect()
    ]


def _moment(microseconds: int) -> datetime:
    seconds, rest = divmod(microseconds, 10**6)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest)


def usage_sink(path: str) -> Callable[[DataFrame, int], None]:
    """Return a function for ``writeStream.foreachBatch`` that counts incoming traffic.

    A stream of records does not show outgoing traffic: take that from audit counts or committed offsets, in a
    batch job over the same time.

    Args:
        path: the folder; several queries may share it. A query with a new checkpoint is another query: the
            records that it reads again count again, unless it gets a folder of its own.
    """

    def count(batch: DataFrame, batch_id: int) -> None:
        folder = f"{path}/query={_query_id(batch.sparkSession)}/batch={batch_id}"
        usage(batch).coalesce(1).write.mode("overwrite").parquet(folder)

    return count


def stored_usage(spark: SparkSession, path: str) -> DataFrame:
    """Read the usage that :func:`usage_sink` wrote, summed over all batches, in the columns of ``usage``.

    Args:
        spark: the session.
        path: the folder.
    """
    from pyspark.sql import functions as sql  # noqa: PLC0415

    kept = spark.read.schema(USAGE).option("recursiveFileLookup", "true").parquet(path)
    sums = (sql.sum(name).alias(name) for name in ("records", "bytes", "malformed"))
    return kept.groupBy(*KEYS).agg(*sums).select(kept.columns)


def _query_id(spark: SparkSession) -> str:
    found = spark.sparkContext.getLocalProperty(_QUERY_ID)
    if not found:
        raise ConfigError(
            "expected to be called by a streaming query, found none; pass the function to "
            "writeStream.foreachBatch",
            path="usage_sink",
        )
    return str(found)
