"""The runner on librdkafka's mock cluster: what is sent, what is stored, and what is refused."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from threading import Thread
from typing import Any, BinaryIO, ClassVar, Final, NamedTuple

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from headerware import ConfigError, Interceptor, Record
from headerware.clients import Producer
from headerware.core.batch import Batch as RecordBatch
from headerware.core.errors import HeldBackError, InterceptorError, SourceError
from headerware.core.hooks import DROP
from headerware.core.plugins import interceptor_type
from headerware.core.stop_flag import StopFlag
from headerware.sources import MemoryOffsets, NativeItem, OffsetEntry, SourceTask
from headerware.sources.engine.batches import Batch
from headerware.sources.engine.decision import offset_key
from headerware.sources.engine.retries import StoppedError
from headerware.sources.extractors import JsonLinesExtractor
from headerware.sources.runtime import RunConfig, SourceRunner, SqliteOffsets
from headerware.sources.runtime import metrics as metrics_module
from headerware.sources.runtime import runner as runner_module
from headerware.sources.runtime import sender as sender_module
from headerware.sources.runtime.sender import Sender
from headerware.sources.runtime.stores import OffsetsUnavailableError
from headerware.sources.runtime.topic_offsets import TopicOffsets
from headerware.testing import EmbeddedCluster
from headerware.workers.transactions import Transactions
from tests.spool import Lines, Spool
from tests.waiting import until

NAMES: Final = [f"source-{number:02}" for number in range(120)]


class Dropping(Interceptor, frozen=True, kw_only=True):
    """Drops tombstones."""

    def on_send(self, record: Record) -> Any:
        return DROP if record.value is None else record


class Holding(Interceptor, frozen=True, kw_only=True):
    """Holds records back a few times, as if a key service were down."""

    type: ClassVar[str] = "holding"
    left: ClassVar[list[int]] = []

    def on_send(self, record: Record) -> Record:
        if self.left:
            self.left.pop()
            raise HeldBackError("the key service is down, as this test wants it")
        return record


class Choosy(Interceptor, frozen=True, kw_only=True):
    """Keeps the first record waiting, holds another one back once, and refuses a third."""

    type: ClassVar[str] = "choosy"
    released: ClassVar[threading.Event]
    held: ClassVar[bool]

    def on_send(self, record: Record) -> Record:
        if record.value == b"first":
            gates.set()
            assert Choosy.released.wait(60)
        if record.value == b"held" and Choosy.held:
            Choosy.held = False
            raise HeldBackError("the key service is down, as this test wants it")
        if record.value == b"bad":
            raise InterceptorError("as this test wants it")
        return record


gates: Final = threading.Event()


class Gated(Spool, frozen=True, kw_only=True):
    """Opens nothing but ``a`` before it may."""

    def items(self, start: str | None) -> Iterator[NativeItem]:
        for item in super().items(start):
            yield GatedFile(item)


class GatedFile(NativeItem):
    def __init__(self, item: NativeItem) -> None:
        super().__init__(item.context, item.length)
        self._item = item

    def open_stream(self) -> BinaryIO:
        assert self.context.key == "a" or gates.wait(60)
        return self._item.open_stream()


def routed(replacement: str) -> dict[str, str]:
    """Return the lines of a connector that sends to another topic."""
    return {
        "transforms": "route",
        "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.route.regex": "(?:raw-)?(source-.*)",
        "transforms.route.replacement": replacement,
        "key.converter": "ByteArrayConverter",
        "value.converter": "ByteArrayConverter",
    }


DELIVERIES: Final = ("exactly_once", "at_least_once")


class Place(NamedTuple):
    """Where a test's records come from, and where they go."""

    cluster: EmbeddedCluster
    folder: Path
    topic: str
    name: str

    def write(self, name: str, *lines: str) -> None:
        (self.folder / name).write_text("".join(f"{line}\n" for line in lines))

    def config(self, **options: Any) -> RunConfig:
        given: dict[str, Any] = {
            "name": self.name,
            "source": Spool(folder=str(self.folder)),
            "extractor": Lines(together=2),
            "topic": self.topic,
            "kafka": {"bootstrap.servers": self.cluster.bootstrap_servers, **options.pop("kafka", {})},
            "dead_letter_topic": "letters",
            "poll_wait_s": 0.02,
            "listing_pause_s": 0.02,
            "commit_interval_s": 0.05,
            **options,
        }
        return RunConfig(**given)

    def run(self, **options: Any) -> None:
        SourceRunner(self.config(**options), once=True).run()

    def read(self, topic: str | None = None) -> list[Message]:
        """Return all records of a topic."""
        topic = topic or self.topic
        consumer = Consumer({"bootstrap.servers": self.cluster.bootstrap_servers, "group.id": "test"})
        try:
            end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)
            assert end is not None
            consumer.assign([TopicPartition(topic, 0, 0)])
            found: list[Message] = []
            until(
                lambda: consumer.position([TopicPartition(topic, 0)])[0].offset >= end[1] or not end[1],
                meanwhile=lambda: found.extend(consumer.consume(500, 0.1)),
            )
        finally:
            consumer.close()
        return [message for message in found if message.error() is None]

    def letters(self) -> list[Message]:
        """Return the dead letters of the source."""
        return [
            message
            for message in self.read("letters")
            if ("hw.source", self.name.encode()) in (message.headers() or [])
        ]

    def letter(self) -> Message:
        """Return the only dead letter of the source."""
        (found,) = self.letters()
        return found

    def values(self) -> list[Any]:
        return [message.value() for message in self.read()]

    def offset(self, key: str) -> OffsetEntry | None:
        made = self.config()
        store = made.offsets.open(made.kafka, source=self.name)
        try:
            return store.get(offset_key(made, key))  # type: ignore[no-any-return]
        finally:
            store.close()


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[EmbeddedCluster, Iterator[str]]]:
    """Return a cluster with all topics, and their names: making one later takes a third of a second."""
    with EmbeddedCluster(topics=dict.fromkeys([*NAMES, "letters", "headerware-offsets"], 1)) as made:
        yield made, iter(NAMES)


