"""Each method of confluent-kafka's clients, and what they do with records: theirs against ours.

``docs/conformance.md`` is the table that this makes. A row is a method, called in every form that the C code
takes (its methods have no signatures), or a behaviour, which is a scenario. Both are run with
confluent-kafka's client and with ours, and what comes out is compared: results, types and errors. A cell
without a note says "same", and its test fails on any difference. A cell with a note fails without one.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import uuid
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition, aio, cimpl
from confluent_kafka.serialization import StringDeserializer, StringSerializer

import headerware
from headerware.clients.aio import (
    AIOConsumer,
    AIOProducer,
    AsyncDeserializingConsumer,
    AsyncSerializingProducer,
)
from headerware.core.chain import Chain

if TYPE_CHECKING:
    from headerware.testing import EmbeddedCluster

ROOT: Final = Path(__file__).resolve().parents[3]
PAGE: Final = ROOT / "docs" / "conformance.md"
DEADLINE_S: Final = 60.0

Call = tuple[tuple[Any, ...], dict[str, Any]]
Column = Literal["sync", "serializing", "asyncio", "asyncio serializing", "share", "instrumented"]
Side = Literal["raw", "ours", "instrumented"]
SIDES: Final[tuple[Side, ...]] = ("raw", "ours", "instrumented")
Cell = tuple[str, str, Column]
"""A group, a row's title and a column."""


class Pass:
    """An interceptor that lets everything pass."""

    def on_send(self, record: Any) -> Any:
        return record

    def on_consume(self, record: Any) -> Any:
        return record


CHAIN: Final = {
    "interceptors": "trail",
    "interceptors.trail.service": "test",
    "interceptors.trail.topics": "no-topic-of-these-tests",
}
"""A chain in a configuration, for applications that do not know of it; it lets everything pass."""


# What is compared


class Kind(NamedTuple):
    """A client of confluent-kafka, and the class that takes its place."""

    group: Literal["Producers", "Consumers", "Share consumers"]
    column: Column
    home: Any
    name: str
    ours: Any
    conf: dict[str, Any]
    keywords: dict[str, Any] = {}  # noqa: RUF012 - never changed

    @property
    def is_asyncio(self) -> bool:
        """Whether its methods are awaited."""
        return self.home is aio

    def make(self, side: Side, conf: dict[str, Any]) -> Any:
        conf = {**conf, **self.conf}
        if side == "ours":
            return self.ours(conf, chain=Chain([Pass()]), **self.keywords)
        if side == "instrumented":
            conf |= CHAIN
        return getattr(self.home, self.name)(conf, **self.keywords)


READING: Final = {"auto.offset.reset": "earliest", "fetch.wait.max.ms": 20, "enable.auto.commit": False}
KINDS: Final = [
    Kind("Producers", "sync", confluent_kafka, "Producer", headerware.Producer, {}),
    Kind(
        "Producers",
        "serializing",
        confluent_kafka,
        "SerializingProducer",
        headerware.SerializingProducer,
        {"key.serializer": StringSerializer(), "value.serializer": StringSerializer()},
    ),
    Kind("Producers", "asyncio", aio, "AIOProducer", AIOProducer, {}, {"buffer_timeout": 0.05}),
    Kind(
        "Producers",
        "asyncio serializing",
        aio,
        "AsyncSerializingProducer",
        AsyncSerializingProducer,
        {"key.serializer": StringSerializer(), "value.serializer": StringSerializer()},
        {"buffer_timeout": 0.05},
    ),
    Kind("Consumers", "sync", confluent_kafka, "Consumer", headerware.Consumer, {}),
    Kind(
        "Consumers",
        "serializing",
        confluent_kafka,
        "DeserializingConsumer",
        headerware.DeserializingConsumer,
        {"value.deserializer": StringDeserializer()},
    ),
    Kind("Consumers", "asyncio", aio, "AIOConsumer", AIOConsumer, {}),
    Kind(
        "Consumers",
        "asyncio serializing",
        aio,
        "AsyncDeserializingConsumer",
        AsyncDeserializingConsumer,
        {"value.deserializer": StringDeserializer()},
    ),
    Kind("Share consumers", "share", confluent_kafka, "ShareConsumer", headerware.ShareConsumer, {}),
]


OLDER: Final = not hasattr(confluent_kafka, "ShareConsumer")
"""Whether this confluent-kafka is older than the one that the page is about."""


class Note(NamedTuple):
    """Why a cell does not say "same"."""

    word: Literal["more", "differs"]
    why: str


def noop(*_: Any) -> None:
    pass


async def async_noop(*_: Any) -> None:
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


SHARE_CONSUMER: dict[str, list[Call]] = {
    "subscribe": [only(["TOPIC"]), named(topics=["TOPIC"]), only("TOPIC"), only([5]), only()],
    "subscription": [only()],
    "unsubscribe": [only()],
    "poll": [only(0.01), named(timeout=0.01), only("x")],
    "acknowledge": [only(5), only()],
    "acknowledge_offset": [only("TOPIC", 0, 0), only("TOPIC", 0, 99, 1), only("TOPIC"), only(5, 0, 0)],
    "commit_sync": [only(1), named(timeout=1), only("x")],
    "commit_async": [only()],
    "set_acknowledgement_commit_callback": [only(noop), only(None), only(5)],
    "set_sasl_credentials": [only("u", "p"), named(username="u", password="p")],
    "close": [only()],
    "__enter__": [only()],
    "__exit__": [only(None, None, None)],
}


def entered_by_await(calls: dict[str, list[Call]]) -> dict[str, list[Call]]:
    return {name.replace("__e", "__ae"): forms for name, forms in calls.items()}


ASYNCIO_PRODUCER: Final = {
    name: calls
    for name, calls in entered_by_await(PRODUCER).items()
    if name not in {"__bool__", "produce_batch"}
}
ASYNCIO_CONSUMER: Final = {
    **{name: calls for name, calls in entered_by_await(CONSUMER).items() if name != "memberid"},
    # Callbacks are coroutine functions there.
    "subscribe": [
        only(["TOPIC"]),
        named(topics=["TOPIC"], on_assign=async_noop, on_revoke=async_noop, on_lost=async_noop),
        only("TOPIC"),
    ],
}

