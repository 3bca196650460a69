"""The workers beside the broker where a topic is not as they would like it, by one test for all of them.

Each worker is given records that it has work with, one for each number; afterwards each has been worked on
exactly once.
"""

from __future__ import annotations

import threading
import time
import uuid
from abc import ABC, abstractmethod
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import confluent_kafka
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]  # theirs
from confluent_kafka.cimpl import NewTopic

from headerware import HeaderwareError
from headerware.ops.chargeback import KeptUsage, count_usage
from headerware.ops.compaction import Compaction, Rule
from headerware.ops.guard import Guard
from headerware.ops.retention.rules import RetentionRule
from headerware.ops.retention.worker import Retention
from headerware.testing import KafkaBroker
from headerware.testing.broker import _free_ports
from headerware.workers.transactions import TIMEOUT_S
from tests.ingress import Ingress
from tests.integration.conftest import Cluster
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

pytestmark = [pytest.mark.broker, pytest.mark.long]
DEADLINE_S: Final = 60.0
PAST: Final = b"1000000000000"
IMPATIENT_S: Final = 1.0
CLEANED: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "1"}


class Worker(ABC):
    """A worker, the topic that it works on, and those that it writes, all with as many partitions."""

    written: tuple[str, ...] = ()
    follows: bool = False
    """Whether it goes on at the end of its topic, and need not be started again for what comes."""
    timeout_s: float = TIMEOUT_S

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.conf: dict[str, Any] = {"bootstrap.servers": cluster.servers}
        self.admin = AdminClient(self.conf)
        self.name = f"{type(self).__name__.lower()}-{uuid.uuid4().hex[:8]}"
        self.wire = cluster.plain_producer()

    def create(
        self,
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
        brokers: Sequence[int] | None = None,
    ) -> None:
        """Create the topics; partition by partition on brokers, what is written on the first one."""
        policies = {self.name: config or {}, **{topic: self.config(topic) for topic in self.written}}
        for topic, policy in policies.items():
            if brokers is None:
                self.cluster.broker.create_topic(topic, partitions=partitions, config=policy)
                continue
            places = [[each] for each in (brokers if topic == self.name else [brokers[0]] * partitions)]
            made = NewTopic(topic, partitions, replica_assignment=places, config=dict(policy))
            self.admin.create_topics([made])[topic].result(DEADLINE_S)
        until(lambda: {self.name, *self.written} <= self.admin.list_topics(timeout=DEADLINE_S).topics.keys())

    def config(self, topic: str) -> Mapping[str, str]:
        return {}

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions."""
        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(DEADLINE_S)
        until(lambda: len(self.cluster.ends(topic)) == partitions)
        self.wire = self.cluster.plain_producer()  # one that is there already learns of them later

    def put(self, numbers: Iterable[int], partition: int = 0) -> None:
        """Write a record for each number, whose key is the number."""
        for number in numbers:
            value, headers = self.record(number)
            self.wire.produce(self.name, value, b"%d" % number, partition, headers=headers)
        assert self.wire.flush(DEADLINE_S) == 0

    @abstractmethod
    def record(self, number: int) -> tuple[bytes, list[Any]]:
        """Return value and headers of a record that there is work with."""

    @abstractmethod
    def work(self, expected: int | None = None) -> None:
        """Do what there is to be done, perhaps until so many are done."""

    @abstractmethod
    def done(self) -> int:
        """Return with how many records it has done its work, as others see it; more if with one twice."""

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let it work meanwhile, if it follows its topic."""
        yield


@contextmanager
def in_thread(run: Callable[[], object], stop: Callable[[], None]) -> Iterator[None]:
    """Let something run in a thread, stop it, and raise its error."""
    failures: list[BaseException] = []

    def call() -> None:
        try:
            run()
        except BaseException as error:  # noqa: BLE001 - it is raised below
            failures.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop()
        thread.join(DEADLINE_S)
    assert not thread.is_alive()
    for error in failures:
        raise error


