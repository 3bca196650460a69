"""Send CloudEvents over Kafka, in binary and in structured mode, to and from the official SDK.

    python examples/cloudevents.py
    python examples/cloudevents.py --bootstrap-servers localhost:9092

The SDK takes part if it is installed: pip install "cloudevents>=2".
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.markup import escape

from headerware import DeserializingConsumer, SerializingProducer
from headerware.serdes import CloudEvent
from headerware.testing import EmbeddedCluster

try:
    # This file has the SDK's name, and its folder comes first on the path of imports.
    sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != Path(__file__).resolve().parent]
    from cloudevents.core.bindings import kafka as sdk
    from cloudevents.core.v1.event import CloudEvent as SdkEvent
except ImportError:
    sdk = None

WRITERS = ("ours, binary", "ours, structured", "the SDK's, binary", "the SDK's, structured")
EVENT = CloudEvent(
    id="1042",
    source="/shop/orders",
    type="com.example.order.placed",
    time=datetime(2026, 1, 31, 12, tzinfo=UTC),
    datacontenttype="application/json",
    data={"item": "umbrella", "amount": 2},
    extensions={"partitionkey": "customer-7"},
)


def write(servers: str, topic: str) -> int:
    """Write the event in both modes by our serde and by the SDK, and return the number of records."""
    for mode in ("binary", "structured"):
        serializer = {"value.serializer": "cloudevents", "value.serializer.mode": mode}
        with SerializingProducer({"bootstrap.servers": servers, **serializer}) as producer:
            producer.produce(topic, key=EVENT.key, value=EVENT)
    if sdk is None:
        return 2
    theirs = SdkEvent(EVENT.attributes(), EVENT.data)
    plain = Producer({"bootstrap.servers": servers})
    for message in (sdk.to_binary_event(theirs), sdk.to_structured_event(theirs)):
        plain.produce(topic, message.value, message.key, headers=message.headers)
    plain.flush()
    return 4


def read(consumer: Any, topic: str, count: int) -> list[Any]:
    """Read ``count`` messages."""
    found: list[Any] = []
    consumer.subscribe([topic])
    deadline = time.monotonic() + 30
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.append(message)
    consumer.close()
    return found


def sdk_reads(message: Any) -> bool:
    """Return whether the SDK sees the same event in a message."""
    headers = dict(message.headers())
    seen = sdk.from_kafka_event(sdk.KafkaMessage(headers, message.key().decode(), message.value()))
    return seen.get_attributes() == EVENT.attributes() and seen.get_data() == EVENT.data


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
    """Write the events, show them on the wire, and read them by our serde and by the SDK."""
    count = write(servers, topic)
    conf = {"bootstrap.servers": servers, "auto.offset.reset": "earliest"}

    wire = read(Consumer({**conf, "group.id": f"plain-{topic}"}), topic, count)
    for writer, message in zip(WRITERS, wire, strict=False):
        console.print(f"[bold]On the wire[/], {writer}")
        for name, value in message.headers():
            console.print(f"  {name}: {escape(value.decode())}")
        console.print(f"  {escape(message.value().decode())}")

    ours = {**conf, "group.id": f"billing-{topic}", "value.deserializer": "cloudevents"}
    seen = [message.value() for message in read(DeserializingConsumer(ours), topic, count)]
    console.print("[bold]What the application sees[/], one event for each of them")
    for event in seen:
        console.print(f"  {event.type} {event.id} at {event.time} with {escape(str(event.data))}")
    if sdk is None:
        console.print("the SDK is not installed: it neither wrote nor read")
        return seen == [EVENT] * count
    understood = [sdk_reads(message) for message in wire]
    console.print(f"The SDK sees the same event in {sum(understood)} of {count} messages")
    return seen == [EVENT] * count and all(understood)


@click.command()
@click.option("--bootstrap-servers", help="Use this cluster instead of starting an embedded one.")
def main(bootstrap_servers: str | None) -> None:
    """Send an event in both modes, and read it by our serde and by the SDK."""
    topic = f"events-{time.time_ns()}"
    with cluster(bootstrap_servers, topic) as servers:
        if not run(Console(highlight=False, soft_wrap=True), servers, topic):
            sys.exit("the events did not come back as they were sent")


if __name__ == "__main__":
    main()
