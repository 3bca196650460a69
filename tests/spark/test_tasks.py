"""The number of tasks of a micro-batch with Spark's own settings."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

import pytest

from headerware import Chain, Record
from headerware.interceptors import Slice

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from headerware.spark_bridge.batches.sinks import Batch
    from tests.spark.conftest import Kafka, Keeping, Stream

pytestmark = [
    pytest.mark.broker,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("interpreted"),
]

PARTITIONS: Final = 3
CUTTING: Final = Chain([Slice(max_bytes=2_000)])
LARGE: Final = random.Random(1).randbytes(8_000)


class Noting:
    """A sink that keeps the rows, and notes the query's group of jobs."""

    def __init__(self, kept: Keeping) -> None:
        self._kept = kept
        self.group = ""

    def write(self, frame: DataFrame, batch: Batch) -> None:
        """Keep the rows."""
        self._kept.write(frame, batch)
        self.group = batch.spark.sparkContext.getLocalProperty("spark.jobGroup.id") or ""


def most_tasks(spark: SparkSession, group: str) -> int:
    """Return the number of tasks of the largest stage among a group's jobs."""
    tracker = spark.sparkContext.statusTracker()
    jobs = [job for number in tracker.getJobIdsForGroup(group) if (job := tracker.getJobInfo(number))]
    stages = [tracker.getStageInfo(number) for job in jobs for number in job.stageIds]
    return max(stage.numTasks for stage in stages if stage is not None)


class TestSlices:
    def test_take_no_more_tasks_than_are_read(
        self, keeping: type[Keeping], stream: Callable[..., Stream], kafka: Kafka, spark: SparkSession
    ) -> None:
        assert spark.conf.get("spark.sql.shuffle.partitions") == "200"
        topic = kafka.topic("narrow", partitions=PARTITIONS)
        kafka.send(CUTTING, *(Record(topic, LARGE, partition=number) for number in range(2)))
        kafka.send(CUTTING, Record(topic, b"small", partition=2))
        kept = keeping()
        sink = Noting(kept)
        stream(topic).run(CUTTING, sink)
        assert kept.values(0) == [LARGE, LARGE, b"small"]
        assert most_tasks(spark, sink.group) <= 2 * PARTITIONS  # standalone and reassembled, side by side

    def test_of_a_partition_that_is_read_in_several_tasks_come_together(
        self, keeping: type[Keeping], stream: Callable[..., Stream], kafka: Kafka, spark: SparkSession
    ) -> None:
        topic = kafka.topic("split")
        pieces = kafka.cut(topic, CUTTING, LARGE)
        kafka.send(None, Record(topic, b"first"), *pieces, Record(topic, b"last"))
        kept = keeping()
        sink = Noting(kept)
        query = stream(topic, minPartitions=str(PARTITIONS))
        query.run(CUTTING, sink)
        assert kept.values(0) == [b"first", LARGE, b"last"]
        assert query.progress[0].waiting == 0
        assert most_tasks(spark, sink.group) <= PARTITIONS + 1

    def test_that_waited_come_together_with_the_rest(
        self, keeping: type[Keeping], stream: Callable[..., Stream], kafka: Kafka, spark: SparkSession
    ) -> None:
        topic = kafka.topic("waited", partitions=PARTITIONS)
        pieces = [record.replace(partition=1) for record in kafka.cut(topic, CUTTING, LARGE)]
        kept = keeping()
        sink = Noting(kept)
        query = stream(topic)
        kafka.send(None, *pieces[:2])
        query.run(CUTTING, sink)
        kafka.send(None, *pieces[2:], Record(topic, b"small", partition=0))
        query.run(CUTTING, sink)
        assert kept.attempts[0] == []
        assert kept.values(1) == [b"small", LARGE]
        assert [progress.waiting for progress in query.progress] == [2, 0]
        assert most_tasks(spark, sink.group) <= 2 * PARTITIONS
