"""What a producer reports of its records, to callbacks and to interceptors."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from headerware.clients import Producer
from headerware.core.batch import Batch
from headerware.core.chain import Chain
from headerware.core.errors import HeaderError, HeaderwareError, InterceptorError
from headerware.core.record import Operation, Record
from tests.unit.clients.sending import Acks, Drop, Halves, Refuse, Stamp, reports

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Message

    from headerware.core.record import RecordMetadata
    from tests.unit.clients.conftest import MakeProducer


SECRET = b"hunter2"
NOWHERE = {"bootstrap.servers": "localhost:1", "message.timeout.ms": 50, "linger.ms": 0, "log_level": 0}
"""The settings of a producer that cannot deliver."""


class TestReports:
    def test_carry_the_applications_key_value_and_headers(
        self, make_producer: MakeProducer, topic: str
    ) -> None:
        class Encode:
            def on_send(self, record: Record) -> Record:
                return record.replace(value=b"encoded", key=b"other", headers=record.headers.add("x", "y"))

        seen, report = reports()
        producer = make_producer(Encode())
        producer.produce(topic, "value", "key", headers=[("own", "1")], callback=report)
        producer.flush(60)
        ((error, message),) = seen
        assert error is None
        assert (message.key(), message.value(), message.headers()) == (b"key", b"value", [("own", b"1")])
        assert message.offset() == 0

    def test_without_a_callback_keep_nothing_of_the_applications_in_flight(
        self, make_producer: MakeProducer, topic: str
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
        producer.flush(60)
        assert [(record.value, error) for record, _, error in acks.seen] == [(b"small", None)] * 2

    def test_give_none_for_no_headers(self, make_producer: MakeProducer, topic: str) -> None:
        seen, report = reports()
        producer = make_producer(Stamp())
        producer.produce(topic, b"value", on_delivery=report)
        producer.flush(60)
        assert seen[0][1].headers() is None

    @pytest.mark.parametrize("step", [Stamp(), Acks()])
    def test_of_failures_that_nobody_hears_of_are_logged_once_and_counted(
        self, step: Any, topic: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        seen, report = reports()
        with Producer(NOWHERE, chain=Chain([step])) as producer:
            producer.produce(topic, SECRET, on_delivery=report)
            assert producer.flush(60) == 0
            assert not caplog.messages
            producer.produce(topic, SECRET)
            assert producer.flush(60) == 0
            first, told = caplog.messages
            producer.produce_many(topic, [Record(topic, SECRET)] * 2)
            producer.produce_many(topic, Batch(topic, [SECRET]))
        assert first.startswith(f"a record for topic {topic!r} was not delivered, and no callback")
        assert str(seen[-1][0]) in first
        assert (
            "; no broker took it in time: look at bootstrap.servers, the network, and the security" in first
        )
        assert told == "1 record was not delivered, and no callback (on_delivery) was told"
        assert caplog.messages[2:] == ["4 records were not delivered, and no callback (on_delivery) was told"]
        assert SECRET.decode() not in caplog.text

    def test_close_says_that_it_waits(
        self, topic: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("headerware.clients.producer.SILENT_S", 0.1)
        with Producer({**NOWHERE, "message.timeout.ms": 1_000}, chain=Chain([Stamp()])) as producer:
            producer.produce(topic, b"value")
        waits, _, told = caplog.messages
        assert waits == "close() waits up to 1 s for records to be delivered to localhost:1"
        assert told == "1 record was not delivered, and no callback (on_delivery) was told"

    def test_of_failures_on_purpose_are_not_logged(
        self, connection: dict[str, Any], topic: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        with Producer({**connection, "linger.ms": 60_000}, chain=Chain([Stamp()])) as producer:
            producer.produce(topic, b"value")
            producer.purge()
        with Producer(connection, chain=Chain([Drop()])) as producer:
            producer.produce(topic, b"value")
        assert not caplog.messages

    def test_raise_the_callbacks_own_error_with_its_traceback(
        self, make_producer: MakeProducer, topic: str
    ) -> None:
        def report(_error: Any, message: Any) -> None:
            message.value()["id"]  # C raises this TypeError

        producer = make_producer(Stamp())
        producer.produce(topic, b"value", callback=report)
        with pytest.raises(TypeError, match="indices must be integers") as raised:
            producer.flush(60)
        assert raised.traceback[-1].name == "report"

    def test_refuse_a_coroutine_function_as_callback(self, make_producer: MakeProducer, topic: str) -> None:
        async def report(*_: Any) -> None:
            raise AssertionError

        producer = make_producer(Stamp())
        for send in (
            lambda: producer.produce(topic, b"value", callback=report),
            lambda: producer.produce_many(topic, Batch(topic, [b"value"]), on_delivery=report),
        ):
            send()
            with pytest.raises(TypeError, match=r"found the coroutine function .*report"):
                producer.flush(60)

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
        self, make_producer: MakeProducer, topic: str
    ) -> None:
        acks = Acks()
        seen, report = reports()
        producer = make_producer(acks, delivery_report_only_error="true")
        producer.produce(topic, b"value", callback=report)
        producer.flush(60)
        assert seen == []
        assert len(acks.seen) == 1

    def test_that_raise_do_not_stop_the_others(self, make_producer: MakeProducer, topic: str) -> None:
        seen: list[Any] = []

        def report(error: KafkaError | None, message: Message) -> None:
            seen.append(message.value())
            raise ValueError("boom")

        producer = make_producer(Stamp())
        for value in (b"a", b"b"):
            producer.produce(topic, value, callback=report)
        with pytest.raises(ValueError, match="boom"):
            producer.flush(60)
        producer.flush(60)
        assert sorted(seen) == [b"a", b"b"]

    def test_of_a_dropped_record_is_queued_and_counted(self, make_producer: MakeProducer, topic: str) -> None:
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

    def test_of_a_dropped_record_comes_out_of_flush(self, make_producer: MakeProducer, topic: str) -> None:
        seen, report = reports()
        producer = make_producer(Drop())
        producer.produce(topic, b"value", callback=report)
        assert producer.flush(60) == 0
        assert len(seen) == 1

    def test_may_produce_again(self, make_producer: MakeProducer, topic: str) -> None:
        seen: list[Any] = []
        producer = make_producer(Halves(), Acks())

        def report(error: KafkaError | None, message: Message) -> None:
            seen.append(message.value())
            if len(seen) == 1:
                producer.produce(topic, b"second", callback=report)
                assert producer.poll(1) == 0  # confluent-kafka would abort the process

        producer.produce(topic, b"first", callback=report)
        producer.flush(60)
        producer.flush(60)
        assert seen == [b"first", b"second"]


class TestAcknowledgements:
    def only(self, acks: Acks) -> tuple[Any, Any, Any]:
        assert len(acks.seen) == 1
        return acks.seen[0]

    def test_of_a_delivered_record(self, make_producer: MakeProducer, topic: str) -> None:
        acks = Acks()
        producer = make_producer(Stamp("a"), acks)
        producer.produce(topic, b"value", partition=0)
        producer.flush(60)
        record, metadata, error = self.only(acks)
        assert error is None
        assert (metadata.topic, metadata.partition, metadata.offset) == (topic, 0, 0)
        assert metadata.timestamp_ms is not None
        assert record.headers == (("a", b"1"),)

    def test_comes_before_the_callback(self, make_producer: MakeProducer, topic: str) -> None:
        order: list[str] = []

        class First:
            def on_acknowledgement(self, *arguments: Any) -> None:
                order.append("interceptor")

        producer = make_producer(First())
        producer.produce(topic, b"value", callback=lambda *_: order.append("application"))
        producer.flush(60)
        assert order == ["interceptor", "application"]

    def test_of_a_full_queue(self, make_producer: MakeProducer, topic: str) -> None:
        acks = Acks()
        producer = make_producer(acks, queue_buffering_max_messages=1)
        producer.produce(topic, b"a")
        with pytest.raises(BufferError):
            producer.produce(topic, b"b")
        assert isinstance(self.only(acks)[2], BufferError)

    def test_of_a_record_that_is_too_large(self, make_producer: MakeProducer, topic: str) -> None:
        acks = Acks()
        with pytest.raises(KafkaException):
            make_producer(acks).produce(topic, b"x" * 2_000_000)
        assert self.only(acks)[2].args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE

    def test_of_a_bad_state(self, make_producer: MakeProducer, topic: str) -> None:
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
        self, make_producer: MakeProducer, topic: str, unique_topic: Callable[[str], str]
    ) -> None:
        acks = Acks()
        producer = make_producer(acks, transactional_id=unique_topic("tx"))
        producer.init_transactions(10)
        producer.begin_transaction()
        producer.produce(topic, b"value")
        producer.abort_transaction(10)
        assert self.only(acks)[2].args[0].code() == KafkaError._PURGE_QUEUE

    def test_of_a_committed_record(
        self, make_producer: MakeProducer, topic: str, unique_topic: Callable[[str], str]
    ) -> None:
        acks = Acks()
        producer = make_producer(acks, transactional_id=unique_topic("tx"))
        producer.init_transactions(10)
        producer.begin_transaction()
        producer.produce(topic, b"value")
        producer.commit_transaction(10)
        assert self.only(acks)[2] is None

    def test_of_a_transaction_comes_before_its_end_is_told(
        self, make_producer: MakeProducer, topic: str, unique_topic: Callable[[str], str]
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
        self, make_producer: MakeProducer, topic: str, unique_topic: Callable[[str], str], name: str
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
        assert producer.flush(60) == 0
        assert [failure.args[0].code() for failure in raised] == [KafkaError._STATE]
        producer.commit_transaction(10)

    def test_of_a_dropped_record(self, make_producer: MakeProducer, topic: str) -> None:
        acks = Acks()
        producer = make_producer(Drop(), acks)
        producer.produce(topic, b"value")
        producer.flush(60)
        assert self.only(acks)[2].args[0].code() == KafkaError.POLICY_VIOLATION

    def test_of_a_refused_record_has_the_last_good_one(self, make_producer: MakeProducer, topic: str) -> None:
        acks = Acks()
        with pytest.raises(InterceptorError):
            make_producer(Stamp("a"), Refuse(), acks).produce(topic, b"bad")
        record, _, error = self.only(acks)
        assert isinstance(error, InterceptorError)
        assert record.headers == (("a", b"1"),)

    def test_of_a_record_with_a_reserved_header(self, make_producer: MakeProducer, topic: str) -> None:
        acks = Acks()
        with pytest.raises(HeaderwareError):
            make_producer(acks).produce(topic, b"value", headers={"hw.sig": b"forged"})
        assert isinstance(self.only(acks)[2], HeaderError)
