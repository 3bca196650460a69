"""What an application hears of a refused record, in confluent-kafka's own terms.

Serde errors are ours, and confluent-kafka's serializing clients' at once: an application that catches
``ValueSerializationError`` or ``SerializationError`` of confluent-kafka catches them, and so does one that
catches :class:`headerware.SerdeError`. An application that does not know of Headerware gets a message whose
``error()`` is a :class:`RefusedRecordError`.
"""

from __future__ import annotations

from typing import Final, Literal

import confluent_kafka.error as theirs
from confluent_kafka import KafkaError, Message

from headerware.clients.codes import (
    BAD_MSG,
    KEY_DESERIALIZATION,
    KEY_SERIALIZATION,
    RETRY,
    VALUE_DESERIALIZATION,
    VALUE_SERIALIZATION,
)
from headerware.clients.offsets import Place
from headerware.core.errors import HeaderwareError, HeldBackError, InterceptorError, SerdeError


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
    """What the chain refused it with."""


def as_message(error: HeaderwareError, place: Place, offset: int | None) -> Message:
    """Make the message that stands for a refused record: its place and why, and none of its parts."""
    code, text = BAD_MSG, str(error)
    if isinstance(error, HeldBackError):
        code, text = RETRY, f"{text}; it is tried again, and nothing behind it is read until then"
    else:
        if isinstance(error, SerdeError) and error.part is not None:
            code = _CLASSES["consume", error.part][1]
        text += "; the record is passed over, and its offset counts as consumed"
        if isinstance(error, InterceptorError) and error.step not in {None, "chain"}:
            text += f" (on_error = 'dead_letter' of {error.step!r} keeps such records)"
    refusal = RefusedRecordError(code, text, False, code == RETRY)  # noqa: FBT003 - fatal and retriable, by position only
    refusal.cause = error
    topic, partition = place
    return Message(topic, partition, -1 if offset is None else offset, None, None, None, refusal)


def as_client_error(
    error: HeaderwareError, direction: Literal["send", "consume"], message: Message | None = None
) -> HeaderwareError:
    """Give a serde's error as one that confluent-kafka's serializing clients raise, too; any other as it is.

    Args:
        error: what the chain refused a record with.
        direction: where it was refused.
        message: the message that was being deserialized.
    """
    found = _CLASSES.get((direction, error.part)) if isinstance(error, SerdeError) else None
    if found is None or not isinstance(error, SerdeError):
        return error
    kind, code = found
    raised: SerdeError = kind.__new__(kind)
    raised.args = (KafkaError(code, error.message),)
    # What a serde itself raised, unless it is one of our own errors that says more than its cause.
    inner = error.__cause__ if type(error) is SerdeError and error.__cause__ is not None else error
    raised.__dict__.update(error.__dict__, exception=inner, kafka_message=message)
    raised.__cause__ = inner
    return raised.with_traceback(error.__traceback__)
