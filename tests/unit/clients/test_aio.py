"""The asyncio clients on the embedded cluster."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import confluent_kafka.aio
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

import headerware
from headerware import DROP, Chain, HeaderId, Headers, InterceptorError, SerdeError
from headerware.clients.aio import (
    AIOConsumer,
    AIOProducer,
    AsyncConsumer,
    AsyncDeserializingConsumer,
    AsyncProducer,
    AsyncSerializingProducer,
)
from headerware.interceptors import Slice, Trail
from tests.waiting import until_async

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from confluent_kafka import Message

    from headerware import Record, RecordMetadata
    from headerware.core.record import Operation
    from tests.unit.clients.conftest import Fill


DEADLINE_S = 60.0
Result = TypeVar("Result")


def run(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run it as an application does, but not for ever."""
    return asyncio.run(asyncio.wait_for(coroutine, DEADLINE_S))


def noise(name: str, size: int = 20_000) -> bytes:
    """Make a message of several slices."""
    return name.encode() + b" " + random.Random(name).randbytes(size)


class Heard:
    """An interceptor that remembers what it is told, and on which thread."""

    name = "heard"

    def __init__(self) -> None:
        self.sent: list[tuple[Record, int]] = []
        self.acknowledged: list[BaseException | None] = []

    def on_send(self, record: Record) -> Record:
        self.sent.append((record, threading.get_ident()))
        return record

    def on_acknowledgement(
        self, record: Record, metadata: RecordMetadata | None, error: BaseException | None
    ) -> None:
        self.acknowledged.append(error)


class Says:
    """An interceptor whose answer to each record is given."""

    name = "says"

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def on_send(self, record: Record) -> Any:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


@pytest.fixture
def reading(connection: dict[str, Any], unique_topic: Callable[[str], str]) -> dict[str, Any]:
    return {
        **connection,
        "group.id": unique_topic("group"),
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 20,
    }


async def read(consumer: AsyncConsumer, count: int) -> list[Message]:
    found: list[Message] = []
    while len(found) < count:
        found += await consumer.consume(count - len(found), 1.0)
    assert all(message.error() is None for message in found)
    return found


