from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from opentelemetry import baggage, context, propagate, trace
from opentelemetry.context import Context as TraceContext
from opentelemetry.propagators.textmap import (
    CarrierT,
    Getter,
    Setter,
    TextMapPropagator,
    default_getter,
    default_setter,
)
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState

from headerware.core.context import Context
from headerware.core.headers import Headers
from headerware.core.record import Record
from headerware.interceptors.trace import Trace, extract_context

if TYPE_CHECKING:
    from collections.abc import Iterator

TRACE_ID, SPAN_ID = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER = b"00-11111111111111111111111111111111-2222222222222222-00"


def span_context(state: TraceState | None = None) -> TraceContext:
    found = SpanContext(TRACE_ID, SPAN_ID, is_remote=False, trace_flags=TraceFlags(1), trace_state=state)
    return trace.set_span_in_context(NonRecordingSpan(found), TraceContext())


@pytest.fixture
def in_span() -> Iterator[None]:
    token = context.attach(span_context())
    yield
    context.detach(token)


def sent(record: Record) -> Record:
    return Trace().open(Context()).on_send(record)


def consumed(*headers: tuple[str, bytes | None]) -> Record:
    return Trace().open(Context()).on_consume(Record("orders", b"v", headers=Headers(headers)))


def span_of(found: TraceContext) -> SpanContext:
    return trace.get_current_span(found).get_span_context()


class TestTraceOnSend:
    def test_gives_the_same_record_without_a_context(self) -> None:
        record = Record("orders", b"v", headers=Headers([("a", b"1")]))
        assert sent(record) is record

    def test_gives_the_same_record_for_an_invalid_span(self) -> None:
        token = context.attach(trace.set_span_in_context(trace.INVALID_SPAN, TraceContext()))
        try:
            record = Record("orders", b"v")
            assert sent(record) is record
        finally:
            context.detach(token)

    def test_writes_the_current_context_after_other_headers(self, in_span: None) -> None:
        record = sent(Record("orders", b"v", headers=Headers([("a", b"1")])))
        assert record.headers == Headers([("a", b"1"), ("traceparent", PARENT)])

    def test_writes_state_and_baggage(self) -> None:
        state = TraceState([("vendor", "x")])
        token = context.attach(baggage.set_baggage("user", "ü", context=span_context(state)))
        try:
            record = sent(Record("orders", b"v"))
        finally:
            context.detach(token)
        assert record.headers == Headers(
            [("traceparent", PARENT), ("tracestate", b"vendor=x"), ("baggage", b"user=%C3%BC")]
        )

    def test_writes_baggage_without_a_span(self) -> None:
        token = context.attach(baggage.set_baggage("user", "1", context=TraceContext()))
        try:
            assert sent(Record("orders", b"v")).headers == Headers([("baggage", b"user=1")])
        finally:
            context.detach(token)

    @pytest.mark.parametrize("name", ["traceparent", "tracestate"])
    def test_neither_replaces_nor_doubles_a_context_that_is_there(self, name: str, in_span: None) -> None:
        record = Record("orders", b"v", headers=Headers([(name, OTHER)]))
        assert sent(record) is record

    def test_keeps_a_null_traceparent(self, in_span: None) -> None:
        record = Record("orders", b"v", headers=Headers([("traceparent", None)]))
        assert sent(record) is record

    def test_baggage_of_the_application_does_not_keep_the_span_out(self, in_span: None) -> None:
        record = sent(Record("orders", b"v", headers=Headers([("baggage", b"a=1")])))
        assert record.headers.names() == ("baggage", "traceparent")

    def test_sends_a_context_on_once(self, in_span: None) -> None:
        record = sent(Record("orders", b"v"))
        assert sent(record) is record


