"""Copy a topic's history, signed with an old key, into another topic under a new key, each record once.

    python examples/spark_backfill.py
    python examples/spark_backfill.py --bootstrap-servers localhost:9092

A batch job verifies each record with the old key and signs it with the new one. It runs twice, like a job
that failed at its end. A reader that trusts only the new key then gets every record once, and refuses the
records of the old topic.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click
import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic
from demo.data import records
from demo.spark import start
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from headerware import Chain, Consumer, HeaderwareError, Producer
from headerware.interceptors import Compress, Dedup, Sign, Trail
from headerware.keyring import public_part, with_new_key
from headerware.keyring.writing import edit_keyring, write_public_keyring
from headerware.spark_bridge import decode, encode, kafka_source
from headerware.testing import KafkaBroker

PARTITIONS = 2
OLD, NEW = "history-2025", "history-2026"
COLUMNS = ("topic", "key", "value", "headers", "partition")


def chain(keyring: Path, key_id: str | None = None) -> Chain:
    """Return the chain with a keyring; a writer names a key, a reader does not."""
    return Chain([Trail(), Dedup(), Compress(), Sign(keyring=str(keyring), key_id=key_id)])


def keys(folder: Path, key_id: str) -> tuple[Path, Path]:
    """Make a key, and return the keyrings of the signer and of the verifier."""
    secret, public = folder / f"{key_id}.json", folder / f"{key_id}.public.json"
    made = edit_keyring(secret, lambda keyring: with_new_key(keyring, key_id, "ed25519"), create=True)
    write_public_keyring(public, public_part(made)[0])
    return secret, public


def create(servers: str, topics: tuple[str, ...]) -> None:
    """Create the topics."""
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_topics([NewTopic(topic, PARTITIONS) for topic in topics]).values():
        future.result(30)


def produce(servers: str, topic: str, secret: Path) -> int:
    """Send records as the service of former years, and return their number."""
    conf = {"bootstrap.servers": servers, "client.id": "catalogue"}
    count = 0
    with Producer(conf, chain=chain(secret, OLD)) as producer:
        for kind, key, value in records():
            producer.produce(topic, value, key, headers={"kind": kind})
            count += 1
    return count


def backfill(spark: SparkSession, servers: str, topics: tuple[str, str], old: Path, new: Path) -> None:
    """Verify with the old key's public half, and sign with the new key.

    A record's position is its identity, so repeated runs give the same identity.
    """
    source, target = topics
    to_kafka = {"kafka.bootstrap.servers": servers}
    history = kafka_source(spark.read, {**to_kafka, "subscribe": source})
    plain = decode(history, chain(old), job="backfill")
    place = F.struct("topic", "partition", "offset")
    moved = plain.withColumn("place", place).withColumn("topic", F.lit(target))
    wire = encode(moved, chain(new, NEW), identity=["place"], job="backfill")
    wire.select(*COLUMNS).write.format("kafka").options(**to_kafka).save()


def read(servers: str, topic: str, public: Path) -> tuple[Counter[tuple[bytes, bytes]], int]:
    """Read as a reader that trusts one key; return its records and the number of refused records."""
    conf = {"bootstrap.servers": servers, "group.id": f"reader-{topic}", "enable.partition.eof": True}
    consumer = Consumer({**conf, "auto.offset.reset": "earliest"}, chain=chain(public))
    consumer.subscribe([topic])
    found: Counter[tuple[bytes, bytes]] = Counter()
    refused, ends, deadline = 0, 0, time.monotonic() + 60
    while ends < PARTITIONS and time.monotonic() < deadline:
        try:
            message = consumer.poll(1)
        except HeaderwareError:
            refused += 1
            continue
        if message is None:
            continue
        if message.error() is None:
            found[message.key(), message.value()] += 1
        elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:  # noqa: SLF001 - its name
            ends += 1
    consumer.close()
    return found, refused


def stored(servers: str, topic: str) -> int:
    """Return how many records a topic holds, as offsets say."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "count"})
    places = [confluent_kafka.TopicPartition(topic, number) for number in range(PARTITIONS)]
    offsets = [consumer.get_watermark_offsets(place, timeout=10) for place in places]
    consumer.close()
    return sum(high - low for low, high in offsets)


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
    """Sign a topic's history again."""
    spark = start(SparkSession.builder.appName("backfill"))
    with tempfile.TemporaryDirectory() as folder, cluster(bootstrap_servers) as servers:
        (old, old_public), (new, new_public) = keys(Path(folder), OLD), keys(Path(folder), NEW)
        topics = (f"history-{time.time_ns()}", f"history-signed-anew-{time.time_ns()}")
        create(servers, topics)
        count = produce(servers, topics[0], old)
        for _ in range(2):
            backfill(spark, servers, topics, old_public, new)
        spark.stop()
        twice = stored(servers, topics[1])
        found, refused = read(servers, topics[1], new_public)
        of_old, refused_of_old = read(servers, topics[0], new_public)
    click.echo(f"the old topic has {count:,} records, each signed with {OLD}")
    click.echo(f"after two runs the new topic has each of them twice, signed with {NEW}: {twice:,} in all")
    click.echo(f"a reader of the new topic that trusts {NEW} only got each once: {found.total():,}")
    click.echo(f"the same reader refused all {refused_of_old:,} of the old topic")
    expected = Counter((key.encode(), value) for _, key, value in records())
    if found != expected or twice != 2 * count or refused or of_old or refused_of_old != count:
        sys.exit("the records did not come through once each, under the new key alone")


if __name__ == "__main__":
    main()
