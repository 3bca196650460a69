"""Trace: the trace context in a record's headers, so that a trace goes through Kafka (W3C Trace Context).

On send the current context is written into the record's headers, unless the record has one already; on
consume the record's context is read into ``record.local["trace"]``. The fields are those of opentelemetry's
global propagator, by default ``traceparent``, ``tracestate`` and ``baggage``. No spans are made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from opentelemetry.context import Context as TraceContext
from opentelemetry.context import get_current
from opentelemetry.propagate import get_global_textmap

from headerware.core.headers import Headers, HeadersLike, Pair
from headerware.core.hooks import Interceptor, Place, Role

if TYPE_CHECKING:
    from collections.abc import Collection

    from opentelemetry.propagators.textmap import TextMapPropagator

    from headerware.core.context import Context
    from headerware.core.record import Record

_LOCAL_NAME: Final = "trace"
"""The key of a consumed record's context in ``record.local``."""

_PARENT_FIELDS: Final = frozenset({"traceparent", "tracestate"})
_LIST_FIELDS: Final = frozenset({"tracestate", "baggage"})
"""Fields that may be repeated: their values are one list, in order (W3C; RFC 9110, section 5.3)."""


class Trace(Interceptor, frozen=True, kw_only=True):
    """Carry the trace context in the record's headers.

    A record that already has a ``traceparent``, a ``tracestate`` or a field that would be written is left
    as it is: a context that the application put there is neither replaced nor doubled. Without a current
    context nothing is done. The headers stay on a consumed record.

    Safe for use by several threads at once.
    """

    type: ClassVar[str] = "trace"
    role: ClassVar[Role] = Role.OBSERVE
    place: ClassVar[Place | None] = Place.TRACE

    def open(self, context: Context) -> _TraceStep:  # noqa: ARG002 - a trace needs nothing of the session's
        """Return the hooks for one session."""
        return _TraceStep()


def extract_context(headers: HeadersLike) -> TraceContext:
    """Read the trace context in a record's headers.

    A value that is null, not UTF-8 or malformed counts as absent. If a field is there twice the last one
    counts, as with every header in Kafka; the values of ``tracestate`` and ``baggage`` are joined.

    Args:
        headers: headers in any of the forms that Headerware takes.

    Returns:
        A context with what the headers say and nothing of the caller's own context; empty if they say
        nothing.

    Raises:
        HeaderError: these are no headers.
    """
    propagator = get_global_textmap()
    return _extracted(Headers(headers), propagator, propagator.fields)


class _TraceStep:
    """The hooks of one session; it remembers the fields of the propagator that it saw last."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: tuple[TextMapPropagator | None, frozenset[str]] = (None, frozenset())

    def on_send(self, record: Record) -> Record:
        """Add the current context's fields."""
        current = get_current()
        if not current:
            return record
        carrier: dict[str, str] = {}
        get_global_textmap().inject(carrier, current)
        if not carrier:
            return record
        headers = record.headers
        for name, _ in headers:
            if name in carrier or name in _PARENT_FIELDS:
                return record
        added = [(name, text.encode()) for name, text in carrier.items()]
        return record.with_headers(Headers.trusted((*headers, *added)))

    def on_consume(self, record: Record) -> Record:
        """Read the record's context into its local state."""
        if not record.headers:
            return record
        propagator = get_global_textmap()
        known, fields = self._known
        if known is not propagator:
            fields = frozenset(propagator.fields)
            self._known = (propagator, fields)
        for name, _ in record.headers:
            if name in fields:
                break
        else:
            return record
        context = _extracted(record.headers, propagator, fields)
        return record.with_local(_LOCAL_NAME, context) if context else record


def _extracted(headers: Headers, propagator: TextMapPropagator, fields: Collection[str]) -> TraceContext:
    carrier: dict[str, str] = {}
    for pair in headers:
        if pair[0] in fields:
            _take(carrier, pair)
    return propagator.extract(carrier, TraceContext()) if carrier else TraceContext()


def _take(carrier: dict[str, str], pair: Pair) -> None:
    name, value = pair
    try:
        text = (value or b"").decode()
    except UnicodeDecodeError:
        return
    if name in _LIST_FIELDS and name in carrier:
        text = f"{carrier[name]},{text}"
    carrier[name] = text
