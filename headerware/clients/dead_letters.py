"""The producer of dead letters and of interceptors' reports, which are not records of the application.

The producer is made when the first record is due. Dead letters go in batches. One request at a time is on its
way; the next request has all dead letters that have come since. So dead letters keep their order, and none
waits until others come.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from threading import RLock
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, cimpl

from headerware.clients.partition_picker import PartitionPicker
from headerware.clients.raw import STATE
from headerware.clients.sessions import Sessions
from headerware.core.client_chain import DEAD_LETTER
from headerware.core.errors import ConfigError, DeadLetterError
from headerware.core.record import Record
from headerware.kafka.errors import Kind, kind_of, right_to_write
from headerware.kafka.messages import wire_headers
from headerware.kafka.settings import connection_settings
from headerware.kafka.wrong_properties import explained

MAX_MESSAGE_BYTES: Final = 1_048_588
"""The default limit of a broker, which is larger than the default of librdkafka."""
MAX_PENDING: Final = 1_000
"""How many dead letters may be on their way before a consumer reads on."""
MAX_PENDING_BYTES: Final = 32 * 1024 * 1024
"""How many bytes of keys and values the dead letters on their way may have."""
_STEP_S: Final = 0.01
"""How long a thread waits for its report before it looks whether another thread has got the report."""
_TIMEOUT_MS: Final = 30_000
_TOPIC_APPEARS_MS: Final = 5_000
"""How long a missing topic may take to appear where brokers make topics; librdkafka waits 30 s in silence."""
_CLOSE_TIMEOUT_S: Final = 5.0
_ALIKE_S: Final = 0.05
"""How long a topic that has failed gets no other dead letter; less than any pause between attempts."""
_CONNECTING: Final = ("bootstrap.servers", "metadata.broker.list", "security.protocol", "oauth_cb")
"""The settings by which a client connects, asks for a token, or loads certificates."""
_UNSENDABLE: Final = (TypeError, ValueError, OverflowError)
"""Errors that confluent-kafka raises for a part of a record that it cannot send."""


class _Publisher(cimpl.Producer):
    """A plain producer that takes weak references; the class of C takes none."""


class PublishedRecord:
    """A record that was given to the producer; its delivery report says whether it is stored."""

    __slots__ = ("_dead_letters", "_error", "_is_done", "size_bytes", "topic")

    def __init__(self, dead_letters: DeadLetters, record: Record) -> None:
        self._dead_letters: Final = dead_letters
        self.topic: Final = record.topic
        self.size_bytes: Final = len(record.value or b"") + len(record.key or b"")
        self._is_done = False
        self._error: KafkaError | None = None

    def __call__(self, error: KafkaError | None, _: object) -> None:
        """Take the delivery report, on whichever thread polls the producer."""
        self._dead_letters.note_report(self, error)
        self._error, self._is_done = error, True

    def done(self) -> bool:
        """Return whether the record is stored, or never will be."""
        return self._is_done

    def result(self) -> None:
        """Return once the record is stored; raise a DeadLetterError if it is not."""
        while not self._is_done and self._dead_letters.wait(_STEP_S):
            pass
        failure = self._error if self._is_done else KafkaError(STATE, "the client was closed meanwhile")
        if failure is not None:
            error = KafkaException(failure)
            raise dead_letter_error(self.topic, error) from error


class DeadLetters:
    """Publish records with the consumer's own connection settings; may be used by several threads.

    The consumer's ``headerware.dead_letter.<key>`` overrides a key of the producer. These keys are checked
    now, unless another object with the same settings has checked them.
    """

    def __init__(self, conf: Mapping[str, Any], *, is_checked: bool = False) -> None:
        self._conf = _producer_settings(conf)
        own = {key: value for key, value in conf.items() if key.startswith(DEAD_LETTER)}
        if own and not is_checked:
            _require_settings(_producer_settings(own))
        self._lock = RLock()  # a report may come while a record is queued
        self._producer: cimpl.Producer | None = None
        self._is_closed = False
        self._failed: dict[str, tuple[float, KafkaError]] = {}
        self._pending = self._pending_bytes = 0

    def publish(self, record: Record) -> PublishedRecord:
        """Send a dead letter, and return an object that says whether it is stored.

        Raises:
            DeadLetterError: it cannot be sent.
        """
        published = PublishedRecord(self, record)
        try:
            with self._lock:
                self._require_no_failure(record.topic)
                self._produce(record, published)
                self._pending += 1
                self._pending_bytes += published.size_bytes
        except (KafkaException, BufferError, *_UNSENDABLE) as error:
            raise dead_letter_error(record.topic, error) from error
        return published

    def _require_no_failure(self, topic: str) -> None:
        """Raise the error of a topic's last dead letter if it failed just now, rather than wait again."""
        until, failure = self._failed.get(topic, (0.0, None))
        if failure is None:
            return
        if time.monotonic() < until:
            raise KafkaException(failure)
        del self._failed[topic]  # so only one record tries again now

    def store(self, record: Record) -> None:
        """Send a dead letter, and return once it is stored; raise a DeadLetterError if it is not."""
        self.publish(record).result()

    def note_report(self, published: PublishedRecord, error: KafkaError | None) -> None:
        """Note that the report of a dead letter has come."""
        with self._lock:
            self._pending -= 1
            self._pending_bytes -= published.size_bytes
            if error is not None and kind_of(error) is not Kind.UNFIT:
                self._failed[published.topic] = time.monotonic() + _ALIKE_S, error

    @property
    def room(self) -> int:
        """How many more dead letters may be on their way."""
        return max(0, MAX_PENDING - self._pending) if self._pending_bytes < MAX_PENDING_BYTES else 0

    def wait(self, timeout_s: float) -> bool:
        """Take the reports that have come, or wait for the first; return False if there is no producer."""
        producer = self._producer
        if producer is not None:
            producer.poll(timeout_s)
        return producer is not None

    def post(self, record: Record, done: Callable[[BaseException | None], None]) -> None:
        """Queue a record and return at once; a later call or :meth:`close` calls ``done``."""
        with self._lock:
            self._produce(record, lambda error, _: done(None if error is None else KafkaException(error)))
            self._open().poll(0)

    def pick_partition(self, record: Record) -> int | None:
        """Choose one partition for all slices of a dead letter whose key does not decide it."""
        with self._lock:
            return PartitionPicker(self._open(), str(self._conf.get("partitioner", "")))(record)

    def _open(self) -> cimpl.Producer:
        if self._is_closed:
            raise KafkaException(KafkaError(STATE, "the client was closed"))
        if self._producer is None:
            self._producer = _Publisher(self._conf)
        return self._producer

    def _produce(self, record: Record, on_delivery: Callable[[KafkaError | None, Any], None]) -> None:
        self._open().produce(
            record.topic,
            record.value,
            record.key,
            -1 if record.partition is None else record.partition,
            on_delivery,
            None,
            record.timestamp_ms or 0,
            wire_headers(record.headers),
        )

    def close(self) -> None:
        with self._lock:
            producer, self._producer, self._is_closed = self._producer, None, True
        if producer is not None:
            if producer.flush(_CLOSE_TIMEOUT_S):
                producer.purge()  # the cluster is out of reach, and the application is not to wait for it
            producer.close()


