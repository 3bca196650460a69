"""Dead letters: the untouched original, with the reason in headers of Kafka Connect or Spring.

Connect's are decimal text (KIP-298), Spring's are binary: the partition 4 bytes, offset and timestamp 8,
big-endian. If a dead letter fails again, its reason is replaced, so that it does not grow.

A stub stands for an original that the topic does not take. It has no value and none of the original's
headers; its key is the original's position as text, such as ``orders[3]@42``. A dead letter without an
original, such as that of slices that never became a message, has such a key and no value, too. Beside the
reason a stub has

    headerware.stub.value.bytes, headerware.stub.key.bytes       the sizes, in decimal text
    headerware.stub.value.sha256, headerware.stub.key.sha256     SHA-256, in hexadecimal text
    headerware.stub.headers, headerware.stub.headers.bytes       how many there were, and their size

without those of a null value or key.
"""

from __future__ import annotations

import hashlib
import struct
import traceback
from io import BytesIO
from typing import TYPE_CHECKING, Final

from headerware.core.errors import SerdeError, TransformError, position
from headerware.core.headers import EMPTY, Headers, Pair
from headerware.core.record import Record
from headerware.core.stored_bytes import StoredBytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headerware.core.errors import InterceptorError

_Lengths = tuple[int, int]
"""The longest message and the longest stack trace of a reason, in characters."""

PROCESSING_STAGE: Final = "PROCESSING"
"""The stage of a record on which the application's own processing failed."""
CONNECT: Final = "__connect.errors."
SPRING: Final = "kafka_dlt-"
_PREFIXES: Final = (CONNECT, SPRING)
_STUB: Final = "headerware.stub."
_FULL: Final[_Lengths] = (4096, 4096)
_SHORTER: Final[tuple[_Lengths, ...]] = ((4096, 0), (128, 0))
_DIGITS: Final = 20
_TIMESTAMP_TYPES: Final = {0: b"NoTimestampType", 1: b"CreateTime", 2: b"LogAppendTime"}


def dead_letter(
    record: Record,
    error: InterceptorError,
    *,
    topic: str,
    names: str,
    stage: str,
    group_id: str | None,
    lengths: _Lengths = _FULL,
) -> Record:
    """Make the record that goes to the dead-letter topic.

    In ``topic``, ``{topic}`` stands for the record's own. ``names`` is ``connect`` or ``spring``; ``stage``
    says what failed, such as ``ON_CONSUME``.
    """
    own = [pair for pair in record.headers if not pair[0].startswith(_PREFIXES)]
    if names == "spring":
        reason = _spring(record, error, stage, group_id, lengths)
    else:
        reason = _connect(record, error, stage, lengths)
    return Record(
        topic=topic.replace("{topic}", record.topic),
        value=record.value,
        key=record.key,
        headers=Headers.trusted([*own, *reason]),
        timestamp_ms=record.timestamp_ms,
    )


def dead_letters(
    record: Record,
    error: InterceptorError,
    *,
    stubs: bool,
    topic: str,
    names: str,
    stage: str,
    group_id: str | None,
) -> Iterator[tuple[Record, bool]]:
    """Make the dead letters to try, the best first, each with whether it is only a stub.

    First comes one with the whole reason, then those with a shorter reason, one without the time, then stubs,
    if they are permitted.
    """

    def made_of(original: Record) -> Iterator[Record]:
        for lengths in (_FULL, *_SHORTER):
            yield dead_letter(
                original, error, topic=topic, names=names, stage=stage, group_id=group_id, lengths=lengths
            )

    tried: Record | None = None
    for candidate in made_of(record):
        if candidate != tried:
            yield candidate, False
        tried = candidate
    if tried is not None and tried.timestamp_ms is not None:  # it may be the time that the topic refuses
        yield tried.replace(timestamp_ms=None), False
    if not stubs:
        return
    for candidate in made_of(record.replace(value=None, key=None, headers=EMPTY)):
        stub = candidate.replace(
            key=position(record.topic, record.partition, record.offset).encode(),
            headers=Headers.trusted([*candidate.headers, *_stub_headers(record)]),
            timestamp_ms=None,
        )
        yield stub, True


def _stub_headers(record: Record) -> Iterator[Pair]:
    """Yield the headers that describe the record in its stub."""
    for name, part in (("value", record.value), ("key", record.key)):
        if part is not None:
            yield f"{_STUB}{name}.bytes", str(len(part)).encode()
            with part.open() if isinstance(part, StoredBytes) else BytesIO(part) as file:
                yield f"{_STUB}{name}.sha256", hashlib.file_digest(file, "sha256").hexdigest().encode()
    size = sum(len(name.encode()) + len(value or b"") for name, value in record.headers)
    yield f"{_STUB}headers", str(len(record.headers)).encode()
    yield f"{_STUB}headers.bytes", str(size).encode()


