from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest
from confluent_kafka import Consumer, Message, Producer
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]  # theirs

from headerware.testing import BrokerError, JavaTools, KafkaBroker
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.broker

DEADLINE_SECONDS = 60

Headers = list[tuple[str, str | bytes | None]]


def produce(broker: KafkaBroker, topic: str, value: bytes, headers: Headers) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(topic, value, headers=headers)
    assert producer.flush(DEADLINE_SECONDS) == 0


def consume_one(broker: KafkaBroker, topic: str) -> Message:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe([topic])
        message = consumer.poll(DEADLINE_SECONDS)
    finally:
        consumer.close()
    assert message is not None, f"nothing from {topic} within {DEADLINE_SECONDS} s"
    assert message.error() is None
    return message


def has_ended(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def test_keeps_records_of_long_ago(kafka_broker: KafkaBroker) -> None:
    kafka_broker.create_topic("long-ago")
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers})
    (answer,) = admin.describe_configs([ConfigResource("topic", "long-ago")]).values()
    assert answer.result()["retention.ms"].value == "-1"


@pytest.fixture(scope="class")
def own_broker(kafka_broker: KafkaBroker) -> Iterator[KafkaBroker]:
    """Return a broker that tests may stop and kill; the shared one shows that its parts are here."""
    with KafkaBroker() as broker:
        yield broker


class TestKafkaBroker:
    def test_gives_back_what_was_produced(
        self, kafka_broker: KafkaBroker, unique_topic: Callable[[str], str]
    ) -> None:
        topic = unique_topic("round-trip")
        kafka_broker.create_topic(topic)
        headers: Headers = [("a", b"1"), ("a", None), ("b", b"")]
        produce(kafka_broker, topic, b"value", headers)
        message = consume_one(kafka_broker, topic)
        assert (message.value(), message.headers()) == (b"value", headers)

    def test_creates_topics_with_partitions_and_configuration(
        self, kafka_broker: KafkaBroker, unique_topic: Callable[[str], str]
    ) -> None:
        topic = unique_topic("small")
        kafka_broker.create_topic(topic, partitions=3, config={"max.message.bytes": "1000"})
        producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers})
        assert len(producer.list_topics(topic, timeout=DEADLINE_SECONDS).topics[topic].partitions) == 3
        errors: list[object] = []
        producer.produce(topic, b"x" * 2000, on_delivery=lambda error, _message: errors.append(error))
        assert producer.flush(DEADLINE_SECONDS) == 0
        assert "MSG_SIZE_TOO_LARGE" in str(errors[0])

    def test_refuses_topic_that_is_there(
        self, kafka_broker: KafkaBroker, unique_topic: Callable[[str], str]
    ) -> None:
        topic = unique_topic("twice")
        kafka_broker.create_topic(topic)
        with pytest.raises(BrokerError, match=f"{topic}.*already exists"):
            kafka_broker.create_topic(topic)

    @pytest.mark.parametrize("end", [KafkaBroker.stop, KafkaBroker.kill])
    def test_comes_back_at_the_same_address_with_its_data(
        self,
        end: Callable[[KafkaBroker], None],
        own_broker: KafkaBroker,
        unique_topic: Callable[[str], str],
    ) -> None:
        address, first_pid, topic = own_broker.bootstrap_servers, own_broker.pid, unique_topic("orders")
        own_broker.create_topic(topic)
        produce(own_broker, topic, b"before", [("h", b"1")])

        end(own_broker)
        pids = [own_broker.pid]
        own_broker.restart()
        pids += [own_broker.pid, first_pid]

        assert own_broker.bootstrap_servers == address
        assert pids[0] is None
        assert len(set(pids)) == 3
        message = consume_one(own_broker, topic)
        assert (message.value(), message.headers()) == (b"before", [("h", b"1")])

    def test_says_why_it_did_not_start(self, kafka_broker: KafkaBroker) -> None:
        broker = KafkaBroker({"num.network.threads": "many"})
        with pytest.raises(BrokerError, match=r"(?s)did not start.*num\.network\.threads"), broker:
            pass
        assert broker.pid is None

    def test_a_port_that_was_asked_for_and_is_taken_is_tried_once(self, kafka_broker: KafkaBroker) -> None:
        _, _, port = kafka_broker.bootstrap_servers.rpartition(":")
        broker = KafkaBroker(port=int(port))
        with pytest.raises(BrokerError, match=f"port {port} is in use; name another one"):
            broker.start()
        assert broker.logs() == "", "Java was not started"
        assert broker.pid is None
        broker.close()

    def test_a_property_without_a_value_is_refused_in_a_line(self) -> None:
        command = [sys.executable, "-m", "headerware.testing.broker", "--config", "num.network.threads"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert done.stderr.endswith("--config: expected KEY=VALUE, found no '=' in 'num.network.threads'\n")

    def test_two_run_side_by_side_and_close_for_good(
        self, kafka_broker: KafkaBroker, own_broker: KafkaBroker
    ) -> None:
        assert own_broker.bootstrap_servers != kafka_broker.bootstrap_servers
        pid = own_broker.pid
        assert pid is not None
        own_broker.close()
        assert has_ended(pid)
        with pytest.raises(BrokerError, match="closed"):
            own_broker.start()

    def test_keeps_a_named_data_folder(self, kafka_broker: KafkaBroker, tmp_path: Path) -> None:
        with KafkaBroker(data_dir=tmp_path / "data") as first:
            first.create_topic("orders")
            produce(first, "orders", b"kept", [])
        with KafkaBroker(data_dir=tmp_path / "data") as second:
            assert consume_one(second, "orders").value() == b"kept"

    def test_ends_with_its_process(self, kafka_broker: KafkaBroker, tmp_path: Path) -> None:
        program = (
            "import time; from headerware.testing import KafkaBroker\n"
            "broker = KafkaBroker(); broker.start(); print(broker.pid, flush=True); time.sleep(600)"
        )
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        with subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment
        ) as parent:
            assert parent.stdout is not None
            java = int(parent.stdout.readline())
            folder = next(tmp_path.glob("headerware-kafka-*"))
            assert not has_ended(java)
            parent.send_signal(signal.SIGKILL)
        until(lambda: has_ended(java), "the broker has ended")
        until(lambda: not folder.exists(), "the broker's folder is gone")


