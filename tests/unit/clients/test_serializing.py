from __future__ import annotations

import contextlib
import json
import time
from typing import TYPE_CHECKING, Any, ClassVar

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.error import (
    ConsumeError,
    KeyDeserializationError,
    KeySerializationError,
    ValueDeserializationError,
    ValueSerializationError,
)
from confluent_kafka.serialization import SerializationError, StringDeserializer, StringSerializer

from headerware import (
    Chain,
    ConfigError,
    DeserializingConsumer,
    Headers,
    InterceptorError,
    PluginError,
    Record,
    SerdeError,
    SerializingProducer,
    Stage,
)
from headerware.interceptors import Serialize, Trail
from headerware.serdes import ConfluentAvro, Json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Stamped:
    """A serde that writes JSON, and a header that says for which part and after which headers it came."""

    def __init__(self, part: str) -> None:
        self._part = part

    def serialize(self, topic: str, headers: Headers, value: Any) -> tuple[bytes | None, Headers]:
        if value is None:
            return None, headers
        seen = f"{topic} {','.join(headers.names())}"
        return json.dumps(value).encode(), headers.put(f"made-{self._part}", seen)

    def deserialize(self, topic: str, headers: Headers, payload: bytes | None) -> tuple[Any, Headers]:
        if payload is None:
            return None, headers
        if b"poison" in payload:
            raise SerdeError("it is poison")
        return json.loads(payload), headers.remove(f"made-{self._part}")


@pytest.fixture
def make_producer(connection: dict[str, Any]) -> Iterator[Callable[..., SerializingProducer[Any, Any]]]:
    with contextlib.ExitStack() as stack:

        def make(chain: Chain | None = None, **conf: Any) -> SerializingProducer[Any, Any]:
            settings = {name.replace("_", "."): value for name, value in conf.items()}
            return stack.enter_context(SerializingProducer({**connection, **settings}, chain=chain))

        yield make


@pytest.fixture
def make_consumer(
    connection: dict[str, Any], topic: str
) -> Iterator[Callable[..., DeserializingConsumer[Any, Any]]]:
    with contextlib.ExitStack() as stack:

        def make(chain: Chain | None = None, **conf: Any) -> DeserializingConsumer[Any, Any]:
            settings = {name.replace("_", "."): value for name, value in conf.items()}
            own = {"group.id": f"{topic}-group", "auto.offset.reset": "earliest", "fetch.wait.max.ms": 20}
            consumer = stack.enter_context(
                DeserializingConsumer({**connection, **own, **settings}, chain=chain)
            )
            consumer.assign([TopicPartition(topic, 0)])
            return consumer

        yield make


def take(consumer: DeserializingConsumer[Any, Any]) -> Any:
    message = consumer.poll(60)
    assert message is not None
    return message


