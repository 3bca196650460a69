"""A second consumer joins while messages are half read, and leaves again."""

from __future__ import annotations

import hashlib
import random
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pytest

from headerware.interceptors import Slice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headerware import Consumer, Record
    from tests.integration.conftest import Cluster

pytestmark = pytest.mark.broker

DEADLINE_S: Final = 60.0
PARTITIONS: Final = 4


@pytest.fixture(params=["range", "cooperative-sticky"])
def strategy(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Group:
    """Consumers of one group, polled in turns, and what they were given."""

    def __init__(self, cluster: Cluster, topic: str, **conf: object) -> None:
        self._cluster = cluster
        self._topic = topic
        self._conf: dict[str, Any] = {"heartbeat_interval_ms": 200, **conf}
        self.members: list[Consumer] = []
        self.given: list[tuple[int, bytes]] = []

    def join(self) -> Consumer:
        member = self._cluster.consumer(self._topic, Slice(), **self._conf)
        self.members.append(member)
        return member

    def leave(self, member: Consumer) -> None:
        self.members.remove(member)
        member.close()

    def poll_until(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, f"not within {DEADLINE_S:.0f} s: {what}"
            for member in self.members:
                message = member.poll(0.05)
                if message is not None and message.error() is None:
                    self.given.append((message.partition() or 0, message.value() or b""))

    def is_shared(self) -> bool:
        counts = [len(member.assignment()) for member in self.members]
        return sum(counts) == PARTITIONS and max(counts) - min(counts) <= 1


class TestInMidMessage:
    """Each partition has half a message, with small ones read beyond it, when the group changes."""

    @pytest.fixture
    def topic(self, cluster: Cluster) -> str:
        return cluster.topic("rebalance", partitions=PARTITIONS)

    @pytest.fixture
    def put(
        self, cluster: Cluster, topic: str, cut: Callable[[str, bytes, int], list[Record]]
    ) -> Callable[..., None]:
        wire = cluster.plain_producer()
        pieces = {number: cut(topic, large(number), number) for number in range(PARTITIONS)}

        def lay(*records: int | bytes) -> None:
            for number in range(PARTITIONS):
                for record in records:
                    if isinstance(record, bytes):
                        wire.produce(topic, record, b"key", number)
                    else:
                        piece = pieces[number][record]
                        wire.produce(topic, piece.value, b"key", number, headers=list(piece.headers))
            assert wire.flush(DEADLINE_S) == 0

        return lay

    @pytest.mark.parametrize("commits", ["manual", "auto"])
    def test_each_message_comes_once_and_whole(
        self, cluster: Cluster, topic: str, put: Callable[..., None], strategy: str, commits: str
    ) -> None:
        group = Group(
            cluster,
            topic,
            partition_assignment_strategy=strategy,
            enable_auto_commit=commits == "auto",
            # By itself it commits only what a revocation makes it commit.
            auto_commit_interval_ms=600_000,
        )
        expected = Counter({(number, value): 1 for number in range(PARTITIONS) for value in (b"one", b"two")})

        def commit() -> None:
            if commits == "manual":
                for member in group.members:
                    member.commit(asynchronous=False)

        put(b"one", 0, 1, b"two")
        first = group.join()
        group.poll_until("half the messages are read", lambda: Counter(group.given) == expected)
        commit()

        second = group.join()
        group.poll_until("the second consumer has its share", group.is_shared)
        put(2, b"three", 3, 4)
        for number in range(PARTITIONS):
            expected[number, b"three"] += 1
            expected[number, large(number)] += 1
        group.poll_until("everything", lambda: Counter(group.given) >= expected)
        assert Counter(group.given) == expected
        commit()

        group.leave(first)
        group.poll_until("the second consumer has all partitions", group.is_shared)
        put(b"four")
        expected.update({(number, b"four"): 1 for number in range(PARTITIONS)})
        group.poll_until("the last messages", lambda: Counter(group.given) >= expected)
        assert Counter(group.given) == expected
        assert group.members == [second]


class TestUnderLoad:
    @pytest.fixture
    def load(self, cluster: Cluster) -> Iterator[Load]:
        load = Load(cluster)
        yield load
        load.end()

    def test_nothing_is_lost_and_nothing_comes_in_pieces(
        self, cluster: Cluster, load: Load, strategy: str
    ) -> None:
        group = Group(
            cluster, load.topic, partition_assignment_strategy=strategy, auto_commit_interval_ms=100
        )
        first = group.join()
        load.start()
        group.poll_until("some messages", lambda: len(group.given) > 20)
        group.join()
        group.poll_until("both share", group.is_shared)
        seen = len(group.given)
        group.poll_until("more messages", lambda: len(group.given) > seen + 20)
        group.leave(first)
        group.poll_until("the other has it all", group.is_shared)
        load.end()
        group.poll_until("everything", lambda: {digest(value) for _, value in group.given} >= load.sent)
        assert {digest(value) for _, value in group.given} == load.sent
        assert len(load.sent) > 60


class Load:
    """Messages of many slices to all partitions, at a steady pace, until it is ended."""

    def __init__(self, cluster: Cluster) -> None:
        self.topic = cluster.topic("load", partitions=PARTITIONS)
        self.sent: set[bytes] = set()
        self._producer = cluster.producer(Slice(max_bytes=2_000), linger_ms=0)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()
        assert self._producer.flush(DEADLINE_S) == 0

    def _run(self) -> None:
        generator = random.Random(6)
        while not self._ended.wait(0.01):
            number = len(self.sent)
            value = b"%d" % number + generator.randbytes(generator.randint(0, 20_000))
            self.sent.add(digest(value))
            self._producer.produce(self.topic, value, partition=number % PARTITIONS)
            self._producer.poll(0)


def digest(value: bytes) -> bytes:
    return hashlib.sha256(value).digest()


def large(number: int) -> bytes:
    return b"large-%d" % number + bytes(6_000)
