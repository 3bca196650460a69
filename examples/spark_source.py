"""Send files to Kafka by a Spark stream, each record once, although the job fails once.

    python examples/spark_source.py
    python examples/spark_source.py --bootstrap-servers localhost:9092

A folder has 3,376 airports, a CSV file for each state. The stream's source is a TOML file, the same as for
`headerware source run`. The job fails after its first batch is in Kafka, before the checkpoint. The next run
reads the same rows of the same files again, with the same identities, and a reader drops the duplicates.
"""

from __future__ import annotations

import contextlib
import csv
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import click
from confluent_kafka.admin import AdminClient, NewTopic
from demo.data import records
from demo.spark import start
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from headerware import Chain, Consumer
from headerware.interceptors import Dedup, Trail
from headerware.spark_bridge import foreach_batch, kafka_sink, register_source
from headerware.testing import KafkaBroker

SOURCE = """
name = "airports"
topic = "{topic}"
extractor = "csv"

[source]
type = "files"
folder = "spool"

[kafka]
"bootstrap.servers" = "{servers}"
interceptors = "serialize"
"interceptors.serialize.value" = "json"
"""
CHAIN = Chain([Trail(), Dedup()])


def create(servers: str, topic: str) -> None:
    """Create the topic."""
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, 1)])[topic].result(30)


def spool(folder: Path) -> set[str]:
    """Write a file for each state, and return the airports' codes."""
    folder.mkdir()
    airports = [json.loads(value) for topic, _, value in records() if topic == "airports"]
    airports.sort(key=lambda row: row["state"])
    for state, rows in groupby(airports, key=lambda row: row["state"]):
        with (folder / f"{state or 'none'}.csv").open("w", newline="") as file:
            table = csv.DictWriter(file, airports[0])
            table.writeheader()
            table.writerows(rows)
    return {row["iata"] for row in airports}


class FailsOnce:
    """A sink that fails once, after Kafka has the batch."""

    def __init__(self, sink: Any) -> None:
        self._sink, self._failed = sink, False

    def write(self, frame: DataFrame, batch: Any) -> None:
        """Write a batch."""
        self._sink.write(frame, batch)
        if not self._failed:
            self._failed = True
            raise RuntimeError("the job fails after the write to Kafka, and before the checkpoint")


def run(spark: SparkSession, config: Path, checkpoint: Path, sink: Any) -> None:
    """Run the job: read new files, and write their records to Kafka."""
    register_source(spark)
    options = {"manifestLocation": str(checkpoint / "headerware-objects")}
    airports = spark.readStream.format("headerware-objects").options(**options).load(str(config))
    function = foreach_batch(Chain([]), sink, checkpoint=checkpoint)
    writer = airports.writeStream.foreachBatch(function).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


def read(servers: str, topic: str, chain: Chain) -> list[str]:
    """Read the topic with a chain, and return the codes of the airports."""
    conf = {"bootstrap.servers": servers, "group.id": f"r{time.time_ns()}", "auto.offset.reset": "earliest"}
    found: list[str] = []
    with contextlib.closing(Consumer({**conf, "enable.partition.eof": True}, chain=chain)) as consumer:
        consumer.subscribe([topic])
        while (message := consumer.poll(30)) is not None and message.error() is None:
            found.append(json.loads(message.value())["iata"])
    return found


@contextlib.contextmanager
def cluster(servers: str | None) -> Iterator[str]:
    """Yield the brokers' addresses."""
    if servers is not None:
        yield servers
    else:
        with KafkaBroker() as broker:
            yield broker.bootstrap_servers


@click.command()
@click.option("--bootstrap-servers", help="Use this cluster instead of starting a broker.")
def main(bootstrap_servers: str | None) -> None:
    """Stream files to Kafka."""
    spark = start(SparkSession.builder.appName("airports"))
    with tempfile.TemporaryDirectory() as temporary, cluster(bootstrap_servers) as servers:
        folder, topic = Path(temporary), f"airports-{time.time_ns()}"
        create(servers, topic)
        codes = spool(folder / "spool")
        config = folder / "airports.toml"
        config.write_text(SOURCE.format(topic=topic, servers=servers))
        # The headers have the object and the record's number, the same in a replay.
        kafka = kafka_sink({"kafka.bootstrap.servers": servers}, CHAIN, identity=["headers"])
        sink = FailsOnce(kafka)
        try:
            run(spark, config, folder / "checkpoint", sink)
        except StreamingQueryException:
            click.echo("the job failed when Kafka had its batch; it starts again")
        run(spark, config, folder / "checkpoint", sink)
        stored, once = read(servers, topic, Chain([])), read(servers, topic, CHAIN)
        click.echo(f"{len(codes):,} airports; the topic has {len(stored):,} records")
        click.echo(f"a reader with dedup got {len(once):,}, each once")
        spark.stop()
    sys.exit(0 if set(once) == codes and len(once) == len(codes) else 1)


if __name__ == "__main__":
    main()
