"""Metrics: what a client, its chain and librdkafka do, through OpenTelemetry's metrics API (docs/metrics.md).

The durations of OpenTelemetry's conventions for messaging are recorded as they happen; under high load, only
a sample of them is. All other metrics are sums, which this module, the session or librdkafka keeps, and which
an exporter reads: the SDK takes ten microseconds for each recorded value, more than the rest of a chain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from functools import partial
from math import inf
from random import Random
from threading import Lock
from time import perf_counter_ns
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, NamedTuple
from weakref import WeakKeyDictionary, WeakSet

import msgspec
from opentelemetry import metrics
from opentelemetry.metrics import Meter, Observation, get_meter_provider

from headerware.core.batch import Batch
from headerware.core.bounded_cache import BoundedCache
from headerware.core.errors import cause_of
from headerware.core.hooks import FanOut, Interceptor, Place, Role
from headerware.core.record import Record, bytes_of
from headerware.interceptors.telemetry import warn_without_sdk, why_idle

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from opentelemetry.metrics import CallbackOptions, MeterProvider

    from headerware.core.context import Context
    from headerware.core.record import Operation, RecordMetadata
    from headerware.core.services import Direction

_LOCAL_NAME: Final = "metrics"
"""The key of the time of sending in ``record.local``."""
_SENT: Final = "messaging.client.sent.messages"
_CONSUMED: Final = "messaging.client.consumed.messages"
_API_STATE: Final = getattr(metrics, "_internal", None)
_UNKNOWN: Final = object()
_NO_VARIABLE: Final = object()
_OTHER: Final = "_OTHER"
"""The name for all topics over the limit, as in OpenTelemetry's conventions for other attributes."""
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
_NS: Final = 1e-9
_SECOND_NS: Final = 1_000_000_000
_US: Final = 1e-6
_API: Final = "opentelemetry.metrics"
_SETTLING: Final = frozenset({"commit", "commit_transaction", "abort_transaction"})
_INTERCEPTOR: Final = "headerware.interceptor.name"
_DIRECTION: Final = "headerware.direction"
_STEP_OUTCOMES: Final = frozenset({"sent", "consumed", "dropped", "failed", "skipped", "dead_lettered"})
"""The counters that every interceptor has; its other counters are events of its own."""

Attributes = tuple[tuple[str, str], ...]
Stats = Callable[[], Mapping[str, Mapping[str, int]]]
Series = dict[Attributes, float]
"""The values of one instrument, by attributes."""


class Metrics(Interceptor, frozen=True, kw_only=True):
    """Measure sending, receiving and processing, each interceptor of the chain, and librdkafka.

    Metrics go to the meter provider of OpenTelemetry that the application has set. Without a provider nothing
    is measured. Set the provider before the client's first record: an interceptor is measured only on topics
    that the client uses for the first time after that.

    Args:
        librdkafka_interval_s: how often librdkafka reports its statistics, in seconds, if the client's
            configuration does not set ``statistics.interval.ms``; None leaves them off.
        max_topics: how many topics have metrics of their own; the rest share ``_OTHER``.
        max_durations_per_s: about how many durations each histogram records in a second; if there are more,
            it records a random sample. None records all durations. Counters always count everything, and
            processing that failed is always recorded.

    Safe for use by several threads at once.
    """

    type: ClassVar[str] = "metrics"
    role: ClassVar[Role] = Role.OBSERVE
    place: ClassVar[Place | None] = Place.METRICS
    acknowledges_own: ClassVar[bool] = True

    librdkafka_interval_s: Annotated[int, msgspec.Meta(ge=1, le=86_400)] | None = 15
    max_topics: Annotated[int, msgspec.Meta(ge=1)] = 1_000
    max_durations_per_s: Annotated[int, msgspec.Meta(ge=1)] | None = 1_000

    @property
    def idle(self) -> str | None:
        """The reason why nothing is measured, or None if an SDK is installed."""
        return why_idle()

    def open(self, context: Context) -> _MetricsStep:
        """Return the hooks for one session."""
        is_set_up = _instruments_of(get_meter_provider()) is not None
        warn_without_sdk(self.name or self.type, context, is_set_up=is_set_up, what="metrics")
        return _MetricsStep(self, context)


