"""Every record once: copies by producers and mirrors, and consumers that rewind, die and come back."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from headerware import Chain, Consumer, Headers, Producer
from headerware.interceptors import Compress, Dedup, Identity, Sign, Slice, Trail
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from confluent_kafka import Message

    from headerware.testing import EmbeddedCluster
    from tests.integration.conftest import Cluster

DELIVER_ONCE: Final = Path(__file__).parent / "programs" / "deliver_once.py"
DEADLINE_S: Final = 60.0
COUNT: Final = 300


class Side:
    """The embedded cluster, for one test: all clients made here are closed when it is over."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster
        self._made: list[Any] = []

    @property
    def servers(self) -> str:
        return self._cluster.bootstrap_servers

    def topic(self, prefix: str, *, partitions: int = 1) -> str:
        name = f"{prefix}-{uuid.uuid4().hex[:12]}"
        self._cluster.create_topic(name, partitions=partitions)
        return name

    def produce(self, topic: str, *values: bytes, chain: Chain) -> None:
        with Producer({"bootstrap.servers": self.servers}, chain=chain) as producer:
            for value in values:
                producer.produce(topic, value, b"key", 0)

    def consumer(self, *places: tuple[str, int], chain: Chain) -> Consumer:
        conf = {"bootstrap.servers": self.servers, "group.id": uuid.uuid4().hex}
        consumer = Consumer({**conf, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 20}, chain=chain)
        consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in places])
        self._made.append(consumer)
        return consumer

    def copy(self, source: str, target: str, partition: int = 0) -> None:
        """Be a mirror that knows nothing of us: copy what is in partition 0, byte for byte."""
        producer = confluent_kafka.Producer({"bootstrap.servers": self.servers})
        for message in self.on_the_wire(source):
            producer.produce(target, message.value(), message.key(), partition, headers=message.headers())
        assert producer.flush(DEADLINE_S) == 0

    def on_the_wire(self, topic: str) -> list[Message]:
        conf = {"bootstrap.servers": self.servers, "group.id": uuid.uuid4().hex}
        consumer = confluent_kafka.Consumer(conf)
        try:
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=DEADLINE_S)
            consumer.assign([TopicPartition(topic, 0, 0)])
            return take(consumer, end)
        finally:
            consumer.close()

    def close(self) -> None:
        for client in self._made:
            client.close()


def take(consumer: Any, count: int) -> list[Message]:
    found: list[Message] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {len(found)} of {count} came"
        message = consumer.poll(0.1)
        if message is not None:
            assert message.error() is None, message.error()
            found.append(message)
    return found


def values(messages: list[Message]) -> list[bytes | None]:
    return [message.value() for message in messages]


def noise(name: bytes) -> bytes:
    """Make a message of several slices."""
    return name + random.Random(name).randbytes(20_000)


@pytest.fixture
def side(embedded_cluster: EmbeddedCluster) -> Iterator[Side]:
    side = Side(embedded_cluster)
    yield side
    side.close()


class TestCopies:
    def test_of_the_whole_chain_come_once(self, side: Side, keyring: str) -> None:
        topic = side.topic("orders")
        chain = Chain(
            [Trail(), Dedup(), Compress(), Slice(max_bytes=5_000), Sign(keyring=keyring, key_id="test")]
        )
        side.produce(topic, b"one", noise(b"two"), b"three", chain=chain)
        side.copy(topic, topic)
        side.produce(topic, b"four", chain=chain)
        consumer = side.consumer((topic, 0), chain=chain)
        found = take(consumer, 4)
        assert values(found) == [b"one", noise(b"two"), b"three", b"four"]
        assert consumer.stats()["dedup"]["duplicates"] == 3
        assert all("hw.id" not in Headers(message.headers()) for message in found)

    def test_by_a_mirror_come_once_to_a_reader_of_both_topics(self, side: Side) -> None:
        topic, mirror = side.topic("orders"), side.topic("orders-mirror")
        side.produce(topic, b"one", b"two", chain=Chain([Dedup()]))
        side.copy(topic, mirror)
        side.produce(mirror, b"last", chain=Chain([Dedup()]))
        consumer = side.consumer((topic, 0), (mirror, 0), chain=Chain([Dedup()]))
        assert Counter(values(take(consumer, 3))) == Counter([b"one", b"two", b"last"])
        deadline = time.monotonic() + DEADLINE_S
        while consumer.stats()["dedup"]["duplicates"] < 2:  # the last may have overtaken the other topic
            assert time.monotonic() < deadline
            assert consumer.poll(0.1) is None

    def test_one_order_in_two_topics_is_two_records(self, side: Side) -> None:
        topics = [side.topic("orders"), side.topic("audit")]
        chain = Chain([Dedup(id_from_key=True)])
        for topic in topics:
            side.produce(topic, b"one", chain=chain)
        consumer = side.consumer(*((topic, 0) for topic in topics), chain=chain)
        assert {message.topic() for message in take(consumer, 2)} == set(topics)

    def test_by_two_processes_that_send_the_same_come_once(self, side: Side) -> None:
        topic = side.topic("orders")
        chain = Chain([Dedup(id_from_key=True)])
        for value in (b"first", b"again"):
            side.produce(topic, value, chain=chain)
        side.produce(topic, b"last", chain=Chain([Dedup()]))
        assert values(take(side.consumer((topic, 0), chain=chain), 2)) == [b"first", b"last"]

    def test_in_batches_come_once(self, side: Side, tmp_path: Path) -> None:
        topic = side.topic("orders")
        chain = Chain([Dedup(store=str(tmp_path / "ids.db"))])
        side.produce(topic, *(b"%d" % n for n in range(200)), chain=chain)
        side.copy(topic, topic)
        side.produce(topic, b"last", chain=chain)
        consumer = side.consumer((topic, 0), chain=chain)
        found: list[Message] = []
        deadline = time.monotonic() + DEADLINE_S
        while not found or found[-1].value() != b"last":
            assert time.monotonic() < deadline
            found += consumer.consume(50, 0.1)
        assert values(found) == [*(b"%d" % n for n in range(200)), b"last"]


