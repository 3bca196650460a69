"""Rows for asyncio: our producer against confluent-kafka's, and against our synchronous one.

Each chunk ends when all of its records are delivered. The loop's own work counts for both asyncio clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import confluent_kafka.aio
from pairing import Chunk, compare
from report import Row
from small import CHUNK, HEADERS

from headerware import AsyncProducer, Chain, Producer
from headerware.testing import KafkaBroker

VALUE = b"x" * 100


def rows(broker: KafkaBroker, *, pairs: int) -> Iterator[Row]:
    """Measure all rows for asyncio."""
    conf = {
        "bootstrap.servers": broker.bootstrap_servers,
        "linger.ms": 5,
        "queue.buffering.max.messages": 200_000,
    }
    with asyncio.Runner() as runner:

        def row(name: str, bar: str, ours: Any, chunk: Chunk, reference: Chunk, note: str) -> Row:
            found = compare(chunk, reference, pairs=pairs)
            runner.run(ours.close())
            return Row(name, found.ours, found.reference, "records/s", found.ratio, bar, note)

        async def make(kind: Callable[[dict[str, Any]], Any]) -> Any:
            return kind(dict(conf))

        broker.create_topic(topic := "produce-asyncio")
        ours, theirs = runner.run(make(AsyncProducer)), runner.run(make(confluent_kafka.aio.AIOProducer))
        note = f"no headers, all futures awaited, {pairs} pairs of {CHUNK:,}"
        yield row(
            "asyncio produce, against AIOProducer",
            "at least 1",
            ours,
            _awaited(runner, ours, topic, {}),
            _awaited(runner, theirs, topic, {}),
            note,
        )
        runner.run(theirs.close())
        ours, synchronous = runner.run(make(AsyncProducer)), Producer(dict(conf), chain=Chain())
        yield row(
            "asyncio produce, against our synchronous producer",
            "at least 0.5",
            ours,
            _awaited(runner, ours, topic, {"headers": HEADERS}),
            _called_back(synchronous, topic),
            f"3 headers, all futures awaited or callbacks called, {pairs} pairs of {CHUNK:,}",
        )
        synchronous.close()


def _awaited(runner: asyncio.Runner, producer: Any, topic: str, more: dict[str, Any]) -> Callable[[], int]:
    async def send() -> None:
        deliveries: list[Awaitable[Any]] = [
            await producer.produce(topic, VALUE, **more) for _ in range(CHUNK)
        ]
        await producer.flush()
        for delivery in deliveries:
            await delivery

    def chunk() -> int:
        runner.run(send())
        return CHUNK

    return chunk


def _called_back(producer: Producer, topic: str) -> Callable[[], int]:
    def chunk() -> int:
        delivered: list[Any] = []

        def on_delivery(_: Any, message: Any) -> None:
            delivered.append(message)

        for _ in range(CHUNK):
            producer.produce(topic, VALUE, on_delivery=on_delivery, headers=HEADERS)
        producer.flush()
        return CHUNK

    return chunk