class TestProduce:
    def test_the_future_has_the_message_as_it_was_sent(self, connection: dict[str, Any], topic: str) -> None:
        async def main() -> Message:
            async with AsyncProducer(connection, chain=Chain([Trail()])) as producer:
                delivery = await producer.produce(
                    topic, "value", key=b"key", headers={"a": "b"}, timestamp=1_700_000_000_000
                )
                return await delivery

        message = run(main())
        assert (message.offset(), message.key(), message.value()) == (0, b"key", b"value")
        assert message.headers() == [("a", b"b")]

    @pytest.mark.parametrize("chain", [Chain(), Chain([Trail()])], ids=["no steps", "trail"])
    def test_a_report_has_the_headers_as_they_were_when_it_was_sent(
        self, connection: dict[str, Any], topic: str, chain: Chain
    ) -> None:
        async def main() -> list[Any]:
            async with AsyncProducer(connection, chain=chain) as producer:
                changed: list[tuple[str, bytes | None]] = [("a", b"1"), ("a", None)]
                forms: list[Any] = [changed, {"a": "1"}, [("a", "1")], Headers({"a": "1"}), [], None]
                deliveries = [await producer.produce(topic, b"x", headers=form) for form in forms]
                changed.append(("b", b"2"))
                return [(await delivery).headers() for delivery in deliveries]

        assert run(main()) == [[("a", b"1"), ("a", None)], *[[("a", b"1")]] * 3, None, None]

    def test_buffers_and_ids_need_no_chain(
        self, connection: dict[str, Any], topic: str, make_consumer: Callable[..., Any]
    ) -> None:
        async def main() -> Any:
            async with AsyncProducer(connection) as producer:
                value: Any = bytearray(b"1")
                headers: Any = iter([(HeaderId("0.0.0.5"), b"x")])
                return (await (await producer.produce(topic, value, headers=headers))).headers()

        reported = run(main())
        message = make_consumer(topic=topic).poll(60)
        assert reported
        assert (message.value(), message.headers()) == (b"1", reported)

    def test_what_was_sent_is_there(
        self, connection: dict[str, Any], topic: str, make_consumer: Callable[..., Any]
    ) -> None:
        async def main() -> None:
            async with AsyncProducer(connection) as producer:
                await producer.produce(topic, b"1", headers=[("a", b"b"), ("a", None)])

        run(main())
        message = make_consumer(topic=topic).poll(60)
        assert (message.value(), message.headers()) == (b"1", [("a", b"b"), ("a", None)])

    def test_order_stays_when_slices_wait_on_a_thread(
        self, connection: dict[str, Any], topic: str, make_consumer: Callable[..., Any]
    ) -> None:
        values = [noise(str(at)) if at % 5 == 0 else b"%d" % at for at in range(60)]

        async def main() -> None:
            async with AsyncProducer(connection, chain=Chain([Slice(max_bytes=5_000)])) as producer:
                await asyncio.gather(*[producer.produce(topic, value) for value in values])

        run(main())
        consumer = make_consumer(Slice(max_bytes=5_000), topic=topic)
        found = [consumer.poll(60).value() for _ in values]
        assert found == values

    def test_hooks_run_on_the_loop_in_the_tasks_context(self, connection: dict[str, Any], topic: str) -> None:
        variable = contextvars.ContextVar("variable", default="")
        seen: list[str] = []

        class Sees:
            name = "sees"

            def on_send(self, record: Record) -> Record:
                seen.append(variable.get())
                return record

        heard = Heard()

        async def main() -> None:
            variable.set("the task's")
            async with AsyncProducer(connection, chain=Chain([heard, Sees(), Slice(max_bytes=5_000)])) as it:
                await it.produce(topic, b"first, for which partitions are looked up on a thread")
                await until_async(lambda: not it._hw_worker.busy)
                await it.produce(topic, b"second")

        run(main())
        assert seen == ["the task's"] * 2
        assert heard.sent[1][1] == threading.get_ident()

    def test_a_refused_record_raises(self, connection: dict[str, Any], topic: str) -> None:
        async def main() -> None:
            async with AsyncProducer(connection, chain=Chain([Says(ValueError("no"))])) as producer:
                with pytest.raises(InterceptorError):
                    await producer.produce(topic, b"1")

        run(main())

    def test_a_dropped_record_is_reported_at_once(self, connection: dict[str, Any], topic: str) -> None:
        async def main() -> Any:
            async with AsyncProducer(connection, chain=Chain([Says(DROP)])) as producer:
                return await (await producer.produce(topic, b"1"))

        with pytest.raises(KafkaException) as caught:
            run(main())
        assert caught.value.args[0].code() == KafkaError.POLICY_VIOLATION

    @pytest.mark.parametrize("only_errors", [False, True])
    def test_callbacks_run_on_the_loop(
        self, connection: dict[str, Any], topic: str, *, only_errors: bool
    ) -> None:
        heard: list[int] = []

        async def main() -> None:
            async def on_delivery(error: Any, message: Message) -> None:
                await asyncio.sleep(0)
                heard.append(threading.get_ident())

            conf = {**connection, "delivery.report.only.error": only_errors}
            async with AsyncProducer(conf) as producer:
                await (await producer.produce(topic, b"1", on_delivery=on_delivery))
                await asyncio.sleep(0)

        run(main())
        assert heard == ([] if only_errors else [threading.get_ident()])

    @pytest.mark.parametrize("chain", [Chain(), Chain([Trail()])], ids=["no steps", "trail"])
    def test_reports_come_to_the_loop_while_tasks_flush(
        self, connection: dict[str, Any], topic: str, chain: Chain
    ) -> None:
        heard: list[int] = []

        async def main() -> None:
            async with AsyncProducer(connection, chain=chain) as producer:

                async def send() -> None:
                    for _ in range(2_000):
                        await producer.produce(
                            topic, b"x", on_delivery=lambda _, __: heard.append(threading.get_ident())
                        )

                async def flush() -> None:
                    while len(heard) < 4_000:
                        await producer.flush()
                        await asyncio.sleep(0)

                await asyncio.gather(send(), send(), flush(), flush())

        run(main())
        assert heard == [threading.get_ident()] * 4_000

    def test_flush_leaves_reports_to_the_loop(self, connection: dict[str, Any], topic: str) -> None:
        count, threads = 2_000, list[int]()

        class Hears:
            name = "hears"

            def on_acknowledgement(self, *_: object) -> None:
                threads.append(threading.get_ident())

        async def main() -> int:
            conf = {**connection, "linger.ms": 60_000}  # none is sent before flush
            async with AsyncProducer(conf, chain=Chain([Hears()])) as producer:
                for at in range(count):
                    await producer.produce(topic, b"%d" % at)
                assert await producer.flush() == 0
                return threading.get_ident()

        on_loop = threads.count(run(main()))
        assert len(threads) == count
        assert on_loop > 0.9 * count, f"other threads took {count - on_loop} of {count}"

    def test_a_flush_that_has_ended_does_not_go_on(
        self, connection: dict[str, Any], topic: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def goes_on(left: float) -> int:
            time.sleep(min(left, 0.1))
            return 1

        async def main() -> None:
            with ThreadPoolExecutor(1) as executor:
                async with AsyncProducer(connection, executor=executor, chain=Chain()) as producer:
                    with monkeypatch.context() as patch:
                        # As librdkafka's does while records are sent; they would not linger.
                        patch.setattr(producer._hw_core, "await_reports", goes_on)
                        await producer.produce(topic, b"x")
                        await producer.flush()
                        await asyncio.wait_for(asyncio.wrap_future(executor.submit(int)), 10)

        run(main())

    def test_a_callback_that_raises_is_the_loops_to_report(
        self, connection: dict[str, Any], topic: str
    ) -> None:
        reported: list[dict[str, Any]] = []

        async def main() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

            def on_delivery(error: Any, message: Message) -> None:
                raise ValueError("of the application")

            async with AsyncProducer(connection) as producer:
                await (await producer.produce(topic, b"1", on_delivery=on_delivery))

        run(main())
        assert [str(context["exception"]) for context in reported] == ["of the application"]

    def test_a_failure_that_nobody_looks_at_is_the_loops_to_report(self) -> None:
        reported: list[dict[str, Any]] = []

        async def main() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
            nowhere = {"bootstrap.servers": "localhost:1", "message.timeout.ms": 100, "log_level": 0}
            async with AsyncProducer(nowhere, chain=Chain([Trail(service="a", cluster="a")])) as producer:
                for _ in range(3):
                    await producer.produce("orders", b"1")

        run(main())
        assert [str(context["message"]) for context in reported] == [
            "Future exception was never retrieved"
        ] * 3

    def test_statistics_come_to_the_loop(self, connection: dict[str, Any]) -> None:
        async def main() -> int:
            heard: list[int] = []
            conf = {
                **connection,
                "statistics.interval.ms": 10,
                "stats_cb": lambda _: heard.append(threading.get_ident()),
            }
            async with AsyncProducer(conf) as producer:
                await producer.flush()
                await until_async(lambda: bool(heard))
            return heard[0]

        assert run(main()) == threading.get_ident()

    def test_the_callers_configuration_stays_as_it_was(self, connection: dict[str, Any]) -> None:
        conf = {**connection, "error_cb": print, "interceptors": "trail"}
        before = dict(conf)

        async def main() -> None:
            async with AsyncProducer(conf) as producer:
                assert producer.chain.names == ("trail",) or list(producer.chain.names) == ["trail"]

        run(main())
        assert conf == before


class TestBackPressure:
    @pytest.mark.parametrize("chain", [Chain(), Chain([Trail()])], ids=["no steps", "trail"])
    def test_a_full_queue_makes_tasks_wait(
        self, connection: dict[str, Any], topic: str, chain: Chain
    ) -> None:
        conf = {**connection, "queue.buffering.max.messages": 10}
        count = 2_000

        async def main() -> tuple[list[int | None], int]:
            most = 0
            async with AsyncProducer(conf, chain=chain) as producer:

                async def send(at: int) -> Message:
                    nonlocal most
                    delivery = await producer.produce(topic, b"%d" % at)
                    most = max(most, producer.stats()["client"]["queued"])
                    return await delivery

                messages = await asyncio.gather(*map(send, range(count)))
            return [message.offset() for message in messages], most

        offsets, most = run(main())
        assert offsets == list(range(count))
        assert most <= 20  # len() counts reports, too, for a moment beside their messages

    def test_a_message_that_never_fits_is_refused(self, connection: dict[str, Any], topic: str) -> None:
        conf = {**connection, "queue.buffering.max.messages": 3}

        async def main() -> None:
            async with AsyncProducer(conf, chain=Chain([Slice(max_bytes=5_000)])) as producer:
                with pytest.raises(BufferError, match="could never fit"):
                    await producer.produce(topic, noise("large"))

        run(main())

    def test_no_thread_is_started_for_a_call(self, connection: dict[str, Any], topic: str) -> None:
        async def main() -> int:
            conf = {**connection, "queue.buffering.max.messages": 100}
            async with AsyncProducer(conf, chain=Chain([Slice(max_bytes=5_000)])) as producer:
                before = threading.active_count()
                values = [noise(str(at)) if at % 50 == 0 else b"x" for at in range(1_000)]
                await asyncio.gather(*[producer.produce(topic, value) for value in values])
                await producer.flush()
                return threading.active_count() - before

        assert run(main()) <= 2  # the poller is started before; here the worker's, and flush's


class TestCancellation:
    def test_a_record_that_waits_is_not_sent(self, connection: dict[str, Any], topic: str) -> None:
        heard = Heard()
        conf = {**connection, "queue.buffering.max.messages": 1, "linger.ms": 60_000}

        async def main() -> int:
            async with AsyncProducer(conf, chain=Chain([heard])) as producer:
                await producer.produce(topic, b"first")
                tasks = [asyncio.create_task(producer.produce(topic, b"%d" % at)) for at in range(5)]
                await until_async(lambda: producer.stats()["client"]["waits_for_room"] > 0)
                for task in tasks[1:]:
                    task.cancel()
                await asyncio.wait(tasks[1:])
                assert all(task.cancelled() for task in tasks[1:])
                await producer.flush()
                return (await (await tasks[0])).offset() or 0

        assert run(main()) == 1
        # Those behind the one that waited on the thread had not met the chain.
        assert [record.value for record, _ in heard.sent] == [b"first", b"0"]
        assert heard.acknowledged == [None, None]

    def test_a_sliced_message_is_sent_whole_or_not(
        self, connection: dict[str, Any], topic: str, make_consumer: Callable[..., Any]
    ) -> None:
        conf = {**connection, "queue.buffering.max.messages": 20}
        chance = random.Random(7)
        sent: set[bytes] = set()

        async def main() -> None:
            async with AsyncProducer(conf, chain=Chain([Slice(max_bytes=5_000)])) as producer:

                async def send(at: int) -> None:
                    value = noise(str(at), chance.randrange(30_000))
                    await (await producer.produce(topic, value))
                    sent.add(value)

                tasks = [asyncio.create_task(send(at)) for at in range(100)]
                for task in chance.sample(tasks, 50):
                    await asyncio.sleep(chance.random() * 0.004)
                    task.cancel()
                await asyncio.wait(tasks)
                await (await producer.produce(topic, b"last"))

        run(main())
        consumer = make_consumer(Slice(max_bytes=5_000), topic=topic)
        found: list[bytes] = []
        while not found or found[-1] != b"last":
            message = consumer.poll(60)
            assert message is not None, "the last message never came"
            assert message.error() is None
            found.append(message.value())
        whole = {noise(value.split(b" ", 1)[0].decode(), 0) for value in found[:-1]}
        assert sent <= set(found)
        assert len(whole) == len(found) - 1
        slices = consumer.stats()["slice"]
        assert (slices["orphans"], slices["pending_messages"], slices["expired"]) == (0, 0, 0)


class TestTheProducersEnd:
    def test_futures_are_done_when_it_is_closed(self, connection: dict[str, Any], topic: str) -> None:
        async def main() -> bool:
            async with AsyncProducer(connection) as producer:
                deliveries = [await producer.produce(topic, b"x") for _ in range(5_000)]
            return all(delivery.done() for delivery in deliveries) and len(producer) == 0

        assert run(main())

    def test_flush_waits_for_what_waits_for_room(self, connection: dict[str, Any], topic: str) -> None:
        async def main() -> tuple[int, int]:
            async with AsyncProducer({**connection, "queue.buffering.max.messages": 5}) as producer:
                tasks = [asyncio.create_task(producer.produce(topic, b"x")) for _ in range(100)]
                await asyncio.sleep(0)
                left = await producer.flush()
                return left, sum(task.done() for task in tasks)

        assert run(main()) == (0, 100)

    def test_closes_behind_every_flush(self, connection: dict[str, Any], topic: str) -> None:
        async def main() -> tuple[list[int], bool]:
            async with AsyncProducer(connection) as producer:
                deliveries = [await producer.produce(topic, b"x") for _ in range(100)]
                left = await asyncio.gather(*[producer.flush() for _ in range(4)])
            return left, all(delivery.done() for delivery in deliveries)

        for _ in range(10):
            assert run(main()) == ([0] * 4, True)

    def test_purged_records_fail(self, connection: dict[str, Any], topic: str) -> None:
        async def main() -> int:
            async with AsyncProducer({**connection, "linger.ms": 60_000}) as producer:
                delivery = await producer.produce(topic, b"x")
                await producer.purge()
                with pytest.raises(KafkaException) as caught:
                    await delivery
                return int(caught.value.args[0].code())

        assert run(main()) == KafkaError._PURGE_QUEUE

    def test_poll_counts_deliveries(self, connection: dict[str, Any], topic: str) -> None:
        async def main() -> tuple[int, int]:
            async with AsyncProducer(connection) as producer:
                await producer.produce(topic, b"x")
                return await producer.poll(60), await producer.poll(0)

        assert run(main()) == (1, 0)

    def test_a_closed_producer_says_so(self, connection: dict[str, Any], topic: str) -> None:
        async def main() -> None:
            producer = AsyncProducer({**connection, "client.id": "shop"})
            await producer.close()
            await producer.close()
            record = f"; the record for topic '{topic}' was not sent"
            with pytest.raises(RuntimeError, match=rf"^Producer closed \(AsyncProducer shop\){record}$"):
                await producer.produce(topic, b"x")
            with pytest.raises(RuntimeError, match=r"^Producer closed \(AsyncProducer shop\)$"):
                await producer.flush()

        run(main())

    def test_another_loop_is_refused(self, connection: dict[str, Any], topic: str) -> None:
        producer = AsyncProducer(connection)
        run(producer.flush())
        with pytest.raises(RuntimeError, match="belongs to a closed event loop"):
            run(producer.produce(topic, b"x"))

    def test_lets_other_tasks_run_while_there_is_room(self, connection: dict[str, Any], topic: str) -> None:
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async def main() -> int:
            async with AsyncProducer(connection, chain=Chain([Trail()])) as producer:
                await producer.flush()  # so that it has begun
                beside = asyncio.create_task(others())
                before = turns
                for _ in range(10_000):
                    await producer.produce(topic, b"x", headers={"a": "b"})
                beside.cancel()
                return turns - before

        assert run(main()) >= 10


class TestConsume:
    def test_gives_messages_through_the_chain(
        self, connection: dict[str, Any], reading: dict[str, Any], topic: str
    ) -> None:
        async def main() -> list[Any]:
            chain = Chain([Trail(), Slice(max_bytes=5_000)])
            async with AsyncProducer(connection, chain=chain) as producer:
                await producer.produce(topic, noise("large"), headers={"a": "b"})
                await producer.produce(topic, b"small")
            async with AsyncConsumer(reading, chain=chain) as consumer:
                await consumer.subscribe([topic])
                return [await consumer.poll(60), *await consumer.consume(1, 60)]

        found = run(main())
        assert [message.value() for message in found] == [noise("large"), b"small"]
        assert ("a", b"b") in found[0].headers()

    def test_cancelled_fetches_lose_nothing_and_are_not_told(
        self, fill: Fill, reading: dict[str, Any], topic: str
    ) -> None:
        class Hears:
            def on_consume(self, record: Record) -> Record:
                return record

            def on_operation(self, operation: Operation) -> None:
                assert threading.current_thread() is threading.main_thread()
                told.extend(record.value for record in operation.records)

        told: list[Any] = []
        values = [b"%d" % at for at in range(300)]
        fill(*values)
        chance = random.Random(3)

        async def main() -> tuple[list[Any], int]:
            found: list[Any] = []
            cancelled = 0
            async with AsyncConsumer(reading, chain=Chain([Trail(), Hears()])) as consumer:
                await consumer.assign([TopicPartition(topic, 0)])
                while len(found) < len(values):
                    fetch = consumer.poll(5) if chance.random() < 0.5 else consumer.consume(3, 0.2)
                    task = asyncio.ensure_future(fetch)
                    if chance.random() < 0.5:
                        for _ in range(chance.randrange(4)):
                            await asyncio.sleep(0)
                        task.cancel()
                    try:
                        messages = await task
                    except asyncio.CancelledError:
                        cancelled += 1
                        continue
                    found += messages if isinstance(messages, list) else [messages]
            return [message.value() for message in found], cancelled

        found, cancelled = run(main())
        assert found == told == values
        assert cancelled > 10

    def test_what_a_cancelled_poll_fetched_is_not_committed(
        self, fill: Fill, reading: dict[str, Any], topic: str
    ) -> None:
        fill(b"0", b"1")

        async def main() -> tuple[Any, Any]:
            async with AsyncConsumer(reading) as consumer:
                await consumer.assign([TopicPartition(topic, 0)])
                first = await consumer.poll(60)
                assert first is not None
                # Cancelled when the message is there, but before the task has it.
                task = asyncio.ensure_future(consumer.poll(60))
                await asyncio.sleep(0)
                deadline = time.monotonic() + DEADLINE_S
                while consumer._hw_worker.busy:
                    assert time.monotonic() < deadline, "the message never came"
                    time.sleep(0.001)  # noqa: ASYNC251 - the loop must not give it to the task
                task.cancel()
                await asyncio.wait([task])
                assert task.cancelled()
            async with AsyncConsumer(reading) as consumer:
                await consumer.assign([TopicPartition(topic, 0)])
                second = await consumer.poll(60)
                return first.value(), second and second.value()

        assert run(main()) == (b"0", b"1")

    def test_other_calls_do_not_wait_for_a_poll(self, reading: dict[str, Any], topic: str) -> None:
        async def main() -> float:
            async with AsyncConsumer(reading) as consumer:
                await consumer.assign([TopicPartition(topic, 0)])
                polling = asyncio.ensure_future(consumer.poll(60))
                await until_async(lambda: consumer._hw_worker.current is not None)
                began = time.monotonic()
                assert [each.topic for each in await consumer.assignment()] == [topic]
                await consumer.pause([TopicPartition(topic, 0)])
                waited = time.monotonic() - began
                polling.cancel()
                await asyncio.wait([polling])
                return waited

        assert run(main()) < 30

    def test_rebalance_callbacks_may_call_the_consumer(
        self, fill: Fill, reading: dict[str, Any], topic: str
    ) -> None:
        fill(b"0", b"1")
        calls: list[str] = []

        async def main() -> Any:
            async def on_assign(consumer: AsyncConsumer, partitions: list[TopicPartition]) -> None:
                calls.append("assigned")
                with pytest.raises(RuntimeError, match="cannot fetch"):
                    await consumer.poll(0)
                await consumer.assign([TopicPartition(topic, 0, 1)])

            def on_revoke(consumer: AsyncConsumer, partitions: list[TopicPartition]) -> None:
                calls.append("revoked")

            async with AsyncConsumer(reading) as consumer:
                await consumer.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke)
                message = await consumer.poll(60)
                return message and message.value()

        assert run(main()) == b"1"
        assert calls == ["assigned", "revoked"]

    def test_on_commit_runs_on_the_loop(self, fill: Fill, reading: dict[str, Any], topic: str) -> None:
        fill(b"0")
        heard: list[int] = []

        async def main() -> None:
            async def on_commit(error: Any, partitions: list[TopicPartition]) -> None:
                heard.append(threading.get_ident())

            async with AsyncConsumer({**reading, "on_commit": on_commit}) as consumer:
                await consumer.assign([TopicPartition(topic, 0)])
                await consumer.poll(60)
                await consumer.commit()
                while not heard:
                    await consumer.poll(0.05)

        run(main())
        assert heard[0] == threading.get_ident()

    def test_iterates_until_it_is_closed(self, fill: Fill, reading: dict[str, Any], topic: str) -> None:
        fill(b"0", b"1")

        async def main() -> list[Any]:
            found: list[Any] = []
            consumer = AsyncConsumer(reading)
            await consumer.assign([TopicPartition(topic, 0)])

            async def iterate() -> None:
                async for message in consumer:
                    found.append(message.value())  # noqa: PERF401 - it is looked at meanwhile

            task = asyncio.ensure_future(iterate())
            await until_async(lambda: len(found) == 2)
            await consumer.close()
            await task
            return found

        assert run(main()) == [b"0", b"1"]

    def test_a_closed_consumer_says_so(self, reading: dict[str, Any]) -> None:
        async def main() -> None:
            consumer = AsyncConsumer(reading)
            await consumer.close()
            await consumer.close()
            with pytest.raises(RuntimeError, match=r"^Consumer closed \(AsyncConsumer\)$"):
                await consumer.poll(1)

        run(main())

    def test_a_refused_record_is_raised_once(self, fill: Fill, reading: dict[str, Any], topic: str) -> None:
        fill(b"0", headers={"hw.slice": b"nonsense"})
        fill(b"1")

        async def main() -> Any:
            async with AsyncConsumer(reading, chain=Chain([Slice()])) as consumer:
                await consumer.assign([TopicPartition(topic, 0)])
                with pytest.raises(headerware.HeaderwareError):
                    await consumer.poll(60)
                message = await consumer.poll(60)
                return message and message.value()

        assert run(main()) == b"1"

    def test_processing_is_current_in_the_task(self, fill: Fill, reading: dict[str, Any], topic: str) -> None:
        fill(b"0")
        current = contextvars.ContextVar("current", default="")
        told: list[BaseException | None] = []

        class Scope:
            def __enter__(self) -> None:
                self.token = current.set("processing")

            def __exit__(self, *_: object) -> None:
                current.reset(self.token)

        class Surrounds:
            name = "surrounds"

            def on_consume(self, record: Record) -> Record:
                return record

            def processing(self, records: Any) -> Scope:
                return Scope()

            def on_processed(self, record: Record, error: BaseException | None) -> None:
                told.append(error)

        async def main() -> list[str]:
            async with AsyncConsumer(reading, chain=Chain([Surrounds()])) as consumer:
                await consumer.assign([TopicPartition(topic, 0)])
                message = await consumer.poll(60)
                assert message is not None
                async with consumer.processing(message):
                    await asyncio.sleep(0)
                    inside = current.get()
                return [inside, current.get()]

        assert run(main()) == ["processing", ""]
        assert told == [None]

    def test_returns_nothing_from_before_a_seek(self, reading: dict[str, Any], topic: str, fill: Any) -> None:
        fill(b"a", b"b", b"c", b"d")

        async def main() -> None:
            async with AsyncConsumer(reading, chain=Chain([Trail()])) as consumer:
                await consumer.assign([TopicPartition(topic, 0)])
                first = await consumer.poll(60)
                assert first is not None  # and librdkafka has the others, too
                release = threading.Event()
                calls: list[asyncio.Future[Any]] = []
                for call in (
                    consumer._hw_worker.run(lambda: release.wait(60)),
                    consumer.poll(60),
                    consumer.seek(TopicPartition(topic, 0, 3)),
                ):
                    calls.append(asyncio.ensure_future(call))
                    await asyncio.sleep(0)
                release.set()
                _, found, _ = await asyncio.gather(*calls)
                assert found.value() == b"d"
                committed = await consumer.commit(asynchronous=False)
                assert committed[0].offset == 4

        run(main())


