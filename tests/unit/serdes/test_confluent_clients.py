"""Our serdes and confluent-kafka's, in our clients and in its own, over an embedded cluster."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.error import KeySerializationError, ValueDeserializationError, ValueSerializationError
from confluent_kafka.schema_registry import header_schema_id_serializer, prefix_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from google.rpc import error_details_pb2

import headerware
from headerware import SerdeError
from headerware.serdes import Avro, ConfluentDeserializer, ConfluentSerializer, Json, Polyglot
from headerware.serdes.confluent.client import shared_client
from headerware.serdes.stores.schema_registry import RegistryStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from headerware.testing import EmbeddedCluster

PLACED = {"prefix": prefix_schema_id_serializer, "header": header_schema_id_serializer}
SCHEMAS: dict[str, dict[str, Any]] = {
    "avro": {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]},
    "json": {"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}},
}
MESSAGE = error_details_pb2.LocalizedMessage
MESSAGE_PATH = "google.rpc.error_details_pb2:LocalizedMessage"
ORDER = {"id": 12345678901234}
OBJECTS: dict[str, Any] = {
    "avro": ORDER,
    "json": ORDER,
    "protobuf": MESSAGE(locale="de", message="grün"),
}
BAD = b"secret, and no framing"
BOTH = ("key", "value")


@pytest.fixture
def topic(embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str]) -> str:
    name = unique_topic("orders")
    embedded_cluster.create_topic(name, partitions=1)
    return name


@pytest.fixture
def url(unique_topic: Callable[[str], str]) -> str:
    return f"mock://{unique_topic('registry')}"


class Clients:
    """Makes producers and consumers of either library, by its module, on one topic."""

    def __init__(self, cluster: EmbeddedCluster, topic: str, stack: contextlib.ExitStack) -> None:
        self._connection = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}
        self._topic = topic
        self._stack = stack

    def producer(self, library: Any, serializers: Mapping[str, Any]) -> Any:
        producer = library.SerializingProducer({**self._connection, **serializers})
        self._stack.callback(getattr(producer, "close", producer.flush))
        return producer

    def consumer(self, library: Any, deserializers: Mapping[str, Any]) -> Any:
        own = {"group.id": self._topic, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 20}
        consumer = library.DeserializingConsumer({**self._connection, **own, **deserializers})
        self._stack.callback(consumer.close)
        consumer.assign([TopicPartition(self._topic, 0, 0)])
        return consumer


@pytest.fixture
def clients(embedded_cluster: EmbeddedCluster, topic: str) -> Iterator[Clients]:
    with contextlib.ExitStack() as stack:
        yield Clients(embedded_cluster, topic, stack)


def both(suffix: str, settings: Any) -> dict[str, Any]:
    """Return settings for the key and the value alike."""
    return {
        f"{part}.{suffix}{option and '.'}{option}": value
        for part in BOTH
        for option, value in (settings.items() if isinstance(settings, dict) else [("", settings)])
    }


def named(word: str, url: str, tmp_path: Any, **options: Any) -> dict[str, Any]:
    """Return the flat settings of one of our serdes by its word."""
    if word == "protobuf":
        return {"": "confluent-protobuf", "url": url, "message": MESSAGE_PATH, **options}
    path = tmp_path / f"{word}.schema"
    path.write_text(json.dumps(SCHEMAS[word]), encoding="utf-8")
    return {"": f"confluent-{word}", "url": url, "schema": str(path), **options}


def their_serializer(word: str, url: str, id_in: str) -> Any:
    client, conf = shared_client(url, {}).client, {"schema.id.serializer": PLACED[id_in]}
    if word == "protobuf":
        return ProtobufSerializer(MESSAGE, client, conf=conf)
    if word == "json":
        return JSONSerializer(json.dumps(SCHEMAS[word]), client, conf=conf)
    return AvroSerializer(client, json.dumps(SCHEMAS[word]), conf=conf)


def their_deserializer(word: str, url: str) -> Any:
    client = shared_client(url, {}).client
    if word == "protobuf":
        return ProtobufDeserializer(MESSAGE, schema_registry_client=client)
    return (
        JSONDeserializer(None, schema_registry_client=client) if word == "json" else AvroDeserializer(client)
    )


def take(consumer: Any) -> Any:
    message = consumer.poll(60)
    assert message is not None
    return message


def send(producer: Any, topic: str, pairs: Sequence[tuple[Any, Any]], **more: Any) -> None:
    for key, value in pairs:
        producer.produce(topic, key=key, value=value, **more)
    assert producer.flush(60) == 0


@pytest.mark.parametrize("id_in", ["prefix", "header"])
@pytest.mark.parametrize("word", ["avro", "json", "protobuf"])
class TestConfluentSerdes:
    def test_theirs_in_their_client_are_read_by_ours_in_ours(
        self, word: str, id_in: str, clients: Clients, topic: str, url: str, tmp_path: Any
    ) -> None:
        theirs = clients.producer(confluent_kafka, both("serializer", their_serializer(word, url, id_in)))
        one = OBJECTS[word]
        send(theirs, topic, [(one, one), (one, None)], headers=[("own", b"1")])
        raw = clients.producer(headerware, {})
        send(raw, topic, [(None, BAD)])
        send(theirs, topic, [(None, one)], headers=[])
        ours = clients.consumer(headerware, both("deserializer", named(word, url, tmp_path)))
        message = take(ours)
        assert (message.key(), message.value(), message.headers()) == (one, one, [("own", b"1")])
        tombstone = take(ours)
        assert (tombstone.key(), tombstone.value(), tombstone.headers()) == (one, None, [("own", b"1")])
        with pytest.raises(ValueDeserializationError) as raised:
            take(ours)
        assert isinstance(raised.value, SerdeError)
        assert "secret" not in str(raised.value)
        last = take(ours)
        assert (last.key(), last.value()) == (None, one)

    def test_ours_in_our_client_are_read_by_theirs_in_theirs(
        self, word: str, id_in: str, clients: Clients, topic: str, url: str, tmp_path: Any
    ) -> None:
        ours = clients.producer(headerware, both("serializer", named(word, url, tmp_path, id_in=id_in)))
        one = OBJECTS[word]
        headers = [("own", b"1")]
        send(ours, topic, [(one, one), (one, None)], headers=headers)
        with pytest.raises(ValueSerializationError):
            ours.produce(topic, value={"id": "secret"})
        send(ours, topic, [(None, one)])
        assert headers == [("own", b"1")]
        theirs = clients.consumer(confluent_kafka, both("deserializer", their_deserializer(word, url)))
        message = take(theirs)
        assert (message.key(), message.value()) == (one, one)
        ids = ["__key_schema_id", "__value_schema_id"] if id_in == "header" else []
        assert [name for name, _ in message.headers()] == ["own", *ids]
        assert (take(theirs).value(), take(theirs).value()) == (None, one)

    def test_theirs_work_in_our_clients(
        self, word: str, id_in: str, clients: Clients, topic: str, url: str
    ) -> None:
        serializer, deserializer = their_serializer(word, url, id_in), their_deserializer(word, url)
        producer = clients.producer(headerware, both("serializer", serializer))
        one = OBJECTS[word]
        headers: list[Any] = [("own", b"1")]
        send(producer, topic, [(one, one), (one, None), (one, one)], headers=headers)
        send(producer, topic, [(one, one)])  # None would be refused in their client
        assert headers == [("own", b"1")]
        consumer = clients.consumer(headerware, both("deserializer", deserializer))
        messages = [take(consumer) for _ in range(4)]
        assert [message.value() for message in messages] == [one, None, one, one]
        assert [message.key() for message in messages] == [one] * 4
        names = [name for name, _ in messages[2].headers()]
        assert len(set(names)) == len(names) == (3 if id_in == "header" else 1)

    def test_ours_work_in_their_clients(
        self, word: str, id_in: str, clients: Clients, topic: str, url: str, tmp_path: Any
    ) -> None:
        options = named(word, url, tmp_path, id_in=id_in)
        serde = {"type": options.pop(""), **options}
        writing = {f"{part}.serializer": ConfluentSerializer(serde, part) for part in BOTH}  # type: ignore[arg-type]  # a part
        reading = {f"{part}.deserializer": ConfluentDeserializer(serde, part) for part in BOTH}  # type: ignore[arg-type]  # a part
        producer = clients.producer(confluent_kafka, writing)
        one = OBJECTS[word]
        headers: list[Any] = [("own", b"1")]
        send(producer, topic, [(one, one), (one, None), (one, one)], headers=headers)
        assert len(headers) == (3 if id_in == "header" else 1)
        consumer = clients.consumer(confluent_kafka, reading)
        messages = [take(consumer) for _ in range(3)]
        assert [message.value() for message in messages] == [one, None, one]
        assert [message.headers() for message in messages] == [[("own", b"1")]] * 3


@pytest.mark.parametrize(("way", "id_in"), [("prefix", "prefix"), ("confluent-header", "header")])
class TestAvroSerde:
    """Headerware's own Avro, which speaks both framings of Confluent's."""

    @staticmethod
    def serde(url: str, way: Any = None) -> Avro:
        store = RegistryStore(shared_client(url, {}).client)
        return Avro(schema=SCHEMAS["avro"], store=store, write_as=way)

    def test_reads_what_theirs_write(
        self, way: str, id_in: str, clients: Clients, topic: str, url: str
    ) -> None:
        theirs = clients.producer(confluent_kafka, both("serializer", their_serializer("avro", url, id_in)))
        send(theirs, topic, [(ORDER, ORDER), (ORDER, None)], headers=[("own", b"1")])
        send(clients.producer(headerware, {}), topic, [(None, b"\x00\x00\x00\xff\xffsecret")])
        send(theirs, topic, [(None, ORDER)], headers=[])
        ours = clients.consumer(headerware, both("deserializer", self.serde(url)))
        message, tombstone = take(ours), take(ours)
        assert (message.key(), message.value(), message.headers()) == (ORDER, ORDER, [("own", b"1")])
        assert (tombstone.key(), tombstone.value()) == (ORDER, None)
        with pytest.raises(ValueDeserializationError) as raised:
            take(ours)
        assert isinstance(raised.value, SerdeError)
        assert "secret" not in str(raised.value)
        assert take(ours).value() == ORDER

    @pytest.mark.parametrize("library", [headerware, confluent_kafka])
    def test_writes_what_theirs_read(
        self, way: str, id_in: str, library: Any, clients: Clients, topic: str, url: str
    ) -> None:
        serde: Any = self.serde(url, way)
        serdes = {
            f"{part}.serializer": serde if library is headerware else ConfluentSerializer(serde, part)  # type: ignore[arg-type]  # a part
            for part in BOTH
        }
        headers: list[Any] = [("own", b"1")]
        send(clients.producer(library, serdes), topic, [(ORDER, ORDER), (ORDER, None)], headers=headers)
        theirs = clients.consumer(confluent_kafka, both("deserializer", their_deserializer("avro", url)))
        message, tombstone = take(theirs), take(theirs)
        assert (message.key(), message.value()) == (ORDER, ORDER)
        assert ("__value_schema_id" in dict(message.headers())) == (id_in == "header")
        assert (tombstone.key(), tombstone.value()) == (ORDER, None)

    def test_and_theirs_by_name_read_each_other(
        self, way: str, id_in: str, clients: Clients, topic: str, url: str, tmp_path: Any
    ) -> None:
        theirs = named("avro", url, tmp_path, id_in=id_in)
        first = clients.producer(headerware, both("serializer", theirs))
        second = clients.producer(headerware, both("serializer", self.serde(url, way)))
        send(first, topic, [(ORDER, ORDER)])
        send(second, topic, [(ORDER, ORDER)])
        for reader in (theirs, self.serde(url)):
            consumer = clients.consumer(headerware, both("deserializer", reader))
            for _ in range(2):
                message = take(consumer)
                assert (message.key(), message.value()) == (ORDER, ORDER)


class TestOurSerdesInTheirClients:
    def test_content_types_choose_the_deserializer(self, clients: Clients, topic: str) -> None:
        serde = Polyglot()
        producer = clients.producer(confluent_kafka, {"value.serializer": ConfluentSerializer(serde)})
        for value in ({"a": 1}, "grün", b"\x00"):
            producer.produce(topic, value=value, headers=[])
        producer.flush(60)
        consumer = clients.consumer(confluent_kafka, {"value.deserializer": ConfluentDeserializer(serde)})
        assert [take(consumer).value() for _ in range(3)] == [{"a": 1}, "grün", b"\x00"]

    def test_avro_takes_its_schema_off_their_messages(self, clients: Clients, topic: str) -> None:
        serde = Avro(schema=SCHEMAS["avro"])
        producer = clients.producer(confluent_kafka, {"value.serializer": ConfluentSerializer(serde)})
        send(producer, topic, [(b"k", {"id": 1})], headers=[("own", b"1")])
        reader = ConfluentDeserializer(Avro(), "value")
        message = take(clients.consumer(confluent_kafka, {"value.deserializer": reader}))
        assert message.value() == {"id": 1}
        assert [name for name, _ in message.headers()] == ["own", "content-type"]

    def test_no_headers_are_refused_with_advice(self, clients: Clients, topic: str) -> None:
        producer = clients.producer(confluent_kafka, {"key.serializer": ConfluentSerializer(Json(), "key")})
        with pytest.raises(KeySerializationError, match=r"pass headers=\[\] to produce") as raised:
            producer.produce(topic, key={"id": 1})
        assert isinstance(raised.value.exception, SerdeError)
        assert len(producer) == 0

    def test_a_bad_record_is_refused_and_the_next_is_read(self, clients: Clients, topic: str) -> None:
        send(clients.producer(headerware, {}), topic, [(None, BAD), (None, b"1")])
        consumer = clients.consumer(confluent_kafka, {"value.deserializer": ConfluentDeserializer(Json())})
        with pytest.raises(ValueDeserializationError) as raised:
            take(consumer)
        assert isinstance(raised.value.exception, SerdeError)
        assert "secret" not in str(raised.value)
        assert take(consumer).value() == 1
