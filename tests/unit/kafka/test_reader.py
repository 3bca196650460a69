"""Reading a topic from somewhere on, and to its end."""

from __future__ import annotations

import subprocess
import sys
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException

from headerware import ConfigError, HeaderwareError
from headerware.kafka.reader import Start, TopicReader
from tests.scripted import script

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Message

    from headerware.testing import EmbeddedCluster

NOW = 1_767_225_600_000


class TestStart:
    @pytest.mark.parametrize(
        ("text", "start"),
        [
            ("beginning", Start("offset", 0)),
            ("end", Start("last", 0)),
            ("42", Start("offset", 42)),
            ("-5", Start("last", 5)),
            ("2026-01-01", Start("time", NOW)),
            ("2026-01-01T01:00+01:00", Start("time", NOW)),
            ("15m", Start("time", NOW - 900_000)),
            ("30000d", Start("time", 0)),  # to brokers, times before 1970 are words
            ("1969-12-31", Start("time", 0)),
        ],
    )
    def test_reads(self, text: str, start: Start) -> None:
        assert Start.parse(text, now_ms=lambda: NOW) == start

    def test_refuses_anything_else(self) -> None:
        with pytest.raises(ConfigError, match="expected beginning, end, an offset"):
            Start.parse("yesterday")


def places(messages: list[Message]) -> list[tuple[int | None, int | None]]:
    return sorted((message.partition(), message.offset()) for message in messages)


