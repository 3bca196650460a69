"""Usage of a stream: each micro-batch is counted by itself, and written where a replay overwrites it.

There is no window and no watermark: a record that comes late counts in its own hour, whenever it comes, and
nothing is held in memory from one batch to the next. What is kept is a folder a batch:

    <path>/query=<id>/batch=<n>/*.parquet

A batch that is replayed after a failure has the same number and the same records, and so the same folder.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headerware.core.errors import ConfigError
from headerware.spark_bridge.chargeback.counting import usage
from headerware.spark_bridge.chargeback.schemas import KEYS, USAGE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_QUERY_ID: Final = "sql.streaming.queryId"


def usage_sink(path: str) -> Callable[[DataFrame, int], None]:
    """Return a function for ``writeStream.foreachBatch`` that counts incoming traffic.

    Outgoing traffic is not in a stream of records: take it from audit counts or committed offsets, in a
    batch job over the same time.

    Args:
        path: the folder; several queries may share it. A query that begins anew with another checkpoint is
            another query: what it reads again counts again, unless it gets a folder of its own.
    """

    def count(batch: DataFrame, batch_id: int) -> None:
        folder = f"{path}/query={_query_id(batch.sparkSession)}/batch={batch_id}"
        usage(batch).coalesce(1).write.mode("overwrite").parquet(folder)

    return count


def stored_usage(spark: SparkSession, path: str) -> DataFrame:
    """Read what :func:`usage_sink` wrote, summed over all batches: a frame like that of ``usage``.

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
