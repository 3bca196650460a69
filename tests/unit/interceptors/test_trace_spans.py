from __future__ import annotations

import contextvars
import gc
import weakref
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.context import Context as TraceContext
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Decision, SamplingResult
from opentelemetry.trace import SpanKind, StatusCode

from headerware.core.chain import Chain
from headerware.core.context import Context
from headerware.core.errors import ConfigError, InterceptorError
from headerware.core.headers import Headers
from headerware.core.hooks import DROP
from headerware.core.record import Operation, Record, RecordMetadata
from headerware.interceptors.trace import Trace, extract_context

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opentelemetry.sdk.trace import ReadableSpan

    from headerware.core.session import Session

PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
PARENT_IDS = (0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331)
CLIENT = Context(
    side="producer",
    client_id="shop",
    bootstrap_servers="SASL_SSL://kafka-1.example:9093,kafka-2.example:9093",
    cluster_id=lambda: "lkc-1",
)
READER = Context(side="consumer", client_id="mailer", group_id="mail", bootstrap_servers="[::1]:9092")


def configure(patch: pytest.MonkeyPatch, sampler: Any = ALWAYS_ON) -> InMemorySpanExporter:
    """Configure an SDK that keeps spans, as the API's own tests do: it can be set once in a process only."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(sampler=sampler)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    patch.setattr(trace, "_TRACER_PROVIDER", provider)
    return exporter


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    return configure(monkeypatch)


def opened(surroundings: Context = CLIENT, *others: object, **options: Any) -> Session:
    return Chain([Trace(**options), *others]).open(surroundings)


def send(session: Session, *records: Record) -> list[Record]:
    return session.send(records)


def delivered(session: Session, record: Record, offset: int = 7) -> None:
    session.acknowledge(record, RecordMetadata(record.topic, 2, offset), None)


def sent_span(session: Session, exporter: InMemorySpanExporter, record: Record) -> ReadableSpan:
    delivered(session, send(session, record)[0])
    (span,) = exporter.get_finished_spans()
    return span


def linked(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


def carried(record: Record) -> tuple[int, int]:
    found = trace.get_current_span(extract_context(record.headers)).get_span_context()
    return found.trace_id, found.span_id


def ids(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def consumed(session: Session, *records: Record) -> list[Record]:
    return session.consume(records)


def arrived(topic: str = "orders", offset: int = 3, **fields: Any) -> Record:
    given: dict[str, Any] = {
        "value": b"v",
        "partition": 1,
        "headers": Headers([("traceparent", PARENT)]),
    } | fields
    return Record(topic, offset=offset, **given)


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "path"),
        [
            ({"mode": "records"}, "mode"),
            ({"spans": ("poll",)}, "spans"),
            ({"correlate_by": "child"}, "correlate_by"),
            ({"spans": ("create", "send")}, "spans"),
            ({"spans": ("create",), "mode": "batch"}, "spans"),
        ],
    )
    def test_refuses_what_it_does_not_know(self, options: dict[str, Any], path: str) -> None:
        with pytest.raises(ConfigError) as raised:
            Trace(**options)
        assert raised.value.path == path

    def test_come_from_flat_configuration(self) -> None:
        chain = Chain.from_config(
            {
                "interceptors": "trace",
                "interceptors.trace.mode": "batch",
                "interceptors.trace.spans": "send,process",
            }
        )
        assert list(chain) == [Trace(mode="batch", spans=("send", "process"))]


class TestSendSpan:
    def test_ends_with_the_delivery_and_says_where_the_record_is(
        self, exporter: InMemorySpanExporter
    ) -> None:
        session = opened()
        (record,) = send(session, Record("orders", b"v", b"k-1"))
        assert not exporter.get_finished_spans()
        delivered(session, record)
        (span,) = exporter.get_finished_spans()
        assert (span.name, span.kind, span.status.status_code) == (
            "send orders",
            SpanKind.PRODUCER,
            StatusCode.UNSET,
        )
        assert dict(span.attributes or {}) == {
            "messaging.system": "kafka",
            "messaging.operation.name": "send",
            "messaging.operation.type": "send",
            "messaging.destination.name": "orders",
            "messaging.client.id": "shop",
            "server.address": "kafka-1.example",
            "server.port": 9093,
            "messaging.kafka.message.key": "k-1",
            "messaging.destination.partition.id": "2",
            "messaging.kafka.offset": 7,
            "messaging.kafka.cluster.id": "lkc-1",
        }
        assert ids(span) == carried(record)

    def test_names_the_scope_and_its_schema(self, exporter: InMemorySpanExporter) -> None:
        scope = sent_span(opened(), exporter, Record("orders", b"v")).instrumentation_scope
        assert scope is not None
        assert (scope.name, bool(scope.version), scope.schema_url) == (
            "headerware",
            True,
            "https://opentelemetry.io/schemas/1.44.0",
        )

    def test_is_a_child_of_the_current_span(self, exporter: InMemorySpanExporter) -> None:
        session = opened()
        with trace.get_tracer("app").start_as_current_span("request") as request:
            (record,) = send(session, Record("orders", b"v"))
        delivered(session, record)
        span = exporter.get_finished_spans()[-1]
        assert span.parent == request.get_span_context()
        assert carried(record) == ids(span)

    def test_keeps_a_context_that_the_record_has_and_links_to_it(
        self, exporter: InMemorySpanExporter
    ) -> None:
        session, headers = opened(), Headers([("traceparent", PARENT)])
        (record,) = send(session, Record("orders", b"v", headers=headers))
        delivered(session, record)
        (span,) = exporter.get_finished_spans()
        assert record.headers == headers
        assert (span.kind, linked(span)) == (SpanKind.CLIENT, [PARENT_IDS])

    def test_takes_a_malformed_context_for_none(self, exporter: InMemorySpanExporter) -> None:
        headers = Headers([("traceparent", b"junk")])
        assert sent_span(opened(), exporter, Record("orders", b"v", headers=headers)).links == ()

    def test_says_that_a_record_is_a_tombstone(self, exporter: InMemorySpanExporter) -> None:
        span = sent_span(opened(), exporter, Record("orders", None, b"k"))
        assert (span.attributes or {})["messaging.kafka.message.tombstone"] is True

    @pytest.mark.parametrize(
        ("key", "text"), [(b"k\xff", None), (b"a\x00", None), ("ü".encode(), "ü"), (b"", None)]
    )
    def test_gives_keys_that_are_text(
        self, key: bytes, text: str | None, exporter: InMemorySpanExporter
    ) -> None:
        span = sent_span(opened(), exporter, Record("orders", b"v", key))
        assert (span.attributes or {}).get("messaging.kafka.message.key") == text

    def test_leaves_keys_out_and_takes_sizes_in_as_it_is_told(self, exporter: InMemorySpanExporter) -> None:
        session = opened(message_key=False, message_size=True)
        attributes = sent_span(session, exporter, Record("orders", b"four", b"k")).attributes or {}
        assert "messaging.kafka.message.key" not in attributes
        assert attributes["messaging.message.body.size"] == 4

    def test_carries_baggage_and_makes_chosen_entries_attributes(
        self, exporter: InMemorySpanExporter
    ) -> None:
        token = context.attach(
            baggage.set_baggage("tenant", "a", baggage.set_baggage("secret", "s", TraceContext()))
        )
        try:
            session = opened(baggage_attributes=("tenant", "absent"))
            (record,) = send(session, Record("orders", b"v"))
        finally:
            context.detach(token)
        delivered(session, record)
        (span,) = exporter.get_finished_spans()
        assert record.headers.names() == ("traceparent", "baggage")
        attributes = span.attributes or {}
        assert attributes["tenant"] == "a"
        assert not {"secret", "absent"} & set(attributes)

    def test_keeps_the_applications_own_baggage(self, exporter: InMemorySpanExporter) -> None:
        token = context.attach(baggage.set_baggage("tenant", "a", TraceContext()))
        try:
            (record,) = send(opened(), Record("orders", b"v", headers=Headers([("baggage", b"x=1")])))
        finally:
            context.detach(token)
        assert record.headers.names() == ("baggage", "traceparent")
        assert record.headers.last("baggage") == b"x=1"

    def test_tells_the_failure_of_a_delivery_without_text_of_others(
        self, exporter: InMemorySpanExporter
    ) -> None:
        session = opened()
        (record,) = send(session, Record("orders", b"v"))
        session.acknowledge(record, None, ValueError("secret"))
        (span,) = exporter.get_finished_spans()
        assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, None)
        assert (span.attributes or {})["error.type"] == "ValueError"

    def test_ends_if_a_step_behind_refuses_the_record(self, exporter: InMemorySpanExporter) -> None:
        session = opened(CLIENT, _Step(InterceptorError("no room")))
        (error,) = session.send_outcomes([Record("orders", b"v")])
        assert isinstance(error, InterceptorError)
        assert error.last_record is not None
        session.acknowledge(error.last_record, None, error)
        (span,) = exporter.get_finished_spans()
        assert (span.attributes or {})["error.type"] == "InterceptorError"
        assert "no room" in str(span.status.description)

    def test_ends_if_a_step_behind_drops_the_record(self, exporter: InMemorySpanExporter) -> None:
        session = opened(CLIENT, _Step(DROP))
        assert send(session, Record("orders", b"v")) == []
        gc.collect()
        (span,) = exporter.get_finished_spans()
        assert (span.attributes or {})["error.type"] == "unacknowledged"

    def test_ends_without_an_error_where_nobody_reports_deliveries(
        self, exporter: InMemorySpanExporter
    ) -> None:
        send(opened(Context(side="producer")), Record("orders", b"v"))
        gc.collect()
        (span,) = exporter.get_finished_spans()
        assert span.status.status_code is StatusCode.UNSET

    def test_survives_a_step_that_makes_the_record_anew(self, exporter: InMemorySpanExporter) -> None:
        session = opened(CLIENT, _Anew())
        delivered(session, send(session, Record("orders", b"v"))[0])
        (span,) = exporter.get_finished_spans()
        assert span.status.status_code is StatusCode.UNSET

    def test_is_not_made_if_it_is_not_asked_for(self, exporter: InMemorySpanExporter) -> None:
        session = opened(spans=("process",))
        with trace.get_tracer("app").start_as_current_span("request") as request:
            (record,) = send(session, Record("orders", b"v"))
        delivered(session, record)
        assert [span.name for span in exporter.get_finished_spans()] == ["request"]
        assert carried(record)[1] == request.get_span_context().span_id

    def test_carries_a_decision_not_to_sample(self, monkeypatch: pytest.MonkeyPatch) -> None:
        exporter = configure(monkeypatch, ALWAYS_OFF)
        (record,) = send(opened(), Record("orders", b"v"))
        found = trace.get_current_span(extract_context(record.headers)).get_span_context()
        assert found.is_valid
        assert not found.trace_flags.sampled
        assert record.local is None
        assert not exporter.get_finished_spans()

    def test_gives_the_sampler_what_it_may_decide_by(self, monkeypatch: pytest.MonkeyPatch) -> None:
        sampler = _Sampler()
        configure(monkeypatch, sampler)
        send(opened(), Record("orders", b"v"))
        (attributes,) = sampler.seen
        assert attributes["messaging.destination.name"] == "orders"
        assert attributes["messaging.operation.type"] == "send"

    def test_is_made_once_an_sdk_is_configured(self, monkeypatch: pytest.MonkeyPatch) -> None:
        session = opened()
        assert send(session, Record("orders", b"v"))[0].headers == Headers()
        exporter = configure(monkeypatch)
        delivered(session, send(session, Record("orders", b"v"))[0])
        assert len(exporter.get_finished_spans()) == 1


class TestOldNames:
    @pytest.mark.parametrize("opted", ["", "messaging", "http/dup"])
    def test_are_left_out(
        self, opted: str, exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", opted)
        attributes = sent_span(opened(), exporter, Record("orders", b"v")).attributes or {}
        assert "messaging.operation" not in attributes

    def test_come_beside_the_new_ones_on_demand(
        self, exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", "http, messaging/dup")
        attributes = dict(sent_span(opened(), exporter, Record("orders", b"v")).attributes or {})
        old = {
            "messaging.operation": "publish",
            "messaging.client_id": "shop",
            "messaging.kafka.destination.partition": 2,
            "messaging.kafka.message.offset": 7,
        }
        assert attributes | old == attributes
        assert attributes["messaging.kafka.offset"] == 7


class TestBatchSpan:
    def test_is_one_for_a_list_and_its_context_goes_with_each_record(
        self, exporter: InMemorySpanExporter
    ) -> None:
        session = opened(mode="batch")
        own = Record("orders", b"v", headers=Headers([("traceparent", PARENT)]))
        records = send(session, *[Record("orders", b"v")] * 3, own)
        for record in records:
            assert not exporter.get_finished_spans()
            delivered(session, record)
        (span,) = exporter.get_finished_spans()
        assert (span.name, span.kind) == ("send orders", SpanKind.PRODUCER)
        assert (span.attributes or {})["messaging.batch.message_count"] == 4
        assert {carried(record) for record in records} == {ids(span), PARENT_IDS}
        assert linked(span) == [PARENT_IDS]

    def test_takes_in_records_while_others_are_in_flight(self, exporter: InMemorySpanExporter) -> None:
        session = opened(mode="batch")
        send_one = session.send_outcome
        first, second = send_one(Record("orders", b"1")), send_one(Record("orders", b"2"))
        assert isinstance(first, Record)
        assert isinstance(second, Record)
        delivered(session, first)
        delivered(session, second)
        third = send_one(Record("orders", b"3"))
        assert isinstance(third, Record)
        delivered(session, third)
        counts = [
            (span.attributes or {})["messaging.batch.message_count"] for span in exporter.get_finished_spans()
        ]
        assert counts == [2, 1]
        assert carried(first) == carried(second) != carried(third)

    @pytest.mark.parametrize("between", ["topic", "span", "flush", "full"])
    def test_is_another(self, between: str, exporter: InMemorySpanExporter) -> None:
        session = opened(mode="batch")
        first = session.send_outcome(Record("orders", b"1"))
        if between == "flush":
            session.flush()
        for _ in range(499 if between == "full" else 0):
            session.send_outcome(Record("orders", b"1"))
        topic = "payments" if between == "topic" else "orders"
        with trace.get_tracer("app").start_as_current_span("request") if between == "span" else nullcontext():
            second = session.send_outcome(Record(topic, b"2"))
        assert isinstance(first, Record)
        assert isinstance(second, Record)
        assert carried(first) != carried(second)

    def test_has_an_error_if_any_record_has(self, exporter: InMemorySpanExporter) -> None:
        session = opened(mode="batch")
        first, second = send(session, Record("orders", b"1"), Record("orders", b"2"))
        session.acknowledge(first, None, ValueError("secret"))
        delivered(session, second)
        (span,) = exporter.get_finished_spans()
        assert (span.attributes or {})["error.type"] == "ValueError"
        assert span.status.description == "1 of 2 records were not delivered"

    def test_ends_though_a_record_was_dropped(self, exporter: InMemorySpanExporter) -> None:
        session = opened(CLIENT, _Step(DROP, values=[b"1"]), mode="batch")
        (record,) = send(session, Record("orders", b"1"), Record("orders", b"2"))
        delivered(session, record)
        del record
        gc.collect()
        (span,) = exporter.get_finished_spans()
        assert span.status.description == "1 of 2 records were dropped"

    @pytest.mark.parametrize("how", ["in a list", "one by one"])
    def test_takes_no_more_records_after_all_were_delivered_or_dropped(
        self, how: str, exporter: InMemorySpanExporter
    ) -> None:
        session = opened(CLIENT, mode="batch")
        records = [Record("orders", b"1"), Record("orders", b"2")]
        sent: list[Any] = (
            send(session, *records) if how == "in a list" else list(map(session.send_outcome, records))
        )
        delivered(session, sent[0])
        sent.clear()
        gc.collect()
        for _ in range(3):
            later: Any = session.send_outcome(Record("orders", b"later"))
            delivered(session, later)
        spans = exporter.get_finished_spans()
        counts = [(span.attributes or {})["messaging.batch.message_count"] for span in spans]
        assert counts == [2, 1, 1, 1]
        assert [span.status.description for span in spans] == ["1 of 2 records were dropped"] + [None] * 3

    def test_frees_the_applications_context_when_it_is_over(self, exporter: InMemorySpanExporter) -> None:
        session = opened(CLIENT, mode="batch")
        request = _Request()
        token = context.attach(context.set_value("request", request))
        record: Any = session.send_outcome(Record("orders", b"1"))
        context.detach(token)
        delivered(session, record)
        seen = weakref.ref(request)
        del request, token, record
        gc.collect()
        assert seen() is None

    def test_links_to_create_spans(self, exporter: InMemorySpanExporter) -> None:
        session = opened(mode="batch", spans=("create", "send"))
        for record in (records := send(session, Record("orders", b"1", b"a"), Record("orders", b"2", b"b"))):
            delivered(session, record)
        *created, span = exporter.get_finished_spans()
        assert [(each.name, each.kind) for each in created] == [("create orders", SpanKind.PRODUCER)] * 2
        assert [(each.attributes or {})["messaging.kafka.message.key"] for each in created] == ["a", "b"]
        assert span.kind is SpanKind.CLIENT
        assert linked(span) == [ids(each) for each in created] == [carried(record) for record in records]

    def test_is_shared_for_a_second_if_it_is_not_sampled(self, monkeypatch: pytest.MonkeyPatch) -> None:
        configure(monkeypatch, ALWAYS_OFF)
        now_ms = 0
        session = Chain([Trace(mode="batch")]).open(
            Context(side="producer", bootstrap_servers="a:1", now_ms=lambda: now_ms)
        )
        found = []
        for now_ms in (0, 999, 1_000):  # noqa: B007 - the clock reads it
            outcome = session.send_outcome(Record("orders", b"v"))
            assert isinstance(outcome, Record)
            assert outcome.local is None
            found.append(carried(outcome))
        assert found[0] == found[1] != found[2]


class TestReceiveSpan:
    def operation(self, records: Sequence[Record]) -> Operation:
        return Operation(name="receive", began_ns=1_000, ended_ns=2_000, records=records)

    def test_links_to_each_record(self, exporter: InMemorySpanExporter) -> None:
        session = opened(READER)
        other = arrived(headers=Headers(), offset=4)
        session.operation(self.operation(consumed(session, arrived(), other)))
        (span,) = exporter.get_finished_spans()
        assert (span.name, span.kind, span.start_time, span.end_time) == (
            "poll orders",
            SpanKind.CLIENT,
            1_000,
            2_000,
        )
        assert linked(span) == [PARENT_IDS]
        assert dict(span.attributes or {}) == {
            "messaging.system": "kafka",
            "messaging.operation.name": "poll",
            "messaging.operation.type": "receive",
            "messaging.destination.name": "orders",
            "messaging.client.id": "mailer",
            "messaging.consumer.group.name": "mail",
            "server.address": "::1",
            "server.port": 9092,
            "messaging.destination.partition.id": "1",
            "messaging.batch.message_count": 2,
        }

    def test_of_several_topics_names_none(self, exporter: InMemorySpanExporter) -> None:
        session = opened(READER)
        session.operation(self.operation(consumed(session, arrived(), arrived("payments"))))
        (span,) = exporter.get_finished_spans()
        assert span.name == "poll"
        assert "messaging.destination.name" not in (span.attributes or {})

    def test_is_not_made_without_an_sdk(self) -> None:
        assert not opened(READER).awaits_operations()

    def test_is_awaited_with_one(self, exporter: InMemorySpanExporter) -> None:
        assert opened(READER).awaits_operations()
        assert not opened(READER, spans=("process",)).awaits_operations()


class TestSettleSpan:
    def test_tells_a_failure(self, exporter: InMemorySpanExporter) -> None:
        offsets = [RecordMetadata("orders", 1, 4)]
        opened(READER).operation(
            Operation(name="commit", began_ns=1, ended_ns=2, offsets=offsets, error=TimeoutError())
        )
        (span,) = exporter.get_finished_spans()
        assert (span.name, span.kind) == ("commit orders", SpanKind.CLIENT)
        attributes = span.attributes or {}
        assert attributes["messaging.operation.type"] == "settle"
        assert attributes["messaging.destination.partition.id"] == "1"
        assert attributes["error.type"] == "TimeoutError"

    def test_is_for_its_own_topics(self, exporter: InMemorySpanExporter) -> None:
        offsets = [RecordMetadata("orders", 1, 4), RecordMetadata("payments", 1, 4)]
        opened(READER, topics=("orders",)).operation(
            Operation(name="commit", began_ns=1, ended_ns=2, offsets=offsets)
        )
        (span,) = exporter.get_finished_spans()
        assert span.name == "commit orders"


class TestProcessSpan:
    def test_is_current_while_the_record_is_processed(self, exporter: InMemorySpanExporter) -> None:
        session = opened(READER)
        records = consumed(
            session, arrived(headers=Headers([("traceparent", PARENT), ("baggage", b"tenant=a")]))
        )
        with session.processing(records):
            current = trace.get_current_span().get_span_context()
            assert baggage.get_baggage("tenant") == "a"
        assert not trace.get_current_span().get_span_context().is_valid
        assert baggage.get_baggage("tenant") is None
        (span,) = exporter.get_finished_spans()
        assert span.context == current
        assert (span.name, span.kind, span.parent, linked(span)) == (
            "process orders",
            SpanKind.CONSUMER,
            None,
            [PARENT_IDS],
        )
        assert (span.attributes or {})["messaging.kafka.offset"] == 3

    def test_may_be_a_child_of_the_records_context(self, exporter: InMemorySpanExporter) -> None:
        session = opened(READER, correlate_by="parent")
        with (
            trace.get_tracer("app").start_as_current_span("job") as job,
            session.processing(consumed(session, arrived())),
        ):
            pass
        span = exporter.get_finished_spans()[0]
        assert span.parent is not None
        assert (span.parent.trace_id, span.parent.span_id) == PARENT_IDS
        assert [link.context for link in span.links][1:] == [job.get_span_context()]

    def test_of_several_records_links_to_each(self, exporter: InMemorySpanExporter) -> None:
        session = opened(READER, correlate_by="parent")
        headers = [("traceparent", PARENT), ("baggage", b"tenant=a,order=1")]
        other = [("traceparent", PARENT), ("baggage", b"tenant=a,order=2")]
        with session.processing(
            consumed(session, arrived(headers=Headers(headers)), arrived("payments", headers=Headers(other)))
        ):
            assert dict(baggage.get_all()) == {"tenant": "a"}
        (span,) = exporter.get_finished_spans()
        assert (span.name, span.parent, linked(span)) == ("process", None, [PARENT_IDS] * 2)
        assert (span.attributes or {})["messaging.batch.message_count"] == 2

    def test_tells_what_the_application_raised_but_not_its_text(self, exporter: InMemorySpanExporter) -> None:
        session = opened(READER)
        with pytest.raises(LookupError), session.processing(consumed(session, arrived())):
            raise LookupError("secret")
        (span,) = exporter.get_finished_spans()
        (event,) = span.events
        assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, None)
        assert (span.attributes or {})["error.type"] == "LookupError"
        stack = str((event.attributes or {})["exception.stacktrace"])
        assert "test_tells_what_the_application_raised" in stack

    def test_carries_the_context_on_without_an_sdk(self) -> None:
        session = opened(READER)
        with session.processing(consumed(session, arrived())):
            (record,) = send(opened(), Record("mails", b"v"))
        assert carried(record) == PARENT_IDS
        assert send(opened(), Record("mails", b"v"))[0].headers == Headers()

    def test_leaves_the_applications_span_current_without_an_sdk(self) -> None:
        session = opened(READER, mode="propagate")
        mine = trace.NonRecordingSpan(trace.SpanContext(1, 2, is_remote=False))
        with trace.use_span(mine), session.processing(consumed(session, arrived())):
            assert trace.get_current_span() is mine

    def test_left_behind_in_a_thread_is_no_parent(self, exporter: InMemorySpanExporter) -> None:
        contextvars.copy_context().run(self.leave_one_behind, opened(READER))
        first, second, third, job = exporter.get_finished_spans()
        assert (first.parent, second.parent, third.parent) == (None, None, job.context)

    def test_may_end_in_a_copy_of_its_context(
        self, exporter: InMemorySpanExporter, caplog: pytest.LogCaptureFixture
    ) -> None:
        session = opened(READER)
        here = context.get_current()
        # The record stays at work where its block began, which is here a context of its own.
        contextvars.copy_context().run(self.end_in_a_copy, session)
        assert [span.name for span in exporter.get_finished_spans()] == ["process orders", "job"]
        assert not caplog.records
        assert context.get_current() is here

    def end_in_a_copy(self, session: Session) -> None:
        with trace.get_tracer("app").start_as_current_span("job"):
            job = context.get_current()
            processing = session.processing(consumed(session, arrived()))
            processing.__enter__()
            # As asyncio.to_thread(consumer.close) does: the copy has the same context as this task.
            copy = contextvars.copy_context()
            copy.run(processing.__exit__, None, None, None)
            assert copy.run(context.get_current) is job

    def leave_one_behind(self, session: Session) -> None:
        first = session.processing(consumed(session, arrived()))
        first.__enter__()
        # It ends elsewhere, where its context is not current; here it stays current.
        contextvars.Context().run(first.__exit__, None, None, None)
        with session.processing(consumed(session, arrived(offset=4))):
            pass
        with (
            trace.get_tracer("app").start_as_current_span("job", TraceContext()),
            session.processing(consumed(session, arrived(offset=5))),
        ):
            pass


class _Request:
    """What an application may have in its context."""


class _Step:
    """A step that returns or raises the same for every record, or for those of some values."""

    type = "step"

    def __init__(self, outcome: Any, values: Sequence[bytes] | None = None) -> None:
        self._outcome = outcome
        self._values = values

    def on_send(self, record: Record) -> Any:
        if self._values is not None and record.value not in self._values:
            return record
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


class _Anew:
    """A step that makes each record anew, without the state of others."""

    def on_send(self, record: Record) -> Record:
        return Record(record.topic, record.value, record.key, record.headers)


class _Sampler(type(ALWAYS_ON)):  # type: ignore[misc]  # the SDK has instances of it only
    """A sampler that remembers what it was given."""

    def __init__(self) -> None:
        super().__init__(Decision.RECORD_AND_SAMPLE)
        self.seen: list[Any] = []

    def should_sample(self, *args: Any, **more: Any) -> SamplingResult:
        self.seen.append(args[4] if len(args) > 4 else more["attributes"])
        return SamplingResult(Decision.RECORD_AND_SAMPLE)