@pytest.fixture
def place(cluster: tuple[EmbeddedCluster, Iterator[str]], tmp_path: Path) -> Place:
    (tmp_path / "in").mkdir()
    name = next(cluster[1])
    return Place(cluster[0], tmp_path / "in", name, name)


@pytest.mark.parametrize("delivery", DELIVERIES)
class TestDelivery:
    def test_sends_what_is_there_once(self, place: Place, delivery: str) -> None:
        place.write("a", "1", "2")
        place.write("b")
        place.write("c", "3")
        for _ in range(2):
            place.run(delivery=delivery)
        assert place.values() == [b"1", b"2", b"3"]
        found = place.offset("b")
        assert found is not None
        assert found.complete

    def test_sends_what_comes_later(self, place: Place, delivery: str) -> None:
        place.write("a", "1")
        place.run(delivery=delivery)
        place.write("b", "2")
        place.run(delivery=delivery)
        assert place.values() == [b"1", b"2"]

    def test_tells_where_a_record_is_from(self, place: Place, delivery: str) -> None:
        place.write("a", "1")
        place.run(delivery=delivery)
        (message,) = place.read()
        assert message.headers() == [
            ("content-type", b"text/plain"),
            ("hw.source", place.name.encode()),
            ("hw.source.key", b"a"),
            ("hw.source.record", b"1"),
        ]

    def test_goes_through_the_chain(self, place: Place, delivery: str) -> None:
        place.write("a", "1")
        place.run(delivery=delivery, kafka={"interceptors": "trail", "interceptors.trail.service": "spool"})
        (message,) = place.read()
        headers = dict(message.headers() or [])
        assert b"by=spool" in (headers["hw.trail"] or b"")

    def test_advances_over_what_a_transform_drops(self, place: Place, delivery: str) -> None:
        place.write("a", "1", "2")
        lines = {
            "transforms": "none",
            "transforms.none.type": "org.apache.kafka.connect.transforms.Filter",
            "transforms.none.predicate": "all",
            "predicates": "all",
            "predicates.all.type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
            "predicates.all.pattern": ".*",
            "key.converter": "ByteArrayConverter",
            "value.converter": "ByteArrayConverter",
        }
        place.run(delivery=delivery, kafka=lines)
        assert place.values() == []
        found = place.offset("a")
        assert found is not None
        assert (found.record_number, found.complete) == (2, True)

    def test_sends_what_was_read_before_it_stops(self, place: Place, delivery: str) -> None:
        place.write("a", "1", "2", "!", "4")
        with pytest.raises(SourceError, match="record 3 of object 'a'"):
            place.run(delivery=delivery)
        assert place.values() == [b"1", b"2"]
        found = place.offset("a")
        assert found is not None
        assert (found.record_number, found.complete) == (2, False)
        place.run(delivery=delivery, on_record_error="drop")
        assert place.values() == [b"1", b"2", b"4"]

    def test_sends_dead_letters_past_the_chain(self, place: Place, delivery: str) -> None:
        place.write("a", "1", "!bad", "3")
        chain = {"interceptors": "serialize", "interceptors.serialize.value": "bytes"}
        place.run(delivery=delivery, on_record_error="dead_letter", kafka=chain)
        assert place.values() == [b"1", b"3"]
        letter = place.letter()
        assert (letter.key(), letter.value()) == (b"a#2", b"!bad")

    def test_a_record_that_nobody_has_serialized_says_so(self, place: Place, delivery: str) -> None:
        place.write("a", '{"id": 1}')
        with pytest.raises(
            SourceError,
            match=r"value of a record .*, not dict; put a step that serializes .* serialize it first",
        ):
            place.run(delivery=delivery, extractor=JsonLinesExtractor())

    def test_a_record_that_cannot_be_sent_is_one_bad_record(self, place: Place, delivery: str) -> None:
        place.write("a", "1", "x" * 2_000_000, "3")
        with pytest.raises(SourceError, match=r"record 2 of object 'a' .* cannot be sent: .*too large"):
            place.run(delivery=delivery)
        place.run(delivery=delivery, on_record_error="dead_letter")
        letter = place.letter()
        assert letter.key() == b"a#2"
        assert sorted(set(place.values())) == [b"1", b"3"]

    def test_a_partition_that_the_topic_lacks_is_one_bad_record(self, place: Place, delivery: str) -> None:
        place.write("a-9", "1")
        options = {"partition": "{part}", "key_pattern": r".*-(?P<part>\d+)", "delivery": delivery}
        with pytest.raises(SourceError, match=r"record 1 of object 'a-9' .* cannot be sent: .*partition"):
            place.run(**options)
        place.run(**options, on_record_error="dead_letter")
        assert place.letter().key() == b"a-9#1"

    def test_a_missing_topic_is_an_error_before_anything_is_sent(self, place: Place, delivery: str) -> None:
        place.write("a", "1")
        for _ in range(2):  # asking has not made it
            with pytest.raises(SourceError, match=r"'nowhere-\d+': the topic does not exist"):
                place.run(delivery=delivery, topic=f"nowhere-{place.name[-2:]}")
        assert place.offset("a") is None

    def test_a_missing_topic_of_one_object_is_found_before_its_first_record(
        self, place: Place, delivery: str
    ) -> None:
        place.write("a-1", "1")
        with pytest.raises(SourceError, match="the topic does not exist"):
            place.run(delivery=delivery, topic="{kind}-" + place.name, key_pattern="(?P<kind>.*)-1")
        assert place.offset("a-1") is None

    def test_a_missing_topic_that_a_transform_routes_to_is_an_error(
        self, place: Place, delivery: str
    ) -> None:
        place.write("a", "1", "2")
        for _ in range(2):  # asking has not made it
            with pytest.raises(SourceError, match=r"'routed-source-\d+': the topic does not exist"):
                place.run(delivery=delivery, kafka=routed("routed-$0"), on_record_error="drop")
        assert place.offset("a") is None
        assert place.values() == []

    def test_a_topic_that_a_transform_routes_from_need_not_be_there(
        self, place: Place, delivery: str
    ) -> None:
        place.write("a", "1", "2")
        place.run(delivery=delivery, topic=f"raw-{place.topic}", kafka=routed("$1"))
        assert place.values() == [b"1", b"2"]

    def test_a_dead_letter_has_a_number_though_records_have_no_headers(
        self, place: Place, delivery: str
    ) -> None:
        place.write("a", "1", "!bad", "3", "x" * 2_000_000, "5")
        place.run(delivery=delivery, on_record_error="dead_letter", headers=False)
        assert {letter.key() for letter in place.letters()} == {b"a#2", b"a#4"}
        assert place.values() == [b"1", b"3", b"5"]

    def test_shares_the_work_among_tasks(self, place: Place, delivery: str) -> None:
        for number in range(20):
            place.write(f"{number:02}", str(number))
        place.run(delivery=delivery, tasks=3)
        place.run(delivery=delivery, tasks=2)
        assert sorted(place.values(), key=int) == [b"%d" % number for number in range(20)]

    def test_serializes_once_what_is_sent_again(
        self, place: Place, delivery: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        left = [BufferError()]
        queue = Producer._hw_queue_batch

        def queued(self: Producer, batch: RecordBatch, report: Any) -> list[Exception | None]:
            errors = queue(self, batch, report)
            return [*errors[:-1], left.pop()] if left else errors

        monkeypatch.setattr(Producer, "_hw_queue_batch", queued)
        place.write("a", '{"n":1}', '{"n":2}')
        place.run(
            delivery=delivery,
            extractor=JsonLinesExtractor(),
            kafka={"interceptors": "serialize", "interceptors.serialize.value": "json"},
            retry_pause_s=0.01,
        )
        assert not left
        assert set(place.values()) == {b'{"n":1}', b'{"n":2}'}
        (found,) = {tuple(message.headers() or ())[-2:] for message in place.read()[-1:]}
        assert found == (("hw.source.record", b"2"), ("content-type", b"application/json"))
        offset = place.offset("a")
        assert offset is not None
        assert offset.record_number == 2

    def test_what_is_sent_again_goes_through_the_chain_of_then(
        self, place: Place, delivery: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        file, left = tmp_path / "chain.toml", [BufferError()]
        chain = '[[interceptors]]\ntype = "serialize"\nvalue = { type = "json", content_type = "%s" }\n'
        file.write_text(chain % "application/json")
        queue = Producer._hw_queue_batch

        def queued(self: Producer, batch: RecordBatch, report: Any) -> list[Exception | None]:
            errors = queue(self, batch, report)
            if not left:
                return errors
            file.write_text(chain % "application/new+json")
            self.reload()
            return [*errors[:-1], left.pop()]

        monkeypatch.setattr(Producer, "_hw_queue_batch", queued)
        place.write("a", '{"n":1}', '{"n":2}')
        place.run(
            delivery=delivery,
            extractor=JsonLinesExtractor(),
            kafka={"headerware.config": str(file), "headerware.reload": "watch"},
            retry_pause_s=0.01,
        )
        assert [dict(message.headers() or ())["content-type"] for message in place.read()[-2:]] == [
            b"application/new+json"
        ] * 2

    def test_what_was_sent_again_stays_out_of_the_next_batch(
        self, place: Place, delivery: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The next one goes record by record, and is sent again, too."""
        left = [BufferError(), BufferError()]
        send = Producer._hw_send_batch

        def sent(self: Producer, *arguments: Any) -> list[Exception | None]:
            errors = send(self, *arguments)
            return [left.pop(), *errors[1:]] if left else errors

        monkeypatch.setattr(Producer, "_hw_send_batch", sent)
        monkeypatch.setitem(interceptor_type._built_in, "dropping", f"{__name__}:Dropping")
        place.write("a", '{"n":1}', '{"n":2}')
        place.write("b", '{"n":3}', '{"n":4}', "null")
        place.run(
            delivery=delivery,
            extractor=JsonLinesExtractor(),
            kafka={"interceptors": "serialize,dropping", "interceptors.serialize.value": "json"},
            retry_pause_s=0.01,
        )
        assert not left
        assert set(place.values()) == {b'{"n":%d}' % number for number in range(1, 5)}

    def test_waits_for_what_is_held_back_and_drops_none_of_it(
        self, place: Place, delivery: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(interceptor_type._built_in, "holding", f"{__name__}:Holding")
        Holding.left[:] = [1, 2, 3]
        place.write("a", "1", "2")
        place.run(
            delivery=delivery,
            kafka={"interceptors": "holding"},
            on_record_error="drop",
            retry_pause_s=0.01,
        )
        assert sorted(set(place.values())) == [b"1", b"2"]
        assert not Holding.left

    def test_gives_up_what_is_held_back_for_too_long(
        self, place: Place, delivery: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(interceptor_type._built_in, "holding", f"{__name__}:Holding")
        Holding.left[:] = range(100_000)
        place.write("a", "1")
        with pytest.raises(SourceError, match="the key service is down"):
            place.run(
                delivery=delivery,
                kafka={"interceptors": "holding"},
                retry_pause_s=0.01,
                retry_deadline_s=0.1,
            )
        Holding.left.clear()
        assert place.offset("a") is None

    def test_loses_nothing_behind_what_is_held_back(
        self, place: Place, delivery: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A record is refused while what was held back before it is sent again."""
        monkeypatch.setitem(interceptor_type._built_in, "choosy", f"{__name__}:Choosy")
        Choosy.held, Choosy.released = True, threading.Event()
        gates.clear()
        place.write("a", "first")
        place.write("b", "held")
        place.write("c", "bad", "after")
        runner = SourceRunner(
            place.config(
                source=Gated(folder=str(place.folder)),
                delivery=delivery,
                kafka={"interceptors": "choosy"},
                retry_pause_s=0.01,
            ),
            once=True,
        )
        errors: list[SourceError] = []

        def run() -> None:
            try:
                runner.run()
            except SourceError as error:
                errors.append(error)

        thread = Thread(target=run, daemon=True)
        thread.start()
        until(lambda: 0 in runner.statistics and runner._runs[0].task is not None)
        task = runner._runs[0].task
        assert task is not None
        until(lambda: task.queued == 3)
        Choosy.released.set()
        thread.join(60)
        assert "cannot be sent" in str(errors[0])
        place.run(delivery=delivery)
        assert set(place.values()) == {b"first", b"held", b"bad", b"after"}

    def test_a_missing_topic_of_dead_letters_is_an_error_at_the_start(
        self, place: Place, delivery: str
    ) -> None:
        place.write("a", "1")
        with pytest.raises(SourceError, match=r"-nowhere': the topic does not exist"):
            place.run(delivery=delivery, on_record_error="dead_letter", dead_letter_topic="{topic}-nowhere")
        assert place.values() == []

    def test_waits_for_room_in_the_queue(self, place: Place, delivery: str) -> None:
        place.write("a", *("x" * 1_000 for _ in range(3_000)))
        place.run(
            delivery=delivery,
            kafka={"queue.buffering.max.messages": 100, "queue.buffering.max.kbytes": 1024},
            poll_records=50,
            poll_bytes=1 << 19,
        )
        assert len(place.values()) == 3_000

    def test_stops_at_once_and_stores_what_was_sent(self, place: Place, delivery: str) -> None:
        place.write("a", *map(str, range(5_000)))
        runner = SourceRunner(place.config(delivery=delivery, commit_interval_s=25.0))
        thread = Thread(target=runner.run, daemon=True)
        thread.start()
        until(lambda: 0 in runner.statistics and runner.statistics[0].complete)
        began = time.monotonic()
        runner.stop()
        thread.join(60)
        assert time.monotonic() - began < 20
        found = place.offset("a")
        sent = len(place.values())
        assert found is None if not sent else found is not None and found.record_number == sent
        place.run(delivery=delivery)
        assert place.values() == [b"%d" % number for number in range(5_000)]


def test_some_task_must_run(place: Place) -> None:
    with pytest.raises(SourceError, match="expected tasks of source"):
        SourceRunner(place.config(), tasks=[])


def test_reading_once_ends_when_the_brokers_have_answered(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender_module, "_STOP_S", 0.2)
    errors: list[SourceError] = []

    def run() -> None:
        try:
            runner.run()
        except SourceError as error:
            errors.append(error)

    with EmbeddedCluster(topics={"t": 1}) as gone:
        place.write("b", "1")
        gates.clear()
        runner = SourceRunner(
            place.config(
                source=Gated(folder=str(place.folder)),
                topic="t",
                delivery="at_least_once",
                offsets=SqliteOffsets(path=str(place.folder.parent / "offsets.db")),
                kafka={
                    "bootstrap.servers": gone.bootstrap_servers,
                    "message.timeout.ms": 1_500,
                    "log_level": 0,
                },
            ),
            once=True,
        )
        thread = Thread(target=run, daemon=True)
        thread.start()
        until(lambda: 0 in runner.statistics and runner.statistics[0].objects)
    gates.set()
    thread.join(60)
    assert "a record was not delivered" in str(errors[0])


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_gives_up_early_if_no_broker_is_there_at_the_start(
    place: Place, delivery: str, capfd: pytest.CaptureFixture[str]
) -> None:
    # Waiting for all of the minute would end with another text.
    with pytest.raises(SourceError, match=r"cannot start: 127\.0\.0\.1:1 cannot be reached: .*addresses"):
        place.run(delivery=delivery, kafka={"bootstrap.servers": "127.0.0.1:1"})
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_tells_an_outage_in_a_line(
    place: Place, delivery: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with EmbeddedCluster(topics={"t": 1, "headerware-offsets": 1}) as gone:
        gates.clear()
        place.write("b", "1")
        source = Gated(folder=str(place.folder))
        kafka = {"bootstrap.servers": gone.bootstrap_servers}
        runner = SourceRunner(place.config(source=source, topic="t", delivery=delivery, kafka=kafka))
        thread = Thread(target=runner.run, daemon=True)
        thread.start()
        until(lambda: 0 in runner.statistics and runner.statistics[0].objects)
        capfd.readouterr()  # what the cluster itself says at its start
    gates.set()
    until(lambda: "waits for the brokers: " in caplog.text)
    runner.stop()
    thread.join(60)
    assert not thread.is_alive()
    assert caplog.text.count("waits for the brokers: ") == 1
    assert "|FAIL|" not in capfd.readouterr().err


def test_offsets_that_are_only_looked_at_give_up_early_without_brokers() -> None:
    with pytest.raises(SourceError, match=r"offsets cannot be read: 127\.0\.0\.1:1 cannot be reached: "):
        TopicOffsets().open({"bootstrap.servers": "127.0.0.1:1"}, source="s")


def test_looking_at_offsets_makes_no_topic(embedded_cluster: EmbeddedCluster) -> None:
    connection: dict[str, Any] = {"bootstrap.servers": embedded_cluster.bootstrap_servers}
    for _ in range(2):  # brokers would make it with their defaults, and then it is there, but not compacted
        with pytest.raises(SourceError, match="offsets cannot be read"):
            TopicOffsets(topic="misspelt", create=False).open(connection, source="s")
    assert "misspelt" not in AdminClient(connection).list_topics(timeout=60).topics


def test_stops_though_there_is_no_room_and_no_broker(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender_module, "_STOP_S", 0.5)
    with EmbeddedCluster(topics={"t": 1, "headerware-offsets": 1}) as gone:
        place.write("b", *("x" * 100 for _ in range(3_000)))
        gates.clear()
        source = Gated(folder=str(place.folder))
        runner = SourceRunner(
            place.config(
                source=source,
                topic="t",
                delivery="at_least_once",
                poll_records=50,
                kafka={
                    "bootstrap.servers": gone.bootstrap_servers,
                    "queue.buffering.max.messages": 100,
                    "log_level": 0,
                },
            )
        )
        thread = Thread(target=runner.run, daemon=True)
        thread.start()
        until(lambda: 0 in runner.statistics and runner.statistics[0].objects)
    gates.set()
    until(lambda: runner.statistics[0].records >= 500)
    runner.stop()
    thread.join(60)
    assert not thread.is_alive()


@pytest.mark.filterwarnings("always")
def test_a_transaction_that_is_given_up_is_one_error(
    place: Place, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    monkeypatch.setattr(sender_module, "_STOP_S", 0.3)
    with EmbeddedCluster(topics={"t": 1, "headerware-offsets": 1}) as gone:
        gates.clear()
        place.write("b", "1")
        runner = SourceRunner(
            place.config(
                source=Gated(folder=str(place.folder)),
                topic="t",
                retry_pause_s=0.05,
                retry_deadline_s=0.2,
                kafka={"bootstrap.servers": gone.bootstrap_servers, "log_level": 0},
            )
        )
        errors: list[BaseException] = []

        def run() -> None:
            try:
                runner.run()
            except BaseException as error:  # noqa: BLE001 - the test looks at it
                errors.append(error)

        thread = Thread(target=run, daemon=True)
        thread.start()
        until(lambda: 0 in runner.statistics and runner.statistics[0].objects)
    gates.set()
    thread.join(180)  # a commit that nobody answers may take its transaction's minute
    assert [type(error) for error in errors] == [SourceError]
    assert [str(warning.message) for warning in recwarn] == []


class TestOneWriter:
    def test_a_file_has_one_writer(self, place: Place, tmp_path: Path) -> None:
        place.write("a", "1")
        options = {"offsets": SqliteOffsets(path=str(tmp_path / "offsets")), "delivery": "at_least_once"}
        store = SqliteOffsets(path=str(tmp_path / "offsets"))
        held = store.open({}, source=place.name, writers=place.config().sharing.writers(place.name))
        with pytest.raises(SourceError, match="another process"):
            place.run(**options)
        held.close()
        place.run(**options)
        place.run(**options)
        assert place.values() == [b"1"]

    def test_a_killed_process_holds_no_file(self, place: Place, tmp_path: Path) -> None:
        program = (
            "import os, sys\n"
            "from headerware.sources.runtime import SqliteOffsets\n"
            "held = SqliteOffsets(path=sys.argv[1]).open({}, source='s', writers=['s-0'])\n"
            "os.kill(os.getpid(), 9)\n"
        )
        done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "offsets")], check=False)
        assert done.returncode == -9
        SqliteOffsets(path=str(tmp_path / "offsets")).open({}, source="s", writers=["s-0"]).close()


class TestSharing:
    """No object is read by two: tasks that share the source in another way have ended before."""

    @pytest.fixture
    def options(self, tmp_path: Path) -> dict[str, Any]:
        return {"offsets": SqliteOffsets(path=str(tmp_path / "offsets")), "delivery": "at_least_once"}

    @pytest.mark.parametrize("change", [{"distribution": "partition"}, {"tasks": 3}])
    def test_another_one_waits_for_the_end_of_the_former(
        self, place: Place, options: dict[str, Any], change: dict[str, Any]
    ) -> None:
        place.write("a", "1")
        former = place.config(**options, tasks=2)
        SourceRunner(former, once=True).run()
        held = former.offsets.open({}, source=place.name, writers=former.sharing.writers(place.name)[1:])
        place.write("b", "2")
        changed = {**options, "tasks": 2, **change}
        for _ in range(2):  # the first one has left that to the second
            with pytest.raises(SourceError, match="another process"):
                SourceRunner(place.config(**changed), tasks=[0], once=True).run()
        held.close()
        place.run(**changed)
        assert place.values() == [b"1", b"2"]
        place.run(**options, tasks=2)

    def test_tasks_of_a_process_hold_their_offsets_once(self, place: Place) -> None:
        place.write("a", "1")
        runner = SourceRunner(place.config(tasks=3), once=True)
        runner.run()
        assert len({id(run.offsets) for run in runner._runs}) == 1
        assert place.values() == [b"1"]


class TestSqlite:
    def test_refuses_other_files(self, tmp_path: Path) -> None:
        (tmp_path / "text").write_text("no database " * 100)
        with pytest.raises(SourceError, match="cannot be used"):
            SqliteOffsets(path=str(tmp_path / "text")).open({}, source="s")
        with closing(sqlite3.connect(tmp_path / "other")) as connection:
            connection.execute("CREATE TABLE offset (mine TEXT)")
        with pytest.raises(SourceError, match="a SQLite file, but not a file of offsets"):
            SqliteOffsets(path=str(tmp_path / "other")).open({}, source="s")

    def test_keeps_the_sources_apart(self, place: Place, tmp_path: Path) -> None:
        store = SqliteOffsets(path=str(tmp_path / "offsets"))
        key = offset_key(place.config(), "a")
        one = store.open({}, source="one")
        one.put({key: OffsetEntry(record_number=1)})
        other = store.open({}, source="other")
        assert other.get(key) is None
        assert other.items() == []
        assert one.items() == [(key, OffsetEntry(record_number=1))]
        one.put({key: None})
        assert one.items() == []
        one.close()
        other.close()
        other.close()

    def test_a_full_disk_is_an_error_that_passes(self, tmp_path: Path, place: Place) -> None:
        if os.name != "posix":
            pytest.skip("limits of files are POSIX's")
        store = SqliteOffsets(path=str(tmp_path / "offsets")).open({}, source="s")
        key = offset_key(place.config(), "a")
        store._connection.execute("PRAGMA max_page_count = 3")
        with pytest.raises(SourceError, match="full"):
            store.put({key: OffsetEntry(properties={"large": "x" * 100_000})})
        assert store.get(key) is None
        store._connection.execute("PRAGMA max_page_count = 1000")
        store.put({key: OffsetEntry(properties={"large": "x" * 100_000})})
        assert store.get(key) is not None
        store.close()


class TestRunConfig:
    def test_reads_a_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from headerware.sources.extractor import extractor_type  # noqa: PLC0415 - only here
        from headerware.sources.source import source_type  # noqa: PLC0415 - only here

        monkeypatch.setitem(source_type._built_in, "spool", "tests.spool:Spool")
        monkeypatch.setitem(extractor_type._built_in, "lines", "tests.spool:Lines")
        monkeypatch.setenv("SERVERS", "localhost:1")
        (tmp_path / "source.toml").write_text(
            'name = "x"\ntopic = "t"\nextractor = "lines"\ndelivery = "at_least_once"\n'
            '[source]\ntype = "spool"\nfolder = "in"\n'
            '[offsets]\ntype = "sqlite"\npath = "offsets.db"\n'
            '[kafka]\nbootstrap.servers = "${env:SERVERS}"\n"headerware.config" = "chain.toml"\n'
        )
        made = RunConfig.load(tmp_path / "source.toml")
        assert made.offsets == SqliteOffsets(path=str(tmp_path / "offsets.db"))
        assert made.kafka == {
            "bootstrap.servers": "localhost:1",
            "headerware.config": str(tmp_path / "chain.toml"),
        }

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"offsets": SqliteOffsets(path="x")}, "delivery: .*at_least_once"),
            ({"kafka": {"transactional.id": "x"}}, r"kafka\.transactional\.id: .* remove it"),
            ({"commit_interval_s": 0}, "commit_interval_s: expected more than 0"),
            (
                {"poll_wait_s": 40.0},
                r"poll_wait_s: .* at most 30 s, .* found 40\.05 s.* transaction\.timeout\.ms",
            ),
            (
                {"commit_interval_s": 4.0, "kafka": {"transaction.timeout.ms": "6000"}},
                "commit_interval_s: .* at most 3 s, .* found 4.02 s",
            ),
            (
                {"kafka": {"queue.buffering.max.messages": 998}},
                r"poll_records: .* at most 499, found 500; .* queue\.buffering\.max\.messages",
            ),
            (
                {"kafka": {"queue.buffering.max.kbytes": "8192"}},
                r"poll_bytes: .* at most 4194304, found 8388608; .* queue\.buffering\.max\.kbytes",
            ),
            ({"offsets": "nothing"}, "offsets: expected a store of offsets"),
        ],
    )
    def test_refuses_what_cannot_work(self, place: Place, options: dict[str, Any], message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            place.config(**options)

    @pytest.mark.parametrize(
        "options",
        [
            {"poll_wait_s": 40.0, "delivery": "at_least_once"},
            {"poll_wait_s": 40.0, "kafka": {"transaction.timeout.ms": 120_000}},
            {"kafka": {"queue.buffering.max.messages": 0}},  # no limit
        ],
    )
    def test_takes_what_works(self, place: Place, options: dict[str, Any]) -> None:
        place.config(**options)

    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("", r"source\.toml:1:1: name: is missing, and has no default"),
            ('name = "x"\noffsets = {path = "x"}', "offsets: expected the word .*; known: sqlite, topic"),
            ('name = "x"\ntransformers = ["y"]', "there is no transformer type 'y'; known: none"),
        ],
    )
    def test_refuses_a_file(self, tmp_path: Path, line: str, message: str) -> None:
        (tmp_path / "source.toml").write_text(
            f'{line}\nextractor = "csv"\nsource = {{type = "files", folder = "in"}}\n[kafka]\n'
            '"bootstrap.servers" = "localhost:1"\n'
        )
        with pytest.raises(ConfigError, match=message):
            RunConfig.load(tmp_path / "source.toml")

    def test_wants_servers(self) -> None:
        with pytest.raises(ConfigError, match=r"kafka: expected bootstrap\.servers"):
            RunConfig(name="x", source=Spool(folder="."), extractor=Lines(), topic="t")

    def test_shows_no_password(self, place: Place) -> None:
        assert "SECRET" not in repr(place.config(kafka={"sasl.password": "SECRET"}))


