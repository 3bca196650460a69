"""Reads as audit reports (spec/audit.md) and guards' accounts count them, for ``usage(audit=...)``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headerware.interceptors.audit import VERSIONS
from headerware.ops.audit.accounts import GUARD, VERSION

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_REPORT: Final = (
    "v INT, session STRING, sequence BIGINT, side STRING, group STRING, "
    "counts ARRAY<STRUCT<topic: STRING, bucket: BIGINT, given: BOOLEAN, records: BIGINT, "
    "bytes: BIGINT>>"
)
_ACCOUNT: Final = (
    "version INT, worker STRING, group STRING, at_ms BIGINT, "
    "records ARRAY<STRUCT<topic: STRING, count: BIGINT, bytes: BIGINT>>"
)
_HOUR_MS: Final = 3_600_000


def audit_counts(frame: DataFrame) -> DataFrame:
    """Return what consumer groups read, by the reports of the interceptor ``audit`` and by guards' accounts.

    Reports count what the application received: a message in slices is one record, and its bytes are key and
    value before compression. Accounts count the records that came in, in the hour in which the guard judged
    them. A record that was read again counts again; a repeated report counts once; rows that are neither
    reports nor accounts are ignored.

    Args:
        frame: the topics of reports and accounts, as :func:`~headerware.spark_bridge.kafka_source` reads
            them, because accounts of aborted transactions must not count; only ``value`` is used.

    Returns:
        a frame of ``group string, topic string, hour timestamp, records bigint, bytes bigint``.
    """
    from pyspark.sql import functions as sql  # noqa: PLC0415

    text = sql.col("value").cast("string")
    reports = frame.select(sql.from_json(text, _REPORT).alias("report"))
    counts = (
        reports.select("report.*")
        .where(sql.col("v").isin(*VERSIONS) & (sql.col("side") == "consumer"))
        .where(_none_is_negative("counts", "records"))
        .dropDuplicates(["session", "sequence"])
        .select("group", sql.explode("counts").alias("count"))
        .where(sql.col("count.given").isNull())  # else it has been counted as consumed
    )
    accounts = frame.select(sql.from_json(text, _ACCOUNT).alias("account")).select("account.*")
    verdicts = (
        accounts.where((sql.col("version") == VERSION) & (sql.col("worker") == GUARD))
        .where(_none_is_negative("records", "count"))
        .select("group", "at_ms", sql.explode("records").alias("found"))
    )
    read = counts.select(
        "group", "count.topic", _hour("count.bucket"), "count.records", "count.bytes"
    ).unionByName(
        verdicts.select(
            "group", "found.topic", _hour("at_ms"), sql.col("found.count").alias("records"), "found.bytes"
        )
    )
    return read.groupBy("group", "topic", "hour").agg(
        sql.sum("records").alias("records"), sql.sum("bytes").alias("bytes")
    )


def _none_is_negative(column: str, count: str) -> Column:
    """Return whether no count of a report is negative; the reader without Spark refuses these, too."""
    from pyspark.sql import functions as sql  # noqa: PLC0415

    return sql.forall(column, lambda each: (each[count] >= 0) & (each["bytes"] >= 0))


def _hour(column: str) -> Column:
    """Return the beginning of the hour of a time in milliseconds."""
    from pyspark.sql import functions as sql  # noqa: PLC0415

    return sql.timestamp_millis(sql.floor(sql.col(column) / _HOUR_MS) * _HOUR_MS).alias("hour")