# librdkafka's statistics: the part of its STATISTICS.md that is exported


class _Window(msgspec.Struct, frozen=True):
    """Times in a window, in microseconds."""

    avg: int = 0
    p99: int = 0
    cnt: int = 0


class _Broker(msgspec.Struct, frozen=True):
    nodeid: int = -1
    state: str = ""
    rtt: _Window = _Window()
    txerrs: int = 0
    rxerrs: int = 0
    req_timeouts: int = 0
    disconnects: int = 0


class _Partition(msgspec.Struct, frozen=True):
    consumer_lag: int = -1


class _Topic(msgspec.Struct, frozen=True):
    topic: str = ""
    partitions: dict[str, _Partition] = {}


class _Group(msgspec.Struct, frozen=True):
    rebalance_cnt: int = 0
    assignment_size: int = 0


class _Transactions(msgspec.Struct, frozen=True):
    txn_state: str = ""


class _Statistics(msgspec.Struct, frozen=True):
    msg_cnt: int = 0
    msg_size: int = 0
    tx: int = 0
    tx_bytes: int = 0
    rx: int = 0
    rx_bytes: int = 0
    txmsgs: int = 0
    txmsg_bytes: int = 0
    rxmsgs: int = 0
    rxmsg_bytes: int = 0
    brokers: dict[str, _Broker] = {}
    topics: dict[str, _Topic] = {}
    cgrp: _Group | None = None
    eos: _Transactions | None = None


_decode_statistics = msgspec.json.Decoder(_Statistics).decode
Found = tuple[dict[str, str], float]
"""The further attributes of a value, and the value."""


def _field(name: str, statistics: _Statistics) -> Iterable[Found]:
    yield {}, getattr(statistics, name)


def _of_brokers(
    value: Callable[[_Broker], float], statistics: _Statistics, *, measured: bool = False
) -> Iterable[Found]:
    for broker in statistics.brokers.values():
        if broker.nodeid >= 0 and (broker.rtt.cnt or not measured):
            yield {"librdkafka.broker.id": str(broker.nodeid)}, value(broker)


def _lags(statistics: _Statistics) -> Iterable[Found]:
    for topic in statistics.topics.values():
        for number, partition in topic.partitions.items():
            if partition.consumer_lag >= 0:
                found = {
                    "messaging.destination.name": topic.topic,
                    "messaging.destination.partition.id": number,
                }
                yield found, partition.consumer_lag


def _of_group(name: str, statistics: _Statistics) -> Iterable[Found]:
    if statistics.cgrp is not None:
        yield {}, getattr(statistics.cgrp, name)


def _transaction_state(statistics: _Statistics) -> Iterable[Found]:
    if statistics.eos is not None and statistics.eos.txn_state:
        yield {"librdkafka.transaction.state": statistics.eos.txn_state}, 1


class _Observed(NamedTuple):
    """A metric that is read when an exporter asks."""

    kind: Literal["counter", "gauge"]
    unit: str
    description: str
    read: Callable[[_Statistics], Iterable[Found]] | None = None
    """Returns the metric's values in librdkafka's statistics; None if the values come from the session."""
    together: Callable[[float, float], float] = float.__add__
    """Combines the values of two clients that have the same attributes."""


def _longest(one: float, other: float) -> float:
    return max(one, other)