class TestTopicReader:
    @pytest.fixture
    def topic(self, embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str]) -> str:
        """Return a topic with five records in one partition, and one in the other."""
        name = unique_topic("read")
        embedded_cluster.create_topic(name, partitions=2)
        producer = confluent_kafka.Producer({"bootstrap.servers": embedded_cluster.bootstrap_servers})
        for number in range(5):
            producer.produce(name, b"%d" % number, partition=0)
        producer.produce(name, b"other", partition=1)
        assert producer.flush(60) == 0
        return name

    @pytest.fixture
    def opened(self, embedded_cluster: EmbeddedCluster) -> Callable[..., TopicReader]:
        conf = {"bootstrap.servers": embedded_cluster.bootstrap_servers}
        return lambda topic, **options: TopicReader(conf, topic, group_id="looks", **options)

    @pytest.mark.parametrize(
        ("start", "limit", "offsets"),
        [
            ("beginning", None, [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (1, 0)]),
            ("beginning", 2, [(0, 0), (0, 1), (1, 0)]),
            ("-2", None, [(0, 3), (0, 4), (1, 0)]),
            ("3", None, [(0, 3), (0, 4)]),
            ("3", 1, [(0, 3)]),
            ("end", None, []),
        ],
    )
    def test_reads_from_the_start_to_the_end(
        self, opened: Callable[..., TopicReader], topic: str, start: str, limit: int | None, offsets: Any
    ) -> None:
        with opened(topic) as reader:
            reader.start(Start.parse(start), limit=limit)
            found = [message for batch in reader.to_end(max_records=2) for message in batch]
            assert places(found) == offsets
            assert reader.has_reached_the_end
            assert reader.progress == (len(offsets), len(offsets))

    def test_reads_one_partition(self, opened: Callable[..., TopicReader], topic: str) -> None:
        with opened(topic, partition=1) as reader:
            reader.start()
            assert places([message for batch in reader.to_end() for message in batch]) == [(1, 0)]

    def test_reads_up_to_an_offset_and_nothing_of_other_partitions(
        self, opened: Callable[..., TopicReader], topic: str
    ) -> None:
        reader = opened(topic)
        reader.start(up_to={0: 3})
        assert places([each for batch in reader.to_end() for each in batch]) == [(0, 0), (0, 1), (0, 2)]
        assert reader.bounds == {0: (0, 3), 1: (0, 0)}
        reader.start(up_to={0: 9})
        assert len([each for batch in reader.to_end() for each in batch]) == 5

    def test_may_begin_anew_and_end_at_once(self, embedded_cluster: EmbeddedCluster, topic: str) -> None:
        """In a process of its own, which librdkafka before 2.16 would end by an assertion."""
        code = (
            "import sys\n"
            "from headerware.kafka.reader import TopicReader\n"
            "for _ in range(40):\n"
            "    with TopicReader({'bootstrap.servers': sys.argv[1]}, sys.argv[2], group_id='g') as reader:\n"
            "        reader.start()\n"
            "        reader.start()\n"
        )
        command = [sys.executable, "-c", code, embedded_cluster.bootstrap_servers, topic]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def test_reads_no_more_of_a_partition_that_is_finished(
        self, opened: Callable[..., TopicReader], topic: str
    ) -> None:
        reader = opened(topic)
        reader.start()
        found = []
        for batch in reader.to_end(max_records=1):
            found += batch
            reader.finish(0)
        assert [place for place in places(found) if place[0] == 1] == [(1, 0)]
        assert len(found) < 6
        assert reader.has_reached_the_end

    def test_says_how_far_it_is(self, opened: Callable[..., TopicReader], topic: str) -> None:
        with opened(topic, partition=0) as reader:
            reader.start(Start.parse("1"))
            seen = [reader.progress]
            for batch in reader.to_end(max_records=1):
                assert len(batch) == 1
                seen.append(reader.progress)
        assert seen == [(0, 4), (1, 4), (2, 4), (3, 4), (4, 4)]

    def test_goes_on_after_the_end_if_it_is_read_on(
        self, opened: Callable[..., TopicReader], topic: str, embedded_cluster: EmbeddedCluster
    ) -> None:
        with opened(topic, partition=1) as reader:
            reader.start()
            found = []
            while not reader.has_reached_the_end:
                found += reader.read()
            producer = confluent_kafka.Producer({"bootstrap.servers": embedded_cluster.bootstrap_servers})
            producer.produce(topic, b"later", partition=1)
            producer.flush(60)
            while len(found) < 2:
                found += reader.read()
        assert places(found) == [(1, 0), (1, 1)]

    def test_ends_where_the_end_was_when_it_started(
        self, opened: Callable[..., TopicReader], topic: str, embedded_cluster: EmbeddedCluster
    ) -> None:
        with opened(topic, partition=1) as reader:
            reader.start()
            producer = confluent_kafka.Producer({"bootstrap.servers": embedded_cluster.bootstrap_servers})
            for _ in range(3):
                producer.produce(topic, b"later", partition=1)
            producer.flush(60)
            assert places([message for batch in reader.to_end() for message in batch]) == [(1, 0)]

    def test_does_not_believe_an_end_that_is_earlier_than_the_known_one(
        self, opened: Callable[..., TopicReader], topic: str, embedded_cluster: EmbeddedCluster
    ) -> None:
        with opened(topic, partition=1) as reader:
            reader.start()
            # As a leader tells that has just been elected: the partition ends before where it was known to.
            reader._ends[1] += 1
            batches = reader.to_end()
            assert places(next(batches)) == [(1, 0)]
            assert reader.read(timeout_s=1) == []
            assert not reader.has_reached_the_end
            producer = confluent_kafka.Producer({"bootstrap.servers": embedded_cluster.bootstrap_servers})
            producer.produce(topic, b"later", partition=1)
            assert producer.flush(60) == 0
            assert [places(batch) for batch in batches] == [[(1, 1)]]

    def test_takes_more_time_than_clients_can_count(
        self, opened: Callable[..., TopicReader], topic: str
    ) -> None:
        with opened(topic, timeout_s=30 * 86_400.0) as reader:
            reader.start()
            assert sum(map(len, reader.to_end())) == 6

    @pytest.mark.parametrize("at_once", [False, True])
    def test_gives_what_came_around_an_error_each_once(
        self, opened: Callable[..., TopicReader], topic: str, *, at_once: bool
    ) -> None:
        with opened(topic, partition=0) as reader:
            reader.start()
            script(reader, topic, 0, 1, KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), 2)
            assert places(reader.read(at_once=at_once)) == [(0, 0), (0, 1)]
            assert reader.positions == {0: 2}
            with pytest.raises(KafkaException):
                reader.read(at_once=at_once)
            assert places(reader.read(at_once=at_once)) == [(0, 2)]
            assert reader.positions == {0: 3}

    def test_waits_for_one_record_only_if_it_is_told_to(
        self, opened: Callable[..., TopicReader], topic: str
    ) -> None:
        with opened(topic, partition=0) as reader:
            reader.start()
            found: list[Message] = []
            while len(found) < 5:
                found += reader.read(timeout_s=1e6, at_once=True)
        assert places(found) == [(0, offset) for offset in range(5)]

    def test_gives_up_in_time(self, opened: Callable[..., TopicReader], topic: str) -> None:
        with opened(topic) as reader:
            reader.start()
            reader._deadline = 0
            with pytest.raises(HeaderwareError, match="2 partitions could not be read to the end"):
                list(reader.to_end())

    def test_knows_the_cluster(self, opened: Callable[..., TopicReader], topic: str) -> None:
        with opened(topic) as reader:
            assert str(reader.cluster_id).startswith("mock")

    def test_refuses_a_partition_that_is_not_there(
        self, opened: Callable[..., TopicReader], topic: str
    ) -> None:
        with pytest.raises(ConfigError, match="has 2 partitions, none of number 7"):
            opened(topic, partition=7)

    def test_a_cluster_that_cannot_be_reached_is_named_before_the_time_is_up(self) -> None:
        servers = "127.0.0.1:1,127.0.0.1:2"
        began_s = time.monotonic()
        with pytest.raises(KafkaException) as raised:
            TopicReader({"bootstrap.servers": servers}, "orders", group_id="looks", timeout_s=300)
        assert time.monotonic() - began_s < 100
        said = raised.value.args[0].str()
        assert said.startswith(f"{servers} cannot be reached: 127.0.0.1:")
        assert "Connection refused" in said
        assert "look at the addresses" in said

    def test_time_counts_in_all_or_for_each_batch(
        self, embedded_cluster: EmbeddedCluster, topic: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        conf = {"bootstrap.servers": embedded_cluster.bootstrap_servers}
        passed_s, real = [0.0], time.monotonic
        clock = SimpleNamespace(monotonic=lambda: real() + passed_s[0])
        monkeypatch.setattr("headerware.kafka.reader.time", clock)

        def read_slowly(**options: Any) -> int:
            count = 0
            with TopicReader(conf, topic, group_id="g", timeout_s=30) as reader:
                reader.start()
                for batch in reader.to_end(max_records=1, **options):
                    count += len(batch)
                    passed_s[0] += 16
            return count

        assert read_slowly(each_batch=True) == 6
        with pytest.raises(HeaderwareError, match="within 30 s"):
            read_slowly()