class TestBothWays:
    def test_objects_come_back_and_the_headers_of_the_serdes_are_gone(
        self, make_producer: Any, make_consumer: Any, topic: str
    ) -> None:
        producer = make_producer(key_serializer=Stamped("key"), value_serializer=Stamped("value"))
        consumer = make_consumer(key_deserializer=Stamped("key"), value_deserializer=Stamped("value"))
        producer.produce(topic, {"id": 7}, ["a", 1], headers={"own": b"1"})
        producer.flush(60)
        message = take(consumer)
        assert (message.key(), message.value()) == ({"id": 7}, ["a", 1])
        assert message.headers() == [("own", b"1")]

    def test_the_key_comes_first_and_the_value_sees_its_headers(
        self, make_producer: Any, make_consumer: Any, topic: str
    ) -> None:
        producer = make_producer(key_serializer=Stamped("key"), value_serializer=Stamped("value"))
        producer.produce(topic, 1, 2, headers=[("own", b"")])
        producer.flush(60)
        message = take(make_consumer())
        assert message.headers() == [
            ("own", b""),
            ("made-key", f"{topic} own".encode()),
            ("made-value", f"{topic} own,made-key".encode()),
        ]
        assert (message.key(), message.value()) == (b"1", b"2")

    def test_a_tombstone_stays_one(self, make_producer: Any, make_consumer: Any, topic: str) -> None:
        producer = make_producer(key_serializer=Stamped("key"), value_serializer=Stamped("value"))
        consumer = make_consumer(key_deserializer=Stamped("key"), value_deserializer=Stamped("value"))
        producer.produce(topic, "k")
        producer.flush(60)
        message = take(consumer)
        assert (message.key(), message.value()) == ("k", None)

    def test_text_is_an_object_too(self, make_producer: Any, make_consumer: Any, topic: str) -> None:
        producer = make_producer(value_serializer=Stamped("value"))
        producer.produce(topic, value="text", key="as bytes")
        producer.flush(60)
        message = take(make_consumer())
        assert (message.key(), message.value()) == (b"as bytes", b'"text"')

    def test_the_callers_headers_do_not_grow(self, make_producer: Any, topic: str) -> None:
        producer = make_producer(value_serializer=Stamped("value"))
        headers = [("own", b"1")]
        reports: list[Any] = []
        for number in range(3):
            producer.produce(topic, value=number, headers=headers, on_delivery=lambda _, m: reports.append(m))
        producer.flush(60)
        assert headers == [("own", b"1")]
        assert [(report.value(), report.headers()) for report in reports] == [
            (number, [("own", b"1")]) for number in range(3)
        ]

    def test_consume_gives_batches(self, make_producer: Any, make_consumer: Any, topic: str) -> None:
        producer = make_producer(value_serializer=Stamped("value"))
        assert (
            producer.produce_many(topic, [{"value": n, "headers": {"n": str(n)}} for n in range(5)])
            == [None] * 5
        )
        assert producer.produce_batch(topic, [{"value": 5, "headers": {"n": "5"}}]) == 1
        producer.flush(60)
        consumer = make_consumer(value_deserializer=Stamped("value"))
        messages: list[Any] = []
        deadline = time.monotonic() + 60
        while len(messages) < 6 and time.monotonic() < deadline:
            messages += consumer.consume(10, 0.2)
        assert [message.value() for message in messages] == [0, 1, 2, 3, 4, 5]
        assert [message.headers() for message in messages] == [[("n", str(n).encode())] for n in range(6)]

    def test_a_chain_sees_objects_left_of_serialize_and_bytes_right_of_it(
        self, make_producer: Any, make_consumer: Any, topic: str
    ) -> None:
        seen: list[Any] = []

        class Objects:
            stage: ClassVar[Stage] = Stage.OBJECTS

            def on_send(self, record: Record) -> Record:
                seen.append(record.value)
                return record.replace(value={**record.value, "more": True})

            def on_consume(self, record: Record) -> Record:
                seen.append(record.value)
                return record

        class Bytes:
            def on_send(self, record: Record) -> Record:
                seen.append(record.value)
                return record

            on_consume = on_send

        chain = Chain([Objects(), Bytes()])
        producer = make_producer(chain, value_serializer=Stamped("value"))
        assert producer.chain.names == ("objects", "serialize", "bytes")
        producer.produce(topic, value={"id": 1})
        producer.flush(60)
        consumer = make_consumer(chain, value_deserializer=Stamped("value"))
        assert take(consumer).value() == {"id": 1, "more": True}
        wire = b'{"id": 1, "more": true}'
        assert seen == [{"id": 1}, wire, wire, {"id": 1, "more": True}]