def test_what_may_not_have_been_sent_again_is_not_stored(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A stop during an outage waits for no report, so nobody knows what became of a record."""
    monkeypatch.setattr(sender_module, "_STOP_S", 0.2)
    place.write("a", "1")
    offsets, stopping = MemoryOffsets(), StopFlag()
    with EmbeddedCluster(topics={"t": 1}) as gone:
        config = place.config(
            topic="t",
            delivery="at_least_once",
            offsets=SqliteOffsets(path=str(tmp_path / "unused.db")),
            kafka={"bootstrap.servers": gone.bootstrap_servers, "log_level": 0},
        )
        sender = sender_module.AtLeastOnce(config, "w", stopping)
    with closing(sender), SourceTask(config, offsets, once=True) as task:
        batches: list[Batch] = []
        until(lambda: batches, meanwhile=lambda: batches.extend(task.poll()))
        sender.begin(task, offsets)
        for batch in batches:
            sender.send_again(batch)
        stopping.set()
        sender._send_again()
        assert task.take_offsets() == {}


class TestAnIdleSource:
    """It has nothing to store but that it is at work: an outage is waited for without a deadline."""

    DEADLINE_S: Final = 0.05

    def idle(self, place: Place, cluster: EmbeddedCluster, delivery: str) -> RunConfig:
        return place.config(
            topic="t",
            delivery=delivery,
            kafka={"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0},
            retry_deadline_s=self.DEADLINE_S,
            retry_pause_s=self.DEADLINE_S,
            retry_max_pause_s=self.DEADLINE_S,
        )

    def test_asks_for_its_transaction_again(self, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sender_module, "_STOP_S", self.DEADLINE_S)
        commits, commit = 0, Transactions.commit

        def counted(transactions: Transactions, deadline: float = 0.0) -> None:
            nonlocal commits
            commits += 1
            commit(transactions, deadline)

        monkeypatch.setattr(Transactions, "commit", counted)
        with EmbeddedCluster(topics={"t": 1, "headerware-offsets": 1}) as gone:
            config = self.idle(place, gone, "exactly_once")
            stopping = StopFlag()
            sender = sender_module.ExactlyOnce(config, "w", stopping)
            offsets = config.offsets.open(config.kafka, source=config.name)
        with closing(offsets), closing(sender), SourceTask(config, offsets, once=True) as task:
            sender.begin(task, offsets)
            self.sends_until(sender, stopping, lambda: commits > 10)

    def test_tries_again_to_store_that_it_is_at_work(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The outage began after the brokers had been asked whether they are there."""
        monkeypatch.setattr(sender_module.AtLeastOnce, "_may_sign_alone", lambda _: True)
        with EmbeddedCluster(topics={"t": 1}) as cluster:
            config, stopping = self.idle(place, cluster, "at_least_once"), StopFlag()
            sender, offsets = sender_module.AtLeastOnce(config, "w", stopping), Unavailable()
            with closing(sender), SourceTask(config, offsets, once=True) as task:
                sender.begin(task, offsets)
                self.sends_until(sender, stopping, lambda: offsets.puts > 10)

    def sends_until(self, sender: Sender, stopping: StopFlag, condition: Callable[[], bool]) -> None:
        """Let an idle task send nothing, and end it by a stop when something has come about."""
        errors: list[BaseException] = []

        def send() -> None:
            try:
                sender.send([])
            except BaseException as error:  # noqa: BLE001 - the test looks at it
                errors.append(error)

        thread = Thread(target=send, daemon=True)
        thread.start()
        until(lambda: condition() or not thread.is_alive())
        stopping.set()
        thread.join(60)
        assert [type(error) for error in errors] == [StoppedError]


class Unavailable(MemoryOffsets):
    """Offsets that cannot be stored now."""

    puts = 0

    def put(self, entries: Any, writer: str | None = None) -> None:
        self.puts += 1
        raise OffsetsUnavailableError("as this test wants it")


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemoryMetricReader]:
    made = InMemoryMetricReader()
    monkeypatch.setattr(metrics_module, "get_meter", MeterProvider([made]).get_meter)
    metrics_module.instruments.cache_clear()
    yield made
    metrics_module.instruments.cache_clear()