def origin_of(headers: Headers, found_in: str) -> str | None:
    """Return the position of the record that a dead letter was made of, as text; None for other records.

    A record that is back in its own topic is no dead letter any more, though the reason is still there.
    """
    topic = headers.last(CONNECT + "topic")
    if topic is not None:
        texts = (headers.last(CONNECT + name) or b"" for name in ("partition", "offset"))
        numbers = [int(text) if text.isdigit() and len(text) < _DIGITS else None for text in texts]
    else:
        topic = headers.last(SPRING + "original-topic")
        values = (headers.last(SPRING + name) or b"" for name in ("original-partition", "original-offset"))
        numbers = [
            int.from_bytes(value, "big") if len(value) == size else None
            for value, size in zip(values, (4, 8), strict=True)
        ]
    name = None if topic is None else topic.decode("utf-8", "replace")
    return None if name is None or name == found_in else position(name, *numbers)


def is_dead_letter_topic(pattern: str, topic: str) -> bool:
    """Return whether dead letters of this pattern go to a topic, so that none goes round twice."""
    before, variable, after = pattern.partition("{topic}")
    if not variable:
        return topic == pattern
    longer = len(topic) > len(before) + len(after)
    return longer and topic.startswith(before) and topic.endswith(after)


def _connect(record: Record, error: InterceptorError, stage: str, lengths: _Lengths) -> list[Pair]:
    stage, component, exception = _of_connect(error) or (
        stage,
        error.step,
        _class_name(_raised(error, stage)),
    )
    reason: dict[str, str | None] = {
        "topic": record.topic,
        "partition": _decimal(record.partition),
        "offset": _decimal(record.offset),
        "stage": stage,
        "class.name": component,
        "exception.class.name": exception,
        "exception.message": _message(error, lengths),
        "exception.stacktrace": _stacktrace(error, lengths),
    }
    return [(CONNECT + name, text.encode()) for name, text in reason.items() if text is not None]


def _of_connect(error: InterceptorError) -> tuple[str, str | None, str | None] | None:
    """Return stage, class and exception in Connect's own words if a part of Connect refused the record."""
    if isinstance(error, TransformError):
        return "TRANSFORMATION", error.transform or error.step, error.java or _class_name(error)
    if isinstance(error, SerdeError) and error.converter and error.part:
        return f"{error.part.upper()}_CONVERTER", error.converter, error.java
    return None


def _spring(
    record: Record, error: InterceptorError, stage: str, group_id: str | None, lengths: _Lengths
) -> list[Pair]:
    raised = _raised(error, stage)
    cause = raised.__cause__
    stacktrace = _stacktrace(error, lengths)
    reason: dict[str, bytes | None] = {
        "original-topic": record.topic.encode(),
        "original-partition": None if record.partition is None else struct.pack(">i", record.partition),
        "original-offset": None if record.offset is None else struct.pack(">q", record.offset),
        "original-timestamp": None if record.timestamp_ms is None else struct.pack(">q", record.timestamp_ms),
        "original-timestamp-type": _TIMESTAMP_TYPES.get(record.timestamp_type),
        "original-consumer-group": None if group_id is None else group_id.encode(),
        "exception-fqcn": _class_name(raised).encode(),
        "exception-cause-fqcn": None if cause is None else _class_name(cause).encode(),
        "exception-message": _message(error, lengths).encode(),
        "exception-stacktrace": None if stacktrace is None else stacktrace.encode(),
    }
    return [(SPRING + name, value) for name, value in reason.items() if value is not None]


def _decimal(number: int | None) -> str | None:
    return None if number is None else str(number)


def _raised(error: InterceptorError, stage: str) -> BaseException:
    """Return the exception that the dead letter names: the application's own if its processing failed."""
    return error.__cause__ if stage == PROCESSING_STAGE and error.__cause__ is not None else error


def _class_name(error: BaseException) -> str:
    return f"{type(error).__module__}.{type(error).__qualname__}"


def _message(error: InterceptorError, lengths: _Lengths) -> str:
    """Return the error's text, cut to a length, for it may have names from the record in it."""
    text, limit = str(error), lengths[0]
    return text if len(text) <= limit else f"{text[:limit]}..."


def _stacktrace(error: InterceptorError, lengths: _Lengths) -> str | None:
    """Return the frames of the error and its cause, without the cause's text, which may quote a payload."""
    limit = lengths[1]
    if not limit:
        return None
    frames = traceback.extract_tb(error.__traceback__)
    cause = error.__cause__
    if cause is not None and cause.__traceback__ is not error.__traceback__:
        frames.extend(traceback.extract_tb(cause.__traceback__))
    return "".join(frames.format())[-limit:]