class TestRewinds:
    def test_deliver_again_what_was_delivered_and_no_copies(self, side: Side) -> None:
        topic = side.topic("orders")
        chain = Chain([Dedup(), Slice(max_bytes=5_000)])
        side.produce(topic, b"one", noise(b"two"), chain=chain)
        side.copy(topic, topic)
        side.produce(topic, b"three", chain=chain)
        consumer = side.consumer((topic, 0), chain=chain)
        first = take(consumer, 3)
        consumer.seek(TopicPartition(topic, 0, 0))
        again = take(consumer, 3)
        places = [[(message.value(), message.offset()) for message in found] for found in (first, again)]
        assert places[0] == places[1]
        assert [value for value, _ in places[0]] == [b"one", noise(b"two"), b"three"]


class TestTwoProcessesOneStore:
    """Two consumers of a group read a partition each; what is in one is in the other, in another order."""

    @pytest.fixture
    def start(self, side: Side, tmp_path: Path) -> Iterator[Callable[[str, int], subprocess.Popen[bytes]]]:
        started: list[subprocess.Popen[bytes]] = []

        def run(topic: str, partition: int) -> subprocess.Popen[bytes]:
            files = [str(tmp_path / name) for name in ("ids.db", f"log-{partition}")]
            command = [sys.executable, str(DELIVER_ONCE), side.servers, topic, str(partition), topic, *files]
            started.append(subprocess.Popen(command))
            return started[-1]

        yield run
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
            process.wait()

    def test_each_record_comes_from_one_place_however_often_they_are_killed(
        self,
        side: Side,
        tmp_path: Path,
        start: Callable[[str, int], subprocess.Popen[bytes]],
    ) -> None:
        topic = side.topic("orders", partitions=2)
        self.fill(side, topic)
        running = [start(topic, partition) for partition in (0, 1)]
        for number, enough in enumerate((30, 90, 150)):
            until(lambda enough=enough: len(self.delivered(tmp_path)) >= enough)  # type: ignore[misc]
            victim = number % 2
            os.kill(running[victim].pid, signal.SIGKILL)
            running[victim].wait()
            running[victim] = start(topic, victim)
        expected = {str(n) for n in range(COUNT)} | {"end of 0", "end of 1"}
        until(lambda: {value for value, _, _ in self.delivered(tmp_path)} >= expected)

        places: dict[str, set[tuple[int, int]]] = {}
        for value, partition, offset in self.delivered(tmp_path):
            places.setdefault(value, set()).add((partition, offset))
        assert set(places) == expected, "nothing is lost"
        assert {len(found) for found in places.values()} == {1}, "what comes again was read again"
        assert {partition for found in places.values() for partition, _ in found} == {0, 1}

    def fill(self, side: Side, topic: str) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": side.servers})
        for partition, order in ((0, range(COUNT)), (1, reversed(range(COUNT)))):
            for number in order:
                identity = Identity.numbered(bytes(16), number).encode()
                producer.produce(topic, str(number), partition=partition, headers={"hw.id": identity})
            producer.produce(topic, f"end of {partition}", partition=partition)
        assert producer.flush(DEADLINE_S) == 0

    def delivered(self, folder: Path) -> list[tuple[str, int, int]]:
        found = []
        for log in sorted(folder.glob("log-*")):
            for line in log.read_text().splitlines():
                with contextlib.suppress(json.JSONDecodeError):  # empty, or cut off by a kill
                    found.append(tuple(json.loads(line)))
        return found


@pytest.mark.broker
class TestDedupOnTheBroker:
    def test_a_transaction_that_is_tried_again_comes_once(self, cluster: Cluster) -> None:
        topic = cluster.topic("orders")
        chain = Chain([Dedup(id_from_key=True)])
        producer = cluster.producer(chain=chain, transactional_id=topic)
        producer.init_transactions(DEADLINE_S)
        for value, ends in [
            (b"tried", producer.abort_transaction),
            (b"committed", producer.commit_transaction),
            (b"again", producer.commit_transaction),
        ]:
            producer.begin_transaction()
            producer.produce(topic, value, b"42")
            assert producer.flush(DEADLINE_S) == 0
            ends(DEADLINE_S)
        consumer = cluster.consumer(topic, chain=chain)
        assert values(cluster.rest_of(consumer, topic)) == [b"committed"]
        assert consumer.stats()["dedup"]["duplicates"] == 1, (
            "what was aborted never came, and counts for nothing"
        )

    def test_a_consumer_without_us_sees_value_and_identity(self, cluster: Cluster) -> None:
        topic = cluster.topic("orders")
        producer = cluster.producer(Dedup())
        producer.produce(topic, b"v", b"k", headers=[("a", b"1")])
        producer.produce(topic, None, b"k")
        assert producer.flush(DEADLINE_S) == 0
        first, tombstone = cluster.on_the_wire(topic)
        assert (first.value(), first.key(), tombstone.value()) == (b"v", b"k", None)
        names = [Headers(message.headers()).names() for message in (first, tombstone)]
        assert names == [("a", "hw.id"), ("hw.id",)]
        found = [Identity.decode(Headers(message.headers()).last("hw.id")) for message in (first, tombstone)]
        assert [identity.sequence for identity in found] == [0, 1]
