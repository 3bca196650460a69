from __future__ import annotations

import gc
import sys
import time
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

import headerware
from headerware.clients import Producer
from headerware.core.chain import Chain
from headerware.core.errors import (
    DeadLetterError,
    HeaderError,
    HeaderwareError,
    InterceptorError,
    RecordError,
)
from headerware.core.hooks import DROP, FanOut, Interceptor, Role
from headerware.core.record import Operation, Record
from headerware.interceptors import Compact, Slice

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Message

    from headerware.core.record import RecordMetadata

Report = tuple[KafkaError | None, Any]


class Stamp:
    """Add a header."""

    def __init__(self, name: str = "stamp", value: str = "1") -> None:
        self.name, self.header, self.value = f"stamp-{name}", name, value

    def on_send(self, record: Record) -> Record:
        return record.with_headers(record.headers.add(self.header, self.value))


class Acks:
    """Remember acknowledgements."""

    def __init__(self) -> None:
        self.seen: list[tuple[Record, RecordMetadata | None, BaseException | None]] = []
        self.closed = 0

    def on_acknowledgement(
        self, record: Record, metadata: RecordMetadata | None, error: BaseException | None
    ) -> None:
        self.seen.append((record, metadata, error))

    def close(self) -> None:
        self.closed += 1


class Drop:
    def on_send(self, record: Record) -> Any:
        return DROP


class Refuse:
    def on_send(self, record: Record) -> Record:
        if record.value == b"bad":
            raise InterceptorError("no")
        return record


class Held:
    """Release records of its own at the first flush."""

    def __init__(self, topic: str, *held: bytes) -> None:
        self._held = [Record(topic, value) for value in held]

    def on_send(self, record: Record) -> Record:
        return record

    def flush(self) -> list[Record]:
        held, self._held = self._held, []
        return held


class Halves:
    """Cut a value into as many pieces as it has bytes."""

    def on_send(self, record: Record) -> Any:
        pieces = [
            record.with_value(bytes([byte]), record.headers.add("n", str(i)))
            for i, byte in enumerate(record.value)
        ]
        return FanOut(len(pieces), lambda: iter(pieces))


def reports() -> tuple[list[Report], Callable[[KafkaError | None, Message], None]]:
    seen: list[Report] = []
    return seen, lambda error, message: seen.append((error, message))


