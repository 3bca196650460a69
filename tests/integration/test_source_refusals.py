"""Records that a real broker refuses, for their time, size or key: the policy on records holds for them."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from headerware.core.errors import HeldBackError, SourceError
from headerware.core.hooks import Interceptor
from headerware.core.plugins import interceptor_type
from headerware.core.record import Record
from headerware.sources import Extracted, Extractor
from headerware.sources.extractors import BytesExtractor
from headerware.sources.runtime import RunConfig, SourceRunner, SqliteOffsets, TopicOffsets
from headerware.sources.runtime.sender import AtLeastOnce
from tests.spool import Spool
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headerware.sources import Input
    from headerware.sources.engine.batches import Batch
    from tests.integration.conftest import Cluster

pytestmark = pytest.mark.broker

DELIVERIES: Final = ("exactly_once", "at_least_once")
LATER_MS: Final = 7_200_000
"""More than an hour, which is how far a record's time may be ahead of the broker's clock."""


class Timed(Extractor, frozen=True, kw_only=True):
    """Lines; one that begins with ``later`` has a time in two hours, and ``large`` is made so long."""

    large_bytes: int = 0

    def extract(self, given: Input) -> Iterator[Extracted]:
        now_ms = time.time_ns() // 1_000_000
        for line in given.open_stream():
            value = line.strip()
            timestamp_ms = now_ms + LATER_MS if value.startswith(b"later") else now_ms
            if value.startswith(b"large"):
                value += b"x" * self.large_bytes
            yield Extracted(value, timestamp_ms=timestamp_ms)


class HeldBackLater(Interceptor, frozen=True, kw_only=True):
    """Takes some records, then holds one back twice, as if a key service were down, and takes all others."""

    type: ClassVar[str] = "held_back_later"
    errors: ClassVar[list[bool]] = []

    def on_send(self, record: Record) -> Record:
        if self.errors and self.errors.pop():
            raise HeldBackError("the key service is down, as this test wants it")
        return record


class Place:
    """A folder of lines, and the topics that they go to."""

    def __init__(self, cluster: Cluster, folder: Path, delivery: str, **limits: str) -> None:
        self.cluster = cluster
        self.folder = folder / "in"
        self.folder.mkdir()
        self.topic = cluster.topic("refusals", config=limits)
        self.letters = cluster.topic("letters")
        compacted = {"cleanup.policy": "compact"}
        self.options: dict[str, Any] = {
            "delivery": delivery,
            "offsets": (
                TopicOffsets(topic=cluster.topic("offsets", config=compacted))
                if delivery == "exactly_once"
                else SqliteOffsets(path=str(folder / "offsets.db"))
            ),
        }

    def write(self, name: str, *lines: str) -> None:
        (self.folder / name).write_text("".join(f"{line}\n" for line in lines))

    def run(self, **options: Any) -> SourceRunner:
        kafka = {"bootstrap.servers": self.cluster.servers, **options.pop("kafka", {})}
        given: dict[str, Any] = {
            "name": self.topic,
            "source": Spool(folder=str(self.folder)),
            "extractor": Timed(),
            "topic": self.topic,
            "dead_letter_topic": self.letters,
            "kafka": kafka,
            "poll_wait_s": 0.05,
            **self.options,
            **options,
        }
        runner = SourceRunner(RunConfig(**given), once=True)
        runner.run()
        return runner

    def read(self, topic: str | None = None) -> list[Message]:
        place = TopicPartition(topic or self.topic, 0)
        consumer = Consumer({"bootstrap.servers": self.cluster.servers, "group.id": "test"})
        found: list[Message] = []
        try:
            end = consumer.get_watermark_offsets(place, timeout=60)
            assert end is not None
            consumer.assign([TopicPartition(place.topic, 0, 0)])
            until(
                lambda: not end[1] or consumer.position([place])[0].offset >= end[1],
                meanwhile=lambda: found.extend(consumer.consume(500, 0.1)),
            )
        finally:
            consumer.close()
        return found

    def values(self) -> list[bytes]:
        return [message.value() or b"" for message in self.read()]


@pytest.mark.parametrize("delivery", DELIVERIES)
class TestTime:
    LINES: Final = ("1", "2", "later", "4", "later too", "6")

    def test_stops_and_names_record_and_cause(self, cluster: Cluster, tmp_path: Path, delivery: str) -> None:
        place = Place(cluster, tmp_path, delivery)
        place.write("a", "1")
        place.write("b", *self.LINES)
        with pytest.raises(SourceError, match=r"record 3 of object 'b' .*message\.timestamp\.after\.max\.ms"):
            place.run()
        assert b"1" in place.values()
        assert b"later" not in place.values()

    @pytest.mark.parametrize("policy", ["skip", "drop", "dead_letter"])
    def test_takes_no_neighbour_along(
        self,
        cluster: Cluster,
        tmp_path: Path,
        delivery: str,
        policy: str,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        place = Place(cluster, tmp_path, delivery)
        place.write("a", *self.LINES)
        place.write("b", "7")
        with caplog.at_level(logging.WARNING):
            runner = place.run(on_record_error=policy)
        assert sorted(set(place.values())) == [b"1", b"2", b"4", b"6", b"7"]
        if delivery == "exactly_once":
            assert place.values() == [b"1", b"2", b"4", b"6", b"7"]
        assert runner.statistics[0].bad_records == 2
        assert caplog.text.count("skipped a record: record") == (2 if policy == "skip" else 0)
        keys = [message.key() for message in place.read(place.letters)]
        assert keys == ([b"a#3", b"a#5"] if policy == "dead_letter" else [])
        place.write("c", "8")
        place.run(on_record_error=policy)
        assert sorted(set(place.values())) == [b"1", b"2", b"4", b"6", b"7", b"8"]

    def test_is_found_behind_a_chain(self, cluster: Cluster, tmp_path: Path, delivery: str) -> None:
        place = Place(cluster, tmp_path, delivery)
        place.write("a", *self.LINES)
        chain = {"interceptors": "trail", "interceptors.trail.service": "test"}
        place.run(on_record_error="dead_letter", kafka=chain)
        assert sorted(set(place.values())) == [b"1", b"2", b"4", b"6"]
        assert [message.key() for message in place.read(place.letters)] == [b"a#3", b"a#5"]

    def test_loses_nothing_that_the_chain_holds_back_when_it_is_sent_again(
        self, cluster: Cluster, tmp_path: Path, delivery: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(interceptor_type._built_in, "held_back_later", f"{__name__}:HeldBackLater")
        HeldBackLater.errors[:] = [True, True, *[False] * len(self.LINES)]
        place = Place(cluster, tmp_path, delivery)
        place.write("a", *self.LINES)
        place.run(
            on_record_error="drop",
            kafka={"interceptors": "held_back_later", "linger.ms": 200},
            retry_pause_s=0.01,
        )
        assert not HeldBackLater.errors
        assert sorted(set(place.values())) == [b"1", b"2", b"4", b"6"]


@pytest.mark.parametrize("delivery", DELIVERIES)
class TestSize:
    def test_of_a_batch_follows_the_limit_of_the_topic(
        self, cluster: Cluster, tmp_path: Path, delivery: str
    ) -> None:
        place = Place(cluster, tmp_path, delivery, **{"max.message.bytes": "20000"})
        place.write("a", *(f"{number:01000}" for number in range(300)))
        place.run()
        assert len(place.values()) == 300

    def test_of_a_batch_may_be_too_large_where_no_record_is(
        self, cluster: Cluster, tmp_path: Path, delivery: str
    ) -> None:
        place = Place(cluster, tmp_path, delivery, **{"max.message.bytes": "20000"})
        place.write("a", *(f"{number:01000}" for number in range(60)))
        place.run(kafka={"batch.size": 1_000_000, "linger.ms": 50})
        assert sorted(set(place.values())) == [b"%01000d" % number for number in range(60)]

    def test_of_a_batch_is_not_that_of_the_record_before_it(
        self, cluster: Cluster, tmp_path: Path, delivery: str
    ) -> None:
        """The first batch is too large for a request; the second one is not, unless a record joins it."""
        place = Place(cluster, tmp_path, delivery, **{"max.message.bytes": "20000"})
        place.write("a", *(f"a{number:04}{'x' * 1_000}" for number in range(25)))
        place.write("b", *(f"b{number:04}{'x' * 1_000}" for number in range(19)))
        place.run(
            headers=False,
            poll_wait_s=1.0,
            commit_interval_s=20,
            kafka={"batch.size": 1_000_000, "batch.num.messages": 25, "linger.ms": 100},
        )
        assert len(set(place.values())) == 25 + 19

    def test_of_a_record_that_is_sent_again_is_not_that_of_what_is_queued(
        self, cluster: Cluster, tmp_path: Path, delivery: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The first batch is refused while the second one still lingers."""
        queue = AtLeastOnce._queue

        def queue_and_hear(self: AtLeastOnce, batch: Batch) -> None:
            queue(self, batch)
            if batch.native_key == "b":
                until(lambda: self._again, "the refusal", meanwhile=lambda: self._producer.poll(0.01))

        monkeypatch.setattr(AtLeastOnce, "_queue", queue_and_hear)
        place = Place(cluster, tmp_path, delivery, **{"max.message.bytes": "20000"})
        place.write("a", *(f"a{number:04}{'x' * 1_000}" for number in range(25)))
        place.write("b", *(f"b{number:04}{'x' * 1_000}" for number in range(19)))
        kafka = {"batch.size": 1_000_000, "batch.num.messages": 25, "linger.ms": 5_000}
        place.run(headers=False, kafka=kafka)
        assert len(set(place.values())) == 25 + 19

    def test_of_one_record_is_an_error_of_that_record(
        self, cluster: Cluster, tmp_path: Path, delivery: str
    ) -> None:
        place = Place(cluster, tmp_path, delivery, **{"max.message.bytes": "20000"})
        place.write("a", "1", "large", "3")
        large = {"extractor": Timed(large_bytes=50_000)}
        with pytest.raises(SourceError, match=r"record 2 of object 'a' .*max\.message\.bytes.*'slice'"):
            place.run(**large)
        place.run(on_record_error="dead_letter", **large)
        assert sorted(set(place.values())) == [b"1", b"3"]
        assert [message.key() for message in place.read(place.letters)] == [b"a#2"]

    def test_of_pieces_fits_at_the_defaults(self, cluster: Cluster, tmp_path: Path, delivery: str) -> None:
        place = Place(cluster, tmp_path, delivery)
        data = bytes(range(256)) * 10_000
        (place.folder / "a").write_bytes(data)
        place.run(
            extractor=BytesExtractor(), kafka={"interceptors": "trail", "interceptors.trail.service": "t"}
        )
        assert b"".join(place.values()) == data