def close_all(sessions: Sessions, *producers: DeadLetters) -> None:
    """Close sessions, which may still send reports, and then the producers of dead letters and reports."""
    try:
        sessions.close()
    finally:
        for each in producers:
            each.close()


def dead_letter_error(topic: str, error: Exception) -> DeadLetterError:
    """Return the error for a dead letter that was not stored; with ``unfit``, a smaller one may be."""
    if isinstance(error, _UNSENDABLE):
        # The texts of these errors may quote the refused part.
        return DeadLetterError(f"confluent-kafka cannot send it ({type(error).__name__})", unfit=True)
    kind = kind_of(error) if isinstance(error, KafkaException) else None
    unfit = kind is Kind.UNFIT
    right = right_to_write(error, topic)
    if kind is Kind.UNKNOWN_TOPIC:
        right = "; create it, or name another one by dead_letter_topic"
    hint = (
        f" (max.message.bytes of the topic and {DEAD_LETTER}message.max.bytes of the client limit the size "
        f"of dead letters; dead_letter_too_large = 'stub' goes on with a dead letter that has no payload)"
    )
    why = f"{error.args[0].str()} ({error.args[0].name()})" if isinstance(error, KafkaException) else error
    return DeadLetterError(f"topic {topic!r} did not take it: {why}{hint if unfit else right}", unfit=unfit)


def _require_settings(conf: Mapping[str, Any]) -> None:
    """Raise a ConfigError if librdkafka refuses a producer's settings; neither connect nor authenticate."""
    offline = {
        key: value for key, value in conf.items() if key not in _CONNECTING and not key.startswith("sasl.")
    }
    try:
        cimpl.Producer(offline | {"log_level": 0})
    except KafkaException as error:
        raise ConfigError(explained(error, offline), path=f"{DEAD_LETTER}<producer key>") from error


def _producer_settings(conf: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the producer, made of the consumer's settings."""
    settings = connection_settings(conf)
    own = {key.removeprefix(DEAD_LETTER): value for key, value in conf.items() if key.startswith(DEAD_LETTER)}
    ours = {
        "message.timeout.ms": _TIMEOUT_MS,
        "topic.metadata.propagation.max.ms": _TOPIC_APPEARS_MS,
        "message.max.bytes": MAX_MESSAGE_BYTES,
        # One request at a time, without a delay.
        "max.in.flight.requests.per.connection": 1,
        "linger.ms": 0,
    }
    return {**ours, **settings, **own}
