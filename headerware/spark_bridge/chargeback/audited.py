"""Reads from the reports of an audit (spec/audit.md), for ``usage(audit=...)``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headerware.interceptors.audit import VERSIONS
from headerware.spark_bridge.classic import require_classic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_REPORT: Final = (
    "v INT, session STRING, sequence BIGINT, side STRING, group STRING, "
    "counts ARRAY<STRUCT<topic: STRING, bucket: BIGINT, given: BOOLEAN, records: BIGINT, "
    "bytes: BIGINT>>"
)
_HOUR_MS: Final = 3_600_000


def audit_counts(frame: DataFrame) -> DataFrame:
    """Return what consumer groups read, by the reports of the interceptor ``audit``.

    Records and bytes are the application's: a message in slices is one record, and its bytes are those of key
    and value before compression. A record that was read again counts again; a report that is there twice
    counts once; what is no report is passed over.

    Args:
        frame: the audit topic, as the Kafka connector returns it; only ``value`` is read.

    Returns:
        a frame of ``group string, topic string, hour timestamp, records bigint, bytes bigint``.

    Raises:
        ConfigError: the frame is Spark Connect's.
    """
    from pyspark.sql import functions as sql  # noqa: PLC0415

    require_classic(frame)
    reports = frame.select(sql.from_json(sql.col("value").cast("string"), _REPORT).alias("report"))
    counts = (
        reports.select("report.*")
        .where(sql.col("v").isin(*VERSIONS) & (sql.col("side") == "consumer"))
        .dropDuplicates(["session", "sequence"])
        .select("group", sql.explode("counts").alias("count"))
        .where(sql.col("count.given").isNull())  # else it has been counted as consumed
    )
    hour = sql.floor(sql.col("count.bucket") / _HOUR_MS) * _HOUR_MS
    columns = (
        "group",
        "count.topic",
        sql.timestamp_millis(hour).alias("hour"),
        "count.records",
        "count.bytes",
    )
    return (
        counts.select(*columns)
        .groupBy("group", "topic", "hour")
        .agg(sql.sum("records").alias("records"), sql.sum("bytes").alias("bytes"))
    )
