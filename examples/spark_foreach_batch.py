"""Run a service, a Spark stream and another service under one chain: signed, compressed, sliced, each once.

    python examples/spark_foreach_batch.py
    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0 examples/spark_foreach_batch.py
    python examples/spark_foreach_batch.py --bootstrap-servers localhost:9092

The first service sends airports, and documents that are too large for one record; an attacker alters two of
them on the way. Spark keys each airport by its state. The second service reads Spark's records. All three
use examples/spark_chain.toml, and need no code for the chain.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import click
import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic
from demo.data import large_file, records
from demo.spark import start
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from headerware import Consumer, Producer
from headerware.cli.trail import trail_lines
from headerware.interceptors import read_trail
from headerware.keyring import with_new_key
from headerware.keyring.writing import edit_keyring
from headerware.spark_bridge import BatchProgress, foreach_batch, kafka_sink, kafka_source
from headerware.testing import KafkaBroker

CHAIN = Path(__file__).with_name("spark_chain.toml")
PARTITIONS = 2
ALTERED = 2
ROWS = 2_000
AIRPORT = "iata string, name string, city string, state string"
SHORT = ("iata", "name", "city")


def sent() -> Iterator[tuple[str, bytes, bool]]:
    """Yield (key, value, whether it is an airport): airports first, then values that need slices."""
    airports = [(key, value) for topic, key, value in records() if topic == "airports"]
    yield from ((key, value, True) for key, value in airports)
    yield "airports.json", b"[" + b",".join(value for _, value in airports) + b"]", False
    library = large_file("small")
    yield library.name, library.read_bytes(), False


def expected() -> dict[bytes, tuple[bytes, bytes]]:
    """Return the records that the last service should read: key and value by the record's name."""
    return {
        key.encode(): _keyed_by_state(json.loads(value)) if is_airport else (key.encode(), value)
        for key, value, is_airport in sent()
    }


def _keyed_by_state(row: dict[str, str]) -> tuple[bytes, bytes]:
    short = {name: row[name] for name in SHORT}
    return row["state"].encode(), json.dumps(short, ensure_ascii=False, separators=(",", ":")).encode()


def by_state(frame: DataFrame, _batch: int) -> DataFrame:
    """Key airports by their state; documents do not change."""
    airport = F.from_json(F.col("value").cast("string"), AIRPORT)
    is_airport = F.expr("exists(headers, header -> header.key = 'kind')")
    short = F.to_json(F.struct(*(airport[name] for name in SHORT))).cast("binary")
    return frame.withColumns(
        {
            "key": F.when(is_airport, airport["state"].cast("binary")).otherwise(F.col("key")),
            "value": F.when(is_airport, short).otherwise(F.col("value")),
        }
    )


def create(servers: str, topics: tuple[str, ...]) -> None:
    """Create the topics."""
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS) for topic in topics]).values():
        future.result(30)


def produce(servers: str, topic: str) -> int:
    """Send messages as the first service, and return their number."""
    conf = {"bootstrap.servers": servers, "client.id": "catalogue", "headerware.config": str(CHAIN)}
    count = 0
    with Producer(conf) as producer:
        for key, value, is_airport in sent():
            headers = {"name": key, **({"kind": "airport"} if is_airport else {})}
            producer.produce(topic, value, key, headers=headers)
            count += 1
    return count


