"""Trace: spans of what clients do with records, and the trace context in headers (W3C Trace Context).

On send, the context of the record's span is written into the record's headers, unless the record already has
a context. On consume, the record's context is read into ``record.local["trace"]``. The spans of the receive
and of the processing link to this context, and its baggage is current while the record is processed. The
headers are named by the fields of OpenTelemetry's global propagator, by default ``traceparent``,
``tracestate`` and ``baggage``.

Spans follow OpenTelemetry's conventions for messaging and for Kafka, version 1.44. Without an SDK of
OpenTelemetry no spans are made, and records carry the application's current context.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from contextvars import ContextVar
from importlib.metadata import PackageNotFoundError, version
from itertools import repeat
from threading import RLock
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, get_args
from urllib.parse import urlsplit

from opentelemetry import baggage, trace
from opentelemetry.context import Context as TraceContext
from opentelemetry.context import attach, create_key, detach, get_current, set_value
from opentelemetry.propagate import get_global_textmap
from opentelemetry.trace import (
    DEFAULT_TRACE_STATE,
    Link,
    NonRecordingSpan,
    NoOpTracer,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    get_current_span,
    set_span_in_context,
)

from headerware.core.batch import Batch, header_names
from headerware.core.bounded_cache import BoundedCache
from headerware.core.errors import ConfigError, HeaderwareError
from headerware.core.headers import EMPTY, Headers, HeadersLike, Pair
from headerware.core.hooks import Interceptor, Place, Role
from headerware.interceptors.telemetry import warn_without_sdk, why_idle

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from contextvars import Token
    from types import FrameType

    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace import Span, Tracer, TracerProvider
    from opentelemetry.util.types import AttributeValue

    from headerware.core.context import Context
    from headerware.core.record import Operation, Record, RecordMetadata

_SpanType = Literal["create", "send", "receive", "process", "settle"]
_Mode = Literal["propagate", "record", "batch"]
_CorrelateBy = Literal["link", "parent"]

_LOCAL_NAME: Final = "trace"
"""The key of a consumed record's context in ``record.local``."""
_SEND_SPAN: Final = "trace.sending"
"""The key of a sent record's :class:`_RecordSpan` or :class:`_BatchedRecord` in ``record.local``."""
_PROCESSING: Final = create_key("headerware-processing")
"""The key of the :class:`_Processing` that made a context."""
_ENTERED: Final = ContextVar("headerware_processing", default=False)
"""Set with each :class:`_Processing`, because ``detach`` logs an error where ``reset`` raises one."""

_SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"
_PARENT_FIELDS: Final = frozenset({"traceparent", "tracestate"})
_LIST_FIELDS: Final = frozenset({"tracestate", "baggage"})
"""Fields that may be repeated: their values are one list, in order (W3C; RFC 9110, section 5.3)."""
_W3C_FIELDS: Final = _PARENT_FIELDS | _LIST_FIELDS

_TOPICS_LIMIT: Final = 1_000
_PARTITIONS_LIMIT: Final = 10_000
_BATCH_RECORDS: Final = 500
_UNRECORDED_BATCH_MS: Final = 1_000
"""How long a batch that is not sampled takes records, because acknowledgements do not close it."""
_OTHER_INSTRUMENTATION: Final = "opentelemetry.instrumentation.confluent_kafka"
_SEARCHED_FRAMES: Final = 16
"""How far up the stack to look for that module. Its wrapper of ``poll`` is at most 9 frames above a hook."""
_UNKNOWN: Final = object()
_NO_VARIABLE: Final = object()
_CLIENT, _PRODUCER = SpanKind.CLIENT, SpanKind.PRODUCER  # looked up once
_FLAGS: Final = [f"-{flags:02x}" for flags in range(256)]  # formatted once
_new_headers: Final = tuple.__new__  # Headers.trusted, inlined (bench/tracing.py)
_log: Final = logging.getLogger("headerware")


