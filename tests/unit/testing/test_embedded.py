from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from headerware.testing import BrokerError, EmbeddedCluster
from headerware.testing.embedded import AUTO_CREATED_PARTITIONS
from headerware.testing.faults import request_errors
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEADLINE_SECONDS = 20


def partitions_of(cluster: EmbeddedCluster, topic: str) -> int:
    client = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    return len(client.list_topics(topic, timeout=DEADLINE_SECONDS).topics[topic].partitions)


class TestEmbeddedCluster:
    def test_gives_back_what_was_produced(
        self, embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str]
    ) -> None:
        topic = unique_topic("round-trip")
        embedded_cluster.create_topic(topic)
        headers: list[tuple[str, str | bytes | None]] = [("a", b"1"), ("a", None), ("b", b"\xff")]
        producer = Producer({"bootstrap.servers": embedded_cluster.bootstrap_servers})
        producer.produce(topic, b"value", b"key", headers=headers)
        assert producer.flush(DEADLINE_SECONDS) == 0

        consumer = Consumer(
            {
                "bootstrap.servers": embedded_cluster.bootstrap_servers,
                "group.id": topic,
                "auto.offset.reset": "earliest",
            }
        )
        try:
            consumer.subscribe([topic])
            message = consumer.poll(DEADLINE_SECONDS)
        finally:
            consumer.close()

        assert message is not None
        assert (message.error(), message.key(), message.value()) == (None, b"key", b"value")
        assert message.headers() == headers

    def test_runs_as_many_brokers_as_asked(self) -> None:
        with EmbeddedCluster(brokers=3) as cluster:
            client = Producer({"bootstrap.servers": cluster.bootstrap_servers})
            assert len(client.list_topics(timeout=DEADLINE_SECONDS).brokers) == 3
            assert len(cluster.bootstrap_servers.split(",")) == 3

    def test_creates_topics_with_their_partitions(self) -> None:
        with EmbeddedCluster(topics={"one": 1, "seven": 7}) as cluster:
            cluster.create_topic("two", partitions=2)
            assert [partitions_of(cluster, topic) for topic in ("one", "seven", "two")] == [1, 7, 2]

    def test_named_topic_appears_with_default_partitions(
        self, embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str]
    ) -> None:
        assert partitions_of(embedded_cluster, unique_topic("named")) == AUTO_CREATED_PARTITIONS

    def test_refuses_topic_that_is_there(self) -> None:
        with (
            EmbeddedCluster(topics={"orders": 1}) as cluster,
            pytest.raises(BrokerError, match=r"'orders'.*exists"),
        ):
            cluster.create_topic("orders")

    @pytest.mark.parametrize("name", ["bad topic!", ".", "..", "x" * 250, ""])
    def test_refuses_a_name_that_kafka_refuses(self, embedded_cluster: EmbeddedCluster, name: str) -> None:
        with pytest.raises(BrokerError, match="expected a name of 1 to 249 letters"):
            embedded_cluster.create_topic(name)

    @pytest.mark.parametrize("partitions", [0, -1])
    def test_refuses_topic_without_partitions(
        self, embedded_cluster: EmbeddedCluster, partitions: int
    ) -> None:
        with pytest.raises(BrokerError, match=f"found {partitions}"):
            embedded_cluster.create_topic("none", partitions=partitions)

    def test_refuses_no_brokers(self) -> None:
        with pytest.raises(BrokerError, match="found 0"):
            EmbeddedCluster(brokers=0)

    def test_closed_cluster_does_not_answer(self) -> None:
        with EmbeddedCluster() as cluster:
            address = cluster.bootstrap_servers
        client = Producer({"bootstrap.servers": address, "log_level": 0})
        with pytest.raises(KafkaException) as caught:
            client.list_topics(timeout=1)
        assert caught.value.args[0].code() in {KafkaError._TRANSPORT, KafkaError._TIMED_OUT}

    def test_closed_cluster_refuses_topics(self) -> None:
        cluster = EmbeddedCluster()
        cluster.close()
        cluster.close()
        with pytest.raises(BrokerError, match="closed"):
            cluster.create_topic("orders")

    def test_serves_other_processes(
        self, embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str]
    ) -> None:
        topic = unique_topic("elsewhere")
        embedded_cluster.create_topic(topic, partitions=5)
        program = (
            "import sys; from confluent_kafka import Producer; _, servers, topic = sys.argv\n"
            "client = Producer({'bootstrap.servers': servers})\n"
            f"print(len(client.list_topics(topic, timeout={DEADLINE_SECONDS}).topics[topic].partitions))"
        )
        done = subprocess.run(
            [sys.executable, "-c", program, embedded_cluster.bootstrap_servers, topic],
            capture_output=True,
            text=True,
            check=True,
            timeout=2 * DEADLINE_SECONDS,
        )
        assert done.stdout.strip() == "5"

    def test_says_nothing_on_standard_error_and_ends_with_its_process(self) -> None:
        program = (
            "from headerware.testing import EmbeddedCluster\n"
            "cluster = EmbeddedCluster(); print(cluster.bootstrap_servers)"
        )
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            timeout=DEADLINE_SECONDS,
        )
        assert done.stdout.startswith("127.0.0.1:")
        assert not done.stderr

    def test_forked_child_leaves_it_alone(self) -> None:
        # In a process of its own: a fork of this one would carry all its threads' locks.
        program = (
            "import os; from confluent_kafka import Producer\n"
            "from headerware.testing import EmbeddedCluster\n"
            "cluster = EmbeddedCluster(); child = os.fork()\n"
            "if not child: cluster.close(); os._exit(7)\n"
            "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
            "client = Producer({'bootstrap.servers': cluster.bootstrap_servers})\n"
            f"print(len(client.list_topics(timeout={DEADLINE_SECONDS}).brokers))"
        )
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            timeout=2 * DEADLINE_SECONDS,
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
        )
        assert done.stdout.split() == ["7", "1"]


