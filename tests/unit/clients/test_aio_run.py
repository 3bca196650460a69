"""The lifecycle of records in asyncio: ``run``, ``messages`` and implicit processing."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import threading
import time
from collections import defaultdict
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaException, TopicPartition

from headerware import Chain, Context, Interceptor, InterceptorError
from headerware.clients import Consumer, Producer
from headerware.clients.aio import AsyncConsumer
from headerware.core.errors import ConfigError
from headerware.core.plugins import interceptor_type
from tests.unit.clients.test_aio import run
from tests.unit.clients.test_executor import HearsStops, read_all
from tests.waiting import until_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
    from pathlib import Path

    from confluent_kafka import Message

    from headerware import Record

CURRENT: contextvars.ContextVar[tuple[bytes, ...]] = contextvars.ContextVar("processed now", default=())
LOG: list[tuple[Any, ...]] = []


class Lifecycle:
    """Makes the values current that are processed, and writes down when that begins and ends."""

    @contextmanager
    def processing(self, records: Sequence[Record]) -> Iterator[None]:
        values = tuple(record.value for record in records)
        LOG.append(("begin", *values))
        token = CURRENT.set(values)
        try:
            yield
        finally:
            LOG.append(("end", *values))
            with suppress(ValueError):  # it ends in another context
                CURRENT.reset(token)

    def on_processed(self, record: Record, error: BaseException | None) -> None:
        LOG.append(("processed", record.value, None if error is None else type(error).__name__))


class LifecycleOptions(Interceptor, frozen=True, kw_only=True):
    """Lifecycle, for configuration."""

    def open(self, context: Context) -> object:
        return Lifecycle()


class RefusesBad:
    """Refuses one value, and takes the first letter of the others away."""

    def on_consume(self, record: Record) -> Record:
        if record.value == b"refused":
            raise InterceptorError("no")
        return record.with_value(record.value[1:])


@pytest.fixture(autouse=True)
def log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(interceptor_type._built_in, "lifecycle", f"{__name__}:LifecycleOptions")
    LOG.clear()


def scope(value: bytes, error: str | None = None) -> list[tuple[Any, ...]]:
    """Return what is written down while one record is processed."""
    return [("begin", value), ("end", value), ("processed", value, error)]


@pytest.fixture
def opened(connection: dict[str, Any], topic: str) -> Callable[..., Any]:
    """Open a consumer of the topic's partition 0, with these interceptors and this configuration."""

    @asynccontextmanager
    async def opened(*interceptors: Any, **conf: Any) -> AsyncIterator[AsyncConsumer]:
        own = {"group.id": topic, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 20}
        given = {name.replace("_", "."): value for name, value in conf.items()}
        chain = Chain(list(interceptors)) if interceptors else None
        async with AsyncConsumer({**connection, **own, **given}, chain=chain) as consumer:
            await consumer.assign([TopicPartition(topic, 0)])
            yield consumer

    return opened


async def committed(consumer: AsyncConsumer, topic: str) -> int:
    (found,) = await consumer.committed([TopicPartition(topic, 0)], 10)
    return found.offset


async def committed_is(consumer: AsyncConsumer, topic: str, offset: int) -> None:
    while await committed(consumer, topic) != offset:  # noqa: ASYNC110 - the broker tells nobody
        await asyncio.sleep(0.01)


def seen_by(
    consumer: AsyncConsumer, stop_after: int, *, fails: int = 99
) -> tuple[list[Any], Callable[[Message], Awaitable[None]]]:
    """Return what a handler has seen, and the handler, which fails at times on b"bad"."""
    values: list[Any] = []

    async def handle(message: Message) -> None:
        nonlocal fails
        await asyncio.sleep(0)
        values.append(message.value())
        if len(values) >= stop_after:
            consumer.stop()
        if message.value() == b"bad" and fails:
            fails -= 1
            raise ValueError("payload")

    return values, handle