class TestSerializing:
    def test_serdes_may_be_awaited(
        self, connection: dict[str, Any], reading: dict[str, Any], topic: str
    ) -> None:
        async def shout(value: str, context: Any) -> bytes:
            await asyncio.sleep(0)
            return value.upper().encode()

        class Whisper:
            async def __call__(self, payload: bytes) -> str:
                await asyncio.sleep(0)
                return payload.decode().lower()

        async def main() -> tuple[Any, Any]:
            producer = await AsyncSerializingProducer(
                {**connection, "value.serializer": shout, "key.serializer": "string"}, chain=Chain([Trail()])
            )
            await (await producer.produce(topic, "key", "Value", headers={"a": "b"}))
            await producer.close()
            async with AsyncDeserializingConsumer(
                {**reading, "value.deserializer": Whisper(), "key.deserializer": "string"},
                chain=Chain([Trail()]),
            ) as consumer:
                await consumer.assign([TopicPartition(topic, 0)])
                message = await consumer.poll(60)
                assert message is not None
                return message.key(), message.value()

        assert run(main()) == ("key", "value")

    @pytest.mark.skipif(
        not hasattr(confluent_kafka.Producer, "cluster_id"), reason="older ones have no resolver to ask with"
    )
    def test_confluents_own_may_ask_for_the_cluster_meanwhile(
        self, connection: dict[str, Any], reading: dict[str, Any], topic: str
    ) -> None:
        # A deserializer asks while the thread that would answer in turn waits for it.
        from confluent_kafka.schema_registry import AsyncSchemaRegistryClient, avro  # noqa: PLC0415 - an extra's

        schema = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'

        async def main() -> Any:
            registry = AsyncSchemaRegistryClient.new_client({"url": "mock://aio"})
            serializer = await avro.AsyncAvroSerializer(registry, schema)
            async with AsyncSerializingProducer({**connection, "value.serializer": serializer}) as producer:
                await (await producer.produce(topic, value={"id": 1}))
            deserializer = await avro.AsyncAvroDeserializer(registry, schema)
            async with AsyncDeserializingConsumer(
                {**reading, "value.deserializer": deserializer}
            ) as consumer:
                await consumer.subscribe([topic])
                message = await consumer.poll(60)
                return message and message.value()

        assert run(main()) == {"id": 1}

    def test_a_serializer_that_fails_is_a_serde_error(self, connection: dict[str, Any], topic: str) -> None:
        async def fails(value: Any, context: Any) -> bytes:
            raise ValueError("secret")

        async def main() -> None:
            async with AsyncSerializingProducer({**connection, "value.serializer": fails}) as producer:
                with pytest.raises(SerdeError) as caught:
                    await producer.produce(topic, value="x")
                assert "secret" not in str(caught.value)

        run(main())

    def test_asynchronous_builders_are_awaited_and_closed(
        self, connection: dict[str, Any], topic: str
    ) -> None:
        closed: list[bool] = []

        class Serializer:
            async def __call__(self, value: str, context: Any) -> bytes:
                return value.encode()

            async def aclose(self) -> None:
                closed.append(True)

        class Builder:
            async def build(self, conf: dict[str, Any], is_key: bool) -> Any:  # noqa: FBT001 - theirs
                assert not is_key
                return Serializer(), {name: value for name, value in conf.items() if name != "its.own"}

        async def main() -> Any:
            conf = {**connection, "value.serializer.builder": Builder(), "its.own": 1}
            async with AsyncSerializingProducer(conf) as producer:
                return (await (await producer.produce(topic, value="x"))).value()

        run(main())
        assert closed == [True]

    def test_one_that_failed_may_be_awaited_again(self, connection: dict[str, Any]) -> None:
        class Builder:
            failures = 1

            async def build(self, conf: dict[str, Any], is_key: bool) -> Any:  # noqa: FBT001 - theirs
                await asyncio.sleep(0)
                if self.failures:
                    self.failures -= 1
                    raise OSError("no answer")
                return str.encode, conf

        async def main() -> None:
            producer: Any = AsyncSerializingProducer({**connection, "value.serializer.builder": Builder()})
            made: Any = await asyncio.gather(
                producer._hw_ready(), producer._hw_ready(), return_exceptions=True
            )
            assert isinstance(made[0], OSError)
            assert made[1] is producer
            await producer.close()

        run(main())

    def test_one_that_was_not_awaited_says_so(self, connection: dict[str, Any]) -> None:
        with pytest.raises(
            AttributeError, match=r"not made yet, .* `client = await AsyncSerializingProducer\(\.\.\.\)`"
        ):
            _ = AsyncSerializingProducer(connection).chain


class TestDropIn:
    @pytest.mark.parametrize(
        ("ours", "theirs"),
        [
            (AIOProducer, confluent_kafka.aio.AIOProducer),
            (AIOConsumer, confluent_kafka.aio.AIOConsumer),
        ],
    )
    def test_no_public_method_of_theirs_is_left(self, ours: type, theirs: type) -> None:
        methods = [name for name, _ in inspect.getmembers(theirs, inspect.isfunction) if name[0] != "_"]
        assert [name for name in methods if getattr(ours, name) is getattr(theirs, name)] == []

    @pytest.mark.parametrize(
        ("ours", "theirs"),
        [
            (AIOProducer, confluent_kafka.aio.AIOProducer),
            (AIOConsumer, confluent_kafka.aio.AIOConsumer),
        ],
    )
    def test_the_constructors_take_the_same(self, ours: type, theirs: type) -> None:
        def parameters(kind: type) -> list[str]:
            return [name for name in inspect.signature(kind).parameters if name != "chain"]

        assert parameters(ours) == parameters(theirs)
        assert issubclass(ours, theirs)