class Compacts(Worker):
    follows = True

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        super().__init__(cluster, folder)
        self.target, self.side_topic = f"{self.name}-latest", f"{self.name}-odd"
        self.written = (self.target, self.side_topic)
        self._version = 0

    def config(self, topic: str) -> Mapping[str, str]:
        return {"cleanup.policy": "compact"} if topic == self.target else {}

    def record(self, number: int) -> tuple[bytes, list[Any]]:
        self._version += 1
        return b"v", [("version", b"%d" % self._version)]

    def open(self) -> Compaction:
        rule = Rule(header="version")
        return Compaction(
            self.conf, self.name, self.target, rule, side_topic=self.side_topic, timeout_s=self.timeout_s
        )

    def work(self, expected: int | None = None) -> None:
        with self.open() as work:
            work.execute()

    def done(self) -> int:
        return self.cluster.count_committed(self.target)

    @contextmanager
    def running(self) -> Iterator[None]:
        with self.open() as work, in_thread(lambda: work.execute(follow=True), work.stop):
            yield


class Retains(Worker):
    def __init__(self, cluster: Cluster, folder: Path) -> None:
        super().__init__(cluster, folder)
        self.keys: set[bytes] = set()

    def record(self, number: int) -> tuple[bytes, list[Any]]:
        self.keys.add(b"%d" % number)
        return b"v", [("hw.expires", PAST)]

    def work(self, expected: int | None = None) -> None:
        with Retention(self.conf, self.name, RetentionRule(), timeout_s=self.timeout_s) as work:
            work.execute()

    def done(self) -> int:
        # A tombstone is the work that was done; it is not done twice.
        found = self.cluster.on_the_wire(self.name)
        latest = {message.key(): message.value() for message in found}
        tombstones = [message.key() for message in found if message.value() is None]
        twice = len(tombstones) - len(set(tombstones))
        return len(self.keys) - sum(value is not None for value in latest.values()) + twice


class Guards(Worker):
    follows = True

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        super().__init__(cluster, folder)
        self.egress = self.name
        self.name = f"ingress.{self.egress}"
        self.letters = f"{self.name}.dead-letter"
        self.written = (self.egress, self.letters)
        self.ingress = Ingress(folder)
        self._chain = self.ingress.write_guard_chain()

    def record(self, number: int) -> tuple[bytes, list[Any]]:
        (record,) = self.ingress.sent(b"v", topic=self.name, key=b"%d" % number)
        return record.value, list(record.headers)

    def guard(self) -> Guard:
        conf = {
            **self.conf,
            "headerware.config": self._chain,
            "session.timeout.ms": 6_000,
            "topic.metadata.refresh.interval.ms": 500,
        }
        return Guard(conf, {self.name: self.egress}, group_id=self.egress, timeout_s=self.timeout_s)

    def work(self, expected: int | None = None) -> None:
        with self.running():
            until(lambda: self.done() >= (expected or 0), meanwhile=lambda: time.sleep(0.2))

    def done(self) -> int:
        assert not any(self.cluster.ends(self.letters))
        return self.cluster.count_committed(self.egress)

    @contextmanager
    def running(self) -> Iterator[None]:
        guard = self.guard()
        with in_thread(guard.run, guard.stop):
            yield


class Counts(Worker):
    def record(self, number: int) -> tuple[bytes, list[Any]]:
        return b"v", [("hw.owner", b"shop")]

    def work(self, expected: int | None = None, **options: Any) -> None:
        with KeptUsage(self.folder / "usage.db") as kept:
            counted = count_usage(self.conf, [self.name], kept, timeout_s=self.timeout_s, **options)
        assert not counted.missed

    def done(self) -> int:
        with KeptUsage(self.folder / "usage.db") as kept:
            return sum(row.records or 0 for row in kept.usage() if row.direction == "in")


WORKERS: Final[Sequence[Callable[[Cluster, Path], Worker]]] = [Compacts, Retains, Guards, Counts]


@pytest.mark.parametrize("kind", WORKERS)
class TestEachWorker:
    def test_waits_at_an_empty_topic_for_what_comes(
        self, kind: type[Worker], cluster: Cluster, tmp_path: Path
    ) -> None:
        worker = kind(cluster, tmp_path)
        worker.create(partitions=2)
        worker.work()
        assert worker.done() == 0
        worker.put(range(3), 1)
        worker.work(3)
        assert worker.done() == 3

    def test_takes_partitions_that_come_meanwhile(
        self, kind: type[Worker], cluster: Cluster, tmp_path: Path
    ) -> None:
        worker = kind(cluster, tmp_path)
        worker.create()
        worker.put(range(3))
        worker.work(3)
        with worker.running():
            worker.put([3])
            if worker.follows:
                until(lambda: worker.done() == 4)
            worker.grow(worker.name, 2)
            worker.put(range(4, 7), 1)
            worker.put(range(7, 10), 0)
            if worker.follows:
                until(lambda: worker.done() >= 7)
                assert worker.done() == 7, "those of the new partition have no place yet"
        for topic in worker.written:
            worker.grow(topic, 2)
        worker.work(10)
        assert worker.done() == 10

    def test_works_with_what_the_broker_s_compaction_has_left(
        self, kind: type[Worker], second_cluster: Cluster, tmp_path: Path
    ) -> None:
        worker = kind(second_cluster, tmp_path)
        worker.create(config=CLEANED)
        for numbers in (range(6), range(3, 9), range(100, 101)):  # the last segment is not cleaned
            worker.put(numbers)
            time.sleep(0.01)  # a segment ends with the first record behind segment.ms
        until(lambda: second_cluster.count_committed(worker.name) == 10)
        worker.work(10)
        assert worker.done() == 10


