"""Answer for records that a consumer's chain refuses.

- The application is told once, in confluent-kafka's own terms. Serde errors belong to both hierarchies: an
  application catches them as confluent-kafka's ``ValueSerializationError`` or ``SerializationError``, or as
  :class:`headerware.SerdeError`. An application that does not know of Headerware gets a message whose
  ``error()`` is a :class:`RefusedRecordError`.
- The offset after the record is committed at once (:class:`RefusedOffsets`). Otherwise an application that
  dies of the error would get the record again after a restart.
- If the dead letter could not be stored, or no step could judge the record, the record is not passed over:
  the stream waits and tries again, with pauses that grow (``Retries`` in ``delivery.py``).
"""

from __future__ import annotations

import atexit
import logging
import os
import time
from typing import Any, Final, Literal
from weakref import WeakKeyDictionary

import confluent_kafka.error as theirs
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition, cimpl

from headerware.clients.messages import message_of
from headerware.clients.offsets import topic_partition_of
from headerware.clients.raw import (
    BAD_MSG,
    KEY_DESERIALIZATION,
    KEY_SERIALIZATION,
    RETRY,
    VALUE_DESERIALIZATION,
    VALUE_SERIALIZATION,
)
from headerware.core.commit_metadata import decode_metadata
from headerware.core.errors import HeaderwareError, HeldBackError, InterceptorError, SerdeError
from headerware.core.services import TopicPartitionKey

_C: Final[Any] = cimpl.Consumer
_BETWEEN_COMMITS_S: Final = 0.1
_COMMIT_TIMEOUT_S: Final = 2.0
_AFTER_A_FAILURE_S: Final = 5.0
_log: Final = logging.getLogger("headerware")

# Errors for the application


class KeySerializationError(SerdeError, theirs.KeySerializationError):
    """A key that could not be serialized."""


class ValueSerializationError(SerdeError, theirs.ValueSerializationError):
    """A value that could not be serialized."""


class KeyDeserializationError(SerdeError, theirs.KeyDeserializationError):
    """A key that could not be deserialized; ``kafka_message`` is the message that held it."""


class ValueDeserializationError(SerdeError, theirs.ValueDeserializationError):
    """A value that could not be deserialized; ``kafka_message`` is the message that held it."""


_CLASSES: Final[dict[tuple[str, str | None], tuple[type[SerdeError], int]]] = {
    ("send", "key"): (KeySerializationError, KEY_SERIALIZATION),
    ("send", "value"): (ValueSerializationError, VALUE_SERIALIZATION),
    ("consume", "key"): (KeyDeserializationError, KEY_DESERIALIZATION),
    ("consume", "value"): (ValueDeserializationError, VALUE_DESERIALIZATION),
}


class RefusedRecordError(KafkaError):
    """The error of a message that stands for a refused record."""

    cause: HeaderwareError
    """The error with which the chain refused the record."""


class RefusedMessage(Message):
    """A message that stands for a refused record; its length is that of the error's text.

    So it is true, as confluent-kafka's error events are, and ``if not message: continue`` does not lose it.
    """

    __slots__ = ()

    def __len__(self) -> int:
        """Return the length of the error's text."""
        error = self.error()
        return 0 if error is None else len(error.str())

    def plain(self) -> Message:
        """Return it as a message of confluent-kafka's own class, because its commits take no other."""
        return Message(self.topic(), self.partition(), self.offset(), None, None, None, self.error())


def as_message(error: HeaderwareError, topic_partition: TopicPartitionKey, offset: int | None) -> Message:
    """Make the message that stands for a refused record: position and reason, without payload."""
    code, text = BAD_MSG, str(error)
    if isinstance(error, HeldBackError):
        code, text = RETRY, f"{text}; it is tried again, and nothing after it is read until then"
    else:
        if isinstance(error, SerdeError) and error.part is not None:
            code = _CLASSES["consume", error.part][1]
        text += "; the record is passed over: its message has error() and no value, and its offset counts as "
        text += "consumed"
        if isinstance(error, InterceptorError) and error.step not in {None, "chain"}:
            text += f" (on_error = 'dead_letter' of {error.step!r} keeps such records)"
    refusal = RefusedRecordError(code, text, False, code == RETRY)  # noqa: FBT003 - fatal and retriable, by position only
    refusal.cause = error
    topic, partition = topic_partition
    return RefusedMessage(topic, partition, -1 if offset is None else offset, None, None, None, refusal)


