"""The producer of a source: a producer with a chain that makes no topic by asking for it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError, KafkaException

from headerware.clients.producer import Producer
from headerware.core.errors import SourceError, described
from headerware.core.record_run import RecordRun
from headerware.kafka.batch_size import batch_size
from headerware.kafka.errors import Kind, kind_of

if TYPE_CHECKING:
    from headerware.core.record import Record
    from headerware.sources.runtime.config import RunConfig

_log: Final = logging.getLogger("headerware.sources")
_CALL_S: Final = 60.0
"""How long a call for metadata may take."""
_OUTAGE_S: Final = 60.0
"""How often an outage is told."""


class SourceProducer(Producer):
    """A producer that sends to no topic that is not there, and creates none by asking.

    Args:
        config: has the settings.
        settings: others, which have precedence.
    """

    def __init__(self, config: RunConfig, settings: dict[str, Any]) -> None:
        self._source: Final = config.name
        self._known: Final[set[str]] = set()
        self._queued_run: RecordRun | None = None
        super().__init__(
            {
                "enable.idempotence": True,
                "log_level": 0,  # its log has a line for each attempt to connect
                "error_cb": _Outages(config.name),
                "batch.size": batch_size(config.kafka, _fixed_topics(config)),
                **config.kafka,
                **settings,
                "allow.auto.create.topics": False,
            }
        )

    @property
    def is_chained(self) -> bool:
        """Whether a chain sees the records."""
        return self._hw_chained

    def require(self, topic: str) -> None:
        """Raise NoTopicError if there is no such topic."""
        if topic in self._known:
            return
        try:
            found = self.list_topics(topic, timeout=_CALL_S).topics[topic].error
        except KafkaException as error:
            raise NoTopicError(
                f"the brokers do not say whether there is a topic {topic!r}: {error_text(error)}"
            ) from error
        if found is not None:
            missing = kind_of(found) is Kind.UNKNOWN_TOPIC
            problem = "there is no such topic; create it" if missing else found.str()
            raise NoTopicError(f"source {self._source!r} sends to topic {topic!r}: {problem}")
        self._known.add(topic)

    def require_fixed(self, config: RunConfig) -> None:
        """Require the topics that depend neither on the object nor on the chain, which may send elsewhere."""
        for topic in _fixed_topics(config):
            if topic != config.topic or not self._hw_chained:
                self.require(topic)

    def produce_many(self, topic: str, *arguments: Any, **options: Any) -> list[Exception | None]:
        """Send records of one topic; a chain may still change it."""
        if not self._hw_chained:
            self.require(topic)
        return super().produce_many(topic, *arguments, **options)

    def _hw_queue_run(self, run: RecordRun, report: Any) -> list[Exception | None]:
        self.require(run.topic)
        self._queued_run = run
        return super()._hw_queue_run(run, report)

    def taken_run(self) -> RecordRun | None:
        """Return, once, the run that was sent by columns, as the chain has made it.

        None is also for a chain that may be replaced, for what is sent again goes through the one of then.
        """
        found, self._queued_run = self._queued_run, None
        return None if self._hw_live is not None and self._hw_live.follows else found

    def produce_run_past_chain(
        self, run: RecordRun, report: Callable[..., Any] | None
    ) -> list[Exception | None]:
        """Send a run as it is."""
        self.require(run.topic)
        return super()._hw_queue_run(run, report)

    def produce_past_chain(self, record: Record, report: Callable[..., Any] | None) -> None:
        """Send a record as it is."""
        self._hw_produce_wire_record(record, report)

    def _hw_produce_wire_record(self, record: Record, report: Any) -> None:
        self.require(record.topic)
        super()._hw_produce_wire_record(record, report)


class _Outages:
    """Say now and then that no broker can be reached; the client's ``error_cb``."""

    def __init__(self, source: str) -> None:
        self._source: Final = source
        self._reason = "no broker answers"
        self._next = 0.0

    def __call__(self, error: KafkaError) -> None:
        if kind_of(error) is not Kind.ALL_UNREACHABLE:  # which does not say why
            self._reason = error.str().partition(" (after ")[0]
        elif (now := time.monotonic()) >= self._next:
            self._next = now + _OUTAGE_S
            _log.warning("source %r waits for the brokers: %s", self._source, self._reason)


def _fixed_topics(config: RunConfig) -> list[str]:
    """Return the topics of records and of dead letters, as far as they do not depend on the object."""
    if "{" in config.topic:
        return []
    letters = "dead_letter" in (config.on_record_error, config.on_object_error)
    letter_topics = [config.dead_letter_topic.replace("{topic}", config.topic)] if letters else []
    return [config.topic, *letter_topics]


class NoTopicError(SourceError):
    """There is no such topic, which is no error of a record."""


def error_text(error: BaseException) -> str:
    """Return the text of an error of the client or of ours, and of others only where they were raised."""
    failure = error.args[0] if isinstance(error, KafkaException) and error.args else None
    return failure.str() if isinstance(failure, KafkaError) else described(error)
