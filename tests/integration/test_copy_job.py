"""A job of many tasks makes the worker's copy, wherever it is killed: nothing is twice, and one refuses."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from headerware import ConfigError, HeaderwareError
from headerware.interceptors import Slice
from headerware.kafka.messages import record_of
from headerware.ops.compaction import Compaction
from headerware.ops.retention.rules import RetentionRule
from headerware.workers.transactions import TakenOverError
from tests.integration.programs.copy_job import fence
from tests.waiting import until

if TYPE_CHECKING:
    from headerware.ops.compaction.job import Copied, PartitionCopy
    from tests.integration.conftest import Cluster

pytestmark = pytest.mark.broker
PROGRAM: Final = Path(__file__).parent / "programs" / "copy_job.py"
DEADLINE_S: Final = 60.0
PARTITIONS: Final = 2
BEGINS: Final = dict.fromkeys(range(PARTITIONS), 0)


class Topics:
    """A topic, and a copy of all that it has."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.source = cluster.topic("clicks", partitions=PARTITIONS)
        self.target = cluster.topic("copy", partitions=PARTITIONS)
        self._wire = cluster.plain_producer()
        self._numbers = itertools.count()

    def grow(self, count: int) -> None:
        """Add records, one after the other in each partition."""
        for number in itertools.islice(self._numbers, count):
            self._wire.produce(self.source, b"%d" % number, b"k", number % PARTITIONS)
        assert self._wire.flush(DEADLINE_S) == 0

    def worker(self) -> Compaction:
        return Compaction(
            {"bootstrap.servers": self.cluster.servers}, self.source, self.target, RetentionRule()
        )

    def copied(self) -> Copied:
        return self.worker().copied

    def begin(self, job: str) -> dict[int, int]:
        copied = self.copied()
        return copied.begin(job, BEGINS, fence(copied))

    def end(self, job: str, done: int | None = None) -> None:
        copied = self.copied()
        copied.end(job, fence(copied), None if done is None else dict.fromkeys(range(PARTITIONS), done))

    def send(self, writer: PartitionCopy, number: int, begin: int, end: int) -> None:
        """Copy some of a partition's records."""
        own = [m for m in self.cluster.on_the_wire(self.source) if m.partition() == number][begin:end]
        writer.send([record_of(message).replace(topic=self.target) for message in own], end)

    def require_all_once(self) -> None:
        self.cluster.wait_until_stable(self.target)
        for number in range(PARTITIONS):
            found, wanted = (
                [m.value() for m in self.cluster.on_the_wire(topic) if m.partition() == number]
                for topic in (self.target, self.source)
            )
            assert found == wanted


@pytest.fixture
def topics(cluster: Cluster) -> Topics:
    found = Topics(cluster)
    found.grow(20)
    return found


