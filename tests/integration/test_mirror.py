"""Two clusters, and mirrors between them: one that has never heard of us, and one with a chain."""

from __future__ import annotations

import random
import time
import uuid
from base64 import b64decode
from typing import TYPE_CHECKING, Final, NamedTuple

import confluent_kafka
import pytest

from headerware import Chain, Consumer, Headers, HeaderwareError, Producer, SignatureError
from headerware.interceptors import Compress, Sign, Slice, Trail, read_trail, timeline
from headerware.keyring.signature import decode_statement
from headerware.testing import EmbeddedCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from confluent_kafka import Message

DEADLINE_S: Final = 60.0
TOPIC: Final = "orders"
SMALL: Final = b"an order"
LARGE: Final = random.Random(10).randbytes(20_000)


class Side(NamedTuple):
    """A cluster, and how to reach it."""

    servers: str
    id: str

    def produce(self, *interceptors: object) -> None:
        """Be the application: send a small and a large message."""
        with Producer({"bootstrap.servers": self.servers}, chain=Chain(interceptors)) as producer:
            # Else the first records leave before the cluster's id is known.
            producer.list_topics(timeout=DEADLINE_S)
            for value in (SMALL, LARGE):
                producer.produce(TOPIC, value, b"key", headers=[("a", b"1")])

    def consume(self, *interceptors: object, count: int) -> list[Message | HeaderwareError]:
        """Return so many messages or refusals."""
        conf = {"bootstrap.servers": self.servers, "auto.offset.reset": "earliest"}
        conf["group.id"] = uuid.uuid4().hex
        found: list[Message | HeaderwareError] = []
        with Consumer(conf, chain=Chain(interceptors)) as consumer:
            consumer.subscribe([TOPIC])
            deadline = time.monotonic() + DEADLINE_S
            while len(found) < count:
                assert time.monotonic() < deadline, f"only {len(found)} of {count} came"
                try:
                    message = consumer.poll(0.1)
                except HeaderwareError as error:
                    found.append(error)
                    continue
                if message is not None:
                    assert message.error() is None
                    found.append(message)
        return found


@pytest.fixture
def clusters() -> Iterator[tuple[Side, Side]]:
    with EmbeddedCluster(topics={TOPIC: 1}) as east, EmbeddedCluster(topics={TOPIC: 1}) as west:
        yield side(east), side(west)


def side(cluster: EmbeddedCluster) -> Side:
    client = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers})
    found = client.list_topics(timeout=DEADLINE_S).cluster_id
    assert found
    return Side(cluster.bootstrap_servers, found)


@pytest.fixture
def copy(clusters: tuple[Side, Side]) -> Callable[[], int]:
    """Return a mirror as people write them: it copies what there is, byte for byte, from east to west."""

    def mirror() -> int:
        east, west = clusters
        conf = {"bootstrap.servers": east.servers, "group.id": "mirror", "enable.partition.eof": True}
        consumer = confluent_kafka.Consumer({**conf, "auto.offset.reset": "earliest"})
        producer = confluent_kafka.Producer({"bootstrap.servers": west.servers})
        consumer.subscribe([TOPIC])
        copied, deadline = 0, time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            message = consumer.poll(0.1)
            if message is None:
                continue
            if message.error() is not None:
                break
            producer.produce(
                TOPIC,
                message.value(),
                message.key(),
                0,
                headers=message.headers(),
                timestamp=message.timestamp()[1],
            )
            copied += 1
        consumer.close()
        assert producer.flush(DEADLINE_S) == 0
        return copied

    return mirror


def values(found: list[Message | HeaderwareError]) -> list[bytes | None]:
    return [message.value() for message in found if not isinstance(message, HeaderwareError)]