class Trace(Interceptor, frozen=True, kw_only=True):
    """Make spans of records that are sent and consumed, and carry the trace context in their headers.

    A record that already has a context keeps it unchanged, and the record's send span links to that context.
    A consumed record keeps the headers. Without an SDK of OpenTelemetry, records only carry the application's
    current context, if there is one.

    Safe for use by several threads at once.

    Args:
        mode: ``record`` makes a send span for each record that the application sends; the span ends with the
            record's delivery. ``batch`` makes one send span for the records of a ``produce_many`` (at most
            500), or for the records of a topic that are in flight together. ``propagate`` makes no spans.
        spans: which spans are made: any of ``send``, ``receive`` (one for each ``poll`` or ``consume``),
            ``process``, ``settle`` (commits), and, in mode ``batch``, ``create`` (one for each record, whose
            context the record carries). The default is all without ``create``.
        correlate_by: ``link`` links a process span to the record's context. ``parent`` also makes that
            context the parent of a span that processes a single record.
        message_key: whether a key that is text becomes an attribute.
        message_size: whether the size of the value in bytes becomes an attribute.
        baggage_attributes: the names of entries of the baggage that become attributes.

    Raises:
        ConfigError: an option has an unknown value, or ``create`` is asked for without mode ``batch``.
    """

    type: ClassVar[str] = "trace"
    role: ClassVar[Role] = Role.OBSERVE
    place: ClassVar[Place | None] = Place.TRACE
    acknowledges_own: ClassVar[bool] = True

    mode: _Mode = "record"
    spans: tuple[_SpanType, ...] = ("send", "receive", "process", "settle")
    correlate_by: _CorrelateBy = "link"
    message_key: bool = True
    message_size: bool = False
    baggage_attributes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse unknown values, which code may pass, and create spans outside of mode ``batch``."""
        for path, found, known in (
            ("mode", (self.mode,), get_args(_Mode)),
            ("spans", self.spans, get_args(_SpanType)),
            ("correlate_by", (self.correlate_by,), get_args(_CorrelateBy)),
        ):
            for each in found:
                if each not in known:
                    raise ConfigError(f"expected one of {', '.join(known)}, found {each!r}", path=path)
        if "create" in self.spans and (self.mode != "batch" or "send" not in self.spans):
            raise ConfigError(
                "expected mode 'batch' and 'send' among the spans, because create spans belong to a batch's "
                "send span; in mode 'record', a record's send span is also its create span",
                path="spans",
            )

    @property
    def idle(self) -> str | None:
        """The reason why no spans are made; None if spans are made, or if the mode makes none."""
        return None if self.mode == "propagate" else why_idle()

    def open(self, context: Context) -> _TraceStep:
        """Return the hooks for one session."""
        if self.mode == "propagate":
            return _TraceStep()
        is_set_up = _tracer_of(trace.get_tracer_provider()) is not None
        warn_without_sdk(self.name or self.type, context, is_set_up=is_set_up, what="spans")
        if context.instrumented_by is not None:
            _warn_of_other_instrumentation()
            return _TraceStep()
        if "send" not in self.spans:
            return _SpanStep(self, context)
        return (_BatchStep if self.mode == "batch" else _RecordStep)(self, context)


def extract_context(headers: HeadersLike) -> TraceContext:
    """Read the trace context in a record's headers.

    A value that is null, not UTF-8 or malformed counts as empty. If a field is repeated, its last value
    counts, as with every header in Kafka; the values of ``tracestate`` and ``baggage`` are joined.

    Args:
        headers: headers in any of the forms that Headerware takes.

    Returns:
        A context with the contents of the headers and nothing of the caller's current context; it is empty
        if the headers carry no context.

    Raises:
        HeaderError: ``headers`` has none of these forms.
    """
    propagator = get_global_textmap()
    return _extracted(Headers(headers), propagator, propagator.fields)


# The context in headers


class _Fields(NamedTuple):
    """The fields of a propagator."""

    propagator: TextMapPropagator | None = None
    names: frozenset[str] = frozenset()
    context_names: frozenset[str] = _PARENT_FIELDS
    """A record that has at least one of these fields has a context."""
    is_w3c: bool = False
    """Whether all fields are W3C's, so that ``traceparent`` alone can hold a span's context."""


class _TraceStep:
    """The hooks of one session that makes no spans."""

    def __init__(self) -> None:
        self._fields = _Fields()

    def on_send(self, record: Record) -> Record:
        """Add the current context's fields."""
        made = self._propagated(record.headers, _ambient_context())
        return record if made is None else record.with_headers(*made)

    def on_send_batch(self, batch: Batch) -> Batch:
        """Add the current context's fields to each record."""
        return self._all_propagated(batch, _ambient_context())

    def on_consume(self, record: Record) -> Record:
        """Read the record's context into its local state."""
        made = self._read(record.headers, record.local)
        return record if made is None else record.with_parts(record.value, record.key, record.headers, *made)

    def on_consume_batch(self, batch: Batch) -> Batch:
        """Do as :meth:`on_consume` for each record."""
        if self._known_fields().names.isdisjoint(header_names(batch.headers)):
            return batch
        return batch.remake(("local",), self._read, batch.headers, batch.locals)

    def _read(self, headers: Headers, local: Mapping[str, Any] | None) -> tuple[dict[str, Any]] | None:
        """Return local state with the context of the headers; None if the headers have no context."""
        if not headers:
            return None
        known = self._known_fields()
        for name, _ in headers:
            if name in known.names:
                break
        else:
            return None
        context = _extracted(headers, get_global_textmap(), known.names)
        return (_merged_local(local, {_LOCAL_NAME: context}),) if context else None

    def processing(self, records: Sequence[Record]) -> _Processing | None:
        """Make the common baggage current, and a single record's context unless a span is current."""
        ambient = _ambient_context()
        context = _with_baggage_of(records, ambient)
        found = _context_of(records[0]) if len(records) == 1 else None
        if found and not get_current_span(ambient).get_span_context().is_valid:
            context = set_span_in_context(get_current_span(found), context)
        return None if context is ambient else _Processing(context, ambient)

    def _propagated(self, headers: Headers, current: TraceContext) -> tuple[Headers] | None:
        """Return headers with a context's fields; None if they have a context, or if no field is added."""
        if not current or self._has_context(headers):
            return None
        carrier: dict[str, str] = {}
        get_global_textmap().inject(carrier, current)
        made = _with_fields(headers, carrier)
        return None if made is headers else (made,)

    def _all_propagated(self, batch: Batch, current: TraceContext) -> Batch:
        if not current:
            return batch
        return batch.remake(("headers",), lambda headers: self._propagated(headers, current), batch.headers)

    def _has_context(self, headers: Headers) -> bool:
        fields = self._fields
        if fields.propagator is not get_global_textmap():
            fields = self._known_fields()
        names = fields.context_names
        for name, _ in headers:  # noqa: SIM110 - a generator is slower (bench/tracing.py)
            if name in names:
                return True
        return False

    def _known_fields(self) -> _Fields:
        propagator = get_global_textmap()
        if self._fields.propagator is not propagator:
            names = frozenset(propagator.fields)
            self._fields = _Fields(
                propagator,
                names,
                (names - {"baggage"}) | _PARENT_FIELDS,
                {"traceparent"} <= names <= _W3C_FIELDS,
            )
        return self._fields


