"""Mirror a topic from one cluster to another, and show one trail across both.

    python examples/mirror.py
    python examples/mirror.py --source kafka-a:9092 --target kafka-b:9092 --topic orders

Without addresses it starts two embedded clusters, and produces a few records to mirror.
"""

from __future__ import annotations

import contextlib
import time

import click
from rich.console import Console

from headerware import Chain, Consumer, Producer
from headerware.cli.trail import trail_lines
from headerware.interceptors import Trail, read_trail
from headerware.testing import EmbeddedCluster


def produce(servers: str, topic: str, count: int) -> None:
    """Send orders as the first application."""
    producer = Producer({"bootstrap.servers": servers}, chain=Chain([Trail(service="shop", cluster="east")]))
    for number in range(count):
        producer.produce(topic, f"order {number}", key=str(number))
    producer.flush()


def mirror(source: str, target: str, topic: str, count: int) -> int:
    """Copy records with all their headers.

    The consumer's chain opens an entry of the trail, the producer's chain completes it.
    """
    consumer = Consumer(
        {"bootstrap.servers": source, "group.id": "mirror", "auto.offset.reset": "earliest"},
        chain=Chain([Trail(service="mirror", cluster="east")]),
    )
    producer = Producer({"bootstrap.servers": target}, chain=Chain([Trail(service="mirror", cluster="west")]))
    consumer.subscribe([topic])
    copied, deadline = 0, time.monotonic() + 30
    while copied < count and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is None or message.error() is not None:
            continue
        kind, timestamp = message.timestamp()
        producer.produce(
            topic,
            message.value(),
            message.key(),
            headers=message.headers(),
            timestamp=timestamp if kind else 0,
        )
        copied += 1
    producer.flush()
    consumer.close()
    return copied


def consume(servers: str, topic: str, console: Console) -> None:
    """Read as the last application, and show the first record's trail."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "billing", "auto.offset.reset": "earliest"},
        chain=Chain([Trail(service="billing", cluster="west")]),
    )
    consumer.subscribe([topic])
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            for line in trail_lines(read_trail(message.headers())):
                console.print(line)
            break
    consumer.close()


@click.command()
@click.option("--source", help="The cluster to read from; an embedded one by default.")
@click.option("--target", help="The cluster to write to; an embedded one by default.")
@click.option("--topic", default="orders", show_default=True)
@click.option("--count", default=5, show_default=True, help="How many records to mirror.")
def main(source: str | None, target: str | None, topic: str, count: int) -> None:
    """Mirror records between two clusters."""
    console = Console(highlight=False, soft_wrap=True)
    with contextlib.ExitStack() as stack:
        if source is None:
            source = stack.enter_context(EmbeddedCluster()).bootstrap_servers
            produce(source, topic, count)
        if target is None:
            target = stack.enter_context(EmbeddedCluster()).bootstrap_servers
        copied = mirror(source, target, topic, count)
        console.print(f"mirrored {copied} records of {topic!r} from {source} to {target}")
        consume(target, topic, console)


if __name__ == "__main__":
    main()
