"""A second consumer joins while messages are half read, and leaves again."""

from __future__ import annotations

import hashlib
import random
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pytest

from headerware.interceptors import Delay, Slice, not_before_header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headerware import Consumer, Record
    from tests.integration.conftest import Cluster

pytestmark = pytest.mark.broker

DEADLINE_S: Final = 60.0
PARTITIONS: Final = 4
WAITS_MS: Final = (5_000, 20_000, 60_000)
"""How long records wait, at first and if the machine is too busy for two rebalances meanwhile."""
LARGE: Final = {name: name.encode() + bytes(6_000) for name in "AB"}
"""Five slices each."""


@pytest.fixture(params=["range", "cooperative-sticky"])
def strategy(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Group:
    """Consumers of one group, polled in turns, and what they were given."""

    def __init__(self, cluster: Cluster, topic: str, step: object = None, **conf: object) -> None:
        self._cluster = cluster
        self._step = step or Slice()
        self._topic = topic
        self._conf: dict[str, Any] = {"heartbeat_interval_ms": 200, **conf}
        self.members: list[Consumer] = []
        self.given: list[tuple[int, bytes]] = []

    def join(self) -> Consumer:
        member = self._cluster.consumer(self._topic, self._step, **self._conf)
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
        pieces = {
            (name, number): cut(topic, value, number)
            for name, value in LARGE.items()
            for number in range(PARTITIONS)
        }

        def lay(*records: str | bytes) -> None:
            """Lay small messages, and slices by name (``A0``), into every partition."""
            for number in range(PARTITIONS):
                for record in records:
                    if isinstance(record, bytes):
                        wire.produce(topic, record, b"key", number)
                    else:
                        piece = pieces[record[0], number][int(record[1])]
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
            auto_commit_interval_ms=1_500,
        )
        expected: Counter[tuple[int, bytes]] = Counter()

        def expect(*values: bytes) -> None:
            for number in range(PARTITIONS):
                expected.update((number, value) for value in values)
            group.poll_until(f"{len(expected)} messages", lambda: Counter(group.given) >= expected)
            assert Counter(group.given) == expected
            if commits == "manual":
                commit()

        def commit() -> None:
            for member in group.members:
                member.commit(asynchronous=False)

        put(b"one", "A0", "A1")
        first = group.join()
        expect(b"one")

        def committed() -> list[tuple[int, str | None]]:
            return [cluster.committed(topic, topic, number) for number in range(PARTITIONS)]

        group.poll_until("committed", lambda: {offset for offset, _ in committed()} == {1})
        # What is safe to commit stays the same from here on; only the watermark beside it goes on.
        put(b"two")
        expect(b"two")
        second = group.join()
        group.poll_until("the second consumer has its share", group.is_shared)
        put(b"three")
        expect(b"three")
        group.leave(second)
        group.poll_until("the first consumer has all partitions", group.is_shared)
        put("A2", b"four", "A3", "A4", "B0", b"five", "B1")
        expect(LARGE["A"], b"four", b"five")

        # A message is half read here and wholly there, and its partition comes back.
        second = group.join()
        group.poll_until("the second consumer has its share again", group.is_shared)
        put("B2", b"six", "B3", "B4")
        expect(LARGE["B"], b"six")
        group.leave(second)
        group.poll_until("the first consumer has all partitions again", group.is_shared)
        put(b"seven")
        expect(b"seven")
        group.leave(first)
        assert committed() == [(17, None)] * PARTITIONS, "nothing is held back any more"


class TestWhileRecordsWait:
    """The first record of each partition is there to be read, and the second waits for its moment."""

    def test_whoever_gets_a_partition_waits_on(self, cluster: Cluster, strategy: str) -> None:
        assert any(self.waited_on(cluster, strategy, wait_ms) for wait_ms in WAITS_MS), "it is too slow"

    def waited_on(self, cluster: Cluster, strategy: str, wait_ms: int) -> bool:
        """Return whether it was fast enough to see that they waited on."""
        topic = cluster.topic("delays", partitions=PARTITIONS)
        group = Group(
            cluster, topic, Delay(), partition_assignment_strategy=strategy, auto_commit_interval_ms=100
        )
        first = group.join()
        group.poll_until("the first consumer has all partitions", group.is_shared)
        moment_ms = time.time_ns() // 1_000_000 + wait_ms
        wire = cluster.plain_producer()
        for number in range(PARTITIONS):
            for value in (b"first", b"waits", b"behind"):
                headers: Any = [not_before_header(moment_ms)] if value == b"waits" else None
                wire.produce(topic, value, b"key", number, headers=headers)
        assert wire.flush(DEADLINE_S) == 0

        def waiting(member: Consumer, count: int) -> None:
            group.poll_until(
                f"{count} records wait", lambda: member.stats()["delay"]["delayed"] >= count or has_come()
            )

        def has_come() -> bool:
            return time.time_ns() // 1_000_000 >= moment_ms

        def have_only_the_first() -> bool:
            given = sorted(group.given)
            if has_come():  # before or behind what was given
                return False
            assert given == [(number, b"first") for number in range(PARTITIONS)]
            return True

        waiting(first, PARTITIONS)
        second = group.join()
        group.poll_until("both share", group.is_shared)
        waiting(second, PARTITIONS // 2)
        if not have_only_the_first():
            return False
        before = first.stats()["delay"]["delayed"]
        group.leave(second)
        group.poll_until("the first consumer has all partitions again", group.is_shared)
        waiting(first, before + PARTITIONS // 2)
        if not have_only_the_first():
            return False
        assert {cluster.committed(topic, topic, number)[0] for number in range(PARTITIONS)} == {1}

        group.poll_until("one that waited", lambda: len(group.given) > PARTITIONS)
        assert has_come()
        group.poll_until("everything", lambda: len(group.given) == 3 * PARTITIONS)
        for number in range(PARTITIONS):
            values = [value for partition, value in group.given if partition == number]
            assert values == [b"first", b"waits", b"behind"]
        return True


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