def wire(connection: dict[str, Any], topic: str, count: int) -> list[Message]:
    """Read what really went to the topic."""
    consumer = confluent_kafka.Consumer({**connection, "group.id": "wire", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Message] = []
    deadline = time.monotonic() + 10
    while len(found) < count and time.monotonic() < deadline:
        found.extend(consumer.consume(count - len(found), 0.2))
    consumer.close()
    assert len(found) == count
    return found


class TestSendChain:
    def test_changes_what_goes_on_the_wire(
        self, make_producer: Callable[..., Producer], connection: dict[str, Any], topic: str
    ) -> None:
        producer = make_producer(Stamp("a"), Stamp("b"))
        producer.produce(topic, "value", "key", 0, headers={"own": "x"}, timestamp=1_700_000_000_000)
        assert producer.flush(10) == 0
        message = wire(connection, topic, 1)[0]
        assert message.headers() == [("own", b"x"), ("a", b"1"), ("b", b"1")]
        assert (message.key(), message.value()) == (b"key", b"value")

    def test_goes_on_with_the_last_good_record_after_a_skipped_failure(
        self, make_producer: Callable[..., Producer], connection: dict[str, Any], topic: str
    ) -> None:
        class Broken(Interceptor, frozen=True, kw_only=True):
            def on_send(self, record: Record) -> Record:
                raise ValueError("broken")

        producer = make_producer(Stamp("a"), Broken(on_error="skip"), Stamp("b"))
        producer.produce(topic, b"value")
        producer.flush(10)
        assert wire(connection, topic, 1)[0].headers() == [("a", b"1"), ("b", b"1")]

    def test_leaves_the_callers_list_alone(self, make_producer: Callable[..., Producer], topic: str) -> None:
        headers = [("own", b"x")]
        make_producer(Stamp()).produce(topic, b"value", headers=headers)
        assert headers == [("own", b"x")]

    @pytest.mark.parametrize(
        "headers",
        [(("a", b"1"),), [["a", b"1"]], {"a": "1"}, [("a", bytearray(b"1"))], [("a", memoryview(b"1"))]],
    )
    def test_takes_headers_in_every_form(
        self, make_producer: Callable[..., Producer], connection: dict[str, Any], topic: str, headers: Any
    ) -> None:
        producer = make_producer(Acks())
        producer.produce(topic, b"value", headers=headers)
        producer.flush(10)
        assert wire(connection, topic, 1)[0].headers() == [("a", b"1")]

    def test_refuses_a_bytes_name(self, make_producer: Callable[..., Producer], topic: str) -> None:
        acks = Acks()
        with pytest.raises(HeaderError):
            make_producer(acks).produce(topic, b"value", headers=[(b"a", b"1")])  # type: ignore[list-item]  # what is refused
        assert [type(error) for _, _, error in acks.seen] == [HeaderError]

    def test_refuses_an_object_that_nothing_serializes(
        self, make_producer: Callable[..., Producer], topic: str
    ) -> None:
        with pytest.raises(RecordError):
            make_producer(Stamp()).produce(topic, 5)

    def test_refuses_a_record_that_an_interceptor_holds_back(
        self, make_producer: Callable[..., Producer], topic: str
    ) -> None:
        class Hold:
            def on_send(self, record: Record) -> list[Record]:
                return []

        with pytest.raises(InterceptorError, match="holds the record back"):
            make_producer(Hold()).produce(topic, b"value")


class TestReports:
    def test_carry_the_applications_key_value_and_headers(
        self, make_producer: Callable[..., Producer], topic: str
    ) -> None:
        class Encode:
            def on_send(self, record: Record) -> Record:
                return record.replace(value=b"encoded", key=b"other", headers=record.headers.add("x", "y"))

        seen, report = reports()
        producer = make_producer(Encode())
        producer.produce(topic, "value", "key", headers=[("own", "1")], callback=report)
        producer.flush(10)
        ((error, message),) = seen
        assert error is None
        assert (message.key(), message.value(), message.headers()) == (b"key", b"value", [("own", b"1")])
        assert message.offset() == 0

    def test_without_a_callback_keep_nothing_of_the_applications_in_flight(
        self, make_producer: Callable[..., Producer], topic: str
    ) -> None:
        class Shrink:
            def on_send(self, record: Record) -> Record:
                return record.with_value(b"small").with_local("mine", 1)

        acks, value = Acks(), bytes(100_000)
        producer = make_producer(Shrink(), acks)
        before = sys.getrefcount(value)
        producer.produce(topic, value)
        producer.produce_many(topic, [{"value": value}])
        assert sys.getrefcount(value) == before
        producer.flush(10)
        assert [(record.value, error) for record, _, error in acks.seen] == [(b"small", None)] * 2

    def test_give_none_for_no_headers(self, make_producer: Callable[..., Producer], topic: str) -> None:
        seen, report = reports()
        producer = make_producer(Stamp())
        producer.produce(topic, b"value", on_delivery=report)
        producer.flush(10)
        assert seen[0][1].headers() is None

    @pytest.mark.parametrize("name", ["on_delivery", "dr_cb"])
    def test_go_to_the_callback_of_the_configuration(
        self, connection: dict[str, Any], topic: str, name: str
    ) -> None:
        seen, report = reports()
        own, mine = reports()
        with Producer({**connection, name: report}, chain=Chain([Stamp()])) as producer:
            producer.produce(topic, b"default")
            producer.produce(topic, b"own", callback=mine)
        assert [message.value() for _, message in seen] == [b"default"]
        assert [message.value() for _, message in own] == [b"own"]

    def test_of_successes_are_left_out_where_only_errors_are_wanted(
        self, make_producer: Callable[..., Producer], topic: str
    ) -> None:
        acks = Acks()
        seen, report = reports()
        producer = make_producer(acks, delivery_report_only_error="true")
        producer.produce(topic, b"value", callback=report)
        producer.flush(10)
        assert seen == []
        assert len(acks.seen) == 1

    def test_that_raise_do_not_stop_the_others(
        self, make_producer: Callable[..., Producer], topic: str
    ) -> None:
        seen: list[Any] = []

        def report(error: KafkaError | None, message: Message) -> None:
            seen.append(message.value())
            raise ValueError("boom")

        producer = make_producer(Stamp())
        for value in (b"a", b"b"):
            producer.produce(topic, value, callback=report)
        with pytest.raises(ValueError, match="boom"):
            producer.flush(10)
        producer.flush(10)
        assert sorted(seen) == [b"a", b"b"]

    def test_of_a_dropped_record_is_queued_and_counted(
        self, make_producer: Callable[..., Producer], topic: str
    ) -> None:
        seen, report = reports()
        producer = make_producer(Drop())
        producer.produce(topic, "value", "key", headers={"own": "1"}, callback=report)
        assert (len(producer), seen) == (1, [])
        assert producer.poll(0) == 1
        ((error, message),) = seen
        assert error is not None
        assert error.code() == KafkaError.POLICY_VIOLATION
        assert message.error() == error
        assert (message.topic(), message.key(), message.value()) == (topic, b"key", b"value")
        assert message.headers() == [("own", b"1")]
        assert len(producer) == 0

    def test_of_a_dropped_record_comes_out_of_flush(
        self, make_producer: Callable[..., Producer], topic: str
    ) -> None:
        seen, report = reports()
        producer = make_producer(Drop())
        producer.produce(topic, b"value", callback=report)
        assert producer.flush(10) == 0
        assert len(seen) == 1

    def test_may_produce_again(self, make_producer: Callable[..., Producer], topic: str) -> None:
        seen: list[Any] = []
        producer = make_producer(Halves(), Acks())

        def report(error: KafkaError | None, message: Message) -> None:
            seen.append(message.value())
            if len(seen) == 1:
                producer.produce(topic, b"second", callback=report)
                assert producer.poll(1) == 0  # confluent-kafka would abort the process

        producer.produce(topic, b"first", callback=report)
        producer.flush(10)
        producer.flush(10)
        assert seen == [b"first", b"second"]


class TestFanOut:
    def test_gives_one_report_after_the_last_slice(
        self, make_producer: Callable[..., Producer], connection: dict[str, Any], topic: str
    ) -> None:
        acks = Acks()
        seen, report = reports()
        producer = make_producer(Halves(), acks)
        producer.produce(topic, b"abc", b"key", 0, headers={"own": "1"}, callback=report)
        producer.flush(10)
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
        producer.flush(5)
        ((error, message),) = seen
        assert error is not None
        assert error.code() == KafkaError._PURGE_QUEUE
        assert message.error().code() == KafkaError._PURGE_QUEUE
        producer.close()

    def test_is_refused_before_the_first_slice_where_the_queue_could_never_hold_it(
        self, make_producer: Callable[..., Producer], topic: str
    ) -> None:
        acks = Acks()
        producer = make_producer(Halves(), acks, queue_buffering_max_messages=3)
        with pytest.raises(BufferError, match="4 slices"):
            producer.produce(topic, b"abcd")
        assert len(producer) == 0
        assert [type(error) for _, _, error in acks.seen] == [BufferError]

    def test_waits_for_room(self, make_producer: Callable[..., Producer], topic: str) -> None:
        seen, report = reports()
        producer = make_producer(Halves(), queue_buffering_max_messages=3)
        for value in (b"abc", b"def", b"ghi"):
            producer.produce(topic, value, callback=report)
        producer.flush(10)
        assert sorted(message.value() for _, message in seen) == [b"abc", b"def", b"ghi"]
        assert producer.stats()["client"]["waits_for_room"] > 0

    def test_does_not_wait_for_room_inside_a_callback(
        self, make_producer: Callable[..., Producer], topic: str
    ) -> None:
        heard: list[str] = []
        producer = make_producer(Halves(), queue_buffering_max_messages=3)

        def report(error: KafkaError | None, message: Message) -> None:
            for value in (b"def", b"ghi"):
                try:
                    producer.produce(topic, value)
                except BufferError:
                    heard.append("full")

        producer.produce(topic, b"abc", callback=report)
        producer.flush(10)
        # How many of them fit is librdkafka's to count, and versions differ.
        assert set(heard) == {"full"}

    def test_fails_as_one_where_a_slice_is_refused(
        self, make_producer: Callable[..., Producer], topic: str
    ) -> None:
        class Uneven:
            def on_send(self, record: Record) -> list[Record]:
                return [record, record.replace(value=b"x" * 2_000_000)]

        acks = Acks()
        seen, report = reports()
        producer = make_producer(Uneven(), acks)
        with pytest.raises(KafkaException):
            producer.produce(topic, b"value", callback=report)
        producer.flush(10)
        assert seen == []
        assert [type(error) for _, _, error in acks.seen] == [KafkaException]

    def test_that_turns_out_empty_is_a_drop(self, make_producer: Callable[..., Producer], topic: str) -> None:
        class Nothing:
            def on_send(self, record: Record) -> FanOut:
                return FanOut(1, lambda: iter(()))

        seen, report = reports()
        producer = make_producer(Nothing())
        producer.produce(topic, b"value", callback=report)
        producer.flush(10)
        assert [error.code() for error, _ in seen if error] == [KafkaError.POLICY_VIOLATION]

    def test_fails_as_one_where_a_slice_is_dropped_further_on(
        self, make_producer: Callable[..., Producer], topic: str
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
        producer.flush(10)
        assert seen == []
        assert [type(error) for _, _, error in acks.seen] == [InterceptorError]

    def test_is_a_drop_where_all_slices_are_dropped(
        self, make_producer: Callable[..., Producer], topic: str
    ) -> None:
        seen, report = reports()
        producer = make_producer(Slice(max_bytes=1_000), Drop())
        producer.produce(topic, b"x" * 3_000, callback=report)
        producer.flush(10)
        assert [error.code() for error, _ in seen if error] == [KafkaError.POLICY_VIOLATION]


class TestFlush:
    def test_sends_what_interceptors_held_back(
        self, make_producer: Callable[..., Producer], connection: dict[str, Any], topic: str
    ) -> None:
        make_producer(Held(topic, b"a", b"b"), Refuse()).flush(10)
        assert [message.value() for message in wire(connection, topic, 2)] == [b"a", b"b"]

    def test_raises_for_what_is_refused_and_sends_the_rest(
        self, make_producer: Callable[..., Producer], connection: dict[str, Any], topic: str
    ) -> None:
        producer = make_producer(Held(topic, b"bad", b"b"), Refuse())
        with pytest.raises(InterceptorError, match="no"):
            producer.flush(10)
        assert producer.flush(10) == 0
        assert [message.value() for message in wire(connection, topic, 1)] == [b"b"]

    def test_passes_over_what_is_dropped(self, make_producer: Callable[..., Producer], topic: str) -> None:
        assert make_producer(Held(topic, b"a"), Drop()).flush(10) == 0


class TestAcknowledgements:
    def only(self, acks: Acks) -> tuple[Any, Any, Any]:
        assert len(acks.seen) == 1
        return acks.seen[0]

    def test_of_a_delivered_record(self, make_producer: Callable[..., Producer], topic: str) -> None:
        acks = Acks()
        producer = make_producer(Stamp("a"), acks)
        producer.produce(topic, b"value", partition=0)
        producer.flush(10)
        record, metadata, error = self.only(acks)
        assert error is None
        assert (metadata.topic, metadata.partition, metadata.offset) == (topic, 0, 0)
        assert metadata.timestamp_ms is not None
        assert record.headers == (("a", b"1"),)

    def test_comes_before_the_callback(self, make_producer: Callable[..., Producer], topic: str) -> None:
        order: list[str] = []

        class First:
            def on_acknowledgement(self, *arguments: Any) -> None:
                order.append("interceptor")

        producer = make_producer(First())
        producer.produce(topic, b"value", callback=lambda *_: order.append("application"))
        producer.flush(10)
        assert order == ["interceptor", "application"]

    def test_of_a_full_queue(self, make_producer: Callable[..., Producer], topic: str) -> None:
        acks = Acks()
        producer = make_producer(acks, queue_buffering_max_messages=1)
        producer.produce(topic, b"a")
        with pytest.raises(BufferError):
            producer.produce(topic, b"b")
        assert isinstance(self.only(acks)[2], BufferError)

    def test_of_a_record_that_is_too_large(self, make_producer: Callable[..., Producer], topic: str) -> None:
        acks = Acks()
        with pytest.raises(KafkaException):
            make_producer(acks).produce(topic, b"x" * 2_000_000)
        assert self.only(acks)[2].args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE

    def test_of_a_bad_state(self, make_producer: Callable[..., Producer], topic: str) -> None:
        acks = Acks()
        with pytest.raises(KafkaException):
            make_producer(acks, transactional_id="bad-state").produce(topic, b"value")
        assert self.only(acks)[2].args[0].code() == KafkaError._STATE

    def test_of_a_purged_record(self, connection: dict[str, Any], topic: str) -> None:
        acks = Acks()
        with Producer({**connection, "bootstrap.servers": "127.0.0.1:1"}, chain=Chain([acks])) as producer:
            producer.produce(topic, b"value")
            producer.purge()
        assert self.only(acks)[2].args[0].code() == KafkaError._PURGE_QUEUE

    def test_of_an_aborted_record(
        self, make_producer: Callable[..., Producer], topic: str, unique_topic: Callable[[str], str]
    ) -> None:
        acks = Acks()
        producer = make_producer(acks, transactional_id=unique_topic("tx"))
        producer.init_transactions(10)
        producer.begin_transaction()
        producer.produce(topic, b"value")
        producer.abort_transaction(10)
        assert self.only(acks)[2].args[0].code() == KafkaError._PURGE_QUEUE

    def test_of_a_committed_record(
        self, make_producer: Callable[..., Producer], topic: str, unique_topic: Callable[[str], str]
    ) -> None:
        acks = Acks()
        producer = make_producer(acks, transactional_id=unique_topic("tx"))
        producer.init_transactions(10)
        producer.begin_transaction()
        producer.produce(topic, b"value")
        producer.commit_transaction(10)
        assert self.only(acks)[2] is None

    def test_of_a_transaction_comes_before_its_end_is_told(
        self, make_producer: Callable[..., Producer], topic: str, unique_topic: Callable[[str], str]
    ) -> None:
        heard: list[str] = []

        class Hears:
            def on_acknowledgement(
                self, record: Record, metadata: RecordMetadata | None, error: BaseException | None
            ) -> None:
                heard.append("delivered" if error is None else "purged")

            def on_operation(self, operation: Operation) -> None:
                assert operation.began_ns <= operation.ended_ns
                heard.append(operation.name if operation.error is None else f"no {operation.name}")

            def tick(self, now_ms: int) -> None:
                heard.append("tick")

        producer = make_producer(Hears(), transactional_id=unique_topic("tx"))
        producer.init_transactions(10)
        for ends in (producer.commit_transaction, producer.abort_transaction):
            producer.begin_transaction()
            producer.produce(topic, b"value")
            ends(10)
        with pytest.raises(KafkaException, match="_STATE"):
            producer.commit_transaction(10)
        assert heard == [
            *("begin_transaction", "delivered", "commit_transaction", "tick"),
            *("begin_transaction", "purged", "abort_transaction", "tick"),
            "no commit_transaction",
        ]

    @pytest.mark.parametrize("name", ["commit_transaction", "abort_transaction"])
    def test_cannot_end_a_transaction(
        self,
        make_producer: Callable[..., Producer],
        topic: str,
        unique_topic: Callable[[str], str],
        name: str,
    ) -> None:
        producer = make_producer(Stamp(), transactional_id=unique_topic("tx"))
        producer.init_transactions(10)
        producer.begin_transaction()
        raised: list[Exception] = []

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            try:
                getattr(producer, name)(10)
            except KafkaException as failure:
                raised.append(failure)

        producer.produce(topic, b"value", on_delivery=on_delivery)
        assert producer.flush(10) == 0
        assert [failure.args[0].code() for failure in raised] == [KafkaError._STATE]
        producer.commit_transaction(10)

    def test_of_a_dropped_record(self, make_producer: Callable[..., Producer], topic: str) -> None:
        acks = Acks()
        producer = make_producer(Drop(), acks)
        producer.produce(topic, b"value")
        producer.flush(10)
        assert self.only(acks)[2].args[0].code() == KafkaError.POLICY_VIOLATION

    def test_of_a_refused_record_has_the_last_good_one(
        self, make_producer: Callable[..., Producer], topic: str
    ) -> None:
        acks = Acks()
        with pytest.raises(InterceptorError):
            make_producer(Stamp("a"), Refuse(), acks).produce(topic, b"bad")
        record, _, error = self.only(acks)
        assert isinstance(error, InterceptorError)
        assert record.headers == (("a", b"1"),)

    def test_of_a_record_with_a_reserved_header(
        self, make_producer: Callable[..., Producer], topic: str
    ) -> None:
        acks = Acks()
        with pytest.raises(HeaderwareError):
            make_producer(acks).produce(topic, b"value", headers={"hw.sig": b"forged"})
        assert isinstance(self.only(acks)[2], HeaderError)


class TestMany:
    def test_keeps_headers_and_timestamps(
        self, make_producer: Callable[..., Producer], connection: dict[str, Any], topic: str
    ) -> None:
        producer = make_producer(Stamp("a"))
        records: list[Any] = [
            {
                "value": b"1",
                "key": b"k",
                "headers": {"own": "x"},
                "timestamp": 1_700_000_000_000,
                "partition": 0,
            },
            headerware.Record("elsewhere", b"2", partition=0),
        ]
        assert producer.produce_many(topic, iter(records)) == [None, None]
        producer.flush(10)
        first, second = wire(connection, topic, 2)
        assert (first.key(), first.headers()) == (b"k", [("own", b"x"), ("a", b"1")])
        assert (second.value(), second.headers()) == (b"2", [("a", b"1")])

    def test_lets_no_bad_record_take_its_neighbours_along(
        self, make_producer: Callable[..., Producer], connection: dict[str, Any], topic: str
    ) -> None:
        acks = Acks()
        producer = make_producer(Refuse(), acks)
        records: list[Any] = [
            {"value": b"1"},
            {"value": b"bad"},
            {"value": 5},
            {"nope": 1},
            {"value": b"x" * 2_000_000},
            7,
            {"value": b"2"},
        ]
        errors = producer.produce_many(topic, records)
        producer.flush(10)
        assert [type(error) for error in errors] == [
            type(None),
            InterceptorError,
            RecordError,
            TypeError,
            KafkaException,
            TypeError,
            type(None),
        ]
        assert [message.value() for message in wire(connection, topic, 2)] == [b"1", b"2"]
        assert len(acks.seen) == len(records)

    def test_reports_to_each_record_of_its_own(
        self, make_producer: Callable[..., Producer], topic: str
    ) -> None:
        seen, report = reports()
        own, mine = reports()
        producer = make_producer(Stamp())
        producer.produce_many(
            topic, [{"value": b"1"}, {"value": b"2", "on_delivery": mine}], on_delivery=report
        )
        producer.flush(10)
        assert [message.value() for _, message in seen] == [b"1"]
        assert [message.value() for _, message in own] == [b"2"]

    def test_uses_batch_hooks(self, make_producer: Callable[..., Producer], topic: str) -> None:
        sizes: list[int] = []

        class Batch:
            def on_send_batch(self, records: list[Record]) -> list[Record]:
                sizes.append(len(records))
                return records

        make_producer(Batch()).produce_many(topic, [{"value": b"1"}] * 3)
        assert sizes == [3]

    def test_without_a_chain_keeps_headers_too(
        self, make_producer: Callable[..., Producer], connection: dict[str, Any], topic: str
    ) -> None:
        producer = make_producer()
        errors = producer.produce_many(topic, [{"value": b"1", "headers": {"a": "1"}}, {"value": 5}])
        assert [type(error) for error in errors] == [type(None), TypeError]
        producer.flush(10)
        assert wire(connection, topic, 1)[0].headers() == [("a", b"1")]


class TestProduceBatch:
    def test_keeps_headers_and_counts(
        self, make_producer: Callable[..., Producer], connection: dict[str, Any], topic: str
    ) -> None:
        seen, report = reports()
        producer = make_producer(Stamp("a"))
        batch: list[dict[str, Any]] = [
            {"value": b"1", "headers": [("own", b"x")]},
            {"value": b"y" * 2_000_000},
            {"value": "2", "timestamp": 5},
        ]
        assert producer.produce_batch(topic, batch, 0, on_delivery=report) == 2
        producer.flush(10)
        assert batch[1]["_error"].code() == KafkaError.MSG_SIZE_TOO_LARGE
        assert "_error" not in batch[0]
        assert [message.headers() for message in wire(connection, topic, 2)] == [
            [("own", b"x"), ("a", b"1")],
            [("a", b"1")],
        ]
        assert len(seen) == 2

    @pytest.mark.parametrize("messages", [(), [5], [{"value": b"1", "partition": "0"}]])
    def test_refuses_what_confluent_kafka_refuses(
        self, make_producer: Callable[..., Producer], topic: str, messages: Any
    ) -> None:
        with pytest.raises(TypeError):
            make_producer(Stamp()).produce_batch(topic, messages)


class TestLife:
    def test_closes_interceptors_once(self, make_producer: Callable[..., Producer]) -> None:
        acks = Acks()
        producer = make_producer(acks)
        assert producer.close() is True
        assert producer.close() is True
        assert acks.closed == 1

    def test_closes_as_a_context_manager(self, make_producer: Callable[..., Producer], topic: str) -> None:
        acks = Acks()
        with make_producer(acks) as producer:
            producer.produce(topic, b"value")
        assert (acks.closed, len(acks.seen)) == (1, 1)
        with pytest.raises(RuntimeError, match="closed"):
            producer.produce(topic, b"value")

    def test_closes_everything_once_when_the_constructor_throws(self) -> None:
        first, second = Acks(), Acks()
        with pytest.raises(KafkaException):
            Producer({"no.such.property": 1}, chain=Chain([first, second]))
        assert (first.closed, second.closed) == (1, 1)

    def test_closes_those_that_were_opened_when_a_later_one_cannot_open(
        self, connection: dict[str, Any]
    ) -> None:
        class Broken(Interceptor, frozen=True, kw_only=True):
            def open(self, context: Any) -> Any:
                raise ValueError("broken")

            def on_send(self, record: Record) -> Record:
                return record

        acks = Acks()
        with pytest.raises(ValueError, match="broken"):
            Producer(connection, chain=Chain([acks, Broken()]))
        assert acks.closed == 1

    def test_goes_without_the_cycle_collector(self, connection: dict[str, Any], topic: str) -> None:
        acks = Acks()
        gc.disable()
        try:
            producer = Producer(connection, chain=Chain([Halves(), acks]))
            producer.produce(topic, b"ab", callback=lambda *_: None)
            producer.flush(10)
            reference = weakref.ref(producer)
            del producer
            assert reference() is None
        finally:
            gc.enable()
        assert acks.closed == 1

    def test_learns_the_clusters_id_without_blocking(self, connection: dict[str, Any], topic: str) -> None:
        class Cluster(Interceptor, frozen=True, kw_only=True):
            def open(self, context: Any) -> Any:
                ports.append(context)
                return self

            def on_send(self, record: Record) -> Record:
                return record

        ports: list[Any] = []
        with Producer(connection, chain=Chain([Cluster()])):
            deadline = time.monotonic() + 10
            while ports[0].cluster_id() is None:
                assert time.monotonic() < deadline
        unreachable = Producer({**connection, "bootstrap.servers": "127.0.0.1:1"}, chain=Chain([Cluster()]))
        started = time.monotonic()
        assert ports[1].cluster_id() is None
        assert time.monotonic() - started < 0.1
        del unreachable
        assert ports[1].cluster_id() is None

    def test_counts(self, make_producer: Callable[..., Producer], topic: str) -> None:
        producer = make_producer(Stamp("a"))
        producer.produce(topic, b"value")
        stats = producer.stats()
        assert stats["stamp-a"]["sent"] == 1
        assert stats["client"]["queued"] == 1


class TestDeadLetters:
    def test_are_published_past_the_chain(
        self, make_producer: Callable[..., Producer], connection: dict[str, Any], topic: str
    ) -> None:
        class Careful(Interceptor, frozen=True, kw_only=True):
            def on_send(self, record: Record) -> Record:
                raise InterceptorError("no")

        acks = Acks()
        seen, report = reports()
        producer = make_producer(Careful(on_error="dead_letter", dead_letter_topic=f"{topic}.dead"), acks)
        producer.produce(topic, b"value", headers={"own": "1"}, callback=report)
        producer.flush(10)
        assert [error.code() for error, _ in seen if error] == [KafkaError.POLICY_VIOLATION]
        assert len(acks.seen) == 1
        client = confluent_kafka.Consumer({**connection, "group.id": "g", "auto.offset.reset": "earliest"})
        client.assign([TopicPartition(f"{topic}.dead", partition, 0) for partition in range(4)])
        dead_letter = client.poll(10)
        client.close()
        assert dead_letter is not None
        assert dead_letter.value() == b"value"
        assert ("own", b"1") in (dead_letter.headers() or [])

    def test_that_are_too_large_get_a_shorter_reason_or_are_raised(
        self, make_producer: Callable[..., Producer], topic: str
    ) -> None:
        class Careful(Interceptor, frozen=True, kw_only=True):
            def on_send(self, record: Record) -> Record:
                raise InterceptorError("no")

        producer = make_producer(
            Careful(name="careful", on_error="dead_letter", dead_letter_topic=f"{topic}.dead"),
            message_max_bytes=2_000,
        )
        producer.produce(topic, bytes(1_400))
        assert producer.stats()["careful"]["dead_lettered"] == 1
        with pytest.raises(DeadLetterError, match="MSG_SIZE_TOO_LARGE") as raised:
            producer.produce(topic, bytes(2_001))
        assert raised.value.unfit, "the application still has the record, so no stub stands for it"


class Empty:
    """Callable and empty, and so false."""

    def __init__(self) -> None:
        self.reports: list[Any] = []

    def __len__(self) -> int:
        return 0

    def __call__(self, *report: Any) -> None:
        self.reports.append(report)


class TestWhatIsFalse:
    def test_is_called_if_it_is_a_callback(self, make_producer: Callable[..., Producer], topic: str) -> None:
        producer, given = make_producer(Stamp()), [Empty() for _ in range(6)]
        producer.produce(topic, callback=given[0])
        producer.produce(topic, on_delivery=given[1])
        producer.produce_many(topic, [{"on_delivery": given[2]}])
        producer.produce_many(topic, [{}], on_delivery=given[3])
        producer.produce_batch(topic, [{"callback": given[4]}])
        producer.produce_batch(topic, [{}], callback=given[5])
        producer.flush(10)
        assert [len(callback.reports) for callback in given] == [1] * 6

    @pytest.mark.parametrize("headers", [0, False, 0.0, "", b"", bytearray()])
    def test_is_refused_if_it_is_no_headers(
        self, make_producer: Callable[..., Producer], topic: str, headers: Any
    ) -> None:
        acks = Acks()
        producer = make_producer(Stamp(), acks)
        with pytest.raises(HeaderError):
            producer.produce(topic, headers=headers)
        assert isinstance(producer.produce_many(topic, [{"headers": headers}])[0], HeaderError)
        assert [type(error) for _, _, error in acks.seen] == [HeaderError, HeaderError]

    @pytest.mark.parametrize("callback", [0, "", 5])
    def test_is_refused_if_it_is_no_callback(
        self, make_producer: Callable[..., Producer], topic: str, callback: Any
    ) -> None:
        acks = Acks()
        producer = make_producer(Stamp(), acks)
        with pytest.raises(TypeError, match="callable"):
            producer.produce(topic, callback=callback)
        assert len(acks.seen) == 1


class TestATopicThatIsNoText:
    @pytest.mark.parametrize("topic", [5, None, b"orders"])
    def test_is_refused_and_acknowledged_once(
        self, make_producer: Callable[..., Producer], topic: Any
    ) -> None:
        acks = Acks()
        producer = make_producer(Stamp(), acks)
        with pytest.raises(RecordError, match="topic"):
            producer.produce(topic, b"value")
        with pytest.raises(HeaderError):
            producer.produce(topic, headers=5)  # type: ignore[arg-type]
        assert isinstance(producer.produce_many(topic, [{}])[0], RecordError)
        with pytest.raises(TypeError):
            producer.produce_batch(topic, [{}])
        assert [record.topic for record, _, _ in acks.seen] == ["", "", ""]


class TestNamesOfHeaders:
    @pytest.mark.parametrize("name", ["a\0b", "\ud800", "~C", "~D", "~E", "~F", "~H"])
    def test_that_nobody_could_read_are_refused(
        self, make_producer: Callable[..., Producer], topic: str, name: str
    ) -> None:
        producer = make_producer(Stamp())
        with pytest.raises(HeaderwareError, match="header"):
            producer.produce(topic, headers={name: b"1"})
        errors = producer.produce_many(topic, [{"headers": [(name, b"1")]}, {}])
        assert isinstance(errors[0], HeaderwareError)
        assert errors[1] is None
        assert producer.produce_batch(topic, [{"headers": {name: b"1"}}]) == 0

    @pytest.mark.parametrize("name", ["a\0b", "\ud800", "~C"])
    def test_that_a_hook_sets_are_refused(
        self, make_producer: Callable[..., Producer], topic: str, name: str
    ) -> None:
        with pytest.raises(InterceptorError, match="header"):
            make_producer(Stamp(name)).produce(topic, b"value")

    def test_that_compact_escapes_pass(self, make_producer: Callable[..., Producer], topic: str) -> None:
        _, report = seen = reports()
        producer = make_producer(Compact(form="keys"))
        producer.produce(topic, headers={"~C": b"1"}, callback=report)
        producer.flush(10)
        assert seen[0][0][0] is None


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
            producer.flush(10)
        errors = [error for _, _, error in acks.seen]
        assert len(errors) == len({id(record) for record, _, _ in acks.seen}) == len(seen) + 1
        assert None not in errors

    def test_fail_with_the_first_of_them(self) -> None:
        acks, (seen, report) = Acks(), reports()
        conf = {**self.DOWN, "queue.buffering.max.messages": 8, "delivery.timeout.ms": 100}
        with Producer(conf, chain=Chain([Slice(max_bytes=1_000), acks])) as producer:
            producer._room_timeout_s = 60
            producer.produce("orders", b"." * 3_000, partition=0, callback=report)
            with pytest.raises(KafkaException):
                producer.produce("orders", b"." * 6_000, partition=0, callback=report)
            producer.flush(10)
        assert len(acks.seen) == 2
        assert len(seen) == 1


class TestRaw:
    def test_is_of_the_class_that_was_called(self, connection: dict[str, Any]) -> None:
        class Own(Producer):
            pass

        for kind in (Producer, Own):
            producer = kind(connection, chain=Chain())
            assert type(producer) is kind
            producer.close()

    def test_leaves_a_subclasss_own_methods_in_front(self, connection: dict[str, Any], topic: str) -> None:
        class Loud(Producer):
            def produce(self, *args: Any, **kwargs: Any) -> None:
                heard.append(args)
                super().produce(*args, **kwargs)

        heard: list[Any] = []
        seen, report = reports()
        with Loud(connection, chain=Chain()) as producer:
            producer.produce(topic, b"value", callback=report)
        assert len(heard) == len(seen) == 1
        assert type(producer) is Loud

    def test_is_what_a_disabled_client_becomes(
        self, connection: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HEADERWARE_DISABLED", "1")
        producer = Producer(connection, chain=Chain([Stamp()]))
        assert len(producer.chain) == 0
        assert type(producer) is Producer
        assert producer.stats() == {"client": {"queued": 0}}
        assert repr(producer).endswith("Chain()>")
        producer.close()

    def test_goes_without_the_cycle_collector(self, connection: dict[str, Any], topic: str) -> None:
        gc.disable()
        try:
            producer = Producer(connection, chain=Chain())
            producer.produce(topic, b"value")
            producer.flush(10)
            reference = weakref.ref(producer)
            del producer
            assert reference() is None
        finally:
            gc.enable()


class TestAClientThatWasNeverInitialised:
    """As OpenTelemetry's proxies are, which hand every call on to another client."""

    def test_answers_as_confluent_kafkas_does(
        self, make_producer: Callable[..., Producer], topic: str
    ) -> None:
        class Proxied(Producer):
            def __init__(self, inner: Producer) -> None:
                self.inner = inner

            def flush(self, timeout: float = -1) -> int:
                return self.inner.flush(timeout)

        proxy = Proxied(make_producer(Stamp()))
        assert proxy.flush(1) == 0
        assert len(proxy) == 0
        assert "Chain()" in repr(proxy)
        assert [type(error) for error in proxy.produce_many(topic, [{}])] == [RuntimeError]
        calls: list[Callable[[], Any]] = [
            partial(proxy.produce, topic),
            partial(proxy.produce_batch, topic, [{}]),
            partial(proxy.poll, 0),
            partial(proxy.commit_transaction, 0),
            partial(proxy.abort_transaction, 0),
            partial(proxy.send_offsets_to_transaction, [], b"group"),
        ]
        for call in calls:
            with pytest.raises(RuntimeError, match="closed"):
                call()
        assert proxy.close() is True
