"""The producer of a source: a producer with a chain that never lets the brokers create a topic."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError, KafkaException

from headerware.clients.producer import Producer
from headerware.core.batch import Batch
from headerware.core.errors import SourceError, described
from headerware.kafka.batch_size import batch_size
from headerware.kafka.errors import Kind, kind_of

if TYPE_CHECKING:
    from headerware.core.record import Record
    from headerware.sources.runtime.config import RunConfig

_log: Final = logging.getLogger("headerware.sources")
_CALL_S: Final = 60.0
"""How long a call for metadata may take."""
_OUTAGE_S: Final = 60.0
"""How often an outage is logged."""


class SourceProducer(Producer):
    """A producer that refuses topics that do not exist; ``settings`` override the settings of ``config``."""

    def __init__(self, config: RunConfig, settings: dict[str, Any]) -> None:
        self._source: Final = config.name
        self._known: Final[set[str]] = set()
        self._queued_batch: Batch | None = None
        super().__init__(
            {
                "enable.idempotence": True,
                "log_level": 0,  # the client would log a line for each attempt to connect
                "error_cb": _Outages(config.name),
                "batch.size": batch_size(config.kafka, _fixed_topics(config)),
                **config.kafka,
                **settings,
                "allow.auto.create.topics": False,
            }
        )

    @property
    def is_chained(self) -> bool:
        """Return whether records go through a chain."""
        return self._hw_chained

    def require(self, topic: str) -> None:
        """Raise NoTopicError if the topic does not exist."""
        if topic in self._known:
            return
        try:
            found = self.list_topics(topic, timeout=_CALL_S).topics[topic].error
        except KafkaException as error:
            raise NoTopicError(
                f"the brokers do not answer whether topic {topic!r} exists: {error_text(error)}"
            ) from error
        if found is not None:
            missing = kind_of(found) is Kind.UNKNOWN_TOPIC
            problem = "the topic does not exist; create it" if missing else found.str()
            raise NoTopicError(f"source {self._source!r} sends to topic {topic!r}: {problem}")
        self._known.add(topic)

    def require_fixed(self, config: RunConfig) -> None:
        """Require the topics whose names depend neither on the object nor on the chain."""
        for topic in _fixed_topics(config):
            if topic != config.topic or not self._hw_chained:
                self.require(topic)

    def produce_many(self, topic: str, *arguments: Any, **options: Any) -> list[Exception | None]:
        """Send records of one topic; a chain may still change the topic."""
        if not self._hw_chained:
            self.require(topic)
        return super().produce_many(topic, *arguments, **options)

    def _hw_queue_batch(self, batch: Batch, report: Any) -> list[Exception | None]:
        self.require(batch.topic)
        self._queued_batch = batch
        return super()._hw_queue_batch(batch, report)

    def taken_batch(self) -> Batch | None:
        """Return, once, the batch that was sent by columns, as the chain changed it.

        Return None also if the chain may be replaced while the source runs: a batch that is sent again must
        then go through the new chain.
        """
        found, self._queued_batch = self._queued_batch, None
        return None if self._hw_live is not None and self._hw_live.follows else found

    def produce_batch_past_chain(
        self, batch: Batch, report: Callable[..., Any] | None
    ) -> list[Exception | None]:
        """Send a batch without the chain."""
        self.require(batch.topic)
        return super()._hw_queue_batch(batch, report)

    def produce_past_chain(self, record: Record, report: Callable[..., Any] | None) -> None:
        """Send a record without the chain."""
        self._hw_produce_wire_record(record, report)

    def _hw_produce_wire_record(self, record: Record, report: Any) -> None:
        self.require(record.topic)
        super()._hw_produce_wire_record(record, report)


class _Outages:
    """The client's ``error_cb``: log at intervals that no broker can be reached."""

    def __init__(self, source: str) -> None:
        self._source: Final = source
        self._reason = "no broker answers"
        self._next = 0.0

    def __call__(self, error: KafkaError) -> None:
        if kind_of(error) is not Kind.ALL_UNREACHABLE:  # ALL_UNREACHABLE has no reason
            self._reason = error.str().partition(" (after ")[0]
        elif (now := time.monotonic()) >= self._next:
            self._next = now + _OUTAGE_S
            _log.warning("source %r waits for the brokers: %s", self._source, self._reason)


def _fixed_topics(config: RunConfig) -> list[str]:
    """Return the topics of records and of dead letters, or none if the topic depends on the object."""
    if "{" in config.topic:
        return []
    if "dead_letter" not in (config.on_record_error, config.on_object_error):
        return [config.topic]
    return [config.topic, config.dead_letter_topic.replace("{topic}", config.topic)]


class NoTopicError(SourceError):
    """The topic does not exist; this is not the error of one record."""


def error_text(error: BaseException) -> str:
    """Return the text of an error of the client or of Headerware; of others only the type and place."""
    failure = error.args[0] if isinstance(error, KafkaException) and error.args else None
    return failure.str() if isinstance(failure, KafkaError) else described(error)
