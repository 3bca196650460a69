"""What observes a chain, in Spark: audit and metrics that the driver tells, and the trace of written rows."""

from __future__ import annotations

import json
import random
import time
from typing import TYPE_CHECKING, Final

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from pyspark.errors import StreamingQueryException

from headerware import Chain, Record
from headerware.interceptors import Audit, Metrics, Slice, Trace
from headerware.ops.audit import compare, read_reports
from headerware.spark_bridge import encode, kafka_sink

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from tests.spark.conftest import Kafka, Keeping, Stream

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("interpreted")]

LARGE: Final = random.Random(5).randbytes(6_000)


@pytest.mark.broker
class TestAudit:
    def test_of_a_query_agrees_with_that_of_its_producer(
        self, kafka: Kafka, stream: Callable[..., Stream], keeping: type[Keeping]
    ) -> None:
        topic, audited = kafka.topic("orders", partitions=2), kafka.topic("audit")
        chain = Chain([Audit(audit_topic=audited), Slice(max_bytes=2_000)])
        query = stream(topic)
        for _ in range(2):
            kafka.send(chain, *(Record(topic, b"v%d" % each) for each in range(20)), Record(topic, LARGE))
            reports = kafka_sink({"kafka.bootstrap.servers": kafka.servers})
            query.run(chain, keeping(), audit_reports=reports, job="billing")
        told = read_reports({"bootstrap.servers": kafka.servers}, audited).reports
        rows = compare(told, now_ms=time.time_ns() // 1_000_000, topics=[topic]).rows
        assert {(row.group, row.exact) for row in rows} == {("spark/billing", True)}
        assert sum(row.consumed for row in rows) == sum(row.produced for row in rows) == 42
        assert sum(row.consumed_bytes for row in rows) == sum(row.produced_bytes for row in rows)
        assert not any(row.lost or row.pending or row.unknown or row.duplicated for row in rows)

    def test_topic_that_does_not_exist_is_named_before_anything_is_written(
        self, kafka: Kafka, stream: Callable[..., Stream], keeping: type[Keeping]
    ) -> None:
        topic = kafka.topic("orders")
        kafka.send(None, Record(topic, b"v"))
        kept = keeping()
        reports = kafka_sink({"kafka.bootstrap.servers": kafka.servers})
        says = r"audit_reports: Kafka at .* has no topic missing-audit; create it"
        with pytest.raises(StreamingQueryException, match=says):
            stream(topic).run(Chain([Audit(audit_topic="missing-audit")]), kept, audit_reports=reports)
        assert not kept.attempts


@pytest.mark.broker
class TestMetrics:
    def test_of_the_writing_chain_are_told_too(
        self, kafka: Kafka, stream: Callable[..., Stream], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reader = InMemoryMetricReader()
        monkeypatch.setattr("opentelemetry.metrics._internal._METER_PROVIDER", MeterProvider([reader]))
        topic, out = kafka.topic("orders"), kafka.topic("bills")
        kafka.send(None, *(Record(topic, b"v") for _ in range(3)))
        sink = kafka_sink({"kafka.bootstrap.servers": kafka.servers, "topic": out}, Chain([Metrics()]))
        stream(topic).run(Chain([Metrics()]), sink)
        data = reader.get_metrics_data()
        assert data is not None
        found = {
            (metric["name"], point["attributes"]["messaging.destination.name"], point["value"])
            for resource in json.loads(data.to_json())["resource_metrics"]
            for scope in resource["scope_metrics"]
            for metric in scope["metrics"]
            for point in metric["data"]["data_points"]
            if metric["name"].endswith(".messages")
        }
        assert found == {
            ("messaging.client.consumed.messages", topic, 3),
            ("messaging.client.sent.messages", out, 3),
        }


class TestTrace:
    def test_of_encoded_rows_is_the_span_that_is_current_on_the_driver(self, spark: SparkSession) -> None:
        frame = spark.sql("select 'orders' topic, cast('v' as binary) value")
        with TracerProvider().get_tracer("test").start_as_current_span("job") as span:
            (row,) = encode(frame, Chain([Trace()])).collect()
        context = span.get_span_context()
        (header,) = row.headers
        assert header.key == "traceparent"
        assert bytes(header.value).startswith(f"00-{context.trace_id:032x}-{context.span_id:016x}-".encode())

    def test_without_a_current_span_is_none(self, spark: SparkSession) -> None:
        assert not trace.get_current_span().get_span_context().is_valid
        frame = spark.sql("select 'orders' topic, cast('v' as binary) value")
        (row,) = encode(frame, Chain([Trace()])).collect()
        assert not row.headers
