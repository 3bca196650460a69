"""The reports of a producer: what serves them, and what waits for them."""

from __future__ import annotations

import sys
import time
from threading import get_ident
from typing import Any, Final

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from headerware.clients.calls import is_under_way
from headerware.clients.codes import STATE, TIMED_OUT
from headerware.clients.deliveries import Deliveries
from headerware.clients.groups import clamped
from headerware.clients.messages import wire_headers
from headerware.clients.raw import unless_chained
from headerware.core.interrupts import pass_on_interrupt
from headerware.core.record import Record
from headerware.core.runner import Outcome, flat
from headerware.core.session import Session

_C: Final[Any] = confluent_kafka.Producer
_c_produce, _c_poll, _c_flush, _c_len = _C.produce, _C.poll, _C.flush, _C.__len__
_ROOM_POLL_S: Final = 0.05
_PUBLISH_TIMEOUT_S: Final = 30.0


class ReportingProducer(confluent_kafka.Producer):
    """A producer that reports dropped records too, and never polls inside a callback."""

    _session: Session
    _deliveries: Deliveries
    _serving: set[int]
    _chained: bool = False
    """Whether a chain is at work; else confluent-kafka's own methods answer."""

    def poll(self, timeout: float = -1) -> int:
        """Serve delivery reports and other events for up to ``timeout`` seconds, and count them."""
        if not self._chained:
            return _c_poll(self, timeout)  # type: ignore[no-any-return]
        served = self._deliveries.serve() if self._deliveries or self._deliveries.deferred else 0
        polled: int | None = self._serve_c(_c_poll, 0 if served else timeout)
        return served + (polled or 0)

    @unless_chained(_c_flush)
    def flush(self, timeout: float = -1) -> int:
        """Wait up to ``timeout`` seconds for all records to be reported, and count those that are left."""
        for outcome in self._session.flush():
            self._send_released(outcome)
        try:
            self._deliveries.serve()
        finally:
            left = self._serve_c(_c_flush, timeout) or 0
        return left + len(self._deliveries)

    @unless_chained(_c_len)
    def __len__(self) -> int:
        in_flight: int = _c_len(self)
        return in_flight + len(self._deliveries)

    @unless_chained(_C.commit_transaction)
    def commit_transaction(self, timeout: float = -1) -> None:
        """Commit the transaction, as confluent-kafka does, and serve all reports."""
        self._deliveries.serve()
        self._serve_c(_C.commit_transaction, timeout)

    @unless_chained(_C.abort_transaction)
    def abort_transaction(self, timeout: float = -1) -> None:
        """Abort the transaction, as confluent-kafka does; its records are reported as purged."""
        self._deliveries.serve()
        self._serve_c(_C.abort_transaction, timeout)

    @unless_chained(_C.send_offsets_to_transaction)
    def send_offsets_to_transaction(
        self, positions: list[TopicPartition], group_metadata: Any, timeout: float = -1
    ) -> None:
        """Commit a consumer's offsets with the transaction, held back as its own commits are."""
        _C.send_offsets_to_transaction(self, clamped(group_metadata, positions), group_metadata, timeout)

    def _serve_c(self, serve: Any, timeout: float) -> Any:
        """Call a C method that runs callbacks, unless this thread is inside one of them."""
        if self._is_serving():
            return None  # confluent-kafka aborts the process when a callback polls again
        return self._run_callbacks(serve, timeout)

    def _run_callbacks(self, serve: Any, *arguments: Any) -> Any:
        ident = get_ident()
        self._serving.add(ident)
        try:
            return serve(self, *arguments)
        finally:
            self._serving.discard(ident)

    def _is_serving(self) -> bool:
        """Return whether this thread is inside a callback of this client."""
        return get_ident() in self._serving and is_under_way(self, _SERVING, sys._getframe())  # noqa: SLF001

    def _send_released(self, outcome: Outcome) -> None:
        """Send what an interceptor held back; what fails of it comes out of ``flush``."""
        try:
            for record in flat(outcome):
                queue(self, record, None)
        except Exception as raised:  # noqa: BLE001 - nobody else is there to hear of it
            pass_on_interrupt(raised)
            self._deliveries.deferred.append(raised)

    def _make_room(self) -> None:
        """Serve reports; what callbacks raise comes out of the next ``poll`` or ``flush``."""
        try:
            self._serve_c(_c_poll, _ROOM_POLL_S)
        except Exception as raised:  # noqa: BLE001 - it belongs to the callback's record, not to this one
            pass_on_interrupt(raised)
            self._deliveries.deferred.append(raised)

    def _publish(self, record: Record) -> None:
        """Send a finished record past the chain, and return once it is stored."""
        if self._is_serving():
            raise KafkaException(KafkaError(STATE, "cannot wait for a delivery inside a callback"))
        reports: list[KafkaError | None] = []
        queue(self, record, lambda error, _: reports.append(error))
        deadline = time.monotonic() + _PUBLISH_TIMEOUT_S
        while not reports and time.monotonic() < deadline:
            self._make_room()
        if not reports:
            raise KafkaException(KafkaError(TIMED_OUT, "the record was not delivered in time"))
        if reports[0] is not None:
            raise KafkaException(reports[0])


_SERVING: Final = frozenset({ReportingProducer._run_callbacks.__code__})  # noqa: SLF001


def queue(client: confluent_kafka.Producer, record: Record, report: Any) -> None:
    """Hand a record to librdkafka as it is."""
    _c_produce(
        client,
        record.topic,
        record.value,
        record.key,
        -1 if record.partition is None else record.partition,
        report,
        None,
        record.timestamp_ms or 0,
        wire_headers(record.headers),
    )
