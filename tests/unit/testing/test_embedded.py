from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from headerware.testing import BrokerError, EmbeddedCluster
from headerware.testing.embedded import AUTO_CREATED_PARTITIONS

if TYPE_CHECKING:
    from collections.abc import Callable

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
