"""A client without a chain is confluent-kafka's, and still takes what an application wrote for ours."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest

from headerware import Chain, ConfigError, HeaderError, Headers, Record
from headerware.clients import Consumer, Producer
from headerware.clients.aio import AsyncConsumer
from headerware.core.header_ids import HeaderId
from headerware.interceptors import Compress, Trail
from tests.unit.clients.test_messages import put_raw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TRAIL_ID = HeaderId("0.0.0.5")
EXPECTED = [("hw.sig", b"1"), ("tenant", b"north"), ("tenant", None)]
READ = "auto.offset.reset"
HOW = (
    "; give the client a chain with chain=load_chain(path), with the key headerware.config, or with the "
    "variable HEADERWARE_CONFIG (further records are not looked at)"
)

pytestmark = pytest.mark.parametrize("disabled", [False, True], ids=["empty", "HEADERWARE_DISABLED"])


@pytest.fixture
def producer(
    connection: dict[str, Any], disabled: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Producer]:
    if disabled:
        monkeypatch.setenv("HEADERWARE_DISABLED", "1")
    with Producer(connection, chain=Chain([Trail()] if disabled else [])) as made:
        assert not made.chain
        yield made


@pytest.fixture
def on_the_wire(connection: dict[str, Any], topic: str, producer: Producer) -> Callable[[int], list[Any]]:
    """Return a function that reads so many records of the topic with confluent-kafka's own consumer."""

    def read(count: int) -> list[Any]:
        assert producer.flush(60) == 0
        consumer = confluent_kafka.Consumer({**connection, "group.id": topic, READ: "earliest"})
        try:
            consumer.subscribe([topic])
            return consumer.consume(count, 60)
        finally:
            consumer.close()

    return read


@pytest.mark.parametrize(
    "headers",
    [
        Headers(EXPECTED),
        Headers.builder(EXPECTED),
        [(TRAIL_ID, b"1"), ("tenant", "north"), ("tenant", None)],
        tuple(EXPECTED),
        [list(pair) for pair in EXPECTED],
        [("hw.sig", bytearray(b"1")), *EXPECTED[1:]],
    ],
    ids=["Headers", "HeadersBuilder", "an id", "a tuple", "lists", "a bytearray"],
)
class TestHeaders:
    def test_of_produce(self, producer: Producer, topic: str, on_the_wire: Any, headers: Any) -> None:
        producer.produce(topic, b"v", headers=headers)
        (message,) = on_the_wire(1)
        assert message.headers() == EXPECTED

    def test_of_produce_batch(self, producer: Producer, topic: str, on_the_wire: Any, headers: Any) -> None:
        assert producer.produce_batch(topic, [{"value": b"v", "headers": headers}, {"value": b"w"}]) == 2
        first, second = on_the_wire(2)
        assert (first.headers(), second.headers()) == (EXPECTED, None)

    def test_of_produce_many(self, producer: Producer, topic: str, on_the_wire: Any, headers: Any) -> None:
        records: list[Any] = [{"value": b"v", "headers": headers}, Record(topic, b"v", headers=headers)]
        assert producer.produce_many(topic, records) == [None, None]
        first, second = on_the_wire(2)
        assert first.headers() == second.headers() == EXPECTED


class TestIdsOfADict:
    @pytest.mark.parametrize("header_id", [TRAIL_ID, 5])
    def test_stand_for_names(self, producer: Producer, topic: str, on_the_wire: Any, header_id: int) -> None:
        producer.produce(topic, b"v", headers={header_id: b"1"})
        (message,) = on_the_wire(1)
        assert message.headers() == [("hw.sig", b"1")]


class TestNoHeaders:
    @pytest.mark.parametrize("headers", [None, {}, [], (), Headers()])
    def test_are_none(self, producer: Producer, topic: str, on_the_wire: Any, headers: Any) -> None:
        producer.produce(topic, b"v", headers=headers)
        (message,) = on_the_wire(1)
        assert not message.headers()


class TestBuffers:
    @pytest.mark.parametrize("buffer", [bytearray, memoryview])
    def test_are_sent_as_bytes(self, producer: Producer, topic: str, on_the_wire: Any, buffer: Any) -> None:
        producer.produce(topic, buffer(b"v"), buffer(b"k"), headers=[("a", b"1")])
        assert producer.produce_many(topic, [{"value": buffer(b"w")}]) == [None]
        first, second = on_the_wire(2)
        assert (first.value(), first.key(), first.headers()) == (b"v", b"k", [("a", b"1")])
        assert second.value() == b"w"


