"""Append a topic to a Delta table, each record once, although the job fails when the table has a batch.

    python examples/spark_delta.py

Spark fetches Delta's package from Maven Central. The job fails after a batch is in the table, and before the
checkpoint knows it. The next run processes the batch again, and the table has it already.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from pathlib import Path
from typing import Any

import click
from demo.data import records
from demo.spark import start
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from headerware import Chain, Producer
from headerware.interceptors import Compress, Trail
from headerware.spark_bridge import foreach_batch, kafka_source, table_sink, trail
from headerware.testing import KafkaBroker

SETTINGS = {
    "spark.jars.packages": "io.delta:delta-spark_2.13:4.0.0",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",  # the table is small
}
CHAIN = Chain([Trail(service="airports"), Compress()])


def columns(frame: DataFrame, _batch: int) -> DataFrame:
    """Return the columns of the table: the airport, who wrote the record, and where it was read."""
    airport = F.json_tuple(F.col("value").cast("string"), "iata", "name").alias("iata", "name")
    return frame.select(airport, trail()[0]["by_whom"].alias("by_whom"), "source")


class FailsOnce:
    """A sink that fails once, after the table has the batch."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink

    def write(self, frame: DataFrame, batch: Any) -> None:
        """Write a batch."""
        self._sink.write(frame, batch)
        if batch.id == 1 and not batch.is_replay:
            raise RuntimeError("the job fails after the write, and before the checkpoint")


def run(spark: SparkSession, servers: str, sink: Any, checkpoint: Path) -> None:
    """Run the job: append the new records of the topic."""
    reading = {"kafka.bootstrap.servers": servers, "subscribe": "airports", "startingOffsets": "earliest"}
    stream = kafka_source(spark.readStream, {**reading, "maxOffsetsPerTrigger": "1500"})
    work = foreach_batch(CHAIN, sink, transform=columns, checkpoint=checkpoint, on_progress=print)
    writer = stream.writeStream.foreachBatch(work).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


@click.command()
def main() -> None:
    """Append a topic to a Delta table."""
    spark = start(SparkSession.builder.appName("airports").config(map=SETTINGS))
    with tempfile.TemporaryDirectory() as folder, KafkaBroker() as broker:
        broker.create_topic("airports")
        sent = [value for topic, _, value in records() if topic == "airports"]
        with Producer({"bootstrap.servers": broker.bootstrap_servers}, chain=CHAIN) as producer:
            for value in sent:
                producer.produce("airports", value)
        sink = FailsOnce(table_sink(f"{folder}/table", format="delta"))
        with contextlib.suppress(StreamingQueryException):
            run(spark, broker.bootstrap_servers, sink, Path(folder, "checkpoint"))
        click.echo("the job failed when the table had its batch; it starts again")
        run(spark, broker.bootstrap_servers, sink, Path(folder, "checkpoint"))
        found = spark.read.format("delta").load(f"{folder}/table")
        count, once = found.count(), found.select("iata").distinct().count()
        click.echo(f"{len(sent):,} airports; the table has {count:,} rows, {once:,} of them different")
        spark.stop()
    sys.exit(0 if count == once == len(sent) else 1)


if __name__ == "__main__":
    main()
