"""Append a topic to an Iceberg table, each record once, and read the table as it was after a batch.

    python examples/spark_iceberg.py

Spark fetches Iceberg's package from Maven Central. The snapshots of the table name the batches that wrote
them. The job fails after its second batch is in the table; the next run finds the batch there.
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

from headerware import Chain, Producer
from headerware.interceptors import Compress, Trail
from headerware.spark_bridge import foreach_batch, kafka_source, table_sink
from headerware.testing import KafkaBroker

TABLE = "lake.db.airports"
SETTINGS = {
    "spark.jars.packages": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.1",
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.lake.type": "hadoop",
}
CHAIN = Chain([Trail(service="airports"), Compress()])


def columns(frame: DataFrame, _batch: int) -> DataFrame:
    """Return the columns of the table."""
    return frame.selectExpr("get_json_object(cast(value as string), '$.iata') code", "source")


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
    """Append a topic to an Iceberg table."""
    with tempfile.TemporaryDirectory() as folder, KafkaBroker() as broker:
        builder = SparkSession.builder.appName("airports").config(map=SETTINGS)
        spark = start(builder.config("spark.sql.catalog.lake.warehouse", folder))
        broker.create_topic("airports")
        sent = [value for topic, _, value in records() if topic == "airports"]
        with Producer({"bootstrap.servers": broker.bootstrap_servers}, chain=CHAIN) as producer:
            for value in sent:
                producer.produce("airports", value)
        sink = FailsOnce(table_sink(TABLE, format="iceberg"))
        with contextlib.suppress(StreamingQueryException):
            run(spark, broker.bootstrap_servers, sink, Path(folder, "checkpoint"))
        click.echo("the job failed when the table had its batch; it starts again")
        run(spark, broker.bootstrap_servers, sink, Path(folder, "checkpoint"))
        found = "snapshot_id id", "summary['headerware-batch'] batch"
        for row in spark.table(f"{TABLE}.snapshots").selectExpr(*found).orderBy("batch").collect():
            then = spark.read.option("snapshot-id", row.id).table(TABLE).count()
            click.echo(f"after batch {row.batch} the table had {then:,} rows")
        once = spark.table(TABLE).select("code").distinct().count()
        spark.stop()
    sys.exit(0 if once == then == len(sent) else "the table does not have each airport once")


if __name__ == "__main__":
    main()