_counts: Final = partial(_Observed, "counter")
_gauges: Final = partial(_Observed, "gauge")
OBSERVED: Final[Mapping[str, _Observed]] = {
    _SENT: _counts("{message}", "Messages that a producer tried to send."),
    _CONSUMED: _counts("{message}", "Messages given to the application."),
    "headerware.interceptor.records": _counts("{record}", "Records that an interceptor took in."),
    "headerware.interceptor.outcomes": _counts("{record}", "Records that ended or failed at an interceptor."),
    "headerware.interceptor.time": _counts("s", "Time spent in an interceptor's hooks."),
    "headerware.interceptor.input": _counts("By", "Bytes of the records that an interceptor took in."),
    "headerware.interceptor.output": _counts("By", "Bytes of the records that an interceptor gave on."),
    "headerware.interceptor.events": _counts("{event}", "An interceptor's own counters."),
    "headerware.interceptor.pending": _gauges("{item}", "What an interceptor holds now."),
    "librdkafka.queue.messages": _gauges(
        "{message}", "Messages in the producer's queue.", partial(_field, "msg_cnt")
    ),
    "librdkafka.queue.size": _gauges("By", "Bytes in the producer's queue.", partial(_field, "msg_size")),
    "librdkafka.requests": _counts("{request}", "Requests sent to brokers.", partial(_field, "tx")),
    "librdkafka.requests.size": _counts("By", "Bytes sent to brokers.", partial(_field, "tx_bytes")),
    "librdkafka.responses": _counts("{response}", "Responses of brokers.", partial(_field, "rx")),
    "librdkafka.responses.size": _counts("By", "Bytes received from brokers.", partial(_field, "rx_bytes")),
    "librdkafka.sent.messages": _counts(
        "{message}", "Messages produced, with retries.", partial(_field, "txmsgs")
    ),
    "librdkafka.sent.size": _counts("By", "Bytes of messages produced.", partial(_field, "txmsg_bytes")),
    "librdkafka.fetched.messages": _counts(
        "{message}", "Messages fetched from brokers.", partial(_field, "rxmsgs")
    ),
    "librdkafka.fetched.size": _counts("By", "Bytes of messages fetched.", partial(_field, "rxmsg_bytes")),
    "librdkafka.broker.up": _gauges(
        "{connection}",
        "Connections that are up.",
        partial(_of_brokers, lambda broker: broker.state == "UP"),
    ),
    "librdkafka.broker.rtt.mean": _gauges(
        "s",
        "Mean round trip time, of the last window.",
        partial(_of_brokers, lambda broker: broker.rtt.avg * _US, measured=True),
        _longest,
    ),
    "librdkafka.broker.rtt.p99": _gauges(
        "s",
        "99th percentile of the round trip time, of the last window.",
        partial(_of_brokers, lambda broker: broker.rtt.p99 * _US, measured=True),
        _longest,
    ),
    "librdkafka.broker.errors": _counts(
        "{error}",
        "Errors of sending to a broker and of receiving from it.",
        partial(_of_brokers, lambda broker: broker.txerrs + broker.rxerrs),
    ),
    "librdkafka.broker.timeouts": _counts(
        "{request}", "Requests that timed out.", partial(_of_brokers, lambda broker: broker.req_timeouts)
    ),
    "librdkafka.broker.disconnects": _counts(
        "{disconnect}", "Lost connections.", partial(_of_brokers, lambda broker: broker.disconnects)
    ),
    "librdkafka.consumer.lag": _gauges(
        "{message}", "Messages between the consumer and the end of a partition.", _lags
    ),
    "librdkafka.consumer.rebalances": _counts(
        "{rebalance}", "Rebalances of the group.", partial(_of_group, "rebalance_cnt")
    ),
    "librdkafka.consumer.partitions": _gauges(
        "{partition}", "Partitions that are assigned.", partial(_of_group, "assignment_size")
    ),
    "librdkafka.transaction.state": _gauges(
        "{producer}", "Producers by the state of their transaction.", _transaction_state
    ),
}
"""All metrics that are read when an exporter asks, by name."""


