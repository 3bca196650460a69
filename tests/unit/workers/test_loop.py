"""The loop of all workers on an embedded cluster, where a topic or a policy is not as it should be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import cimpl

from headerware.core import commit_metadata
from headerware.core.errors import ConfigError, HeaderwareError
from headerware.interceptors.slice.header import SLICE_HEADER, SliceHeader
from headerware.kafka.messages import record_of
from headerware.kafka.reader import TopicReader
from headerware.workers import Outcome, Policy, Unit, Worker, loop
from tests.unit.clients.test_messages import put_raw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from headerware import Record
    from headerware.testing import EmbeddedCluster


class Copies(Policy):
    """Write each record into another topic, as the guide shows it."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.units: list[Unit] = []

    def decide(self, units: Sequence[Unit]) -> Iterator[Outcome]:
        for unit in units:
            self.units.append(unit)
            yield Outcome(unit, "sent", [record.replace(topic=self.target) for record in unit.records])


class Topics:
    """A topic that is read, the topic that is written, and its dead letters."""

    def __init__(self, cluster: EmbeddedCluster, name: str) -> None:
        self.conf: dict[str, Any] = {"bootstrap.servers": cluster.bootstrap_servers}
        self.source, self.target, self.dead_letters = name, f"{name}-out", f"{name}.dead-letter"
        for topic in (self.source, self.target, self.dead_letters):
            cluster.create_topic(topic)

    def put(self, *values: bytes) -> None:
        put_raw(self.conf, self.source, *((value, b"name") for value in values))

    def worker(self, policy: Policy, **options: Any) -> Worker:
        return Worker(self.conf, self.source, policy, name="copy", writes=[self.target], **options)

    def read(self, topic: str) -> list[Record]:
        with TopicReader(self.conf, topic, group_id="test") as reader:
            reader.start()
            return [record_of(message) for batch in reader.to_end() for message in batch]

    def values(self) -> list[Any]:
        return [record.value for record in self.read(self.target)]


@pytest.fixture
def topics(embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str]) -> Topics:
    return Topics(embedded_cluster, unique_topic("loop"))


class TestARecordWithUnreadHeaders:
    def test_is_a_dead_letter_if_the_policy_sends_it_and_stops_nothing(self, topics: Topics) -> None:
        put_raw(topics.conf, topics.source, (b"a", b"name"), (b"odd", b"\xff\xfe"), (b"b", b"name"))
        policy = Copies(topics.target)
        with topics.worker(policy) as worker:
            worker.run()
        assert [unit.problem for unit in policy.units] == [None, "unreadable", None]
        assert topics.values() == [b"a", b"b"]
        assert worker.counts == {("sent", ""): 2, ("dead_letter", "copy: InterceptorError"): 1}
        (letter,) = topics.read(topics.dead_letters)
        assert letter.value is None, (
            "a stub, because a dead letter without its headers would be another record"
        )
        assert worker.commits == {0: 3}


class TestAPolicy:
    def test_that_leaves_out_a_unit_is_refused(self, topics: Topics) -> None:
        topics.put(b"a", b"b")

        class Forgets(Copies):
            def decide(self, units: Sequence[Unit]) -> Iterator[Outcome]:
                return super().decide(units[:1])

        with (
            topics.worker(Forgets(topics.target)) as worker,
            pytest.raises(HeaderwareError, match=r"Forgets.*found 1 outcomes for 2 units"),
        ):
            worker.run()
        assert topics.values() == []


class TestABatchInSeveralTransactions:
    def test_is_done_as_far_as_its_parts_are_written(
        self, topics: Topics, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(loop, "_MAX_TRANSACTION_BYTES", 1)
        topics.put(b"a", b"b", b"c")
        told: list[tuple[list[int], dict[int, int], dict[int, int]]] = []

        class Tells(Copies):
            def committed(self, outcomes: Sequence[Outcome]) -> None:
                offsets = [outcome.unit.offsets[0] for outcome in outcomes]
                told.append((offsets, self.worker.positions, self.worker.commits))

        with topics.worker(Tells(topics.target)) as worker:
            worker.run()
        assert [each for each in told if each[0]] == [([at], {0: at + 1}, {0: at + 1}) for at in range(3)]


class TestAWorkerThatWorksTwice:
    def test_counts_anew(self, topics: Topics) -> None:
        topics.put(b"a", b"b")
        with topics.worker(Copies(topics.target)) as worker:
            worker.preview()
            worker.run()
            assert worker.counts == {("sent", ""): 2}
            assert worker.records == 2

    def test_leaves_nothing_pending_after_a_preview(self, topics: Topics) -> None:
        topics.put(b"a", b"b", b"c")
        with topics.worker(Copies(topics.target)) as worker:
            worker.preview()
            assert (worker.positions, worker.commits) == ({0: 3}, {0: 3})
        assert topics.values() == []

    def test_asks_the_cluster_with_all_of_its_time(
        self, topics: Topics, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with TopicReader(topics.conf, topics.source, group_id="test", timeout_s=30.0) as reader:
            reader._deadline = 0.0  # as after a long time
            given: list[float] = []
            consumer = reader._consumer

            class Noted:
                def committed(self, asked: Any, timeout: float) -> Any:
                    given.append(timeout)
                    return consumer.committed(asked, timeout=timeout)

                def list_topics(self, topic: str, timeout: float) -> Any:
                    given.append(timeout)
                    return consumer.list_topics(topic, timeout=timeout)

                def __getattr__(self, name: str) -> Any:
                    return getattr(consumer, name)

            monkeypatch.setattr(reader, "_consumer", Noted())
            assert reader.committed() == {}
            assert reader.count_partitions(topics.target) == 1
            assert min(given) > 20.0


class TestTooManyPendingOffsets:
    def test_are_dead_letters_of_messages_that_came_first_for_a_policy_that_takes_none(
        self, topics: Topics, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(commit_metadata, "MAX_PENDING", 3)
        # One fetch of the embedded cluster returns one set of messages, so that a batch has four of them.
        producer = cimpl.Producer({**topics.conf, "linger.ms": 1_000})
        for number, index in ((1, 0), (1, 1), (2, 0), (2, 1), (2, 2)):
            header = SliceHeader(bytes([number]) * 16, index, 3, 3, 1).encode()
            producer.produce(topics.source, b"%d" % index, b"k", 0, headers=[(SLICE_HEADER, header)])
        producer.flush()
        policy = Copies(topics.target)
        with topics.worker(policy, batch=4) as worker:
            worker.run()
        assert [(unit.offsets, unit.problem) for unit in policy.units] == [((2, 3, 4), None)]
        assert topics.values() == [b"0", b"1", b"2"]
        assert [record.value for record in topics.read(topics.dead_letters)] == [b"0", b"1"]
        assert worker.counts["dead_letter", "slice: ReassemblyError"] == 2
        assert worker.commits == {0: 5}

    def test_leave_room_for_the_metadata_of_the_worker(self, topics: Topics) -> None:
        with pytest.raises(ConfigError, match=r"own: expected 1,000 bytes at most.* found 1,001"):
            topics.worker(Copies(topics.target), own="x" * 1_001)
