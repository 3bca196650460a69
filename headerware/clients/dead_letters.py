"""The producer of what a client sends beside the application: dead letters, and interceptors' reports.

It is made when the first record is due.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, cimpl

from headerware.clients.partition_picker import PartitionPicker
from headerware.clients.sessions import Sessions
from headerware.core.client_chain import DEAD_LETTER
from headerware.core.errors import DeadLetterError
from headerware.core.record import Record
from headerware.kafka.errors import Kind, kind_of
from headerware.kafka.messages import wire_headers
from headerware.kafka.settings import connection_settings

MAX_MESSAGE_BYTES: Final = 1_048_588
"""The default limit of a broker, which is more than that of librdkafka."""
_TIMEOUT_MS: Final = 30_000
_CLOSE_TIMEOUT_S: Final = 5.0
_ALIKE_S: Final = 0.05
"""Less than any pause between attempts."""
_UNSENDABLE: Final = (TypeError, ValueError, OverflowError)
"""Errors that confluent-kafka raises for a part of a record that it cannot send."""


class _Publisher(cimpl.Producer):
    """A plain producer that takes weak references; that of C takes none."""


class DeadLetters:
    """Publish records with the consumer's own connection settings; may be used by several threads.

    The consumer's ``headerware.dead_letter.<key>`` overrides a key of the producer.
    """

    def __init__(self, conf: Mapping[str, Any]) -> None:
        self._conf = _producer_settings(conf)
        self._lock = Lock()
        self._producer: cimpl.Producer | None = None
        self._failed: dict[str, tuple[float, KafkaError]] = {}

    def publish(self, record: Record) -> None:
        """Send a dead letter, and return once it is stored; raise a DeadLetterError if it is not."""
        try:
            self._publish(record)
        except (KafkaException, BufferError, *_UNSENDABLE) as error:
            raise dead_letter_error(record, error) from error

    def post(self, record: Record, done: Callable[[BaseException | None], None]) -> None:
        """Queue a record and return at once; ``done`` is called by a later call, or when this is closed."""
        with self._lock:
            producer = self._open()
            producer.produce(
                record.topic,
                record.value,
                record.key,
                -1 if record.partition is None else record.partition,
                lambda error, _: done(None if error is None else KafkaException(error)),
                None,
                record.timestamp_ms or 0,
                wire_headers(record.headers),
            )
            producer.poll(0)

    def pick_partition(self, record: Record) -> int | None:
        """Choose one partition for all slices of a dead letter whose key leaves it open."""
        with self._lock:
            return PartitionPicker(self._open(), str(self._conf.get("partitioner", "")))(record)

    def _open(self) -> cimpl.Producer:
        if self._producer is None:
            self._producer = _Publisher(self._conf)
        return self._producer

    def _publish(self, record: Record) -> None:
        reports: list[KafkaError | None] = []
        with self._lock:
            until, failure = self._failed.pop(record.topic, (0.0, None))
            if failure is not None and time.monotonic() < until:
                # The other records of a batch do not wait for a timeout each.
                self._failed[record.topic] = time.monotonic() + _ALIKE_S, failure
                raise KafkaException(failure)
            producer = self._open()
            producer.produce(
                record.topic,
                record.value,
                record.key,
                -1 if record.partition is None else record.partition,
                lambda error, _: reports.append(error),
                None,
                record.timestamp_ms or 0,
                wire_headers(record.headers),
            )
            producer.flush()
        if reports[0] is not None:
            if kind_of(reports[0]) is not Kind.UNFIT:
                self._failed[record.topic] = time.monotonic() + _ALIKE_S, reports[0]
            raise KafkaException(reports[0])

    def close(self) -> None:
        with self._lock:
            producer, self._producer = self._producer, None
        if producer is not None:
            if producer.flush(_CLOSE_TIMEOUT_S):
                producer.purge()  # the cluster is gone, and the application shall not wait for it
            producer.close()


def close_all(sessions: Sessions, *beside: DeadLetters) -> None:
    """Close sessions, which may still report something, and then what sends beside the application."""
    try:
        sessions.close()
    finally:
        for each in beside:
            each.close()


def dead_letter_error(record: Record, error: Exception) -> DeadLetterError:
    """Return the error for a dead letter that was not stored; ``unfit`` says that another one may be."""
    if isinstance(error, _UNSENDABLE):
        # Their texts may quote the refused part.
        return DeadLetterError(f"confluent-kafka cannot send it ({type(error).__name__})", unfit=True)
    unfit = isinstance(error, KafkaException) and kind_of(error) is Kind.UNFIT
    hint = (
        f" (max.message.bytes of the topic and {DEAD_LETTER}message.max.bytes of the client limit the size "
        f"of dead letters; dead_letter_too_large = 'stub' goes on with a dead letter that has no payload)"
    )
    return DeadLetterError(
        f"topic {record.topic!r} did not take it: {error}{hint if unfit else ''}", unfit=unfit
    )


def _producer_settings(conf: Mapping[str, Any]) -> dict[str, Any]:
    """Return a producer's settings, made from a consumer's."""
    settings = connection_settings(conf)
    own = {key.removeprefix(DEAD_LETTER): value for key, value in conf.items() if key.startswith(DEAD_LETTER)}
    limits = {"message.timeout.ms": _TIMEOUT_MS, "message.max.bytes": MAX_MESSAGE_BYTES}
    return {**limits, **settings, **own}
