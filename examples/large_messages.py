"""Send and read large messages, and repair a message with a lost slice.

    python examples/large_messages.py
    python examples/large_messages.py --bootstrap-servers localhost:9092

Without servers it starts an embedded cluster.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
import uuid
from typing import TYPE_CHECKING, Any

import click
import confluent_kafka
from rich.console import Console

from headerware import Chain, Consumer, Headers, Producer
from headerware.interceptors import Slice
from headerware.ops.redrive import Redrive, Selection
from headerware.testing import EmbeddedCluster

if TYPE_CHECKING:
    from confluent_kafka import Message

DEADLINE_S = 30.0
SIZE = 3_000_000
console = Console(soft_wrap=True, highlight=False)


def read(servers: str, topic: str, *steps: Any, count: int) -> list[Message]:
    """Return the first records of a topic; without steps, as they are on the wire."""
    settings = {
        "bootstrap.servers": servers,
        "group.id": uuid.uuid4().hex,
        "auto.offset.reset": "earliest",
    }
    with Consumer(settings, chain=Chain(steps)) as consumer:
        consumer.subscribe([topic])
        return poll(consumer, count)


def poll(consumer: Consumer, count: int, timeout_s: float = DEADLINE_S) -> list[Message]:
    """Return ``count`` records, or fewer after the timeout."""
    found: list[Message] = []
    deadline = time.monotonic() + timeout_s
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append(message)
    return found


def sent(servers: str, topic: str) -> None:
    """Send a large message, and read it."""
    value = os.urandom(SIZE)
    with Producer({"bootstrap.servers": servers}, chain=Chain([Slice()])) as producer:
        producer.produce(topic, value, b"customer 7")
        producer.flush()
        slices = producer.stats()["slice"]["slices"]
    sizes = [len(message.value() or b"") for message in read(servers, topic, count=slices)]
    console.print(f"{slices} slices, of {', '.join(f'{size:,}' for size in sizes)} bytes")

    (message,) = read(servers, topic, Slice(), count=1)
    whole = message.value() or b""
    same = whole == value
    console.print(f"{message.key()!r} has a value of {len(whole):,} bytes, which is the same: {same}")


def repaired(servers: str, topic: str) -> None:
    """Lose a slice, find the others as dead letters, and send them back together with the lost slice."""
    source = f"{topic}-source"
    with Producer({"bootstrap.servers": servers}, chain=Chain([Slice(max_bytes=1_000)])) as producer:
        producer.produce(source, bytes(range(256)) * 10, b"customer 7")
        producer.flush()
        slices = producer.stats()["slice"]["slices"]
    pieces = read(servers, source, count=slices)
    wire = confluent_kafka.Producer({"bootstrap.servers": servers})

    def send(message: Message) -> None:
        headers: Any = list(Headers(message.headers()))
        wire.produce(topic, message.value(), message.key(), 0, headers=headers)
        wire.flush()

    for piece in pieces[:-1]:
        send(piece)
    settings = {"bootstrap.servers": servers, "group.id": topic, "auto.offset.reset": "earliest"}
    with Consumer(settings, chain=Chain([Slice(on_error="dead_letter", expire_ms=300)])) as consumer:
        consumer.subscribe([topic])
        deadline = time.monotonic() + DEADLINE_S
        while consumer.stats()["slice"]["dead_lettered"] < len(pieces) - 1 and time.monotonic() < deadline:
            consumer.poll(0.2)
        kept = consumer.stats()["slice"]["dead_lettered"]
        console.print(f"{kept} of {slices} slices came, and each has a dead letter")
        with Redrive({"bootstrap.servers": servers}, f"{topic}.dead-letter", Selection()) as redrive:
            redrive.execute()
        send(pieces[-1])
        (message,) = poll(consumer, 1)
        console.print(f"sent back with the lost one, they are {len(message.value() or b''):,} bytes again")


@click.command()
@click.option("--bootstrap-servers", "servers", help="The cluster; an embedded one if this is left out.")
def main(servers: str | None) -> None:
    """Show complete and incomplete large messages."""
    logging.getLogger("headerware").addHandler(logging.NullHandler())  # messages that are given up are logged
    topic = f"customers-{uuid.uuid4().hex[:8]}"
    with contextlib.ExitStack() as stack:
        if servers is None:
            servers = stack.enter_context(EmbeddedCluster()).bootstrap_servers
        sent(servers, topic)
        repaired(servers, f"{topic}-lost")


if __name__ == "__main__":
    main()
