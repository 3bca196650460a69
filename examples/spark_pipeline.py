"""Run a pipeline: three protected topics into a Delta table, through a kill, then a join and a window.

    python examples/spark_pipeline.py

Three services write orders, payments and invoices: with a trail, identities, compressed, encrypted, signed,
and the invoices in slices. A stream appends their plain records to a Delta table. Its driver is killed when
the table has a batch that the checkpoint does not; the next driver goes on. Then a batch job joins the orders
with their payments and invoices, counts them by hours, and writes each settled order to a topic, whose
records have the trail of their order. At the end, everything that came is compared with what was sent.
With the option ``--connect`` the jobs are clients of a Spark Connect server, which is killed with its client.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import click
import pyspark
from demo.spark import connect_server, start
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from headerware import Chain, Consumer, Producer
from headerware.cli.trail import trail_lines
from headerware.interceptors import Compress, Dedup, Encrypt, Sign, Slice, Trail, read_trail
from headerware.keyring import with_new_key
from headerware.keyring.services import FileKeys
from headerware.keyring.writing import edit_keyring
from headerware.spark_bridge import (
    KafkaAdmin,
    encode,
    foreach_batch,
    kafka_sink,
    kafka_source,
    keep_headers,
    table_sink,
)
from headerware.testing import KafkaBroker

TOPICS = ("orders", "payments", "invoices")
ORDERS, INVOICES, INVOICE_BYTES = 2_000, 20, 250_000
BATCH = 2_100
SETTINGS = {
    "spark.app.name": "orders",
    "spark.jars.packages": "io.delta:delta-spark_2.13:4.0.0",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "1",  # the table is small
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.port": "0",
}
CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
TRIES = 3
"""Spark gives a new Python worker of a Connect server ten seconds, which are not enough on a busy machine."""


def chain(folder: Path, service: str) -> Chain:
    """Return the chain of a service or a job: every protection."""
    keyring = str(folder / "keys.json")
    return Chain(
        [
            Trail(service=service),
            Dedup(),
            Compress(),
            Encrypt(key_service=FileKeys(keyring=keyring), key_id="shop-data"),
            Slice(max_bytes=100_000),
            Sign(keyring=keyring, key_id="shop"),
        ]
    )


def sent() -> Iterator[tuple[str, str, bytes]]:
    """Yield the topic, key and value of each record; the key is the order's number."""
    for number in range(ORDERS):
        order = {"at": f"2026-11-28 {number * 24 // ORDERS:02d}:{number % 60:02d}:00", "total": number % 100}
        yield "orders", f"{number}", json.dumps(order).encode()
        yield "payments", f"{number}", json.dumps({"paid": number % 100}).encode()
    for number in range(INVOICES):
        yield "invoices", f"{number}", random.Random(number).randbytes(INVOICE_BYTES)


def produce(servers: str, folder: Path) -> int:
    """Write all records, each topic as a service of its own, and return their number."""
    producers = {
        topic: Producer({"bootstrap.servers": servers}, chain=chain(folder, topic)) for topic in TOPICS
    }
    count = 0
    for topic, key, value in sent():
        producers[topic].produce(topic, value, key)
        count += 1
    for producer in producers.values():
        producer.close()
    return count


class KillsDriver:
    """A table's sink that kills the driver and its JVM when the table has a batch, and nobody else knows."""

    def __init__(self, sink: Any, batch: int | None, jvm: int, say: Callable[[str], None]) -> None:
        self._sink, self._batch, self._say = sink, batch, say
        self._driver = (jvm, os.getpid())

    def write(self, frame: DataFrame, batch: Any) -> None:
        """Write a batch; with Spark Connect this runs in a process of the server."""
        self._sink.write(frame, batch)
        if batch.id == self._batch:
            self._say(f"the table has batch {batch.id}; the driver is killed")
            for process in (*self._driver, os.getpid()):
                os.kill(process, signal.SIGKILL)


def note(said: Path, text: str) -> None:
    """Append a line to what the stream says."""
    with said.open("a") as lines:
        lines.write(f"{text}\n")


def stream(
    spark: SparkSession,
    servers: str,
    folder: Path,
    kill_in: int | None,
    jvm: int,
    say: Callable[[str], None],
) -> None:
    """Append the new records of the three topics to the Delta table."""
    reading = {"subscribe": ",".join(TOPICS), "startingOffsets": "earliest", "maxOffsetsPerTrigger": BATCH}
    kafka = {"kafka.bootstrap.servers": servers}
    work = foreach_batch(
        chain(folder, "pipeline"),
        KillsDriver(table_sink(folder / "landed", format="delta"), kill_in, jvm, say),
        transform=lambda frame, _: keep_headers(frame).drop(
            "headers", "partition", "offset", "timestampType"
        ),
        dead_letters=kafka_sink(kafka),
        checkpoint=folder / "checkpoint",
        on_progress=lambda progress: say(str(progress)),
    )
    source = kafka_source(spark.readStream, {**kafka, **reading})
    writer = source.writeStream.foreachBatch(work).option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()


