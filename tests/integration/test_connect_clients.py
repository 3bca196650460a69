"""A connector's lines in clients: producers, consumers, commits and dead letters."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final

import confluent_kafka
import pytest
from confluent_kafka import KafkaError

from headerware import (
    Chain,
    ConfigError,
    Consumer,
    DeserializingConsumer,
    Headers,
    Producer,
    SerializingProducer,
)
from headerware import TransformError as Refused
from headerware.connect.data import INT32_SCHEMA, STRING_SCHEMA, Int32, SchemaBuilder, Struct
from headerware.interceptors import Serialize, Transforms
from headerware.serdes import Connect

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware.testing import EmbeddedCluster
    from tests.integration.conftest import Cluster

DEADLINE_S: Final = 60.0
PACKAGE: Final = "org.apache.kafka.connect.transforms"
LINES: Final = {
    "transforms": "tombstones,mask,team,tag,route",
    "transforms.tombstones.type": f"{PACKAGE}.Filter",
    "transforms.tombstones.predicate": "isTombstone",
    "transforms.mask.type": f"{PACKAGE}.MaskField$Value",
    "transforms.mask.fields": "ssn",
    "transforms.team.type": f"{PACKAGE}.HeaderFrom$Value",
    "transforms.team.fields": "team",
    "transforms.team.headers": "team",
    "transforms.team.operation": "move",
    "transforms.tag.type": f"{PACKAGE}.InsertHeader",
    "transforms.tag.header": "checked",
    "transforms.tag.value.literal": "42",
    "transforms.tag.predicate": "isTest",
    "transforms.tag.negate": "true",
    "transforms.route.type": f"{PACKAGE}.RegexRouter",
    "transforms.route.regex": "(.*)",
    "transforms.route.replacement": "$1.eu",
    "predicates": "isTombstone,isTest",
    "predicates.isTombstone.type": f"{PACKAGE}.predicates.RecordIsTombstone",
    "predicates.isTest.type": f"{PACKAGE}.predicates.HasHeaderKey",
    "predicates.isTest.name": "test",
}
JSON: Final = {
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}
ROUTE: Final = {key: value for key, value in LINES.items() if key.startswith("transforms.route.")}
PERSON: Final = (
    SchemaBuilder.struct().name("Person").field("id", INT32_SCHEMA).field("ssn", STRING_SCHEMA).build()
)
ADA: Final = {"id": 1, "ssn": "123-45", "team": "north"}


def lines(**keys: str) -> dict[str, str]:
    """Give the lines of a list of one transform, which drops what is not an order, or of that and others."""
    return {"transforms": "route", **ROUTE, **keys}


@pytest.fixture
def topic(embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str]) -> str:
    """Create a topic, and that which the lines route it to."""
    name = unique_topic("people")
    embedded_cluster.create_topic(name)
    embedded_cluster.create_topic(f"{name}.eu")
    return name


@pytest.fixture
def conf(embedded_cluster: EmbeddedCluster) -> dict[str, Any]:
    return {"bootstrap.servers": embedded_cluster.bootstrap_servers, "log_level": 0}


def value(message: Any) -> Any:
    """Return a message's value, which is an object here."""
    return message.value()


