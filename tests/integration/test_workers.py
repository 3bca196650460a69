"""The loop of all workers on a real broker: each record once, wherever the worker is killed."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import KafkaError

from headerware import Headers, Record
from headerware.core.commit_metadata import PendingOffsets
from headerware.core.dead_letter import read_reason
from headerware.core.errors import HeaderwareError, InterceptorError
from headerware.interceptors import Slice
from headerware.workers import Outcome, Policy, Unit, Worker
from headerware.workers.transactions import TakenOverError
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tests.integration.conftest import Cluster

pytestmark = pytest.mark.broker
PROGRAM: Final = Path(__file__).parent / "programs" / "copy_worker.py"
RECORDS: Final = 4_000


class Decides(Policy):
    """A policy by a function of the value."""

    def __init__(self, target: str, by_value: Callable[[bytes], str] = lambda _: "sent") -> None:
        self.target = target
        self.by_value = by_value
        self.seen: list[Unit] = []
        self.told: list[Outcome] = []
        self.accounts: str | None = None

    def decide(self, units: Sequence[Unit]) -> Iterator[Outcome]:
        for unit in units:
            self.seen.append(unit)
            word: Any = self.by_value(unit.records[0].value or b"")
            records = [record.replace(topic=self.target) for record in unit.records]
            if word == "dead_letter":
                yield self.dead_letter(
                    unit, InterceptorError("not wanted", step="test").at("test", unit.records[0])
                )
            else:
                yield Outcome(
                    unit, word, records if word == "sent" else (), why="" if word == "sent" else "test"
                )

    def account(self, outcomes: Sequence[Outcome], offsets: Sequence[Any]) -> Record | None:
        if self.accounts is None:
            return None
        done = ",".join(str(place.offset) for place in offsets)
        return Record(self.accounts, b"%d outcomes, done to %s" % (len(outcomes), done.encode()))

    def committed(self, outcomes: Sequence[Outcome]) -> None:
        self.told += outcomes


class Topics:
    """A topic that is read and one that is written."""

    def __init__(self, cluster: Cluster, *, config: Mapping[str, str] | None = None) -> None:
        self.cluster = cluster
        self.source = cluster.topic("read", partitions=2)
        self.target = cluster.topic("written", partitions=2, config=config)
        self.dead_letters = f"{self.source}.dead-letter"
        cluster.broker.create_topic(self.dead_letters, partitions=2)
        self._producer = cluster.plain_producer()

    def put(self, *values: bytes, partition: int = 0) -> None:
        for value in values:
            self._producer.produce(self.source, value, value, partition, headers=[("shop", b"north")])
        assert self._producer.flush(60) == 0

    def values(self, topic: str | None = None) -> list[bytes | None]:
        self.cluster.wait_until_stable(topic or self.target)
        return [message.value() for message in self.cluster.on_the_wire(topic or self.target)]

    def worker(self, policy: Policy, **options: Any) -> Worker:
        conf = {"bootstrap.servers": self.cluster.servers}
        return Worker(conf, self.source, policy, name="test", writes=[self.target], **options)

    def run(self, policy: Policy, **options: Any) -> Worker:
        with self.worker(policy, **options) as worker:
            worker.run()
        return worker


@pytest.fixture
def topics(cluster: Cluster) -> Topics:
    return Topics(cluster)


class TestOutcomes:
    def test_each_disposition(self, topics: Topics) -> None:
        topics.put(b"sent", b"dropped", b"dead_letter", b"pending", b"sent")
        policy = Decides(topics.target, bytes.decode)
        worker = topics.run(policy)
        assert topics.values() == [b"sent", b"sent"]
        assert dict(worker.counts) == {
            ("sent", ""): 2,
            ("dropped", "test"): 1,
            ("pending", "test"): 1,
            ("dead_letter", "test: InterceptorError"): 1,
        }
        (letter,) = topics.cluster.on_the_wire(topics.dead_letters)
        reason = read_reason(Headers(letter.headers() or []))
        assert reason is not None
        assert (reason.topic, reason.offset, reason.group) == (topics.source, 2, worker.group_id)

    def test_the_next_run_decides_about_what_is_pending_and_nothing_else(self, topics: Topics) -> None:
        topics.put(b"a", b"b", b"c", b"d", b"e")
        topics.run(Decides(topics.target, lambda value: "pending" if value in {b"b", b"d"} else "sent"))
        offset, metadata = topics.cluster.committed(f"headerware-test-{topics.source}", topics.source)
        assert offset == 1
        assert metadata is not None
        assert metadata.startswith("hw1:5~")
        again = Decides(topics.target)
        topics.run(again)
        assert [unit.records[0].value for unit in again.seen] == [b"b", b"d"]
        assert topics.values() == [b"a", b"c", b"e", b"b", b"d"]

    def test_a_preview_writes_and_commits_nothing(self, topics: Topics) -> None:
        topics.put(b"a", b"b")
        with topics.worker(Decides(topics.target)) as worker:
            worker.preview()
        assert worker.counts == {("sent", ""): 2}
        assert topics.values() == []
        assert topics.cluster.committed(worker.group_id, topics.source)[0] < 0

    def test_the_slices_of_a_message_are_one_unit(self, topics: Topics) -> None:
        producer = topics.cluster.producer(Slice(max_bytes=1_000))
        producer.produce(topics.source, bytes(5_000), b"k", 0)
        producer.flush()
        policy = Decides(topics.target)
        topics.run(policy)
        (unit,) = policy.seen
        assert len(unit.records) > 5
        consumer = topics.cluster.consumer(topics.target, Slice())
        (message,) = topics.cluster.take(consumer, 1)
        assert message.value() == bytes(5_000)

    def test_slices_whose_message_is_incomplete_are_pending(self, topics: Topics) -> None:
        producer = topics.cluster.producer(Slice(max_bytes=1_000))
        producer.produce(topics.source, bytes(3_000), b"k", 1)
        producer.flush()
        slices = topics.cluster.on_the_wire(topics.source)
        assert len(slices) > 2
        plain = topics.cluster.plain_producer()
        for message in slices[:-1]:
            plain.produce(topics.source, message.value(), message.key(), 0, headers=message.headers())
        plain.flush()
        topics.put(b"after")
        topics.run(Decides(topics.target, lambda value: "dropped" if len(value) > 10 else "sent"))
        assert topics.values() == [b"after"]
        plain.produce(topics.source, slices[-1].value(), slices[-1].key(), 0, headers=slices[-1].headers())
        plain.flush()
        again = Decides(topics.target)
        topics.run(again)
        assert [len(unit.records) for unit in again.seen] == [len(slices)]

    def test_an_account_goes_along(self, topics: Topics) -> None:
        topics.put(b"a", b"b")
        policy = Decides(topics.target)
        policy.accounts = topics.cluster.topic("accounts")
        topics.run(policy)
        assert topics.values(policy.accounts) == [b"2 outcomes, done to 2"]


class TestPolicies:
    def test_may_begin_elsewhere(self, topics: Topics) -> None:
        topics.put(b"a", b"b", b"c")

        class Later(Decides):
            def begin(self, committed: Mapping[int, tuple[int, str]]) -> Mapping[int, tuple[int, str]]:
                assert committed == {}
                return {0: (2, "")}

        worker = topics.run(Later(topics.target))
        assert topics.values() == [b"c"]
        assert (worker.records, worker.positions[0], worker.commits[0]) == (1, 3, 3)

    def test_are_not_held_up_by_a_pending_record_that_the_topic_has_lost(self, topics: Topics) -> None:
        producer = topics.cluster.plain_producer(transactional_id=topics.source)
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce(topics.source, b"a", b"k", 0)
        producer.commit_transaction(60)
        topics.cluster.wait_until_stable(topics.source)  # its mark has an offset and no record
        topics.put(b"b")

        class Waits(Decides):
            def begin(self, committed: Mapping[int, tuple[int, str]]) -> Mapping[int, tuple[int, str]]:
                offset, metadata = PendingOffsets([1]).encode(2)
                return {0: (offset, metadata or "")}

        worker = topics.run(Waits(topics.target))
        assert topics.values() == [b"b"]
        assert (worker.commits[0], worker.deleted) == (3, 1)

    def test_may_say_which_record_is_a_slice(self, topics: Topics) -> None:
        producer = topics.cluster.producer(Slice(max_bytes=1_000))
        producer.produce(topics.source, bytes(3_000), b"k", 0)
        producer.flush()

        class Apart(Decides):
            def part_of(self, record: Record) -> None:
                return None

        policy = Apart(topics.target)
        topics.run(policy)
        assert {len(unit.records) for unit in policy.seen} == {1}
        assert len(policy.seen) > 2

    def test_may_end_the_work_before_the_offsets_are_committed_again(self, topics: Topics) -> None:
        topics.put(b"a")

        class Ends(Decides):
            def renew(self) -> None:
                raise HeaderwareError("the target is another one")

        with pytest.raises(HeaderwareError, match="another one"):
            topics.run(Ends(topics.target))
        assert topics.values() == []

    def test_hear_how_many_records_were_read_for_the_first_time(self, topics: Topics) -> None:
        topics.put(b"a", b"b")
        counts = [topics.run(Decides(topics.target, lambda _: "pending")).records for _ in range(2)]
        assert counts == [2, 0]


class TestRefusals:
    def test_what_a_topic_refuses_is_pending_and_the_others_go(self, cluster: Cluster) -> None:
        topics = Topics(cluster, config={"max.message.bytes": "2000"})
        topics.put(b"a", b"x" * 5_000, b"b")
        worker = topics.run(Decides(topics.target))
        assert topics.values() == [b"a", b"b"]
        assert worker.counts["pending", KafkaError(KafkaError.MSG_SIZE_TOO_LARGE).name()] == 1

    def test_a_record_of_a_partition_that_the_topic_lacks_is_pending_and_the_others_go(
        self, cluster: Cluster
    ) -> None:
        topics = Topics(cluster)
        topics.target = cluster.topic("narrow", partitions=1)
        topics.put(b"a", b"b")
        topics.put(b"odd", partition=1)
        for left in ({("sent", ""): 2}, {}):
            worker = topics.run(Decides(topics.target))
            assert worker.counts == {**left, ("pending", "_UNKNOWN_PARTITION"): 1}
            assert topics.values() == [b"a", b"b"]

    def test_a_policy_may_decide_otherwise(self, cluster: Cluster) -> None:
        topics = Topics(cluster, config={"max.message.bytes": "2000"})
        topics.put(b"a", b"x" * 5_000, b"b")

        class Policies(Decides):
            def decide_again(self, outcome: Outcome, refusals: Mapping[int, KafkaError]) -> Outcome:
                return Outcome(outcome.unit, "dropped", why=f"{len(refusals)} refused")

        worker = topics.run(Policies(topics.target))
        assert topics.values() == [b"a", b"b"]
        assert worker.counts["dropped", "1 refused"] == 1

    def test_a_dead_letter_that_is_too_large_becomes_a_stub(self, cluster: Cluster) -> None:
        topics = Topics(cluster)
        small = cluster.topic("small", config={"max.message.bytes": "3000"})
        topics.put(b"x" * 5_000, b"b")
        policy = Decides(topics.target, lambda value: "dead_letter" if len(value) > 10 else "sent")
        policy.dead_letter_topic = small
        topics.run(policy)
        assert topics.values() == [b"b"]
        (stub,) = cluster.on_the_wire(small)
        assert stub.value() is None
        assert any(name.startswith("headerware.stub.") for name in Headers(stub.headers() or []).names())

    def test_a_topic_that_takes_no_stub_stops_the_worker(self, cluster: Cluster) -> None:
        topics = Topics(cluster)
        tiny = cluster.topic("tiny", config={"max.message.bytes": "100"})
        topics.put(b"x" * 500)
        policy = Decides(topics.target, lambda _: "dead_letter")
        policy.dead_letter_topic = tiny
        with pytest.raises(HeaderwareError, match="refuses even a stub"):
            topics.run(policy)
        committed = topics.cluster.committed(f"headerware-test-{topics.source}", topics.source)
        assert committed[0] == 0, "nothing is done"


class TestOwnership:
    def test_a_later_process_ends_the_earlier_one(self, topics: Topics) -> None:
        topics.put(b"a")
        failures: list[BaseException] = []
        first, second = Decides(topics.target), Decides(topics.target)

        def run() -> None:
            with topics.worker(first) as worker:
                try:
                    worker.run(follow=True)
                except HeaderwareError as error:
                    failures.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        until(lambda: topics.cluster.count_committed(topics.target) == 1)
        topics.run(second)
        topics.put(b"b")  # which the first one reads, and cannot write any more
        thread.join(60)
        assert [type(error) for error in failures] == [TakenOverError]
        topics.run(second)
        assert topics.values() == [b"a", b"b"]

    def test_a_group_that_has_done_something_else_is_refused(self, topics: Topics) -> None:
        topics.put(b"a")
        topics.run(Decides(topics.target), own="rule 1")
        with pytest.raises(HeaderwareError, match="for something else"):
            topics.run(Decides(topics.target), own="rule 2")
        topics.run(Decides(topics.target), own="rule 1")
        assert topics.values() == [b"a"]

    def test_stops_after_the_transaction_that_is_under_way(self, topics: Topics) -> None:
        topics.put(*(b"%d" % number for number in range(1_000)))
        policy = Decides(topics.target)
        with topics.worker(policy, batch=100) as worker:
            worker.run(tell=worker.stop)
        assert 0 < len(policy.told) < 1_000
        topics.run(policy)
        assert topics.values() == [b"%d" % number for number in range(1_000)]


@pytest.mark.long
class TestKilledAtAnyMoment:
    def test_nothing_is_lost_and_nothing_is_written_twice(self, topics: Topics) -> None:
        for partition in (0, 1):
            topics.put(*(b"%d" % number for number in range(partition, RECORDS, 2)), partition=partition)
        chance = random.Random(11)
        servers, rate = topics.cluster.servers, str(RECORDS // 4)
        command = [sys.executable, str(PROGRAM), servers, topics.source, topics.target, rate]

        def has_sent_more_than(sent: int) -> bool:
            return topics.cluster.count_committed(topics.target) > sent

        for turn in range(8):
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None
                process.stdout.readline()  # it has begun
                sent = topics.cluster.count_committed(topics.target)
                if turn % 2:
                    until(partial(has_sent_more_than, sent))
                time.sleep(chance.uniform(0, 0.3))
                process.kill()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            until(lambda: topics.cluster.count_committed(topics.target) == RECORDS)
            process.terminate()
            assert process.wait(60) == 0
        found = [int(value or b"") for value in topics.values()]
        assert len(found) == RECORDS
        for parity in (0, 1):
            assert [number for number in found if number % 2 == parity] == list(range(parity, RECORDS, 2))