class TestJob:
    def test_begins_and_ends_where_the_worker_does(self, topics: Topics) -> None:
        with topics.worker() as worker:
            worker.execute()
        topics.grow(10)
        assert topics.begin("job") == {0: 10, 1: 10}
        for number in range(PARTITIONS):
            with topics.copied().partition("job", number) as writer:
                assert writer.done == 10
                topics.send(writer, number, 10, 15)
        topics.end("job", 15)
        topics.grow(10)
        with topics.worker() as worker:
            assert worker.execute().records == 10
        topics.require_all_once()

    def test_leaves_slices_to_the_worker_whose_message_is_not_complete(
        self, topics: Topics, cluster: Cluster, cut: Any
    ) -> None:
        wire = cluster.plain_producer()
        *first, last = cut(topics.source, bytes(5_000))

        def send(*records: Any) -> None:
            for each in records:
                wire.produce(topics.source, each.value, each.key, 0, headers=list(each.headers))
            assert wire.flush(DEADLINE_S) == 0

        send(*first)
        done = 10 + len(first)
        topics.begin("job")
        for number in range(PARTITIONS):
            with topics.copied().partition("job", number) as writer:
                topics.send(writer, number, 0, 10)
        copied = topics.copied()
        copied.end("job", fence(copied), {0: done, 1: 10})
        send(last)
        with topics.worker() as worker:
            result = worker.execute()
        assert (result.records, result.written, result.waiting) == (1, len(first) + 1, 0)
        cluster.wait_until_stable(topics.target)
        found = cluster.rest_of(cluster.consumer(topics.target, Slice()), topics.target)
        assert bytes(5_000) in [message.value() for message in found]
        with topics.worker() as worker:
            assert worker.execute().written == 0

    def test_that_was_killed_leaves_its_mark_for_the_next_job_alone(self, topics: Topics) -> None:
        topics.begin("first")
        writer, late = (topics.copied().partition("first", number) for number in (0, 1))
        topics.send(writer, 0, 0, 4)
        with topics.worker() as worker:
            (problem,) = worker.problems()
            assert "was killed: its mark is in the metadata of the offsets of group headerware-" in problem
            with pytest.raises(ConfigError, match=r"copy_topic\(\.\.\., execute=True\) continues the copy"):
                worker.execute()
        assert topics.copied().positions() == {0: 4, 1: 0}
        assert topics.begin("second") == {0: 4, 1: 0}
        # Its tasks may still run, or begin only now.
        for each in (writer, late):
            with pytest.raises(TakenOverError):
                topics.send(each, 0, 4, 6)
            each.close()
        with pytest.raises(HeaderwareError, match="another job has taken over"):
            topics.copied().partition("first", 0)
        with pytest.raises(HeaderwareError, match="another job has taken over"):
            topics.end("first", 10)
        for number, done in ((0, 4), (1, 0)):
            with topics.copied().partition("second", number) as again:
                assert again.done == done
                topics.send(again, number, done, 10)
        topics.end("second", 10)
        with topics.worker() as worker:
            assert worker.execute().records == 0
        topics.require_all_once()

    def test_that_has_failed_removes_its_mark_and_says_how_far_it_has_come(self, topics: Topics) -> None:
        topics.begin("job")
        writer = topics.copied().partition("job", 1)
        topics.send(writer, 1, 0, 7)
        topics.end("job")
        with pytest.raises(TakenOverError):
            topics.send(writer, 1, 7, 9)
        writer.close()
        with pytest.raises(HeaderwareError, match="another job has taken over"):
            topics.copied().partition("job", 0)
        with topics.worker() as worker:
            assert worker.execute().records == 20 - 7
        topics.require_all_once()

    def test_gives_a_partition_to_the_later_of_two_attempts(self, topics: Topics) -> None:
        topics.begin("job")
        first = topics.copied().partition("job", 0)
        topics.send(first, 0, 0, 3)
        with topics.copied().partition("job", 0) as second:
            assert second.done == 3
            with pytest.raises(TakenOverError):
                topics.send(first, 0, 3, 6)
            topics.send(second, 0, 3, 10)
        first.close()
        # One that begins when all is done has nothing to do.
        with topics.copied().partition("job", 0) as third:
            assert third.done == 10

    def test_begins_anew_where_the_group_was_deleted_with_what_it_has_written(self, topics: Topics) -> None:
        topics.begin("job")
        for number in range(PARTITIONS):
            with topics.copied().partition("job", number) as writer:
                topics.send(writer, number, 0, 10)
        topics.end("job", 10)
        admin = AdminClient({"bootstrap.servers": topics.cluster.servers})
        group = topics.copied().group
        for future in admin.delete_consumer_groups([group]).values():
            future.result(DEADLINE_S)
        ends = topics.cluster.ends(topics.target)
        places = [TopicPartition(topics.target, number, end) for number, end in enumerate(ends)]
        for future in admin.delete_records(places).values():
            future.result(DEADLINE_S)
        assert topics.worker().problems() == []
        assert topics.copied().positions() == {}
        assert topics.begin("again") == {0: 0, 1: 0}
        for number in range(PARTITIONS):
            with topics.copied().partition("again", number) as writer:
                assert writer.done == 0
                topics.send(writer, number, 0, 6)
        assert topics.begin("third") == topics.copied().positions() == {0: 6, 1: 6}

    def test_ends_a_worker_that_follows(self, topics: Topics) -> None:
        failures: list[str] = []
        with topics.worker() as worker:

            def follow() -> None:
                try:
                    worker.execute(follow=True)
                except HeaderwareError as error:
                    failures.append(str(error))

            thread = threading.Thread(target=follow)
            thread.start()
            try:
                until(lambda: topics.cluster.count_committed(topics.target) == 20)
                assert topics.begin("job") == {0: 10, 1: 10}
                topics.grow(2)
                thread.join(DEADLINE_S)
            finally:
                worker.stop()
                thread.join(DEADLINE_S)
        assert "has taken over" in failures[0]
        assert topics.cluster.count_committed(topics.target) == 20


@pytest.mark.long
class TestKilledAtAnyMoment:
    KILLS: Final = 4
    SHARE: Final = 400

    def test_each_record_comes_once_and_in_order(self, cluster: Cluster) -> None:
        topics, rest = Topics(cluster), random.Random(7)
        command = [sys.executable, str(PROGRAM), cluster.servers, topics.source, topics.target]
        said: list[str] = []
        for _ in range(self.KILLS):
            topics.grow(self.SHARE)
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None
                for _ in range(rest.randrange(1, 20)):
                    process.stdout.readline()
                process.kill()
            with topics.worker() as worker:
                try:
                    worker.execute()
                except ConfigError as error:
                    said.append(str(error))
        assert said, "some were killed after they had marked the copy"
        assert all("Spark job" in each for each in said)
        topics.grow(self.SHARE)
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=True)
        assert done.stdout.endswith("ends\n")
        with topics.worker() as worker:
            assert worker.execute().records == 0
        topics.require_all_once()