class TestRun:
    def test_keeps_the_order_of_keys_and_works_in_parallel(
        self, connection: dict[str, Any], topic: str, opened: Callable[..., Any]
    ) -> None:
        with Producer(connection) as producer:
            for number in range(60):
                producer.produce(topic, str(number).encode(), str(number % 6).encode(), 0)
        seen: dict[Any, list[int]] = defaultdict(list)
        together, most, threads = 0, 0, set[int]()

        async def main() -> int:
            async with opened() as consumer:

                async def handle(message: Message) -> None:
                    nonlocal together, most
                    threads.add(threading.get_ident())
                    together += 1
                    most = max(most, together)
                    await asyncio.sleep(0.002)
                    together -= 1
                    seen[message.key()].append(int(message.value() or b""))
                    if sum(map(len, seen.values())) == 60:
                        consumer.stop()

                await consumer.run(handle, workers=4)
                assert consumer.stats()["client"]["processed"] == 60
                return await committed(consumer, topic)

        assert run(main()) == 60
        assert 2 <= most <= 4
        assert threads == {threading.get_ident()}
        assert all(numbers == sorted(numbers) for numbers in seen.values())

    def test_commits_nothing_behind_a_record_at_work(
        self, topic: str, fill: Callable[..., None], opened: Callable[..., Any]
    ) -> None:
        fill(b"a", b"slow", b"c")

        async def main() -> tuple[int, int]:
            others, go_on = list[Any](), asyncio.Event()
            async with opened(auto_commit_interval_ms=10) as consumer:

                async def handle(message: Message) -> None:
                    if message.value() == b"slow":
                        await go_on.wait()
                    others.append(message.value())

                runs = asyncio.ensure_future(consumer.run(handle, order="none"))
                await until_async(lambda: len(others) == 2)
                # Between the first two records, a commit at offset 0 may come.
                while (before := await committed(consumer, topic)) < 1:
                    pass
                go_on.set()
                consumer.stop()
                await runs
                return before, await committed(consumer, topic)

        assert run(main()) == (1, 3)

    def test_each_task_has_the_context_of_run_and_its_own_record(
        self, fill: Callable[..., None], opened: Callable[..., Any]
    ) -> None:
        fill(b"a", b"b", b"c")
        mark = contextvars.ContextVar("mark", default="none")
        found: list[Any] = []

        async def main() -> None:
            mark.set("of run")
            async with opened(Lifecycle()) as consumer:

                async def handle(message: Message) -> None:
                    before = mark.get()
                    mark.set("of a handler")
                    await asyncio.sleep(0.01)
                    found.append((message.value(), CURRENT.get(), before))
                    if len(found) == 3:
                        consumer.stop()

                await consumer.run(handle, order="none")

        run(main())
        assert sorted(found) == [(value, (value,), "of run") for value in (b"a", b"b", b"c")]
        assert sorted(LOG) == sorted([*scope(b"a"), *scope(b"b"), *scope(b"c")])

    def test_has_the_options_of_the_synchronous_one(self) -> None:
        def options(function: Callable[..., Any]) -> dict[str, Any]:
            parameters = inspect.signature(function).parameters
            return {name: each.default for name, each in parameters.items()}

        assert options(AsyncConsumer.run) == options(Consumer.run)

    def test_goes_on_with_another_chain(
        self, topic: str, fill: Callable[..., None], opened: Callable[..., Any], tmp_path: Path
    ) -> None:
        file = tmp_path / "chain.toml"
        file.write_text('[[interceptors]]\ntype = "trail"\nservice = "a"\n')
        fill(b"a")

        async def main() -> tuple[list[Any], int]:
            seen = list[Any]()
            async with opened(headerware_config=str(file), headerware_reload="watch") as consumer:
                first = consumer.chain

                async def handle(message: Message) -> None:
                    seen.append(message.value())
                    if len(seen) == 1:
                        file.write_text('[[interceptors]]\ntype = "trail"\nservice = "b"\n')
                        await until_async(lambda: bool(consumer.chain != first))
                        fill(b"b")
                    else:
                        # What a handler asks of the consumer is done, with the new chain, too.
                        assert await consumer.position([TopicPartition(topic, 0)])
                        consumer.stop()

                await consumer.run(handle)
                return seen, await committed(consumer, topic)

        assert run(main()) == ([b"a", b"b"], 2)