def settle(spark: SparkSession, servers: str, folder: Path) -> None:
    """Join what has landed, count the settled orders by hours, and write them to a topic."""
    landed = spark.read.format("delta").load(str(folder / "landed"))
    click.echo(f"the table has {landed.count():,} records")

    def of(topic: str, *columns: str) -> DataFrame:
        plain = landed.where(F.col("topic") == topic).withColumn("text", F.col("value").cast("string"))
        return plain.selectExpr("key", *columns)

    orders = of("orders", "to_timestamp(get_json_object(text, '$.at')) at", "carried_from")
    payments = of("payments", "cast(get_json_object(text, '$.paid') as int) paid")
    invoices = of("invoices", "length(value) invoice_bytes")
    settled = orders.join(payments, "key").join(invoices, "key", "left")
    hours = settled.groupBy(F.window("at", "6 hours")["start"].alias("from")).agg(
        F.count("*").alias("orders"), F.sum("paid").alias("paid"), F.sum("invoice_bytes").alias("invoices")
    )
    hours.write.format("delta").mode("overwrite").save(str(folder / "hours"))
    for row in spark.read.format("delta").load(str(folder / "hours")).orderBy("from").collect():
        click.echo(f"  from {row['from']:%H:%M}: {row['orders']:,} orders, {row['paid']:,} paid")
    kafka = {"kafka.bootstrap.servers": servers}
    records = settled.selectExpr("'settled' topic", "key", "to_json(struct(paid)) value", "carried_from")
    cluster = KafkaAdmin(spark, kafka).cluster_id()
    encoded = encode(records, chain(folder, "settling"), job="settling", identity=["key"], cluster_id=cluster)
    encoded.write.format("kafka").options(**kafka).save()


def descriptions(spark: SparkSession) -> list[str]:
    """Return the works of the stream's jobs as Spark's pages show them, from its REST API."""
    context = spark.sparkContext
    with urllib.request.urlopen(  # noqa: S310 - Spark's own address
        f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/jobs", timeout=30
    ) as answer:
        jobs = json.load(answer)
    found = {job.get("description", "").partition(", batch ")[2] for job in jobs}
    return sorted({description.split(": ")[1] for description in found if description})


def job(servers: str, folder: Path, kill_in: int | None) -> None:
    """Run the driver: the stream to its end, then the batch job."""
    spark = start(SparkSession.builder.config(map=SETTINGS))
    jvm = spark.sparkContext._gateway.proc.pid  # noqa: SLF001 - for a kill
    stream(spark, servers, folder, kill_in, jvm, click.echo)
    click.echo(f"jobs in Spark's UI: {', '.join(descriptions(spark))}")
    settle(spark, servers, folder)
    spark.stop()


def client_job(servers: str, folder: Path, kill_in: int | None, url: str, jvm: int) -> None:
    """Do the same as a client of a Spark Connect server, in whose processes the stream says something."""
    spark = SparkSession.builder.remote(url).getOrCreate()
    stream(spark, servers, folder, kill_in, jvm, partial(note, folder / "said"))
    click.echo((folder / "said").read_text(), nl=False)
    settle(spark, servers, folder)


def read(servers: str, folder: Path) -> dict[bytes, int]:
    """Read the settled orders as a service, print the trail of one, and return the sums by order."""
    conf = {"bootstrap.servers": servers, "group.id": "accounts", "auto.offset.reset": "earliest"}
    found: dict[bytes, int] = {}
    with Consumer({**conf, "enable.partition.eof": True}, chain=chain(folder, "accounts")) as consumer:
        consumer.subscribe(["settled"])
        while (message := consumer.poll(30)) is not None and message.error() is None:
            if not found:
                click.echo("\n".join(line.plain for line in trail_lines(read_trail(message.headers()))))
            found[message.key()] = json.loads(message.value())["paid"]
    return found


@click.command()
@click.option("--driver", type=(str, Path, int), help="Run the driver: addresses, folder, batch of the kill.")
@click.option("--server", type=(str, int), help="With --driver: address and pid of a Spark Connect server.")
@click.option("--connect", is_flag=True, help="Run the jobs as clients of a Spark Connect server.")
def main(driver: tuple[str, Path, int] | None, server: tuple[str, int] | None, *, connect: bool) -> None:
    """Run the pipeline."""
    if driver is not None:
        servers, folder, batch = driver
        kill_in = batch if batch >= 0 else None
        if server is None:
            job(servers, folder, kill_in)
        else:
            client_job(servers, folder, kill_in, *server)
        return
    with tempfile.TemporaryDirectory() as temporary, KafkaBroker() as broker:
        folder, servers = Path(temporary), broker.bootstrap_servers
        edit_keyring(folder / "keys.json", lambda keys: with_new_key(keys, "shop", "ed25519"), create=True)
        edit_keyring(folder / "keys.json", lambda keys: with_new_key(keys, "shop-data", "aes-256"))
        for topic in (*TOPICS, "settled"):
            broker.create_topic(topic)
        click.echo(f"three services sent {produce(servers, folder):,} records")
        command = [sys.executable, __file__, "--driver", servers, str(folder)]
        packages = f"{SETTINGS['spark.jars.packages']},{CONNECTOR}"
        settings = {**SETTINGS, "spark.jars.packages": packages}
        for batch, expected in (("1", -signal.SIGKILL), ("-1", 0)):
            for _ in range(TRIES):
                with connect_server(folder, settings) if connect else nullcontext() as started:
                    client = [] if started is None else ["--server", *map(str, started)]
                    ended = subprocess.run([*command, batch, *client], check=False).returncode
                if ended == expected:
                    break
            else:
                sys.exit(f"the driver ended with {ended}, and not with {expected}")
        found = read(servers, folder)
        click.echo(f"accounts read {len(found):,} settled orders")
    sys.exit(0 if found == {f"{number}".encode(): number % 100 for number in range(ORDERS)} else 1)


if __name__ == "__main__":
    main()
