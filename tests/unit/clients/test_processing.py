"""The lifecycle of a consumed record: explicit, in a loop, and implicit."""

from __future__ import annotations

import inspect
import traceback
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition

from headerware import carrying
from headerware.clients import Consumer
from headerware.clients.run_options import RunOptions
from headerware.core.errors import ConfigError
from headerware.core.hooks import Interceptor
from headerware.core.plugins import interceptor_type
from tests.unit.clients.conftest import Fill, MakeConsumer, take

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from headerware.core.context import Context
    from headerware.core.record import Record

LOG: list[tuple[Any, ...]] = []


class Lifecycle:
    """Writes down when processing begins and ends, and of which records it hears that they are processed."""

    @contextmanager
    def processing(self, records: Sequence[Record]) -> Iterator[None]:
        values = [record.value for record in records]
        LOG.append(("begin", *values))
        error = None
        try:
            yield
        except BaseException as raised:
            error = type(raised).__name__
            raise
        finally:
            LOG.append(("end", *values, error))

    def on_processed(self, record: Record, error: BaseException | None) -> None:
        LOG.append(("processed", record.value, None if error is None else type(error).__name__))


class HearsProcessed:
    """Hears of the end only."""

    def on_processed(self, record: Record, error: BaseException | None) -> None:
        LOG.append(("processed", record.value, None if error is None else type(error).__name__))


class LifecycleOptions(Interceptor, frozen=True, kw_only=True):
    """Lifecycle, for configuration."""

    def open(self, context: Context) -> object:
        return Lifecycle()


@pytest.fixture(autouse=True)
def log() -> list[tuple[Any, ...]]:
    LOG.clear()
    return LOG


def scope(value: bytes, error: str | None = None) -> list[tuple[Any, ...]]:
    """Return what is written down while one record is processed."""
    return [("begin", value), ("end", value, error), ("processed", value, error)]


class TestImplicit:
    def test_lasts_until_the_next_call(self, topic: str, fill: Fill, make_consumer: MakeConsumer) -> None:
        fill(b"a", b"b")
        consumer = make_consumer(Lifecycle(), topic=topic, headerware_processing="implicit")
        take(consumer, 1)
        assert LOG == [("begin", b"a")]
        take(consumer, 1)
        assert [*scope(b"a"), ("begin", b"b")] == LOG
        assert consumer.poll(0) is None
        assert [*scope(b"a"), *scope(b"b")] == LOG

    def test_is_of_a_whole_batch(self, topic: str, fill: Fill, make_consumer: MakeConsumer) -> None:
        fill(b"a", b"b")
        consumer = make_consumer(Lifecycle(), topic=topic, headerware_processing="implicit")
        assert len(consumer.consume(2, 60)) == 2
        assert LOG == [("begin", b"a", b"b")]
        consumer.close()
        assert LOG[1:] == [("end", b"a", b"b", None), ("processed", b"a", None), ("processed", b"b", None)]

    @pytest.mark.parametrize("ends", [Consumer.close, Consumer.unsubscribe])
    def test_ends_with_the_client(
        self, topic: str, fill: Fill, make_consumer: MakeConsumer, ends: Any
    ) -> None:
        fill(b"a")
        consumer = make_consumer(Lifecycle(), topic=topic, headerware_processing="implicit")
        take(consumer, 1)
        ends(consumer)
        assert scope(b"a") == LOG

    def test_hears_why_a_with_block_of_the_client_ends(
        self, topic: str, fill: Fill, make_consumer: MakeConsumer
    ) -> None:
        fill(b"a")
        consumer = make_consumer(Lifecycle(), topic=topic, headerware_processing="implicit")
        with consumer:
            take(consumer, 1)
            consumer.__exit__(ValueError, ValueError(), None)
        assert scope(b"a", "ValueError") == LOG

    def test_tells_those_that_only_hear_the_end(
        self, topic: str, fill: Fill, make_consumer: MakeConsumer
    ) -> None:
        fill(b"a")
        consumer = make_consumer(HearsProcessed(), topic=topic, headerware_processing="implicit")
        take(consumer, 1)
        consumer.close()
        assert LOG == [("processed", b"a", None)]

    @pytest.mark.parametrize(("mode", "expected"), [(None, 1), ("explicit", 0), ("implicit", 1)])
    def test_is_the_default_of_chains_from_configuration(
        self,
        connection: dict[str, Any],
        topic: str,
        fill: Fill,
        monkeypatch: pytest.MonkeyPatch,
        mode: Any,
        expected: int,
    ) -> None:
        monkeypatch.setitem(interceptor_type._built_in, "lifecycle", f"{__name__}:LifecycleOptions")
        fill(b"a")
        conf = {**connection, "group.id": topic, "interceptors": "lifecycle"}
        if mode:
            conf["headerware.processing"] = mode
        with Consumer(conf) as consumer:
            consumer.assign([TopicPartition(topic, 0, 0)])
            take(consumer, 1)
        assert scope(b"a") * expected == LOG

    def test_is_not_the_default_of_chains_in_code(
        self, topic: str, fill: Fill, make_consumer: MakeConsumer
    ) -> None:
        fill(b"a")
        consumer = make_consumer(Lifecycle(), topic=topic)
        take(consumer, 1)
        consumer.close()
        assert LOG == []

    def test_ends_for_good_with_the_first_explicit_use(
        self, topic: str, fill: Fill, make_consumer: MakeConsumer
    ) -> None:
        fill(b"a", b"b")
        consumer = make_consumer(Lifecycle(), topic=topic, headerware_processing="implicit")
        (message,) = take(consumer, 1)
        LOG.clear()
        with consumer.processing(message):
            pass
        take(consumer, 1)
        consumer.close()
        # Surrounded once more, but told of once.
        assert [("end", b"a", None), *scope(b"a")] == LOG

    def test_refuses_other_words(self, connection: dict[str, Any]) -> None:
        with pytest.raises(ConfigError, match=r"headerware\.processing: expected 'implicit' or 'explicit'"):
            Consumer({**connection, "group.id": "g", "headerware.processing": "on"})