class Pair:
    """A cluster of two brokers, of which the second may go; what Kafka keeps for itself is on the first."""

    def __init__(self, first: KafkaBroker, folder: Path) -> None:
        self.cluster = Cluster(first)
        self._keep_internal_topics_on_the_first()
        cluster_id = AdminClient({"bootstrap.servers": first.bootstrap_servers}).list_topics().cluster_id
        (folder / "meta.properties").write_text(f"version=1\nnode.id=2\ncluster.id={cluster_id}\n")
        assert first._ports is not None
        (port,) = _free_ports(1)
        self.second: Final = KafkaBroker(
            {
                "process.roles": "broker",
                "node.id": 2,
                "controller.quorum.voters": f"1@127.0.0.1:{first._ports[1]}",
                "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            },
            port=port,
            data_dir=folder,
            heap_mib=256,
        )

    def _keep_internal_topics_on_the_first(self) -> None:
        topic = self.cluster.topic("first")
        producer = self.cluster.plain_producer(transactional_id="first")
        producer.init_transactions(DEADLINE_S)
        producer.begin_transaction()
        producer.produce(topic, b"v")
        producer.commit_transaction(DEADLINE_S)
        consumer = self.cluster.plain_consumer()
        consumer.commit(offsets=[confluent_kafka.TopicPartition(topic, 0, 1)], asynchronous=False)

    def leader(self, topic: str, partition: int) -> int:
        admin = AdminClient({"bootstrap.servers": self.cluster.servers})
        return admin.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions[partition].leader


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with KafkaBroker(heap_mib=256) as first:
        pair = Pair(first, tmp_path_factory.mktemp("second"))
        with pair.second:
            yield pair
        pair.cluster.close()


class TestAPartitionWithoutALeader:
    def test_loses_nothing_and_stops_no_other(self, pair: Pair, tmp_path: Path) -> None:
        """All workers meet the same outage, for a broker takes long to start."""
        workers = [kind(pair.cluster, tmp_path) for kind in WORKERS]
        for worker in workers:
            worker.create(partitions=2, brokers=(1, 2))
            until(lambda: pair.leader(worker.name, 1) == 2)  # noqa: B023 - it is called at once, here and below
            worker.put(range(3), 0)
            worker.put(range(3, 6), 1)
            worker.work(6)
            assert worker.done() == 6, worker.name
        with ExitStack() as running:
            for worker in workers:
                running.enter_context(worker.running())
                if worker.follows:
                    worker.put(range(6, 9), 1)
                    until(lambda: worker.done() == 9, worker.name)  # noqa: B023
            pair.second.stop()
            for worker in workers:
                until(lambda: pair.leader(worker.name, 1) < 0)  # noqa: B023
                worker.put(range(10, 13), 0)
                if worker.follows:
                    until(lambda: worker.done() == 12, f"{worker.name} goes on with the others")  # noqa: B023
                    continue
                worker.timeout_s = IMPATIENT_S
                with pytest.raises((HeaderwareError, KafkaException)):
                    worker.work()
                worker.timeout_s = TIMEOUT_S
            pair.second.start()
            for worker in workers:
                until(lambda: pair.leader(worker.name, 1) == 2)  # noqa: B023
                worker.put(range(13, 16), 1)
                if worker.follows:
                    until(lambda: worker.done() == 15, worker.name)  # noqa: B023
        for worker in workers:
            expected = 15 if worker.follows else 12
            worker.work(expected)
            assert worker.done() == expected, worker.name


class TestAClockThatIsWrong:
    def test_ahead_lets_nothing_expire_that_says_so_itself(self, cluster: Cluster, tmp_path: Path) -> None:
        worker = Retains(cluster, tmp_path)
        worker.create()
        now_ms = time.time_ns() // 1_000_000
        for number, expires_ms in enumerate((now_ms - 60_000, now_ms + 60_000)):
            headers: list[Any] = [("hw.expires", b"%d" % expires_ms)]
            # The producer's clock runs ahead; only the moment that is named counts.
            at_ms = now_ms + 1_800_000
            worker.wire.produce(worker.name, b"%d" % number, b"k", 0, headers=headers, timestamp=at_ms)
        assert worker.wire.flush(DEADLINE_S) == 0
        worker.work()
        assert [each.value() for each in cluster.on_the_wire(worker.name)] == [b"1"]

    def test_of_a_producer_is_refused_by_the_guard_and_goes_to_dead_letters(
        self, cluster: Cluster, tmp_path: Path
    ) -> None:
        worker = Guards(cluster, tmp_path)
        worker.create()
        right = worker.ingress.now_ms
        for number, worker.ingress.now_ms in enumerate((right, right + 30_000, right + 600_000)):
            worker.put([number])
        with worker.running():
            until(lambda: cluster.count_committed(worker.letters) >= 1)
            until(lambda: cluster.count_committed(worker.egress) >= 2)
        assert [each.key() for each in cluster.on_the_wire(worker.letters)] == [b"2"]
        assert cluster.count_committed(worker.egress) == 2

    def test_that_goes_back_counts_nothing_twice(self, cluster: Cluster, tmp_path: Path) -> None:
        worker = Counts(cluster, tmp_path)
        worker.create()
        now = datetime.now(UTC)
        for number, hours in enumerate((0, 3, -5, 1)):
            worker.put(range(4))
            # Records of another time than now, as of producers whose clock is wrong.
            worker.wire.produce(worker.name, b"v", timestamp=int((now.timestamp() - number * 86_400) * 1_000))
            assert worker.wire.flush(DEADLINE_S) == 0
            worker.work(clock=lambda at=now + timedelta(hours=hours): at)
        assert worker.done() == 20

    def test_decides_nothing_for_compaction(self, cluster: Cluster, tmp_path: Path) -> None:
        worker = Compacts(cluster, tmp_path)
        worker.create()
        ahead_ms = time.time_ns() // 1_000_000 + 1_800_000
        for version, timestamp in ((1, ahead_ms), (3, 1), (2, 1_700_000_000_000)):
            headers: list[Any] = [("version", b"%d" % version)]
            worker.wire.produce(worker.name, b"%d" % version, b"k", 0, headers=headers, timestamp=timestamp)
        assert worker.wire.flush(DEADLINE_S) == 0
        worker.work()
        cluster.wait_until_stable(worker.target)
        assert [each.value() for each in cluster.on_the_wire(worker.target)] == [b"3"]


class TestAccountsOfTheGuard:
    def test_are_billed_as_what_it_has_read(self, cluster: Cluster, tmp_path: Path) -> None:
        worker = Guards(cluster, tmp_path)
        worker.create()
        audit = cluster.topic("accounts")
        worker.put(range(5))
        worker.wire.produce(worker.name, b"unsigned", b"k", 0)
        assert worker.wire.flush(DEADLINE_S) == 0
        usage: list[tuple[int, int]] = []
        for more in (0, 2):
            worker.put(range(more))
            guard = Guard(
                {**worker.conf, "headerware.config": worker._chain, "session.timeout.ms": 6_000},
                {worker.name: worker.egress},
                group_id=worker.egress,
                audit_topic=audit,
            )
            with in_thread(guard.run, guard.stop):
                until(lambda: cluster.count_committed(worker.egress) >= 5 + more)  # noqa: B023 - it is called at once
                until(lambda: sum(cluster.ends(worker.letters)) >= 1)
            cluster.wait_until_stable(audit)
            with KeptUsage(tmp_path / "usage.db") as kept:
                count_usage(worker.conf, [worker.name], kept, groups=None, audit_topics=[audit])
                rows = kept.usage()
            came = [row for row in rows if row.direction == "in"]
            read = [row for row in rows if row.direction == "out"]
            assert {(row.group, row.topic, row.source) for row in read} == {
                (worker.egress, worker.name, "audit")
            }
            usage += [
                (sum(row.records or 0 for row in each), sum(row.bytes or 0 for row in each))
                for each in (came, read)
            ]
        assert usage[0] == usage[1], "what came in was read once, to the byte"
        assert usage[2] == usage[3]
        assert (usage[0][0], usage[2][0]) == (6, 8)