class TestDropIn:
    def test_they_are_confluent_kafkas_too(self, make_producer: Any, make_consumer: Any) -> None:
        assert isinstance(make_producer(), confluent_kafka.SerializingProducer)
        assert isinstance(make_consumer(), confluent_kafka.DeserializingConsumer)

    def test_they_take_type_parameters(self) -> None:
        assert SerializingProducer[str, dict[str, int]] is not None
        assert DeserializingConsumer[str, dict[str, int]] is not None

    def test_without_serdes_bytes_pass_in_the_same_order_of_arguments(
        self, make_producer: Any, make_consumer: Any, topic: str
    ) -> None:
        producer = make_producer()
        producer.produce(topic, b"key", b"value", 0, None, 1_700_000_000_000, [("h", b"1")])
        producer.flush(60)
        message = take(make_consumer())
        assert (message.key(), message.value(), message.headers()) == (b"key", b"value", [("h", b"1")])
        assert message.timestamp()[1] == 1_700_000_000_000

    def test_confluent_kafkas_own_serdes_work(
        self, make_producer: Any, make_consumer: Any, topic: str
    ) -> None:
        producer = make_producer(
            key_serializer=StringSerializer(), value_serializer=StringSerializer("utf_16")
        )
        consumer = make_consumer(
            key_deserializer=StringDeserializer(), value_deserializer=StringDeserializer("utf_16")
        )
        producer.produce(topic, key="k", value="grün")
        producer.flush(60)
        message = take(consumer)
        assert (message.key(), message.value()) == ("k", "grün")

    def test_the_end_of_a_partition_is_raised_by_poll_and_given_by_consume(self, make_consumer: Any) -> None:
        consumer = make_consumer(enable_partition_eof=True)
        with pytest.raises(ConsumeError) as raised:
            take(consumer)
        assert raised.value.code == KafkaError._PARTITION_EOF
        end = raised.value.kafka_message
        assert end is not None
        consumer.seek(TopicPartition(end.topic() or "", 0, 0))
        [event] = consumer.consume(1, 60)
        assert event.error().code() == KafkaError._PARTITION_EOF

    def test_builders_make_their_serdes_take_their_settings_and_close_with_the_client(
        self, connection: dict[str, Any], topic: str
    ) -> None:
        closed: list[str] = []

        class Built(StringSerializer):
            def close(self) -> None:
                closed.append("closed")

        class Builder:
            def build(self, conf: dict[str, Any], is_key: bool) -> tuple[Any, dict[str, Any]]:  # noqa: FBT001 - theirs
                assert not is_key
                return Built(conf.pop("my.codec")), conf

        producer: SerializingProducer[Any, Any] = SerializingProducer(
            {**connection, "my.codec": "utf_16", "value.serializer.builder": Builder()}
        )
        reports: list[Any] = []
        producer.produce(topic, value="x", on_delivery=lambda error, _: reports.append(error))
        producer.flush(60)
        assert (reports, closed) == ([None], [])
        producer.close()
        producer.close()
        assert closed == ["closed"]

    def test_a_builder_and_a_serializer_at_once_are_refused(self, connection: dict[str, Any]) -> None:
        with pytest.raises(ConfigError, match=r"value\.serializer: give this or value\.serializer\.builder"):
            SerializingProducer(
                {**connection, "value.serializer": "json", "value.serializer.builder": object()}
            )


