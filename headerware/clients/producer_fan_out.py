"""Several wire records for one of the application's: they are queued, and fail, as one."""

from __future__ import annotations

import time
from collections.abc import Iterator

from confluent_kafka import KafkaException

from headerware.clients.deliveries import DeliveryCallback, JointDelivery
from headerware.clients.producer_reports import ReportingProducer, queue
from headerware.core.errors import InterceptorError
from headerware.core.hooks import FanOut
from headerware.core.record import Record


class FanOutProducer(ReportingProducer):
    """A producer that cuts a message while there is room for its slices."""

    _max_messages: int
    _max_bytes: int
    _patience_s: float

    def _fan_out(self, record: Record, pieces: list[Record] | FanOut, user: DeliveryCallback | None) -> None:
        joint = JointDelivery(self._deliveries, record, user)
        try:
            self._require_room(record, pieces)
            sent = self._queue_all(iter(pieces), joint)
        except BaseException as error:
            joint.cancel()
            self._deliveries.failed(joint.sent, error)
            raise
        if not sent:
            self._deliveries.dropped(record, user)

    def _queue_all(self, pieces: Iterator[Record], joint: JointDelivery) -> int:
        """Queue piece after piece; only two are held at a time."""
        deadline = time.monotonic() + self._patience_s
        count = 0
        piece: Record | None = next(pieces, None)
        while piece is not None:
            following = next(pieces, None)
            count += 1
            if count == 1:
                joint.began(piece)
            if following is None:
                joint.expected = count
            self._queue_with_patience(piece, joint, deadline)
            piece = following
        return count

    def _queue_with_patience(self, piece: Record, joint: JointDelivery, deadline: float) -> None:
        """Queue a piece, waiting for room as long as librdkafka would try to deliver it.

        Raises:
            BufferError: there was no room in time, or this is inside a callback.
            KafkaException: an earlier piece has failed meanwhile, and the message with it.
        """
        while True:
            if joint.error is not None:
                raise KafkaException(joint.error)
            try:
                queue(self, piece, joint)
            except BufferError:
                # Inside a callback, polling again would abort the process; the message fails as one.
                if self._is_serving() or time.monotonic() >= deadline:
                    raise
                self._deliveries.waits += 1
                self._make_room()
            else:
                return

    def _require_room(self, record: Record, pieces: list[Record] | FanOut) -> None:
        """Refuse a message, before its first piece, whose pieces could never all be queued.

        Raises:
            BufferError: what there is of them, and what the queue holds.
            InterceptorError: there are none, for an interceptor holds the record back.
        """
        count = len(pieces)
        if not count:
            raise InterceptorError(
                "an interceptor holds the record back on send, and a producer cannot wait for it",
                topic=record.topic,
            )
        size = pieces.size_bytes if isinstance(pieces, FanOut) else sum(_size(piece) for piece in pieces)
        if 0 < self._max_messages < count or size > self._max_bytes:
            raise BufferError(
                f"Local: Queue full: a message of {count} slices and {size} bytes could never fit a queue of "
                f"{self._max_messages} messages and {self._max_bytes} bytes (queue.buffering.max.*)"
            )


def _size(record: Record) -> int:
    return len(record.value or b"") + len(record.key or b"")
