"""Every public method of confluent-kafka's clients, called on ours in every form that the C code takes.

The C methods have no signatures, so they are called, positionally and by keyword, on the raw client and
on ours, and must answer alike.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition, cimpl
from confluent_kafka.serialization import StringDeserializer, StringSerializer

import headerware
from headerware.clients import Consumer, DeserializingConsumer, Producer, SerializingProducer
from headerware.core.chain import Chain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Call = tuple[tuple[Any, ...], dict[str, Any]]


class Same:
    def on_send(self, record: Any) -> Any:
        return record

    def on_consume(self, record: Any) -> Any:
        return record


def noop(*_: Any) -> None:
    pass


def only(*arguments: Any) -> Call:
    return arguments, {}


def named(**keywords: Any) -> Call:
    return (), keywords


PRODUCER: dict[str, list[Call]] = {
    "produce": [
        only("TOPIC", b"v", b"k", 0, noop, noop, 1_700_000_000_000, [("a", b"1")]),
        named(
            topic="TOPIC", value="v", key="k", partition=0, callback=noop, timestamp=5, headers={"a": None}
        ),
        named(topic="TOPIC", on_delivery=noop),
        only("TOPIC", None, None, -1),
        only(),
        only(5),
        only("TOPIC", 5),
        only("TOPIC", b"v", b"k", "0"),
        named(topic="TOPIC", nope=1),
        only("TOPIC", b"x" * 2_000_000),
    ],
    "produce_batch": [
        only("TOPIC", [{"value": b"1"}], 0, noop, noop),
        named(topic="TOPIC", messages=[{"value": b"1"}], partition=0, on_delivery=noop),
        only("TOPIC", []),
        only("TOPIC"),
    ],
    "poll": [only(0), named(timeout=0.01), only("x")],
    "flush": [only(), only(1), named(timeout=1.5), only("x")],
    "purge": [only(), only(1, 1, 1), named(in_queue=True, in_flight=False, blocking=True)],
    "list_topics": [only("TOPIC", 5), named(topic="TOPIC", timeout=5)],
    "cluster_id": [only(5), named(timeout=5)],
    "set_sasl_credentials": [only("u", "p"), named(username="u", password="p")],
    "init_transactions": [only(1)],
    "begin_transaction": [only()],
    "commit_transaction": [only(1)],
    "abort_transaction": [only(1)],
    "send_offsets_to_transaction": [only([], b"none", 1), only(5, 5)],
    "close": [only()],
    "__len__": [only()],
    "__bool__": [only()],
    "__enter__": [only()],
    "__exit__": [only(None, None, None)],
}

CONSUMER: dict[str, list[Call]] = {
    "subscribe": [
        only(["TOPIC"]),
        only(["TOPIC"], noop, noop, noop),
        named(topics=["TOPIC"], on_assign=noop, on_revoke=noop, on_lost=noop),
        only("TOPIC"),
        only(["TOPIC"], 5),
    ],
    "unsubscribe": [only()],
    "assign": [only(["PARTITION"]), only(5)],
    "unassign": [only()],
    "incremental_assign": [only([]), only(5)],
    "incremental_unassign": [only([]), only(5)],
    "assignment": [only()],
    "poll": [only(0.01), named(timeout=0.01), only("x"), only(None)],
    "consume": [only(1, 0.01), named(num_messages=1, timeout=0.01), only(2_000_000, 0.1), only("x")],
    "commit": [
        only(),
        only(None, ["PARTITION"], 0),
        only(None, ["PARTITION"], 1, 0),
        named(offsets=["PARTITION"], asynchronous=False),
        named(**{"offsets": ["PARTITION"], "async": False}),
        named(asynchronous=False),
        only(5),
        named(offsets=5),
        named(nope=1),
    ],
    "committed": [only(["PARTITION"], 5), named(partitions=["PARTITION"], timeout=5), only(5)],
    "position": [only(["PARTITION"]), named(partitions=["PARTITION"])],
    "pause": [only(["PARTITION"]), named(partitions=["PARTITION"]), only(5)],
    "resume": [only(["PARTITION"]), named(partitions=["PARTITION"]), only(5)],
    "seek": [only("PARTITION"), named(partition="PARTITION"), only(5)],
    "store_offsets": [only(), named(offsets=["PARTITION"]), only(5), only(None, ["PARTITION"])],
    "get_watermark_offsets": [only("PARTITION", 5), named(partition="PARTITION", timeout=5, cached=False)],
    "offsets_for_times": [only(["PARTITION"], 5), named(partitions=["PARTITION"], timeout=5)],
    "list_topics": [only("TOPIC", 5), named(topic="TOPIC", timeout=5)],
    "cluster_id": [only(5), named(timeout=5)],
    "memberid": [only()],
    "consumer_group_metadata": [only()],
    "set_sasl_credentials": [only("u", "p"), named(username="u", password="p")],
    "close": [only()],
    "__enter__": [only()],
    "__exit__": [only(None, None, None)],
}


def filled(value: Any, topic: str) -> Any:
    """Put the test's topic into a call."""
    if isinstance(value, list):
        return [filled(item, topic) for item in value]
    if value == "PARTITION":
        return TopicPartition(topic, 0, 0)
    return topic if isinstance(value, str) and value == "TOPIC" else value


