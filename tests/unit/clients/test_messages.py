"""Header names that are no UTF-8: confluent-kafka cannot read them, but any C client can send them."""

from __future__ import annotations

import ctypes
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Message, TopicPartition

from headerware import carrying
from headerware.clients import Consumer
from headerware.clients.messages import updated_message
from headerware.core.batch import Batch
from headerware.core.errors import HeaderError
from headerware.kafka.messages import record_of
from headerware.testing.embedded import _librdkafka
from tests.committing import commit_stored
from tests.unit.clients.test_executor import Seen, read_all

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.clients.conftest import MakeConsumer


_END, _TOPIC_NAME, _PARTITION, _VALUE, _KEY, _MSGFLAGS, _HEADER = 0, 1, 3, 4, 5, 7, 9
_COPY = 2
_PRODUCER = 0
SECRET = b"hunter2"


class Noop:
    def on_consume(self, record: Any) -> Any:
        return record


@pytest.fixture
def put_values(connection: dict[str, Any], topic: str) -> Callable[..., None]:
    """Return a function that sends values, each with a header of a given name, through librdkafka itself."""
    return partial(put_raw, connection, topic)


def put_raw(connection: dict[str, Any], topic: str, *records: tuple[bytes, bytes]) -> None:
    lib: Any = _librdkafka()
    pointer, text, number, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_size_t
    problem = ctypes.create_string_buffer(512)
    conf = pointer(lib.rd_kafka_conf_new())
    servers = connection["bootstrap.servers"].encode()
    assert lib.rd_kafka_conf_set(conf, b"bootstrap.servers", servers, problem, size(512)) == 0
    client = pointer(lib.rd_kafka_new(_PRODUCER, conf, problem, size(512)))
    for value, name in records:
        parts = [number(_TOPIC_NAME), text(topic.encode()), number(_PARTITION), ctypes.c_int32(0)]
        parts += [number(_VALUE), text(value), size(len(value)), number(_MSGFLAGS), number(_COPY)]
        parts += [number(_KEY), text(b"key"), size(3)]
        parts += [number(_HEADER), text(name), text(SECRET), ctypes.c_ssize_t(len(SECRET)), number(_END)]
        assert lib.rd_kafka_producev(client, *parts) == 0
    assert lib.rd_kafka_flush(client, 10_000) == 0
    lib.rd_kafka_destroy(client)


def outcomes(consumer: Consumer, take: Callable[[], list[Any]], count: int) -> list[Any]:
    found: list[Any] = []
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        try:
            found.extend(message.value() for message in take() if message is not None)
        except HeaderError as error:
            found.append(error)
    return found


class TestUnreadableHeaders:
    def check(self, consumer: Consumer, topic: str, found: list[Any]) -> None:
        assert [found[0], found[2]] == [b"a", b"c"]
        assert isinstance(found[1], HeaderError)
        assert f"{topic}[0]@1" in str(found[1])
        assert SECRET.decode() not in str(found[1])
        commit_stored(consumer)
        assert consumer.committed([TopicPartition(topic, 0)], 10)[0].offset == 3

    def test_refuse_a_record_where_no_interceptor_would(
        self, connection: dict[str, Any], put_values: Callable[..., None], topic: str, unique_topic: Any
    ) -> None:
        """To ask confluent-kafka for these headers again, as ``processing`` does, would end the process."""
        put_values((b"a", b"fine"), (b"b", b"\xff\xfe"), (b"c", b"fine"))
        conf = {**connection, "group.id": unique_topic("group"), "auto.offset.reset": "earliest"}
        with Consumer({**conf, "headerware.processing": "explicit"}) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            found: list[Any] = []
            while len(found) < 3:
                message = consumer.poll(10)
                assert message is not None
                with consumer.processing(message), carrying(message):
                    found.append(message.error() or message.value())
        assert (found[0], found[2]) == (b"a", b"c")
        assert f"{topic}[0]@1: a header's name is not UTF-8" in str(found[1])

    def test_refuse_one_record_of_a_batch(
        self, make_consumer: MakeConsumer, put_values: Callable[..., None], topic: str
    ) -> None:
        put_values((b"a", b"fine"), (b"b", b"\xff\xfe"), (b"c", b"fine"))
        consumer = make_consumer(Noop(), topic=topic)
        self.check(consumer, topic, outcomes(consumer, lambda: consumer.consume(3, 0.3), 3))

    def test_are_an_error_event_where_the_chain_is_configured(
        self, connection: dict[str, Any], put_values: Callable[..., None], topic: str
    ) -> None:
        put_values((b"a", b"fine"), (b"b", b"\xff\xfe"))
        conf = {**connection, "group.id": topic, "auto.offset.reset": "earliest"}
        with Consumer({**conf, "interceptors": "trail"}) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            first, second = [consumer.poll(60) for _ in range(2)]
        assert first is not None
        assert first.value() == b"a"
        assert second is not None
        assert (second.topic(), second.offset(), second.value()) == (topic, 1, None)
        assert f"{topic}[0]@1: a header's name is not UTF-8" in str(second.error())

    def test_refuse_one_record_of_those_that_are_polled(
        self, make_consumer: MakeConsumer, put_values: Callable[..., None], topic: str
    ) -> None:
        put_values((b"a", b"fine"), (b"b", b"\xff\xfe"), (b"c", b"fine"))
        consumer = make_consumer(Noop(), topic=topic)
        self.check(consumer, topic, outcomes(consumer, lambda: [consumer.poll(0.3)], 3))

    def test_have_a_dead_letter_that_says_where_they_are(
        self,
        connection: dict[str, Any],
        make_consumer: MakeConsumer,
        put_values: Callable[..., None],
        topic: str,
    ) -> None:
        put_values((b"a", b"fine"), (b"b", b"\xff\xfe"), (b"c", b"fine"))
        consumer = make_consumer(Noop(), topic=topic)
        seen = Seen(consumer, 2)
        consumer.run(seen, on_failure="dead_letter")
        assert seen.values == [b"a", b"c"]
        (letter,) = read_all(connection, f"{topic}.dead-letter", 1)
        assert (letter.key(), letter.value()) == (f"{topic}[0]@1".encode(), None)
        assert b"not UTF-8" in (dict(letter.headers() or ())["__connect.errors.exception.message"] or b"")


class TestABatch:
    def test_leaves_messages_without_headers_as_they_are(self) -> None:
        """The records of a batch share the text of their topic, and each message has its own."""
        messages = [Message(b"orders".decode(), 0, offset, b"k", b"v") for offset in range(3)]
        records = [record_of(message) for message in messages]
        assert len({id(record.topic) for record in records}) == 3
        changed = Batch.of(records).replace(values=[b"w"] * 3)
        for message, before, after in zip(messages, records, changed, strict=True):
            assert updated_message(message, before, after).headers() is None
            assert message.value() == b"w"
