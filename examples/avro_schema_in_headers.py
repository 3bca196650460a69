"""Avro with its schema in the headers: no magic byte in the payload, and no schema registry to run.

    python examples/avro_schema_in_headers.py
    python examples/avro_schema_in_headers.py --bootstrap-servers localhost:9092

Two versions of a schema share one topic; the schemas themselves are in a folder of .avsc files.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import click
import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.markup import escape

from headerware import Chain, DeserializingConsumer, Headers, SerdeError, SerializingProducer
from headerware.interceptors import Schema, Serialize
from headerware.serdes import Avro, FolderSchemas
from headerware.testing import EmbeddedCluster

AMOUNT = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
FIELDS = [{"name": "id", "type": "int"}, {"name": "amount", "type": AMOUNT}]
FIRST = {"type": "record", "name": "shop.Order", "fields": FIELDS}
SECOND = {**FIRST, "fields": [*FIELDS, {"name": "currency", "type": "string", "default": "EUR"}]}
CHAIN = """\
[[interceptors]]
type = "serialize"

[interceptors.value]
type = "avro"
reader_schema = "order-2.avsc"    # beside this file
store = { type = "folder", path = "schemas" }
"""
ORDER, BARE = {"id": 1, "amount": Decimal("9.99")}, b"\x02\x04\x03\xe7"


def write(servers: str, topic: str, folder: Path) -> None:
    """Configure the serializer in three ways: by object, by name, and split in two steps."""
    store = FolderSchemas(path=str(folder / "schemas"))
    conf = {"bootstrap.servers": servers}
    by_object = {**conf, "value.serializer": Avro(schema=FIRST, store=store)}
    by_name = {
        **conf,
        "value.serializer": "avro",
        "value.serializer.schema": str(folder / "order-2.avsc"),
        "value.serializer.store": "folder",
        "value.serializer.store.path": str(folder / "schemas"),
    }
    # Here the serializer has no store: it writes the schema's text into a header, for the next step.
    split = Chain([Serialize(value=Avro(schema=FIRST)), Schema(store=store)])
    with SerializingProducer(by_object) as producer:
        producer.produce(topic, value=ORDER)
    with SerializingProducer(by_name) as producer:
        producer.produce(topic, value={**ORDER, "id": 2, "currency": "USD"})
    with SerializingProducer(conf, chain=split) as producer:
        producer.produce(topic, value={**ORDER, "id": 3})


def damage(servers: str, topic: str, good: confluent_kafka.Message) -> None:
    """Produce a copy with an unknown schema, a truncated copy, and an unchanged copy."""
    mark = Headers(good.headers()).last("hw.schema") or b""
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    unknown = Headers(good.headers()).put("hw.schema", mark[:-1] + (b"1" if mark.endswith(b"0") else b"0"))
    producer.produce(topic, good.value(), headers=list(unknown))
    producer.produce(topic, good.value()[:-1], headers=good.headers())
    producer.produce(topic, good.value(), headers=good.headers())
    producer.flush()


def read(consumer: Any, topic: str, count: int) -> Iterator[Any]:
    """Yield messages, and the errors of refused messages in their positions."""
    consumer.subscribe([topic])
    deadline = time.monotonic() + 30
    while count and time.monotonic() < deadline:
        try:
            found = consumer.poll(1)
        except SerdeError as refused:  # only this record is refused: the next poll goes on after it
            found = refused
        if found is not None and (isinstance(found, SerdeError) or found.error() is None):
            count -= 1
            yield found
    consumer.close()


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


def run(console: Console, servers: str, topic: str, folder: Path) -> bool:
    """Write records, show them on the wire, damage some, and read them."""
    (folder / "order-2.avsc").write_text(json.dumps(SECOND), encoding="utf-8")
    (folder / "chain.toml").write_text(CHAIN, encoding="utf-8")
    conf = {"bootstrap.servers": servers, "auto.offset.reset": "earliest"}
    write(servers, topic, folder)
    console.print("[bold]On the wire[/], as a plain client sees it")
    wire = list(read(confluent_kafka.Consumer({**conf, "group.id": f"plain-{topic}"}), topic, 3))
    for message in wire:
        stated, mark = map(Headers(message.headers()).last, ("content-type", "hw.schema"))
        console.print(f"  {message.value().hex():16} as {stated.decode()}, hw.schema {mark.decode()}")
    console.print("[bold]Deposited[/]", *sorted(path.name for path in folder.glob("schemas/*")), sep="\n  ")

    damage(servers, topic, wire[0])
    console.print("[bold]What the application sees[/], by the second schema whichever one wrote")
    conf |= {"group.id": f"billing-{topic}", "headerware.config": str(folder / "chain.toml")}
    orders: list[Any] = []
    for found in read(DeserializingConsumer(conf), topic, 6):
        if isinstance(found, SerdeError):
            console.print(f"  [red]{escape(str(found))}[/]")
        else:
            order = found.value()
            console.print(f"  order {order['id']}, {order['amount']} {escape(order['currency'])}")
            orders.append(found.value())
    marks = [message.headers() for message in wire]
    codes = [(1, "EUR"), (2, "USD"), (3, "EUR"), (1, "EUR")]
    expected = [{**ORDER, "id": number, "currency": code} for number, code in codes]
    return orders == expected and marks[0] == marks[2] != marks[1] and wire[0].value() == BARE


@click.command()
@click.option("--bootstrap-servers", help="Use this cluster instead of starting an embedded one.")
def main(bootstrap_servers: str | None) -> None:
    """Write and read Avro with its schema in the headers."""
    topic = f"orders-{time.time_ns()}"
    with cluster(bootstrap_servers, topic) as servers, tempfile.TemporaryDirectory() as folder:
        if not run(Console(highlight=False, soft_wrap=True), servers, topic, Path(folder)):
            sys.exit("the orders did not come back as they were sent")


if __name__ == "__main__":
    main()
