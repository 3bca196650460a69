"""Stand in for a web framework's OpenTelemetry instrumentation around a request."""

from contextlib import AbstractContextManager

from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, TraceFlags


def within_a_request() -> AbstractContextManager[Span]:
    """Make a span's context current, as if a request with a ``traceparent`` had arrived."""
    context = SpanContext(
        0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331, is_remote=False, trace_flags=TraceFlags(1)
    )
    return trace.use_span(NonRecordingSpan(context))