class TestWhatIsWrong:
    """It is confluent-kafka's to refuse, or to take as it does."""

    @pytest.mark.parametrize("headers", [5, "text", [("a",)], [5], [("a", 5)], {"a": 5}, {"a"}])
    def test_is_refused_as_confluent_kafka_does(self, producer: Producer, topic: str, headers: Any) -> None:
        with pytest.raises(TypeError) as ours:
            producer.produce(topic, b"v", headers=headers)
        with pytest.raises(TypeError) as theirs:
            confluent_kafka.Producer({"log_level": 0}).produce(topic, b"v", headers=headers)
        assert (type(ours.value), str(ours.value)) == (type(theirs.value), str(theirs.value))

    def test_names_in_bytes_are_as_confluent_kafka_has_them(
        self, producer: Producer, topic: str, on_the_wire: Any
    ) -> None:
        producer.produce(topic, b"v", headers={b"a": b"1"})  # type: ignore[arg-type]
        (message,) = on_the_wire(1)
        assert message.headers() == [("b'a'", b"1")]

    def test_in_a_batch_is_refused_before_any_is_sent(self, producer: Producer, topic: str) -> None:
        batch: list[dict[str, Any]] = [{"value": b"w"}, {"value": b"v", "headers": {"a": 5}}]
        with pytest.raises(TypeError, match="at index 1"):
            producer.produce_batch(topic, batch)
        assert len(producer) == 0


class TestBatches:
    def test_keep_timestamps_and_report(self, producer: Producer, topic: str, on_the_wire: Any) -> None:
        reports: list[Any] = []
        message = {"value": b"v", "timestamp": 1_700_000_000_000}
        assert (
            producer.produce_batch(topic, [message], on_delivery=lambda *report: reports.append(report)) == 1
        )
        (found,) = on_the_wire(1)
        assert found.timestamp()[1] == 1_700_000_000_000
        assert [report[0] for report in reports] == [None]

    def test_to_a_topic_that_is_no_text_are_refused(self, producer: Producer) -> None:
        with pytest.raises(TypeError):
            producer.produce_batch(5, [{"value": b"v", "headers": {"a": b"1"}}])  # type: ignore[arg-type]


@pytest.mark.parametrize("named", ["callback", "on_delivery"])
def test_calls_the_delivery_callback_by_either_name(producer: Producer, topic: str, named: str) -> None:
    heard: list[Any] = []
    given: dict[str, Any] = {named: lambda error, message: heard.append((error, message.value()))}
    producer.produce(topic, b"one", **given)
    producer.produce(topic, b"two", headers=Headers([("a", b"1")]), **given)
    producer.produce_batch(topic, [{"value": b"three"}], **given)
    assert producer.flush(60) == 0
    assert heard == [(None, b"one"), (None, b"two"), (None, b"three")]


class TestMethodsOfAChain:
    """They answer, or say that there is no chain."""

    def test_of_a_producer(self, producer: Producer) -> None:
        with pytest.raises(ConfigError, match="the chain does not come from a file"):
            producer.reload()
        assert (producer.stats(), producer.chain_in_force()) == ({"client": {"queued": 0}}, None)

    def test_of_a_consumer(self, connection: dict[str, Any], topic: str, disabled: Any) -> None:
        message = confluent_kafka.Message(topic)
        with Consumer({**connection, "group.id": topic}) as consumer:
            with pytest.raises(ConfigError, match="the chain does not come from a file"):
                consumer.reload()
            with pytest.raises(ConfigError, match=r"set headerware\.processing = 'explicit'"):
                consumer.run(print)
            with consumer.processing(message):
                assert (consumer.verified(message), consumer.local(message)) == (None, {})
            assert (consumer.stats(), consumer.chain_in_force()) == ({"client": {}}, None)
            assert consumer.committable([]) == []
            consumer.stop()
            assert list(consumer.messages(0)) == []

    def test_of_asyncio_clients(self, connection: dict[str, Any], topic: str, disabled: Any) -> None:
        async def reload() -> None:
            async with AsyncConsumer({**connection, "group.id": topic}) as consumer:
                await consumer.reload()

        with pytest.raises(ConfigError, match="the chain does not come from a file"):
            asyncio.run(reload())


