"""Delivery reports: one for each record that the application sent, after an acknowledgement for interceptors.

Callbacks run on whichever thread polls or flushes, in no order between partitions.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import Any, Final

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message

from headerware.clients.callbacks import call_back
from headerware.clients.messages import metadata_of, undelivered_message, with_original_parts
from headerware.clients.raw import MSG_SIZE_TOO_LARGE, MSG_TIMED_OUT, PURGE_INFLIGHT, PURGE_QUEUE
from headerware.core.interrupts import pass_on_interrupt
from headerware.core.record import Record, RecordMetadata
from headerware.core.runner import Outcome
from headerware.core.session import Session
from headerware.core.step import LoggedReasons
from headerware.kafka.errors import Kind, kind_of
from headerware.kafka.messages import record_of

DeliveryCallback = Callable[[KafkaError | None, Message], Any]
_DROPPED: Final = "an interceptor dropped the record"
_TOPICS_LIMIT: Final = "the topic's max.message.bytes"
_log: Final = logging.getLogger("headerware")


def was_dropped(error: KafkaError) -> bool:
    """Return whether a report's error says that an interceptor dropped the record on purpose."""
    return error.code() == KafkaError.POLICY_VIOLATION and error.str() == _DROPPED


def too_large(record: Record, limit: str, known: KafkaError) -> KafkaError:
    """Return the error of a record that is too large, with its topic, its size, the limit and advice."""
    own = known.str() or "Message size too large"
    return KafkaError(
        known.code(),
        f"{own}: a record of {size_bytes(record)} bytes for topic {record.topic!r} exceeds {limit}; put the "
        f"step 'slice' or 'claim_check' into the chain of producers and consumers, or raise the limit",
    )


def size_bytes(record: Record) -> int:
    """Return the size of a record's key, value and headers on the wire, without their lengths."""
    parts = [record.key, record.value, *(part for pair in record.headers for part in pair)]
    return sum(len(part.encode() if isinstance(part, str) else part) for part in parts if part is not None)


class Deliveries:
    """Send records through one session, and turn reports of them on the wire into the application's own.

    The session is told of every outcome, once, before the application. A client whose chain changes has one
    object of this class for each session. The call that sends a record, and the report of the record, hold
    the object that the record went through. When nothing holds the object any more, its session is closed.
    The object has no reference to the client, so messages in flight do not keep the client alive.
    """

    __slots__ = (
        "__weakref__",
        "_acknowledge",
        "_only_errors",
        "acknowledges_all",
        "passes_reports",
        "report_failure",
        "reports",
        "send",
        "session",
    )

    def __init__(self, session: Session, reports: QueuedReports, *, only_errors: bool) -> None:
        self.session: Final = session
        self.reports: Final = reports
        self.send: Callable[[Record], Outcome] = session.send_outcome
        """Return the outcome of one record on its way to the wire; raise nothing for it."""
        self._acknowledge = session.acknowledge if session.acknowledges else None
        self.acknowledges_all: bool = session.acknowledges_all
        """Whether an interceptor wants to hear of every record, also of records without local state."""
        self._only_errors = only_errors
        self.passes_reports: bool = self._acknowledge is None and not only_errors
        """Whether a report that is to show what was sent can go to the application as it comes."""
        self.report_failure: DeliveryCallback | None = (
            None if session.is_empty else reports.undelivered.report
        )
        """The callback of records whose report nobody wants; an empty chain costs nothing, and has none."""

    def following(self, session: Session) -> Deliveries:
        """Return the deliveries of the session that follows this one."""
        return Deliveries(session, self.reports, only_errors=self._only_errors)

    def report(
        self,
        original: Record,
        sent: Record,
        callback: DeliveryCallback | None,
        error: KafkaError | None,
        message: Message,
    ) -> None:
        """Report one record to the interceptors, then to the application."""
        if error is not None and error.code() == MSG_SIZE_TOO_LARGE:
            error = too_large(sent, _TOPICS_LIMIT, error)
            message.set_error(error)
        if self._acknowledge is not None:
            failure = None if error is None else KafkaException(error)
            self._acknowledge(sent, metadata_of(message), failure)
        if callback is None:
            if error is not None:
                self.reports.undelivered.note(sent.topic, error)
        elif not (error is None and self._only_errors):
            call_back(callback, error, with_original_parts(message, original, sent))

    def acknowledge_failure(self, record: Record, error: BaseException) -> None:
        """Acknowledge a record for which ``produce`` raises; such a record has no report.

        Interceptors match topics as text, so a topic of another type becomes an empty text.
        """
        if self._acknowledge is not None:
            topic: object = record.topic
            if not isinstance(topic, str):
                record = record.replace(topic="")
            self._acknowledge(record, RecordMetadata(record.topic, record.partition), error)

    def queue_dropped(self, record: Record, callback: DeliveryCallback | None) -> None:
        """Queue the report of a record that a hook dropped."""
        error = KafkaError(KafkaError.POLICY_VIOLATION, _DROPPED)
        self.reports.dropped.append(partial(self._report_dropped, record, error, callback))

    def _report_dropped(self, record: Record, error: KafkaError, callback: DeliveryCallback | None) -> None:
        self.report(record, record, callback, error, undelivered_message(record, error))

    def close(self) -> None:
        """Send and acknowledge without the interceptors, because they are closed."""
        self.send, self._acknowledge, self.acknowledges_all = _unchanged, None, False


