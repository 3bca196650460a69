"""Dead letters: the untouched original, with the reason in header names that others know.

Connect's are decimal text (KIP-298), Spring's are binary: the partition 4 bytes, offset and timestamp 8,
big-endian. A letter that fails again gets its reason replaced, so that it does not grow.
"""

from __future__ import annotations

import struct
import traceback
from typing import TYPE_CHECKING, Final

from headerware.core.errors import SerdeError, TransformError
from headerware.core.headers import Headers, Pair
from headerware.core.record import Record

if TYPE_CHECKING:
    from headerware.core.errors import InterceptorError

CONNECT: Final = "__connect.errors."
SPRING: Final = "kafka_dlt-"
_PREFIXES: Final = (CONNECT, SPRING)
_STACKTRACE_LIMIT: Final = 4096
_MESSAGE_LIMIT: Final = 4096
_TIMESTAMP_TYPES: Final = {0: b"NoTimestampType", 1: b"CreateTime", 2: b"LogAppendTime"}


def dead_letter(
    record: Record, error: InterceptorError, *, topic: str, names: str, stage: str, group_id: str | None
) -> Record:
    """Make the record that goes to the dead-letter topic.

    Args:
        record: the original, as it came.
        error: why it was refused.
        topic: the dead-letter topic; ``{topic}`` in it stands for the record's own.
        names: ``connect`` or ``spring``.
        stage: what failed, such as ``ON_CONSUME``.
        group_id: the consumer group, or None.
    """
    own = [pair for pair in record.headers if not pair[0].startswith(_PREFIXES)]
    reason = _spring(record, error, group_id) if names == "spring" else _connect(record, error, stage)
    return Record(
        topic=topic.replace("{topic}", record.topic),
        value=record.value,
        key=record.key,
        headers=Headers.trusted([*own, *reason]),
        timestamp_ms=record.timestamp_ms,
    )


def is_dead_letter_topic(pattern: str, topic: str) -> bool:
    """Whether a topic is one that dead letters of this pattern go to, so that none goes round twice."""
    before, variable, after = pattern.partition("{topic}")
    if not variable:
        return topic == pattern
    longer = len(topic) > len(before) + len(after)
    return longer and topic.startswith(before) and topic.endswith(after)


def _connect(record: Record, error: InterceptorError, stage: str) -> list[Pair]:
    stage, component, exception = _of_connect(error) or (stage, error.step, _class_name(error))
    reason: dict[str, str | None] = {
        "topic": record.topic,
        "partition": _decimal(record.partition),
        "offset": _decimal(record.offset),
        "stage": stage,
        "class.name": component,
        "exception.class.name": exception,
        "exception.message": _message(error),
        "exception.stacktrace": _stacktrace(error),
    }
    return [(CONNECT + name, text.encode()) for name, text in reason.items() if text is not None]


def _of_connect(error: InterceptorError) -> tuple[str, str | None, str | None] | None:
    """Give stage, class and exception in Connect's own words, where a part of Connect's refused a record."""
    if isinstance(error, TransformError):
        return "TRANSFORMATION", error.transform or error.step, error.java or _class_name(error)
    if isinstance(error, SerdeError) and error.converter and error.part:
        return f"{error.part.upper()}_CONVERTER", error.converter, error.java
    return None


def _spring(record: Record, error: InterceptorError, group_id: str | None) -> list[Pair]:
    cause = error.__cause__
    reason: dict[str, bytes | None] = {
        "original-topic": record.topic.encode(),
        "original-partition": None if record.partition is None else struct.pack(">i", record.partition),
        "original-offset": None if record.offset is None else struct.pack(">q", record.offset),
        "original-timestamp": None if record.timestamp_ms is None else struct.pack(">q", record.timestamp_ms),
        "original-timestamp-type": _TIMESTAMP_TYPES.get(record.timestamp_type),
        "original-consumer-group": None if group_id is None else group_id.encode(),
        "exception-fqcn": _class_name(error).encode(),
        "exception-cause-fqcn": None if cause is None else _class_name(cause).encode(),
        "exception-message": _message(error).encode(),
        "exception-stacktrace": _stacktrace(error).encode(),
    }
    return [(SPRING + name, value) for name, value in reason.items() if value is not None]


def _decimal(number: int | None) -> str | None:
    return None if number is None else str(number)


def _class_name(error: BaseException) -> str:
    return f"{type(error).__module__}.{type(error).__qualname__}"


def _message(error: InterceptorError) -> str:
    """Give what was wrong, but not at any length: a record's names may stand in it."""
    text = str(error)
    return text if len(text) <= _MESSAGE_LIMIT else f"{text[:_MESSAGE_LIMIT]}..."


def _stacktrace(error: InterceptorError) -> str:
    """Give where it happened, without the causes' texts, which may quote a payload."""
    frames = traceback.extract_tb(error.__traceback__)
    cause = error.__cause__
    if cause is not None and cause.__traceback__ is not error.__traceback__:
        frames.extend(traceback.extract_tb(cause.__traceback__))
    return "".join(frames.format())[-_STACKTRACE_LIMIT:]