def as_client_error(
    error: HeaderwareError, direction: Literal["send", "consume"], message: Message | None = None
) -> HeaderwareError:
    """Return a serde's error as an error of confluent-kafka's serializing clients, too; others unchanged."""
    found = _CLASSES.get((direction, error.part)) if isinstance(error, SerdeError) else None
    if found is None or not isinstance(error, SerdeError):
        return error
    kind, code = found
    raised: SerdeError = kind.__new__(kind)
    raised.args = (KafkaError(code, error.message),)
    # The serde's own exception, unless one of our errors says more than its cause.
    inner = error.__cause__ if type(error) is SerdeError and error.__cause__ is not None else error
    raised.__dict__.update(error.__dict__, exception=inner, kafka_message=message)
    raised.__cause__ = inner
    return raised.with_traceback(error.__traceback__)


def raisable(error: HeaderwareError) -> HeaderwareError:
    """Return the error of a refused record as the application gets it raised."""
    record = getattr(error, "last_record", None)
    return as_client_error(error, "consume", None if record is None else message_of(record))


# The offset after a refused record


class RefusedOffsets(dict[TopicPartitionKey, TopicPartition]):
    """Offsets after refused records that are not committed yet.

    Such an offset is committed at once. In a flood of refused records, a later call commits the offsets
    together, or the end of the consumer or of the process does. This holds no reference to the consumer.
    """

    def __init__(self) -> None:
        super().__init__()
        self._next_commit = 0.0

    def commit_soon(self, consumer: Any, offset: TopicPartition) -> None:
        """Commit an offset at once; in a flood of them, commit it later."""
        if time.monotonic() >= self._next_commit:
            self.pop(topic_partition_of(offset), None)
            self._commit_at_once(consumer, [offset])
            return
        self[topic_partition_of(offset)] = offset
        _uncommitted[consumer] = self

    def commit_if_due(self, consumer: Any) -> None:
        """Commit the remaining offsets, unless the last commit was a moment ago."""
        if time.monotonic() >= self._next_commit:
            self.commit(consumer)

    def commit(self, consumer: Any) -> None:
        """Commit the remaining offsets, except offsets below what is committed already."""
        left = list(self.values())
        if not left:
            return
        try:
            found = _C.committed(consumer, left, _COMMIT_TIMEOUT_S)
            known = {topic_partition_of(partition): _reach(partition) for partition in found}
        except (KafkaException, RuntimeError) as error:
            self._not_committed(error)
            return
        further = [offset for offset in left if _reach(offset) > known[topic_partition_of(offset)]]
        self._commit_at_once(consumer, further)
        self.clear()
        _uncommitted.pop(consumer, None)

    def _commit_at_once(self, consumer: Any, offsets: list[TopicPartition]) -> None:
        self._next_commit = time.monotonic() + _BETWEEN_COMMITS_S
        if not offsets:
            return
        try:
            _C.commit(consumer, offsets=offsets, asynchronous=True)
            # A synchronous commit has no timeout. The coordinator answers in order, so the commit is done.
            _C.committed(consumer, offsets, _COMMIT_TIMEOUT_S)
        except (KafkaException, RuntimeError) as error:
            self._not_committed(error)

    def _not_committed(self, error: Exception) -> None:
        _log.warning("the offset after a refused record was not committed at once: %s", str(error))
        # Wait before the next commit: each call would wait for an answer that does not come.
        self._next_commit = time.monotonic() + _AFTER_A_FAILURE_S


_uncommitted: Final[WeakKeyDictionary[Any, RefusedOffsets]] = WeakKeyDictionary()
"""Consumers whose application was told of refused records, with offsets that are not committed yet."""


def _commit_at_exit() -> None:
    for consumer, offsets in list(_uncommitted.items()):
        offsets.commit(consumer)


def _forget_in_child() -> None:
    """Leave the offsets to the parent: a forked child has neither its threads nor its membership."""
    for offsets in list(_uncommitted.values()):
        offsets.clear()
    _uncommitted.clear()


atexit.register(_commit_at_exit)
os.register_at_fork(after_in_child=_forget_in_child)


def _reach(partition: TopicPartition) -> tuple[int, int]:
    """Return the offset of a commit, and its watermark."""
    return partition.offset, decode_metadata(partition.offset, partition.metadata).position or 0
