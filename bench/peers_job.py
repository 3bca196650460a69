"""The process of peers.py: measure ours and each peer in turn, and print the rows as lines of JSON.

All sides have one broker, one version of confluent-kafka, and the settings below. Each chunk of produced
records ends when all are delivered. FastStream's consumer and Quix Streams run by themselves, so each of
their runs is complete: it has new clients and a new group, and is measured from its first record on.
"""

from __future__ import annotations

import asyncio
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextvars import copy_context
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from itertools import count
from typing import Any, Final

import confluent_kafka
from faststream import BaseMiddleware, StreamMessage
from faststream.confluent import KafkaBroker
from opentelemetry import trace
from opentelemetry.instrumentation.confluent_kafka import ConfluentKafkaInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from pairing import Chunk, Paired, compare, compare_rates
from quixstreams import Application
from report import Row

import headerware
from headerware import AsyncConsumer, AsyncProducer, Chain, Record
from headerware.interceptors import Trace, Trail

CHUNK: Final = 5_000
READ: Final = 20_000
"""How many records a complete run of a consumer reads."""
COPIED: Final = 100_000
"""How many records a complete copy has."""
BATCH: Final = 500
COMMIT_S: Final = 5
"""How often a copy commits, as Quix Streams does by default."""
QUIX_CONSUMER: Final = {"fetch.queue.backoff.ms": 100}
"""What Quix Streams sets for its consumer."""
VALUE: Final = b"x" * 142
HEADERS: Final[list[tuple[str, bytes]]] = [
    ("content-type", b"application/octet-stream"),
    ("tenant", b"north"),
    ("priority", b"3"),
]
PRODUCER: Final = {"linger.ms": 5, "queue.buffering.max.messages": 200_000}  # acks=all is the default
ADDED: Final = ("by", b"bench")
"""The header that a side adds, if it does not add a trail."""
TRAIL: Final = Chain([Trail(service="bench")])
TRACE: Final = Chain([Trace()])

_numbers = count()


def main(servers: str, pairs: int) -> None:
    """Print all rows."""
    for rows in (_confluent_kafka, _traced, _faststream, _quix_streams):
        for row in rows(servers, pairs):
            print(json.dumps(asdict(row)), flush=True)


def _row(name: str, found: Paired, note: str, peer: str) -> Row:
    """Return a row; its note ends with the spread of the ratios and the version of the peer's package."""
    note = f"{note}; {found.spread}; {peer} {version(peer)}"
    return Row(name, found.ours, found.reference, "records/s", found.ratio, note=note)


# confluent-kafka, alone and with OpenTelemetry's instrumentation


def _confluent_kafka(servers: str, pairs: int) -> Iterator[Row]:
    """Compare confluent-kafka's clients with a chain that has a trail."""
    topic, against = "peers-confluent-kafka", "trail against confluent-kafka"
    note = f"{len(VALUE)}-byte values, {len(HEADERS)} headers, flush included"
    found = _compare_produced(servers, topic, TRAIL, lambda raw: raw, pairs)
    yield _row(f"produce, {against}", found, f"{note}, {pairs} pairs of {CHUNK:,}", "confluent-kafka")
    chain: dict[str, Any] = {"chain": TRAIL}
    found = _compare_prefetched(servers, topic, _consuming, chain, lambda raw: raw, pairs)
    note = f"prefetched, {pairs} pairs of {CHUNK:,}"
    yield _row(f"consume({BATCH}), {against}", found, note, "confluent-kafka")


