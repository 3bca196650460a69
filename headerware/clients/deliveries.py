"""Delivery reports: one per record that the application sent, and one acknowledgement before it.

Callbacks run on whichever thread polls or flushes, in no order between partitions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message

from headerware.clients.messages import metadata_of, undelivered_message, with_original_parts
from headerware.core.interrupts import pass_on_interrupt
from headerware.core.record import Record, RecordMetadata
from headerware.core.session import Session

DeliveryCallback = Callable[[KafkaError | None, Message], Any]


class Deliveries:
    """Turn reports of records on the wire into reports of the application's records.

    The session is told of every outcome, once, before the application. This holds no reference to the client,
    so that messages in flight do not keep it alive.
    """

    __slots__ = ("_acknowledge", "_only_errors", "deferred", "dropped", "waits")

    def __init__(self, session: Session, *, only_errors: bool) -> None:
        self._acknowledge = session.acknowledge if session.acknowledges else None
        self._only_errors = only_errors
        self.dropped: Final[deque[tuple[Record, KafkaError, DeliveryCallback | None]]] = deque()
        """Reports of records that hooks dropped; they wait for a ``poll`` or ``flush``."""
        self.deferred: deque[BaseException] = deque()
        self.waits: int = 0

    @property
    def acknowledges(self) -> bool:
        """Whether an interceptor wants to hear of every record."""
        return self._acknowledge is not None

    def report(
        self,
        original: Record,
        sent: Record,
        callback: DeliveryCallback | None,
        error: KafkaError | None,
        message: Message,
    ) -> None:
        """Report one record to the interceptors, then to the application."""
        if self._acknowledge is not None:
            failure = None if error is None else KafkaException(error)
            self._acknowledge(sent, metadata_of(message), failure)
        if callback is not None and not (error is None and self._only_errors):
            callback(error, with_original_parts(message, original, sent))

    def acknowledge_failure(self, record: Record, error: BaseException) -> None:
        """Acknowledge a record for which ``produce`` raises; there is no report of it.

        Interceptors match topics as text, so that a topic of another type becomes an empty one.
        """
        if self._acknowledge is not None:
            topic: object = record.topic
            if not isinstance(topic, str):
                record = record.replace(topic="")
            self._acknowledge(record, RecordMetadata(record.topic, record.partition), error)

    def queue_dropped(self, record: Record, callback: DeliveryCallback | None) -> None:
        """Queue the report of a record that a hook dropped."""
        reason = "an interceptor dropped the record"
        self.dropped.append((record, KafkaError(KafkaError.POLICY_VIOLATION, reason), callback))

    def close(self) -> None:
        """Stop acknowledging, because the interceptors are closed."""
        self._acknowledge = None

    def __len__(self) -> int:
        """Count the reports that wait for a ``poll`` or ``flush``."""
        return len(self.dropped)

    def serve(self) -> int:
        """Deliver the queued reports, and count them.

        If callbacks raise, here or while ``produce`` waited for room, the others run all the same; then the
        first error is raised.
        """
        served = 0
        while self.dropped:
            try:
                record, error, callback = self.dropped.popleft()
            except IndexError:  # another thread served it
                break
            served += 1
            try:
                self.report(record, record, callback, error, undelivered_message(record, error))
            except Exception as raised:  # noqa: BLE001 - it is raised below, when the others have run
                pass_on_interrupt(raised)
                self.deferred.append(raised)
        if self.deferred:
            first = self.deferred.popleft()
            self.deferred.clear()
            raise first
        return served


class JointDelivery:
    """Combine the reports of all slices of one message into one, after the last, with the first error."""

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
        """Remember the first slice's headers and state for the acknowledgement, not its payload."""
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
        """Ignore further reports, because the message has already failed as a whole."""
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