class TestFailures:
    def test_raise_ends_run_before_the_record(
        self, topic: str, fill: Callable[..., None], opened: Callable[..., Any]
    ) -> None:
        fill(b"a", b"bad", b"c")

        async def main() -> tuple[list[Any], int, list[Any]]:
            async with opened() as consumer:
                values, handle = seen_by(consumer, 99)
                with pytest.raises(ValueError, match="payload") as raised:
                    await consumer.run(handle)
                assert raised.value.__notes__ == [f"while {topic}[0]@1 was processed"]
                at = await committed(consumer, topic)
                rest = [message.value() for message in await consumer.consume(2, 60)]
                return values, at, rest

        assert run(main()) == ([b"a", b"bad"], 1, [b"bad", b"c"])

    def test_skip_goes_on_and_retries_tell_of_the_end_once(
        self, topic: str, fill: Callable[..., None], opened: Callable[..., Any]
    ) -> None:
        fill(b"bad", b"bad", b"c")

        async def main() -> tuple[list[Any], int, dict[str, int]]:
            async with opened(Lifecycle()) as consumer:
                values, handle = seen_by(consumer, 5, fails=3)
                await consumer.run(handle, on_failure="skip", attempts=2, backoff_s=0.01)
                return values, await committed(consumer, topic), consumer.stats()["client"]

        values, at, counts = run(main())
        assert values == [b"bad"] * 4 + [b"c"]
        assert at == 3
        assert (counts["processed"], counts["skipped"], counts["retried"]) == (2, 1, 2)
        told = [entry[1:] for entry in LOG if entry[0] == "processed"]
        assert told == [(b"bad", "ValueError"), (b"bad", None), (b"c", None)]

    def test_interceptors_hear_of_records_that_are_given_up(
        self, fill: Callable[..., None], opened: Callable[..., Any]
    ) -> None:
        fill(b"xbad")
        hears = HearsStops()

        async def main() -> None:
            async with opened(hears, RefusesBad()) as consumer:
                _, handle = seen_by(consumer, 1)
                await consumer.run(handle, on_failure="dead_letter")

        run(main())
        assert hears.stopped == [(b"xbad", "processing", "dead_lettered", "ValueError")]

    def test_dead_letters_are_as_they_were_on_the_wire(
        self, connection: dict[str, Any], topic: str, fill: Callable[..., None], opened: Callable[..., Any]
    ) -> None:
        fill(b"xbad", b"refused", b"xc")

        async def main() -> tuple[list[Any], int]:
            async with opened(RefusesBad()) as consumer:
                values, handle = seen_by(consumer, 2)
                await consumer.run(handle, on_failure="dead_letter")
                return values, await committed(consumer, topic)

        assert run(main()) == ([b"bad", b"c"], 3)
        letters = read_all(connection, f"{topic}.dead-letter", 2)
        assert sorted(letter.value() or b"" for letter in letters) == [b"refused", b"xbad"]

    def test_a_handler_that_was_cancelled_ends_run(
        self, topic: str, fill: Callable[..., None], opened: Callable[..., Any]
    ) -> None:
        fill(b"a")

        async def main() -> int:
            async def handle(message: Message) -> None:
                raise asyncio.CancelledError

            async with opened() as consumer:
                with pytest.raises(RuntimeError, match=r"the handler of .+\[0\]@\d was cancelled"):
                    await consumer.run(handle, on_failure="skip")
                return await committed(consumer, topic)

        assert run(main()) == 0

    def test_refuses_what_is_no_function_and_warns_of_no_subscription(
        self, connection: dict[str, Any], topic: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def main() -> None:
            async with AsyncConsumer(
                {**connection, "group.id": topic}, chain=Chain([RefusesBad()])
            ) as consumer:
                with pytest.raises(TypeError, match=r"^expected a function as handler, found str$"):
                    await consumer.run("handle")  # type: ignore[arg-type]
                assert not caplog.messages
                consumer.stop()
                await consumer.run(asyncio.sleep)  # type: ignore[arg-type]  # never called
                aiter(consumer)
                consumer.messages()

        run(main())
        found = [text.partition(" waits for records")[0] for text in caplog.messages]
        assert found == ["AsyncConsumer: run", "AsyncConsumer: async for", "AsyncConsumer: messages"]

    def test_refuses_a_function_that_cannot_be_awaited_before_any_record(
        self, opened: Callable[..., Any]
    ) -> None:
        async def main() -> None:
            async with opened() as consumer:
                with pytest.raises(TypeError, match=r"expected a coroutine function .* found .*<lambda>;"):
                    await consumer.run(lambda _: None, on_failure="skip")

        run(main())

    def test_refuses_a_coroutine_function_that_a_decorator_made_a_plain_one(
        self, topic: str, fill: Callable[..., None], opened: Callable[..., Any]
    ) -> None:
        fill(b"a")

        async def handle(_: Message) -> None:
            """Never called."""

        @functools.wraps(handle)
        def decorated(_: Message) -> None:
            """Await nothing."""

        async def main() -> None:
            async with opened() as consumer:
                with pytest.raises(TypeError, match="its result cannot be awaited"):
                    await consumer.run(decorated, on_failure="skip")

        run(main())


class TestWhatHandlersMayCall:
    def test_a_seek_forgets_what_was_read(
        self, topic: str, fill: Callable[..., None], opened: Callable[..., Any]
    ) -> None:
        fill(*[b"%d" % number for number in range(10)])
        values: list[Any] = []

        async def main() -> None:
            async with opened(auto_commit_interval_ms=10) as consumer:
                sought = False

                async def handle(message: Message) -> None:
                    nonlocal sought
                    values.append(message.value())
                    if message.value() == b"5" and not sought:
                        await committed_is(consumer, topic, 5)
                        await consumer.seek(TopicPartition(topic, 0, 2))
                        sought = True
                    elif message.value() == b"2" and sought:
                        await committed_is(consumer, topic, 2)
                    elif message.value() == b"9" and sought:
                        consumer.stop()

                async with asyncio.timeout(20):
                    await consumer.run(handle, order="partition")
                assert await committed(consumer, topic) == 10

        run(main())
        assert values == [b"%d" % number for number in [*range(6), *range(2, 10)]]

    @pytest.mark.parametrize("target", [2, 8])
    @pytest.mark.parametrize("how", ["assign", "unassign", "incremental_unassign"])
    def test_another_assignment_forgets_what_was_read(
        self, topic: str, fill: Callable[..., None], opened: Callable[..., Any], how: str, target: int
    ) -> None:
        fill(*[b"%d" % number for number in range(10)])
        values: list[Any] = []

        async def assign_anew(consumer: AsyncConsumer) -> None:
            if how == "incremental_unassign":
                await consumer.incremental_unassign([TopicPartition(topic, 0)])
            elif how == "unassign":
                await consumer.unassign()
            if how != "assign":
                assert await committed(consumer, topic) == 5
            await consumer.assign([TopicPartition(topic, 0, target)])

        async def main() -> None:
            async with opened() as consumer:
                done = False

                async def handle(message: Message) -> None:
                    nonlocal done
                    values.append(message.value())
                    if message.value() == b"5" and not done:
                        done = True
                        await assign_anew(consumer)
                    elif message.offset() == target and done:
                        await committed_is(consumer, topic, target)
                    elif message.value() == b"9" and done:
                        consumer.stop()

                async with asyncio.timeout(20):
                    await consumer.run(handle, order="partition")
                assert await committed(consumer, topic) == 10

        run(main())
        assert values == [b"%d" % number for number in [*range(6), *range(target, 10)]]

    def test_offsets_of_their_own_are_refused_and_a_commit_of_what_is_processed_is_not(
        self, topic: str, fill: Callable[..., None], opened: Callable[..., Any]
    ) -> None:
        fill(b"a", b"b")

        async def main() -> None:
            async with opened() as consumer:

                async def handle(message: Message) -> None:
                    for call in (consumer.store_offsets, consumer.commit):
                        with pytest.raises(KafkaException, match="run is under way"):
                            await call(message)
                    await consumer.commit(asynchronous=True)
                    if message.value() == b"b":
                        consumer.stop()

                await consumer.run(handle, order="partition")
                assert await committed(consumer, topic) == 2

        run(main())


class TestTheEndOfRun:
    def test_what_was_read_and_not_processed_is_read_again(
        self, topic: str, fill: Callable[..., None], opened: Callable[..., Any]
    ) -> None:
        fill(*[b"%d" % number for number in range(40)])

        async def main() -> tuple[list[Any], int]:
            async with opened() as consumer:
                values, handle = seen_by(consumer, 5)

                async def slowly(message: Message) -> None:
                    await asyncio.sleep(0.01)  # so that others wait when it is stopped
                    await handle(message)

                await consumer.run(slowly)
                rest, handle_rest = seen_by(consumer, 40 - len(values))
                await consumer.run(handle_rest)
                return [*values, *rest], await committed(consumer, topic)

        assert run(main()) == ([b"%d" % number for number in range(40)], 40)

    def test_a_cancelled_run_cancels_handlers_and_commits_what_was_processed(
        self, topic: str, fill: Callable[..., None], opened: Callable[..., Any]
    ) -> None:
        fill(b"a", b"stuck", b"c")

        async def main() -> tuple[int, list[Any]]:
            stuck, cancelled = asyncio.Event(), list[bool]()
            async with opened() as consumer:

                async def handle(message: Message) -> None:
                    if message.value() == b"stuck":
                        stuck.set()
                        try:
                            await asyncio.Event().wait()
                        finally:
                            cancelled.append(True)

                runs = asyncio.ensure_future(consumer.run(handle))
                await stuck.wait()
                runs.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await runs
                assert cancelled == [True]
                at = await committed(consumer, topic)
                return at, [message.value() for message in await consumer.consume(2, 60)]

        assert run(main()) == (1, [b"stuck", b"c"])

    def test_one_that_never_began_leaves_nothing_behind(
        self, topic: str, fill: Callable[..., None], opened: Callable[..., Any]
    ) -> None:
        async def main() -> list[Any]:
            async with opened() as consumer:
                fetch = asyncio.ensure_future(consumer.consume(1, 60))
                await until_async(lambda: consumer._hw_worker.current is not None)
                runs = asyncio.ensure_future(consumer.run(seen_by(consumer, 1)[1]))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                runs.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await runs
                fill(b"a", b"b")
                first = [message.value() for message in await fetch]
                values, handle = seen_by(consumer, 1)
                await consumer.run(handle)
                return first + values

        assert run(main()) == [b"a", b"b"]

    def test_handlers_that_outlast_stop_timeout_s_are_cancelled(
        self, topic: str, fill: Callable[..., None], opened: Callable[..., Any]
    ) -> None:
        fill(b"a")
        ended: list[str] = []

        async def main() -> int:
            async with opened() as consumer:

                async def handle(message: Message) -> None:
                    consumer.stop()
                    try:
                        await asyncio.Event().wait()
                    except asyncio.CancelledError:
                        ended.append("cancelled")
                        raise

                await consumer.run(handle, stop_timeout_s=0.1)
                assert ended == ["cancelled"]
                return await committed(consumer, topic)

        assert run(main()) == 0

    def test_close_ends_it_and_lets_handlers_use_the_consumer_until_then(
        self, topic: str, fill: Callable[..., None], opened: Callable[..., Any]
    ) -> None:
        fill(b"a")
        done: list[Any] = []

        async def main() -> float:
            began = asyncio.Event()
            async with opened() as consumer:

                async def handle(message: Message) -> None:
                    with pytest.raises(RuntimeError, match="a handler cannot close"):
                        await consumer.close()
                    with pytest.raises(RuntimeError, match="run is under way"):
                        await consumer.poll(1)
                    with pytest.raises(ConfigError, match="run is under way"):
                        await consumer.run(handle)
                    began.set()
                    await until_async(lambda: consumer._hw_closing is not None)
                    done.append(await consumer.position([TopicPartition(topic, 0)]))

                runs = asyncio.ensure_future(consumer.run(handle))
                await began.wait()
                started = time.monotonic()
                await consumer.close()
                await runs
                with pytest.raises(RuntimeError, match="closed"):
                    await consumer.run(handle)
                return time.monotonic() - started

        assert run(main()) < 15  # and not stop_timeout_s
        assert len(done) == 1


class TestImplicit:
    def test_is_current_in_the_task_until_its_next_call(
        self, fill: Callable[..., None], opened: Callable[..., Any]
    ) -> None:
        fill(b"a", b"b", b"c")

        async def main() -> None:
            async with opened(interceptors="lifecycle") as consumer:
                assert await consumer.poll(60) is not None
                assert CURRENT.get() == (b"a",)
                assert LOG == [("begin", b"a")]
                await asyncio.sleep(0)
                assert CURRENT.get() == (b"a",)
                assert len(await consumer.consume(2, 60)) == 2
                assert CURRENT.get() == (b"b", b"c")
                assert await consumer.poll(0) is None
                assert CURRENT.get() == ()

        run(main())
        batch = [
            ("begin", b"b", b"c"),
            ("end", b"b", b"c"),
            ("processed", b"b", None),
            ("processed", b"c", None),
        ]
        assert [*scope(b"a"), *batch] == LOG

    def test_is_each_task_s_own_and_ends_with_it(
        self, fill: Callable[..., None], opened: Callable[..., Any]
    ) -> None:
        fill(b"a", b"b")

        async def main() -> None:
            async with opened(interceptors="lifecycle") as consumer:

                async def take() -> None:
                    message = await consumer.poll(60)
                    assert message is not None
                    await asyncio.sleep(0.01)
                    assert CURRENT.get() == (message.value(),)
                    if message.value() == b"b":
                        raise ValueError

                await asyncio.gather(take(), take(), return_exceptions=True)
                assert sorted(LOG, key=str) == sorted([*scope(b"a"), *scope(b"b", "ValueError")], key=str)

        run(main())

    def test_a_cancelled_fetch_begins_none(
        self, topic: str, fill: Callable[..., None], opened: Callable[..., Any]
    ) -> None:
        async def main() -> None:
            async with opened(interceptors="lifecycle") as consumer:
                fetch = asyncio.ensure_future(consumer.poll(60))
                await until_async(lambda: consumer._hw_worker.current is not None)
                fill(b"a")
                fetch.cancel()
                with suppress(asyncio.CancelledError):
                    await fetch
                assert LOG == []
                assert await consumer.poll(60) is not None
                assert LOG == [("begin", b"a")]

        run(main())

    def test_ends_with_the_subscription(self, fill: Callable[..., None], opened: Callable[..., Any]) -> None:
        fill(b"a")

        async def main() -> None:
            async with opened(interceptors="lifecycle") as consumer:
                assert await consumer.poll(60) is not None
                await consumer.unsubscribe()
                assert CURRENT.get() == ()
                assert scope(b"a") == LOG

        run(main())

    @pytest.mark.parametrize("fails", [True, False])
    def test_ends_with_the_consumer(
        self, fill: Callable[..., None], opened: Callable[..., Any], fails: Any
    ) -> None:
        fill(b"a")

        async def main() -> None:
            async with opened(interceptors="lifecycle") as consumer:
                await consumer.poll(60)
                assert 1 // (not fails)

        with suppress(ZeroDivisionError):
            run(main())
        assert scope(b"a", "ZeroDivisionError" if fails else None) == LOG

    def test_ends_for_good_with_the_first_explicit_use(
        self, fill: Callable[..., None], opened: Callable[..., Any]
    ) -> None:
        fill(b"a", b"b")

        async def main() -> None:
            async with opened(interceptors="lifecycle") as consumer:
                message = await consumer.poll(60)
                LOG.clear()
                async with consumer.processing(message):
                    assert CURRENT.get() == (b"a",)
                await consumer.poll(60)

        run(main())
        assert [("end", b"a"), *scope(b"a")] == LOG

    @pytest.mark.parametrize("conf", [{}, {"interceptors": "lifecycle", "headerware_processing": "explicit"}])
    def test_is_not_of_chains_in_code_nor_of_those_that_say_so(
        self, fill: Callable[..., None], opened: Callable[..., Any], conf: dict[str, Any]
    ) -> None:
        fill(b"a")

        async def main() -> None:
            async with opened(*([] if conf else [Lifecycle()]), **conf) as consumer:
                assert await consumer.poll(60) is not None

        run(main())
        assert LOG == []


class TestMessages:
    def test_each_is_in_processing_during_the_body(
        self, fill: Callable[..., None], opened: Callable[..., Any]
    ) -> None:
        fill(b"a", b"b")

        async def main() -> None:
            async with opened(Lifecycle()) as consumer:
                async for message in consumer.messages():
                    await asyncio.sleep(0)
                    assert CURRENT.get() == (message.value(),)
                    if message.value() == b"b":
                        consumer.stop()
                assert [message async for message in consumer.messages(timeout=0.1)] == []

        run(main())
        assert [*scope(b"a"), *scope(b"b")] == LOG

    @pytest.mark.parametrize("fails", [True, False])
    def test_a_with_block_tells_why_it_ends(
        self, fill: Callable[..., None], opened: Callable[..., Any], fails: Any
    ) -> None:
        fill(b"a")

        async def main() -> None:
            async with opened(Lifecycle()) as consumer:
                with suppress(ZeroDivisionError):
                    async with consumer.messages() as messages:
                        async for _ in messages:
                            assert 1 // (not fails)
                            break

        run(main())
        assert scope(b"a", "ZeroDivisionError" if fails else None) == LOG

    def test_close_ends_it(self, opened: Callable[..., Any]) -> None:
        async def main() -> list[Any]:
            async with opened(Lifecycle()) as consumer:

                async def read() -> list[Any]:
                    return [message async for message in consumer.messages()]

                reads = asyncio.ensure_future(read())
                await until_async(lambda: consumer._hw_worker.current is not None)
                await consumer.close()
                return await reads

        assert run(main()) == []