def _traced(servers: str, pairs: int) -> Iterator[Row]:
    """Compare the clients of the instrumentation with a chain that traces, with one SDK and no exporter."""
    trace.set_tracer_provider(TracerProvider())
    topic, against = "peers-traced", "trace against OpenTelemetry's instrumentation"
    note = f"{len(VALUE)}-byte values, {len(HEADERS)} headers, a span a record, flush included"
    found = _compare_produced(servers, topic, TRACE, ConfluentKafkaInstrumentor.instrument_producer, pairs)
    peer = "opentelemetry-instrumentation-confluent-kafka"
    yield _row(f"produce, {against}", found, f"{note}, {pairs} pairs of {CHUNK:,}", peer)
    instrumented = ConfluentKafkaInstrumentor.instrument_consumer
    chain = {"headerware.processing": "implicit", "chain": TRACE}  # processing has spans, as theirs
    for call, reading, spans in (
        ("poll", _polling, "two spans a record on each side; both of ours have a link, one of theirs"),
        (
            f"consume({BATCH})",
            _consuming,
            "two spans a batch on each side; both of ours link to each record, one of theirs",
        ),
    ):
        found = _compare_prefetched(servers, topic, reading, chain, instrumented, pairs)
        yield _row(f"{call}, {against}", found, f"{spans}, prefetched, {pairs} pairs of {CHUNK:,}", peer)


def _compare_produced(
    servers: str, topic: str, chain: Chain, wrapped: Callable[[Any], Any], pairs: int
) -> Paired:
    conf = {"bootstrap.servers": servers, **PRODUCER}
    ours, theirs = headerware.Producer(conf, chain=chain), wrapped(confluent_kafka.Producer(conf))
    found = compare(_producing(ours, topic), _producing(theirs, topic), pairs=pairs)
    ours.close()
    return found


def _compare_prefetched(
    servers: str,
    topic: str,
    reading: Callable[[Any], Chunk],
    chain: dict[str, Any],
    wrapped: Callable[[Any], Any],
    pairs: int,
) -> Paired:
    """Compare two consumers that have fetched all records, so that only the client's side is measured.

    Each has a context of its own, because it leaves its span of processing current in the context. The topic
    has the records of the pairs of producers, which are enough.
    """
    conf = {"queued.min.messages": 1_000_000, "queued.max.messages.kbytes": 1_000_000}
    raw = confluent_kafka.Consumer(_consumer_conf(servers) | conf)
    ours, theirs = headerware.Consumer(**_consumer_conf(servers), **conf, **chain), wrapped(raw)
    in_ours, in_theirs = copy_context().run, copy_context().run
    for run, consumer in ((in_ours, ours), (in_theirs, raw)):
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
        assert run(consumer.consume, 1, timeout=30)
    time.sleep(3)
    found = compare(partial(in_ours, reading(ours)), partial(in_theirs, reading(theirs)), pairs=pairs)
    in_ours(ours.close)
    in_theirs(theirs.close)
    return found


def _producing(producer: Any, topic: str) -> Chunk:
    def chunk() -> int:
        for _ in range(CHUNK):
            producer.produce(topic, VALUE, headers=list(HEADERS))  # the instrumentation adds to the list
        assert not producer.flush()
        return CHUNK

    return chunk


def _polling(consumer: Any) -> Chunk:
    def chunk() -> int:
        for _ in range(CHUNK):
            consumer.poll(10).value()
        return CHUNK

    return chunk


def _consuming(consumer: Any) -> Chunk:
    def chunk() -> int:
        seen = 0
        while seen < CHUNK:
            messages = consumer.consume(BATCH, 10)
            assert messages, "the topic ran dry in the middle of a chunk"
            for message in messages:
                message.value()
            seen += len(messages)
        return seen

    return chunk


# FastStream


class _AddHeader(BaseMiddleware):
    """A middleware of FastStream that adds a header to each published message."""

    async def publish_scope(self, call_next: Callable[[Any], Any], cmd: Any) -> Any:
        cmd.add_headers({ADDED[0]: ADDED[1].decode()})
        return await call_next(cmd)


