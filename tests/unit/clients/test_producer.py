from __future__ import annotations

import gc
import time
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

import headerware
from headerware.clients import Producer
from headerware.clients.messages import undelivered_message
from headerware.core.batch import Batch, HeaderColumns, Repeated
from headerware.core.chain import Chain
from headerware.core.errors import (
    DeadLetterError,
    HeaderError,
    HeaderwareError,
    InterceptorError,
    RecordError,
)
from headerware.core.hooks import Interceptor
from headerware.core.record import Record
from headerware.interceptors import HeaderIds, Serialize
from tests.unit.clients.sending import Acks, Drop, Halves, Held, Refuse, Stamp, reports, wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.clients.conftest import MakeProducer


class TestSendChain:
    def test_changes_what_goes_on_the_wire(
        self, make_producer: MakeProducer, connection: dict[str, Any], topic: str
    ) -> None:
        producer = make_producer(Stamp("a"), Stamp("b"))
        producer.produce(topic, "value", "key", 0, headers={"own": "x"}, timestamp=1_700_000_000_000)
        assert producer.flush(60) == 0
        message = wire(connection, topic, 1)[0]
        assert message.headers() == [("own", b"x"), ("a", b"1"), ("b", b"1")]
        assert (message.key(), message.value()) == (b"key", b"value")

    def test_goes_on_with_the_last_good_record_after_a_skipped_failure(
        self, make_producer: MakeProducer, connection: dict[str, Any], topic: str
    ) -> None:
        class Broken(Interceptor, frozen=True, kw_only=True):
            def on_send(self, record: Record) -> Record:
                raise ValueError("broken")

        producer = make_producer(Stamp("a"), Broken(on_error="skip"), Stamp("b"))
        producer.produce(topic, b"value")
        producer.flush(60)
        assert wire(connection, topic, 1)[0].headers() == [("a", b"1"), ("b", b"1")]

    def test_leaves_the_callers_list_alone(self, make_producer: MakeProducer, topic: str) -> None:
        headers = [("own", b"x")]
        make_producer(Stamp()).produce(topic, b"value", headers=headers)
        assert headers == [("own", b"x")]

    @pytest.mark.parametrize(
        "headers",
        [(("a", b"1"),), [["a", b"1"]], {"a": "1"}, [("a", bytearray(b"1"))], [("a", memoryview(b"1"))]],
    )
    def test_takes_headers_in_every_form(
        self, make_producer: MakeProducer, connection: dict[str, Any], topic: str, headers: Any
    ) -> None:
        producer = make_producer(Acks())
        producer.produce(topic, b"value", headers=headers)
        producer.flush(60)
        assert wire(connection, topic, 1)[0].headers() == [("a", b"1")]

    def test_refuses_a_bytes_name(self, make_producer: MakeProducer, topic: str) -> None:
        acks = Acks()
        with pytest.raises(HeaderError):
            make_producer(acks).produce(topic, b"value", headers=[(b"a", b"1")])  # type: ignore[list-item]  # what is refused
        assert [type(error) for _, _, error in acks.seen] == [HeaderError]

    def test_refuses_an_object_that_nothing_serializes(self, make_producer: MakeProducer, topic: str) -> None:
        with pytest.raises(RecordError):
            make_producer(Stamp()).produce(topic, 5)

    def test_refuses_a_record_that_an_interceptor_holds_back(
        self, make_producer: MakeProducer, topic: str
    ) -> None:
        class Hold:
            def on_send(self, record: Record) -> list[Record]:
                return []

        with pytest.raises(InterceptorError, match="holds the record back"):
            make_producer(Hold()).produce(topic, b"value")


