"""Where a frame's records come from and go to: the cluster's id, and topics that do not exist."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from headerware import Chain, ConfigError, Record
from headerware.interceptors import Dedup, Sign, Trail
from headerware.keyring import with_new_key
from headerware.keyring.writing import edit_keyring
from headerware.spark_bridge import decode, encode, kafka_sink, kafka_source
from headerware.spark_bridge.admin import AdminError
from headerware.testing import KafkaBroker

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from tests.spark.conftest import Kafka, Keeping, Stream

pytestmark = [
    pytest.mark.broker,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("interpreted"),
]

NOWHERE: Final = "missing-orders"
ROWS: Final = "topic string, value binary, headers array<struct<key string, value binary>>"


@pytest.fixture(scope="module")
def signing(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Chain]:
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    edit_keyring(path, lambda held: with_new_key(held, "test", "hmac-sha256"), create=True)
    return lambda **options: Chain([
        Trail(), Sign(keyring=str(path), key_id="test", require="enforce", **options)
    ])  # fmt: skip


def read(spark: SparkSession, kafka: Kafka, **options: str) -> DataFrame:
    return kafka_source(spark.read, {"kafka.bootstrap.servers": kafka.servers, **options})


class TestCluster:
    def test_is_asked_for_and_what_was_signed_for_another_is_refused(
        self, spark: SparkSession, kafka: Kafka, signing: Callable[..., Chain]
    ) -> None:
        topic = kafka.topic("orders")
        kafka.send(signing(), Record(topic, b"ours"))
        kafka.send(signing(cluster="another-cluster"), Record(topic, b"theirs"))
        frame = read(spark, kafka, subscribe=topic).where("value is not null")
        rows = decode(frame, signing(), failures="route").orderBy("offset").collect()
        assert [row.failure and row.failure.error for row in rows] == [None, "SignatureError"]

    def test_of_a_stream_is_that_of_its_source(
        self,
        kafka: Kafka,
        signing: Callable[..., Chain],
        stream: Callable[..., Stream],
        keeping: type[Keeping],
    ) -> None:
        topic = kafka.topic("orders")
        kafka.topic(f"{topic}.dead-letter")
        kafka.send(signing(), Record(topic, b"ours"))
        kafka.send(signing(cluster="another-cluster"), Record(topic, b"theirs"))
        kept = keeping()
        letters = kafka_sink({"kafka.bootstrap.servers": kafka.servers})
        stream(topic).run(signing(), kept, dead_letters=letters)
        assert kept.values(0) == [b"ours"]
        assert [letter.value for letter in kafka.wire(f"{topic}.dead-letter")] == [b"theirs"]

    def test_may_be_left_open(self, spark: SparkSession, kafka: Kafka, signing: Callable[..., Chain]) -> None:
        topic = kafka.topic("orders")
        kafka.send(signing(cluster="another-cluster"), Record(topic, b"theirs"))
        frame = read(spark, kafka, subscribe=topic)
        assert decode(frame, signing(), cluster_id="").count() == 1

    def test_that_nobody_knows_is_told(
        self, spark: SparkSession, signing: Callable[..., Chain], caplog: pytest.LogCaptureFixture
    ) -> None:
        frame = spark.createDataFrame([], ROWS)
        decode(frame, signing())
        encode(frame, signing())
        decode(frame, signing(cluster="named"), cluster_id="")
        encode(frame, signing(), cluster_id="abc")
        reading, writing = caplog.messages
        assert reading.startswith("trail, sign: the cluster's id is neither written nor compared; read")
        assert "give cluster_id=KafkaAdmin(spark, options).cluster_id()" in writing

    def test_out_of_reach_is_an_error_at_once(self, spark: SparkSession) -> None:
        options = {
            "kafka.bootstrap.servers": "localhost:1",
            "kafka.default.api.timeout.ms": "500",
            "kafka.request.timeout.ms": "400",
            "subscribe": NOWHERE,
        }
        with pytest.raises(AdminError, match="Kafka at localhost:1: it did not tell the cluster's id within"):
            kafka_source(spark.read, options)


class TestAMissingTopic:
    @pytest.mark.parametrize("reader", ["read", "readStream"])
    @pytest.mark.parametrize(
        ("option", "text"),
        [("subscribe", f"{NOWHERE}, missing-too"), ("assign", f'{{"{NOWHERE}": [0], "missing-too": [0]}}')],
    )
    def test_is_named_as_it_is_read(
        self, spark: SparkSession, kafka: Kafka, reader: str, option: str, text: str
    ) -> None:
        known = {"kafka.bootstrap.servers": kafka.servers}
        with pytest.raises(
            ConfigError, match=rf"{option}: Kafka at .* has no topic {NOWHERE}, missing-too; create it"
        ):
            kafka_source(getattr(spark, reader), {**known, option: text})

    @pytest.mark.parametrize("role", ["sink", "dead_letters"])
    def test_of_a_sink_is_named_before_anything_is_written(
        self, kafka: Kafka, stream: Callable[..., Stream], keeping: type[Keeping], role: str
    ) -> None:
        topic = kafka.topic("orders")
        kafka.send(None, Record(topic, b"v"))
        kept = keeping()
        missing = kafka_sink({"kafka.bootstrap.servers": kafka.servers, "topic": NOWHERE})
        sinks: dict[str, Any] = {"sink": kept, role: missing}
        with pytest.raises(StreamingQueryException, match=rf"{role}: Kafka at .* has no topic {NOWHERE};"):
            stream(topic).run(Chain([]), sinks.pop("sink"), **sinks)
        assert not kept.attempts

    def test_of_a_dead_letter_is_named_before_the_batch_is_written(
        self,
        kafka: Kafka,
        signing: Callable[..., Chain],
        stream: Callable[..., Stream],
        keeping: type[Keeping],
    ) -> None:
        topic = kafka.topic("orders")
        kafka.send(signing(), Record(topic, b"good"))
        kafka.send(None, Record(topic, b"unsigned"))
        kept = keeping()
        letters = kafka_sink({"kafka.bootstrap.servers": kafka.servers})
        says = rf"dead_letters: Kafka at .* has no topic {topic}\.dead-letter; create it"
        with pytest.raises(StreamingQueryException, match=says):
            stream(topic).run(signing(), kept, dead_letters=letters)
        assert not kept.attempts

    def test_in_a_row_is_named_when_kafka_has_given_up(
        self, kafka: Kafka, stream: Callable[..., Stream]
    ) -> None:
        topic = kafka.topic("orders")
        kafka.send(None, Record(topic, b"v"))
        says = rf"sink: the cluster has no topic {NOWHERE}, to which rows are written; create it"
        with KafkaBroker({"auto.create.topics.enable": False}) as other:
            sink = kafka_sink({
                "kafka.bootstrap.servers": other.bootstrap_servers,
                "kafka.max.block.ms": "500",
            })  # fmt: skip
            with pytest.raises(StreamingQueryException, match=says):
                stream(topic).run(
                    Chain([]), sink, transform=lambda frame, _: frame.withColumn("topic", F.lit(NOWHERE))
                )


class TestPatternsOfTopics:
    def test_that_are_read_and_fit_no_topic_are_told(
        self, spark: SparkSession, kafka: Kafka, caplog: pytest.LogCaptureFixture
    ) -> None:
        assert read(spark, kafka, subscribePattern="no-such-.*").count() == 0
        assert caplog.messages == ["subscribePattern: no topic fits 'no-such-.*', so nothing is read for now"]

    def test_that_are_read_give_the_topics_that_a_chain_is_compared_with(
        self, spark: SparkSession, kafka: Kafka, caplog: pytest.LogCaptureFixture
    ) -> None:
        topic = kafka.topic("pattern")
        frame = read(spark, kafka, subscribePattern=f"{topic[:-1]}.")
        decode(frame, Chain([Trail(topics=("orders-*", topic))]))
        assert caplog.messages == [f"trail: no topic fits 'orders-*' ({topic})"]

    def test_that_fit_no_topic_are_told_on_the_driver(
        self, spark: SparkSession, kafka: Kafka, caplog: pytest.LogCaptureFixture
    ) -> None:
        topic = kafka.topic("orders")
        decode(read(spark, kafka, subscribe=topic), Chain([Trail(topics=("order-*", "orders-*"))]))
        assert caplog.messages == [f"trail: no topic fits 'order-*' ({topic})"]

    def test_of_columns_for_identities_that_no_step_writes_are_told(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        options = {"kafka.bootstrap.servers": "localhost:1"}
        kafka_sink(options, identity=["state"])
        kafka_sink(options, Chain([Dedup()]), identity=["state"])
        assert caplog.messages == [
            "identity: the chain that writes has no 'dedup', so rows get no identities"
        ]

    def test_of_a_sink_are_told_as_it_is_made(self, caplog: pytest.LogCaptureFixture) -> None:
        options = {"kafka.bootstrap.servers": "localhost:1", "topic": "bills"}
        with caplog.at_level(logging.WARNING):
            kafka_sink(options, Chain([Trail(topics=("bill",))]))
        assert caplog.messages == ["trail: no topic fits 'bill' (bills)"]