class Report(msgspec.Struct, frozen=True):
    """The report of one record on the wire, which librdkafka calls.

    There is one for each record in flight. It is one object, and a partial would be three.
    """

    deliveries: Deliveries
    original: Record
    """The record that the callback is shown; without a callback, the record that was sent."""
    sent: Record
    callback: DeliveryCallback | None

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        """Report the record."""
        self.deliveries.report(self.original, self.sent, self.callback, error, message)


class Undelivered:
    """Tell in the log of records that were not delivered, if no callback hears of them."""

    __slots__ = ("_count", "_logged", "_told")

    def __init__(self) -> None:
        self._count = self._told = 0
        self._logged: Final = LoggedReasons()

    def report(self, error: KafkaError | None, message: Message) -> None:
        """Take the report of a record whose report nobody else wants; librdkafka calls this for each."""
        if error is not None:
            if error.code() == MSG_SIZE_TOO_LARGE:
                error = too_large(record_of(message), _TOPICS_LIMIT, error)
            self.note(message.topic() or "", error)

    def note(self, topic: str, error: KafkaError) -> None:
        """Count a record that was not delivered, and log the first one of each topic and error."""
        if error.code() in {PURGE_QUEUE, PURGE_INFLIGHT} or was_dropped(error):
            return  # the application, or an interceptor, wanted that
        self._count += 1
        if self._logged.is_new((topic, error.code())):
            _log.warning(
                "a record for topic %r was not delivered, and no callback (on_delivery) is told: %s%s "
                "(further ones for this reason are only counted)",
                topic,
                error,
                self._advice(error),
            )

    def _advice(self, error: KafkaError) -> str:
        if kind_of(error) is Kind.UNKNOWN_TOPIC:
            return "; look at the topic's name, or create it"
        if error.code() == MSG_TIMED_OUT:
            return (
                "; no broker took it in time: look at bootstrap.servers, the network, and the security.*, "
                "sasl.* and ssl.* settings (headerware doctor -b SERVERS says what is wrong)"
            )
        return ""

    def tell(self, *, at_end: bool) -> None:
        """Log how many there are; before the end, only if they have doubled."""
        if self._count > self._told and (at_end or self._count >= 2 * self._told):
            self._told = self._count
            _log.warning(
                "%s not delivered, and no callback (on_delivery) was told",
                f"{self._count} records were" if self._count > 1 else "1 record was",
            )


class QueuedReports:
    """Hold the reports of dropped records, and errors of callbacks, until the client polls or flushes."""

    __slots__ = ("deferred", "dropped", "undelivered", "waits")

    def __init__(self) -> None:
        self.undelivered: Final = Undelivered()
        self.dropped: deque[Callable[[], None]] = deque()
        self.deferred: deque[BaseException] = deque()
        self.waits: int = 0
        """How often a slice has waited for room in the queue."""

    def __len__(self) -> int:
        """Count the reports that wait for a ``poll`` or ``flush``."""
        return len(self.dropped)

    def serve(self) -> int:
        """Deliver the queued reports, and count them.

        If a callback raises, here or while ``produce`` waited for room, the others still run; then the first
        error is raised.
        """
        served = 0
        while self.dropped:
            try:
                report = self.dropped.popleft()
            except IndexError:  # another thread served it
                break
            served += 1
            try:
                report()
            except Exception as raised:  # noqa: BLE001 - it is raised below, after the others have run
                pass_on_interrupt(raised)
                self.deferred.append(raised)
        if self.deferred:
            first = self.deferred.popleft()
            self.deferred.clear()
            raise first
        return served


def _unchanged(record: Record) -> Outcome:
    return record


class JointDelivery:
    """Combine the reports of all slices of a message into one report, which has the first error."""

    __slots__ = ("_arrived", "_callback", "_deliveries", "_error", "_lock", "_original", "_sent", "expected")

    def __init__(self, deliveries: Deliveries, original: Record, callback: DeliveryCallback | None) -> None:
        self._deliveries = deliveries
        self._original = original
        self._callback = callback
        self._sent = original
        self._arrived = 0
        self._error: KafkaError | None = None
        self._lock = Lock()
        self.expected: int = -1
        """How many reports there will be; -1 as long as more slices follow."""

    def note_first(self, first: Record) -> None:
        """Remember the first slice's key, headers and state for the acknowledgement, not its payload.

        Until the first slice is made, the record that is sliced is acknowledged.
        """
        self._sent = first.with_value(self._original.value, first.headers)

    @property
    def error(self) -> KafkaError | None:
        """The first error that a slice met, or None."""
        return self._error

    @property
    def sent(self) -> Record:
        """The record as it is acknowledged."""
        return self._sent

    def cancel(self) -> None:
        """Ignore further reports, because the message has failed."""
        with self._lock:
            self.expected = -2

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        with self._lock:
            self._arrived += 1
            if self._error is None:
                self._error = error
            if self._arrived != self.expected:
                return
        message.set_error(self._error)
        self._deliveries.report(self._original, self._sent, self._callback, self._error, message)
