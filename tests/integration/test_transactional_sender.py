"""Records and offsets in one transaction on a real broker: what is stored, undone and told."""

from __future__ import annotations

import threading
import time
import uuid
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, Final

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from headerware import Headers, Record
from headerware.testing import EmbeddedCluster
from headerware.workers.transactions import StaleGroupError, TakenOverError, TransactionalSender
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.integration.conftest import Cluster

pytestmark = pytest.mark.broker
DEADLINE_S: Final = 60.0


class Members:
    """Members of one group, each of which knows what it was given."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._conf = {
            "bootstrap.servers": cluster.servers,
            "log_level": 0,
            "group.id": uuid.uuid4().hex,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
        self._topic = topic
        self.made: list[confluent_kafka.Consumer] = []

    def join(self) -> confluent_kafka.Consumer:
        consumer = confluent_kafka.Consumer(self._conf)
        self.made.append(consumer)
        consumer.subscribe([self._topic])
        return consumer

    def close(self) -> None:
        for consumer in self.made:
            consumer.close()


@pytest.fixture
def topic(cluster: Cluster) -> str:
    return cluster.topic("egress")


@pytest.fixture
def sender(cluster: Cluster) -> Iterator[TransactionalSender]:
    made = make(cluster, uuid.uuid4().hex)
    yield made
    made.close()


@pytest.fixture
def members(cluster: Cluster, topic: str) -> Iterator[Members]:
    made = Members(cluster, topic)
    yield made
    made.close()


def make(cluster: Cluster, transactional_id: str, topics: Iterable[str] = ()) -> TransactionalSender:
    settings = {"bootstrap.servers": cluster.servers, "log_level": 0}
    return TransactionalSender(settings, transactional_id, what="guard of ingress", topics=topics)


def values(cluster: Cluster, topic: str) -> list[Any]:
    return [message.value() for message in cluster.on_the_wire(topic)]


def until_assigned(*consumers: confluent_kafka.Consumer) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not any(each.assignment() for each in consumers):
        assert time.monotonic() < deadline
        for each in consumers:
            each.poll(0.1)


class TestSend:
    def test_stores_records_as_they_are_and_commits_offsets(
        self, cluster: Cluster, topic: str, sender: TransactionalSender, members: Members
    ) -> None:
        consumer = members.join()
        until_assigned(consumer)
        record = Record(topic, b"v", b"k", Headers([("a", b"1"), ("a", None)]), 0, 1_700_000_000_000)
        metadata = consumer.consumer_group_metadata()
        assert sender.send([record, None], [TopicPartition(topic, 0, 7)], metadata) == {}
        stored = cluster.on_the_wire(topic)[-1]
        assert (stored.key(), stored.value(), stored.headers()) == (b"k", b"v", [("a", b"1"), ("a", None)])
        assert stored.timestamp()[1] == 1_700_000_000_000
        assert consumer.committed([TopicPartition(topic, 0)], timeout=DEADLINE_S)[0].offset == 7

    def test_tells_what_a_topic_refuses_and_sends_nothing(
        self, cluster: Cluster, sender: TransactionalSender
    ) -> None:
        small = cluster.topic("small", config={"max.message.bytes": "2000"})
        records = [Record(small, b"a"), Record(small, bytes(10_000)), Record(small, b"b")]
        refused = sender.send(records)
        assert {index: error.code() for index, error in refused.items()} == {1: KafkaError.MSG_SIZE_TOO_LARGE}
        assert sender.send([records[0], None, records[2]]) == {}
        assert values(cluster, small) == [b"a", b"b"]

    def test_tells_all_that_a_topic_refuses_at_once(
        self, cluster: Cluster, sender: TransactionalSender
    ) -> None:
        """Else a batch of such records, which anybody may write, would be sent once more for each of them."""
        small = cluster.topic("small", config={"max.message.bytes": "2000"})
        records = [Record(small, bytes(10_000 if at % 2 else 1_000)) for at in range(20)]
        refused = sender.send(records)
        assert {error.code() for error in refused.values()} == {KafkaError.MSG_SIZE_TOO_LARGE}
        assert sorted(refused) == list(range(1, 20, 2))
        assert sender.send([each for at, each in enumerate(records) if at not in refused]) == {}
        assert [len(value) for value in values(cluster, small)] == [1_000] * 10

    def test_tells_a_refusal_that_comes_while_it_still_sends(
        self, cluster: Cluster, sender: TransactionalSender
    ) -> None:
        """The client takes no more records then, and says "Erroneous state" only."""
        topic = cluster.topic("egress")
        records = [Record(topic, b"%d" % at) for at in range(20_000)]
        records[7] = records[7].replace(timestamp_ms=_far_ahead_ms())
        refused = sender.send(records)
        assert {index: error.code() for index, error in refused.items()} == {7: KafkaError.INVALID_TIMESTAMP}
        assert sender.send([None if at in refused else each for at, each in enumerate(records)]) == {}
        assert len(values(cluster, topic)) == len(records) - 1

    def test_makes_no_batch_that_a_topic_would_refuse(self, cluster: Cluster) -> None:
        """A batch is weighed as a whole; what is undone would leave holes in the offsets."""
        small = cluster.topic("small", config={"max.message.bytes": "2000"})
        records = [Record(small, bytes(500)) for _ in range(200)]
        with closing(make(cluster, uuid.uuid4().hex, topics=[small, "not-there"])) as sender:
            assert sender.send(records) == {}
        assert [message.offset() for message in cluster.on_the_wire(small)] == list(range(200))


def _far_ahead_ms() -> int:
    """Return a time that brokers refuse by default: more than an hour ahead."""
    return time.time_ns() // 1_000_000 + 48 * 3_600_000


class TestAMemberThatIsLate:
    def test_is_told_and_has_sent_nothing(
        self, cluster: Cluster, topic: str, sender: TransactionalSender, members: Members
    ) -> None:
        first = members.join()
        until_assigned(first)
        stale = first.consumer_group_metadata()
        second = members.join()
        deadline = time.monotonic() + DEADLINE_S
        while first.consumer_group_metadata() == stale or not (first.assignment() or second.assignment()):
            assert time.monotonic() < deadline
            first.poll(0.1)
            second.poll(0.1)
        with pytest.raises(StaleGroupError, match=r"partitions of the guard of ingress"):
            sender.send([Record(topic, b"late")], [TopicPartition(topic, 0, 1)], stale)
        current = first if first.assignment() else second
        offsets = [TopicPartition(topic, 0, 1)]
        assert sender.send([Record(topic, b"now")], offsets, current.consumer_group_metadata()) == {}
        assert values(cluster, topic)[-1] == b"now"
        assert b"late" not in values(cluster, topic)


class TestAnotherProcess:
    def test_with_the_same_id_takes_over(self, cluster: Cluster, topic: str) -> None:
        first, second = make(cluster, topic), make(cluster, topic)
        try:
            with pytest.raises(TakenOverError, match="another guard of ingress has taken over"):
                first.send([Record(topic, b"first")])
            assert second.send([Record(topic, b"second")]) == {}
        finally:
            first.close()
            second.close()
        assert values(cluster, topic)[-1] == b"second"
        assert b"first" not in values(cluster, topic)


class TestABrokerThatIsAway:
    def test_is_named(self) -> None:
        settings = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
        with pytest.raises(KafkaException, match=r"127\.0\.0\.1:1 did not answer .*look at the addresses"):
            TransactionalSender(settings, "a", what="guard of ingress", timeout_s=1.0)

    def test_does_not_keep_a_sender_from_being_closed(self) -> None:
        with EmbeddedCluster(topics={"egress": 1}) as embedded:
            settings = {
                "bootstrap.servers": embedded.bootstrap_servers,
                "log_level": 0,
                "transaction.timeout.ms": 1_000,
                "delivery.timeout.ms": 1_000,
            }
            sender = TransactionalSender(settings, "a", what="guard of ingress", timeout_s=1.0)

            def sends() -> bool:
                with suppress(KafkaException):  # it is as impatient as this
                    return sender.send([Record("egress", b"v")]) == {}
                return False

            until(sends)
        with pytest.raises(KafkaException):
            sender.send([Record("egress", b"w")])
        thread = threading.Thread(target=sender.close, daemon=True)
        thread.start()
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
