"""Tracing end to end: chains with ``trace`` in real clients, against librdkafka's mock cluster."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from opentelemetry import baggage, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.confluent_kafka import ConfluentKafkaInstrumentor
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter as Exporter
from opentelemetry.trace import SpanKind, StatusCode

from headerware.interceptors import Slice, Trace
from headerware.interceptors import trace as trace_module
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import Message
    from opentelemetry.sdk.trace import ReadableSpan

    from tests.unit.clients.conftest import MakeConsumer, MakeProducer


DEADLINE_S = 60.0
OTHERS = "opentelemetry.instrumentation.confluent_kafka"
# Before confluent-kafka 2.16 the id comes from a thread, some time after the first records.
KNOWS_ITS_CLUSTER = hasattr(confluent_kafka.Producer, "cluster_id")


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Exporter:
    exporter = Exporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    monkeypatch.setattr(trace_module, "_warned", set())
    return exporter


def named(exporter: Exporter, name: str) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name == name]


def attributes_of(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def current_id() -> int:
    return trace.get_current_span().get_span_context().span_id


def span_id(span: ReadableSpan) -> int:
    assert span.context is not None
    found: int = span.context.span_id
    return found


def scope_of(span: ReadableSpan) -> str | None:
    return None if span.instrumentation_scope is None else span.instrumentation_scope.name


def polled(consumer: Any) -> Message:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        message = consumer.poll(0.1)
        if message is not None:
            return message  # type: ignore[no-any-return]
    raise AssertionError("no message came")


class TestATraceOfOneRecord:
    def test_goes_from_send_over_receive_and_process_to_commit(
        self, topic: str, make_producer: MakeProducer, make_consumer: MakeConsumer, exporter: Exporter
    ) -> None:
        producer = make_producer(Trace(), client_id="shop")
        with trace.get_tracer("app").start_as_current_span("request") as request:
            producer.produce(topic, b"v", b"k")
        assert producer.flush(DEADLINE_S) == 0
        consumer = make_consumer(Trace(), topic=topic, enable_auto_commit=False)
        message = polled(consumer)
        with consumer.processing(message):
            consumer.commit(message, asynchronous=False)
        (sent,), (received,) = named(exporter, f"send {topic}"), named(exporter, f"poll {topic}")
        (processed,), (settled,) = named(exporter, f"process {topic}"), named(exporter, f"commit {topic}")
        assert sent.parent == request.get_span_context()
        links = [*received.links, *processed.links]
        assert [link.context.span_id for link in links] == [span_id(sent)] * 2
        assert settled.parent is not None
        assert settled.parent.span_id == span_id(processed)
        spans = (sent, received, processed, settled)
        assert [attributes_of(span)["messaging.operation.type"] for span in spans] == [
            "send",
            "receive",
            "process",
            "settle",
        ]
        for span in spans:
            attributes = attributes_of(span)
            assert attributes["messaging.destination.name"] == topic
            assert attributes["messaging.destination.partition.id"] == "0"
            assert attributes["server.address"] == "127.0.0.1"
            if KNOWS_ITS_CLUSTER:
                assert attributes["messaging.kafka.cluster.id"]
        assert attributes_of(sent)["messaging.client.id"] == "shop"
        assert attributes_of(sent)["messaging.kafka.offset"] == 0

    def test_in_slices_has_one_span_of_each_kind(
        self, topic: str, make_producer: MakeProducer, make_consumer: MakeConsumer, exporter: Exporter
    ) -> None:
        producer = make_producer(Trace(), Slice(max_bytes=2_000))
        producer.produce(topic, b"x" * 10_000)
        producer.flush(DEADLINE_S)
        consumer = make_consumer(Trace(), Slice(max_bytes=2_000), topic=topic)
        message = polled(consumer)
        assert message.value() == b"x" * 10_000
        with consumer.processing(message):
            pass
        (sent,), (processed,) = named(exporter, f"send {topic}"), named(exporter, f"process {topic}")
        assert len(named(exporter, f"poll {topic}")) == 1
        assert attributes_of(sent)["messaging.kafka.offset"] > 3
        assert [link.context.span_id for link in processed.links] == [span_id(sent)]

    def test_makes_no_span_of_the_end_of_a_partition_nor_of_waiting(
        self, topic: str, make_consumer: MakeConsumer, exporter: Exporter
    ) -> None:
        consumer = make_consumer(Trace(), topic=topic, enable_partition_eof=True)
        error = polled(consumer).error()
        assert error is not None
        assert error.code() == KafkaError._PARTITION_EOF
        assert consumer.poll(0) is None
        assert not exporter.get_finished_spans()

    def test_of_a_list_is_one_receive_with_links(
        self, topic: str, make_producer: MakeProducer, make_consumer: MakeConsumer, exporter: Exporter
    ) -> None:
        producer = make_producer(Trace(mode="batch"))
        assert producer.produce_many(topic, [{"value": b"v"}] * 5) == [None] * 5
        producer.flush(DEADLINE_S)
        (sent,) = named(exporter, f"send {topic}")
        assert attributes_of(sent)["messaging.batch.message_count"] == 5
        consumer = make_consumer(Trace(), topic=topic)
        assert len(consumer.consume(5, DEADLINE_S)) == 5
        (received,) = named(exporter, f"poll {topic}")
        assert attributes_of(received)["messaging.batch.message_count"] == 5
        assert {link.context.span_id for link in received.links} == {span_id(sent)}


class TestAFailedDelivery:
    def test_is_told_if_the_client_refuses_the_record(
        self, topic: str, make_producer: MakeProducer, exporter: Exporter
    ) -> None:
        producer = make_producer(Trace(), message_max_bytes=2_000)
        with pytest.raises(KafkaException):
            producer.produce(topic, b"x" * 10_000)
        (sent,) = named(exporter, f"send {topic}")
        assert attributes_of(sent)["error.type"] == "MSG_SIZE_TOO_LARGE"
        assert sent.status.status_code is StatusCode.ERROR
        assert "too large" in str(sent.status.description)

    def test_is_told_if_the_slices_could_never_be_queued(
        self, topic: str, make_producer: MakeProducer, exporter: Exporter
    ) -> None:
        producer = make_producer(Trace(), Slice(max_bytes=2_000), queue_buffering_max_messages=2)
        with pytest.raises(BufferError):
            producer.produce(topic, b"x" * 10_000)
        (sent,) = named(exporter, f"send {topic}")
        assert attributes_of(sent)["error.type"] == "BufferError"

    @pytest.mark.parametrize("mode", ["record", "batch"])
    def test_is_told_if_records_are_purged(
        self, mode: Any, topic: str, make_producer: MakeProducer, exporter: Exporter
    ) -> None:
        producer = make_producer(Trace(mode=mode), linger_ms=60_000)
        producer.produce(topic, b"v")
        producer.purge()
        # With confluent-kafka 2.13 `poll` takes all of its timeout, although it has served something.
        until(lambda: named(exporter, f"send {topic}"), meanwhile=lambda: producer.poll(0.05))
        (sent,) = named(exporter, f"send {topic}")
        assert attributes_of(sent)["error.type"] == "_PURGE_QUEUE"

    def test_is_told_of_an_aborted_transaction(
        self, topic: str, make_producer: MakeProducer, exporter: Exporter
    ) -> None:
        producer = make_producer(Trace(), transactional_id=topic, linger_ms=10_000)
        producer.init_transactions(DEADLINE_S)
        producer.begin_transaction()
        producer.produce(topic, b"v")
        producer.abort_transaction(DEADLINE_S)
        (sent,) = named(exporter, f"send {topic}")
        assert attributes_of(sent)["error.type"] in {"_PURGE_QUEUE", "_PURGE_INFLIGHT"}


class TestACommit:
    def test_in_the_background_is_one_span(
        self, topic: str, make_producer: MakeProducer, make_consumer: MakeConsumer, exporter: Exporter
    ) -> None:
        producer = make_producer()
        producer.produce(topic, b"v")
        producer.flush(DEADLINE_S)
        consumer = make_consumer(Trace(), topic=topic, enable_auto_commit=False)
        consumer.commit(polled(consumer), asynchronous=True)
        deadline = time.monotonic() + DEADLINE_S
        while not named(exporter, f"commit {topic}"):
            assert time.monotonic() < deadline
            consumer.poll(0.05)
        (settled,) = named(exporter, f"commit {topic}")
        assert settled.start_time == settled.end_time
        assert attributes_of(settled)["messaging.destination.partition.id"] == "0"

    def test_that_fails_is_told(self, topic: str, make_consumer: MakeConsumer, exporter: Exporter) -> None:
        consumer = make_consumer(Trace(), topic=topic, enable_auto_commit=False)
        with pytest.raises(KafkaException) as raised:
            consumer.commit(offsets=[TopicPartition(topic, 99, 5)], asynchronous=False)
        (settled,) = named(exporter, f"commit {topic}")
        assert attributes_of(settled)["error.type"] == raised.value.args[0].name()
        assert attributes_of(settled)["messaging.operation.type"] == "settle"

    def test_that_repeats_one_at_close_is_no_span(
        self, topic: str, make_producer: MakeProducer, make_consumer: MakeConsumer, exporter: Exporter
    ) -> None:
        producer = make_producer()
        for _ in range(2):
            producer.produce(topic, b"v", partition=0)
        producer.flush(DEADLINE_S)
        consumer = make_consumer(Trace(), topic=topic)
        for _ in range(2):
            message = polled(consumer)
            with consumer.processing(message):
                consumer.commit(message, asynchronous=False)
        consumer.close()
        settled, processed = named(exporter, f"commit {topic}"), named(exporter, f"process {topic}")
        parents = [span.parent.span_id for span in settled if span.parent is not None]
        assert len(settled) == 2
        assert parents == [span_id(span) for span in processed]

    def test_at_close_is_one(
        self, topic: str, make_producer: MakeProducer, make_consumer: MakeConsumer, exporter: Exporter
    ) -> None:
        producer = make_producer()
        for _ in range(2):
            producer.produce(topic, b"v", partition=0)
        producer.flush(DEADLINE_S)
        consumer = make_consumer(Trace(), topic=topic)
        consumer.commit(polled(consumer), asynchronous=False)
        polled(consumer)
        consumer.close()
        assert [span.parent for span in named(exporter, f"commit {topic}")] == [None, None]

    def test_of_nothing_is_no_span(self, topic: str, make_consumer: MakeConsumer, exporter: Exporter) -> None:
        consumer = make_consumer(Trace(), topic=topic, enable_auto_commit=False)
        with pytest.raises(KafkaException):
            consumer.commit(asynchronous=False)
        assert not exporter.get_finished_spans()


class TestTheContext:
    def test_is_that_of_the_record_in_each_thread_and_task(
        self, topic: str, make_producer: MakeProducer, make_consumer: MakeConsumer, exporter: Exporter
    ) -> None:
        producer = make_producer(Trace())
        for number in range(4):
            producer.produce(topic, b"v", headers=[("baggage", f"number={number}".encode())])
        producer.flush(DEADLINE_S)
        consumer = make_consumer(Trace(), topic=topic)
        messages = consumer.consume(4, DEADLINE_S)
        seen: dict[int, Any] = {}

        def work(number: int) -> None:
            with consumer.processing(messages[number]):
                seen[number] = baggage.get_baggage("number"), current_id()

        threads = [threading.Thread(target=work, args=(number,)) for number in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        async def task(number: int, entered: asyncio.Barrier) -> None:
            with consumer.processing(messages[number]):
                await entered.wait()
                seen[number] = baggage.get_baggage("number"), current_id()

        async def both() -> None:
            entered = asyncio.Barrier(2)
            await asyncio.gather(task(2, entered), task(3, entered))

        asyncio.run(both())
        assert [seen[number][0] for number in range(4)] == ["0", "1", "2", "3"]
        offsets = {
            span_id(span): attributes_of(span)["messaging.kafka.offset"]
            for span in named(exporter, f"process {topic}")
        }
        assert [offsets[seen[number][1]] for number in range(4)] == [0, 1, 2, 3]


class TestAReceiverOfOtlp:
    @pytest.fixture
    def receiver(self) -> Iterator[tuple[str, list[ExportTraceServiceRequest]]]:
        requests: list[ExportTraceServiceRequest] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                requests.append(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        server = HTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1/traces", requests
        server.shutdown()
        thread.join()
        server.server_close()

    def test_gets_the_spans_of_a_message_in_slices(
        self,
        receiver: tuple[str, list[ExportTraceServiceRequest]],
        topic: str,
        make_producer: MakeProducer,
        make_consumer: MakeConsumer,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        address, requests = receiver
        provider = TracerProvider(resource=Resource({"service.name": "shop"}), shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(address, compression=None)))
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
        producer = make_producer(Trace(), Slice(max_bytes=2_000))
        producer.produce(topic, b"x" * 10_000, b"k")
        producer.flush(DEADLINE_S)
        consumer = make_consumer(Trace(), Slice(max_bytes=2_000), topic=topic, enable_auto_commit=False)
        message = polled(consumer)
        with consumer.processing(message):
            consumer.commit(message, asynchronous=False)
        assert provider.force_flush()
        provider.shutdown()
        scopes = [
            scope for request in requests for found in request.resource_spans for scope in found.scope_spans
        ]
        assert {(each.scope.name, each.schema_url) for each in scopes} == {
            ("headerware", "https://opentelemetry.io/schemas/1.44.0")
        }
        spans = {span.name: span for each in scopes for span in each.spans}
        sent, processed = spans[f"send {topic}"], spans[f"process {topic}"]
        assert set(spans) == {f"{name} {topic}" for name in ("send", "poll", "process", "commit")}
        assert processed.links[0].span_id == sent.span_id
        assert spans[f"commit {topic}"].parent_span_id == processed.span_id
        kinds = {attribute.key: attribute.value.WhichOneof("value") for attribute in processed.attributes}
        assert kinds["messaging.destination.partition.id"] == "string_value"
        assert kinds["messaging.kafka.offset"] == kinds["server.port"] == "int_value"


class TestOtherInstrumentation:
    def test_around_a_producer_makes_the_only_send_span(
        self,
        topic: str,
        make_producer: MakeProducer,
        make_consumer: MakeConsumer,
        exporter: Exporter,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        proxy: Any = ConfluentKafkaInstrumentor.instrument_producer(make_producer(Trace()))
        for _ in range(2):
            proxy.produce(topic, b"v", headers=[])
        proxy.flush(DEADLINE_S)
        assert [scope_of(span) for span in exporter.get_finished_spans()] == [OTHERS] * 2
        assert caplog.text.count("makes spans of the same clients") == 1
        found: Any = polled(make_consumer(topic=topic)).headers()
        assert [name for name, _ in found] == ["traceparent"]

    def test_around_a_consumer_makes_the_only_process_span(
        self,
        topic: str,
        make_producer: MakeProducer,
        make_consumer: MakeConsumer,
        exporter: Exporter,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        producer = make_producer()
        producer.produce(topic, b"v")
        producer.flush(DEADLINE_S)
        consumer = make_consumer(Trace(), topic=topic)
        proxy: Any = ConfluentKafkaInstrumentor.instrument_consumer(consumer)
        with consumer.processing(polled(proxy)):
            pass
        proxy.close()
        assert {scope_of(span) for span in exporter.get_finished_spans()} == {OTHERS}
        assert caplog.text.count("makes spans of the same clients") == 1

    def test_of_classes_makes_the_only_span_of_theirs_and_none_of_ours(
        self, topic: str, connection: dict[str, Any]
    ) -> None:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", AUTOMATIC, connection["bootstrap.servers"], topic],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == [OTHERS, "headerware"]
        assert done.stderr.count("makes spans of the same clients") == 1


AUTOMATIC = """
import sys, logging
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter as Exporter
from opentelemetry.instrumentation.confluent_kafka import ConfluentKafkaInstrumentor