class TestMirrorThatKnowsNothing:
    def test_everything_passes_and_the_trail_shows_the_gap(
        self, clusters: tuple[Side, Side], copy: Callable[[], int]
    ) -> None:
        east, west = clusters
        east.produce(Trail(service="shop"), Compress(), Slice(max_bytes=5_000))
        assert copy() > 2
        found = west.consume(Trail(service="billing"), Compress(), Slice(), count=2)
        assert values(found) == [SMALL, LARGE]
        for message in found:
            assert not isinstance(message, HeaderwareError)
            headers = Headers(message.headers())
            assert headers.names() == ("a", "hw.trail")
            steps = timeline(read_trail(headers))
            assert [(step.kind, step.by_whom) for step in steps] == [
                ("produced", "shop"),
                ("gap", None),
                ("read", "billing"),
            ]
            assert f"from {east.id}/{TOPIC} to {west.id}/{TOPIC}" in steps[1].text

    def test_what_is_signed_for_one_cluster_is_refused_in_the_other(
        self, clusters: tuple[Side, Side], copy: Callable[[], int], keyring: str
    ) -> None:
        east, west = clusters
        east.produce(Slice(max_bytes=5_000), Sign(keyring=keyring, key_id="test"))
        count = copy()
        found = west.consume(Slice(), Sign(keyring=keyring), count=count)
        assert [type(each) for each in found] == [SignatureError] * count
        assert str(found[0]) == (
            f"sign at {TOPIC}[0]@0: signed for topic {TOPIC!r} of cluster {east.id!r}, "
            f"found in topic {TOPIC!r} of cluster {west.id!r}; accept_origins permits no such origin"
        )

    def test_accept_origins_lets_it_in(
        self, clusters: tuple[Side, Side], copy: Callable[[], int], keyring: str
    ) -> None:
        east, west = clusters
        east.produce(Slice(max_bytes=5_000), Sign(keyring=keyring, key_id="test"))
        copy()
        sign = Sign(keyring=keyring, accept_origins=(f"{east.id}/{TOPIC}",))
        assert values(west.consume(Slice(), sign, count=2)) == [SMALL, LARGE]

    def test_accept_origins_lets_in_nothing_else(
        self, clusters: tuple[Side, Side], copy: Callable[[], int], keyring: str
    ) -> None:
        east, west = clusters
        east.produce(Sign(keyring=keyring, key_id="test"))
        count = copy()
        sign = Sign(keyring=keyring, accept_origins=(f"{east.id}/other", f"other/{TOPIC}"))
        assert [type(each) for each in west.consume(sign, count=count)] == [SignatureError] * 2


class TestMirrorWithAChain:
    def test_it_signs_again_and_stands_in_the_trail(self, clusters: tuple[Side, Side], keyring: str) -> None:
        east, west = clusters

        def chain(service: str) -> list[object]:
            sign = Sign(keyring=keyring, key_id="test")
            return [Trail(service=service), Compress(), Slice(max_bytes=5_000), sign]

        east.produce(*chain("shop"))
        with Producer({"bootstrap.servers": west.servers}, chain=Chain(chain("mirror"))) as producer:
            producer.list_topics(timeout=DEADLINE_S)
            for message in east.consume(*chain("mirror"), count=2):
                assert not isinstance(message, HeaderwareError)
                producer.produce(TOPIC, message.value(), message.key(), headers=message.headers())
        on_the_wire = west.consume(count=3)
        for message in on_the_wire:
            assert not isinstance(message, HeaderwareError)
            statement, _ = decode_statement(b64decode(Headers(message.headers()).last("hw.sig") or b""))
            assert (statement.cluster, statement.topic) == (west.id, TOPIC)

        found = west.consume(*chain("billing"), count=2)
        assert values(found) == [SMALL, LARGE]
        for message in found:
            assert not isinstance(message, HeaderwareError)
            steps = timeline(read_trail(message.headers()))
            assert [(step.kind, step.by_whom) for step in steps] == [
                ("produced", "shop"),
                ("forwarded", "mirror"),
                ("read", "billing"),
            ]
            assert steps[1].text == f"read from {east.id}/{TOPIC}, produced into {west.id}/{TOPIC}"