class _Client:
    """The values of a client, over all its chains: its steps' counters, and its statistics."""

    def __init__(self, stats: Stats, labels: Mapping[str, str]) -> None:
        self._stats = stats
        self._labels = labels
        self.own: set[str] = set()
        """The names of the steps that measure the client; only their failures are reported."""
        self.statistics: _Statistics | None = None
        self.counted: dict[str, Series] = {}
        """The values that were counted before a chain without metrics replaced a chain with metrics."""

    def series(self, name: str) -> Series:
        """Return the values of a metric, less the values that were counted already."""
        read, prefix = OBSERVED[name].read, "headerware.interceptor."
        found = (
            self._of_interceptors(name.removeprefix(prefix))
            if read is None
            else (() if self.statistics is None else read(self.statistics))
        )
        counted = self.counted.get(name, {})
        values: Series = {}
        for attributes, value in found:
            key = tuple(sorted({**self._labels, **attributes}.items()))
            values[key] = value - counted.get(key, 0)
        return values

    def _of_interceptors(self, what: str) -> Iterator[Found]:
        for step, counts in self._stats().items():
            for count, value in counts.items():
                if step in self.own and count != "failed":
                    continue
                if what == "records" and count in {"sent", "consumed"}:
                    direction = "send" if count == "sent" else "consume"
                    yield {_INTERCEPTOR: step, _DIRECTION: direction}, value
                elif what == "outcomes" and count in _STEP_OUTCOMES - {"sent", "consumed"}:
                    yield {_INTERCEPTOR: step, "headerware.outcome": count}, value
                elif count not in _STEP_OUTCOMES and what == (
                    "pending" if count.startswith("pending") else "events"
                ):
                    yield {_INTERCEPTOR: step, "headerware.event": count}, value


class _Instruments:
    """The instruments of one meter provider, and the sessions whose values its exporters read."""

    def __init__(self, meter: Meter) -> None:
        self.operation: Final = _histogram(
            meter, "messaging.client.operation.duration", "Duration of sending, receiving and committing."
        )
        self.process: Final = _histogram(
            meter, "messaging.process.duration", "Duration of the application's processing."
        )
        self.stopped: Final = meter.create_counter(
            "headerware.records.stopped", "{record}", "Records that an interceptor stopped, by cause."
        )
        self._lock = Lock()
        self._open: WeakSet[_MetricsStep] = WeakSet()
        self._clients: WeakKeyDictionary[Stats, _Client] = WeakKeyDictionary()
        self._of_closed: defaultdict[str, Series] = defaultdict(dict)
        for name, observed in OBSERVED.items():
            create = (
                meter.create_observable_counter
                if observed.kind == "counter"
                else meter.create_observable_gauge
            )
            create(name, [partial(self._observe, name)], observed.unit, observed.description)

    def add(self, step: _MetricsStep) -> _Client:
        """Let exporters read a session from now on, and return its client."""
        with self._lock:
            self._open.add(step)
            client = self._clients.get(step.client_stats)
            if client is None:
                client = self._clients[step.client_stats] = _Client(step.client_stats, step.labels)
            client.own.add(step.name)
            return client

    def remove(self, step: _MetricsStep) -> None:
        """Let exporters read a session no longer; keep its counts, because counters never fall."""
        with self._lock:
            if step not in self._open:
                return
            self._open.discard(step)
            client = self._clients[step.client_stats]
            ends = all(other.client_stats is not step.client_stats for other in self._open)
            for name, observed in OBSERVED.items():
                if observed.kind != "counter":
                    continue
                if name in _OF_STEPS:
                    _add(self._of_closed[name], step.series(name), observed.together)
                elif ends:
                    values = client.series(name)
                    _add(self._of_closed[name], values, observed.together)
                    _add(client.counted.setdefault(name, {}), values, observed.together)

    def _observe(self, name: str, _: CallbackOptions) -> list[Observation]:
        with self._lock:
            series = dict(self._of_closed.get(name, {}))
            if name in _OF_STEPS:
                found = [step.series(name) for step in self._open]
            else:
                clients = {self._clients[step.client_stats] for step in self._open}
                found = [client.series(name) for client in clients]
            for each in found:
                _add(series, each, OBSERVED[name].together)
        return [Observation(value, dict(attributes)) for attributes, value in series.items()]


def _add(series: Series, more: Series, together: Callable[[float, float], float]) -> None:
    for attributes, value in more.items():
        before = series.get(attributes)
        series[attributes] = value if before is None else together(float(before), float(value))