exporter, provider = Exporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
ConfluentKafkaInstrumentor().instrument()
import confluent_kafka
import headerware
from headerware.interceptors import Trace

headerware.instrument()
conf = {"bootstrap.servers": sys.argv[1], "log_level": 0}
theirs = confluent_kafka.Producer({**conf, "interceptors": "trace"})
ours = headerware.Producer(conf, chain=headerware.Chain([Trace()]))
for producer in theirs, ours:
    producer.produce(sys.argv[2], b"v")
    assert producer.flush(60) == 0
    producer.close()
print(*(span.instrumentation_scope.name for span in exporter.get_finished_spans()))
"""


@pytest.mark.skipif(not KNOWS_ITS_CLUSTER, reason="this confluent-kafka is asked on a thread of our own")
class TestACallback:
    def test_may_ask_for_the_clusters_id(
        self, topic: str, make_producer: MakeProducer, exporter: Exporter
    ) -> None:
        # confluent-kafka aborts the process if it is asked on the thread of a callback.
        producer = make_producer(Trace())
        producer.produce(topic, b"v", on_delivery=lambda *_: producer.produce(topic, b"again"))
        while len(named(exporter, f"send {topic}")) < 2:
            producer.poll(0.1)
        assert [span.kind for span in named(exporter, f"send {topic}")] == [SpanKind.PRODUCER] * 2
        assert all(
            attributes_of(span)["messaging.kafka.cluster.id"] for span in named(exporter, f"send {topic}")
        )