def measured(reader: InMemoryMetricReader, source: str) -> dict[str, Any]:
    """Return the values of each metric of a source, by outcome where there are several."""
    found: dict[str, Any] = {}
    data: Any = reader.get_metrics_data()
    for resource in data.resource_metrics if data else ():
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in metric.data.data_points:
                    if point.attributes["headerware.source.name"] == source:
                        assert point.attributes["headerware.source.task"] == "0"
                        outcome = point.attributes.get("headerware.source.outcome")
                        found[f"{metric.name} {outcome}" if outcome else metric.name] = point.value
    return found


class TestMetrics:
    @pytest.mark.parametrize("delivery", DELIVERIES)
    def test_are_what_the_tasks_count(
        self, place: Place, reader: InMemoryMetricReader, delivery: str
    ) -> None:
        place.write("a", "1", "!", "2")
        place.write("b", "!!")
        began = time.time()
        runner = SourceRunner(
            place.config(
                delivery=delivery, on_record_error="drop", on_object_error="skip", retry_deadline_s=0
            )
        )
        thread = Thread(target=runner.run, daemon=True)
        thread.start()
        until(lambda: 0 in runner.statistics)
        task = runner._runs[0].task
        assert task is not None
        counted = task.statistics
        until(lambda: counted.acknowledged == 2 and counted.complete == 1 and counted.failed)
        until(lambda: "headerware.source.last_commit" in measured(reader, place.name))
        # The damaged object is read again and again, and is in the queue for a moment each time.
        until(lambda: measured(reader, place.name)["headerware.source.queued"] == 0)
        found = measured(reader, place.name)
        runner.stop()
        thread.join(60)
        assert found["headerware.source.objects complete"] == 1
        assert found["headerware.source.objects failed"] >= 1
        assert [found[f"headerware.source.records {each}"] for each in ("read", "stored", "bad")] == [2, 2, 1]
        assert found["headerware.source.size"] == 4  # with the ends of lines
        assert found["headerware.source.in_flight"] == 0
        assert found["headerware.source.last_commit"] >= began - 1

    def test_of_a_source_that_has_ended_stay(self, place: Place, reader: InMemoryMetricReader) -> None:
        place.write("a", "1")
        place.run()
        place.write("b", "2", "3")
        place.run()
        found = measured(reader, place.name)
        assert found["headerware.source.records stored"] == 3
        assert "headerware.source.queued" not in found


