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

        async def make(kind: Callable[[dict[str, Any]], Any]) -> Any:
            return kind(dict(conf))

        broker.create_topic(topic := "produce-asyncio")
        ours, theirs = runner.run(make(AsyncProducer)), runner.run(make(confluent_kafka.aio.AIOProducer))
        synchronous, raw = Producer(dict(conf), chain=Chain()), confluent_kafka.Producer(conf)
        with_headers = _awaited(runner, ours, topic, {"headers": HEADERS})
        limit, called_back = _bare_futures(runner, raw, topic), _called_back(synchronous, topic)
        note = "3 headers, all futures awaited or callbacks called"
        bare = "confluent-kafka's producer on the loop's thread, with a future that each callback completes"
        for name, chunk, reference, bar, how in (
            (
                "asyncio produce, against AIOProducer",
                _awaited(runner, ours, topic, {}),
                _awaited(runner, theirs, topic, {}),
                "at least 1",
                "no headers, all futures awaited",
            ),
            (
                "asyncio produce, against our synchronous producer",
                with_headers,
                called_back,
                "at least 0.5",
                note,
            ),
            ("asyncio produce, against bare futures", with_headers, limit, "", f"{note}; {bare}"),
            (
                "bare futures, against our synchronous producer: the limit of asyncio",
                limit,
                called_back,
                "",
                f"{note}; {bare}",
            ),
        ):
            found = compare(chunk, reference, pairs=pairs)
            how = f"{how}, {pairs} pairs of {CHUNK:,}"  # noqa: PLW2901 - the rest of the same text
            yield Row(name, found.ours, found.reference, "records/s", found.ratio, bar, how)
        runner.run(ours.close())
        runner.run(theirs.close())
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


def _bare_futures(runner: asyncio.Runner, producer: confluent_kafka.Producer, topic: str) -> Chunk:
    async def produce(loop: asyncio.AbstractEventLoop) -> asyncio.Future[Any]:
        delivery: asyncio.Future[Any] = loop.create_future()

        def on_delivery(_: Any, message: Any) -> None:
            delivery.set_result(message)

        producer.produce(topic, VALUE, on_delivery=on_delivery, headers=HEADERS)
        return delivery

    async def send() -> None:
        loop = asyncio.get_running_loop()
        deliveries = [await produce(loop) for _ in range(CHUNK)]
        producer.flush()
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