class TestCommand:
    def test_prints_its_address_and_stops_on_ctrl_c(self, kafka_broker: KafkaBroker, tmp_path: Path) -> None:
        # A job that runs in the background hands on that Ctrl-C is ignored; a terminal does not.
        program = (
            "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
            "runpy.run_module('headerware.testing.broker', run_name='__main__')"
        )
        command = [sys.executable, "-c", program]
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
            assert process.stdout is not None
            lines = [process.stdout.readline(), process.stdout.readline()]
            address = lines[1].removeprefix("bootstrap.servers=").strip()
            brokers = Producer({"bootstrap.servers": address}).list_topics(timeout=DEADLINE_SECONDS).brokers
            process.send_signal(signal.SIGINT)
            assert process.wait(DEADLINE_SECONDS) == 0
        assert len(brokers) == 1
        assert not list(tmp_path.glob("headerware-kafka-*"))


class TestJavaTools:
    def test_consumer_prints_headers_of_ours(
        self, kafka_broker: KafkaBroker, unique_topic: Callable[[str], str]
    ) -> None:
        topic = unique_topic("to-java")
        kafka_broker.create_topic(topic)
        produce(kafka_broker, topic, b"value", [("a", b"1"), ("a", b"2"), ("n", None)])
        printed = JavaTools().console_consumer(
            kafka_broker.bootstrap_servers, topic, max_messages=1, properties={"print.headers": "true"}
        )
        assert printed == ["a:1,a:2,n:null\tvalue"]

    def test_consumer_gives_what_there_is_at_its_deadline(
        self, kafka_broker: KafkaBroker, unique_topic: Callable[[str], str]
    ) -> None:
        topic = unique_topic("short")
        kafka_broker.create_topic(topic)
        produce(kafka_broker, topic, b"only", [])
        printed: list[str] = []
        for timeout_ms in (4_000, 60_000):  # a busy machine may need more until it has read anything
            printed = printed or JavaTools().console_consumer(
                kafka_broker.bootstrap_servers, topic, max_messages=2, timeout_ms=timeout_ms
            )
        assert printed == ["only"]

    def test_producer_sends_headers_to_us(
        self, kafka_broker: KafkaBroker, unique_topic: Callable[[str], str]
    ) -> None:
        topic = unique_topic("from-java")
        kafka_broker.create_topic(topic)
        JavaTools().console_producer(
            kafka_broker.bootstrap_servers,
            topic,
            ["a:1,b:2\tkey\tvalue"],
            properties={"parse.headers": "true", "parse.key": "true"},
        )
        message = consume_one(kafka_broker, topic)
        assert (message.key(), message.value()) == (b"key", b"value")
        assert message.headers() == [("a", b"1"), ("b", b"2")]

    def test_producer_tells_of_an_undelivered_record(self, kafka_broker: KafkaBroker) -> None:
        with pytest.raises(BrokerError, match="InvalidTopicException"):
            JavaTools().console_producer(kafka_broker.bootstrap_servers, "no such name", ["value"])
