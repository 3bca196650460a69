"""Usage of streams: the counts after a restart, a replay and a late record."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from headerware import ConfigError
from headerware.spark_bridge.chargeback import stored_usage, usage_rows, usage_sink

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

RECORDS = (
    "key binary, value binary, headers array<struct<key: string, value: binary>>, topic string, "
    "timestamp timestamp"
)
NINE = datetime(2026, 1, 31, 9, tzinfo=UTC)

pytestmark = pytest.mark.usefixtures("interpreted", "two_partitions_of_state")


class Stream:
    """A stream of Parquet files, and the query that counts it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.kept = str(folder / "usage")

    def add(self, owner: str, count: int, hour: datetime = NINE) -> None:
        rows = [(None, b"v", [("hw.owner", owner.encode())], "orders", hour) for _ in range(count)]
        frame = self.spark.createDataFrame(rows, RECORDS).coalesce(1)
        frame.write.mode("append").parquet(str(self.folder / "records"))

    def run(self, sink: Any = None) -> None:
        """Process all new files, in a query of its own over the same checkpoint."""
        stream = self.spark.readStream.schema(RECORDS).option("maxFilesPerTrigger", 1)
        query = (
            stream.parquet(str(self.folder / "records"))
            .writeStream.foreachBatch(sink or usage_sink(self.kept))
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def counts(self) -> dict[tuple[str | None, datetime | None], int | None]:
        rows = usage_rows(stored_usage(self.spark, self.kept))
        return {(each.owner, each.hour): each.records for each in rows}


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    return Stream(spark, tmp_path)


class TestUsageSink:
    def test_counts_across_batches_restarts_and_late_records(self, stream: Stream) -> None:
        stream.add("shop", 3)
        stream.add("shop", 4, NINE + timedelta(hours=1))
        stream.run()
        stream.add("shop", 5)  # an hour late
        stream.run()
        assert stream.counts() == {("shop", NINE): 8, ("shop", NINE + timedelta(hours=1)): 4}

    def test_a_replayed_batch_counts_once(self, stream: Stream) -> None:
        stream.add("shop", 3)

        def fails_behind(batch: DataFrame, batch_id: int) -> None:
            usage_sink(stream.kept)(batch, batch_id)
            raise RuntimeError("the driver dies before the batch is committed")

        with pytest.raises(Exception, match="the driver dies"):
            stream.run(fails_behind)
        assert stream.counts() == {("shop", NINE): 3}
        stream.run()
        assert stream.counts() == {("shop", NINE): 3}

    def test_is_for_streams_only(self, stream: Stream) -> None:
        frame = stream.spark.createDataFrame([], RECORDS)
        with pytest.raises(ConfigError, match=r"called by writeStream\.foreachBatch; found no"):
            usage_sink(stream.kept)(frame, 0)
