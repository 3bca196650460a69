"""A batch as one span that links to the traces of its records (OpenTelemetry's messaging conventions)."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.propagate import inject
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_W3C: Final = TraceContextTextMapPropagator()


def is_traced() -> bool:
    """Return whether anyone may record spans here; without an SDK nobody does."""
    # To ask a tracer would take a span, which whoever exports spans would see.
    nobody = (trace.ProxyTracerProvider, trace.NoOpTracerProvider)
    return not isinstance(trace.get_tracer_provider(), nobody)


@contextmanager
def batch_span(
    topics: Iterable[str], traces: Iterable[str], attributes: Mapping[str, str | int]
) -> Iterator[dict[str, str]]:
    """Make a span for the processing of a batch, and give its context as headers have it.

    Args:
        topics: what was read; one topic names the span.
        traces: the ``traceparent`` of records, for links.
        attributes: the span's further attributes.
    """
    names = sorted(set(topics))
    destination = {"messaging.destination.name": names[0]} if len(names) == 1 else {}
    links = [trace.Link(context) for context in map(_context, traces) if context.is_valid]
    with trace.get_tracer("headerware").start_as_current_span(
        f"process {names[0]}" if len(names) == 1 else "process",
        kind=trace.SpanKind.CONSUMER,
        links=links,
        attributes={
            "messaging.system": "kafka",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            **destination,
            **attributes,
        },
    ):
        carrier: dict[str, str] = {}
        inject(carrier)
        yield carrier


def _context(traceparent: str) -> trace.SpanContext:
    context = _W3C.extract({"traceparent": traceparent}, Context())
    return trace.get_current_span(context).get_span_context()