def read(conf: dict[str, Any], topic: str, count: int) -> list[Any]:
    """Read so many messages as a client that has never heard of Headerware."""
    group = {"group.id": f"plain-{topic}", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer({**conf, **group})
    consumer.subscribe([topic])
    found = consumer.consume(count, DEADLINE_S)
    consumer.close()
    return found


class TestProducer:
    def test_sends_what_its_lines_make_of_records(self, conf: dict[str, Any], topic: str) -> None:
        with Producer({**conf, **LINES, **JSON}) as producer:
            producer.produce(topic, dict(ADA), "k", headers={"own": b"\xff"})
            producer.produce(topic, {**ADA, "id": 2}, headers={"test": None})
        first, second = read(conf, f"{topic}.eu", 2)
        assert (first.key(), json.loads(first.value())) == (b"k", {"id": 1, "ssn": ""})
        assert first.headers() == [("own", b"\xff"), ("team", b"north"), ("checked", b"42")]
        assert second.headers() == [("test", None), ("team", b"north")]

    def test_reports_what_a_filter_drops_as_dropped(self, conf: dict[str, Any], topic: str) -> None:
        reports: list[Any] = []
        with Producer({**conf, **LINES, **JSON}) as producer:
            producer.produce(topic, None, "k", on_delivery=lambda error, _: reports.append(error))
        assert [error.code() for error in reports] == [KafkaError.POLICY_VIOLATION]

    def test_refuses_what_cannot_be_transformed_and_goes_on(self, conf: dict[str, Any], topic: str) -> None:
        with Producer({**conf, **LINES, **JSON}) as producer:
            with pytest.raises(Refused) as caught:
                producer.produce(topic, ["not a dict"])
            assert caught.value.transform == f"{PACKAGE}.MaskField$Value"
            producer.produce(topic, dict(ADA))
        assert len(read(conf, f"{topic}.eu", 1)) == 1

    def test_sends_many_at_once(self, conf: dict[str, Any], topic: str) -> None:
        with Producer({**conf, **LINES, **JSON}) as producer:
            values = [{**ADA, "id": number} for number in range(500)]
            values[7] = "not a dict"  # type: ignore[call-overload]  # on purpose
            values[8] = None  # type: ignore[call-overload]  # a tombstone
            errors = producer.produce_many(
                topic, [{"value": value, "headers": {"n": "1"}} for value in values]
            )
        assert [at for at, error in enumerate(errors) if error is not None] == [7]
        assert isinstance(errors[7], Refused)
        found = read(conf, f"{topic}.eu", 498)
        assert sorted(json.loads(message.value())["id"] for message in found) == [
            *range(7),
            *range(9, 500),
        ]
        assert {Headers(message.headers()).names() for message in found} == {("n", "team", "checked")}

    def test_is_not_made_of_lines_that_cannot_work(self, conf: dict[str, Any]) -> None:
        with pytest.raises(ConfigError, match=r"transforms\.mask\.feilds"):
            Producer({**conf, **LINES, "transforms.mask.feilds": "ssn"})


class TestSerializingClients:
    def test_transform_before_the_serializer_that_they_have(self, conf: dict[str, Any], topic: str) -> None:
        serializers = {"key.serializer": "string", "value.serializer": "json"}
        with SerializingProducer({**conf, **LINES, **serializers, "interceptors": "trail"}) as producer:
            assert producer.chain.names == ("transforms", "serialize", "trail")
            producer.produce(topic, "k", dict(ADA))
        (sent,) = read(conf, f"{topic}.eu", 1)
        assert (sent.key(), json.loads(sent.value())) == (b"k", {"id": 1, "ssn": ""})
        assert Headers(sent.headers()).names() == ("team", "checked", "content-type", "hw.trail")

    def test_take_structs_where_the_serializer_is_a_converter(self, conf: dict[str, Any], topic: str) -> None:
        mask = {key: value for key, value in LINES.items() if key.startswith("transforms.mask.")}
        converter = {"value.serializer": "connect", "value.serializer.converter": "JsonConverter"}
        with SerializingProducer({**conf, "transforms": "mask", **mask, **converter}) as producer:
            producer.produce(topic, "k", Struct.of(PERSON, {"id": 1, "ssn": "123"}))
        group = {"group.id": f"{topic}-own", "auto.offset.reset": "earliest", "value.deserializer": "connect"}
        with DeserializingConsumer({**conf, **group}) as consumer:
            consumer.subscribe([topic])
            message = consumer.poll(DEADLINE_S)
        assert message is not None
        assert message.value() == Struct(PERSON).put("id", Int32(1)).put("ssn", "")

    def test_refuse_a_serializer_beside_a_pasted_converter(self, conf: dict[str, Any]) -> None:
        with pytest.raises(
            ConfigError, match=r"a step that serializes, and the client has value\.serializer; use one of"
        ):
            SerializingProducer({**conf, **LINES, **JSON, "value.serializer": "json"})


class TestConsumer:
    def test_gets_what_its_lines_make_of_records(self, conf: dict[str, Any], topic: str) -> None:
        with Producer(conf) as producer:
            producer.produce(topic, json.dumps(ADA), "k", headers={"own": b"1,000"})
        group = {"group.id": topic, "auto.offset.reset": "earliest"}
        with Consumer({**conf, **LINES, **JSON, **group}) as consumer:
            consumer.subscribe([topic])
            message = consumer.poll(DEADLINE_S)
        assert message is not None
        assert (message.topic(), message.key(), value(message)) == (
            f"{topic}.eu",
            b"k",
            {"id": 1, "ssn": ""},
        )
        assert message.headers() == [("own", b"1,000"), ("team", b"north"), ("checked", b"42")]


@pytest.mark.broker
class TestOffsets:
    """On the real broker: what is committed is where records were, whatever they are called meanwhile."""

    VALUES: Final = (b'{"id": 0}', None, b'{"id": 2}', b'{"id": 3}')

    def consumer(self, cluster: Cluster, topic: str, **conf: Any) -> Consumer:
        filtering = {key: value for key, value in LINES.items() if "ombstone" in key}
        config = {**lines(**filtering), "transforms": "tombstones,route", "predicates": "isTombstone"}
        steps = [
            Transforms(config=config, on="consume"),
            Serialize(value=Connect(options={"schemas.enable": False})),
        ]
        return cluster.consumer(topic, *steps, **conf)

    @pytest.fixture
    def topic(self, cluster: Cluster) -> str:
        name = cluster.topic("people")
        producer = cluster.plain_producer()
        for payload in self.VALUES:
            producer.produce(name, payload, b"k")
        assert producer.flush(DEADLINE_S) == 0
        return name

    def test_of_a_record_that_has_another_topic_now_are_committed_where_it_was(
        self, cluster: Cluster, topic: str
    ) -> None:
        consumer = self.consumer(cluster, topic, enable_auto_commit=False)
        (first,) = cluster.take(consumer, 1)
        assert (first.topic(), first.offset(), value(first)) == (f"{topic}.eu", 0, {"id": 0})
        consumer.commit(first, asynchronous=False)
        assert cluster.committed(topic, topic)[0] == 1
        (second,) = cluster.take(consumer, 1)
        assert second.offset() == 2
        consumer.commit(second, asynchronous=False)
        assert cluster.committed(topic, topic)[0] == 3

    def test_of_dropped_records_are_committed(self, cluster: Cluster) -> None:
        name = cluster.topic("tombstones")
        producer = cluster.plain_producer()
        for payload in (b"{}", None, None):
            producer.produce(name, payload, b"k")
        assert producer.flush(DEADLINE_S) == 0
        consumer = self.consumer(cluster, name, enable_auto_commit=False)
        assert [message.offset() for message in cluster.rest_of(consumer, name)] == [0]
        consumer.commit(asynchronous=False)
        assert cluster.committed(name, name)[0] == 3

    def test_that_are_stored_go_to_the_broker_when_the_consumer_closes(
        self, cluster: Cluster, topic: str
    ) -> None:
        consumer = self.consumer(cluster, topic, enable_auto_offset_store=False)
        messages = cluster.rest_of(consumer, topic)
        assert [message.offset() for message in messages] == [0, 2, 3]
        consumer.store_offsets(messages[1])
        consumer.close()
        assert cluster.committed(topic, topic)[0] == 3
        again = self.consumer(cluster, topic)
        assert [value(message) for message in cluster.take(again, 1)] == [{"id": 3}]

    def test_of_a_batch_are_those_of_the_records(self, cluster: Cluster, topic: str) -> None:
        consumer = self.consumer(cluster, topic)
        found: list[Any] = []
        deadline = time.monotonic() + DEADLINE_S
        while len(found) < 3 and time.monotonic() < deadline:
            found += [message for message in consumer.consume(10, 1) if message.error() is None]
        assert [message.offset() for message in found] == [0, 2, 3]
        consumer.close()
        assert cluster.committed(topic, topic)[0] == 4


@pytest.mark.broker
class TestDeadLetters:
    def test_java_sees_the_original_and_connects_own_reason(self, cluster: Cluster) -> None:
        topic = cluster.topic("people")
        producer = cluster.plain_producer()
        bad = b'{"ssn": ["12", {"3": 4}]}'
        for payload in (b'{"ssn": "1"}', bad, b'{"ssn": "2"}'):
            producer.produce(topic, payload, b"key", headers=[("own", b"1,000"), ("own", None)])
        assert producer.flush(DEADLINE_S) == 0
        config = {
            "transforms": "number",
            "transforms.number.type": f"{PACKAGE}.Cast$Value",
            "transforms.number.spec": "ssn:int32",
        }
        step = Transforms(config=config, on="consume", on_error="dead_letter")
        consumer = cluster.consumer(topic, step, Serialize(value=Connect(options={"schemas.enable": False})))
        assert [value(m) for m in cluster.rest_of(consumer, topic)] == [{"ssn": 1}, {"ssn": 2}]
        cluster.commit(consumer)
        assert cluster.committed(topic, topic)[0] == 3

        (letter,) = cluster.in_java(f"{topic}.dead-letter", 1)
        assert (letter.key, letter.value) == (b"key", bad)
        assert letter.headers[:2] == [("own", b"1,000"), ("own", None)]
        told = {name.removeprefix("__connect.errors."): value for name, value in letter.headers[2:]}
        message, _ = told.pop("exception.message"), told.pop("exception.stacktrace")
        assert told == {
            "topic": topic.encode(),
            "partition": b"0",
            "offset": b"1",
            "stage": b"TRANSFORMATION",
            "class.name": f"{PACKAGE}.Cast$Value".encode(),
            "exception.class.name": b"org.apache.kafka.connect.errors.DataException",
        }
        assert (message or b"").startswith(f"transforms at {topic}[0]@1: transforms.number".encode())

    def test_come_of_pasted_lines_whose_options_stand_under_their_alias(self, cluster: Cluster) -> None:
        topic = cluster.topic("people")
        producer = cluster.plain_producer()
        for payload in (b"[]", json.dumps(ADA).encode()):
            producer.produce(topic, payload, b"key")
        assert producer.flush(DEADLINE_S) == 0
        own = {"bootstrap.servers": cluster.servers, "group.id": topic, "auto.offset.reset": "earliest"}
        buried = {"interceptors.transforms.on_error": "dead_letter", "log_level": 0}
        with Consumer({**own, **LINES, **JSON, **buried}) as consumer:
            consumer.subscribe([topic])
            (good,) = cluster.take(consumer, 1)
            assert value(good) == {"id": 1, "ssn": ""}
        (letter,) = cluster.on_the_wire(f"{topic}.dead-letter")
        assert letter.value() == b"[]"


@pytest.mark.broker
class TestRealBroker:
    def test_java_reads_what_a_producer_with_pasted_lines_has_sent(self, cluster: Cluster) -> None:
        topic = cluster.topic("people")
        cluster.broker.create_topic(f"{topic}.eu")
        with Producer({"bootstrap.servers": cluster.servers, "log_level": 0, **LINES, **JSON}) as producer:
            producer.produce(topic, dict(ADA), "k", headers={"own": b"1,000"})
            producer.produce(topic, None, "k")
        (sent,) = cluster.in_java(f"{topic}.eu", 1)
        assert (sent.key, json.loads(sent.value or b"")) == (b"k", {"id": 1, "ssn": ""})
        assert sent.headers == [("own", b"1,000"), ("team", b"north"), ("checked", b"42")]
        assert len(cluster.on_the_wire(f"{topic}.eu")) == 1

    def test_one_chain_does_both_ends_once(self, cluster: Cluster) -> None:
        topic = cluster.topic("people")
        config = {"transforms": "tag", "transforms.tag.type": f"{PACKAGE}.InsertHeader"}
        config |= {"transforms.tag.header": "checked", "transforms.tag.value.literal": "42"}
        chain = Chain([Transforms(config=config), Serialize(value=Connect())])
        producer = cluster.producer(chain=chain)
        producer.produce(topic, {"id": 1})
        assert producer.flush(DEADLINE_S) == 0
        (message,) = cluster.take(cluster.consumer(topic, chain=chain), 1)
        assert (value(message), message.headers()) == ({"id": 1}, [("checked", b"42")])