def answer(client: Any, name: str, call: Call, topic: str) -> str:
    """Say what a call gives: the type of its result, or what it raises."""
    arguments, keywords = call
    try:
        result = getattr(client, name)(
            *(filled(argument, topic) for argument in arguments),
            **{key: filled(value, topic) for key, value in keywords.items()},
        )
    except Exception as error:  # noqa: BLE001 - any kind of answer is compared
        family = next(
            kind for kind in (TypeError, ValueError, *type(error).__mro__) if isinstance(error, kind)
        )
        return f"raises {family.__name__}"
    return "itself" if result is client else type(result).__name__


CHAIN: dict[str, Any] = {
    "interceptors": "trail",
    "interceptors.trail.service": "test",
    "interceptors.trail.topics": "no-topic-of-these-tests",
}
"""A chain in a configuration, for applications that do not know of it; it lets everything pass."""


@pytest.fixture(scope="module", params=["ours", "instrumented"])
def instrumented(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Return whether the client that is compared is made by confluent-kafka's name, under instrumentation."""
    if request.param == "ours":
        yield False
        return
    headerware.instrument()
    yield True
    headerware.uninstrument()


def made_by_name(name: str, conf: dict[str, Any]) -> Any:
    client = getattr(confluent_kafka, name)({**conf, **CHAIN})
    assert client._chained
    return client


def public(client: type) -> set[str]:
    extra = {"__len__", "__bool__", "__enter__", "__exit__"} & vars(client).keys()
    return {name for name in vars(client) if not name.startswith("_")} | extra


class TestProducerIsADropIn:
    @pytest.fixture
    def pair(self, connection: dict[str, Any], *, instrumented: bool) -> Iterator[tuple[Any, Any]]:
        raw = cimpl.Producer(connection)
        ours: Any = (
            made_by_name("Producer", connection)
            if instrumented
            else Producer(connection, chain=Chain([Same()]))
        )
        yield raw, ours
        raw.close()
        ours.close()

    def test_every_method_is_called_here(self) -> None:
        # Older versions have fewer.
        assert public(cimpl.Producer) <= set(PRODUCER)

    @pytest.mark.parametrize("name", PRODUCER)
    def test_answers_alike(self, pair: tuple[Any, Any], topic: str, name: str) -> None:
        raw, ours = ([answer(client, name, call, topic) for call in PRODUCER[name]] for client in pair)
        assert ours == raw

    @pytest.mark.parametrize("arguments", [(), ({}, {}), (5,)])
    def test_refuses_what_the_constructor_refuses(self, arguments: Any) -> None:
        with pytest.raises(TypeError):
            cimpl.Producer(*arguments)
        with pytest.raises(TypeError):
            Producer(*arguments, chain=Chain([Same()]))

    def test_takes_keywords_and_a_logger(self, connection: dict[str, Any]) -> None:
        Producer(connection, logger=None, chain=Chain([Same()])).close()
        Producer(**connection, chain=Chain([Same()])).close()


class TestConsumerIsADropIn:
    @pytest.fixture
    def pair(
        self, connection: dict[str, Any], topic: str, fill: Callable[..., None], *, instrumented: bool
    ) -> Iterator[tuple[Any, Any]]:
        fill(b"a", b"b")
        conf = {
            **connection,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 20,
        }
        raw = cimpl.Consumer({**conf, "group.id": f"{topic}-raw"})
        own = {**conf, "group.id": f"{topic}-ours"}
        ours: Any = made_by_name("Consumer", own) if instrumented else Consumer(own, chain=Chain([Same()]))
        for client in (raw, ours):
            client.assign([TopicPartition(topic, 0, 0)])  # at the beginning; to ask where that is takes 0.5 s
            message = client.poll(10)
            assert message is not None
            assert message.error() is None
        yield raw, ours
        raw.close()
        ours.close()

    def test_every_method_is_called_here(self) -> None:
        assert public(cimpl.Consumer) <= set(CONSUMER)

    @pytest.mark.parametrize("name", CONSUMER)
    def test_answers_alike(self, pair: tuple[Any, Any], topic: str, name: str) -> None:
        raw, ours = ([answer(client, name, call, topic) for call in CONSUMER[name]] for client in pair)
        assert ours == raw


SERIALIZING: dict[str, list[Call]] = {
    **PRODUCER,
    "produce": [
        only("TOPIC", "k", "v", 0, noop, 1_700_000_000_000, [("a", b"1")]),
        named(
            topic="TOPIC", value="v", key="k", partition=0, on_delivery=noop, timestamp=5, headers={"a": None}
        ),
        only("TOPIC"),
        only("TOPIC", None, None, -1),
        only(),
        only("TOPIC", 5),
        only("TOPIC", "k", 5),
        only("TOPIC", "k", "v", "0"),
        named(topic="TOPIC", callback=noop),
        only("TOPIC", "k", "x" * 2_000_000),
    ],
    # confluent-kafka's leaves their values as they are; ours serializes them.
    "produce_batch": [only("TOPIC", []), only("TOPIC")],
}
DESERIALIZING: dict[str, list[Call]] = {
    # confluent-kafka's has none.
    name: calls
    for name, calls in CONSUMER.items()
    if name != "consume"
}


class TestSerializingClientsAreDropIns:
    @pytest.fixture
    def producers(self, connection: dict[str, Any], *, instrumented: bool) -> Iterator[tuple[Any, Any]]:
        conf = {
            **connection,
            "key.serializer": StringSerializer(),
            "value.serializer": StringSerializer(),
        }
        raw: Any = confluent_kafka.SerializingProducer(conf)
        ours: Any = (
            made_by_name("SerializingProducer", conf)
            if instrumented
            else SerializingProducer(conf, chain=Chain([Same()]))
        )
        yield raw, ours
        with contextlib.suppress(RuntimeError):  # closed by the test
            raw.flush(10)
        ours.close()

    @pytest.fixture
    def consumers(
        self, connection: dict[str, Any], topic: str, fill: Callable[..., None], *, instrumented: bool
    ) -> Iterator[tuple[Any, Any]]:
        fill(b"a", b"b")
        conf = {
            **connection,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 20,
            "value.deserializer": StringDeserializer(),
        }
        raw: Any = confluent_kafka.DeserializingConsumer({**conf, "group.id": f"{topic}-raw"})
        own = {**conf, "group.id": f"{topic}-ours"}
        ours: Any = (
            made_by_name("DeserializingConsumer", own)
            if instrumented
            else DeserializingConsumer(own, chain=Chain([Same()]))
        )
        for client in (raw, ours):
            client.assign([TopicPartition(topic, 0, 0)])  # at the beginning; to ask where that is takes 0.5 s
            assert client.poll(10).value() == "a"
        yield raw, ours
        raw.close()
        ours.close()

    def test_no_method_of_theirs_is_left(self) -> None:
        # Theirs would look for serdes that only their constructor sets.
        for ours, theirs in (
            (SerializingProducer, confluent_kafka.SerializingProducer),
            (DeserializingConsumer, confluent_kafka.DeserializingConsumer),
        ):
            own = {name for name, member in vars(theirs).items() if callable(member) and name[:1] != "_"}
            left = {
                name
                for name in own | {"__init__", "__exit__"}
                if getattr(ours, name) is getattr(theirs, name)
            }
            assert left == set()

    @pytest.mark.parametrize("name", SERIALIZING)
    def test_the_producer_answers_alike(self, producers: tuple[Any, Any], topic: str, name: str) -> None:
        raw, ours = (
            [answer(client, name, call, topic) for call in SERIALIZING[name]] for client in producers
        )
        assert ours == raw

    @pytest.mark.parametrize("name", DESERIALIZING)
    def test_the_consumer_answers_alike(self, consumers: tuple[Any, Any], topic: str, name: str) -> None:
        raw, ours = (
            [answer(client, name, call, topic) for call in DESERIALIZING[name]] for client in consumers
        )
        assert ours == raw
