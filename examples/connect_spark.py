"""Use a connector's file in Spark: foreachBatch writes the same records as a producer with the same file.

    python examples/connect_spark.py
    python examples/connect_spark.py --bootstrap-servers localhost:9092

A service without Headerware sends airports as JSON; one of them has no number for its latitude. Spark reads
them as typed columns, and writes them through the transforms of examples/connect_airports.json. A producer
does the same.
"""

from __future__ import annotations

import contextlib
import csv
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic
from demo.spark import start
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

try:
    from vega_datasets import local_data
except ImportError:
    sys.exit("this example needs data to send: run python -m pip install -e '.[demo]' in the repository")

from headerware import Chain, HeaderwareError, Producer
from headerware.interceptors import Serialize, Transforms
from headerware.serdes import Connect
from headerware.spark_bridge import foreach_batch, kafka_sink, kafka_source
from headerware.testing import KafkaBroker

CONNECTOR = Path(__file__).with_name("connect_airports.json")
AIRPORT = (
    "iata string, name string, city string, state string, country string, latitude string, longitude string"
)
PARTITIONS = 2
REASON = "__connect.errors."
READ = Chain([Serialize(value="json")])
WRITE = Chain(
    [
        Transforms(file=str(CONNECTOR)),
        Serialize(key="string", value=Connect(converter="JsonConverter", options={"schemas.enable": False})),
    ]
)


def rows() -> Iterator[dict[str, str]]:
    """Yield the rows of a CSV file of airports, and an airport without a position."""
    with open(local_data.airports.filepath, encoding="utf-8", newline="") as file:  # noqa: PTH123 - the package gives a plain text path
        yield from csv.DictReader(file)
    yield dict(zip(("iata", "name", "latitude", "longitude"), ("ZZZ", "Nowhere", "n/a", "n/a"), strict=True))


def create(servers: str, *topics: str) -> None:
    """Create the topics."""
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS) for topic in topics]).values():
        future.result(30)


def be_the_service(servers: str, topic: str) -> None:
    """Send airports as plain JSON, and a tombstone."""
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    for row in rows():
        producer.produce(topic, json.dumps(row), row["iata"])
    producer.produce(topic, None, "00M")
    producer.flush()


def be_spark(spark: SparkSession, servers: str, topics: tuple[str, str, str], checkpoint: Path) -> None:
    """Read the topic, and write its records as the connector would."""
    source, target, dead = topics
    to_kafka = {"kafka.bootstrap.servers": servers}

    def towards(frame: DataFrame, _batch: int) -> DataFrame:
        # The key is text: the transforms make a key from the value, and the chain's serializer accepts it.
        return frame.withColumns({"topic": F.lit(target), "key": F.col("key").cast("string")})

    work = foreach_batch(
        READ,
        kafka_sink(to_kafka, WRITE),
        checkpoint=checkpoint,
        value=AIRPORT,
        transform=towards,
        dead_letters=kafka_sink({**to_kafka, "topic": dead}),
    )
    stream = kafka_source(spark.readStream, {**to_kafka, "subscribe": source, "startingOffsets": "earliest"})
    writer = stream.writeStream.foreachBatch(work).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


def be_a_producer(servers: str, topic: str) -> str:
    """Send the same airports through the same chain, without Spark, and return the reason of a refusal."""
    reason = ""
    with Producer({"bootstrap.servers": servers}, chain=WRITE) as producer:
        for row in rows():
            try:
                producer.produce(topic, row)
            except HeaderwareError as refused:
                reason = str(refused)
    return reason


def read(servers: str, topic: str) -> list[Any]:
    """Return all messages of a topic."""
    conf = {"bootstrap.servers": servers, "group.id": f"plain-{topic}", "enable.partition.eof": True}
    consumer = confluent_kafka.Consumer({**conf, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found, ends, deadline = [], 0, time.monotonic() + 60
    while ends < PARTITIONS and time.monotonic() < deadline:
        for message in consumer.consume(1_000, 0.5):
            if message.error() is None:
                found.append(message)
            else:
                ends += 1
    consumer.close()
    return found


def seen(messages: list[Any]) -> list[tuple[Any, ...]]:
    """Return keys, values and headers in a form that can be compared."""
    return sorted((message.key(), message.value(), *message.headers()) for message in messages)


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
    """Write airports from Spark as a connector does."""
    spark = start(SparkSession.builder.appName("airports"))
    with tempfile.TemporaryDirectory() as folder, cluster(bootstrap_servers) as servers:
        run = time.time_ns()
        source, by_spark, dead = f"airports-{run}", f"geo.airports-{run}", f"airports-{run}.dead-letter"
        by_producer = f"geo.airports-again-{run}"
        create(servers, source, by_spark, dead, by_producer)
        be_the_service(servers, source)
        be_spark(spark, servers, (source, f"airports-{run}", dead), Path(folder, "checkpoint"))
        spark.stop()
        refused = be_a_producer(servers, f"airports-again-{run}")
        of_spark, of_producer = seen(read(servers, by_spark)), seen(read(servers, by_producer))
        letters = [dict(message.headers()) for message in read(servers, dead)]
    count, alike = len(list(rows())), of_spark == of_producer
    click.echo(f"{count:,} airports and a tombstone were sent; Spark wrote {len(of_spark):,} of them:")
    for key, value, *headers in of_spark[:2]:
        shown = ", ".join(f"{name}={content.decode()}" for name, content in headers)
        click.echo(f"  {key.decode()}: {value.decode()} with {shown}")
    click.echo(
        f"a producer with the same file wrote {'the same' if alike else 'OTHER'} records, and refused one:"
    )
    click.echo(f"  {refused}")
    for letter in letters:
        click.echo("the dead letter that Spark wrote says in its headers, in Kafka Connect's names:")
        for name in ("stage", "class.name", "exception.class.name", "exception.message"):
            click.echo(f"  {name}: {letter[REASON + name].decode()}")
    if not alike or len(of_spark) != count - 1 or len(letters) != 1:
        sys.exit("the airports did not come through as they were sent")


if __name__ == "__main__":
    main()
