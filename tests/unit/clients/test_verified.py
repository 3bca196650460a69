"""What was verified of a message is there as long as the message is."""

from __future__ import annotations

import copy
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import Message

from headerware import Chain, Consumer, DeserializingConsumer, Producer, Record, Verified
from headerware.interceptors import Sign, Slice
from headerware.keyring import Keyring, encode_keyring, with_new_key
from tests.unit.clients.conftest import MakeConsumer, MakeProducer, take

COUNT = 10_050
"""More than a client would keep by position."""


@pytest.fixture
def keys(tmp_path: Path) -> str:
    path = tmp_path / "keys.json"
    path.write_bytes(encode_keyring(with_new_key(Keyring(), "k", "hmac-sha256")))
    path.chmod(0o600)
    return str(path)


@pytest.fixture
def reader(keys: str, make_consumer: MakeConsumer, topic: str) -> Consumer:
    return make_consumer(Slice(), Sign(keyring=keys, require="off"), topic=topic)


def send(producer: Producer, topic: str, count: int, **options: Any) -> None:
    for number in range(count):
        while True:
            try:
                producer.produce(topic, b"%d" % number, partition=0, **options)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush(60)


class TestVerifiedMessages:
    def test_of_a_large_batch_all_are_known(
        self, reader: Consumer, make_producer: MakeProducer, keys: str, topic: str
    ) -> None:
        send(make_producer(Sign(keyring=keys, key_id="k")), topic, COUNT, headers={"a": b"1"})
        messages: list[Message] = []
        deadline = time.monotonic() + 60
        while len(messages) < COUNT and time.monotonic() < deadline:
            messages += reader.consume(COUNT - len(messages), 1)
        found = [reader.verified(message) for message in messages]
        assert [verified and verified.sequence for verified in found] == list(range(COUNT))
        first = found[0]
        assert first is not None
        assert (first.key_id, first.key_version, first.topic, first.uncovered) == ("k", 1, topic, ())

    def test_polled_or_consumed_with_headers_or_without(
        self, reader: Consumer, make_producer: MakeProducer, keys: str, topic: str
    ) -> None:
        producer = make_producer(Sign(keyring=keys, key_id="k"))
        send(producer, topic, 1)
        send(producer, topic, 1, headers={"a": b"1"})
        polled = reader.poll(60)
        assert polled is not None
        (consumed,) = take(reader, 1)
        assert [message.headers() or None for message in (polled, consumed)] == [None, [("a", b"1")]]
        for message in (polled, consumed):
            assert isinstance(reader.verified(message), Verified)

    def test_nothing_of_an_unsigned_one(
        self, reader: Consumer, make_producer: MakeProducer, topic: str
    ) -> None:
        send(make_producer(), topic, 1, headers={"a": b"1"})
        (message,) = take(reader, 1)
        assert reader.verified(message) is None
        assert reader.local(message) == {}

    def test_of_a_message_that_was_reassembled(
        self, reader: Consumer, make_producer: MakeProducer, keys: str, topic: str
    ) -> None:
        producer = make_producer(Slice(max_bytes=2_000), Sign(keyring=keys, key_id="k"))
        producer.produce(topic, bytes(5_000), partition=0)
        producer.flush(60)
        (message,) = take(reader, 1)
        verified = reader.verified(message)
        assert verified is not None
        assert verified.sequence == 0

    def test_what_was_added_later_is_named(
        self, reader: Consumer, make_producer: MakeProducer, connection: dict[str, Any], keys: str, topic: str
    ) -> None:
        (wire,) = Chain([Sign(keyring=keys, key_id="k")]).open().send([Record(topic, b"v")])
        raw = confluent_kafka.Producer(connection)
        raw.produce(topic, wire.value, headers=[*wire.headers, ("x", b"1")], partition=0)
        raw.flush(60)
        (message,) = take(reader, 1)
        verified = reader.verified(message)
        assert verified is not None
        assert (verified.uncovered, message.headers() or None) == (("x",), None)

    def test_is_committed_by_message(
        self, make_consumer: MakeConsumer, make_producer: MakeProducer, keys: str, topic: str
    ) -> None:
        send(make_producer(Sign(keyring=keys, key_id="k")), topic, 2)
        consumer = make_consumer(Sign(keyring=keys), topic=topic, **{"enable.auto.commit": False})
        first, _ = take(consumer, 2)
        assert type(first) is Message
        (committed,) = consumer.commit(first, asynchronous=False)
        assert committed.offset == 1

    def test_is_there_while_it_is_processed(
        self, make_consumer: MakeConsumer, make_producer: MakeProducer, keys: str, topic: str
    ) -> None:
        seen: list[Record] = []

        class Audit:
            def on_processed(self, record: Record, error: BaseException | None) -> None:
                assert error is None
                seen.append(record)

        send(make_producer(Sign(keyring=keys, key_id="k")), topic, 1)
        consumer = make_consumer(Audit(), Sign(keyring=keys), topic=topic)
        (message,) = take(consumer, 1)
        with consumer.processing(message):
            pass
        assert seen[0].verified == consumer.verified(message) is not None

    def test_of_a_deserialized_message(
        self, make_producer: MakeProducer, connection: dict[str, Any], keys: str, topic: str
    ) -> None:
        send(make_producer(Sign(keyring=keys, key_id="k")), topic, 1)
        conf = {
            **connection,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "value.deserializer": "text",
        }
        with DeserializingConsumer[Any, str](conf, chain=Chain([Sign(keyring=keys)])) as consumer:
            consumer.subscribe([topic])
            message = consumer.poll(60)
            assert message is not None
            value: Any = message.value()
            assert value == "0"
            assert consumer.verified(message) is not None

    def test_a_raw_client_verifies_nothing(
        self, make_consumer: MakeConsumer, make_producer: MakeProducer, topic: str
    ) -> None:
        send(make_producer(), topic, 1)
        consumer = make_consumer(topic=topic)
        assert consumer.verified(take(consumer, 1)[0]) is None


def pickled(headers: Any) -> Any:
    return pickle.loads(pickle.dumps(headers))  # noqa: S301 - its own


class TestItsHeaders:
    """They hold what a message has no room for, and are a list like any other."""

    @pytest.fixture
    def message(self, reader: Consumer, make_producer: MakeProducer, keys: str, topic: str) -> Message:
        send(make_producer(Sign(keyring=keys, key_id="k")), topic, 1, headers={"a": b"1"})
        return take(reader, 1)[0]

    def test_are_a_list(self, message: Message) -> None:
        headers = message.headers()
        assert isinstance(headers, list)
        assert headers == [("a", b"1")]
        assert repr(headers) == "[('a', b'1')]"

    @pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, pickled])
    def test_are_copied_as_a_plain_list(self, message: Message, again: Callable[[Any], Any]) -> None:
        copied = again(message.headers())
        assert type(copied) is list
        assert copied == [("a", b"1")]

    def test_others_in_their_place_are_not_vouched_for(self, reader: Consumer, message: Message) -> None:
        message.set_headers([("a", b"2")])
        assert reader.verified(message) is None