def _with_fields(headers: Headers, carrier: Mapping[str, str]) -> Headers:
    """Return headers with the fields of a context added; a field that the headers have is not added."""
    there = headers.names() if headers else ()
    added = [(name, text.encode()) for name, text in carrier.items() if name not in there]
    return Headers.trusted((*headers, *added)) if added else headers


def _extracted(headers: Headers, propagator: TextMapPropagator, fields: Collection[str]) -> TraceContext:
    carrier: dict[str, str] = {}
    for pair in headers:
        if pair[0] in fields:
            _add_field(carrier, pair)
    return propagator.extract(carrier, TraceContext()) if carrier else TraceContext()


def _add_field(carrier: dict[str, str], pair: Pair) -> None:
    name, value = pair
    try:
        text = (value or b"").decode()
    except UnicodeDecodeError:
        text = ""
    if name in _LIST_FIELDS and name in carrier:
        text = ",".join(filter(None, (carrier[name], text)))
    carrier[name] = text


def _context_of(record: Record) -> TraceContext | None:
    """Return the context that a consumed record came with."""
    return None if record.local is None else record.local.get(_LOCAL_NAME)


def _with_baggage_of(records: Sequence[Record], context: TraceContext) -> TraceContext:
    """Return a context with the baggage that all of the records have in common."""
    found = _context_of(records[0])
    common = dict(baggage.get_all(found)) if found else {}
    for record in records[1:]:
        if not common:
            break
        other = baggage.get_all(_context_of(record) or TraceContext())
        common = {name: value for name, value in common.items() if other.get(name) == value}
    for name, value in common.items():
        context = baggage.set_baggage(name, value, context)
    return context


# The current context


class _Processing:
    """Make a context current while records are processed, and end their span."""

    __slots__ = ("_context", "_entered", "_is_over", "_span", "_token", "before")

    def __init__(self, context: TraceContext, before: TraceContext, span: Span | None = None) -> None:
        self.before: Final = before
        self._is_over = False
        self._context = set_value(_PROCESSING, self, context)
        self._span = span
        self._token: Token[TraceContext] | None = None
        self._entered: Token[bool] | None = None

    def __enter__(self) -> None:
        self._token = attach(self._context)
        self._entered = _ENTERED.set(True)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, frames: object) -> None:
        self._is_over = True
        # If another thread or task exits than entered, it has another context, or a copy of this one, which
        # refuses the tokens.
        if self._token is not None and self._entered is not None and get_current() is self._context:
            try:
                _ENTERED.reset(self._entered)
            except ValueError:
                attach(self.before)
            else:
                detach(self._token)
        if self._span is not None:
            if error is not None:
                _note_exception(self._span, error)
            self._span.end()

    def is_over_in(self, context: TraceContext) -> bool:
        """Return whether the processing is over, and the context still has its span."""
        return self._is_over and get_current_span(context) is get_current_span(self._context)


def _ambient_context() -> TraceContext:
    """Return the current context without the contexts of processing that is over.

    If processing began in this thread and ended in another, its context is still current in this thread.
    """
    current = get_current()
    return _without_finished(current) if current else current


def _without_finished(current: TraceContext) -> TraceContext:
    outer = current.get(_PROCESSING)
    while isinstance(outer, _Processing) and outer.is_over_in(current):
        current = outer.before
        outer = current.get(_PROCESSING)
    return current


# Spans


class _Convention(NamedTuple):
    """The names and the kind of a type of span by OpenTelemetry's conventions."""

    name: str
    """Kafka's name of the operation."""
    old_type: str
    """The type of the operation up to version 1.25, in ``messaging.operation``."""
    kind: SpanKind