class TestMessages:
    def test_each_is_in_processing_during_the_body(
        self, topic: str, fill: Fill, make_consumer: MakeConsumer
    ) -> None:
        fill(b"a", b"b")
        consumer = make_consumer(Lifecycle(), topic=topic)
        for message in consumer.messages():
            LOG.append(("body", message.value()))
            if message.value() == b"b":
                consumer.stop()
        a, b = scope(b"a"), scope(b"b")
        assert [a[0], ("body", b"a"), *a[1:], b[0], ("body", b"b"), *b[1:]] == LOG

    def test_ends_when_none_comes_in_time(self, topic: str, make_consumer: MakeConsumer) -> None:
        assert list(make_consumer(Lifecycle(), topic=topic).messages(timeout=0.2)) == []

    def test_a_loop_that_is_left_early_does_not_say_why(
        self, topic: str, fill: Fill, make_consumer: MakeConsumer
    ) -> None:
        fill(b"a")
        consumer = make_consumer(Lifecycle(), topic=topic)
        for _ in consumer.messages():
            break
        assert scope(b"a", "GeneratorExit") == LOG

    @pytest.mark.parametrize("fails", [True, False])
    def test_a_with_block_tells_why(
        self, topic: str, fill: Fill, make_consumer: MakeConsumer, fails: Any
    ) -> None:
        fill(b"a")
        consumer = make_consumer(Lifecycle(), topic=topic)
        with suppress(ZeroDivisionError), consumer.messages() as messages:
            for _ in messages:
                assert 1 // (not fails)
                break
        assert scope(b"a", "ZeroDivisionError" if fails else None) == LOG

    def test_works_without_a_chain(self, topic: str, fill: Fill, make_consumer: MakeConsumer) -> None:
        fill(b"a")
        assert [m.value() for m in make_consumer(topic=topic).messages(timeout=5)][:1] == [b"a"]


@pytest.mark.parametrize("mode", ["implicit", "loop", "explicit"])
def test_an_error_keeps_its_traceback(topic: str, fill: Fill, make_consumer: MakeConsumer, mode: str) -> None:
    fill(b"a")
    seen: list[list[str]] = []

    class SeesTraceback(Lifecycle):
        @contextmanager
        def processing(self, records: Sequence[Record]) -> Iterator[None]:
            try:
                yield
            except ValueError as error:
                seen.append([frame.name for frame in traceback.extract_tb(error.__traceback__)])
                raise

    conf = {"headerware_processing": "implicit"} if mode == "implicit" else {}
    consumer = make_consumer(SeesTraceback(), SeesTraceback(), topic=topic, **conf)
    with pytest.raises(ValueError, match="no") as raised:
        process(consumer, mode)
    assert raised.traceback[-1].name == "fail"
    assert len(seen) == 2
    assert all("fail" in names for names in seen)


def process(consumer: Consumer, mode: str) -> None:
    if mode == "implicit":
        with consumer:
            take(consumer, 1)
            fail()
    elif mode == "loop":
        with consumer.messages() as messages:
            for _ in messages:
                fail()
    else:
        with consumer.processing(take(consumer, 1)[0]):
            fail()


def fail() -> None:
    raise ValueError("no")


def test_run_has_the_defaults_of_its_options() -> None:
    signature = inspect.signature(Consumer.run).parameters
    options = {name: signature[name].default for name in RunOptions.__struct_fields__}
    assert RunOptions(**options) == RunOptions()
    assert set(signature) == {"self", "handler", *RunOptions.__struct_fields__}


def _entered(scope: Callable[[Any], AbstractContextManager[Any]]) -> Callable[[Any], Any]:
    return lambda message: scope(message).__enter__()


class TestNoMessage:
    """A poll that returns None is the usual reason."""

    @pytest.mark.parametrize("interceptors", [(), (Lifecycle(),)], ids=["no chain", "chain"])
    def test_is_named(self, make_consumer: MakeConsumer, interceptors: Any) -> None:
        consumer = make_consumer(*interceptors)
        nothing: Any = consumer.poll(0)
        entered = [_entered(consumer.processing), _entered(carrying)]
        for use in (consumer.local, consumer.verified, *entered):
            with pytest.raises(TypeError, match=r"^expected a message, found None, which poll returns if no"):
                use(nothing)