class TestHealth:
    def test_is_that_of_the_tasks(self, place: Place) -> None:
        place.write("a", "1")
        runner = SourceRunner(place.config())
        assert (runner.is_live, runner.is_ready) == (True, False)
        thread = Thread(target=runner.run, daemon=True)
        thread.start()
        until(lambda: runner.is_ready)
        runner.stop()
        thread.join(60)
        assert (runner.is_live, runner.is_ready) == (False, False)

    def test_is_not_live_if_it_could_not_start(self, place: Place) -> None:
        runner = SourceRunner(place.config(kafka={"bootstrap.servers": "127.0.0.1:1"}))
        with pytest.raises(SourceError, match="cannot start"):
            runner.run()
        assert not runner.is_live

    def test_is_ready_however_rarely_offsets_are_stored(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(runner_module, "_STALLED_S", 0.2)
        runner = SourceRunner(place.config(commit_interval_s=25.0))
        thread = Thread(target=runner.run, daemon=True)
        thread.start()
        until(lambda: runner.is_ready)
        place.write("a", "1")
        task = runner._runs[0].task
        assert task is not None
        until(lambda: task.unacknowledged and task.stalled_s > 1)
        assert runner.is_ready
        runner.stop()
        thread.join(60)

    @pytest.mark.parametrize("delivery", DELIVERIES)
    def test_is_not_ready_while_nothing_can_be_stored(
        self, place: Place, monkeypatch: pytest.MonkeyPatch, delivery: str
    ) -> None:
        monkeypatch.setattr(runner_module, "_STALLED_S", 0.2)
        monkeypatch.setattr(sender_module, "_STOP_S", 0.5)
        with EmbeddedCluster(topics={"t": 1, "headerware-offsets": 1}) as gone:
            runner = SourceRunner(
                place.config(
                    topic="t",
                    delivery=delivery,
                    kafka={"bootstrap.servers": gone.bootstrap_servers, "log_level": 0},
                )
            )
            thread = Thread(target=runner.run, daemon=True)
            thread.start()
            until(lambda: runner.is_ready)
        place.write("a", "1")
        until(lambda: not runner.is_ready)
        assert runner.is_live
        runner.stop()
        thread.join(60)
        assert not thread.is_alive()
