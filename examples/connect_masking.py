"""Mask private data before it is sent, with headers that list the masked fields, and refuse mistakes.

    python examples/connect_masking.py
    python examples/connect_masking.py --bootstrap-servers localhost:9092

examples/connect_pii.properties has a connector's lines: they mask nested fields, replace phone numbers and
e-mail addresses (by keyed digests), and move the tenant into a header. Then come mistakes that leak data in
Kafka Connect, and the errors of the strict mode.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
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

from headerware import Chain, Consumer, Headers, HeaderwareError, Producer, Record
from headerware.connect.data import INT32_SCHEMA, OPTIONAL_STRING_SCHEMA, STRING_SCHEMA, SchemaBuilder, Struct
from headerware.interceptors import Serialize, Transforms
from headerware.serdes import Connect
from headerware.testing import EmbeddedCluster

LINES = Path(__file__).with_name("connect_pii.properties")
CARD = SchemaBuilder.struct().field("number", STRING_SCHEMA).field("cvc", INT32_SCHEMA).build()
CUSTOMER = (
    SchemaBuilder.struct()
    .name("shop.Customer")
    .field("id", INT32_SCHEMA)
    .field("tenant", STRING_SCHEMA)
    .field("email", STRING_SCHEMA)
    .field("phone", OPTIONAL_STRING_SCHEMA)
    .field("card", CARD)
    .build()
)
CUSTOMERS = [
    {"id": 1, "tenant": "north", "email": "ada@example.com", "phone": "+44 20 7946 0991"},
    {"id": 2, "tenant": "south", "email": "grace@example.com", "phone": None},
    {"id": 3, "tenant": "north", "email": "ada@example.com", "phone": "+44 20 7946 0992"},
]
CARDS = {"number": "4012 8888 8888 1881", "cvc": 123}
PRIVATE = re.compile(rb"example\.com|\+44 20 7946 099|4012 8888|\b123\b")
HIDE = "transforms=hide\ntransforms.hide.type=MaskField$Value\ntransforms.hide.fields=email\n"
MISTAKES = {
    "a field's name, mistyped": HIDE.replace("email", "emial"),
    "a line for an alias that is not listed": HIDE.replace("transforms=hide", "transforms="),
    "a slip in a key": HIDE.replace("transforms=", "tranforms="),
    "a key's old name, which Kafka ignores": HIDE.replace("Mask", "Replace").replace("fields=", "blacklist="),
}


def customers() -> Iterator[Struct]:
    """Yield customers as an application has them."""
    for customer in CUSTOMERS:
        yield Struct.of(CUSTOMER, {**customer, "card": CARDS})


def chain(**options: Any) -> Chain:
    """Return the chain of the service: a connector's lines, and JSON with its schema."""
    return Chain([Transforms(**options), Serialize(value=Connect(converter="JsonConverter"))])


def produce(servers: str, topic: str) -> None:
    """Send customers as the service does."""
    with Producer({"bootstrap.servers": servers}, chain=chain(file=str(LINES))) as producer:
        for customer in customers():
            producer.produce(topic, customer, str(customer["id"]))
        producer.produce(topic, None, "1")  # delete the first customer


def read(consumer: Any, topic: str, count: int) -> list[Any]:
    """Read ``count`` messages."""
    found: list[Any] = []
    consumer.subscribe([topic])
    deadline = time.monotonic() + 30
    while len(found) < count and time.monotonic() < deadline:
        found += [message for message in consumer.consume(count, 0.2) if message.error() is None]
    consumer.close()
    return found


def outcome(lines: str, mode: str) -> str:
    """Return the result for a customer whose e-mail address these lines should hide."""
    try:
        with chain(config=lines, mode=mode).open() as session:
            (sent,) = session.send([Record("customers", next(customers()))])
    except HeaderwareError as refused:
        return f"refused: {refused}"
    return "LEAKS" if b"ada@example.com" in sent.value else "hidden"


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


def run(console: Console, servers: str, topic: str) -> bool:
    """Send customers, look for private data on the wire, and make mistakes."""
    produce(servers, topic)
    conf = {"bootstrap.servers": servers, "auto.offset.reset": "earliest"}
    wire = read(confluent_kafka.Consumer({**conf, "group.id": f"plain-{topic}"}), topic, len(CUSTOMERS) + 1)
    console.print("[bold]On the wire[/]")
    for message in wire:
        told = ", ".join(f"{name}={value.decode()}" for name, value in message.headers())
        payload = message.value() and json.dumps(json.loads(message.value())["payload"])
        console.print(f"  {escape(str(payload))}\n    with {told}")

    reader = {"value.converter": "JsonConverter", "group.id": f"support-{topic}"}
    *seen, gone = read(Consumer({**conf, **reader}), topic, len(wire))
    tenants = [Headers(message.headers()).last("tenant") for message in seen]
    emails = [message.value()["email"] for message in seen]
    console.print(f"customers 1 and 3 have one e-mail address: {emails[0] == emails[2] != emails[1]}")

    console.print("[bold]Mistakes[/]")
    answers = [(outcome(lines, "kafka_4_3"), outcome(lines, "strict")) for lines in MISTAKES.values()]
    for name, (kafka, strict) in zip(MISTAKES, answers, strict=True):
        console.print(f"  {name}\n    Kafka 4.3: [red]{kafka}[/]\n    strict: {escape(strict)}")
    safe = not any(PRIVATE.search(message.value() or b"") for message in wire)
    held = all(kafka == "LEAKS" and strict.startswith("refused") for kafka, strict in answers)
    as_sent = tenants == [b"north", b"south", b"north"] and gone.value() is None
    return safe and as_sent and held and emails[0] == emails[2] != emails[1]


@click.command()
@click.option("--bootstrap-servers", help="Use this cluster instead of starting an embedded one.")
def main(bootstrap_servers: str | None) -> None:
    """Mask private data."""
    os.environ.setdefault("PEPPER", secrets.token_hex())
    topic = f"customers-{time.time_ns()}"
    with cluster(bootstrap_servers, topic) as servers:
        if not run(Console(highlight=False, soft_wrap=True), servers, topic):
            sys.exit("the customers did not come back as they were sent")


if __name__ == "__main__":
    main()
