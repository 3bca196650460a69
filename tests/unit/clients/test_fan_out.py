"""Records that interceptors make several of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from confluent_kafka import KafkaError, KafkaException

from headerware.clients import Producer
from headerware.core.chain import Chain
from headerware.core.errors import InterceptorError
from headerware.core.hooks import DROP, FanOut, Role
from headerware.core.record import Record
from headerware.interceptors import Slice
from tests.unit.clients.sending import Acks, Drop, Halves, reports, wire

if TYPE_CHECKING:
    from confluent_kafka import Message

    from tests.unit.clients.conftest import MakeProducer


class TestFanOut:
    def test_gives_one_report_after_the_last_slice(
        self, make_producer: MakeProducer, connection: dict[str, Any], topic: str
    ) -> None:
        acks = Acks()
        seen, report = reports()
        producer = make_producer(Halves(), acks)
        producer.produce(topic, b"abc", b"key", 0, headers={"own": "1"}, callback=report)
        producer.flush(60)
        assert [message.value() for message in wire(connection, topic, 3)] == [b"a", b"b", b"c"]
        ((error, message),) = seen
        assert error is None
        assert (message.value(), message.headers(), message.offset()) == (b"abc", [("own", b"1")], 2)
        ((sent, metadata, failure),) = acks.seen
        assert failure is None
        assert metadata is not None
        assert metadata.offset == 2
        assert (sent.value, sent.headers.last("n")) == (b"abc", b"0")

    def test_reports_the_first_error(self, connection: dict[str, Any], topic: str) -> None:
        seen, report = reports()
        producer = Producer({**connection, "bootstrap.servers": "127.0.0.1:1"}, chain=Chain([Halves()]))
        producer.produce(topic, b"abc", partition=0, callback=report)
        producer.purge()
        producer.flush(60)
        ((error, message),) = seen
        assert error is not None
        assert error.code() == KafkaError._PURGE_QUEUE
        assert message.error().code() == KafkaError._PURGE_QUEUE
        producer.close()

    def test_is_refused_before_the_first_slice_where_the_queue_could_never_hold_it(
        self, make_producer: MakeProducer, topic: str
    ) -> None:
        acks = Acks()
        producer = make_producer(Halves(), acks, queue_buffering_max_messages=3)
        with pytest.raises(BufferError, match="4 slices"):
            producer.produce(topic, b"abcd")
        assert len(producer) == 0
        assert [type(error) for _, _, error in acks.seen] == [BufferError]

    def test_waits_for_room(self, make_producer: MakeProducer, topic: str) -> None:
        seen, report = reports()
        producer = make_producer(Halves(), queue_buffering_max_messages=3)
        for value in (b"abc", b"def", b"ghi"):
            producer.produce(topic, value, callback=report)
        producer.flush(60)
        assert sorted(message.value() for _, message in seen) == [b"abc", b"def", b"ghi"]
        assert producer.stats()["client"]["waits_for_room"] > 0

    def test_does_not_wait_for_room_inside_a_callback(self, make_producer: MakeProducer, topic: str) -> None:
        heard: list[str] = []
        producer = make_producer(Halves(), queue_buffering_max_messages=3)

        def report(error: KafkaError | None, message: Message) -> None:
            for value in (b"def", b"ghi"):
                try:
                    producer.produce(topic, value)
                except BufferError:
                    heard.append("full")

        producer.produce(topic, b"abc", callback=report)
        producer.flush(60)
        # How many of them fit is librdkafka's to count, and versions differ.
        assert set(heard) == {"full"}

    def test_fails_as_one_where_a_slice_is_refused(self, make_producer: MakeProducer, topic: str) -> None:
        class Uneven:
            def on_send(self, record: Record) -> list[Record]:
                return [record, record.replace(value=b"x" * 2_000_000)]

        acks = Acks()
        seen, report = reports()
        producer = make_producer(Uneven(), acks)
        with pytest.raises(KafkaException):
            producer.produce(topic, b"value", callback=report)
        producer.flush(60)
        assert seen == []
        assert [type(error) for _, _, error in acks.seen] == [KafkaException]

    def test_that_turns_out_empty_is_a_drop(self, make_producer: MakeProducer, topic: str) -> None:
        class Nothing:
            def on_send(self, record: Record) -> FanOut:
                return FanOut(1, lambda: iter(()))

        seen, report = reports()
        producer = make_producer(Nothing())
        producer.produce(topic, b"value", callback=report)
        producer.flush(60)
        assert [error.code() for error, _ in seen if error] == [KafkaError.POLICY_VIOLATION]

    def test_fails_as_one_where_a_slice_is_dropped_further_on(
        self, make_producer: MakeProducer, topic: str
    ) -> None:
        class Second:
            role = Role.PROTECT
            seen = 0

            def on_send(self, record: Record) -> Any:
                self.seen += 1
                return DROP if self.seen == 2 else record

        acks = Acks()
        seen, report = reports()
        producer = make_producer(Slice(max_bytes=1_000), Second(), acks)
        with pytest.raises(InterceptorError, match="slice"):
            producer.produce(topic, b"x" * 3_000, callback=report)
        producer.flush(60)
        assert seen == []
        assert [type(error) for _, _, error in acks.seen] == [InterceptorError]

    def test_is_a_drop_where_all_slices_are_dropped(self, make_producer: MakeProducer, topic: str) -> None:
        seen, report = reports()
        producer = make_producer(Slice(max_bytes=1_000), Drop())
        producer.produce(topic, b"x" * 3_000, callback=report)
        producer.flush(60)
        assert [error.code() for error, _ in seen if error] == [KafkaError.POLICY_VIOLATION]


class TestSlicesWhileTheBrokerIsDown:
    DOWN: ClassVar[dict[str, Any]] = {
        "bootstrap.servers": "127.0.0.1:1",
        "log_level": 0,
        "delivery.timeout.ms": 300,
        "linger.ms": 5,
    }

    def test_wait_for_room_as_long_as_for_delivery(self) -> None:
        """The queue holds fewer than there are slices and others, which fail only later."""
        acks, (seen, report) = Acks(), reports()
        conf = {**self.DOWN, "queue.buffering.max.messages": 4}
        with Producer(conf, chain=Chain([Slice(max_bytes=1_000), acks])) as producer:
            producer.produce("orders", b"." * 1_500, partition=0, callback=report)
            with pytest.raises((BufferError, KafkaException)):
                producer.produce("orders", b"." * 2_800, partition=0, callback=report)
            producer.flush(60)
        errors = [error for _, _, error in acks.seen]
        assert len(errors) == len({id(record) for record, _, _ in acks.seen}) == len(seen) + 1
        assert None not in errors

    def test_fail_with_the_first_of_them(self) -> None:
        acks, (seen, report) = Acks(), reports()
        conf = {**self.DOWN, "queue.buffering.max.messages": 8, "delivery.timeout.ms": 100}
        with Producer(conf, chain=Chain([Slice(max_bytes=1_000), acks])) as producer:
            producer._hw_room_timeout_s = 60
            producer.produce("orders", b"." * 3_000, partition=0, callback=report)
            with pytest.raises(KafkaException):
                producer.produce("orders", b"." * 6_000, partition=0, callback=report)
            producer.flush(60)
        assert len(acks.seen) == 2
        assert len(seen) == 1