_CONVENTIONS: Final[Mapping[str, _Convention]] = {
    "create": _Convention("create", "create", SpanKind.PRODUCER),
    "send": _Convention("send", "publish", SpanKind.PRODUCER),
    "receive": _Convention("poll", "receive", SpanKind.CLIENT),
    "process": _Convention("process", "process", SpanKind.CONSUMER),
    "settle": _Convention("commit", "settle", SpanKind.CLIENT),
}
"""The conventions, by type of span."""
_OPERATIONS: Final[Mapping[str, _SpanType]] = {"receive": "receive", "commit": "settle"}
"""The types of the spans that a client's operations have, by the operation's name."""


class _SpanTemplate(NamedTuple):
    """The name and the attributes that all spans of one type and one topic share."""

    name: str
    attributes: dict[str, AttributeValue]


class _SpanStep(_TraceStep):
    """The hooks of one session that makes spans, but no send spans."""

    on_operation: Callable[[Operation], None] | None = None

    def __init__(self, options: Trace, context: Context) -> None:
        super().__init__()
        self._options = options
        self._context = context
        opted = os.environ.get("OTEL_SEMCONV_STABILITY_OPT_IN", "").split(",")
        self._old_names = "messaging/dup" in (each.strip() for each in opted)
        self._provider: object = _UNKNOWN
        self._known_tracer: Tracer | None = None
        self.cluster_id: str | None = None
        # The keys: a span's type, and its topic; no topic is "".
        self._templates: BoundedCache[tuple[str, str], _SpanTemplate] = BoundedCache(
            _TOPICS_LIMIT, self._template
        )
        self._committed: BoundedCache[tuple[str, int], int] = BoundedCache(_PARTITIONS_LIMIT)
        self.has_client: Final = context.bootstrap_servers is not None
        """Whether there is a client, which acknowledges each record."""
        if not {"receive", "settle"}.isdisjoint(options.spans):
            self.on_operation = self._on_operation

    def is_idle(self) -> bool:
        """Return whether no SDK is configured."""
        return self._tracer() is None

    def processing(self, records: Sequence[Record]) -> _Processing | None:
        """Start a process span with links to the records' contexts; return a context manager that ends it."""
        tracer = self._tracer()
        ambient = _ambient_context()
        if tracer is None or "process" not in self._options.spans:
            return super().processing(records)
        if _other_instrumentation_made(ambient, SpanKind.CONSUMER) or _other_instrumentation_calls():
            _warn_of_other_instrumentation()
            return super().processing(records)
        contexts = _span_contexts(records)
        parent = ambient
        links = [Link(context) for context in contexts]
        if self._options.correlate_by == "parent" and len(records) == 1 and contexts:
            surrounding = get_current_span(ambient).get_span_context()
            if surrounding.is_valid:
                links.append(Link(surrounding))
            parent = set_span_in_context(get_current_span(_context_of(records[0])), ambient)
        span = self._start(tracer, "process", parent, records, links=links)
        return _Processing(set_span_in_context(span, _with_baggage_of(records, ambient)), ambient, span)

    def _on_operation(self, operation: Operation) -> None:
        """Make the span of a receive or a commit."""
        tracer = self._tracer()
        type_ = _OPERATIONS.get(operation.name)
        if tracer is None or type_ not in self._options.spans:
            return
        if _other_instrumentation_calls():
            _warn_of_other_instrumentation()
            return
        if type_ == "settle" and self._repeats(operation):
            return
        concerned = operation.records or operation.offsets
        links = [Link(context) for context in _span_contexts(operation.records)]
        span = self._start(
            tracer, type_, _ambient_context(), concerned, links=links, start_time=operation.began_ns
        )
        if operation.error is not None:
            _note_failure(span, operation.error)
        span.end(operation.ended_ns)

    def _repeats(self, commit: Operation) -> bool:
        """Return whether a commit only repeats offsets, as librdkafka's own does; remember new offsets.

        When a consumer closes, librdkafka commits once more, even if the application has committed. It does
        not say when its own commits begin, so such a commit has the same time for its begin and its end.
        """
        if commit.error is not None:
            return False
        offsets = {(each.topic, each.partition): each.offset for each in commit.offsets}
        if all(self._committed.get(partition) == offset for partition, offset in offsets.items()):
            return commit.began_ns == commit.ended_ns
        for partition, offset in offsets.items():
            self._committed[partition] = offset
        return False

    def _start(
        self, tracer: Tracer, type_: str, parent: TraceContext, concerned: Sequence[Any], **more: Any
    ) -> Span:
        """Start a span for consumed records or for committed offsets."""
        topics = {each.topic for each in concerned}
        name, attributes = self._templates[type_, topics.pop() if len(topics) == 1 else ""]
        span = tracer.start_span(name, parent, _CONVENTIONS[type_].kind, attributes, **more)
        if span.is_recording():
            late = {} if "messaging.kafka.cluster.id" in attributes else self.late_attributes()
            span.set_attributes(self._attributes_of(type_, concerned) | late)
        return span

    def _attributes_of(self, type_: str, concerned: Sequence[Any]) -> dict[str, AttributeValue]:
        attributes: dict[str, AttributeValue] = {}
        partitions = {(each.topic, each.partition) for each in concerned}
        if len(partitions) == 1:
            _, partition = partitions.pop()
            attributes |= self.position(partition, None)
        if type_ == "settle":
            return attributes
        if len(concerned) != 1:
            attributes["messaging.batch.message_count"] = len(concerned)
            return attributes
        record = concerned[0]
        context = _context_of(record)
        carried = baggage.get_all(context) if context else {}
        return attributes | self.position(None, record.offset) | self._message(record, carried)

    def _message(self, record: Record, carried: Mapping[str, object]) -> dict[str, AttributeValue]:
        """Return the attributes of a single record, except its position."""
        attributes: dict[str, AttributeValue] = {}
        if self._options.message_key and record.key is not None and (key := _key_text(record.key)):
            attributes["messaging.kafka.message.key"] = key
        if record.value is None:
            attributes["messaging.kafka.message.tombstone"] = True
        elif self._options.message_size and isinstance(record.value, bytes | str):
            value = record.value.encode() if isinstance(record.value, str) else record.value
            attributes["messaging.message.body.size"] = len(value)
        for name in self._options.baggage_attributes:
            if name in carried:
                attributes[name] = str(carried[name])
        return attributes

    def position(self, partition: int | None, offset: int | None) -> dict[str, AttributeValue]:
        """Return the attributes of a position, without the parts that are unknown."""
        attributes: dict[str, AttributeValue] = {}
        if partition is not None and partition >= 0:
            attributes["messaging.destination.partition.id"] = str(partition)
            if self._old_names:
                attributes["messaging.kafka.destination.partition"] = partition
        if offset is not None and offset >= 0:
            attributes["messaging.kafka.offset"] = offset
            if self._old_names:
                attributes["messaging.kafka.message.offset"] = offset
        return attributes

    def _template(self, key: tuple[str, str]) -> _SpanTemplate:
        type_, topic = key
        name, old_type, _ = _CONVENTIONS[type_]
        attributes: dict[str, AttributeValue] = {
            "messaging.system": "kafka",
            "messaging.operation.name": name,
            "messaging.operation.type": type_,
        }
        client_id, group_id = self._context.client_id, self._context.group_id
        host, port = _first_server(self._context.bootstrap_servers)
        given: dict[str, AttributeValue | None] = {
            "messaging.destination.name": topic,
            "messaging.client.id": client_id,
            "messaging.consumer.group.name": group_id,
            "messaging.kafka.cluster.id": self.cluster_id,
            "server.address": host,
            "server.port": port,
        }
        if self._old_names:
            given |= {
                "messaging.operation": old_type,
                "messaging.client_id": client_id,
                "messaging.kafka.consumer.group": group_id,
            }
        attributes |= {each: value for each, value in given.items() if value}
        return _SpanTemplate(f"{name} {topic}" if topic else name, attributes)

    def late_attributes(self) -> dict[str, AttributeValue]:
        """Return the cluster's id as an attribute, for a span that began before the id was known."""
        if self.cluster_id is None and (found := self._context.cluster_id()):
            self.cluster_id = found
            self._templates.clear()  # the spans that begin from now on have it
        return {} if self.cluster_id is None else {"messaging.kafka.cluster.id": self.cluster_id}

    def _tracer(self) -> Tracer | None:
        """Return the tracer of the provider that is configured now; None if there is no SDK.

        An application may configure its SDK after it has made its client. Without an SDK, each call of the
        API reads the environment, which is slow (bench/tracing.py, without an SDK). So this function reads
        the API's variable; if a release of the API has no such variable, the API is called each time.
        """
        provider = getattr(trace, "_TRACER_PROVIDER", _NO_VARIABLE)
        if provider is not self._provider:
            self._provider = _UNKNOWN if provider is _NO_VARIABLE else provider
            tracer = _tracer_of(trace.get_tracer_provider())
            self._known_tracer = _UNSAMPLED if tracer is not None and self._context.dry_run else tracer
        return self._known_tracer