def alter(servers: str, topic: str) -> None:
    """Store records again with one bit flipped, and unchanged headers and signatures, as an attacker."""
    there = {"bootstrap.servers": servers}
    producer = confluent_kafka.Producer(there)
    consumer = confluent_kafka.Consumer(
        {**there, "group.id": f"somebody-{topic}", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    for message in consumer.consume(ALTERED, 60):
        value = bytearray(message.value())
        value[-1] ^= 1
        producer.produce(topic, bytes(value), message.key(), headers=message.headers())
    producer.flush()
    consumer.close()


def stream(spark: SparkSession, servers: str, topics: tuple[str, str, str], checkpoint: Path) -> None:
    """Run the job: read the records of the topic, and end."""
    source, target, dead = topics
    to_kafka = {"kafka.bootstrap.servers": servers}
    read = {
        **to_kafka,
        "subscribe": source,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": ROWS,
    }
    work = foreach_batch(
        CHAIN,
        kafka_sink({**to_kafka, "topic": target}, CHAIN),
        checkpoint=checkpoint,
        transform=by_state,
        dead_letters=kafka_sink({**to_kafka, "topic": dead}),
        on_progress=report,
    )
    writer = kafka_source(spark.readStream, read).writeStream.option("checkpointLocation", str(checkpoint))
    query = writer.foreachBatch(work).trigger(availableNow=True).start()
    query.awaitTermination()


def report(progress: BatchProgress) -> None:
    """Print the counts of a batch."""
    read, written = progress.decoded, progress.encoded
    click.echo(
        f"batch {progress.batch}: {read['records_in']:,} rows read, {read['refused']} refused, "
        f"{progress.waiting} slices wait for the next batch, {written['records_out']:,} rows written"
    )


def consume(servers: str, topic: str, count: int) -> dict[bytes, tuple[bytes, bytes]]:
    """Read messages as the second service, and return key and value by the records' names."""
    conf = {"bootstrap.servers": servers, "client.id": "search", "headerware.config": str(CHAIN)}
    consumer = Consumer({**conf, "group.id": f"search-{topic}", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: dict[bytes, tuple[bytes, bytes]] = {}
    shown, deadline = False, time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.consume(500, 1):
            if message.error() is None:
                headers = message.headers()
                found[dict(headers)["name"]] = (message.key(), message.value())
                if not shown:
                    click.echo("\n".join(line.plain for line in trail_lines(read_trail(headers))))
                    shown = True
    consumer.close()
    return found


def letters(servers: str, topic: str) -> list[str]:
    """Return the reasons in the dead letters."""
    conf = {"bootstrap.servers": servers, "group.id": f"operator-{topic}", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(conf)
    consumer.subscribe([topic])
    found = consumer.consume(ALTERED, 30)
    consumer.close()
    return [dict(message.headers())["__connect.errors.exception.message"].decode() for message in found]


@contextlib.contextmanager
def cluster(servers: str | None) -> Iterator[str]:
    """Yield the brokers' addresses."""
    if servers is not None:
        yield servers
    else:
        with KafkaBroker() as broker:
            yield broker.bootstrap_servers


def session(keyring: Path) -> SparkSession:
    """Return the session, with the path of the keyring for its workers."""
    builder = SparkSession.builder.appName("by-state").config("spark.executorEnv.KEYRING", str(keyring))
    return start(builder.config("spark.ui.showConsoleProgress", "false"))


@click.command()
@click.option("--bootstrap-servers", help="Use this cluster instead of starting a broker.")
def main(bootstrap_servers: str | None) -> None:
    """Send records from a service through Spark to a service."""
    with tempfile.TemporaryDirectory() as folder:
        keyring = Path(folder, "keys.json")
        edit_keyring(keyring, lambda keys: with_new_key(keys, "demo", "ed25519"), create=True)
        os.environ["KEYRING"] = str(keyring)
        spark = session(keyring)
        with cluster(bootstrap_servers) as servers:
            run = time.time_ns()
            topics = (f"airports-{run}", f"airports-by-state-{run}", f"airports-{run}.dead-letter")
            create(servers, topics)
            count = produce(servers, topics[0])
            alter(servers, topics[0])
            click.echo(f"the first service sent {count:,} messages; {ALTERED} were altered and stored again")
            stream(spark, servers, topics, Path(folder, "checkpoint"))
            found = consume(servers, topics[1], count)
            reasons = letters(servers, topics[2])
        spark.stop()
    click.echo(f"the second service read {len(found):,} messages; dead letters: {len(reasons)}")
    click.echo("\n".join(reasons))
    if found != expected() or len(reasons) != ALTERED:
        sys.exit("the messages did not come through as they were sent")


if __name__ == "__main__":
    main()
