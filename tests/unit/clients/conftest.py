from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import pytest
from confluent_kafka import TopicPartition

from headerware.clients import Consumer, Producer
from headerware.core.chain import Chain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import Message

    from headerware.testing import EmbeddedCluster

QUIET = {"log_level": 0}
MakeProducer = Callable[..., Producer]
MakeConsumer = Callable[..., Consumer]
Fill = Callable[..., None]


@pytest.fixture
def topic(embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str]) -> str:
    """Return a topic of this test's own, with one partition."""
    name = unique_topic("orders")
    embedded_cluster.create_topic(name, partitions=1)
    return name


@pytest.fixture
def connection(embedded_cluster: EmbeddedCluster) -> dict[str, Any]:
    return {"bootstrap.servers": embedded_cluster.bootstrap_servers, **QUIET}


@pytest.fixture
def make_producer(connection: dict[str, Any]) -> Iterator[MakeProducer]:
    """Return a function that makes a producer of interceptors, closed when the test is over."""
    made: list[Producer] = []

    def make(*interceptors: object, **conf: Any) -> Producer:
        settings = {name.replace("_", "."): value for name, value in conf.items()}
        producer = Producer({**connection, **settings}, chain=Chain(interceptors))
        made.append(producer)
        return producer

    yield make
    for producer in made:
        with contextlib.suppress(RuntimeError):  # closed by the test
            producer.purge()
        producer.close()


@pytest.fixture
def make_consumer(connection: dict[str, Any], unique_topic: Callable[[str], str]) -> Iterator[MakeConsumer]:
    """Return a function that makes a consumer of interceptors, assigned to ``topic`` where that is given."""
    # Some tests make hundreds, and a process has room for a thousand (pthread keys).
    made: WeakSet[Consumer] = WeakSet()
    group = unique_topic("group")

    def make(*interceptors: object, topic: str | None = None, **conf: Any) -> Consumer:
        settings = {name.replace("_", "."): value for name, value in conf.items()}
        consumer = Consumer(
            {
                **connection,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 20,
                **settings,
            },
            chain=Chain(interceptors),
        )
        made.add(consumer)
        if topic is not None:
            consumer.assign([TopicPartition(topic, 0)])
        return consumer

    yield make
    for consumer in made:
        consumer.close()


@pytest.fixture
def fill(connection: dict[str, Any], topic: str) -> Fill:
    """Return a function that puts values into the test's topic, past any chain."""

    def put(*values: bytes | None, headers: Any = None) -> None:
        with Producer(connection, chain=Chain()) as producer:
            for value in values:
                producer.produce(topic, value, partition=0, headers=headers)

    return put


def take(consumer: Consumer, count: int, *, timeout_s: float = 60.0) -> list[Message]:
    """Poll until there are so many messages, or fail."""
    found: list[Message] = []
    deadline = time.monotonic() + timeout_s
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {len(found)} of {count} messages came"
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            found.append(message)
    return found


def values(messages: list[Message]) -> list[bytes | None]:
    return [message.value() for message in messages]


def committed(consumer: Consumer, topic: str) -> tuple[int, str | None]:
    """Return the committed offset of the topic's partition 0, with the application's own metadata."""
    found = consumer.committed([TopicPartition(topic, 0)], 10)[0]
    return found.offset, found.metadata
