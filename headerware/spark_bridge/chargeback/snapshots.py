"""What consumer groups had committed, moment by moment, kept as Parquet for later jobs."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from headerware.core.errors import ConfigError
from headerware.ops.chargeback.reads import GroupOffset
from headerware.spark_bridge.chargeback.schemas import OFFSETS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def snapshot(
    spark: SparkSession,
    path: str,
    offsets: Iterable[tuple[str, str, int, int]],
    *,
    at: datetime | None = None,
) -> list[GroupOffset]:
    """Add what groups have committed now to what is kept, and give it.

    Args:
        spark: the session.
        path: a folder of Parquet, which grows by one small file with each call.
        offsets: group, topic, partition and offset of each; those of one moment belong in one call.
        at: the moment, with a time zone; now where None.

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
    """Read what was kept, for ``usage(..., offsets=...)``.

    Args:
        spark: the session.
        path: the folder that :func:`snapshot` writes.
        since: the first moment wanted; all where None.
        until: the last moment wanted; all where None.
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
