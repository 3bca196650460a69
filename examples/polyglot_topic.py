"""Use many formats in one topic: Avro, JSON, Protobuf, MessagePack, CBOR, text and bytes.

    python examples/polyglot_topic.py
    python examples/polyglot_topic.py --bootstrap-servers localhost:9092

Each record's content type chooses its deserializer. A record of an unknown type becomes a dead letter.
Protobuf and CBOR take part if they are installed: pip install '.[protobuf,cbor]' in the clone.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import click
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headerware import Chain, DeserializingConsumer, Headers, SerializingProducer
from headerware.interceptors import Serialize
from headerware.serdes import Avro, Polyglot, Protobuf
from headerware.testing import EmbeddedCluster

try:
    from google.protobuf.duration_pb2 import Duration
except ImportError:
    Duration = None

HAS_CBOR = find_spec("cbor2") is not None
AVRO, UNKNOWN = "application/avro-binary", "application/vnd.example.order; version=3"
READING = {"type": "record", "name": "Reading", "fields": [{"name": "celsius", "type": "double"}]}


@dataclass
class Reading:
    """A class of the application, which is sent as Avro."""

    celsius: float


def samples() -> Iterator[tuple[Any, dict[str, str]]]:
    """Yield objects and headers: without a content type in the headers, the object's type decides."""
    yield Reading(21.5), {}
    yield {"celsius": 21.5}, {}
    yield {"celsius": 21.5}, {"content-type": "application/vnd.example.reading+json"}
    yield {"celsius": 21.5}, {"content-type": "application/msgpack"}
    if HAS_CBOR:
        yield {"celsius": 21.5}, {"content-type": "application/cbor"}
    if Duration is not None:
        yield Duration(seconds=90), {}
    yield "21,5 °C", {}
    yield "21,5 °C", {"content-type": "text/plain; charset=iso-8859-1"}
    yield b"\x15\x05", {}


def formats() -> Polyglot:
    """Return the serde of both ends, with Avro and Protobuf; JSON, text and others are built in."""
    types: dict[str, Any] = {AVRO: Avro(schema=READING)}
    if Duration is not None:
        types["application/protobuf"] = Protobuf(message=Duration)
    return Polyglot(types=types, by_type={Reading: AVRO})


def write(servers: str, topic: str) -> None:
    """Write all formats with one producer, and two records with a plain producer."""
    with SerializingProducer({"bootstrap.servers": servers, "value.serializer": formats()}) as producer:
        for value, headers in samples():
            producer.produce(topic, value=value, headers=headers)
    stranger = Producer({"bootstrap.servers": servers})
    stranger.produce(topic, b"\x01\x02\x03", headers={"content-type": UNKNOWN})
    stranger.produce(topic, b"no content type")
    stranger.flush()


def read(consumer: Any, topics: list[str], count: int) -> list[Any]:
    """Read ``count`` messages."""
    found: list[Any] = []
    consumer.subscribe(topics)
    deadline = time.monotonic() + 30
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.append(message)
    consumer.close()
    return found


@contextlib.contextmanager
def cluster(servers: str | None, *topics: str) -> Iterator[str]:
    """Create the topics with one partition each, and yield the brokers' addresses."""
    if servers is None:
        with EmbeddedCluster(topics=dict.fromkeys(topics, 1)) as embedded:
            yield embedded.bootstrap_servers
    else:
        admin = AdminClient({"bootstrap.servers": servers})
        for topic in topics:
            admin.create_topics([NewTopic(topic, 1)])[topic].result()
        yield servers


def run(console: Console, servers: str, topic: str) -> bool:
    """Write and read records, and show them on the wire with the dead letter."""
    write(servers, topic)
    letters = f"{topic}.dead-letter"
    sent = [value for value, _ in samples()]
    conf = {"bootstrap.servers": servers, "group.id": topic, "auto.offset.reset": "earliest"}
    chain = Chain([Serialize(value=formats(), on_error="dead_letter")])
    seen = read(DeserializingConsumer(conf, chain=chain), [topic], len(sent) + 1)
    plain = read(Consumer({**conf, "group.id": f"plain-{topic}"}), [topic, letters], len(sent) + 3)
    wire = {message.offset(): message.value() for message in plain if message.topic() == topic}
    [letter] = [message for message in plain if message.topic() == letters]

    table = Table("content-type", "on the wire", "what the application sees")
    for message in seen:
        stated = Headers(message.headers()).last("content-type", b"(none)")
        shown = escape(" ".join(repr(message.value()).split()))
        table.add_row(stated.decode(), wire[message.offset()].hex(), shown)
    console.print(table)
    reason = Headers(letter.headers()).last("__connect.errors.exception.message").decode()
    console.print(f"dead letter {letter.value().hex()}, and its reason in a header: {escape(reason)}")

    expected = [{"celsius": 21.5}, *sent[1:], b"no content type"]
    return [message.value() for message in seen] == expected and letter.value() == b"\x01\x02\x03"


@click.command()
@click.option("--bootstrap-servers", help="Use this cluster instead of starting an embedded one.")
def main(bootstrap_servers: str | None) -> None:
    """Put many formats into one topic."""
    # The first dead letter of a kind is logged; the log is shown with the other output.
    logging.basicConfig(format="log: %(message)s", stream=sys.stdout)
    topic = f"readings-{time.time_ns()}"
    with cluster(bootstrap_servers, topic, f"{topic}.dead-letter") as servers:
        console = Console(highlight=False, width=None if sys.stdout.isatty() else 110)
        if not run(console, servers, topic):
            sys.exit("the records did not come back as they were sent")


if __name__ == "__main__":
    main()