def _faststream(servers: str, pairs: int) -> Iterator[Row]:
    """Compare a broker of FastStream with the clients for asyncio."""
    topic, against = "peers-faststream", "trail against FastStream with a middleware"
    with asyncio.Runner() as runner:
        broker, ours = runner.run(_open_faststream(servers))
        how = f"{len(VALUE)}-byte values, {len(HEADERS)} headers and what each side adds, all futures awaited"
        published = compare(
            _awaited(runner, _sent_by_ours(ours, topic)),
            _awaited(runner, _sent_by_faststream(broker, topic)),
            pairs=pairs,
        )
        note = f"{how}, {pairs} pairs of {CHUNK:,}"
        yield _row(f"asyncio publish, {against}", published, note, "faststream")
        runner.run(ours.close())
        runner.run(broker.stop())
        runs = _runs(pairs)
        _fill(servers, topic, READ)
        consumed = compare_rates(
            lambda: runner.run(_read_by_ours(servers, topic)),
            lambda: runner.run(_read_by_faststream(servers, topic)),
            pairs=runs,
            warm_up=1,
        )
        how = "a handler that does nothing, one record at a time, offsets in the background"
        note = f"{how}, {runs} pairs of {READ:,}"
        yield _row(f"asyncio consume, {against}", consumed, note, "faststream")


async def _open_faststream(servers: str) -> tuple[KafkaBroker, AsyncProducer]:
    broker = _faststream_broker(servers, config={"queue.buffering.max.messages": 200_000}, linger_ms=5)
    await broker.start()
    return broker, AsyncProducer({"bootstrap.servers": servers, **PRODUCER}, chain=TRAIL)


def _faststream_broker(servers: str, **more: Any) -> KafkaBroker:
    """Return a broker without FastStream's log line for each record, which ours has no counterpart for."""
    return KafkaBroker(servers, logger=None, middlewares=[_AddHeader], **more)


def _awaited(runner: asyncio.Runner, send: Callable[[], Any]) -> Chunk:
    async def sent() -> None:
        for delivery in [await send() for _ in range(CHUNK)]:
            await delivery

    def chunk() -> int:
        runner.run(sent())
        return CHUNK

    return chunk


def _sent_by_ours(producer: AsyncProducer, topic: str) -> Callable[[], Any]:
    return lambda: producer.produce(topic, VALUE, headers=list(HEADERS))


def _sent_by_faststream(broker: KafkaBroker, topic: str) -> Callable[[], Any]:
    """Return a function that publishes without waiting for the delivery, whose future comes back."""
    headers = {name: value.decode() for name, value in HEADERS}
    return lambda: broker.publish(VALUE, topic, headers=headers, no_confirm=True)


async def _read_by_ours(servers: str, topic: str) -> float:
    async with AsyncConsumer(_consumer_conf(servers), chain=TRAIL) as consumer:
        await consumer.subscribe([topic])
        began, seen = 0.0, 0
        async for message in consumer:
            began = began or time.perf_counter()
            assert message.error() is None
            message.value()
            seen += 1
            if seen == READ:
                break
        return READ / (time.perf_counter() - began)


async def _read_by_faststream(servers: str, topic: str) -> float:
    broker = _faststream_broker(servers)
    began, seen, rate = 0.0, 0, asyncio.get_running_loop().create_future()

    async def body(message: StreamMessage[Any]) -> bytes:
        return message.body

    @broker.subscriber(topic, group_id=_group(), auto_offset_reset="earliest", decoder=body)
    async def handle(value: bytes) -> None:  # noqa: ARG001 - a handler's signature
        nonlocal began, seen
        began = began or time.perf_counter()
        seen += 1
        if seen == READ:
            rate.set_result(READ / (time.perf_counter() - began))

    async with broker:
        await broker.start()
        found: float = await rate
    return found


# Quix Streams


def _quix_streams(servers: str, pairs: int) -> Iterator[Row]:
    """Compare a copy of a topic by Quix Streams with copies by our consumer and producer."""
    source, runs = "peers-copied", _runs(pairs)
    _fill(servers, source, COPIED)
    note = f"at least once, offsets every {COMMIT_S} s and at the end, {runs} pairs of {COPIED:,}"
    for how, copy in (("in batches", _copy_batches), ("one by one", _copy_one_by_one)):
        found = compare_rates(
            partial(_copied_by_ours, servers, source, copy),
            partial(_copied_by_quix_streams, servers, source),
            pairs=runs,
            warm_up=1,
        )
        name = f"copy a topic {how} and add a header, against Quix Streams"
        yield _row(name, found, note, "quixstreams")