class TestFaultsOfBrokers:
    """Each test has a cluster of its own, because all clients meet its faults."""

    @pytest.fixture
    def cluster(self) -> Iterator[EmbeddedCluster]:
        with EmbeddedCluster(brokers=2, topics={"orders": 1}) as cluster:
            yield cluster

    def producer(self, cluster: EmbeddedCluster, **settings: Any) -> Producer:
        """Return a producer that has sent a record, so that it is connected."""
        conf = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0, "linger.ms": 0}
        producer = Producer({**conf, **settings})
        producer.produce("orders", b"first")
        assert producer.flush(DEADLINE_SECONDS) == 0
        return producer

    def stored(self, cluster: EmbeddedCluster, count: int) -> list[bytes | None]:
        """Return so many records of the topic."""
        conf = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "log_level": 0}
        consumer = Consumer({**conf, "auto.offset.reset": "earliest"})
        consumer.assign([TopicPartition("orders", 0)])
        found: list[Message] = []
        until(lambda: len(found) >= count, meanwhile=lambda: found.extend(consumer.consume(count, 0.2)))
        consumer.close()
        return [message.value() for message in found]

    def test_producer_tries_again_until_requests_succeed(self, cluster: EmbeddedCluster) -> None:
        producer = self.producer(cluster, **{"retry.backoff.ms": 1, "retry.backoff.max.ms": 1})
        cluster.fail_requests("Produce", request_errors(KafkaError.NOT_LEADER_FOR_PARTITION, count=3, rate=1))
        producer.produce("orders", b"second")
        assert producer.flush(DEADLINE_SECONDS) == 0
        assert self.stored(cluster, 2) == [b"first", b"second"]

    def test_producer_is_told_of_an_error_that_does_not_pass(self, cluster: EmbeddedCluster) -> None:
        producer = self.producer(cluster)
        cluster.fail_requests("Produce", [KafkaError.TOPIC_AUTHORIZATION_FAILED])
        reports: list[KafkaError | None] = []
        producer.produce("orders", b"second", on_delivery=lambda error, _: reports.append(error))
        assert producer.flush(DEADLINE_SECONDS) == 0
        assert [error and error.code() for error in reports] == [KafkaError.TOPIC_AUTHORIZATION_FAILED]
        self.producer(cluster)
        assert self.stored(cluster, 2) == [b"first", b"first"]

    def test_producer_without_idempotence_writes_in_another_order(self, cluster: EmbeddedCluster) -> None:
        producer = self.producer(cluster, **{"batch.num.messages": 1})
        cluster.set_latency(300)  # both requests are sent before the answer to the first one
        cluster.fail_requests("Produce", [KafkaError.NOT_ENOUGH_REPLICAS])
        for value in (b"second", b"third"):
            producer.produce("orders", value)
        assert producer.flush(DEADLINE_SECONDS) == 0
        cluster.set_latency(0)
        assert self.stored(cluster, 3) == [b"first", b"third", b"second"]

    def test_one_broker_goes_down_and_the_other_answers(self, cluster: EmbeddedCluster) -> None:
        with cluster.broker_down(1):
            conf = {"bootstrap.servers": cluster.bootstrap_servers.split(",")[1], "log_level": 0}
            assert "orders" in Producer(conf).list_topics(timeout=DEADLINE_SECONDS).topics

    def test_producer_without_idempotence_writes_late_requests_twice(self, cluster: EmbeddedCluster) -> None:
        is_connected: list[bool] = []

        def tell(statistics: str) -> None:
            states = [broker["state"] for broker in json.loads(statistics)["brokers"].values()]
            is_connected[:] = ["UP" in states]

        settings = {"socket.timeout.ms": 300, "statistics.interval.ms": 20, "stats_cb": tell}
        producer = self.producer(cluster, **settings)
        until(lambda: is_connected == [True], meanwhile=lambda: producer.poll(0.05))
        cluster.set_latency(2_000)
        producer.produce("orders", b"second")
        until(lambda: is_connected == [False], "time out", meanwhile=lambda: producer.poll(0.05))
        cluster.set_latency(0)
        assert producer.flush(DEADLINE_SECONDS) == 0
        assert self.stored(cluster, 3) == [b"first", b"second", b"second"]

    def test_commit_fails_once(self, cluster: EmbeddedCluster) -> None:
        self.producer(cluster)
        conf = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "log_level": 0}
        consumer = Consumer({**conf, "auto.offset.reset": "earliest", "enable.auto.commit": False})
        consumer.subscribe(["orders"])
        found: list[Message] = []
        until(lambda: found, meanwhile=lambda: found.extend(consumer.consume(1, 0.2)))
        cluster.fail_requests("OffsetCommit", [KafkaError.GROUP_AUTHORIZATION_FAILED])
        with pytest.raises(KafkaException) as raised:
            consumer.commit(asynchronous=False)
        assert raised.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED
        assert [each.offset for each in consumer.commit(asynchronous=False) or []] == [1]
        consumer.close()

    def test_later_errors_replace_earlier_ones(self, cluster: EmbeddedCluster) -> None:
        producer = self.producer(cluster)
        cluster.fail_requests("Produce", [KafkaError.TOPIC_AUTHORIZATION_FAILED] * 9)
        cluster.fail_requests("Produce", [])
        reports: list[KafkaError | None] = []
        producer.produce("orders", b"second", on_delivery=lambda error, _: reports.append(error))
        assert producer.flush(DEADLINE_SECONDS) == 0
        assert reports == [None]

    def test_broker_that_was_down_has_its_records(self, cluster: EmbeddedCluster) -> None:
        producer = self.producer(cluster, **{"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 50})
        with cluster.broker_down():
            producer.produce("orders", b"second")
            assert producer.flush(0.3) == 1
        assert producer.flush(DEADLINE_SECONDS) == 0
        assert self.stored(cluster, 2) == [b"first", b"second"]

    def test_wrong_wishes_are_refused(self, cluster: EmbeddedCluster) -> None:
        with pytest.raises(BrokerError, match=r"expected one of the requests Produce, .* found 'produce'"):
            cluster.fail_requests("produce", [])  # type: ignore[arg-type]  # what the test is about
        with pytest.raises(BrokerError, match="expected a broker from 1 to 2, found 3"):
            cluster.set_latency(1, broker=3)
        with pytest.raises(BrokerError, match="expected a latency of 0 ms or more, found -1"):
            cluster.set_latency(-1)
        with pytest.raises(BrokerError, match="found 0"), cluster.broker_down(0):
            pass
        cluster.close()
        with pytest.raises(BrokerError, match="cannot fail Fetch requests: the embedded cluster is closed"):
            cluster.fail_requests("Fetch", [])
        with pytest.raises(BrokerError, match="closed"):
            cluster.set_latency(1)
