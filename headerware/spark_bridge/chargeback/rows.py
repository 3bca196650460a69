"""Rows of usage between Spark and Python."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from headerware.ops.chargeback.usage import Usage
from headerware.spark_bridge.chargeback.schemas import USAGE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def usage_rows(frame: DataFrame) -> Iterator[Usage]:
    """Return a frame of usage row by row, for :func:`headerware.ops.chargeback.charge`.

    Args:
        frame: what :func:`~headerware.spark_bridge.chargeback.usage` gave, or the same read from Parquet.
            It is computed once, a partition at a time in the driver's memory.
    """
    from pyspark.sql import functions as sql  # noqa: PLC0415

    names = list(Usage.__struct_fields__)
    # Spark's timestamps come to Python in the driver's own time zone; seconds have none.
    plain = frame.withColumn("hour", sql.unix_seconds("hour")).select(names)
    for row in plain.toLocalIterator():
        fields: dict[str, Any] = row.asDict()
        if fields["hour"] is not None:
            fields["hour"] = datetime.fromtimestamp(fields["hour"], UTC)
        yield msgspec.convert(fields, Usage)


def frame_of(spark: SparkSession, rows: Iterable[Usage]) -> DataFrame:
    """Make a frame of rows.

    Args:
        spark: the session.
        rows: the rows.
    """
    return spark.createDataFrame([msgspec.structs.astuple(row) for row in rows], USAGE)