class _OurHeader:
    """An interceptor that adds a header."""

    name = "add-header"

    def on_send(self, record: Record) -> Record:
        return record.with_headers(record.headers.add(*ADDED))


def _copied_by_ours(servers: str, source: str, copy: Callable[..., int]) -> float:
    """Copy a topic as Quix Streams does: flush and commit from time to time, and at the end."""
    producer = headerware.Producer(_copier_conf(servers), chain=Chain([_OurHeader()]))
    consumer = headerware.Consumer({**_consumer_conf(servers), "enable.auto.commit": False, **QUIX_CONSUMER})
    failures: list[Any] = []

    def on_delivery(error: Any, _: Any) -> None:
        if error is not None:
            failures.append(error)

    def commit() -> float:
        assert not producer.flush()
        assert not failures
        consumer.commit(asynchronous=False)
        return time.perf_counter() + COMMIT_S

    consumer.subscribe([source])
    began, commit_at, left = 0.0, math.inf, COPIED
    while left:
        copied = copy(consumer, producer, f"{source}-ours", on_delivery)
        if copied and not began:
            began = time.perf_counter()
            commit_at = began + COMMIT_S
        left -= copied
        if time.perf_counter() >= commit_at:
            commit_at = commit()
    commit()
    consumer.close()
    return COPIED / (time.perf_counter() - began)


def _copy_batches(consumer: Any, producer: headerware.Producer, topic: str, on_delivery: Any) -> int:
    messages = consumer.consume(BATCH, 1)
    records = [
        {
            "value": message.value(),
            "key": message.key(),
            "headers": message.headers(),
            "timestamp": message.timestamp()[1],
        }
        for message in messages
    ]
    assert not any(producer.produce_many(topic, records, on_delivery=on_delivery))
    producer.poll(0)
    return len(messages)


def _copy_one_by_one(consumer: Any, producer: headerware.Producer, topic: str, on_delivery: Any) -> int:
    message = consumer.poll(1)
    if message is None:
        return 0
    assert message.error() is None
    producer.produce(
        topic,
        message.value(),
        message.key(),
        headers=message.headers(),
        timestamp=message.timestamp()[1],
        on_delivery=on_delivery,
    )
    producer.poll(0)
    return 1


def _copied_by_quix_streams(servers: str, source: str) -> float:
    app = Application(
        servers,
        consumer_group=_group(),
        auto_offset_reset="earliest",
        commit_interval=COMMIT_S,
        producer_extra_config=_copier_conf(servers),
        loglevel="ERROR",
    )
    as_bytes = {
        f"{part}_{kind}": "bytes" for part in ("key", "value") for kind in ("serializer", "deserializer")
    }
    began = 0.0

    def add_header(_value: Any, _key: Any, _timestamp: int, headers: Any) -> Any:
        nonlocal began
        began = began or time.perf_counter()
        return [*headers, ADDED]

    frame = app.dataframe(app.topic(source, **as_bytes))
    frame = frame.set_headers(add_header)
    frame.to_topic(app.topic(f"{source}-quix-streams", **as_bytes))
    app.run(count=COPIED, collect=False)
    return COPIED / (time.perf_counter() - began)


def _copier_conf(servers: str) -> dict[str, Any]:
    """Return what Quix Streams sets for its producer, and what all producers here have."""
    return {
        "bootstrap.servers": servers,
        "enable.idempotence": True,
        "partitioner": "murmur2",
        **PRODUCER,
    }


# For all


def _runs(pairs: int) -> int:
    """Return how many pairs of complete runs there are: they are longer than chunks."""
    return max(3, pairs // 4)


def _group() -> str:
    return f"peers-{next(_numbers)}"


def _consumer_conf(servers: str) -> dict[str, Any]:
    return {"bootstrap.servers": servers, "group.id": _group(), "auto.offset.reset": "earliest"}


def _fill(servers: str, topic: str, records: int) -> None:
    """Write this many records."""
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, **PRODUCER})
    for _ in range(0, records, CHUNK):
        _producing(producer, topic)()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
