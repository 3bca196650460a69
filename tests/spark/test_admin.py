from __future__ import annotations

import threading
import time
import traceback
from contextlib import closing
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest

from headerware import ConfigError, Headers, Record
from headerware.spark_bridge.admin import AdminError, KafkaAdmin, admin_settings
from headerware.workers.transactions import TakenOverError, TransactionalSender

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from headerware.testing import KafkaBroker

SERVERS = "kafka.bootstrap.servers"


@pytest.fixture(params=["classic", "connect"])
def session(request: pytest.FixtureRequest, spark: SparkSession, no_jvm: SparkSession) -> SparkSession:
    return spark if request.param == "classic" else no_jvm


@pytest.fixture
def admin(session: SparkSession, kafka_broker: KafkaBroker) -> Iterator[KafkaAdmin]:
    with KafkaAdmin(session, {SERVERS: kafka_broker.bootstrap_servers}) as admin:
        yield admin


@pytest.fixture
def topic(kafka_broker: KafkaBroker, unique_topic: Callable[[str], str]) -> str:
    """Make a topic of two partitions, with three records in the second."""
    name = unique_topic("asked")
    kafka_broker.create_topic(name, partitions=2)
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka_broker.bootstrap_servers})
    for number in range(3):
        producer.produce(name, str(number).encode(), partition=1)
    assert producer.flush(30) == 0
    return name


@pytest.mark.broker
class TestKafkaAdmin:
    def test_gives_the_clusters_id(self, admin: KafkaAdmin, kafka_broker: KafkaBroker) -> None:
        client: Any = confluent_kafka.Consumer(
            {"bootstrap.servers": kafka_broker.bootstrap_servers, "group.id": "asks"}
        )
        try:
            assert admin.cluster_id() == client.list_topics(timeout=30).cluster_id
        finally:
            client.close()

    def test_knows_which_topics_exist(self, admin: KafkaAdmin, topic: str) -> None:
        assert admin.matching_topics(f"{topic[:-1]}.") == [topic]
        admin.require_topics([topic], path="here")
        with pytest.raises(ConfigError, match=r"^here: Kafka at .* has no topic never-made; create it"):
            admin.require_topics([topic, "never-made"], path="here")
        with pytest.raises(AdminError, match=r"'\(' is not a valid pattern"):
            admin.matching_topics("(")

    @pytest.mark.parametrize("session", ["connect"], indirect=True)
    def test_fences_no_producers_without_a_jvm(self, admin: KafkaAdmin) -> None:
        with pytest.raises(ConfigError, match="use a classic session"):
            admin.fence_producers(["job"])

    @pytest.mark.parametrize("session", ["classic"], indirect=True)
    def test_fences_producers(self, admin: KafkaAdmin, kafka_broker: KafkaBroker, topic: str) -> None:
        conf = {"bootstrap.servers": kafka_broker.bootstrap_servers}
        with closing(TransactionalSender(conf, topic, what="test")) as sender:
            record = Record(topic, b"v", None, Headers(), 0)
            sender.send([record])
            admin.fence_producers([topic, f"{topic}-nobodys"])
            admin.fence_producers([])
            with pytest.raises(TakenOverError):
                sender.send([record])

    def test_counts_partitions(self, admin: KafkaAdmin, topic: str) -> None:
        assert admin.partition_counts([topic]) == {topic: 2}
        assert admin.partition_counts()[topic] == 2
        assert admin.partition_counts([]) == {}

    def test_gives_first_and_next_offsets(self, admin: KafkaAdmin, topic: str) -> None:
        assert admin.begin_offsets([topic]) == {(topic, 0): 0, (topic, 1): 0}
        assert admin.end_offsets([topic]) == {(topic, 0): 0, (topic, 1): 3}

    def test_gives_where_an_open_transaction_begins(
        self, admin: KafkaAdmin, kafka_broker: KafkaBroker, topic: str
    ) -> None:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": kafka_broker.bootstrap_servers, "transactional.id": topic}
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topic, b"open", partition=1)
        assert producer.flush(30) == 0
        assert admin.end_offsets([topic], committed=True)[topic, 1] == 3
        assert admin.end_offsets([topic])[topic, 1] == 4
        producer.abort_transaction(30)

    def test_gives_topics_settings(self, admin: KafkaAdmin, kafka_broker: KafkaBroker, topic: str) -> None:
        compacted = f"{topic}-compacted"
        kafka_broker.create_topic(compacted, config={"cleanup.policy": "compact"})
        found = admin.topic_configs([topic, compacted])
        assert {name: configs["cleanup.policy"] for name, configs in found.items()} == {
            topic: "delete",
            compacted: "compact",
        }
        assert int(found[topic]["max.message.bytes"]) > 1_000_000

    def test_gives_what_groups_have_committed(
        self, admin: KafkaAdmin, kafka_broker: KafkaBroker, topic: str
    ) -> None:
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": kafka_broker.bootstrap_servers, "group.id": topic}
        )
        offsets = [confluent_kafka.TopicPartition(topic, 1, 2)]
        try:
            consumer.commit(offsets=offsets, asynchronous=False)
        finally:
            consumer.close()
        assert admin.group_offsets(topic) == {(topic, 1): 2}
        assert topic in admin.groups()

    def test_a_group_that_never_was_has_committed_nothing(self, admin: KafkaAdmin) -> None:
        assert admin.group_offsets("never-was") == {}

    def test_other_threads_may_ask(
        self, session: SparkSession, kafka_broker: KafkaBroker, topic: str
    ) -> None:
        found: list[dict[str, int]] = []

        def ask() -> None:
            with KafkaAdmin(session, {SERVERS: kafka_broker.bootstrap_servers}) as admin:
                found.append(admin.partition_counts([topic]))

        thread = threading.Thread(target=ask)
        thread.start()
        thread.join(60)
        assert found == [{topic: 2}]

    def test_says_which_question_failed_and_why(self, admin: KafkaAdmin) -> None:
        with pytest.raises(
            AdminError,
            match=r"did not tell the topics' partitions .*: U(nknownTopicOr|NKNOWN_TOPIC_OR_)P\w+: ",
        ):
            admin.end_offsets(["never-made"])

    def test_gives_up_in_time(self, session: SparkSession) -> None:
        began = time.monotonic()
        with (
            KafkaAdmin(session, {SERVERS: "127.0.0.1:1"}, timeout_s=1) as admin,
            pytest.raises(
                AdminError,
                match=r"Kafka at 127\.0\.0\.1:1: it did not tell .* id .*: (TimeoutException|_TRANSPORT)",
            ),
        ):
            admin.cluster_id()
        assert time.monotonic() - began < 45

    def test_refuses_what_kafka_refuses_without_its_secrets(self, spark: SparkSession) -> None:
        options = {
            SERVERS: "127.0.0.1:1",
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": "no.such.Module required password='hidden-from-all';",
        }
        with pytest.raises(AdminError, match=r"its AdminClient refuses the settings: \w+") as caught:
            KafkaAdmin(spark, options)
        assert "hidden-from-all" not in "".join(traceback.format_exception(caught.value))

    def test_may_be_closed_twice(self, admin: KafkaAdmin) -> None:
        admin.close()
        admin.close()