class _SendStep(_SpanStep):
    """What the steps for spans of records and for spans of batches have in common."""

    def on_acknowledgement(
        self, record: Record, metadata: RecordMetadata | None, error: BaseException | None
    ) -> None:
        """End the record's span, or count the record for the span of its batch."""
        local = record.local
        if local is not None and (span := local.get(_SEND_SPAN)) is not None:
            span.acknowledge(metadata, error)

    def _is_left_to_others(self, current: TraceContext) -> bool:
        """Return whether other instrumentation has made a send span, and warn if it has."""
        if not _other_instrumentation_made(current, SpanKind.PRODUCER):
            return False
        _warn_of_other_instrumentation()
        return True

    def _injected(self, headers: Headers, span: Span, current: TraceContext) -> Headers:
        """Return headers with the fields of a span's context and of the current baggage.

        The caller has called :meth:`_has_context`, so the fields of the current propagator are known.
        """
        trace_id, span_id, _, flags, state, is_valid = span.get_span_context()
        # The common case, without the propagator's carrier (bench/tracing.py).
        plain = self._fields.is_w3c and (state is DEFAULT_TRACE_STATE or not state)
        if plain and is_valid and not (current and baggage.get_all(current)):
            ids = (trace_id << 64 | span_id).to_bytes(24).hex("-", -16)
            return _new_headers(Headers, (*headers, ("traceparent", f"00-{ids}{_FLAGS[flags]}".encode())))
        carrier: dict[str, str] = {}
        get_global_textmap().inject(carrier, set_span_in_context(span, current))
        return _with_fields(headers, carrier)

    def _link(self, span: Span, headers: Headers) -> None:
        """Link a span to the context that a record came with."""
        found = get_current_span(
            _extracted(headers, get_global_textmap(), self._known_fields().names)
        ).get_span_context()
        if found.is_valid:
            span.add_link(found)


