"""``Consumer.run``: order, offsets, failures, and the end, on the embedded cluster."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import confluent_kafka
import msgspec
import pytest
from confluent_kafka import KafkaError, Message, TopicPartition
from opentelemetry.sdk.metrics import MeterProvider

from headerware.clients import Consumer, DeserializingConsumer, Producer
from headerware.core.chain import Chain
from headerware.core.context import Context
from headerware.core.errors import ConfigError, InterceptorError, ReassemblyError
from headerware.core.record import Operation, Record
from headerware.interceptors import Metrics, Slice
from tests.unit.clients.conftest import Fill, MakeConsumer, MakeProducer, committed, take
from tests.unit.interceptors.test_metrics import Seen as SeenMetrics
from tests.unit.interceptors.test_metrics import set_provider
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class Seen:
    """A handler that remembers what it was called with, and may fail; it stops ``run`` after so many."""

    def __init__(self, consumer: Consumer, stop_after: int, *, bad: bytes = b"bad", fails: int = 99) -> None:
        self.values: list[Any] = []
        self._consumer = consumer
        self._stop_after = stop_after
        self._bad = bad
        self._fails = fails
        self._lock = threading.Lock()

    def __call__(self, message: Message) -> None:
        with self._lock:
            self.values.append(message.value())
            if len(self.values) >= self._stop_after:
                self._consumer.stop()
            if message.value() == self._bad and self._fails > 0:
                self._fails -= 1
                raise ValueError("payload")


class Observer:
    """Hears of processing, on whichever thread."""

    def __init__(self) -> None:
        self.entered: list[tuple[bytes, str]] = []
        self.processed: list[tuple[bytes, str | None]] = []

    @contextmanager
    def processing(self, records: list[Record]) -> Iterator[None]:
        self.entered.extend((record.value, threading.current_thread().name) for record in records)
        yield

    def on_processed(self, record: Record, error: BaseException | None) -> None:
        self.processed.append((record.value, None if error is None else type(error).__name__))


class RefusesBad:
    """Refuses a value when it is consumed, and takes the first letter of the others away."""

    def on_consume(self, record: Record) -> Record:
        if record.value == b"refused":
            raise InterceptorError("no")
        return record.with_value(record.value[1:])


def read_all(connection: dict[str, Any], topic: str, count: int) -> list[Message]:
    """Return so many records of a topic; an error that the client reports meanwhile is not a record."""
    consumer = confluent_kafka.Consumer({**connection, "group.id": topic, "auto.offset.reset": "earliest"})
    seen: list[Message] = []

    def records() -> list[Message]:
        return [message for message in seen if message.error() is None]

    try:
        consumer.subscribe([topic])
        until(
            lambda: len(records()) == count,
            f"{count} records of {topic}",
            meanwhile=lambda: seen.extend(consumer.consume(1, 0.1)),
        )
    finally:
        consumer.close()
    return records()


def committed_of(consumer: Consumer, topic: str) -> int:
    return committed(consumer, topic)[0]


class TestLanes:
    def test_keeps_the_order_of_keys_and_works_in_parallel(
        self, connection: dict[str, Any], topic: str, make_consumer: MakeConsumer
    ) -> None:
        with Producer(connection) as producer:
            for number in range(60):
                producer.produce(topic, str(number).encode(), str(number % 6).encode(), 0)
        consumer = make_consumer(topic=topic, headerware_processing="explicit")
        seen: dict[bytes | None, list[int]] = defaultdict(list)
        together, most, lock = 0, 0, threading.Lock()

        def handle(message: Message) -> None:
            nonlocal together, most
            with lock:
                together += 1
                most = max(most, together)
            time.sleep(0.002)
            with lock:
                together -= 1
                seen[message.key()].append(int(message.value() or b""))
                if sum(map(len, seen.values())) == 60:
                    consumer.stop()

        consumer.run(handle, workers=4)

        assert 2 <= most <= 4
        assert all(numbers == sorted(numbers) for numbers in seen.values())
        assert committed_of(consumer, topic) == 60
        assert consumer.stats()["client"]["processed"] == 60

    def test_commits_nothing_behind_a_record_at_work(
        self, topic: str, fill: Fill, make_consumer: MakeConsumer
    ) -> None:
        fill(b"slow", b"b", b"c")
        consumer = make_consumer(topic=topic, headerware_processing="explicit", auto_commit_interval_ms=10)
        other = make_consumer()
        others, go_on = threading.Semaphore(0), threading.Event()
        runs = threading.Thread(
            target=consumer.run,
            args=(lambda m: go_on.wait(60) if m.value() == b"slow" else others.release(),),
            kwargs={"order": "none"},
        )
        runs.start()
        assert others.acquire(timeout=60)
        assert others.acquire(timeout=60)
        deadline = time.monotonic() + 60
        while committed_of(other, topic) < 0:  # the first commit
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert committed_of(other, topic) == 0
        consumer.stop()
        go_on.set()
        runs.join(60)
        assert committed_of(consumer, topic) == 3

    @pytest.mark.parametrize("auto_commit", [True, False])
    def test_commits_by_itself_whatever_the_client_does(
        self, topic: str, fill: Fill, make_consumer: MakeConsumer, auto_commit: Any
    ) -> None:
        fill(b"a", b"b")
        consumer = make_consumer(
            topic=topic, headerware_processing="explicit", enable_auto_commit=auto_commit
        )
        consumer.run(Seen(consumer, 2))
        assert committed_of(consumer, topic) == 2

    def test_needs_a_chain_or_the_key(self, topic: str, make_consumer: MakeConsumer) -> None:
        with pytest.raises(ConfigError, match=r"headerware\.processing = 'explicit'"):
            make_consumer(topic=topic).run(print)

    def test_works_with_a_chain_from_code_that_is_switched_off(
        self, topic: str, fill: Fill, make_consumer: MakeConsumer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HEADERWARE_DISABLED", "1")
        fill(b"a")
        consumer = make_consumer(RefusesBad(), topic=topic)
        seen = Seen(consumer, 1)
        consumer.run(seen)
        assert seen.values == [b"a"]

    def test_refuses_a_coroutine_function(self, make_consumer: MakeConsumer) -> None:
        async def handle(message: Message) -> None:
            """Never run."""

        with pytest.raises(TypeError, match="coroutine function"):
            make_consumer(RefusesBad()).run(handle)

    def test_processes_no_record_whose_handler_nobody_awaits(
        self, topic: str, fill: Fill, make_consumer: MakeConsumer
    ) -> None:
        async def handle(message: Message) -> None:
            """Never run."""

        def decorated(message: Message) -> object:
            consumer.stop()
            return handle(message)

        fill(b"a")
        consumer = make_consumer(topic=topic, headerware_processing="explicit")
        with pytest.raises(TypeError, match="returns a coroutine, which nobody awaits"):
            consumer.run(decorated, on_failure="skip")
        assert committed_of(consumer, topic) == 0

    def test_refuses_what_is_no_function(self, make_consumer: MakeConsumer) -> None:
        with pytest.raises(TypeError, match=r"^expected a function as handler, found str$"):
            make_consumer(RefusesBad()).run("handle")  # type: ignore[arg-type]

    def test_warns_of_a_consumer_that_has_not_subscribed(
        self, topic: str, make_consumer: MakeConsumer, caplog: pytest.LogCaptureFixture
    ) -> None:
        for number, prepare in enumerate((Consumer.stop, lambda it: it.subscribe([topic]), None)):
            consumer = make_consumer(RefusesBad(), topic=None if prepare else topic)
            if prepare is not None:
                prepare(consumer)
            consumer.stop()
            consumer.run(print)
            assert list(consumer.messages(0)) == []
            assert [text.partition(" waits")[0] for text in caplog.messages] == (
                [] if number else ["Consumer: run", "Consumer: messages"]
            )
            caplog.clear()

    def test_surrounds_each_record_on_its_worker(
        self, topic: str, fill: Fill, make_consumer: MakeConsumer
    ) -> None:
        fill(b"a", b"b")
        observer = Observer()
        consumer = make_consumer(observer, topic=topic)
        consumer.run(Seen(consumer, 2), workers=2, order="none")
        assert sorted(observer.processed) == [(b"a", None), (b"b", None)]
        assert {name.rpartition("-")[0] for _, name in observer.entered} == {"headerware-worker"}

    def test_pauses_what_is_crowded_and_goes_on(
        self, topic: str, fill: Fill, make_consumer: MakeConsumer
    ) -> None:
        fill(*[b"%d" % number for number in range(30)])
        consumer = make_consumer(topic=topic, headerware_processing="explicit")
        go_on = threading.Event()
        seen = Seen(consumer, 30)

        def handle(message: Message) -> None:
            go_on.wait(60)
            seen(message)

        runs = threading.Thread(target=consumer.run, args=(handle,), kwargs={"workers": 2, "max_pending": 4})
        runs.start()
        deadline = time.monotonic() + 60
        while not consumer._hw_delivery.application_paused:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        go_on.set()
        runs.join(60)
        assert seen.values == [b"%d" % number for number in range(30)]
        assert consumer._hw_delivery.application_paused == set()

    def test_processes_whole_messages_of_slices_and_commits_behind_them(
        self, topic: str, make_producer: MakeProducer, make_consumer: MakeConsumer
    ) -> None:
        slices = Slice(max_bytes=1_000)
        producer = make_producer(slices)
        producer.produce(topic, b"x" * 5_000, partition=0)
        producer.produce(topic, b"small", partition=0)
        assert producer.flush(60) == 0
        consumer = make_consumer(slices, topic=topic)
        seen = Seen(consumer, 2)
        consumer.run(seen, order="none")
        assert sorted(seen.values) == [b"small", b"x" * 5_000]
        end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)
        assert committed_of(consumer, topic) == end[1]


class TestFailures:
    def test_raise_ends_run_before_the_record(
        self, topic: str, fill: Fill, make_consumer: MakeConsumer
    ) -> None:
        fill(b"a", b"bad", b"c")
        consumer = make_consumer(topic=topic, headerware_processing="explicit")
        with pytest.raises(ValueError, match="payload") as raised:
            consumer.run(Seen(consumer, 99))
        assert raised.value.__notes__ == [f"while {topic}[0]@1 was processed"]
        assert committed_of(consumer, topic) == 1

    def test_skip_goes_on_after_it(self, topic: str, fill: Fill, make_consumer: MakeConsumer) -> None:
        fill(b"a", b"bad", b"c")
        observer = Observer()
        consumer = make_consumer(observer, topic=topic)
        seen = Seen(consumer, 3)
        consumer.run(seen, on_failure="skip")
        assert seen.values == [b"a", b"bad", b"c"]
        assert committed_of(consumer, topic) == 3
        assert consumer.stats()["client"]["skipped"] == 1
        assert observer.processed == [(b"a", None), (b"bad", "ValueError"), (b"c", None)]

    def test_tries_again_in_order_and_tells_of_the_end_once(
        self, topic: str, fill: Fill, make_consumer: MakeConsumer
    ) -> None:
        fill(b"bad", b"b")
        observer = Observer()
        consumer = make_consumer(observer, topic=topic)
        seen = Seen(consumer, 4, fails=2)
        consumer.run(seen, attempts=3, backoff_s=0.01)
        assert seen.values == [b"bad", b"bad", b"bad", b"b"]
        assert observer.processed == [(b"bad", None), (b"b", None)]
        assert len(observer.entered) == 4
        assert consumer.stats()["client"]["retried"] == 2

    def test_gives_up_after_the_attempts(self, topic: str, fill: Fill, make_consumer: MakeConsumer) -> None:
        fill(b"bad")
        consumer = make_consumer(topic=topic, headerware_processing="explicit")
        seen = Seen(consumer, 99)
        with pytest.raises(ValueError, match="payload"):
            consumer.run(seen, attempts=3, backoff_s=0.01)
        assert seen.values == [b"bad"] * 3
        assert committed_of(consumer, topic) == 0

    def test_dead_letter_keeps_the_record_as_it_was_on_the_wire(
        self,
        connection: dict[str, Any],
        topic: str,
        fill: Fill,
        make_consumer: MakeConsumer,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        fill(b"xbad", b"xc", headers=[("tenant", b"north")])
        consumer = make_consumer(RefusesBad(), topic=topic)
        seen = Seen(consumer, 2)
        consumer.run(seen, on_failure="dead_letter")

        assert seen.values == [b"bad", b"c"]
        (letter,) = read_all(connection, f"{topic}.dead-letter", 1)
        headers: dict[str, Any] = dict(letter.headers() or [])
        assert letter.value() == b"xbad"
        assert headers["tenant"] == b"north"
        assert headers["__connect.errors.stage"] == b"PROCESSING"
        assert headers["__connect.errors.offset"] == b"0"
        assert headers["__connect.errors.exception.class.name"] == b"builtins.ValueError"
        assert b"payload" not in headers["__connect.errors.exception.message"]
        assert committed_of(consumer, topic) == 2
        (logged,) = [record.getMessage() for record in caplog.records if record.name == "headerware"]
        assert logged.endswith("(dead_lettered; further ones for this reason are only counted)")

    def test_dead_letter_of_a_message_in_slices_is_whole(
        self, connection: dict[str, Any], topic: str, make_producer: MakeProducer, make_consumer: MakeConsumer
    ) -> None:
        slices = Slice(max_bytes=1_000)
        value = b"x" * 3_000
        producer = make_producer(slices)
        producer.produce(topic, value, partition=0)
        assert producer.flush(60) == 0
        consumer = make_consumer(slices, topic=topic)
        consumer.run(Seen(consumer, 1, bad=value), on_failure="dead_letter")

        again = make_consumer(slices)
        again.subscribe([f"{topic}.dead-letter"])
        found = again.poll(60)
        assert found is not None
        assert found.value() == value

    @pytest.mark.parametrize("on_failure", ["raise", "skip", "dead_letter"])
    def test_answers_for_refused_records_in_the_same_way(
        self, connection: dict[str, Any], topic: str, fill: Fill, make_consumer: MakeConsumer, on_failure: Any
    ) -> None:
        fill(b"xa", b"refused", b"xc")
        consumer = make_consumer(RefusesBad(), topic=topic)
        seen = Seen(consumer, 2)
        if on_failure == "raise":
            with pytest.raises(InterceptorError, match=r"\[0\]@1: no") as raised:
                consumer.run(seen, on_failure=on_failure)
            assert not hasattr(raised.value, "__notes__")  # its text has the position already
            assert committed_of(consumer, topic) == 1
            return
        consumer.run(seen, on_failure=on_failure)
        assert seen.values == [b"a", b"c"]
        assert committed_of(consumer, topic) == 3
        if on_failure == "dead_letter":
            (letter,) = read_all(connection, f"{topic}.dead-letter", 1)
            assert letter.value() == b"refused"
            assert dict(letter.headers() or [])["__connect.errors.stage"] == b"ON_CONSUME"

    def test_dead_letter_that_cannot_be_stored_is_tried_again(
        self, topic: str, fill: Fill, make_consumer: MakeConsumer
    ) -> None:
        fill(b"xbad", b"xb")
        consumer = make_consumer(RefusesBad(), topic=topic)
        session: Any = consumer._hw_session
        letters: list[Record] = []
        failures = iter([1, 1])
        publish = session.context.publish

        def fails_twice(record: Record) -> None:
            if next(failures, None):
                raise OSError("out")
            letters.append(record)
            consumer.stop()
            assert publish is not None
            publish(record)

        session.context = msgspec.structs.replace(session.context, publish=fails_twice)
        consumer.run(Seen(consumer, 99), on_failure="dead_letter", order="none")
        assert [letter.value for letter in letters] == [b"xbad"]
        assert committed_of(consumer, topic) == 2

    def test_that_cannot_be_stored_may_be_given_up(
        self, topic: str, fill: Fill, make_consumer: MakeConsumer, caplog: pytest.LogCaptureFixture
    ) -> None:
        fill(b"xbad", b"refused", b"xb")
        hears = HearsStops()
        consumer = make_consumer(hears, RefusesBad(), topic=topic)
        session: Any = consumer._hw_session

        def fails(_: Record) -> None:
            raise OSError("out")

        session.context = msgspec.structs.replace(session.context, publish=fails)
        seen = Seen(consumer, 2, bad=b"bad")
        consumer.run(seen, on_failure="dead_letter", dead_letter_unavailable="refuse")
        assert seen.values == [b"bad", b"b"]
        assert committed_of(consumer, topic) == 3
        counts = consumer.stats()["client"]
        assert (counts["skipped"], counts["dead_lettered"], counts["dead_letters_lost"]) == (2, 0, 2)
        assert [(value, outcome) for value, _, outcome, _ in hears.stopped if outcome != "refused"] == [
            (b"xbad", "skipped")
        ]
        assert "the record is passed over" in caplog.text


class TestHandlers:
    def test_may_call_the_consumer_while_no_records_come(
        self, topic: str, fill: Fill, make_consumer: MakeConsumer
    ) -> None:
        fill(b"xa")
        consumer = make_consumer(RefusesBad(), topic=topic)
        found: list[int] = []

        def handle(_: Message) -> None:
            place = confluent_kafka.TopicPartition(topic, 0)
            found.extend(consumer.position([place])[0].offset for _ in range(3))
            consumer.stop()

        consumer.run(handle)
        assert found == [1, 1, 1]


class HearsStops:
    """Hears which records were stopped."""

    def __init__(self) -> None:
        self.stopped: list[tuple[bytes, str, str, str]] = []

    def on_consume(self, record: Record) -> Record:
        return record

    def on_stopped(
        self, direction: str, record: Record, step: str, outcome: str, error: BaseException | None
    ) -> None:
        assert direction == "consume"
        assert error is not None
        self.stopped.append((record.value, step, outcome, type(error.__cause__ or error).__name__))


class TestWhatIsTold:
    def test_interceptors_hear_of_a_record_when_a_handler_gets_it_first(
        self, topic: str, fill: Fill, make_consumer: MakeConsumer
    ) -> None:
        class Hears:
            def on_consume(self, record: Record) -> Record:
                return record

            def on_operation(self, operation: Operation) -> None:
                if operation.name == "receive":
                    received.extend(record.value for record in operation.records)
                    assert began_ns <= operation.began_ns <= operation.ended_ns <= time.time_ns()

        received: list[Any] = []
        numbers = [b"%d" % number for number in range(20)]
        fill(*numbers)
        consumer, began_ns = make_consumer(Hears(), topic=topic), time.time_ns()
        seen = Seen(consumer, 5, bad=b"2", fails=1)

        def handle(message: Message) -> None:
            seen(message)
            if len(seen.values) == 5:  # what waits now is read again
                until(lambda: consumer._hw_executor is not None and consumer._hw_executor._closing)

        consumer.run(handle, workers=1, attempts=2, backoff_s=0, order="partition")
        assert seen.values == [b"0", b"1", b"2", b"2", b"3"]
        assert received == numbers[:4]
        consumer.run(Seen(consumer, 16), workers=1)
        assert received == numbers
        assert [message.value() for message in consumer.consume(1, 0.1)] == []
        fill(b"polled")
        assert [message.value() for message in take(consumer, 1)] == [b"polled"]
        assert received == [*numbers, b"polled"]

    @pytest.mark.parametrize(
        ("on_failure", "outcome"), [("skip", "skipped"), ("dead_letter", "dead_lettered")]
    )
    def test_interceptors_hear_once_of_each_record_that_is_given_up(
        self, topic: str, fill: Fill, make_consumer: MakeConsumer, on_failure: Any, outcome: str
    ) -> None:
        fill(b"xbad", b"refused", b"xc")
        hears = HearsStops()
        consumer = make_consumer(hears, RefusesBad(), topic=topic)
        consumer.run(Seen(consumer, 2), on_failure=on_failure)
        # The record as it was on the wire, or as the application got it if that is all there is.
        value = b"xbad" if on_failure == "dead_letter" else b"bad"
        assert sorted(hears.stopped) == sorted(
            [
                (value, "processing", outcome, "ValueError"),
                (b"refused", "refusesbad", "refused", "InterceptorError"),
            ]
        )
        assert consumer.stats()["client"][outcome] == 2

    def test_metrics_count_them(
        self, topic: str, fill: Fill, make_consumer: MakeConsumer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        metrics = SeenMetrics()
        provider = MeterProvider([metrics.reader], shutdown_on_exit=False)
        set_provider(monkeypatch, provider)
        fill(b"bad")
        consumer = make_consumer(Metrics(), topic=topic)
        consumer.run(Seen(consumer, 1), on_failure="dead_letter")
        found = metrics.values("headerware.records.stopped", "interceptor.name", "outcome", "error.type")
        assert found == {("processing", "dead_lettered", "ValueError"): 1}
        provider.shutdown()

    def test_counts_are_there_from_the_beginning(self, make_consumer: MakeConsumer) -> None:
        client = make_consumer(RefusesBad()).stats()["client"]
        assert {name: client[name] for name in ("processed", "retried", "skipped", "dead_lettered")} == {
            "processed": 0,
            "retried": 0,
            "skipped": 0,
            "dead_lettered": 0,
        }


class TestErrorsWithoutARecord:
    @pytest.mark.parametrize("on_failure", ["dead_letter", "raise"])
    def test_slices_that_never_became_a_message_are_answered_for(
        self,
        connection: dict[str, Any],
        topic: str,
        make_producer: MakeProducer,
        make_consumer: MakeConsumer,
        on_failure: Any,
    ) -> None:
        first, *_ = Chain([Slice(max_bytes=1_000)]).open(Context()).send([Record(topic, b"x" * 3_000)])
        producer = make_producer()
        producer.produce(topic, first.value, partition=0, headers=list(first.headers))
        producer.produce(topic, b"small", partition=0)
        assert producer.flush(60) == 0
        consumer = make_consumer(Slice(max_bytes=1_000, expire_ms=200), topic=topic)
        if on_failure == "raise":
            with pytest.raises(ReassemblyError, match="of 4 slices came"):
                consumer.run(Seen(consumer, 99), on_failure=on_failure)
            return
        with stops_after(consumer, "dead_lettered"):
            consumer.run(Seen(consumer, 99), on_failure=on_failure)
        (letter,) = read_all(connection, f"{topic}.dead-letter", 1)
        headers: dict[str, Any] = dict(letter.headers() or [])
        assert (letter.key(), letter.value()) == (f"{topic}[0]@0".encode(), None)
        assert headers["__connect.errors.topic"] == topic.encode()
        assert (headers["__connect.errors.partition"], headers["__connect.errors.offset"]) == (b"0", b"0")
        assert headers["__connect.errors.stage"] == b"ON_CONSUME"
        assert b"1 of 4 slices came" in headers["__connect.errors.exception.message"]
        assert committed_of(consumer, topic) == 2

    def test_an_error_of_no_topic_ends_run(self, topic: str, fill: Fill, make_consumer: MakeConsumer) -> None:
        class Fails:
            def on_consume(self, record: Record) -> Record:
                return record

            def poll(self, now_ms: int) -> list[Any]:
                return [InterceptorError("out of order")]

        fill(b"a")
        consumer = make_consumer(Fails(), topic=topic)
        with pytest.raises(InterceptorError, match="out of order"):
            consumer.run(Seen(consumer, 99), on_failure="dead_letter")


@contextmanager
def stops_after(consumer: Consumer, count: str) -> Iterator[None]:
    """Stop ``run`` once it has counted something."""
    over = threading.Event()

    def watch() -> None:
        deadline = time.monotonic() + 60
        while not over.is_set() and not consumer.stats()["client"][count] and time.monotonic() < deadline:
            time.sleep(0.01)
        consumer.stop()

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join()


class TestRecordsFromBefore:
    def test_have_dead_letters_as_they_were_on_the_wire(
        self, connection: dict[str, Any], topic: str, fill: Fill, make_consumer: MakeConsumer
    ) -> None:
        fill(b"xa", b"refused", b"xbad", b"xc")
        consumer = make_consumer(RefusesBad(), topic=topic)
        assert [message.value() for message in consumer.consume(4, 60)] == [b"a"]
        assert consumer.stats()["client"]["pending"] == 3
        seen = Seen(consumer, 2)
        consumer.run(seen, on_failure="dead_letter")
        assert seen.values == [b"bad", b"c"]
        letters = read_all(connection, f"{topic}.dead-letter", 2)
        assert sorted(letter.value() or b"" for letter in letters) == [b"refused", b"xbad"]
        assert committed_of(consumer, topic) == 4

    def test_messages_in_slices_are_whole(
        self, connection: dict[str, Any], topic: str, make_producer: MakeProducer, make_consumer: MakeConsumer
    ) -> None:
        slices, value = Slice(max_bytes=1_000), b"x" * 3_000
        producer = make_producer(slices)
        for sent in (b"xfirst", b"refused", value, b"xend"):
            producer.produce(topic, sent, partition=0)
        assert producer.flush(60) == 0
        consumer = make_consumer(RefusesBad(), slices, topic=topic)
        _, count = consumer.get_watermark_offsets(TopicPartition(topic, 0), 60)
        assert [message.value() for message in consumer.consume(count, 60)] == [b"first"]
        assert consumer.stats()["client"]["pending"] > 2
        seen = Seen(consumer, 2, bad=value[1:])
        consumer.run(seen, on_failure="dead_letter")
        assert seen.values == [value[1:], b"end"]

        again = make_consumer(slices)
        again.subscribe([f"{topic}.dead-letter"])
        assert sorted(letter.value() or b"" for letter in take(again, 2)) == [b"refused", value]


class TestSeek:
    @pytest.mark.parametrize("where", ["handler", "callback"])
    @pytest.mark.parametrize("target", [2, confluent_kafka.OFFSET_BEGINNING])
    def test_commits_nothing_behind_what_comes_again(
        self,
        connection: dict[str, Any],
        topic: str,
        fill: Fill,
        make_consumer: MakeConsumer,
        where: str,
        target: int,
    ) -> None:
        fill(*[b"%d" % number for number in range(10)])
        begin = max(0, target)
        values: list[bytes | None] = []
        wanted, done, go_on = threading.Event(), threading.Event(), threading.Event()
        other = make_consumer(group_id=topic)

        def seek() -> None:
            consumer.seek(TopicPartition(topic, 0, target))
            done.set()

        def on_statistics(_: str) -> None:
            if wanted.is_set() and where == "callback" and not done.is_set():
                seek()

        def handle(message: Message) -> None:
            values.append(message.value())
            if message.value() == b"5" and not done.is_set():
                until(lambda: committed_of(other, topic) == 5)
                wanted.set()
                if where == "handler":
                    seek()
                assert done.wait(60)
            elif message.offset() == begin and done.is_set():
                until(lambda: committed_of(other, topic) == begin)
                go_on.set()
            elif message.value() == b"9" and go_on.is_set():
                consumer.stop()

        conf = {
            **connection,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "headerware.processing": "explicit",
            "auto.commit.interval.ms": 10,
            "statistics.interval.ms": 20,
            "stats_cb": on_statistics,
        }
        with Consumer(conf) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            consumer.run(handle, order="partition")
            assert values == [b"%d" % number for number in [*range(6), *range(begin, 10)]]
            assert committed_of(consumer, topic) == 10

    def test_refuses_a_partition_that_is_not_assigned(
        self, topic: str, fill: Fill, make_consumer: MakeConsumer
    ) -> None:
        fill(b"a")
        consumer = make_consumer(topic=topic, headerware_processing="explicit")
        with pytest.raises(confluent_kafka.KafkaException, match=r"none\[0\] is not assigned"):
            consumer.run(lambda _: consumer.seek(TopicPartition("none", 0, 0)))

    def test_one_that_fails_ends_it_as_any_failure_does(
        self,
        connection: dict[str, Any],
        topic: str,
        fill: Fill,
        make_consumer: MakeConsumer,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        def seek(partition: TopicPartition) -> None:
            if partition.topic == topic:
                raise confluent_kafka.KafkaException(KafkaError(KafkaError._FAIL, "no"))
            sought(partition)

        def handle(message: Message) -> None:
            if message.value() == b"x":
                assert began.wait(60)
                consumer.seek(TopicPartition(topic, 0, 0))
            elif message.value() == b"b":
                began.set()
                until(lambda: consumer._hw_executor is not None and consumer._hw_executor._closing)

        began, other = threading.Event(), f"{topic}.other"
        fill(b"x")
        with Producer(connection) as producer:
            for value in (b"a", b"b", b"c"):
                producer.produce(other, value, partition=0)
        consumer = make_consumer(headerware_processing="explicit")
        consumer.assign([TopicPartition(topic, 0), TopicPartition(other, 0)])
        sought = consumer._hw_seek
        monkeypatch.setattr(consumer, "_hw_seek", seek)
        with pytest.raises(confluent_kafka.KafkaException, match="no"):
            consumer.run(handle, workers=2, order="partition")
        assert committed_of(consumer, other) == 2
        assert [message.value() for message in take(consumer, 1)] == [b"c"]


class TestOffsetsOfTheApplication:
    @pytest.mark.parametrize(
        "call",
        [
            lambda consumer, message: consumer.commit(message),
            lambda consumer, message: consumer.commit(message=message, asynchronous=False),
            lambda consumer, message: consumer.commit(
                offsets=[TopicPartition(message.topic(), message.partition(), message.offset() + 1)]
            ),
            lambda consumer, message: consumer.store_offsets(message),
            lambda consumer, message: consumer.commit(asynchronous=False),
            lambda consumer, message: consumer.committable([TopicPartition(message.topic(), 0, 1)]),
        ],
    )
    def test_are_refused_while_it_runs(
        self, topic: str, fill: Fill, make_consumer: MakeConsumer, call: Callable[[Consumer, Message], object]
    ) -> None:
        fill(b"a", b"b")
        conf = {"headerware_processing": "explicit", "enable_auto_offset_store": False}
        consumer = make_consumer(topic=topic, **conf)
        with pytest.raises(confluent_kafka.KafkaException, match=r"run is under way.*let the handler return"):
            consumer.run(lambda message: call(consumer, message))
        assert committed_of(consumer, topic) == 0
        message = consumer.poll(60)
        assert message is not None
        consumer.store_offsets(message)
        call(consumer, message)  # and afterwards they are taken


class TestDeserializing:
    def test_runs_on_objects_and_answers_for_payloads_that_do_not_fit(
        self, connection: dict[str, Any], topic: str, fill: Fill, unique_topic: Any
    ) -> None:
        fill(b'{"n": 1}', b"{", b'{"n": 2}')
        consumer = DeserializingConsumer(
            {
                **connection,
                "group.id": unique_topic("g"),
                "auto.offset.reset": "earliest",
                "value.deserializer": "json",
            }
        )
        with consumer:
            consumer.assign([TopicPartition(topic, 0)])
            seen = Seen(consumer, 2)
            consumer.run(seen, on_failure="dead_letter")
            assert seen.values == [{"n": 1}, {"n": 2}]
            assert committed_of(consumer, topic) == 3
        (letter,) = read_all(connection, f"{topic}.dead-letter", 1)
        assert letter.value() == b"{"


class TestStop:
    def test_without_a_timeout_says_nothing_if_nothing_is_at_work(
        self, topic: str, make_consumer: MakeConsumer, caplog: pytest.LogCaptureFixture
    ) -> None:
        consumer = make_consumer(topic=topic, headerware_processing="explicit")
        consumer.stop()
        consumer.run(lambda _: None, stop_timeout_s=0)
        assert "not finished" not in caplog.text

    def test_ends_the_workers_if_one_of_them_cannot_begin(
        self, topic: str, make_consumer: MakeConsumer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class NoThread(threading.Thread):
            def start(self) -> None:
                if self.name == "headerware-worker-2":
                    raise RuntimeError("can't start new thread")
                started.append(self)
                super().start()

        started: list[threading.Thread] = []
        monkeypatch.setattr("headerware.clients.executor.Thread", NoThread)
        consumer = make_consumer(topic=topic, headerware_processing="explicit")
        with pytest.raises(RuntimeError, match="can't start"):
            consumer.run(lambda _: None, workers=4)
        assert len(started) == 2
        assert not any(thread.is_alive() for thread in started)

    def test_counts_what_ends_later(self, topic: str, fill: Fill, make_consumer: MakeConsumer) -> None:
        def handle(_: Message) -> None:
            consumer.stop()
            assert go_on.wait(60)

        fill(b"a")
        consumer, go_on = make_consumer(topic=topic, headerware_processing="explicit"), threading.Event()
        consumer.run(handle, stop_timeout_s=0)
        assert consumer.stats()["client"]["processed"] == 0
        go_on.set()
        until(lambda: consumer.stats()["client"]["processed"] == 1)

    def test_what_was_read_and_not_processed_is_read_again(
        self, topic: str, fill: Fill, make_consumer: MakeConsumer
    ) -> None:
        fill(*[b"%d" % number for number in range(40)])
        consumer = make_consumer(topic=topic, headerware_processing="explicit")
        first = Seen(consumer, 5)

        def slowly(message: Message) -> None:
            time.sleep(0.01)  # so that others wait when it is stopped
            first(message)

        consumer.run(slowly)
        rest = Seen(consumer, 40 - len(first.values))
        consumer.run(rest)
        assert [*first.values, *rest.values] == [b"%d" % number for number in range(40)]
        assert committed_of(consumer, topic) == 40

    def test_finishes_what_is_at_work_within_a_time(
        self, topic: str, fill: Fill, make_consumer: MakeConsumer
    ) -> None:
        fill(b"a", b"b")
        consumer = make_consumer(topic=topic, headerware_processing="explicit")
        go_on, late = threading.Event(), list[Any]()

        def handle(message: Message) -> None:
            consumer.stop()
            go_on.wait(60)
            late.append(message.value())

        consumer.run(handle, stop_timeout_s=0.1)
        assert committed_of(consumer, topic) == 0
        go_on.set()
        deadline = time.monotonic() + 60
        while not late:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        # It is not committed afterwards, and nothing more is started.
        assert late == [b"a"]
        assert committed_of(consumer, topic) == 0

    def test_a_callback_that_raises_meanwhile_loses_nothing(
        self, connection: dict[str, Any], topic: str, fill: Fill
    ) -> None:
        fill(b"a", b"b", b"c")
        values: list[bytes | None] = []
        raised = threading.Event()

        def on_statistics(_: str) -> None:
            if consumer._hw_executor is not None and consumer._hw_executor._closing and not raised.is_set():
                raised.set()
                raise ValueError("a callback's")

        def handle(message: Message) -> None:
            values.append(message.value())
            if len(values) == 1:
                consumer.stop()
                assert raised.wait(60)
            elif len(values) == 3:
                consumer.stop()

        conf = {"group.id": topic, "auto.offset.reset": "earliest", "headerware.processing": "explicit"}
        callback = {"statistics.interval.ms": 20, "stats_cb": on_statistics}
        with Consumer({**connection, **conf, **callback}) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            with pytest.raises(ValueError, match="a callback's"):
                consumer.run(handle, order="partition")
            assert committed_of(consumer, topic) == 1
            consumer.run(handle, order="partition")
            assert values == [b"a", b"b", b"c"]
            assert committed_of(consumer, topic) == 3

    def test_events_that_do_not_pass_end_run(
        self, connection: dict[str, Any], unique_topic: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        conf = {**connection, "group.id": unique_topic("g"), "allow.auto.create.topics": False}
        with Consumer({**conf, "headerware.processing": "explicit"}) as consumer:
            consumer.subscribe([unique_topic("none")])
            threading.Timer(0.5, consumer.stop).start()
            consumer.run(print)  # an unknown topic passes
            error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "no")
            monkeypatch.setattr(consumer, "poll", lambda _: Message("t", 0, 0, None, None, None, error))
            with pytest.raises(confluent_kafka.KafkaException, match="no"):
                consumer.run(print)
            monkeypatch.undo()


def test_goes_on_with_another_chain(
    connection: dict[str, Any], topic: str, fill: Fill, tmp_path: Path
) -> None:
    file = tmp_path / "chain.toml"
    file.write_text('[[interceptors]]\ntype = "trail"\nservice = "a"\n')
    conf = {"group.id": topic, "auto.offset.reset": "earliest", "headerware.config": str(file)}
    fill(b"a")
    with Consumer({**connection, **conf, "headerware.reload": "watch"}) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        first, seen = consumer.chain, list[Any]()

        def handle(message: Message) -> None:
            seen.append(message.value())
            if len(seen) == 1:
                file.write_text('[[interceptors]]\ntype = "trail"\nservice = "b"\n')
                deadline = time.monotonic() + 60
                while consumer.chain == first and time.monotonic() < deadline:
                    time.sleep(0.01)
                fill(b"bad")
            else:
                consumer.stop()
                raise ValueError("payload")

        consumer.run(handle, on_failure="dead_letter")
        assert consumer.chain != first
        assert seen == [b"a", b"bad"]
        assert committed_of(consumer, topic) == 2
    (letter,) = read_all(connection, f"{topic}.dead-letter", 1)
    assert letter.value() == b"bad"