class TestEncodedRecords:
    """A consumer without a chain gets them as they are on the wire, and is told so once."""

    @pytest.fixture
    def is_warned(
        self, make_producer: Any, topic: str, disabled: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any
    ) -> Callable[[list[Any]], None]:
        """Send two compressed records, and return a check of what a consumer has got and logged."""
        producer = make_producer(Trail(), Compress(min_bytes=1))
        for _ in range(2):
            producer.produce(topic, b"v" * 1_000)
        assert producer.flush(60) == 0
        if disabled:
            monkeypatch.setenv("HEADERWARE_DISABLED", "1")

        def check(messages: list[Any]) -> None:
            assert [len(message.value()) < 1_000 for message in messages] == [True, True]
            assert "hw.compress" in dict(messages[0].headers())
            warning = (
                f"{topic}[0]@0: its headers say that the record was sent through 'compress', and this "
                f"consumer has no chain to decode that; the consumer's chain needs, in this order: "
                f"'compress'{HOW}"
            )
            assert caplog.messages == ([] if disabled else [warning])

        return check

    @pytest.mark.parametrize("processing", ["implicit", "explicit"])
    @pytest.mark.parametrize("is_batch", [False, True], ids=["poll", "consume"])
    def test_are_warned_of(
        self, connection: dict[str, Any], topic: str, is_warned: Any, is_batch: Any, processing: str
    ) -> None:
        conf = {**connection, "group.id": topic, "headerware.processing": processing, READ: "earliest"}
        with Consumer(conf) as consumer:
            consumer.subscribe([topic])
            is_warned(consumer.consume(2, 60) if is_batch else [consumer.poll(60) for _ in range(2)])

    def test_are_warned_of_in_asyncio(self, connection: dict[str, Any], topic: str, is_warned: Any) -> None:
        async def read() -> list[Any]:
            async with AsyncConsumer({**connection, "group.id": topic, READ: "earliest"}) as consumer:
                await consumer.subscribe([topic])
                return await consumer.consume(2, 60)

        is_warned(asyncio.run(read()))


@pytest.mark.parametrize(
    ("names", "sent_through"),
    [
        (
            ("hw.sig",),
            (
                "'sign', and this consumer has no chain to verify that; "
                "the consumer's chain needs, in this order: 'sign'"
            ),
        ),
        (
            ("~C", "~F"),
            (
                "'compress', 'sign', 'header_ids', and this consumer has no chain to decode that; "
                "the consumer's chain needs, in this order: 'compress', 'sign', 'header_ids'"
            ),
        ),
        (("hw.trail",), None),
    ],
    ids=["signed", "compact", "plain"],
)
def test_warns_of_a_signature_that_nothing_verifies(
    connection: dict[str, Any],
    topic: str,
    disabled: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: Any,
    names: Any,
    sent_through: str | None,
) -> None:
    if disabled:
        monkeypatch.setenv("HEADERWARE_DISABLED", "1")
    wire = confluent_kafka.Producer(connection)
    wire.produce(topic, b"value", headers=[(name, b"1") for name in names])
    assert wire.flush(60) == 0
    with Consumer({**connection, "group.id": topic, READ: "earliest"}) as consumer:
        consumer.subscribe([topic])
        assert consumer.poll(60) is not None
    expected = f"{topic}[0]@0: its headers say that the record was sent through {sent_through}{HOW}"
    assert caplog.messages == ([] if disabled or sent_through is None else [expected])


class TestHeadersThatAreNotUtf8:
    def test_raise_when_they_are_used(self, connection: dict[str, Any], topic: str, disabled: Any) -> None:
        if disabled:
            pytest.skip("confluent-kafka's own methods answer, and nobody looks at the headers")
        put_raw(connection, topic, (b"a", b"\xff\xfe"), (b"b", b"fine"))
        with Consumer({**connection, "group.id": topic, READ: "earliest"}) as consumer:
            consumer.subscribe([topic])
            first, second = consumer.consume(2, 60)
            assert (first.value(), second.headers()) == (b"a", [("fine", b"hunter2")])
            uses: list[Any] = [list, Headers]
            for use in uses:
                with pytest.raises(HeaderError, match=r"\[0\]@0: a header's name is not UTF-8"):
                    use(first.headers())
            wire = confluent_kafka.Producer(connection)
            with pytest.raises(TypeError):
                wire.produce(topic, b"a", headers=first.headers())
            assert len(wire) == 0, "nothing is sent in place of the headers"
