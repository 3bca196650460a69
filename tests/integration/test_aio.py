"""The asyncio clients on a real broker: many at once, cancellation, transactions, and a broker that stops."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from headerware import Chain
from headerware.clients.aio import AsyncConsumer, AsyncProducer
from headerware.interceptors import Slice, Trail

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from confluent_kafka import Message

    from tests.integration.conftest import Cluster
    from tests.integration.gate import GatedBroker

pytestmark = pytest.mark.broker
SECONDS = 60.0


def reading(cluster: Cluster, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": cluster.servers,
        "group.id": f"aio-{random.randrange(1 << 40):x}",
        "auto.offset.reset": "earliest",
        **more,
    }


async def read(
    conf: dict[str, Any], topic: str, chain: Chain, is_last: Callable[[Message], bool]
) -> list[Message]:
    """Read up to the last message, or fail."""
    found: list[Message] = []
    deadline = time.monotonic() + SECONDS
    async with AsyncConsumer(conf, chain=chain) as consumer:
        await consumer.subscribe([topic])
        while not found or not is_last(found[-1]):
            assert time.monotonic() < deadline, f"only {len(found)} messages came"
            found += await consumer.consume(500, 0.5)
    assert [message.error() for message in found if message.error() is not None] == []
    return found


class TestManyAtOnce:
    def test_ten_thousand_sends_keep_order_in_each_partition(self, cluster: Cluster) -> None:
        topic = cluster.topic("aio-many", partitions=4)
        count = 10_000
        sent_ms = 1_700_000_000_000

        async def main() -> tuple[list[Message], list[Message], int]:
            conf = {"bootstrap.servers": cluster.servers, "queue.buffering.max.messages": 1_000}
            async with AsyncProducer(conf, chain=Chain([Trail()])) as producer:
                await producer.list_topics(topic)
                await producer.flush()
                threads = threading.active_count()

                async def send(at: int) -> Message:
                    headers = {"at": str(at)}
                    delivery = await producer.produce(
                        topic, b"%d" % at, partition=at % 4, headers=headers, timestamp=sent_ms + at
                    )
                    return await delivery

                sent = await asyncio.gather(*map(send, range(count)))
                more = threading.active_count() - threads
            came: list[Message] = []
            async with AsyncConsumer(reading(cluster), chain=Chain([Trail()])) as consumer:
                await consumer.subscribe([topic])
                deadline = time.monotonic() + SECONDS
                while len(came) < count:
                    assert time.monotonic() < deadline, f"only {len(came)} messages came"
                    came += await consumer.consume(1_000, 0.5)
            return sent, came, more

        sent, came, more = asyncio.run(main())
        for partition in range(4):
            mine = [message for message in sent if message.partition() == partition]
            assert [message.offset() for message in mine] == list(range(count // 4))
            read = [message for message in came if message.partition() == partition]
            expected = [(b"%d" % at, sent_ms + at) for at in range(partition, count, 4)]
            assert [(message.value(), message.timestamp()[1]) for message in read] == expected
            assert all(("at", message.value()) in (message.headers() or []) for message in read)
        assert more <= 2


class TestCancellation:
    def test_each_message_is_there_whole_or_not_at_all(self, cluster: Cluster) -> None:
        topic = cluster.topic("aio-cancel")
        chain = Chain([Slice(max_bytes=5_000)])
        chance = random.Random(11)
        values = {at: b"%d " % at + chance.randbytes(chance.randrange(30_000)) for at in range(600)}
        delivered: set[int] = set()

        async def main() -> list[Message]:
            conf = {"bootstrap.servers": cluster.servers, "queue.buffering.max.messages": 50}
            async with AsyncProducer(conf, chain=chain) as producer:

                async def send(at: int) -> None:
                    await (await producer.produce(topic, values[at]))
                    delivered.add(at)

                tasks = [asyncio.create_task(send(at)) for at in values]
                for task in chance.sample(tasks, 300):
                    await asyncio.sleep(chance.random() * 0.002)
                    task.cancel()
                await asyncio.wait(tasks)
                await (await producer.produce(topic, b"last"))
            return await read(reading(cluster), topic, chain, lambda message: message.value() == b"last")

        found = [message.value() for message in asyncio.run(main())][:-1]
        numbers = [int(value.split(b" ", 1)[0]) for value in found if value is not None]
        assert found == [values[number] for number in numbers]
        assert numbers == sorted(set(numbers))
        assert delivered <= set(numbers)
        assert len(delivered) < len(values)


class TestTransactions:
    def test_what_is_committed_comes_and_what_is_aborted_does_not(self, cluster: Cluster) -> None:
        source, topic = cluster.topic("aio-source"), cluster.topic("aio-transactions")
        chain = Chain([Trail(), Slice(max_bytes=5_000)])
        large = random.Random(1).randbytes(20_000)

        async def main() -> tuple[list[Message], int]:
            servers = {"bootstrap.servers": cluster.servers}
            async with AsyncProducer(servers, chain=chain) as producer:
                await producer.produce(source, b"in")
            conf = reading(cluster, **{"enable.auto.commit": False})
            own = {**servers, "transactional.id": topic}
            async with (
                AsyncConsumer(conf, chain=chain) as consumer,
                AsyncProducer(own, chain=chain) as producer,
            ):
                await consumer.subscribe([source])
                assert await consumer.poll(SECONDS) is not None
                await producer.init_transactions(SECONDS)
                await producer.begin_transaction()
                await producer.produce(topic, b"aborted")
                await producer.abort_transaction(SECONDS)
                await producer.begin_transaction()
                task = asyncio.create_task(producer.produce(topic, large))
                await asyncio.sleep(0)
                await producer.produce(topic, b"last", headers={"a": "b"})
                metadata = await consumer.consumer_group_metadata()
                partitions = await consumer.assignment()
                offsets = await consumer.position(partitions)
                await producer.send_offsets_to_transaction(offsets, metadata, SECONDS)
                await producer.commit_transaction(SECONDS)
                assert (await task).done()
                committed = (await consumer.committed(partitions, SECONDS))[0].offset
            final = reading(cluster, **{"isolation.level": "read_committed"})
            return await read(final, topic, chain, lambda message: message.value() == b"last"), committed

        found, committed = asyncio.run(main())
        assert [message.value() for message in found] == [large, b"last"]
        assert committed == 1


class TestRun:
    def test_a_partition_that_goes_to_another_consumer_is_finished_and_committed_first(
        self, cluster: Cluster
    ) -> None:
        topic = cluster.topic("aio-run", partitions=2)
        conf = reading(cluster, **{"group.id": topic, "heartbeat.interval.ms": 200})
        count = 400
        seen: list[tuple[str, int]] = []

        async def main() -> list[int]:
            async with AsyncProducer({"bootstrap.servers": cluster.servers}) as producer:
                for at in range(count):
                    await producer.produce(topic, b"%d" % at, key=b"%d" % (at % 8), partition=at % 2)
            first_reads, both_read = asyncio.Event(), asyncio.Event()
            async with AsyncConsumer(conf) as first, AsyncConsumer(conf) as second:

                def handler(name: str) -> Callable[[Message], Awaitable[None]]:
                    async def handle(message: Message) -> None:
                        first_reads.set()
                        # Slowly, until the other one has its share.
                        await asyncio.sleep(0.005 if both_read.is_set() else 0.2)
                        seen.append((name, int(message.value() or b"")))
                        if len({at for _, at in seen}) == count:
                            first.stop()
                            second.stop()

                    return handle

                await first.subscribe([topic])
                begun = asyncio.ensure_future(first.run(handler("first"), workers=4))
                await first_reads.wait()
                await second.subscribe([topic], on_assign=lambda _, share: both_read.set() if share else None)
                await asyncio.gather(begun, second.run(handler("second"), workers=4))
                committed = await first.committed([TopicPartition(topic, each) for each in (0, 1)])
                return [each.offset for each in committed]

        committed = asyncio.run(asyncio.wait_for(main(), SECONDS))
        assert committed == [count // 2, count // 2]
        assert {name for name, _ in seen} == {"first", "second"}
        # Each once, although partitions moved; and the records of a key in order.
        assert sorted(at for _, at in seen) == list(range(count))
        for key in range(8):
            of_key = [at for _, at in seen if at % 8 == key]
            assert of_key == sorted(of_key)


class TestAStoppedBroker:
    def test_sends_fail_and_the_loop_goes_on(
        self, second_cluster: Cluster, second_broker: GatedBroker
    ) -> None:
        topic = second_cluster.topic("aio-stopped")

        async def main() -> tuple[set[int], int]:
            conf = {
                "bootstrap.servers": second_cluster.servers,
                "message.timeout.ms": 2_000,
                "queue.buffering.max.messages": 5,
                "log_level": 0,
            }
            async with AsyncProducer(conf, chain=Chain([Trail()])) as producer:

                async def send(at: int) -> int:
                    try:
                        await (await producer.produce(topic, b"%d" % at))
                    except KafkaException as error:
                        return int(error.args[0].code())
                    return 0

                while await send(0):  # until it is connected
                    pass
                await asyncio.to_thread(second_broker.cut)
                ticks = 0
                tasks = [asyncio.create_task(send(at)) for at in range(10)]
                while not all(task.done() for task in tasks):
                    ticks += 1
                    await asyncio.sleep(0.01)
                return {task.result() for task in tasks}, ticks

        try:
            codes, ticks = asyncio.run(asyncio.wait_for(main(), SECONDS))
        finally:
            second_broker.admit()
        assert codes == {KafkaError._MSG_TIMED_OUT}
        assert ticks > 10
