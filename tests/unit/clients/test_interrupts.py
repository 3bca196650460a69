"""An interrupt at any moment: nothing that is queued, fetched or in the chain is lost, nor comes twice.

CPython looks for signals when a function begins, when a loop goes round and when a call into C ends. Each
test raises at these points of our code, one after the other; tests/integration/test_interrupts.py does the
same with real signals at random moments.
"""

from __future__ import annotations

import _thread
import dis
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest
from confluent_kafka import TopicPartition

import headerware
from headerware.clients import Consumer
from headerware.clients.interrupts import Fetch
from headerware.core.errors import InterceptorError
from headerware.core.hooks import DROP
from headerware.interceptors import Slice
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import CodeType, FrameType

    from headerware.core.record import Operation, Record
    from tests.unit.clients.conftest import Fill, MakeConsumer, MakeProducer


OURS = str(Path(headerware.__file__).parent)


TRACES_AT_ONCE = sys.version_info < (3, 13)
"""Whether CPython traces the steps of a function from its first call on, so that each can be interrupted."""


class Interrupt(KeyboardInterrupt):
    """What the tests' signals raise."""


class Interrupter:
    """Raise at the so-manieth point of our code at which CPython looks for signals.

    Args:
        at: how many points to let pass.
    """

    def __init__(self, at: int) -> None:
        self._left = at
        self._before: dict[FrameType, str] = {}
        self._collecting: set[FrameType] = set()
        """The collector may run at any time, and nobody can catch what is raised in its calls."""
        self.raised = False

    def __enter__(self) -> Self:
        sys.settrace(self._on_call)
        return self

    def __exit__(self, *exception: object) -> bool:
        sys.settrace(None)
        self._collecting.clear()
        self._before.clear()  # a frame holds its client until the collector finds it
        return exception[0] is Interrupt

    def _on_call(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        if frame.f_back is not None and frame.f_back in self._before:
            self._before[frame.f_back] = ""  # the call does not end in C
        if frame.f_code.co_name == "__del__" or frame.f_back in self._collecting:
            self._collecting.add(frame)
            return None
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._on_opcode

    def _on_opcode(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "return":
            self._before.pop(frame, None)
        if event != "opcode" or self.raised:
            return self._on_opcode
        before, name = self._before.get(frame, ""), opcodes(frame.f_code)[frame.f_lasti]
        self._before[frame] = name
        if before.startswith(("CALL", "RESUME")) or "BACKWARD" in before:
            self._left -= 1
            if self._left < 0:
                self.raised = True
                raise Interrupt
        return self._on_opcode


_opcodes: dict[CodeType, dict[int, str]] = {}


def opcodes(code: CodeType) -> dict[int, str]:
    found = _opcodes.get(code)
    if found is None:
        found = _opcodes[code] = {step.offset: step.opname for step in dis.get_instructions(code)}
    return found


def interrupted_everywhere(once: Callable[[Interrupter], None]) -> Iterator[int]:
    """Do something over and over, interrupted one point later each time, until it ends undisturbed."""
    for at in range(2_000):
        interrupter = Interrupter(at)
        once(interrupter)
        yield at
        if not interrupter.raised:
            return
    raise AssertionError("it never came to its end")


class Pass:
    def on_send(self, record: Record) -> Record:
        return record

    def on_consume(self, record: Record) -> Record:
        return record


class Drop:
    def on_send(self, record: Record) -> Any:
        return DROP if record.value == b"drop" else record


class TestAProducer:
    @pytest.mark.parametrize("serve", ["poll", "flush"])
    def test_still_serves_what_is_queued(self, make_producer: MakeProducer, topic: str, serve: str) -> None:
        def once(interrupter: Interrupter) -> None:
            producer.produce(topic, b"value", on_delivery=lambda *report: reports.append(report))
            with interrupter:
                getattr(producer, serve)(1)  # all of it passes in confluent-kafka's own `poll` of 2.13

        reports: list[Any] = []
        producer = make_producer(Pass())
        for _ in interrupted_everywhere(once):
            producer.produce(topic, b"next", on_delivery=lambda *report: reports.append(report))
            before = len(reports)
            assert producer.flush(60) == 0
            assert len(reports) > before

    def test_reports_what_was_queued_once_and_nothing_else(
        self, make_producer: MakeProducer, topic: str
    ) -> None:
        """What ``produce`` was interrupted in may be queued or not; it is never reported twice."""

        class Acks:
            def on_acknowledgement(self, record: Record, _metadata: Any, _error: Any) -> None:
                acknowledged.append(record.value)

        def once(interrupter: Interrupter) -> None:
            value = str(len(tried)).encode()
            tried.append(value)
            with interrupter:
                producer.produce(
                    topic, value, on_delivery=lambda _, message: reported.append(message.value())
                )
                produced.append(value)

        acknowledged: list[bytes | None] = []
        reported: list[bytes | None] = []
        produced: list[bytes] = []
        tried: list[bytes] = []
        producer = make_producer(Pass(), Acks())
        for _ in interrupted_everywhere(once):
            pass
        assert producer.flush(60) == 0
        assert len(tried) > 20
        assert len(set(acknowledged)) == len(acknowledged)
        assert len(set(reported)) == len(reported)
        assert set(produced) <= set(reported) == set(acknowledged)


def fetch(consumer: Consumer, how: str) -> list[bytes | None]:
    """Take what comes; as bytes, for events are none of these tests' business."""
    if how == "poll":
        message = consumer.poll(0.05)
        return [] if message is None else [message.value()]
    return [message.value() for message in consumer.consume(3, 0.05)]


class Choose:
    """Drop, refuse or multiply some."""

    def on_consume(self, record: Record) -> Any:
        number = int(record.value)
        if number % 7 == 3:
            return DROP
        if number % 7 == 5:
            raise InterceptorError("no")
        return [record, record.with_value(record.value + b"b", record.headers)] if number % 7 == 6 else record


def chosen(number: int) -> list[bytes]:
    value = str(number).encode()
    return [] if number % 7 in {3, 5} else [value, value + b"b"] if number % 7 == 6 else [value]


class Watch:
    """Be told of what is received, and processed."""

    def __init__(self) -> None:
        self.processed: list[bytes] = []

    def on_operation(self, operation: Operation) -> None:
        pass

    @contextmanager
    def processing(self, records: Sequence[Record]) -> Iterator[None]:
        yield

    def on_processed(self, record: Record, error: BaseException | None) -> None:
        if error is None:
            self.processed.append(record.value)


CHAINS: dict[str, Callable[[], list[Any]]] = {
    "plain": lambda: [Pass()],
    "choosing": lambda: [Choose()],
    "observed": lambda: [Watch()],
    "observed choosing": lambda: [Watch(), Choose()],
    "slices": lambda: [Slice(max_bytes=1_000)],
    "observed slices": lambda: [Watch(), Slice(max_bytes=1_000)],
}


def padded(number: int, chain: str) -> bytes:
    """Return a value; with slices, two of three are in two slices, so that these fill no batch."""
    return str(number).encode() + (b"." * 1_400 if "slices" in chain and number % 3 else b"")


class TestAConsumer:
    @pytest.mark.parametrize("how", ["poll", "consume"])
    @pytest.mark.parametrize("chain", CHAINS)
    def test_that_goes_on_has_lost_no_record_and_gives_none_twice(
        self, make_producer: MakeProducer, make_consumer: MakeConsumer, topic: str, chain: str, how: str
    ) -> None:
        def take() -> int:
            got: list[bytes | None] = []
            try:
                got = fetch(consumer, how)
            except InterceptorError:
                refused.append(None)
            found.extend(got)
            return len(got)

        producer = make_producer(*CHAINS["slices"]())
        count = 2_000 if "slices" in chain else 4_000
        for number in range(count):
            producer.produce(topic, padded(number, chain), partition=0)
            producer.poll(0)
        producer.flush(60)
        found: list[bytes | None] = []
        refused: list[None] = []
        interceptors = CHAINS[chain]()
        consumer = make_consumer(
            *interceptors, topic=topic, enable_auto_commit=False, headerware_processing="implicit"
        )
        at = undisturbed = 0
        # Calls differ in length, so that only many that are over sooner mean that this is the end.
        while undisturbed < 20:
            with Interrupter(at) as interrupter:
                undisturbed += bool(take())
            if interrupter.raised:
                at, undisturbed = at + 1, 0
                take()
        last = int(str((found[-1] or b"").rstrip(b".b").decode()))
        expected = [
            value
            for number in range(last + 1)
            for value in (chosen(number) if "choosing" in chain else [padded(number, chain)])
        ]
        assert found[: len(expected)] == expected[: len(found)]
        assert at > 15
        assert last < count - 10, "all was read before all was tried"
        assert len(refused) == (sum(number % 7 == 5 for number in range(last)) if "choosing" in chain else 0)
        for watch in (each for each in interceptors if isinstance(each, Watch)):
            consumer.close()
            assert set(watch.processed) <= set(found)
            assert len(set(watch.processed)) == len(watch.processed)

    @pytest.mark.parametrize("how", ["poll", "consume"])
    @pytest.mark.parametrize("chain", ["plain", "observed", "slices", "observed slices"])
    def test_that_closes_at_once_has_committed_what_it_gave_and_no_more(
        self, make_producer: MakeProducer, make_consumer: MakeConsumer, topic: str, chain: str, how: str
    ) -> None:
        producer = make_producer(*CHAINS["slices"]())
        for number in range(1_000):
            producer.produce(topic, padded(number, chain), partition=0)
        producer.flush(60)
        found: list[bytes | None] = []
        at = undisturbed = 0
        while undisturbed < 2:
            consumer = make_consumer(*CHAINS[chain](), headerware_processing="implicit")
            consumer.assign([TopicPartition(topic, 0)])
            while not (got := fetch(consumer, how)):
                pass
            found.extend(got)
            with Interrupter(at) as interrupter:
                got = []
                got = fetch(consumer, how)
            found.extend(got)
            at, undisturbed = at + 1, 0 if interrupter.raised else undisturbed + 1
            consumer.close()
        assert at > 15 or not TRACES_AT_ONCE
        assert found == [padded(number, chain) for number in range(len(found))]


class TestWhatWasGivenWhenAnInterruptCame:
    """The last point of a ``consume``: its messages have left the queue, and nobody has got them."""

    @pytest.fixture
    def interrupted(self, make_consumer: MakeConsumer, fill: Fill, topic: str) -> Consumer:
        def batch(fetched: Any) -> None:
            taken_in(fetched)
            raise Interrupt

        fill(*(str(number).encode() for number in range(10)))
        consumer = make_consumer(Pass(), topic=topic)
        while not consumer.consume(1, 0.2):
            pass
        taken_in = consumer._hw_take_batch
        consumer._hw_take_batch = batch  # type: ignore[method-assign, assignment]
        with pytest.raises(Interrupt):
            consumer.consume(9, 60)
        del consumer._hw_take_batch
        return consumer

    def test_is_committed_once_it_has_been_given_again(
        self, interrupted: Consumer, make_consumer: MakeConsumer, topic: str
    ) -> None:
        found = interrupted.consume(4, 60)
        assert interrupted.commit(asynchronous=False)[0].offset == 5
        found += interrupted.consume(5, 60)
        assert [message.value() for message in found] == [str(number).encode() for number in range(1, 10)]
        interrupted.close()
        after = make_consumer(Pass())
        assert after.committed([TopicPartition(topic, 0)], 10)[0].offset == 10

    def test_is_read_again_with_an_incomplete_message_behind_it(
        self,
        make_producer: MakeProducer,
        make_consumer: MakeConsumer,
        topic: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        def batch(fetched: Any) -> None:
            taken.append(fetched)
            if len(taken) == 2:
                raise Interrupt
            taken_in(fetched)

        sent = [b"small", b"." * 1_400, b"small, too", b"," * 1_400]
        producer = make_producer(Slice(max_bytes=1_000))
        for value in sent:
            producer.produce(topic, value, partition=0)
        producer.flush(60)
        consumer = make_consumer(Slice(max_bytes=1_000), topic=topic)
        taken: list[Any] = []
        taken_in, fetch_batch = consumer._hw_take_batch, Fetch.consume

        def fetch(fetch: Fetch, client: Any, count: int, timeout: float, *, may_raise: bool) -> Any:
            return fetch_batch(fetch, client, min(count, 1 if taken else 5), timeout, may_raise=may_raise)

        consumer._hw_take_batch = batch  # type: ignore[method-assign, assignment]
        # First all but the second slice of the last message, then that one.
        monkeypatch.setattr(Fetch, "consume", fetch)
        with pytest.raises(Interrupt):
            consumer.consume(10, 60)
        del consumer._hw_take_batch
        monkeypatch.undo()
        found: list[Any] = []
        until(lambda: len(found) >= len(sent), meanwhile=lambda: found.extend(consumer.consume(4, 0.2)))
        assert [message.value() for message in found] == sent

    def test_is_forgotten_by_a_seek(self, interrupted: Consumer, topic: str) -> None:
        interrupted.seek(TopicPartition(topic, 0, 5))
        found = [message.value() for message in interrupted.consume(5, 60)]
        assert found == [str(number).encode() for number in range(5, 10)]

    def test_is_taken_up_in_a_thread_that_begins_with_a_call(self, interrupted: Consumer) -> None:
        def noted(unraisable: Any) -> None:
            failed.append(unraisable.exc_value)

        failed: list[Any] = []
        before, sys.unraisablehook = sys.unraisablehook, noted
        try:
            _thread.start_new_thread(interrupted.poll, (0.0,))
            while not failed and interrupted._hw_fetch.thread:
                time.sleep(0.01)
        finally:
            sys.unraisablehook = before
        assert not failed