def _histogram(meter: Meter, name: str, description: str) -> Any:
    try:
        return meter.create_histogram(name, "s", description, explicit_bucket_boundaries_advisory=_SECONDS)
    except TypeError:  # the API before 1.30 takes no advice; a view sets the buckets there
        return meter.create_histogram(name, "s", description)


_instruments: Final[WeakKeyDictionary[MeterProvider, _Instruments | None]] = WeakKeyDictionary()
_instruments_lock: Final = Lock()


def _instruments_of(provider: MeterProvider) -> _Instruments | None:
    """Return the instruments of a provider, made once; None if the provider does nothing."""
    with _instruments_lock:
        if provider not in _instruments:
            meter = provider.get_meter("headerware")
            idle = type(meter).__module__.startswith(_API)
            _instruments[provider] = None if idle else _Instruments(meter)
        return _instruments[provider]


class _Sums:
    """The bytes that one hook has taken and returned, and the time that it took."""

    __slots__ = ("bytes_in", "bytes_out", "time_ns")

    def __init__(self) -> None:
        self.time_ns = self.bytes_in = self.bytes_out = 0


_SUMS: Final[Mapping[str, Callable[[_Sums], float]]] = {
    "headerware.interceptor.time": lambda sums: sums.time_ns * _NS,
    "headerware.interceptor.input": lambda sums: sums.bytes_in,
    "headerware.interceptor.output": lambda sums: sums.bytes_out,
}
_OF_STEPS: Final = frozenset({_SENT, _CONSUMED, *_SUMS})
"""The metrics that each session measures itself; other metrics belong to its client."""
_chance: Final = Random().random  # noqa: S311 - not for cryptography


class _Sample:
    """Choose which durations are recorded: all durations up to a rate, and a random sample above it.

    The share of recorded durations is set for each second from the count of the previous second, and is
    halved within the second as often as needed.
    """

    __slots__ = ("_ends_ns", "_limit", "_seen", "_share", "_taken")

    def __init__(self, most_per_s: int | None) -> None:
        self._limit = inf if most_per_s is None else most_per_s
        self._ends_ns = self._seen = self._taken = 0
        self._share = 1.0

    def takes(self, now_ns: int) -> bool:
        """Return whether to record the next duration; the caller has the lock."""
        if now_ns >= self._ends_ns:
            self._share = min(1.0, self._limit / self._seen) if now_ns - self._ends_ns < _SECOND_NS else 1.0
            self._ends_ns, self._seen, self._taken = now_ns + _SECOND_NS, 0, 0
        self._seen += 1
        if self._share < 1.0 and _chance() >= self._share:
            return False
        self._taken += 1
        if self._taken > self._limit:
            self._share, self._taken = self._share / 2, self._taken // 2
        return True


