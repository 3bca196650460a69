"""Lineage of streaming queries: the driver reports runs, and executors count."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from headerware import Chain, ConfigError, Record
from headerware.interceptors import Lineage, Trail
from headerware.spark_bridge import foreach_batch, kafka_sink
from tests.openlineage_events import Events, Told, told

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame

    from tests.spark.conftest import Kafka, Keeping, Stream

pytestmark = pytest.mark.usefixtures("interpreted")
NAMESPACE = "kafka://source:9092"
READING = Chain([Lineage(service="billing", job_namespace="sales", dataset_namespace=NAMESPACE), Trail()])


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Events:
    return Events.to_file(tmp_path / "events.json", monkeypatch)


class TestLineage:
    @pytest.mark.broker
    def test_of_a_query_is_one_run_told_by_the_driver(
        self, events: Events, stream: Callable[..., Stream], kafka: Kafka
    ) -> None:
        topic, out = kafka.topic("orders"), kafka.topic("bills")
        kafka.send(None, *(Record(topic, b"v") for _ in range(3)))
        sink = kafka_sink({"kafka.bootstrap.servers": kafka.servers, "topic": out}, chain=Chain([Lineage()]))
        stream(topic).run(READING, sink, job="orders")
        found = events.wait(2)
        assert told(found[-1]) == Told(
            "COMPLETE",
            "sales/billing/orders",
            {f"{NAMESPACE}/{topic}": 3},
            {f"kafka://{kafka.servers}/{out}": 3},
        )
        assert {told(event).kind for event in found} == {"START", "COMPLETE"}
        assert len({event.run.runId for event in found}) == 1

    @pytest.mark.broker
    def test_of_a_query_that_fails_says_so(
        self, events: Events, stream: Callable[..., Stream], kafka: Kafka, keeping: type[Keeping]
    ) -> None:
        topic = kafka.topic("orders")
        kafka.send(None, *(Record(topic, b"v") for _ in range(2)))

        def fail_later(frame: DataFrame, batch: int) -> None:
            assert frame.count() == 1
            if batch:
                raise OSError("the disk is full")

        query = stream(topic, maxOffsetsPerTrigger="1")
        with pytest.raises(StreamingQueryException, match="the disk is full"):
            query.run(READING, fail_later)
        found = told(events.wait(2)[-1])
        assert (found.kind, found.inputs, found.outputs) == ("FAIL", {f"{NAMESPACE}/{topic}": 1}, {})

    def test_needs_the_name_of_the_cluster(self) -> None:
        problem = "dataset_namespace: expected a namespace such as kafka://broker:9092, found none"
        with pytest.raises(ConfigError, match=problem):
            foreach_batch(Chain([Lineage()]), lambda frame, batch: None, checkpoint="here")