class TestByName:
    def test_a_word_and_its_options(self, make_producer: Any, make_consumer: Any, topic: str) -> None:
        producer = make_producer(**{"key.serializer": "json", "value.serializer": "text"})
        producer.produce(topic, {"id": 1}, "grün")
        producer.flush(60)
        consumer = make_consumer(
            **{
                "key.deserializer": "json",
                "value.deserializer": "text",
                "value.deserializer.encoding": "latin-1",
            }
        )
        message = take(consumer)
        assert message.key() == {"id": 1}
        assert message.value() in {"grün", "grün".encode().decode("latin-1")}

    def test_the_interceptor_in_a_file(self, tmp_path: Any, make_producer: Any, topic: str) -> None:
        path = tmp_path / "headerware.toml"
        path.write_text(
            '[[interceptors]]\ntype = "serialize"\nkey = "text"\n[interceptors.value]\ntype = "json"\n'
            '[[interceptors]]\ntype = "trail"\nservice = "me"\n'
        )
        producer = make_producer(**{"headerware.config": str(path)})
        assert producer.chain.names == ("serialize", "trail")
        reports: list[Any] = []
        producer.produce(topic, "key", {"id": 1}, on_delivery=lambda error, _: reports.append(error))
        producer.flush(60)
        assert reports == [None]

    def test_serdes_of_the_client_and_of_a_file_at_once_are_refused(self, connection: dict[str, Any]) -> None:
        chain = Chain([Serialize(value="json"), Trail(service="me")])
        expected = (
            "the chain has a step that serializes, and the client has value.serializer; use one of the two"
        )
        with pytest.raises(ConfigError, match=expected):
            SerializingProducer({**connection, "value.serializer": "json"}, chain=chain)
        both = {"key.deserializer": "json", "value.deserializer": "json"}
        with pytest.raises(ConfigError, match=r"has key\.deserializer and value\.deserializer"):
            DeserializingConsumer({**connection, "group.id": "g", **both}, chain=chain)

    def test_the_class_of_a_serde_is_no_serde(self, connection: dict[str, Any]) -> None:
        with pytest.raises(PluginError, match=r"found the class Json; write Json\(\.\.\.\)$"):
            SerializingProducer({**connection, "value.serializer": Json})
        with pytest.raises(TypeError, match=r"^ConfluentAvro needs url; write ConfluentAvro\(url=\.\.\.\)$"):
            ConfluentAvro(schema="{}")  # type: ignore[call-arg]

    def test_the_flat_form_of_the_interceptor(self) -> None:
        chain = Chain.from_config(
            {
                "interceptors": "serialize",
                "interceptors.serialize.value": "text",
                "interceptors.serialize.value.encoding": "utf-16",
            }
        )
        [sent] = chain.open().send([Record("t", "ab")])
        assert sent.value == "ab".encode("utf-16")

    @pytest.mark.parametrize(
        ("conf", "path", "problem"),
        [
            ({"value.serializer": "jsn"}, "value.serializer", "did you mean 'json'"),
            ({"value.serializer": 5}, "value.serializer", "expected a serde"),
            ({"value.serializer": StringSerializer}, "value.serializer", "expected a serde"),
            (
                {"value.serializer": "text", "value.serializer.encodin": "x"},
                "value.serializer.encodin",
                "did",
            ),
            ({"value.serializer.encoding": "x"}, "value.serializer", "expected the word"),
            (
                {"value.serializer": StringSerializer(), "value.serializer.codec": "x"},
                "value.serializer.codec",
                "given as an object",
            ),
        ],
    )
    def test_mistakes_name_their_place(
        self, connection: dict[str, Any], conf: dict[str, Any], path: str, problem: str
    ) -> None:
        with pytest.raises(ConfigError, match=problem) as raised:
            SerializingProducer({**connection, **conf})
        assert raised.value.path == path

    def test_serdes_stay_where_interceptors_are_switched_off(
        self, make_producer: Any, topic: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HEADERWARE_DISABLED", "1")
        producer = make_producer(Chain([Trail(service="me")]), value_serializer=Stamped("value"))
        assert producer.chain.names == ("serialize",)
        in_the_chain = make_producer(Chain([Serialize(value="json"), Trail(service="me")]))
        assert in_the_chain.chain.names == ("serialize",)


class TestBadInput:
    @pytest.mark.parametrize(
        ("part", "error"), [("key", KeySerializationError), ("value", ValueSerializationError)]
    )
    def test_what_cannot_be_serialized_is_both_our_failureand_theirs(
        self, make_producer: Any, topic: str, part: str, error: type[Exception]
    ) -> None:
        producer = make_producer(**{f"{part}.serializer": Stamped(part)})
        with pytest.raises(error) as raised:
            producer.produce(topic, **{part: {1, 2}})
        assert isinstance(raised.value, SerdeError)
        assert isinstance(raised.value, SerializationError)
        refused: Any = raised.value
        assert (refused.part, refused.topic) == (part, topic)
        assert isinstance(raised.value.__cause__, TypeError)
        assert f"the {part}'s serde raised TypeError" in str(raised.value)
        assert len(producer) == 0

    def test_one_bad_record_of_many_is_answered_alone(self, make_producer: Any, topic: str) -> None:
        producer = make_producer(value_serializer=Stamped("value"))
        errors = producer.produce_many(topic, [{"value": 1}, {"value": {1}}, {"value": 2}])
        assert [type(error).__name__ for error in errors] == [
            "NoneType",
            "ValueSerializationError",
            "NoneType",
        ]

    @pytest.mark.parametrize(
        ("part", "error"), [("key", KeyDeserializationError), ("value", ValueDeserializationError)]
    )
    def test_what_cannot_be_deserialized_is_raised_once_and_the_stream_goes_on(
        self,
        make_producer: Any,
        make_consumer: Any,
        topic: str,
        part: str,
        error: type[Exception],
    ) -> None:
        producer = make_producer()
        for payload in (b"1", b'"poison"', b"no json", b"2"):
            producer.produce(topic, **{part: payload})
        producer.flush(60)
        consumer = make_consumer(**{f"{part}.deserializer": Stamped(part)})
        assert getattr(take(consumer), part)() == 1
        for payload, offset, problem in (
            (b'"poison"', 1, "it is poison"),
            (b"no json", 2, "JSONDecodeError"),
        ):
            with pytest.raises(error, match=problem) as raised:
                take(consumer)
            assert isinstance(raised.value, SerdeError)
            failure: Any = raised.value
            assert (failure.topic, failure.partition, failure.offset) == (topic, 0, offset)
            assert getattr(failure.kafka_message, part)() == payload
            assert "no json" not in str(failure)
        assert getattr(take(consumer), part)() == 2

    def test_a_serde_for_the_other_direction_is_refused(self, make_producer: Any, topic: str) -> None:
        class OnlyReads:
            def deserialize(self, topic: str, headers: Headers, payload: Any) -> Any:
                return payload, headers

        producer = make_producer(value_serializer=OnlyReads())
        with pytest.raises(ValueSerializationError, match="a OnlyReads, cannot serialize"):
            producer.produce(topic, value=1)

    def test_an_object_that_nothing_serializes_is_refused(self, make_producer: Any, topic: str) -> None:
        producer = make_producer(key_serializer=Stamped("key"))
        with pytest.raises(InterceptorError, match=r"the value of a record for topic .* serialize it first"):
            producer.produce(topic, key=1, value={"id": 1})

    def test_a_value_in_the_place_of_the_key_is_told_where_it_goes(
        self, make_producer: Any, topic: str
    ) -> None:
        producer = make_producer(value_serializer=Stamped("value"))
        hint = (
            "the second argument is the key here, and the third the value: for a value alone, write value=..."
        )
        for value in (None, "k-1"):
            with pytest.raises(InterceptorError, match=f"the key of a record .* not dict.*; {hint}$"):
                producer.produce(topic, {"id": 1}, value)
        with pytest.raises(InterceptorError) as raised:
            producer.produce(topic, {"id": 1}, {"id": 1})
        assert hint not in str(raised.value)

    def test_so_is_a_value_that_the_serializer_of_keys_refused(self, make_producer: Any, topic: str) -> None:
        producer = make_producer(key_serializer=StringSerializer(), value_serializer=Stamped("value"))
        with pytest.raises(KeySerializationError, match="the second argument is the key here"):
            producer.produce(topic, {"id": 1}, "k-1")

    def test_a_plug_in_that_is_no_serde_is_refused(self) -> None:
        with pytest.raises(PluginError, match="expected a serde"):
            Serialize(value=object())