class _RecordStep(_SendStep):
    """The hooks of one session that makes a send span for each record."""

    def on_send(self, record: Record) -> Record:
        """Start the record's span, and write its context into the headers."""
        # These are `_ambient_context` and `_tracer`, inlined (bench/tracing.py).
        current = get_current()
        if current:
            current = _without_finished(current)
        known = getattr(trace, "_TRACER_PROVIDER", _NO_VARIABLE) is self._provider
        tracer = self._known_tracer if known else self._tracer()
        if tracer is None or (current and self._is_left_to_others(current)):
            made = self._propagated(record.headers, current)
            return record if made is None else record.with_headers(*made)
        name, attributes = self._templates["send", record.topic]
        headers = record.headers
        if self._has_context(headers):
            span = tracer.start_span(name, current, _CLIENT, attributes)
            if not span.is_recording():
                return record
            self._link(span, headers)
        else:
            span = tracer.start_span(name, current, _PRODUCER, attributes)
            headers = self._injected(headers, span, current)
            if not span.is_recording():
                return record.with_headers(headers)
        for each, value in self._message(record, baggage.get_all(current) if current else {}).items():
            span.set_attribute(each, value)  # faster for so few than set_attributes (bench/tracing.py)
        return _with_send_span(record, headers, _RecordSpan(self, span))

    def on_send_batch(self, batch: Batch) -> Batch:
        """If spans are made, leave each record to :meth:`on_send`, which starts the record's span."""
        return self._all_propagated(batch, _ambient_context()) if self._tracer() is None else batch.leave()


class _BatchStep(_SendStep):
    """The hooks of one session that makes a send span for each batch."""

    def __init__(self, options: Trace, context: Context) -> None:
        super().__init__(options, context)
        self._creates = "create" in options.spans
        # The keys: a topic, and whether the records have contexts of their own.
        self._batches: BoundedCache[tuple[str, bool], _BatchSpan] = BoundedCache(_TOPICS_LIMIT)

    def on_send(self, record: Record) -> Record:
        """Add a record to the batch that is in flight, or begin another batch."""
        tracer = self._tracer()
        current = _ambient_context()
        if tracer is None or (current and self._is_left_to_others(current)):
            made = self._propagated(record.headers, current)
            return record if made is None else record.with_headers(*made)
        has_context = self._has_context(record.headers)
        key = record.topic, has_context
        batch = self._batches.get(key)
        if batch is None or batch.current is not current or not batch.try_add(self._context.now_ms):
            batch = self._begin(tracer, record.topic, current, 1, has_context=has_context)
            self._batches[key] = batch
        headers = self._headers_of(tracer, batch, record.headers, record, has_context=has_context)
        if batch.is_recorded:
            return _with_send_span(record, headers, _BatchedRecord(batch))
        return record if headers is record.headers else record.with_headers(headers)

    def on_send_batch(self, batch: Batch) -> Batch:
        """Make one span for all records."""
        tracer = self._tracer()
        current = _ambient_context()
        if tracer is None or (current and self._is_left_to_others(current)):
            return self._all_propagated(batch, current)
        have_context = list(map(self._has_context, batch.headers))
        span = self._begin(tracer, batch.topic, current, len(batch), has_context=all(have_context))
        records: Iterable[Record | None] = batch if self._creates else repeat(None, len(batch))
        headers = [
            self._headers_of(tracer, span, own, record, has_context=has_context)
            for own, record, has_context in zip(batch.headers, records, have_context, strict=True)
        ]
        if not span.is_recorded:
            return batch.replace(headers=headers)
        locals_ = [_merged_local(own, {_SEND_SPAN: _BatchedRecord(span)}) for own in batch.locals]
        return batch.replace(headers=headers, locals=locals_)

    def flush(self) -> None:
        """Add no more records to the batches in flight; the next record begins another batch."""
        self._batches.clear()

    def _begin(
        self, tracer: Tracer, topic: str, current: TraceContext, count: int, *, has_context: bool
    ) -> _BatchSpan:
        name, attributes = self._templates["send", topic]
        kind = SpanKind.CLIENT if has_context or self._creates else SpanKind.PRODUCER
        span = tracer.start_span(name, current, kind, attributes)
        until_ms = None if span.is_recording() else self._context.now_ms() + _UNRECORDED_BATCH_MS
        return _BatchSpan(self, span, current, self._injected(EMPTY, span, current), count, until_ms)

    def _headers_of(
        self, tracer: Tracer, batch: _BatchSpan, headers: Headers, record: Record | None, *, has_context: bool
    ) -> Headers:
        """Return a record's headers with the fields of its create span, or else of the batch's span."""
        span = batch.span
        if has_context:
            if span.is_recording():
                self._link(span, headers)
            return headers
        if self._creates and record is not None:
            created = self._create(tracer, record, batch.current)
            if span.is_recording():
                span.add_link(created.get_span_context())
            return self._injected(headers, created, batch.current)
        if not headers:
            return batch.fields
        if batch.has_baggage and "baggage" in headers:
            others = (pair for pair in batch.fields if pair[0] != "baggage")
            return Headers.trusted((*headers, *others))
        return _new_headers(Headers, (*headers, *batch.fields))

    def _create(self, tracer: Tracer, record: Record, current: TraceContext) -> Span:
        name, attributes = self._templates["create", record.topic]
        span = tracer.start_span(name, current, SpanKind.PRODUCER, attributes)
        if span.is_recording():
            span.set_attributes(self._message(record, baggage.get_all(current) if current else {}))
        span.end()
        return span