class TestTraceOnConsume:
    def test_gives_the_same_record_without_a_context(self) -> None:
        step, record = Trace().open(Context()), Record("orders", b"v", headers=Headers([("a", b"1")]))
        assert step.on_consume(record) is record

    def test_reads_the_context_into_local_state_and_keeps_the_headers(self) -> None:
        record = consumed(("traceparent", PARENT), ("tracestate", b"vendor=x"))
        assert record.local is not None
        found = span_of(record.local["trace"])
        assert (found.trace_id, found.span_id, found.is_remote) == (TRACE_ID, SPAN_ID, True)
        assert found.trace_state.get("vendor") == "x"
        assert record.headers.names() == ("traceparent", "tracestate")

    def test_reads_baggage_alone(self) -> None:
        record = consumed(("baggage", b"user=1"))
        assert record.local is not None
        assert baggage.get_all(record.local["trace"]) == {"user": "1"}

    @pytest.mark.parametrize(
        "value",
        [
            None,
            b"",
            b"\xff\xfe",
            b"junk",
            PARENT[:-1],
            PARENT + b"-more",
            PARENT.replace(b"00-", b"ff-", 1),
            b"00-" + b"0" * 32 + b"-b7ad6b7169203331-01",
        ],
    )
    def test_ignores_a_malformed_parent(self, value: bytes | None) -> None:
        assert consumed(("traceparent", value)).local is None

    def test_state_without_a_parent_is_nothing(self) -> None:
        assert consumed(("tracestate", b"vendor=x")).local is None

    def test_the_callers_own_span_is_no_part_of_it(self, in_span: None) -> None:
        assert not span_of(extract_context([("traceparent", b"junk"), ("baggage", b"a=1")])).is_valid

    def test_the_last_parent_counts(self) -> None:
        assert (
            span_of(extract_context([("traceparent", OTHER), ("traceparent", PARENT)])).trace_id == TRACE_ID
        )

    def test_joins_repeated_lists(self) -> None:
        lists = [("tracestate", b"a=1"), ("tracestate", b"b=2"), ("baggage", b"x=1"), ("baggage", b"y=2")]
        found = extract_context([("traceparent", PARENT), *lists])
        assert list(span_of(found).trace_state.items()) == [("a", "1"), ("b", "2")]
        assert baggage.get_all(found) == {"x": "1", "y": "2"}


class _Custom(TextMapPropagator):
    """A propagator with a field of its own, as vendors have."""

    def extract(
        self,
        carrier: CarrierT,
        context: TraceContext | None = None,
        getter: Getter[CarrierT] = default_getter,
    ) -> TraceContext:
        return baggage.set_baggage("custom", (getter.get(carrier, "x-custom") or ["none"])[0], context)

    def inject(
        self,
        carrier: CarrierT,
        context: TraceContext | None = None,
        setter: Setter[CarrierT] = default_setter,
    ) -> None:
        setter.set(carrier, "x-custom", "yes")

    @property
    def fields(self) -> set[str]:
        return {"x-custom"}


class TestTraceWithAnotherPropagator:
    @pytest.fixture(autouse=True)
    def _custom(self, in_span: None) -> Iterator[None]:
        before = propagate.get_global_textmap()
        self.step = Trace().open(Context())
        self.step.on_consume(Record("orders", b"v", headers=Headers([("traceparent", PARENT)])))
        propagate.set_global_textmap(_Custom())
        yield
        propagate.set_global_textmap(before)

    def test_writes_its_fields(self) -> None:
        assert self.step.on_send(Record("orders", b"v")).headers == Headers([("x-custom", b"yes")])

    def test_does_not_double_its_fields(self) -> None:
        record = Record("orders", b"v", headers=Headers([("x-custom", b"mine")]))
        assert self.step.on_send(record) is record

    def test_the_callers_own_span_is_no_part_of_what_it_reads(self) -> None:
        assert not span_of(extract_context([("x-custom", b"1")])).is_valid

    def test_reads_its_fields(self) -> None:
        record = self.step.on_consume(Record("orders", b"v", headers=Headers([("x-custom", b"1")])))
        assert record.local is not None
        assert baggage.get_baggage("custom", record.local["trace"]) == "1"
