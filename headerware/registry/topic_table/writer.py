"""The writing half of a table in a topic: a record is written when all in-sync replicas have it."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from headerware.core.errors import RegistryError
from headerware.registry.topic_table.clients import UnreachableError, failure, left, make_producer

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

_POLL_S: Final = 0.02
"""Another thread's poll may have served the report that this one waits for."""
_PURGE_S: Final = 1.0


class TopicWriter:
    """Write to partition 0 of a topic; safe for use by several threads.

    Args:
        conf: librdkafka's properties, ``bootstrap.servers`` among them.
        topic: the topic, which must be there.
    """

    def __init__(self, conf: Mapping[str, Any], topic: str) -> None:
        self._conf = conf
        self._topic = topic
        self._lock = Lock()
        self._producer: Producer | None = None

    def put(self, key: bytes, value: bytes | None, deadline: float) -> int:
        """Write one record, once, and give its offset.

        Args:
            key: its key.
            value: its value, or None for a tombstone.
            deadline: when to give up, by the monotonic clock, in seconds.

        Raises:
            UnreachableError: no report by then; the record may have been written, or not.
            RegistryError: the brokers refuse the record.
        """
        from confluent_kafka import KafkaException  # noqa: PLC0415 - heavy

        reports: list[tuple[KafkaError | None, Message]] = []
        producer = self._live_producer()
        try:
            producer.produce(
                self._topic, value, key, partition=0, on_delivery=lambda *report: reports.append(report)
            )
        except KafkaException as error:
            raise self._failure(error.args[0]) from error
        while not reports and left(deadline):
            producer.poll(min(_POLL_S, left(deadline)))
        if not reports:
            self._give_up(producer)
        # Giving up brings reports as well: of what was purged, or of what came through at the last moment.
        return self._offset(*reports[0]) if reports else self._unknown()

    def close(self) -> None:
        """Leave the brokers."""
        with self._lock:
            producer, self._producer = self._producer, None
        if producer is not None:
            producer.flush(_PURGE_S)

    def _live_producer(self) -> Producer:
        with self._lock:
            if self._producer is None:
                self._producer = make_producer(self._conf)
            return self._producer

    def _give_up(self, producer: Producer) -> None:
        """Drop what was not sent, so that it is not written minutes later; the next write begins anew."""
        with self._lock:
            if self._producer is producer:
                self._producer = None
        producer.purge()
        producer.flush(_PURGE_S)

    def _offset(self, error: KafkaError | None, message: Message) -> int:
        if error is None:
            offset: Any = message.offset()
            return int(offset)
        if error.fatal():
            with self._lock:
                self._producer = None
        # What is purged from the queue may have been sent before, and wait there to be sent again.
        if error.code() in (error._PURGE_QUEUE, error._PURGE_INFLIGHT, error._MSG_TIMED_OUT):  # noqa: SLF001
            self._unknown()
        raise self._failure(error)

    def _unknown(self) -> int:
        raise UnreachableError(
            f"topic {self._topic!r}: the brokers did not confirm in time; the record may have been written, "
            "or not: refresh, and look"
        )

    def _failure(self, error: KafkaError) -> RegistryError:
        return failure(f"topic {self._topic!r} cannot be written", error)