class _RecordSpan:
    """The send span of a record that is not acknowledged yet.

    Only the record refers to this object. A record that is dropped is never acknowledged; its span ends when
    the record is freed.
    """

    __slots__ = ("_knew_cluster", "_span", "_step")

    def __init__(self, step: _SpanStep, span: Span) -> None:
        self._step = step
        self._knew_cluster = step.cluster_id is not None
        self._span: Span | None = span

    def acknowledge(self, metadata: RecordMetadata | None, error: BaseException | None) -> None:
        """End the span with the record's position or error."""
        span, self._span = self._span, None
        if span is None:
            return
        step = self._step
        attributes = {} if metadata is None else step.position(metadata.partition, metadata.offset)
        if not self._knew_cluster:
            attributes |= step.late_attributes()
        for name, value in attributes.items():  # one by one, as in on_send
            span.set_attribute(name, value)
        if error is not None:
            _note_failure(span, error)
        span.end()

    def __del__(self) -> None:
        span = self._span
        if span is not None:
            if self._step.has_client:
                _note_unacknowledged(span, "the record was dropped, or its client closed before it was sent")
            span.end()


class _BatchSpan:
    """The send span of records that are in flight together; it ends with the last of them."""

    __slots__ = (
        "_count",
        "_dropped",
        "_error",
        "_failed",
        "_is_over",
        "_left",
        "_lock",
        "_step",
        "_until_ms",
        "current",
        "fields",
        "has_baggage",
        "is_recorded",
        "span",
    )

    def __init__(
        self,
        step: _SpanStep,
        span: Span,
        current: TraceContext,
        fields: Headers,
        count: int,
        until_ms: int | None,
    ) -> None:
        self._step = step
        self.span: Final = span
        self.current = current
        self.fields: Final = fields
        self.has_baggage: Final = "baggage" in fields.names()
        self.is_recorded: Final = until_ms is None
        self._until_ms: Final = until_ms
        """The time until which records may be added; None if the span is recorded."""
        self._count = self._left = count
        self._failed = self._dropped = 0
        self._error: BaseException | None = None
        self._is_over = False
        self._lock = RLock()  # the collector may free a record while this thread counts another one

    def try_add(self, now_ms: Callable[[], int]) -> bool:
        """Add a record unless the batch is over or full; return whether it was added."""
        with self._lock:
            is_over = self._is_over if self._until_ms is None else now_ms() >= self._until_ms
            if is_over or self._count >= _BATCH_RECORDS:
                return False
            self._count += 1
            self._left += 1
        return True

    def count_acknowledged(self, error: BaseException | None) -> None:
        """Count an acknowledged record; end the span after the last one."""
        with self._lock:
            if error is not None:
                self._failed += 1
                self._error = self._error or error
            is_last = self._count_off()
        if is_last:
            self._end()

    def count_dropped(self) -> None:
        """Count a record that is never acknowledged; end the span after the last one."""
        with self._lock:
            self._dropped += 1
            is_last = self._count_off()
        if is_last:
            self._end()

    def _count_off(self) -> bool:
        """Return whether the batch ends now; its span ends without the lock, because exporters may wait."""
        self._left -= 1
        ends = not self._left and not self._is_over
        self._is_over = self._is_over or ends
        return ends

    def _end(self) -> None:
        span = self.span
        span.set_attributes({"messaging.batch.message_count": self._count, **self._step.late_attributes()})
        if self._error is not None:
            _note_failure(span, self._error, f"{self._failed} of {self._count} records were not delivered")
        elif self._dropped and self._step.has_client:
            _note_unacknowledged(span, f"{self._dropped} of {self._count} records were dropped")
        span.end()
        self.current = TraceContext()  # the step keeps this batch, but not the application's context


