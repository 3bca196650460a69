"""Run a connector's transforms in a producer: by its lines in the configuration, or by its file.

    python examples/connect_producer.py
    python examples/connect_producer.py --bootstrap-servers localhost:9092

examples/connect_airports.json is a JDBC source connector, as posted to Kafka Connect. Two applications
read airports from a CSV file, and send them as the connector would: one application has the connector's
lines in its configuration, the other has the connector's file in its chain.
"""

from __future__ import annotations

import contextlib
import csv
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.markup import escape
from rich.table import Table

try:
    from vega_datasets import local_data
except ImportError:
    sys.exit("this example needs data to send: run python -m pip install -e '.[demo]' in the repository")

from headerware import Chain, Consumer, Producer
from headerware.interceptors import Serialize, Transforms
from headerware.serdes import Connect
from headerware.testing import EmbeddedCluster

CONNECTOR = Path(__file__).with_name("connect_airports.json")
SHOWN = 3
PASTED = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "transforms": "tombstones,types,short,key,keyText,state,origin,prefix",
    "transforms.tombstones.type": "org.apache.kafka.connect.transforms.Filter",
    "transforms.tombstones.predicate": "isTombstone",
    "transforms.types.type": "org.apache.kafka.connect.transforms.Cast$Value",
    "transforms.types.spec": "latitude:float64,longitude:float64",
    "transforms.short.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
    "transforms.short.exclude": "country",
    "transforms.short.renames": "iata:code",
    "transforms.key.type": "org.apache.kafka.connect.transforms.ValueToKey",
    "transforms.key.fields": "code",
    "transforms.keyText.type": "org.apache.kafka.connect.transforms.ExtractField$Key",
    "transforms.keyText.field": "code",
    "transforms.state.type": "org.apache.kafka.connect.transforms.HeaderFrom$Value",
    "transforms.state.fields": "state",
    "transforms.state.headers": "state",
    "transforms.state.operation": "copy",
    "transforms.origin.type": "org.apache.kafka.connect.transforms.InsertHeader",
    "transforms.origin.header": "origin",
    "transforms.origin.value.literal": "geography-db",
    "transforms.prefix.type": "org.apache.kafka.connect.transforms.RegexRouter",
    "transforms.prefix.regex": "(.*)",
    "transforms.prefix.replacement": "geo.$1",
    "transforms.prefix.predicate": "isOurs",
    "transforms.prefix.negate": "true",
    "predicates": "isTombstone,isOurs",
    "predicates.isTombstone.type": "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",
    "predicates.isOurs.type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
    "predicates.isOurs.pattern": r"geo\..*",
}
CONVERTERS = {key: value for key, value in PASTED.items() if "converter" in key}
PLAIN = {"interceptors.converters.key.plain": "true"}  # keys as text, without their schema


def rows() -> Iterator[dict[str, str]]:
    """Yield the rows of a CSV file of airports: all values are text, with columns that are not needed."""
    with open(local_data.airports.filepath, encoding="utf-8", newline="") as file:  # noqa: PTH123 - the package gives a plain text path
        yield from csv.DictReader(file)


def expected(row: dict[str, str]) -> dict[str, Any]:
    """Return an airport as consumers should see it."""
    numbers = {name: float(row[name]) for name in ("latitude", "longitude")}
    return {"code": row["iata"], "name": row["name"], "city": row["city"], "state": row["state"], **numbers}


def produce(producer: Producer, topic: str) -> None:
    """Send airports as an application does, without keys, headers, prefixes and transforms in its code."""
    for row in rows():
        producer.produce(topic, row)
    producer.produce(topic, None)  # a tombstone, which the connector filters
    producer.flush()


def read(consumer: Any, topic: str, count: int) -> list[Any]:
    """Read ``count`` messages."""
    found: list[Any] = []
    consumer.subscribe([topic])
    deadline = time.monotonic() + 30
    while len(found) < count and time.monotonic() < deadline:
        found += [message for message in consumer.consume(500, 0.2) if message.error() is None]
    consumer.close()
    return found


@contextlib.contextmanager
def cluster(servers: str | None, topic: str) -> Iterator[str]:
    """Create the topic with one partition, and yield the brokers' addresses."""
    if servers is None:
        with EmbeddedCluster(topics={topic: 1}) as embedded:
            yield embedded.bootstrap_servers
    else:
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic(topic, 1)])[topic].result()
        yield servers


def table(found: list[dict[str, Any]]) -> Table:
    """Return a table of dicts with the same keys."""
    made = Table(*found[0])
    for row in found:
        made.add_row(*(escape(str(value)) for value in row.values()))
    return made


def run(console: Console, servers: str, topic: str) -> bool:
    """Send the airports twice, show them on the wire, and read them."""
    conf = {"bootstrap.servers": servers}
    with Producer({**conf, **PASTED}) as pasted:
        produce(pasted, topic.removeprefix("geo."))
    json_without_schemas = Connect(converter="JsonConverter", options={"schemas.enable": False})
    steps = [Transforms(file=str(CONNECTOR)), Serialize(key="string", value=json_without_schemas)]
    with Producer(conf, chain=Chain(steps)) as by_file:
        produce(by_file, topic)  # with the prefix, so that the negated predicate leaves the name alone

    airports = list(rows())
    conf |= {"auto.offset.reset": "earliest"}
    wire = read(confluent_kafka.Consumer({**conf, "group.id": f"plain-{topic}"}), topic, 2 * len(airports))
    console.print("[bold]What an application sent[/]")
    console.print(table(airports[:SHOWN]))
    console.print(f"[bold]What is on the wire[/], in {topic}")
    for message in wire[:SHOWN]:
        headers = ", ".join(f"{name}={value.decode()}" for name, value in message.headers())
        console.print(f"  {message.key().decode()}: {escape(message.value().decode())} with {headers}")

    seen = read(Consumer({**conf, **CONVERTERS, **PLAIN, "group.id": f"maps-{topic}"}), topic, len(wire))
    console.print("[bold]What a consumer sees[/] that has the connector's converters")
    console.print(table([message.value() for message in seen[:SHOWN]]))
    sent = [(message.key(), message.value(), tuple(message.headers())) for message in wire]
    alike = sent[: len(airports)] == sent[len(airports) :]
    verdict = "the same records" if alike else "NOT the same records"
    console.print(f"{len(airports):,} airports by pasted lines, and by the connector's file: {verdict}")
    return alike and [message.value() for message in seen] == [expected(row) for row in airports] * 2


@click.command()
@click.option("--bootstrap-servers", help="Use this cluster instead of starting an embedded one.")
def main(bootstrap_servers: str | None) -> None:
    """Send airports as a connector does."""
    topic = f"geo.airports-{time.time_ns()}"
    with cluster(bootstrap_servers, topic) as servers:
        if not run(Console(highlight=False, soft_wrap=True), servers, topic):
            sys.exit("the airports did not come back as they were sent")


if __name__ == "__main__":
    main()
