"""Train a dictionary on a topic, publish it while a producer runs, and compare the sizes of records.

    python examples/trained_dictionary.py
    python examples/trained_dictionary.py --bootstrap-servers localhost:9092

The records are the airports of the United States, one JSON object each. Without servers it starts an embedded
cluster.
"""

from __future__ import annotations

import contextlib
import json
import time
import uuid

import click
import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from vega_datasets import local_data

from headerware import Chain, Consumer, Producer
from headerware.dictionaries import TopicDictionaries
from headerware.dictionaries.store import publish
from headerware.interceptors import Compress
from headerware.kafka.reader import TopicReader
from headerware.ops.dictionaries import Samples, evaluate, sample, split, train
from headerware.testing import EmbeddedCluster

DEADLINE_S = 30.0


def make_topics(servers: str, *topics: str) -> None:
    """Create compacted topics of one partition."""
    made = [NewTopic(topic, 1, config={"cleanup.policy": "compact"}) for topic in topics]
    for done in AdminClient({"bootstrap.servers": servers}).create_topics(made).values():
        done.result()


def send(producer: confluent_kafka.Producer, topic: str, values: list[bytes]) -> None:
    """Send all airports, and wait until they are stored."""
    for value in values:
        producer.produce(topic, value, headers=[("content-type", b"application/json")])
    producer.flush()


def sizes(consumer: confluent_kafka.Consumer, topic: str, count: int) -> list[int]:
    """Return the sizes of a topic's values, as a client sees them."""
    consumer.subscribe([topic])
    found: list[int] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(found) < count and time.monotonic() < deadline:
        found += [len(message.value()) for message in consumer.consume(500, 1) if message.error() is None]
    consumer.close()
    return found


@click.command()
@click.option("--bootstrap-servers", "servers", help="The cluster; an embedded one if this is left out.")
def main(servers: str | None) -> None:
    """Train a dictionary on a topic's records, and let a running producer use it."""
    console = Console(highlight=False)
    values = [json.dumps(row).encode() for row in local_data.airports().to_dict("records")]
    topic, store_topic = (f"{name}-{uuid.uuid4().hex[:8]}" for name in ("airports", "dictionaries"))
    with contextlib.ExitStack() as stack:
        if servers is None:
            cluster = stack.enter_context(EmbeddedCluster(topics={topic: 1, store_topic: 1}))
            servers = cluster.bootstrap_servers
        else:
            make_topics(servers, topic, store_topic)
        conf = {"bootstrap.servers": servers}
        settings = TopicDictionaries(servers=servers, topic=store_topic)
        chain = Chain([Compress(dictionaries=settings)])

        with Producer(conf, chain=chain) as producer:
            send(producer, topic, values)

            samples = Samples()
            with TopicReader(conf, topic, group_id="example") as reader:
                reader.start()
                learnt, others = split(sample(reader.to_end(), samples).taken())
            samples.close()
            trained = train(learnt)
            console.print(f"trained dictionary {trained.dictionary.id} on {len(learnt)} airports")
            result = evaluate(others, trained.dictionary)
            console.print(result.plain_advice)
            console.print(result.encrypted_advice)

            store = settings.open()
            use = publish(store, trained.dictionary, topic)
            console.print(f"published it as version {use.current.number}")
            store.read()
            store.close()
            deadline = time.monotonic() + DEADLINE_S
            while not producer.stats()["compress"]["compressed_with_dictionary"]:
                if time.monotonic() > deadline:
                    raise click.ClickException("the producer has not taken the dictionary over")
                producer.produce(topic, values[0])
                producer.flush()
            send(producer, topic, values)

        group = {"group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
        count = producer.stats()["compress"]["compressed_with_dictionary"] + len(values)
        stored = sizes(confluent_kafka.Consumer({**conf, **group}), topic, count)
        before, after = sum(stored[: len(values)]), sum(stored[-len(values) :])
        console.print(
            f"{len(values)} airports: {before} bytes of values before, {after} since, without a restart"
        )
        group["group.id"] = uuid.uuid4().hex
        read = sizes(Consumer({**conf, **group}, chain=chain), topic, len(stored))
        console.print(f"a consumer with the chain reads {sum(read[-len(values) :])} bytes of both")


if __name__ == "__main__":
    main()