class _BatchedRecord:
    """A record that is in flight in a batch.

    Only the record refers to this object, so that it counts as dropped when the record is freed.
    """

    __slots__ = ("_batch",)

    def __init__(self, batch: _BatchSpan) -> None:
        self._batch: _BatchSpan | None = batch

    def acknowledge(self, metadata: RecordMetadata | None, error: BaseException | None) -> None:  # noqa: ARG002 - each record has a position of its own
        """Count the record as acknowledged."""
        batch, self._batch = self._batch, None
        if batch is not None:
            batch.count_acknowledged(error)

    def __del__(self) -> None:
        if self._batch is not None:
            self._batch.count_dropped()


def _with_send_span(record: Record, headers: Headers, span: _RecordSpan | _BatchedRecord) -> Record:
    return record.with_parts(
        record.value, record.key, headers, _merged_local(record.local, {_SEND_SPAN: span})
    )


def _merged_local(before: Mapping[str, Any] | None, local: dict[str, Any]) -> dict[str, Any]:
    return local if before is None else {**before, **local}


def _span_contexts(records: Iterable[Record]) -> list[SpanContext]:
    """Return the valid contexts that records came with."""
    found = (get_current_span(context).get_span_context() for context in map(_context_of, records) if context)
    return [context for context in found if context.is_valid]


def _tracer_of(provider: TracerProvider) -> Tracer | None:
    if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
        return None
    try:
        release = version("headerware")
    except PackageNotFoundError:  # shipped without its metadata
        release = None
    tracer = provider.get_tracer("headerware", release, _SCHEMA_URL)
    return None if isinstance(tracer, NoOpTracer) else tracer


class _UnsampledTracer(NoOpTracer):
    """Make spans that are never exported, for dry runs; their contexts are as long as others."""

    def start_span(self, *_: Any, **__: Any) -> Span:
        """Return a span of a trace of its own, which is not sampled."""
        return NonRecordingSpan(
            SpanContext(int.from_bytes(os.urandom(16)), int.from_bytes(os.urandom(8)), is_remote=False)
        )


_UNSAMPLED: Final = _UnsampledTracer()


def _first_server(servers: str | None) -> tuple[str | None, int | None]:
    """Return the host and the port of the first of several addresses."""
    first = (servers or "").partition(",")[0].strip()
    try:
        parts = urlsplit(f"//{first.rpartition('://')[2]}")
        host, port = parts.hostname, parts.port
    except ValueError:
        return None, None
    return host, port


def _key_text(key: object) -> str | None:
    """Return a key that is text; None if it is anything else."""
    if isinstance(key, bytes):
        try:
            key = key.decode()
        except UnicodeDecodeError:
            return None
    return key if isinstance(key, str) and key.isprintable() else None


# Failures. Spans quote only messages of librdkafka and of Headerware: other messages may quote a payload.


def _note_failure(span: Span, error: BaseException, description: str | None = None) -> None:
    code = error.args[0] if error.args else None
    name = getattr(code, "name", None)  # only a KafkaError has a name()
    kind = str(name()) if callable(name) else type(error).__qualname__
    if description is None and callable(name):
        description = str(code.str())  # type: ignore[union-attr]  # a KafkaError's
    elif description is None and isinstance(error, HeaderwareError):
        description = str(error)
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR, description))


def _note_unacknowledged(span: Span, description: str) -> None:
    span.set_attribute("error.type", "unacknowledged")
    span.set_status(Status(StatusCode.ERROR, description))


def _note_exception(span: Span, error: BaseException) -> None:
    _note_failure(span, error)
    if span.is_recording():
        frames = "".join(traceback.format_tb(error.__traceback__))
        kind = type(error)
        named = (
            kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        )
        span.add_event("exception", {"exception.type": named, "exception.stacktrace": frames})


# Other instrumentation of the same client


def _other_instrumentation_made(context: TraceContext, kind: SpanKind) -> bool:
    """Return whether a context's span is of this kind, and made by other instrumentation of the clients."""
    span = get_current_span(context)
    scope = getattr(span, "instrumentation_scope", None)  # only spans of the SDK have it
    return scope is not None and scope.name == _OTHER_INSTRUMENTATION and getattr(span, "kind", None) is kind


def _other_instrumentation_calls() -> bool:
    """Return whether other instrumentation has called the client's method that is under way."""
    if _OTHER_INSTRUMENTATION not in sys.modules:
        return False
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - as inspect does
    for _ in range(_SEARCHED_FRAMES):
        if frame is None:
            return False
        if frame.f_globals.get("__name__") == _OTHER_INSTRUMENTATION:
            return True
        frame = frame.f_back
    return False


_warned: Final[set[str]] = set()


def _warn_of_other_instrumentation() -> None:
    """Warn that trace makes no spans; once in a process."""
    if _OTHER_INSTRUMENTATION not in _warned:
        _warned.add(_OTHER_INSTRUMENTATION)
        _log.warning(
            "trace: %s makes spans of the same clients, so trace makes none and only propagates contexts; "
            "remove trace from the chain (or set its mode to 'propagate'), or do not instrument the clients",
            _OTHER_INSTRUMENTATION,
        )
