"""Refuse orders that break their contract, an AsyncAPI document, on send and on consume.

    python examples/contract.py
    python examples/contract.py --bootstrap-servers localhost:9092

The contract is in examples/contract.yaml. An old producer, which does not know it, sends to the same topic.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from headerware import Chain, Consumer, HeaderwareError, Producer
from headerware.interceptors import Contract, ContractError
from headerware.testing import EmbeddedCluster

FILE = str(Path(__file__).with_name("contract.yaml"))
ORDERS: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({"id": "1", "amount": 1_995}, {"event-id": str(uuid.uuid4()), "kind": "paid"}),
    ({"id": "2"}, {"kind": "open"}),  # the event's id is missing
    ({"id": "3", "amount": "12"}, {"event-id": str(uuid.uuid4()), "kind": "open"}),  # text for a number
    ({"id": "4", "amount": 0}, {"event-id": str(uuid.uuid4()), "kind": "paid"}),  # paid without an amount
    ({"id": "5"}, {"event-id": str(uuid.uuid4()), "kind": "open", "attempt": "2"}),
]


def produce(servers: str, topic: str) -> list[str]:
    """Send the orders, each with its contract, and return the ids of the orders that were refused."""
    refused = []
    with Producer({"bootstrap.servers": servers}, chain=Chain([Contract(file=FILE)])) as producer:
        for order, headers in ORDERS:
            try:
                producer.produce(topic, json.dumps(order), order["id"], headers=headers)
            except ContractError as error:
                click.echo(f"order {order['id']} is not sent: {', '.join(error.rules)}")
                refused.append(order["id"])
    return refused


def produce_without_a_contract(servers: str, topic: str) -> None:
    """Send all orders as an old producer does."""
    with confluent_kafka.Producer({"bootstrap.servers": servers}) as producer:
        for order, headers in ORDERS:
            producer.produce(topic, json.dumps(order), order["id"], headers=dict(headers))


def consume(servers: str, topic: str, chain: Chain, count: int) -> list[Any]:
    """Return the first messages of a topic."""
    conf = {"bootstrap.servers": servers, "group.id": f"{topic}-reader", "auto.offset.reset": "earliest"}
    found: list[Any] = []
    with Consumer(conf, chain=chain) as consumer:
        consumer.subscribe([topic])
        deadline = time.monotonic() + 60
        while len(found) < count and time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                found.append(message)
    return found


@contextlib.contextmanager
def cluster(servers: str | None, *topics: str) -> Iterator[str]:
    """Create the topics with one partition each, and yield the brokers' addresses."""
    if servers is None:
        with EmbeddedCluster(topics=dict.fromkeys(topics, 1)) as embedded:
            yield embedded.bootstrap_servers
    else:
        for made in (
            AdminClient({"bootstrap.servers": servers})
            .create_topics([NewTopic(topic, 1) for topic in topics])
            .values()
        ):
            made.result()
        yield servers


@click.command()
@click.option("--bootstrap-servers", help="Use this cluster instead of starting an embedded one.")
def main(bootstrap_servers: str | None) -> None:
    """Send and read orders by a contract."""
    logging.getLogger("headerware").addHandler(logging.NullHandler())  # the dead letters are shown below
    topic = f"orders-{time.time_ns()}"
    with cluster(bootstrap_servers, topic, f"{topic}.dead-letter") as servers:
        try:
            refused = produce(servers, topic)
        except HeaderwareError as error:  # if a package is missing, it has the command that installs it
            sys.exit(str(error))
        produce_without_a_contract(servers, topic)
        chain = Chain([Contract(file=FILE, on_error="dead_letter")])
        ids = [json.loads(message.value())["id"] for message in consume(servers, topic, chain, 4)]
        click.echo(f"a consumer gets the orders {', '.join(ids)}")
        letters = consume(servers, f"{topic}.dead-letter", Chain(), 3)
        dead = [json.loads(message.value())["id"] for message in letters]
        click.echo(f"dead letters: the orders {', '.join(dead)}")
        if (refused, ids, dead) != (["2", "3", "4"], ["1", "5", "1", "5"], ["2", "3", "4"]):
            sys.exit("the orders are not where they should be")


if __name__ == "__main__":
    main()