METHODS: Final[dict[tuple[str, str], dict[str, list[Call]]]] = {
    ("Producers", "sync"): PRODUCER,
    ("Producers", "serializing"): {
        **PRODUCER,
        # The key comes first, and the timestamp before the headers.
        "produce": [
            only("TOPIC", "k", "v", 0, noop, 1_700_000_000_000, [("a", b"1")]),
            named(
                topic="TOPIC",
                value="v",
                key="k",
                partition=0,
                on_delivery=noop,
                timestamp=5,
                headers={"a": None},
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
    },
    ("Producers", "asyncio"): {
        **ASYNCIO_PRODUCER,
        "produce": [
            only("TOPIC", b"v", b"k"),
            named(topic="TOPIC", value="v", key="k", partition=0),
            named(topic="TOPIC", partition=0),
            only(),
        ],
    },
    ("Producers", "asyncio serializing"): {
        **ASYNCIO_PRODUCER,
        "produce": [
            only("TOPIC", "k", "v"),
            named(topic="TOPIC", value="v", key="k", partition=0),
            named(topic="TOPIC", partition=0),
            only(),
            only(5),
            only("TOPIC", "k", 5),
        ],
    },
    ("Consumers", "sync"): CONSUMER,
    ("Consumers", "serializing"): CONSUMER,
    ("Consumers", "asyncio"): ASYNCIO_CONSUMER,
    ("Consumers", "asyncio serializing"): ASYNCIO_CONSUMER,
    ("Share consumers", "share"): SHARE_CONSUMER,
}


# What comes out


class Raised(NamedTuple):
    kind: type[BaseException]
    code: int | None

    @classmethod
    def of(cls, error: BaseException) -> Raised:
        return cls(type(error), code_of(error))


def code_of(error: Any) -> int | None:
    cause = error.args[0] if isinstance(error, KafkaException) and error.args else error
    return cause.code() if isinstance(cause, KafkaError) else None


def described(result: Any, client: Any = None) -> Any:
    """Return what can be compared of a result: all but names and numbers of this one run."""
    if result is not None and result is client:
        return "itself"
    if isinstance(result, Raised):
        return result
    if isinstance(result, Message):
        return (
            "message",
            result.partition(),
            result.offset(),
            result.key(),
            result.value(),
            code_of(result.error()),
        )
    if isinstance(result, TopicPartition):
        return "position", result.partition, result.offset, result.metadata, code_of(result.error)
    if type(result).__name__ == "ClusterMetadata":
        return "metadata", len(result.brokers), [len(topic.partitions) for topic in result.topics.values()]
    if isinstance(result, dict):
        return [(described(key), described(value)) for key, value in result.items()]
    if isinstance(result, list | tuple):
        return type(result), [described(each) for each in result]
    if isinstance(result, KafkaError | BaseException):
        return Raised.of(result) if isinstance(result, BaseException) else ("error", result.code())
    return result if isinstance(result, int | None) else type(result)


def alike(theirs: Any, ours: Any) -> bool:
    """Return whether an application can take one answer for the other; our errors may be subclasses."""
    if isinstance(theirs, Raised):
        return isinstance(ours, Raised) and issubclass(ours.kind, theirs.kind) and ours.code == theirs.code
    if isinstance(theirs, list | tuple) and isinstance(ours, list | tuple):
        return len(theirs) == len(ours) and all(map(alike, theirs, ours))
    return bool(theirs == ours)


async def settled(result: Any) -> Any:
    """Return what becomes of a result: that of a coroutine, and of a future that it returns.

    A client that is made by ``await`` can be awaited again, and is what comes of it.
    """
    while inspect.isawaitable(result):
        before, result = result, await asyncio.wait_for(result, DEADLINE_S)
        if result is before:
            break
    return result


class Scene:
    """One run of a row: a client, a topic of its own, and what is known of both."""

    def __init__(self, kind: Kind, side: Side, servers: str) -> None:
        self.kind, self.side = kind, side
        self.connection: dict[str, Any] = {"bootstrap.servers": servers, "log_level": 0}
        self.topic = f"conformance-{uuid.uuid4().hex[:12]}"
        self._made: list[Any] = []

    async def client(self, conf: dict[str, Any] | None = None) -> Any:
        """Make a client of the row's kind and side."""
        made = self.kind.make(self.side, {**self.connection, **self._group(), **(conf or {})})
        client = await made if inspect.isawaitable(made) else made
        self._made.append(client)
        return client

    def _group(self) -> dict[str, Any]:
        if self.kind.group == "Producers":
            return {}
        return {"group.id": self.topic, **(READING if self.kind.group == "Consumers" else {})}

    def consumer_of_c(self) -> Any:
        """Return a consumer without any chain."""
        return cimpl.Consumer({**self.connection, **READING, "group.id": self.topic})

    def callback(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Make a callback that the client takes: asyncio's wait for a coroutine."""

        async def awaited(*arguments: Any) -> Any:
            return function(*arguments)

        return awaited if self.kind.is_asyncio else function

    def fill(self, *values: bytes, headers: Any = None) -> None:
        producer = cimpl.Producer(self.connection)
        for value in values:
            producer.produce(self.topic, value, b"k", 0, headers=headers)
        assert producer.flush(DEADLINE_S) == 0

    def wire(self, count: int) -> list[Message]:
        """Read what is in the topic, past any chain."""
        if count == 0:
            return []
        consumer = self.consumer_of_c()
        consumer.assign([TopicPartition(self.topic, 0, 0)])
        found: list[Message] = consumer.consume(count, DEADLINE_S)
        consumer.close()
        return found

    async def close(self) -> None:
        for client in self._made:
            with contextlib.suppress(RuntimeError):  # closed by the row
                if self.kind.group == "Producers":
                    await settled(client.purge())
                await settled(client.close())

    def filled(self, value: Any) -> Any:
        """Put the topic into an argument."""
        if isinstance(value, list):
            return [self.filled(item) for item in value]
        if value == "PARTITION":
            return TopicPartition(self.topic, 0, 0)
        return self.topic if isinstance(value, str) and value == "TOPIC" else value

    async def answer(self, client: Any, name: str, *arguments: Any, **keywords: Any) -> Any:
        try:
            result = getattr(client, name)(
                *self.filled(list(arguments)), **{key: self.filled(value) for key, value in keywords.items()}
            )
            return described(await settled(result), client)
        except Exception as error:  # noqa: BLE001 - any kind of answer is compared
            return Raised.of(error)


Scenario = Callable[[Scene], Awaitable[Any]]


async def call_every_form(name: str, calls: list[Call], scene: Scene) -> Any:
    if scene.kind.group == "Producers":
        client = await scene.client()
    elif name in {"subscribe", "assign"}:
        # No cluster: a client that is closed while it joins a group may hang for ever (librdkafka's issue
        # 4041), with the interpreter's lock in its hand; and librdkafka 2.13 may end the process by an
        # assertion (`rktp_started`) where a partition is assigned again while it is read.
        client = await scene.client({"bootstrap.servers": "127.0.0.1:9"})
    elif scene.kind.group == "Consumers":
        scene.fill(b"a", b"b")
        client = await reader(scene)
        assert (await settled(client.poll(DEADLINE_S))).error() is None
    else:
        client = await scene.client()
        client.subscribe([scene.topic])
    return [await scene.answer(client, name, *positional, **keywords) for positional, keywords in calls]


# Behaviours


BEHAVIOURS: Final[dict[str, dict[str, Scenario]]] = {
    group: {} for group in ("Producers", "Consumers", "Share consumers")
}
ONLY: Final[dict[tuple[str, str], set[str]]] = {}
"""The columns of a row that not all clients of the group have."""
ON_A_BROKER: Final[set[tuple[str, str]]] = set()
"""Rows that librdkafka's mock cluster cannot answer for each time; tests/integration runs them."""


def behaviour(group: str, title: str, *columns: str, on: str = "mock") -> Callable[[Scenario], Scenario]:
    """Make a scenario a row of the table; for some of the group's clients, or for all."""

    def add(scenario: Scenario) -> Scenario:
        BEHAVIOURS[group][title] = scenario
        if on == "broker":
            ON_A_BROKER.add((group, title))
        if columns:
            ONLY[group, title] = set(columns)
        return scenario

    return add


async def until(condition: Callable[[], bool], step: Callable[[], Any]) -> None:
    """Take steps until a condition holds."""
    deadline = asyncio.get_running_loop().time() + DEADLINE_S
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "the condition never held"
        await settled(step())
        await asyncio.sleep(0)


async def report(scene: Scene, client: Any, **record: Any) -> Any:
    """Produce a record and return its report: the message, or the error's code."""
    if scene.kind.is_asyncio:
        try:
            future = await client.produce(scene.topic, **record)
            await client.flush()
            return await settled(future)
        except KafkaException as error:
            return code_of(error)
        except NotImplementedError as error:
            return Raised.of(error)
    got: list[Any] = []
    try:
        client.produce(
            scene.topic,
            on_delivery=lambda error, message: got.append(message if error is None else error.code()),
            **record,
        )
    except KafkaException as error:  # librdkafka refuses it at once if it knows the topic by now
        return code_of(error)
    client.flush(DEADLINE_S)
    return got[0] if len(got) == 1 else got


async def refusal(scene: Scene, conf: dict[str, Any]) -> Raised | None:
    """Return what a client raises for a configuration."""
    try:
        await scene.client(conf)
    except Exception as error:  # noqa: BLE001 - any kind of answer is compared
        return Raised.of(error)
    return None


@behaviour("Producers", "`isinstance` with confluent-kafka's class")
async def _(scene: Scene) -> Any:
    return isinstance(await scene.client(), getattr(scene.kind.home, scene.kind.name))


@behaviour("Producers", "a configuration that is wrong")
async def _(scene: Scene) -> Any:
    return [await refusal(scene, conf) for conf in ({"no.such.property": 1}, {"acks": "x"}, {"error_cb": 5})]


@behaviour("Producers", "a delivery report: key, value, partition, offset")
async def _(scene: Scene) -> Any:
    client = await scene.client()
    return [described(await report(scene, client, value=value, key="k")) for value in ("a", "b", None)]


@behaviour("Producers", "a delivery report: topic, type of the timestamp, latency")
async def _(scene: Scene) -> Any:
    message = await report(scene, await scene.client(), value="a")
    return message.topic() == scene.topic, message.timestamp()[0], type(message.latency())


@behaviour("Producers", "a delivery report: headers", "sync", "serializing")
async def _(scene: Scene) -> Any:
    return (await report(scene, await scene.client(), value="a", headers={"tenant": b"north"})).headers()


@behaviour("Producers", "a record for a partition that is not there")
async def _(scene: Scene) -> Any:
    return described(await report(scene, await scene.client(), value="a", partition=99))


@behaviour("Producers", "headers as a dict, pairs, None or nothing", "sync", "serializing")
async def _(scene: Scene) -> Any:
    client = await scene.client()
    forms: list[Any] = [
        {"a": b"1", "b": "text", "c": None},
        [("a", b"1"), ("a", "2"), ("b", None)],
        [],
        {},
        None,
    ]
    for form in forms:
        client.produce(scene.topic, value="v", partition=0, headers=form)
    client.flush(DEADLINE_S)
    return [message.headers() for message in scene.wire(len(forms))]


@behaviour("Producers", "headers as a tuple of pairs, a generator or any mapping", "sync", "serializing")
async def _(scene: Scene) -> Any:
    client = await scene.client()
    forms = [(("a", b"1"),), (pair for pair in [("a", b"1")]), MappingProxyType({"a": b"1"})]
    return [await scene.answer(client, "produce", "TOPIC", headers=form) for form in forms]


@behaviour("Producers", "headers that are 0, False or an empty text", "sync", "serializing")
async def _(scene: Scene) -> Any:
    client = await scene.client()
    return [await scene.answer(client, "produce", "TOPIC", headers=form) for form in (0, False, "")]


@behaviour("Producers", "header names under `hw.`", "sync", "serializing")
async def _(scene: Scene) -> Any:
    return await scene.answer(await scene.client(), "produce", "TOPIC", headers={"hw.own": b"1"})


@behaviour("Producers", "a bytearray or a memoryview as a value", "sync")
async def _(scene: Scene) -> Any:
    client = await scene.client()
    return [
        await scene.answer(client, "produce", "TOPIC", value) for value in (bytearray(b"a"), memoryview(b"a"))
    ]


@behaviour("Producers", "order, keys and values on the wire")
async def _(scene: Scene) -> Any:
    client = await scene.client()
    for at in range(30):
        await until_queued(client, scene.topic, value=str(at), key=f"k{at % 3}", partition=0)
    await settled(client.flush())
    return [(message.key(), message.value()) for message in scene.wire(30)]


@behaviour("Producers", "a timestamp on the wire")
async def _(scene: Scene) -> Any:
    sent = await report(scene, await scene.client(), value="v", partition=0, timestamp=1_700_000_000_000)
    return described(sent), [message.timestamp() for message in scene.wire(int(isinstance(sent, Message)))]


@behaviour("Producers", "headers, of asyncio", "asyncio", "asyncio serializing")
async def _(scene: Scene) -> Any:
    sent = await report(scene, await scene.client(), value="v", partition=0, headers={"a": b"1"})
    return described(sent), [message.headers() for message in scene.wire(int(isinstance(sent, Message)))]


async def until_queued(client: Any, topic: str, **record: Any) -> None:
    result = client.produce(topic, **record)
    if inspect.isawaitable(result):
        await result


@behaviour("Producers", "the partition that a key decides")
async def _(scene: Scene) -> Any:
    client = await scene.client()
    return [(await report(scene, client, value="v", key=f"key {at}")).partition() for at in range(8)]


@behaviour("Producers", "a full queue", "sync", "serializing")
async def _(scene: Scene) -> Any:
    client = await scene.client({"queue.buffering.max.messages": 1, "linger.ms": 20_000})
    return [await scene.answer(client, "produce", "TOPIC", value="v") for _ in range(2)] + [len(client)]


@behaviour("Producers", "a full queue, of asyncio", "asyncio", "asyncio serializing")
async def _(scene: Scene) -> Any:
    client = await scene.client({"queue.buffering.max.messages": 1, "linger.ms": 100})
    futures = [await client.produce(scene.topic, value="v", partition=0) for _ in range(3)]
    await client.flush()
    return [described(each) for each in await asyncio.gather(*futures, return_exceptions=True)]


@behaviour("Producers", "purged records are reported", "sync", "serializing")
async def _(scene: Scene) -> Any:
    client = await scene.client({"linger.ms": 20_000})
    codes: list[Any] = []
    client.produce(scene.topic, value="v", on_delivery=lambda error, _: codes.append(code_of(error)))
    return [len(client), client.purge(), client.flush(DEADLINE_S), codes]


# Not the serializing one: confluent-kafka's C code keeps the traceback, and with it the client, for ever, so
# that the class could not be taken back.
@behaviour("Producers", "a callback that raises", "sync")
async def _(scene: Scene) -> Any:
    client = await scene.client()

    def fail(*_: Any) -> None:
        raise LookupError("the application's")

    client.produce(scene.topic, value="v", on_delivery=fail)
    return [await scene.answer(client, "flush", DEADLINE_S), await scene.answer(client, "flush", 1)]


@behaviour("Producers", "`delivery.report.only.error`", "sync", "serializing")
async def _(scene: Scene) -> Any:
    client = await scene.client({"delivery.report.only.error": True, "linger.ms": 20_000})
    codes: list[Any] = []
    for end in (client.flush, client.purge):
        client.produce(scene.topic, value="v", on_delivery=lambda error, _: codes.append(code_of(error)))
        end()
    client.flush(DEADLINE_S)
    return [codes]


@behaviour("Producers", "callbacks of the configuration: `on_delivery`, `stats_cb`", "sync", "serializing")
async def _(scene: Scene) -> Any:
    heard: list[Any] = []
    told: list[Any] = []
    client = await scene.client(
        {
            "on_delivery": lambda error, message: told.append((error, message.value())),
            "stats_cb": lambda text: heard.append(type(text)),
            "statistics.interval.ms": 20,
        }
    )
    client.produce(scene.topic, value="v")
    await until(lambda: bool(heard and told), lambda: client.poll(0.05))
    return heard[0], told


@behaviour("Producers", "a transaction that is committed, and one that is aborted")
async def _(scene: Scene) -> Any:
    client = await scene.client({"transactional.id": scene.topic})
    answers = (
        [await scene.answer(client, "produce", "TOPIC", value="early")] if not scene.kind.is_asyncio else []
    )
    answers.append(await scene.answer(client, "init_transactions", DEADLINE_S))
    for value, end in (("kept", "commit_transaction"), ("lost", "abort_transaction")):
        answers.append(await scene.answer(client, "begin_transaction"))
        await until_queued(client, scene.topic, value=value, partition=0)
        answers.append(await scene.answer(client, end, DEADLINE_S))
    return answers, [message.value() for message in scene.wire(1)]


@behaviour("Producers", "after `close()`")
async def _(scene: Scene) -> Any:
    client = await scene.client()
    await settled(client.close())
    calls: list[tuple[Any, ...]] = [("poll", 0), ("flush",), ("purge",), ("list_topics",), ("close",)]
    if not scene.kind.is_asyncio:  # theirs gives a future that is never done
        calls.append(("produce", "TOPIC"))
    return [await scene.answer(client, *call) for call in calls]


@behaviour("Producers", "the end of a `with` block sends what waits")
async def _(scene: Scene) -> Any:
    client = await scene.client({"linger.ms": 500})
    if scene.kind.is_asyncio:
        async with client:
            await client.produce(scene.topic, value="v", partition=0)
    else:
        with client:
            client.produce(scene.topic, value="v", partition=0)
    return [message.value() for message in scene.wire(1)]


# Consumers


async def reader(scene: Scene, conf: dict[str, Any] | None = None) -> Any:
    """Return a consumer at the beginning of the topic; to ask where that is takes half a second."""
    client = await scene.client(conf)
    await settled(client.assign([TopicPartition(scene.topic, 0, 0)]))
    return client


async def next_message(client: Any) -> Any:
    try:
        return described(await settled(client.poll(DEADLINE_S)))
    except KafkaException as error:
        return Raised.of(error)


@behaviour("Consumers", "`isinstance` with confluent-kafka's class")
async def _(scene: Scene) -> Any:
    return isinstance(await scene.client(), getattr(scene.kind.home, scene.kind.name))


@behaviour("Consumers", "a configuration that is wrong")
async def _(scene: Scene) -> Any:
    return [
        await refusal(scene, conf)
        for conf in ({"no.such.property": 1}, {"auto.offset.reset": "x"}, {"on_commit": 5})
    ]


@behaviour("Consumers", "messages: key, value, headers, partition, offset, in order")
async def _(scene: Scene) -> Any:
    scene.fill(b"a", b"b", headers=[("x", b"1"), ("x", None)])
    scene.fill(b"c")
    client = await reader(scene)
    found = [await settled(client.poll(DEADLINE_S)) for _ in range(3)]
    return [(described(message), message.headers()) for message in found]


@behaviour("Consumers", "messages: topic, timestamp type, leader epoch, length")
async def _(scene: Scene) -> Any:
    scene.fill(b"abc")
    message = await settled((await reader(scene)).poll(DEADLINE_S))
    return (
        message.topic() == scene.topic,
        message.timestamp()[0],
        message.leader_epoch(),
        len(message),
        bool(message),
    )


@behaviour("Consumers", "a batch by `consume`", "sync", "asyncio", "asyncio serializing")
async def _(scene: Scene) -> Any:
    scene.fill(b"a", b"b", b"c")
    client = await reader(scene)
    await settled(client.poll(DEADLINE_S))
    return [
        described(await settled(client.consume(2, DEADLINE_S))),
        described(await settled(client.consume(5, 0.05))),
    ]


@behaviour("Consumers", "the end of a partition (`enable.partition.eof`)")
async def _(scene: Scene) -> Any:
    scene.fill(b"a")
    client = await reader(scene, {"enable.partition.eof": True})
    return [await next_message(client) for _ in range(2)]


@behaviour("Consumers", "an offset that is out of range (`auto.offset.reset=error`)")
async def _(scene: Scene) -> Any:
    scene.fill(b"a")
    client = await scene.client({"auto.offset.reset": "error"})
    await settled(client.assign([TopicPartition(scene.topic, 0, 99)]))
    return [await next_message(client)]


@behaviour("Consumers", "`position` moves with `poll` and `seek`")
async def _(scene: Scene) -> Any:
    scene.fill(b"a", b"b")
    client = await reader(scene)
    answers = [await next_message(client), await scene.answer(client, "position", ["PARTITION"])]
    await settled(client.seek(TopicPartition(scene.topic, 0, 0)))
    return [
        *answers,
        await next_message(client),
        await next_message(client),
        await scene.answer(client, "position", ["PARTITION"]),
    ]


@behaviour("Consumers", "a paused partition gives nothing until it is resumed")
async def _(scene: Scene) -> Any:
    scene.fill(b"a", b"b")
    client = await reader(scene)
    first = await next_message(client)
    await settled(client.pause([TopicPartition(scene.topic, 0)]))
    nothing = await scene.answer(client, "poll", 0.1)
    await settled(client.resume([TopicPartition(scene.topic, 0)]))
    return [first, nothing, await next_message(client)]


@behaviour("Consumers", "`commit()` of what was polled, and `commit(message)`")
async def _(scene: Scene) -> Any:
    scene.fill(b"a", b"b", b"c")
    client = await reader(scene)
    await next_message(client)
    await next_message(client)
    answers = [await scene.answer(client, "commit", asynchronous=False)]
    last = await settled(client.poll(DEADLINE_S))
    answers.append(await scene.answer(client, "commit", last, asynchronous=False))
    return [*answers, await scene.answer(client, "committed", ["PARTITION"], 10)]


@behaviour("Consumers", "an automatic commit when the consumer closes")
async def _(scene: Scene) -> Any:
    scene.fill(b"a", b"b", b"c")
    client = await reader(scene, {"enable.auto.commit": True})
    await next_message(client)
    await next_message(client)
    await settled(client.close())
    other = scene.consumer_of_c()
    found = described(other.committed([TopicPartition(scene.topic, 0)], DEADLINE_S))
    other.close()
    return found


@behaviour("Consumers", "`enable.auto.offset.store=false` and `store_offsets`")
async def _(scene: Scene) -> Any:
    scene.fill(b"a", b"b")
    client = await reader(scene, {"enable.auto.offset.store": False})
    first = await settled(client.poll(DEADLINE_S))
    await next_message(client)
    answers = [
        await scene.answer(client, "commit", asynchronous=False),
        await scene.answer(client, "store_offsets", first),
    ]
    return [*answers, await scene.answer(client, "commit", asynchronous=False)]


@behaviour("Consumers", "`on_commit`")
async def _(scene: Scene) -> Any:
    scene.fill(b"a")
    heard: list[Any] = []
    client = await reader(
        scene,
        {
            "on_commit": scene.callback(
                lambda error, offsets: heard.append((code_of(error), described(offsets)))
            )
        },
    )
    await next_message(client)
    await settled(client.commit())
    await until(lambda: bool(heard), lambda: client.poll(0.05))
    return heard


@behaviour("Consumers", "`on_assign` and `on_revoke`, with the partitions")
async def _(scene: Scene) -> Any:
    scene.fill(b"a")
    heard: list[Any] = []
    client = await scene.client()
    await settled(
        client.subscribe(
            [scene.topic],
            on_assign=scene.callback(lambda _, partitions: heard.append(("assigned", len(partitions)))),
            on_revoke=scene.callback(lambda _, partitions: heard.append(("revoked", len(partitions)))),
        )
    )
    message = await next_message(client)
    await settled(client.close())
    return [message, heard]


@behaviour("Consumers", "`on_assign` that begins elsewhere by `assign`", "sync", "serializing")
async def _(scene: Scene) -> Any:
    scene.fill(b"a", b"b", b"c")
    client = await scene.client()

    def begin_at_two(consumer: Any, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            partition.offset = 2 if partition.partition == 0 else partition.offset
        consumer.assign(partitions)

    client.subscribe([scene.topic], on_assign=begin_at_two)
    return await next_message(client)


@behaviour("Consumers", "`stats_cb`")
async def _(scene: Scene) -> Any:
    heard: list[Any] = []
    hear = scene.callback(lambda text: heard.append(type(text)))
    client = await scene.client({"stats_cb": hear, "statistics.interval.ms": 20})
    await until(lambda: bool(heard), lambda: client.poll(0.05))
    return heard[0]


@behaviour("Consumers", "a payload that its deserializer refuses", "serializing", "asyncio serializing")
async def _(scene: Scene) -> Any:
    scene.fill(b"\xff", b"b")
    client = await reader(scene)
    return [await next_message(client), await next_message(client)]


@behaviour("Consumers", "after `close()`")
async def _(scene: Scene) -> Any:
    client = await scene.client()
    await settled(client.close())
    calls: list[tuple[Any, ...]] = [
        ("poll", 0),
        ("subscribe", ["TOPIC"]),
        ("commit",),
        ("assignment",),
        ("list_topics",),
        ("close",),
    ]
    return [await scene.answer(client, *call) for call in calls]


# Share consumers


async def shared(scene: Scene, conf: dict[str, Any]) -> tuple[Any, list[Message]]:
    """Return a member of a share group, and the first messages that it gets."""
    client = await scene.client(conf)
    client.subscribe([scene.topic])
    found: list[Message] = []

    def poll() -> None:
        scene.fill(b"a")  # a new group begins at the end
        found.extend(client.poll(0.2))

    await until(lambda: bool(found), poll)
    return client, found


@behaviour("Share consumers", "`isinstance` with confluent-kafka's class")
async def _(scene: Scene) -> Any:
    return isinstance(await scene.client(), getattr(scene.kind.home, scene.kind.name))


@behaviour("Share consumers", "messages: key, value, delivery count, as `Messages`", on="broker")
async def _(scene: Scene) -> Any:
    client, found = await shared(scene, {})
    return described(found[0])[3:], found[0].delivery_count(), type(client.poll(0))


@behaviour("Share consumers", "implicit mode accepts with the next commit", on="broker")
async def _(scene: Scene) -> Any:
    client, found = await shared(scene, {})
    return [
        await scene.answer(client, "acknowledge", found[0]),
        await scene.answer(client, "commit_sync", DEADLINE_S),
    ]


@behaviour("Share consumers", "explicit mode asks for an answer to each record", on="broker")
async def _(scene: Scene) -> Any:
    client, found = await shared(scene, {"share.acknowledgement.mode": "explicit"})
    answers = [await scene.answer(client, "poll", 0.1)]
    answers += [await scene.answer(client, "acknowledge", message) for message in found]
    answers.append(await scene.answer(client, "acknowledge_offset", "TOPIC", 0, 99))
    return [*answers, await scene.answer(client, "commit_sync", DEADLINE_S)]


@behaviour("Share consumers", "a released record comes again", on="broker")
async def _(scene: Scene) -> Any:
    client, found = await shared(scene, {"share.acknowledgement.mode": "explicit"})
    for message in found:
        client.acknowledge(message, confluent_kafka.AcknowledgeType.RELEASE)
    again: list[Message] = []
    await until(lambda: bool(again), lambda: again.extend(client.poll(0.2)))
    return again[0].offset() == found[0].offset(), again[0].delivery_count()


@behaviour("Share consumers", "before `subscribe`, and after `close()`")
async def _(scene: Scene) -> Any:
    client = await scene.client()
    answers = [await scene.answer(client, "poll", 0)]
    client.close()
    calls: list[tuple[Any, ...]] = [("poll", 0), ("subscribe", ["TOPIC"]), ("commit_sync", 1), ("close",)]
    return answers + [await scene.answer(client, *call) for call in calls]


# The table


def columns_of(group: str) -> list[Column]:
    """Return a group's columns; share consumers are the only ones of theirs, and are not instrumented."""
    columns = [kind.column for kind in KINDS if kind.group == group]
    return columns if group == "Share consumers" else [*columns, "instrumented"]


def scenarios_of(kind: Kind) -> dict[str, Scenario]:
    """Return the rows of a kind by their titles."""
    methods = {
        title_of(name): functools.partial(call_every_form, name, calls)
        for name, calls in METHODS[kind.group, kind.column].items()
    }
    return methods | {
        title: scenario
        for title, scenario in BEHAVIOURS[kind.group].items()
        if kind.column in ONLY.get((kind.group, title), {kind.column})
    }


def title_of(method: str) -> str:
    return f"`{method.replace('__ae', '__e')}`"


def rows_of(group: str) -> dict[str, list[Kind]]:
    """Return each row's title with the kinds that have it: methods by name, then behaviours."""
    rows: dict[str, list[Kind]] = {}
    for kind in KINDS:
        if kind.group == group:
            for title in scenarios_of(kind):
                rows.setdefault(title, []).append(kind)
    methods = sorted(title for title in rows if title not in BEHAVIOURS[group])
    return {title: rows[title] for title in [*methods, *BEHAVIOURS[group]]}


def kinds_behind(group: str, title: str, column: str) -> list[Kind]:
    """Return the clients that a cell is about: the instrumented ones are all in one column."""
    return [kind for kind in rows_of(group)[title] if column in (kind.column, "instrumented")]


CELLS: Final[list[Cell]] = [
    (group, title, column)
    for group in BEHAVIOURS
    for title in rows_of(group)
    for column in columns_of(group)
    if kinds_behind(group, title, column)
]
ON_THE_MOCK: Final = [cell for cell in CELLS if cell[:2] not in ON_A_BROKER]


def page() -> str:
    """Return docs/conformance.md: its own text, and the tables behind it."""
    parts = ["".join(PAGE.read_text(encoding="utf-8").partition(MARK)[:2])]
    for group in BEHAVIOURS:
        columns = columns_of(group)
        lines = [f"| | {' | '.join(columns)} |", "| --- " * (len(columns) + 1) + "|"]
        remarks: list[str] = []
        for title in rows_of(group):
            cells = []
            for column in columns:
                note = NOTES.get((group, title), {}).get(column)
                if note is None:
                    there = kinds_behind(group, title, column)
                    cells.append("same" if there else "" if title in BEHAVIOURS[group] else "not there")
                    continue
                remark = f"**{title}**, {note.word}: {note.why}."
                if remark not in remarks:
                    remarks.append(remark)
                cells.append(f"{note.word} ({remarks.index(remark) + 1})")
            lines.append(f"| {title} | {' | '.join(cells)} |")
        parts.append(f"## {group}\n\n" + "\n".join(lines) + "\n")
        parts.append("".join(f"{at}. {remark}\n" for at, remark in enumerate(remarks, 1)))
        parts.append("Ours have besides: " + "; ".join(extras(group)) + ".\n")
    return "\n".join(part for part in parts if part)


def extras(group: str) -> list[str]:
    """Return the public names that ours have and theirs have not, for each kind."""
    return [
        f"{kind.ours.__name__}: "
        + ", ".join(f"`{name}`" for name in sorted(public(kind.ours) - THEIRS.get(kind.name, set())))
        for kind in KINDS
        if kind.group == group
    ]


def theirs(kind: Kind) -> Any:
    return getattr(kind.home, kind.name, None)


SPECIAL: Final = {"__len__", "__bool__", "__enter__", "__exit__", "__aenter__", "__aexit__"}


def public(client: type) -> set[str]:
    return {name for name in dir(client) if not name.startswith("_") or name in SPECIAL}


NOT_COMPARED: Final = {"DeserializingShareConsumer"}
THEIRS: Final[dict[str, set[str]]] = {kind.name: public(theirs(kind)) for kind in KINDS if theirs(kind)}
"""Public names of confluent-kafka's classes, taken before anything is instrumented."""

MARK: Final = "<!-- What follows is written by `make conformance`. -->\n"


def noted(note: Note, *columns: Column) -> dict[Column, Note]:
    return dict.fromkeys(columns, note)


NOTES: Final[dict[tuple[str, str], dict[Column, Note]]] = {
    ("Producers", "`produce_batch`"): noted(
        Note("differs", "ours serializes the values; confluent-kafka's sends them as they are"), "serializing"
    ),
    ("Producers", "`isinstance` with confluent-kafka's class"): noted(
        Note(
            "differs",
            "it is an `AIOProducer`, but not one of confluent-kafka's class, which a coroutine makes",
        ),
        "asyncio serializing",
    ),
    ("Producers", "a configuration that is wrong"): noted(
        Note("differs", "a callback that cannot be called is refused when the client is made"),
        "asyncio",
        "asyncio serializing",
        "instrumented",
    ),
    ("Producers", "a delivery report: headers"): noted(
        Note("more", "a report has the application's headers; confluent-kafka's has none"),
        "sync",
        "serializing",
        "instrumented",
    ),
    ("Producers", "headers as a tuple of pairs, a generator or any mapping"): noted(
        Note("more", "confluent-kafka takes a dict or a list and raises `TypeError` for the others"),
        "sync",
        "serializing",
        "instrumented",
    ),
    ("Producers", "header names under `hw.`"): noted(
        Note("differs", "`HeaderError`, because these names are Headerware's own"),
        "sync",
        "serializing",
        "instrumented",
    ),
    ("Producers", "a bytearray or a memoryview as a value"): noted(
        Note("more", "confluent-kafka raises `TypeError`"), "sync", "instrumented"
    ),
    ("Producers", "a timestamp on the wire"): noted(
        Note("more", "confluent-kafka's asyncio producer raises `NotImplementedError` when it flushes"),
        "asyncio",
        "asyncio serializing",
        "instrumented",
    ),
    ("Producers", "headers, of asyncio"): noted(
        Note("more", "confluent-kafka's asyncio producer raises `NotImplementedError`"),
        "asyncio",
        "asyncio serializing",
        "instrumented",
    ),
    ("Producers", "a full queue, of asyncio"): noted(
        Note("more", "`produce` waits for room; confluent-kafka's records fail with `_QUEUE_FULL`"),
        "asyncio",
        "asyncio serializing",
        "instrumented",
    ),
    ("Producers", "after `close()`"): noted(
        Note("differs", "a second `close()` does nothing; confluent-kafka's raises `RuntimeError`"),
        "asyncio",
        "instrumented",
    ),
    ("Consumers", "`consume`"): noted(
        Note("more", "confluent-kafka's raises `NotImplementedError`"), "serializing"
    ),
    ("Consumers", "`isinstance` with confluent-kafka's class"): noted(
        Note(
            "differs",
            "it is an `AIOConsumer`, but not one of confluent-kafka's class, which a coroutine makes",
        ),
        "asyncio serializing",
    ),
    ("Consumers", "a configuration that is wrong"): noted(
        Note("differs", "a callback that cannot be called is refused when the client is made"),
        "asyncio",
        "asyncio serializing",
        "instrumented",
    ),
    ("Consumers", "after `close()`"): noted(
        Note("differs", "a second `close()` does nothing; confluent-kafka's raises `RuntimeError`"),
        "asyncio",
        "instrumented",
    ),
    ("Share consumers", "`acknowledge_offset`"): noted(
        Note(
            "differs",
            "in implicit mode, where it is refused anyway, `IllegalStateException` comes before `TypeError`",
        ),
        "share",
    ),
}

# The run

Answers = dict[tuple[str, str, Side, str], Any]
"""What each row of each kind gave, by group, column, side and title."""


def run_row(servers: str, kind: Kind, side: Side, scenario: Scenario) -> Any:
    async def run() -> Any:
        scene = Scene(kind, side, servers)
        try:
            return await scenario(scene)
        except Exception as error:  # noqa: BLE001 - any kind of answer is compared
            return Raised.of(error)
        finally:
            await scene.close()

    return asyncio.run(run())


def run_all(servers: str, cells: list[Cell]) -> Answers:
    """Run the rows of these cells on every side; most of the time goes in waiting, so many run at once."""
    rows = {(group, title) for group, title, _ in cells}
    jobs: list[tuple[Kind, Side, str, Scenario]] = [
        (kind, side, title, scenario)
        for side in SIDES
        for kind in KINDS
        if hasattr(kind.home, kind.name) and (side != "instrumented" or kind.column != "share")
        for title, scenario in scenarios_of(kind).items()
        if (kind.group, title) in rows
    ]
    found: Answers = {}

    def run(job: tuple[Kind, Side, str, Scenario]) -> None:
        kind, side, title, scenario = job
        found[kind.group, kind.column, side, title] = run_row(servers, kind, side, scenario)

    with ThreadPoolExecutor(12) as threads:
        list(threads.map(run, [job for job in jobs if job[1] != "instrumented"]))
        instrumented = [job for job in jobs if job[1] == "instrumented"]
        if instrumented:
            headerware.instrument()
            try:
                list(threads.map(run, instrumented))
            finally:
                headerware.uninstrument()
    return found


def check(answers: Answers, cell: Cell) -> None:
    """Fail unless a cell says what came out."""
    group, title, column = cell
    side: Side = "instrumented" if column == "instrumented" else "ours"
    different = {}
    for kind in kinds_behind(*cell):
        if OLDER and kind.home is aio:
            continue  # those of older versions are no context managers, and close otherwise
        if (group, kind.column, side, title) not in answers:
            pytest.skip(f"this confluent-kafka has no {kind.name}")
        both = [answers[group, kind.column, each, title] for each in ("raw", side)]
        assert not all(isinstance(each, Raised) for each in both), f"nothing is compared: {both}"
        if not alike(*both):
            different[kind.name] = both
    note = NOTES.get((group, title), {}).get(column)
    if note is None:
        assert different == {}, "theirs, ours"
    elif not OLDER:
        assert different != {}, f"there is a note, {note}, and no difference"


@pytest.fixture(scope="module")
def answers(embedded_cluster: EmbeddedCluster) -> Answers:
    return run_all(embedded_cluster.bootstrap_servers, ON_THE_MOCK)


@pytest.mark.xdist_group("conformance")
@pytest.mark.parametrize("cell", ON_THE_MOCK, ids=" ".join)
def test_cell(answers: Answers, cell: Cell) -> None:
    check(answers, cell)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_method_has_a_row(kind: Kind) -> None:
    if not hasattr(kind.home, kind.name):
        pytest.skip(f"this confluent-kafka has no {kind.name}")
    # Older versions have fewer.
    assert THEIRS[kind.name] <= set(METHODS[kind.group, kind.column])


def test_every_client_has_a_column() -> None:
    clients = {
        name
        for home in (confluent_kafka, aio)
        for name, each in vars(home).items()
        if inspect.isclass(each)
        and each.__module__.partition(".")[0] in {"cimpl", "confluent_kafka"}
        and public(each) & {"produce", "poll"}
    }
    assert clients <= {kind.name for kind in KINDS} | NOT_COMPARED


def test_every_note_is_about_a_cell() -> None:
    cells = set(CELLS)
    assert {(*row, column) for row, notes in NOTES.items() for column in notes} <= cells


def test_no_method_of_theirs_is_left_in_the_serializing_clients() -> None:
    # Theirs would look for serdes that only their constructor sets.
    for kind in KINDS:
        if kind.column == "serializing":
            own = {
                name for name, member in vars(theirs(kind)).items() if callable(member) and name[:1] != "_"
            }
            shared_names = own | {"__init__", "__exit__"}
            left = {name for name in shared_names if getattr(kind.ours, name) is getattr(theirs(kind), name)}
            assert left == set()


@pytest.mark.parametrize("arguments", [({}, {}), (5,)])
@pytest.mark.parametrize("name", ["Producer", "Consumer"])
def test_refuses_what_the_constructor_refuses(name: str, arguments: Any) -> None:
    with pytest.raises(TypeError):
        getattr(cimpl, name)(*arguments)
    with pytest.raises(TypeError):
        getattr(headerware, name)(*arguments, chain=Chain([Pass()]))


def test_takes_keywords_and_a_logger(embedded_cluster: EmbeddedCluster) -> None:
    connection: Any = {"bootstrap.servers": embedded_cluster.bootstrap_servers}
    headerware.Producer(connection, logger=None, chain=Chain([Pass()])).close()
    headerware.Producer(**connection, chain=Chain([Pass()])).close()


@pytest.mark.skipif(not hasattr(confluent_kafka, "ShareConsumer"), reason="the page is of the newest version")
def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make conformance`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
