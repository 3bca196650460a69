"""Route orders to topics by their contents: a router, a filter and a header, with expressions in CEL.

    python examples/connect_routing.py
    python examples/connect_routing.py --bootstrap-servers localhost:9092

The rules are in examples/connect_routing.toml, in a connector's syntax. The application sends to one topic.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headerware import ConfigError, Producer, TransformError
from headerware.testing import EmbeddedCluster

CHAIN = Path(__file__).with_name("connect_routing.toml")
PLACED = "2026-01-31T12:00:00Z"
PLACES = ("large", "eu", "world")
TEST = {"origin": "load test"}
ORDERS: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({"id": 1, "country": "DE", "price": 1_995, "count": 2}, {}),
    ({"id": 2, "country": "US", "price": 1_995, "count": 1, "due": "2026-02-01T09:00:00Z"}, {}),
    ({"id": 3, "country": "DE", "price": 249_900, "count": 1, "due": "2026-03-01T09:00:00Z"}, {}),
    ({"id": 4, "country": "FR", "price": 100, "count": 1}, TEST),
    ({"id": 5, "price": 500, "count": 1}, {}),  # the country is missing
    ({"id": 6, "price": 500, "count": 1_000}, {}),  # the rule for large orders does not need the country
]
COLUMNS = ("id", "country", "price", "count", "total", "due")
EXPECTED = {  # by topic: order, total and priority
    "large": [(3, 249_900, None), (6, 500_000, None)],
    "eu": [(1, 3_990, None)],
    "world": [(2, 1_995, "high")],
}


def produce(console: Console, servers: str, topic: str) -> int:
    """Send the orders to one topic as the application does, and return the number of refused orders."""
    refused = 0
    dropped: list[int] = []
    with Producer({"bootstrap.servers": servers, "headerware.config": str(CHAIN)}) as producer:
        for order, headers in ORDERS:

            def told(error: Any, _: Any, number: int = order["id"]) -> None:
                if error is not None:
                    dropped.append(number)

            try:
                value = {**order, "placed": PLACED}
                producer.produce(topic, value, str(order["id"]), headers=headers, on_delivery=told)
            except TransformError as error:
                console.print(f"  order {order['id']} was refused: {escape(error.message)}")
                refused += 1
    console.print(f"  dropped by the filter: {dropped}")
    return refused if dropped == [4] else -1


def read(servers: str, topic: str) -> Iterator[Any]:
    """Yield the messages of a topic, to its end."""
    conf = {"bootstrap.servers": servers, "group.id": f"plain-{topic}", "enable.partition.eof": True}
    consumer = confluent_kafka.Consumer({**conf, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is not None:
            break
        if message is not None:
            yield message
    consumer.close()


@contextlib.contextmanager
def cluster(servers: str | None, topics: Sequence[str]) -> Iterator[str]:
    """Create the topics with one partition each, and yield the brokers' addresses."""
    if servers is None:
        with EmbeddedCluster(topics=dict.fromkeys(topics, 1)) as embedded:
            yield embedded.bootstrap_servers
    else:
        admin = AdminClient({"bootstrap.servers": servers})
        for made in admin.create_topics([NewTopic(topic, 1) for topic in topics]).values():
            made.result()
        yield servers


def run(console: Console, servers: str, topic: str) -> bool:
    """Produce to one topic, and show the orders in each topic."""
    console.print(f"[bold]{len(ORDERS)} orders for {topic}[/]")
    refused = produce(console, servers, topic)
    found: dict[str, list[Any]] = {}
    for place in PLACES:
        console.print(f"[bold]{topic}-{place}[/]")
        found[place] = []
        table = Table(*COLUMNS, "priority")
        for message in read(servers, f"{topic}-{place}"):
            order, headers = json.loads(message.value()), dict(message.headers() or ())
            priority = headers.get("priority", b"").decode() or None
            fields = (str(order.get(name, "")) for name in COLUMNS)
            table.add_row(*map(escape, fields), escape(priority or ""))
            found[place].append((order["id"], order["total"], priority))
        console.print(table)
    return found == EXPECTED and refused == 1


@click.command()
@click.option("--bootstrap-servers", help="Use this cluster instead of starting an embedded one.")
def main(bootstrap_servers: str | None) -> None:
    """Route orders by their contents."""
    topic = f"orders-{time.time_ns()}"
    with cluster(bootstrap_servers, [f"{topic}-{place}" for place in PLACES]) as servers:
        try:
            as_expected = run(Console(highlight=False, soft_wrap=True), servers, topic)
        except ConfigError as error:  # if CEL is missing, the error has the command that installs it
            sys.exit(str(error))
        if not as_expected:
            sys.exit("the orders are not where they should be")


if __name__ == "__main__":
    main()