class TestFlush:
    def test_sends_what_interceptors_held_back(
        self, make_producer: MakeProducer, connection: dict[str, Any], topic: str
    ) -> None:
        make_producer(Held(topic, b"a", b"b"), Refuse()).flush(60)
        assert [message.value() for message in wire(connection, topic, 2)] == [b"a", b"b"]

    def test_raises_for_what_is_refused_and_sends_the_rest(
        self, make_producer: MakeProducer, connection: dict[str, Any], topic: str
    ) -> None:
        producer = make_producer(Held(topic, b"bad", b"b"), Refuse())
        with pytest.raises(InterceptorError, match="no"):
            producer.flush(60)
        assert producer.flush(60) == 0
        assert [message.value() for message in wire(connection, topic, 1)] == [b"b"]

    def test_passes_over_what_is_dropped(self, make_producer: MakeProducer, topic: str) -> None:
        assert make_producer(Held(topic, b"a"), Drop()).flush(60) == 0


class TestMany:
    def test_keeps_headers_and_timestamps(
        self, make_producer: MakeProducer, connection: dict[str, Any], topic: str
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
        producer.flush(60)
        first, second = wire(connection, topic, 2)
        assert (first.key(), first.headers()) == (b"k", [("own", b"x"), ("a", b"1")])
        assert (second.value(), second.headers()) == (b"2", [("a", b"1")])

    @pytest.mark.parametrize("chained", [True, False])
    def test_takes_a_batch_as_its_records(
        self,
        make_producer: MakeProducer,
        connection: dict[str, Any],
        topic: str,
        chained: bool,  # noqa: FBT001 - a parameter of the test
    ) -> None:
        producer = make_producer(*[Serialize(value="bytes")] * chained)
        stated = [("content-type", b"application/octet-stream")] * chained
        values = [b"1", b"x" * 2_000_000, bytearray(b"2"), 5, b"3"]
        numbers = [b"%d" % number for number in range(1, 6)]
        batch = Batch(
            topic,
            values,
            keys=[b"k"] * 5,
            headers=HeaderColumns([("own", Repeated(b"x", 5)), ("hw.source.record", numbers)], 5),
            partitions=Repeated(0, 5),
            timestamps_ms=[1_700_000_000_000] * 5,
        )
        told: list[Any] = []
        errors = producer.produce_many(topic, batch, on_delivery=lambda error, _: told.append(error))
        producer.flush(10)
        assert [error is None for error in errors] == [True, False, True, False, True]
        assert isinstance(errors[1], KafkaException)
        assert told == [None] * 3
        found = wire(connection, topic, 3)
        assert [message.value() for message in found] == [b"1", b"2", b"3"]
        assert [message.headers() for message in found] == [
            [("own", b"x"), ("hw.source.record", number), *stated] for number in (b"1", b"3", b"5")
        ]
        assert {(message.key(), message.timestamp()[1]) for message in found} == {(b"k", 1_700_000_000_000)}

    def test_sends_a_batch_to_another_topic(
        self, make_producer: MakeProducer, connection: dict[str, Any], topic: str
    ) -> None:
        batch = Batch("elsewhere", [b"1"])
        assert make_producer(Stamp()).produce_many(topic, batch) == [None]
        assert wire(connection, topic, 1)[0].headers() == [("stamp", b"1")]

    @pytest.mark.parametrize("stops", [False, True], ids=["what goes on", "what is refused"])
    def test_a_batch_goes_through_the_chain_once(
        self,
        make_producer: MakeProducer,
        topic: str,
        stops: bool,  # noqa: FBT001 - a parameter of the test
    ) -> None:
        seen: list[Any] = []

        class Once(Interceptor, frozen=True, kw_only=True):
            def on_send(self, record: Record) -> Record:
                seen.append(record.value)
                if stops:
                    raise InterceptorError("as this test wants it")
                return record

        errors = make_producer(Once()).produce_many(topic, Batch(topic, [b"1", b"2"]))
        assert [error is not None for error in errors] == [stops, stops]
        assert seen == [b"1", b"2"]

    def test_lets_no_bad_record_take_its_neighbours_along(
        self, make_producer: MakeProducer, connection: dict[str, Any], topic: str
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
        producer.flush(60)
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

    def test_reports_to_each_record_of_its_own(self, make_producer: MakeProducer, topic: str) -> None:
        seen, report = reports()
        own, mine = reports()
        producer = make_producer(Stamp())
        producer.produce_many(
            topic, [{"value": b"1"}, {"value": b"2", "on_delivery": mine}], on_delivery=report
        )
        producer.flush(60)
        assert [message.value() for _, message in seen] == [b"1"]
        assert [message.value() for _, message in own] == [b"2"]

    def test_uses_batch_hooks(self, make_producer: MakeProducer, topic: str) -> None:
        sizes: list[int] = []

        class Sizes:
            def on_send_batch(self, batch: Batch) -> Batch:
                sizes.append(len(batch))
                return batch

        make_producer(Sizes()).produce_many(topic, [{"value": b"1"}] * 3)
        assert sizes == [3]

    def test_without_a_chain_keeps_headers_too(
        self, make_producer: MakeProducer, connection: dict[str, Any], topic: str
    ) -> None:
        producer = make_producer()
        errors = producer.produce_many(topic, [{"value": b"1", "headers": {"a": "1"}}, {"value": 5}])
        assert [type(error) for error in errors] == [type(None), TypeError]
        producer.flush(60)
        assert wire(connection, topic, 1)[0].headers() == [("a", b"1")]


class TestARecordThatIsTooLarge:
    @pytest.mark.parametrize("call", ["produce", "produce_many", "produce_batch"])
    def test_is_refused_with_topic_size_limit_and_what_helps(
        self, make_producer: MakeProducer, topic: str, call: str
    ) -> None:
        producer = make_producer(Stamp("a"))
        record: dict[str, Any] = {"value": b"y" * 2_000_000}
        if call == "produce":
            with pytest.raises(KafkaException) as caught:
                producer.produce(topic, **record)
            error = caught.value.args[0]
        elif call == "produce_many":
            (raised,) = producer.produce_many(topic, [record])
            assert isinstance(raised, KafkaException)
            error = raised.args[0]
        else:
            batch = [record]
            assert producer.produce_batch(topic, batch) == 0
            error = batch[0]["_error"]
        assert error.code() == KafkaError.MSG_SIZE_TOO_LARGE
        assert all(
            part in error.str()
            for part in (f"{topic!r}", "2000002 bytes", "message.max.bytes (1000000)", "slice", "claim_check")
        )

    def test_for_its_topic_is_reported_so(self, make_producer: MakeProducer, topic: str) -> None:
        seen: list[Any] = []
        deliveries = make_producer(Stamp("a"))._hw_deliveries
        record = Record(topic, b"y" * 700_000)
        error = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)
        message = undelivered_message(record, error)
        deliveries.report(record, record, lambda *report: seen.append(report), error, message)
        ((reported, told),) = seen
        assert reported.code() == told.error().code() == KafkaError.MSG_SIZE_TOO_LARGE
        assert f"700000 bytes for topic {topic!r} exceeds the topic's max.message.bytes" in reported.str()


class TestProduceBatch:
    def test_keeps_headers_and_counts(
        self, make_producer: MakeProducer, connection: dict[str, Any], topic: str
    ) -> None:
        seen, report = reports()
        producer = make_producer(Stamp("a"))
        batch: list[dict[str, Any]] = [
            {"value": b"1", "headers": [("own", b"x")]},
            {"value": b"y" * 2_000_000},
            {"value": "2", "timestamp": 5},
        ]
        assert producer.produce_batch(topic, batch, 0, on_delivery=report) == 2
        producer.flush(60)
        assert batch[1]["_error"].code() == KafkaError.MSG_SIZE_TOO_LARGE
        assert "_error" not in batch[0]
        assert [message.headers() for message in wire(connection, topic, 2)] == [
            [("own", b"x"), ("a", b"1")],
            [("a", b"1")],
        ]
        assert len(seen) == 2

    @pytest.mark.parametrize("messages", [(), [5], [{"value": b"1", "partition": "0"}]])
    def test_refuses_what_confluent_kafka_refuses(
        self, make_producer: MakeProducer, topic: str, messages: Any
    ) -> None:
        with pytest.raises(TypeError):
            make_producer(Stamp()).produce_batch(topic, messages)

    @pytest.mark.parametrize(
        "part",
        [
            *({"value": 5}, {"key": 5}, {"timestamp": "5"}, {"headers": 5}, {"headers": {"a": 5}}),
            *({"on_delivery": 5}, {"callback": "x"}),
        ],
        ids=str,
    )
    @pytest.mark.parametrize("chain", [[], [Stamp()]], ids=["no chain", "a chain"])
    def test_sends_nothing_if_a_part_has_a_wrong_type(
        self, make_producer: MakeProducer, topic: str, chain: list[Any], part: dict[str, Any]
    ) -> None:
        producer = make_producer(*chain)
        batch: list[dict[str, Any]] = [{"value": b"good", "headers": {"a": b"1"}}, {"value": b"v", **part}]
        with pytest.raises(TypeError, match="at index 1"):
            producer.produce_batch(topic, batch)
        assert len(producer) == 0
        assert all("_error" not in message for message in batch)


class TestLife:
    def test_closes_interceptors_once(self, make_producer: MakeProducer) -> None:
        acks = Acks()
        producer = make_producer(acks)
        assert producer.close() is True
        assert producer.close() is True
        assert acks.closed == 1

    def test_closes_as_a_context_manager(self, make_producer: MakeProducer, topic: str) -> None:
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
            producer.flush(60)
            reference = weakref.ref(producer)
            del producer
            assert reference() is None
        finally:
            gc.enable()
        assert acks.closed == 1

    def test_learns_the_clusters_id_without_blocking(
        self, connection: dict[str, Any], topic: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("headerware.clients.cluster_id._WAIT_S", 60.0)

        class Cluster(Interceptor, frozen=True, kw_only=True):
            def open(self, context: Any) -> Any:
                ports.append(context)
                return self

            def on_send(self, record: Record) -> Record:
                return record

        ports: list[Any] = []
        with Producer(connection, chain=Chain([Cluster()])):
            deadline = time.monotonic() + 60
            while ports[0].cluster_id() is None:
                assert time.monotonic() < deadline
        unreachable = Producer({**connection, "bootstrap.servers": "127.0.0.1:1"}, chain=Chain([Cluster()]))
        started = time.monotonic()
        assert ports[1].cluster_id() is None
        assert time.monotonic() - started < 30
        del unreachable
        assert ports[1].cluster_id() is None

    def test_counts(self, make_producer: MakeProducer, topic: str) -> None:
        producer = make_producer(Stamp("a"))
        producer.produce(topic, b"value")
        stats = producer.stats()
        assert stats["stamp-a"]["sent"] == 1
        assert stats["client"]["queued"] == 1


class TestDeadLetters:
    def test_are_published_past_the_chain(
        self, make_producer: MakeProducer, connection: dict[str, Any], topic: str
    ) -> None:
        class Careful(Interceptor, frozen=True, kw_only=True):
            def on_send(self, record: Record) -> Record:
                raise InterceptorError("no")

        acks = Acks()
        seen, report = reports()
        producer = make_producer(Careful(on_error="dead_letter", dead_letter_topic=f"{topic}.dead"), acks)
        producer.produce(topic, b"value", headers={"own": "1"}, callback=report)
        producer.flush(60)
        assert [error.code() for error, _ in seen if error] == [KafkaError.POLICY_VIOLATION]
        assert len(acks.seen) == 1
        client = confluent_kafka.Consumer({**connection, "group.id": "g", "auto.offset.reset": "earliest"})
        client.assign([TopicPartition(f"{topic}.dead", partition, 0) for partition in range(4)])
        dead_letter = client.poll(60)
        client.close()
        assert dead_letter is not None
        assert dead_letter.value() == b"value"
        assert ("own", b"1") in (dead_letter.headers() or [])

    def test_that_are_too_large_get_a_shorter_reason_or_are_raised(
        self, make_producer: MakeProducer, topic: str
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
    def test_is_called_if_it_is_a_callback(self, make_producer: MakeProducer, topic: str) -> None:
        producer, given = make_producer(Stamp()), [Empty() for _ in range(6)]
        producer.produce(topic, callback=given[0])
        producer.produce(topic, on_delivery=given[1])
        producer.produce_many(topic, [{"on_delivery": given[2]}])
        producer.produce_many(topic, [{}], on_delivery=given[3])
        producer.produce_batch(topic, [{"callback": given[4]}])
        producer.produce_batch(topic, [{}], callback=given[5])
        producer.flush(60)
        assert [len(callback.reports) for callback in given] == [1] * 6

    @pytest.mark.parametrize("headers", [0, False, 0.0, "", b"", bytearray()])
    def test_is_refused_if_it_is_no_headers(
        self, make_producer: MakeProducer, topic: str, headers: Any
    ) -> None:
        acks = Acks()
        producer = make_producer(Stamp(), acks)
        with pytest.raises(HeaderError):
            producer.produce(topic, headers=headers)
        assert isinstance(producer.produce_many(topic, [{"headers": headers}])[0], HeaderError)
        assert [type(error) for _, _, error in acks.seen] == [HeaderError, HeaderError]

    @pytest.mark.parametrize("callback", [0, "", 5])
    def test_is_refused_if_it_is_no_callback(
        self, make_producer: MakeProducer, topic: str, callback: Any
    ) -> None:
        acks = Acks()
        producer = make_producer(Stamp(), acks)
        with pytest.raises(TypeError, match="callable"):
            producer.produce(topic, callback=callback)
        assert len(acks.seen) == 1


class TestATopicThatIsNoText:
    @pytest.mark.parametrize("topic", [5, None, b"orders"])
    def test_is_refused_and_acknowledged_once(self, make_producer: MakeProducer, topic: Any) -> None:
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
    @pytest.mark.parametrize("name", ["a\0b", "\ud800", "~C", "~D", "~E", "~F", "~H", "~A", "~R", "~P__"])
    def test_that_nobody_could_read_are_refused(
        self, make_producer: MakeProducer, topic: str, name: str
    ) -> None:
        producer = make_producer(Stamp())
        with pytest.raises(HeaderwareError, match="header"):
            producer.produce(topic, headers={name: b"1"})
        errors = producer.produce_many(topic, [{"headers": [(name, b"1")]}, {}])
        assert isinstance(errors[0], HeaderwareError)
        assert errors[1] is None
        assert producer.produce_batch(topic, [{"headers": {name: b"1"}}]) == 0

    @pytest.mark.parametrize("name", ["a\0b", "\ud800", "~C"])
    def test_that_a_hook_sets_are_refused(self, make_producer: MakeProducer, topic: str, name: str) -> None:
        with pytest.raises(InterceptorError, match="header"):
            make_producer(Stamp(name)).produce(topic, b"value")

    def test_that_header_ids_escapes_pass(self, make_producer: MakeProducer, topic: str) -> None:
        _, report = seen = reports()
        producer = make_producer(HeaderIds(form="keys"))
        producer.produce(topic, headers={"~C": b"1"}, callback=report)
        producer.flush(60)
        assert seen[0][0][0] is None


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
            producer.flush(60)
            reference = weakref.ref(producer)
            del producer
            assert reference() is None
        finally:
            gc.enable()


class TestAClientThatWasNeverInitialised:
    """As OpenTelemetry's proxies are, which hand every call on to another client."""

    def test_answers_as_confluent_kafkas_does(self, make_producer: MakeProducer, topic: str) -> None:
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