class _MetricsStep:
    """The hooks of one session."""

    def __init__(self, options: Metrics, context: Context) -> None:
        self.statistics_interval_ms: Final = (
            None if options.librdkafka_interval_s is None else options.librdkafka_interval_s * 1000
        )
        self._max_topics = options.max_topics
        self.name: Final = options.name or options.type
        self.client_stats: Final[Stats] = context.stats
        self._group = context.group_id
        client = {"messaging.client.id": context.client_id} if context.client_id else {}
        group = {"messaging.consumer.group.name": context.group_id} if context.group_id else {}
        self.labels: Final = {**client, **group}
        self._sums: dict[tuple[str, Direction], _Sums] = {}
        self._sent: dict[tuple[str, str | None], int] = {}
        self._consumed: dict[tuple[str, str | None], int] = {}
        self._sending, self._receiving, self._working = (
            _Sample(options.max_durations_per_s) for _ in range(3)
        )
        self._lock = Lock()
        self._client: _Client | None = None
        self._topics: dict[str, str] = {}
        self._attributes: BoundedCache[tuple[str, str | None, str | None], dict[str, str]] = BoundedCache(
            4 * options.max_topics, self._make_attributes
        )
        self._is_dry_run: Final = context.dry_run
        self._seen: object = _UNKNOWN
        self._known: _Instruments | None = None

    def _instruments(self) -> _Instruments | None:
        """Return the instruments to record with; None in a dry run, and until there is a meter provider.

        Without a provider, a call of the API takes most of a microsecond, because the API reads the
        environment. So this function reads the API's variable; if a release of the API has no such variable,
        the API is called each time.
        """
        if self._known is None and not self._is_dry_run:
            seen = getattr(_API_STATE, "_METER_PROVIDER", _NO_VARIABLE)
            if seen is not self._seen:
                self._seen = _UNKNOWN if seen is _NO_VARIABLE else seen
                self._known = _instruments_of(get_meter_provider())
                if self._known is not None:
                    self._client = self._known.add(self)
        return self._known

    # The four metrics of the conventions

    def on_send(self, record: Record) -> Record:
        """Remember when sending began."""
        if self._known is None and self._instruments() is None:
            return record
        return record.with_local(_LOCAL_NAME, perf_counter_ns())

    def on_acknowledgement(
        self,
        record: Record,
        metadata: RecordMetadata | None,  # noqa: ARG002 - a hook's signature
        error: BaseException | None,
    ) -> None:
        """Count a record that was sent; a record that was stopped before this step has no time of sending."""
        began = None if record.local is None else record.local.get(_LOCAL_NAME)
        if began is None or self._known is None:
            return
        now = perf_counter_ns()
        key = self._bounded(record.topic), None if error is None else cause_of(error)
        with self._lock:
            self._sent[key] = self._sent.get(key, 0) + 1
            takes = self._sending.takes(now)
        if takes:
            self._known.operation.record((now - began) * _NS, self._attributes["send", *key])

    def on_operation(self, operation: Operation) -> None:
        """Record a receive, with its messages by topic, or a commit."""
        instruments = self._instruments()
        if instruments is None:
            return
        cause = None if operation.error is None else cause_of(operation.error)
        taken_s = (operation.ended_ns - operation.began_ns) * _NS
        if operation.name != "receive":
            if operation.name in _SETTLING and taken_s > 0:  # librdkafka made the other commits by itself
                instruments.operation.record(taken_s, self._attributes[operation.name, None, cause])
            return
        counts: dict[str, int] = {}
        for record in operation.records:
            counts[record.topic] = counts.get(record.topic, 0) + 1
        with self._lock:
            for topic, count in counts.items():
                key = self._bounded(topic), cause
                self._consumed[key] = self._consumed.get(key, 0) + count
            takes = self._receiving.takes(perf_counter_ns())
        if takes:
            only = next(iter(counts)) if len(counts) == 1 else None
            instruments.operation.record(taken_s, self._attributes["poll", only, cause])

    def count(self, *, consumed: Mapping[str, int], sent: Mapping[str, int]) -> None:
        """Count messages by topic that others have consumed and sent, such as the tasks of a batch job."""
        if self._instruments() is None:
            return
        with self._lock:
            for counts, found in ((self._consumed, consumed), (self._sent, sent)):
                for topic, count in found.items():
                    key = self._bounded(topic), None
                    counts[key] = counts.get(key, 0) + count

    @contextmanager
    def processing(self, records: Sequence[Record]) -> Iterator[None]:
        """Time the application's processing of records."""
        began, cause = perf_counter_ns(), None
        try:
            yield
        except BaseException as error:
            cause = cause_of(error)
            raise
        finally:
            instruments, now = self._instruments(), perf_counter_ns()
            with self._lock:  # several threads may process
                takes = self._working.takes(now) or cause is not None  # no counter counts failures
            if takes and instruments is not None:
                topics = {record.topic for record in records}
                topic = topics.pop() if len(topics) == 1 else None
                instruments.process.record((now - began) * _NS, self._attributes["process", topic, cause])

    def _make_attributes(self, key: tuple[str, str | None, str | None]) -> dict[str, str]:
        operation, topic, cause = key
        kind = "receive" if operation == "poll" else "settle" if operation in _SETTLING else operation
        found = {
            "messaging.system": "kafka",
            "messaging.operation.name": operation,
            "messaging.operation.type": kind,
        }
        if topic is not None:
            found["messaging.destination.name"] = self._bounded(topic)
        if self._group is not None:
            found["messaging.consumer.group.name"] = self._group
        if cause is not None:
            found["error.type"] = cause
        return found

    def _bounded(self, topic: str) -> str:
        known = self._topics
        if topic in known:
            return topic
        return _OTHER if len(known) >= self._max_topics else known.setdefault(topic, topic)

    # The chain

    def on_stopped(
        self, direction: Direction, record: Record, step: str, outcome: str, error: BaseException | None
    ) -> None:
        """Count a record that an interceptor stopped, by cause."""
        instruments = self._instruments()
        if instruments is not None:
            found = {
                **self.labels,
                _INTERCEPTOR: step,
                _DIRECTION: direction,
                "messaging.destination.name": self._bounded(record.topic),
                "headerware.outcome": outcome,
            }
            instruments.stopped.add(1, found if error is None else {**found, "error.type": cause_of(error)})

    def wrap_hook(self, step: str, direction: Direction, hook: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a hook that is timed; the hook itself if nothing is measured."""
        if self._instruments() is None:
            return hook
        sums = self._sums.setdefault((step, direction), _Sums())

        def timed(given: Any) -> Any:
            began = perf_counter_ns()
            out: Any = None
            try:
                out = hook(given)
            finally:
                sums.time_ns += perf_counter_ns() - began
                # Records that a batch hook has not taken come again, one by one.
                not_taken = set(out.not_taken) if isinstance(out, Batch) else ()
                size_in = bytes_of(given) if given.__class__ is Record else _size_of(given, not_taken)
                sums.bytes_in += size_in
            if out is given:
                sums.bytes_out += size_in
            elif out.__class__ is Record:
                sums.bytes_out += bytes_of(out)
            else:
                sums.bytes_out += _size_of(out, {*not_taken, *getattr(out, "failures", ())})
            return out

        return timed

    def native_meter(self, step: str, direction: Direction) -> Callable[[int, int, int], None]:
        """Return what measures a step in native code, as the functions of ``wrap_hook`` measure its hooks."""
        sums = self._sums.setdefault((step, direction), _Sums())

        def add(taken_ns: int, bytes_in: int, bytes_out: int) -> None:
            sums.time_ns += taken_ns
            sums.bytes_in += bytes_in
            sums.bytes_out += bytes_out

        return add

    def on_statistics(self, text: str) -> None:
        """Keep librdkafka's statistics until an exporter asks."""
        if self._instruments() is not None and self._client is not None:
            self._client.statistics = _decode_statistics(text)

    # What an exporter asks for

    def series(self, name: str) -> Series:
        """Return the values of a metric that this session has measured itself."""
        counts = {_SENT: ("send", self._sent), _CONSUMED: ("poll", self._consumed)}.get(name)
        if counts is not None:
            operation, found = counts
            return {
                tuple(sorted(self._attributes[operation, topic, cause].items())): count
                for (topic, cause), count in tuple(found.items())
            }
        value_of = _SUMS[name]
        return {
            tuple(sorted({**self.labels, _INTERCEPTOR: step, _DIRECTION: direction}.items())): value_of(sums)
            for (step, direction), sums in tuple(self._sums.items())
        }

    def close(self) -> None:
        """Hand the counts over to the instruments."""
        if self._known is not None:
            self._known.remove(self)


def _size_of(records: Any, without: Collection[int] = ()) -> int:
    """Return the size of the records that a hook takes or returns; 0 for a generator."""
    if isinstance(records, Batch):
        return sum(bytes_of(record) for at, record in enumerate(records) if at not in without)
    if isinstance(records, list):
        return sum(map(_size_of, records))
    if isinstance(records, Record):
        return bytes_of(records)
    return records.size_bytes if isinstance(records, FanOut) else 0
