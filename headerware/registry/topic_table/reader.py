"""The reading half of a table in a topic: one partition, from its beginning, without a consumer group."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headerware.core.errors import RegistryError
from headerware.registry.topic_table.clients import (
    UnreachableError,
    create_topic,
    failure,
    left,
    make_consumer,
    warn_of_deletion,
)
from headerware.registry.topic_table.rows import TableRecord

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

_log = logging.getLogger("headerware.registry")

_BATCH: Final = 1_000
_PAUSE_S: Final = 0.05
_POLICY_S: Final = 2.0


class Batch(NamedTuple):
    """What one poll has brought.

    Attributes:
        records: the next records, in the order of offsets.
        position: where reading goes on: all that stood before it has been given.
        lost: whether the position is no longer in the topic, so that it must be read again.
    """

    records: list[TableRecord]
    position: int
    lost: bool


class TopicReader:
    """Read one topic of one partition.

    Several threads may ask for the end while another polls; all else is for one thread at a time. That
    question has a client of its own: confluent-kafka lets one thread at a time into a client, in no fair
    order, and brokers answer a connection in order, so that it would wait for a fetch that waits for records.

    Args:
        conf: librdkafka's properties, ``bootstrap.servers`` among them.
        topic: the topic.
        create: whether to create a compacted topic where there is none.
        replication_factor: of a topic that is created; -1 leaves it to the brokers.
    """

    def __init__(self, conf: Mapping[str, Any], topic: str, *, create: bool, replication_factor: int) -> None:
        from confluent_kafka import OFFSET_BEGINNING, TopicPartition  # noqa: PLC0415 - heavy

        self._conf = conf
        self._topic = topic
        self._create = create
        self._replication_factor = replication_factor
        self._beginning = TopicPartition(topic, 0, OFFSET_BEGINNING)
        self._partition = TopicPartition(topic, 0)
        self._consumer = make_consumer(conf)
        self._asker = make_consumer(conf)
        self._asking = Lock()
        self._position = -1
        self._refusal: RegistryError | None = None
        self._checked = False

    def begin(self, deadline: float) -> int:
        """Check the topic, go to its beginning, and give the offset at which it ends now.

        Args:
            deadline: when to give up, by the monotonic clock, in seconds.

        Raises:
            UnreachableError: no answer by then.
            RegistryError: there is no such topic, it has several partitions, or access is denied.
        """
        count = self._partitions(deadline)
        if count is None:
            self._make_topic(deadline)
        elif count != 1:
            raise RegistryError(
                f"topic {self._topic!r} has {count} partitions, expected one: only within a partition "
                "does the order of records stand; create a topic with one partition"
            )
        self._position, self._refusal = -1, None
        self._consumer.assign([self._beginning])
        return self.end(deadline)

    def end(self, deadline: float) -> int:
        """Return the offset at which the topic ends now, open transactions aside.

        Raises:
            UnreachableError: no answer by the deadline.
            RegistryError: access is denied.
        """
        if not self._asking.acquire(timeout=left(deadline)):
            raise UnreachableError(
                f"topic {self._topic!r}: another thread still waits for the brokers' answer"
            )
        try:
            with self._errors():
                found = self._asker.get_watermark_offsets(
                    self._partition, timeout=left(deadline), cached=False
                )
        finally:
            self._asking.release()
        if found is None:
            raise UnreachableError(f"the brokers did not say in time where topic {self._topic!r} ends")
        return int(found[1])

    def poll(self, timeout_s: float) -> Batch:
        """Wait for the next records, and take what is there.

        Raises:
            RegistryError: access is denied. Records that came before that are given first.
        """
        refusal, self._refusal = self._refusal, None
        if refusal is not None:
            raise refusal
        records: list[TableRecord] = []
        lost = False
        message = self._consumer.poll(timeout_s)
        while message is not None:
            error = message.error()
            try:
                if error is None:
                    records.append(self._record(message))
                else:
                    lost = self._is_lost(error, message)
            except RegistryError as refused:
                if not records:
                    raise
                self._refusal = refused  # the client gives these records once, and goes on behind them
                break
            message = self._consumer.poll(0) if len(records) < _BATCH and not lost else None
        return Batch(records, self._position, lost)

    def close(self) -> None:
        """Leave the brokers."""
        with self._asking:
            self._asker.close()
        self._consumer.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        from confluent_kafka import KafkaException  # noqa: PLC0415 - heavy

        try:
            yield
        except KafkaException as error:
            raise self._failure(error.args[0]) from error
        except RuntimeError as error:
            raise RegistryError(f"topic {self._topic!r}: the client is closed") from error

    def _record(self, message: Message) -> TableRecord:
        offset: Any = message.offset()
        key: Any = message.key()
        value: Any = message.value()
        self._position = offset + 1
        return TableRecord(offset, key, value)

    def _is_lost(self, error: KafkaError, message: Message) -> bool:
        code = error.code()
        if code == error._PARTITION_EOF:  # noqa: SLF001 - librdkafka's own codes are written so
            # Beyond the last record there may be marks of transactions, which are not given.
            self._position = max(self._position, message.offset() or 0)
            return False
        failed = self._failure(error)
        if not isinstance(failed, UnreachableError):
            raise failed
        _log.debug("%s", failed)
        return code in (error._AUTO_OFFSET_RESET, error.OFFSET_OUT_OF_RANGE)  # noqa: SLF001

    def _partitions(self, deadline: float) -> int | None:
        """Count the topic's partitions; None where there is no such topic."""
        with self._errors():
            metadata = self._consumer.list_topics(self._topic, timeout=left(deadline))
        found = metadata.topics[self._topic]
        if found.error is None:
            # A mock cluster names no controller that is there, and answers no such question.
            if metadata.controller_id in metadata.brokers:
                self._check_policy(deadline)
            return len(found.partitions)
        if found.error.code() == found.error.UNKNOWN_TOPIC_OR_PART:
            return None
        raise self._failure(found.error)

    def _check_policy(self, deadline: float) -> None:
        if not self._checked:
            self._checked = True
            # Brokers that do not answer this are to answer what is asked next.
            warn_of_deletion(self._conf, self._topic, timeout_s=min(_POLICY_S, left(deadline) / 2))

    def _make_topic(self, deadline: float) -> None:
        if not self._create:
            raise RegistryError(
                f"there is no topic {self._topic!r}; create it with one partition and "
                "cleanup.policy=compact, or let it be created (create=True)"
            )
        self._checked = True  # what is made here is compacted
        create_topic(
            self._conf, self._topic, replication_factor=self._replication_factor, timeout_s=left(deadline)
        )
        while not self._partitions(deadline):
            if not left(deadline):
                raise UnreachableError(f"topic {self._topic!r} was created, but is not there as yet")
            time.sleep(min(_PAUSE_S, left(deadline)))

    def _failure(self, error: KafkaError) -> RegistryError:
        return failure(f"topic {self._topic!r} cannot be read", error)