class TestAdminSettings:
    def test_are_the_options_that_are_kafkas(self) -> None:
        options = {
            SERVERS: "b:9092",
            "kafka.sasl.mechanism": "PLAIN",
            "subscribe": "t",
            "includeHeaders": True,
        }
        assert admin_settings(options, 5_000) == {
            "bootstrap.servers": "b:9092",
            "sasl.mechanism": "PLAIN",
            "default.api.timeout.ms": "5000",
            "request.timeout.ms": "5000",
        }

    def test_keep_a_timeout_of_the_users(self) -> None:
        options = {SERVERS: "b:9092", "kafka.default.api.timeout.ms": 9, "kafka.request.timeout.ms": 8}
        settings = admin_settings(options, 5_000)
        assert (settings["default.api.timeout.ms"], settings["request.timeout.ms"]) == ("9", "8")

    @pytest.mark.parametrize(
        ("own", "call_ms", "request_ms"),
        [
            ({"kafka.request.timeout.ms": 60_000}, "60000", "60000"),
            ({"kafka.default.api.timeout.ms": "900"}, "900", "900"),
            ({}, "45000", "30000"),
        ],
    )
    def test_no_request_may_take_longer_than_its_call(
        self, own: dict[str, str | int], call_ms: str, request_ms: str
    ) -> None:
        settings = admin_settings({SERVERS: "b:9092", **own}, 45_000)
        assert (settings["default.api.timeout.ms"], settings["request.timeout.ms"]) == (call_ms, request_ms)

    def test_refuse_a_timeout_that_is_no_number(self) -> None:
        options = {SERVERS: "b:9092", "kafka.request.timeout.ms": "30s"}
        with pytest.raises(
            ConfigError, match=r"^kafka\.request\.timeout\.ms: expected a number of millisec.*'30s'"
        ):
            admin_settings(options, 5_000)

    @pytest.mark.parametrize("options", [{}, {SERVERS: ""}, {"bootstrap.servers": "b:9092"}])
    def test_need_the_brokers_addresses(self, options: dict[str, str]) -> None:
        with pytest.raises(
            ConfigError, match=r"^kafka\.bootstrap\.servers: the brokers' addresses are missing"
        ):
            admin_settings(options, 5_000)
