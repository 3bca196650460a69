"""Dead letters: the original record, unchanged, with the reason in headers (spec/dead-letter.md).

Three dialects are written. Connect's dialect is decimal text (KIP-298). Spring's dialect is binary: the
partition has 4 bytes, offset and timestamp have 8, all big-endian. Our own dialect is text of at most 4,096
bytes, and also counts attempts. A fourth dialect is only read: decimal text of Kafka's brokers (KIP-1191). If
a dead letter fails again, its reason is replaced, so that it does not grow.

A stub is written if the topic refuses the original. It has no value and none of the original's headers; its
key is the original's position as text, such as ``orders[3]@42``. A dead letter without an original, such as
one for slices that never became a message, also has such a key and no value. A stub has the headers of the
reason, and these headers:

    headerware.stub.value.bytes, headerware.stub.key.bytes       the sizes, in decimal text
    headerware.stub.value.sha256, headerware.stub.key.sha256     SHA-256, in hexadecimal text
    headerware.stub.headers, headerware.stub.headers.bytes       the number of headers, and their size

If the original's value or key is null, its headers are left out.
"""

from __future__ import annotations

import hashlib
import re
import struct
import traceback
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from headerware.core.errors import SerdeError, TransformError, position
from headerware.core.headers import EMPTY, Headers, Pair
from headerware.core.record import Record
from headerware.core.topics import is_topic_name

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator
    from types import CodeType, TracebackType

    from headerware.core.errors import InterceptorError

_Lengths = tuple[int, int]
"""The longest message and the longest stack trace of a reason, in characters."""

PROCESSING: Final = "processing"
"""The name of the application's own processing among the steps."""
PROCESSING_STAGE: Final = "PROCESSING"
"""The stage of a record on which the application's own processing failed."""
SOURCE_STAGE: Final = "SOURCE"
"""The stage of a part of an object that a source could not read or send; it was never a record."""
CONNECT: Final = "__connect.errors."
SPRING: Final = "kafka_dlt-"
KAFKA: Final = "__dlq.errors."
HEADERWARE: Final = "headerware.dead_letter."
PREFIXES: Final = (CONNECT, SPRING, KAFKA, HEADERWARE)
"""The prefixes of the names of reason headers, of all dialects."""
REDRIVEN: Final = "headerware.redriven"
"""The header that says how often a record was sent back: ``COUNT`` or ``COUNT;first=MILLISECONDS``."""
Dialect = Literal["connect", "spring", "kafka", "headerware"]
"""The dialects that are read."""
STUB: Final = "headerware.stub."
_FULL: Final[_Lengths] = (4096, 4096)
_SHORTER: Final[tuple[_Lengths, ...]] = ((4096, 0), (128, 0))
_LONGEST_NAME_BYTES: Final = 255
_LONGEST_REASON_BYTES: Final = 1_024
_MAX_GIVEN_UP: Final = 10_000
_MAX_COUNT: Final = 2**31 - 1
_DIALECTS: Final[dict[str, Dialect]] = {
    CONNECT: "connect",
    SPRING: "spring",
    KAFKA: "kafka",
    HEADERWARE: "headerware",
}
_REDRIVEN_TEXT: Final = re.compile(rb"([1-9][0-9]{0,8})(?:;first=([0-9]{1,18}))?")
_TIMESTAMP_TYPES: Final = {0: b"NoTimestampType", 1: b"CreateTime", 2: b"LogAppendTime"}


def dead_letter(
    record: Record,
    error: InterceptorError,
    *,
    topic: str,
    names: str,
    stage: str,
    group_id: str | None,
    cluster: str | None,
    now_ms: int,
    lengths: _Lengths = _FULL,
) -> Record:
    """Make the record that goes to the dead-letter topic.

    In ``topic``, ``{topic}`` stands for the record's own topic. ``names`` is ``connect``, ``spring`` or
    ``headerware``; ``stage`` says what failed, such as ``ON_CONSUME``. ``cluster`` is the id of the record's
    cluster, if it is known, and ``now_ms`` the time of the failure; only our own dialect has them.
    """
    own = [pair for pair in record.headers if not pair[0].startswith(PREFIXES)]
    if names == "spring":
        reason = _spring(record, error, stage, group_id, lengths)
    elif names == "headerware":
        reason = _headerware(record, error, stage, group_id, cluster, now_ms)
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
    cluster: str | None,
    now_ms: int,
) -> Iterator[tuple[Record, bool]]:
    """Yield the dead letters to try, the most complete first, each with a flag: whether it is a stub.

    The first has the complete reason; the next ones have a shorter reason, then also no timestamp; the last
    ones are stubs, if stubs are permitted.
    """
    made_of = partial(
        dead_letter,
        error=error,
        topic=topic,
        names=names,
        stage=stage,
        group_id=group_id,
        cluster=cluster,
        now_ms=now_ms,
    )
    tried = made_of(record)
    yield tried, False
    for lengths in _SHORTER:
        candidate = made_of(record, lengths=lengths)
        if candidate != tried:
            yield candidate, False
        tried = candidate
    if tried.timestamp_ms is not None:  # the topic may refuse the timestamp
        yield tried.replace(timestamp_ms=None), False
    if not stubs:
        return
    bare = record.replace(value=None, key=None, headers=EMPTY)
    for lengths in (_FULL, *_SHORTER):
        candidate = made_of(bare, lengths=lengths)
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
            yield f"{STUB}{name}.bytes", str(len(part)).encode()
            yield f"{STUB}{name}.sha256", hashlib.sha256(part).hexdigest().encode()
    size = sum(len(name.encode()) + len(value or b"") for name, value in record.headers)
    yield f"{STUB}headers", str(len(record.headers)).encode()
    yield f"{STUB}headers.bytes", str(size).encode()


def is_dead_letter_topic(pattern: str, topic: str) -> bool:
    """Return whether a topic is a dead-letter topic by this pattern; its records get no dead letters."""
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
    """Return stage, class and exception as Connect names them if a part of Connect refused the record."""
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


def _headerware(
    record: Record,
    error: InterceptorError,
    stage: str,
    group_id: str | None,
    cluster: str | None,
    now_ms: int,
) -> list[Pair]:
    raised = _raised(error, stage)
    cause = raised.__cause__
    # The original has no headers here if a stub is made of it, so its count begins again.
    before = read_reason(record.headers)
    earlier = before.attempts if before and before.attempts else redrives(record.headers)[0]
    first_ms = before.first_failed_ms if before else redrives(record.headers)[1]
    names: dict[str, str | None] = {
        "version": _VERSION.decode(),
        "cluster": cluster,
        "topic": record.topic,
        "partition": _decimal(record.partition),
        "offset": _decimal(record.offset),
        "timestamp": _decimal(record.timestamp_ms),
        "group": group_id,
        "stage": stage,
        "step": error.step,
        "error": _class_name(raised),
        "cause": None if cause is None else _class_name(cause),
        "attempts": str(min(earlier + 1, _MAX_COUNT)),
        "first_failed": str(now_ms if first_ms is None else first_ms),
        "last_failed": str(now_ms),
    }
    reason = [(HEADERWARE + name, _cut(text, _LONGEST_NAME_BYTES)) for name, text in names.items() if text]
    return [*reason, (f"{HEADERWARE}reason", _cut(str(error), _LONGEST_REASON_BYTES))]


def _cut(text: str, size_bytes: int) -> bytes:
    """Return text in UTF-8, cut after a complete character."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= size_bytes:
        return encoded
    return encoded[: size_bytes - 3].decode("utf-8", "ignore").encode() + b"..."


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """The reason of a dead letter, read from headers of any dialect; None for facts that are not stated.

    All facts are claims of the writer of the dead letter.

    Args:
        dialect: the dialect of its header names.
        cluster: the id of the original's cluster.
        topic: the original's topic, if the text is a name that Kafka permits.
        partition: its partition.
        offset: its offset.
        timestamp_ms: its time, in milliseconds since the epoch.
        group: the consumer group that refused it.
        step: what refused it: an interceptor, or a class.
        error: the class of the error.
        reason: the error's text, cut to 4,096 characters.
        attempts: how often it has failed.
        first_failed_ms: when it failed first, in milliseconds since the epoch.
    """

    dialect: Dialect
    cluster: str | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    timestamp_ms: int | None = None
    group: str | None = None
    step: str | None = None
    error: str | None = None
    reason: str | None = None
    attempts: int | None = None
    first_failed_ms: int | None = None


_VERSION: Final = b"1"
_MAX_TEXT: Final = 4_096
_LAST_PARTITION: Final = 2**31 - 1
_LAST_OFFSET: Final = 2**63 - 1


class Origin(NamedTuple):
    """The position of a dead letter's original, as far as it is stated; as text ``orders[3]@42``."""

    topic: str
    partition: int | None
    offset: int | None

    def __str__(self) -> str:
        return position(*self)


class GivenUp:
    """The positions of records that ``run`` gave up and kept as dead letters; safe for several threads.

    An interceptor that detects duplicates has one as its ``on_stopped``. A dead letter that is sent back has
    another position. It is not a duplicate for the consumer that gave the record up, but it is a duplicate
    for all consumers that have processed the record. Each position counts once. ``key`` returns the value by
    which a record's position is remembered.
    """

    __slots__ = ("_key", "_positions")

    def __init__(self, key: Callable[[Record], Hashable]) -> None:
        self._key = key
        self._positions: dict[Hashable, None] = {}

    def __call__(
        self,
        direction: str,
        record: Record,
        step: str,
        outcome: str,
        error: BaseException | None,  # noqa: ARG002
    ) -> None:
        """Note a record, as :class:`~headerware.core.services.HearsStopped` says."""
        if direction == "consume" and step == PROCESSING and outcome == "dead_lettered":
            self._positions[self._key(record)] = None
            if len(self._positions) > _MAX_GIVEN_UP:
                self._positions.pop(next(iter(self._positions)), None)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._positions

    def discard(self, key: Hashable) -> None:
        """Forget a position after its record has come back."""
        self._positions.pop(key, None)


def read_reason(headers: Iterable[Pair]) -> Reason | None:
    """Return the reason of a dead letter; None if there is none.

    The last reason header decides the dialect, because the reason is appended to the headers. If several
    headers have one name, the last one counts.
    """
    found = [(name, value) for name, value in headers if name.startswith(PREFIXES)]
    if not found:
        return None
    last, by_name = found[-1][0], dict(found)
    prefix = next(prefix for prefix in PREFIXES if last.startswith(prefix))
    read = _READERS[_DIALECTS[prefix]]
    return read(lambda name: by_name.get(prefix + name))


def is_of_a_source(headers: Iterable[Pair]) -> bool:
    """Return whether a dead letter has a part of a source's object, which was never a record."""
    return dict(headers).get(f"{CONNECT}stage") == SOURCE_STAGE.encode()


def origin_of(headers: Iterable[Pair], found_in: str) -> Origin | None:
    """Return the position of the record that a dead letter was made of; None for other records.

    A record that is back in its own topic is no longer a dead letter, though it still has the reason.
    """
    reason = read_reason(headers)
    if reason is None or reason.topic is None or reason.topic == found_in:
        return None
    return Origin(reason.topic, reason.partition, reason.offset)


def without_reason(headers: Iterable[Pair]) -> Headers:
    """Return the original's headers: the dead letter's headers without the reason and the count."""
    ours = (*PREFIXES, STUB)
    return Headers.trusted(pair for pair in headers if not pair[0].startswith(ours) and pair[0] != REDRIVEN)


def redrives(headers: Iterable[Pair]) -> tuple[int, int | None]:
    """Return how often a record was sent back from a dead-letter topic, and when it failed first, if known.

    If there are several counts, the largest one is returned, so that nobody can hide it by adding a smaller
    one.
    """
    counts: list[tuple[int, int | None]] = [(0, None)]
    for name, value in headers:
        if name == REDRIVEN and (match := _REDRIVEN_TEXT.fullmatch(value or b"")):
            counts.append((int(match[1]), int(match[2]) if match[2] else None))
    return max(counts, key=lambda each: each[0])


def redriven(headers: Headers, count: int, first_failed_ms: int | None) -> Headers:
    """Return headers with the count of redrives appended."""
    first = "" if first_failed_ms is None else f";first={first_failed_ms}"
    return Headers.trusted([*headers, (REDRIVEN, f"{count}{first}".encode())])


def _read_connect(get: Callable[[str], bytes | None]) -> Reason:
    return Reason(
        dialect="connect",
        topic=_topic(get("topic")),
        partition=_number(get("partition"), _LAST_PARTITION),
        offset=_number(get("offset"), _LAST_OFFSET),
        step=_text(get("class.name")),
        error=_text(get("exception.class.name")),
        reason=_text(get("exception.message")),
    )


def _read_spring(get: Callable[[str], bytes | None]) -> Reason:
    return Reason(
        dialect="spring",
        topic=_topic(get("original-topic")),
        partition=_binary(get("original-partition"), 4),
        offset=_binary(get("original-offset"), 8),
        timestamp_ms=_binary(get("original-timestamp"), 8),
        group=_text(get("original-consumer-group")),
        error=_text(get("exception-fqcn")),
        reason=_text(get("exception-message")),
    )


def _read_kafka(get: Callable[[str], bytes | None]) -> Reason:
    return Reason(
        dialect="kafka",
        topic=_topic(get("topic")),
        partition=_number(get("partition"), _LAST_PARTITION),
        offset=_number(get("offset"), _LAST_OFFSET),
        group=_text(get("group")),
        reason=_text(get("message")),
        attempts=_number(get("delivery.count"), _MAX_COUNT) or None,
    )


def _read_headerware(get: Callable[[str], bytes | None]) -> Reason:
    if get("version") not in (None, _VERSION):
        return Reason(dialect="headerware")  # a later layout may mean something else by the same names
    return Reason(
        dialect="headerware",
        cluster=_text(get("cluster")),
        topic=_topic(get("topic")),
        partition=_number(get("partition"), _LAST_PARTITION),
        offset=_number(get("offset"), _LAST_OFFSET),
        timestamp_ms=_number(get("timestamp"), _LAST_OFFSET),
        group=_text(get("group")),
        step=_text(get("step")),
        error=_text(get("error")),
        reason=_text(get("reason")),
        attempts=_number(get("attempts"), _MAX_COUNT) or None,
        first_failed_ms=_number(get("first_failed"), 10**18 - 1),
    )


_READERS: Final[dict[Dialect, Callable[[Callable[[str], bytes | None]], Reason]]] = {
    "connect": _read_connect,
    "spring": _read_spring,
    "kafka": _read_kafka,
    "headerware": _read_headerware,
}


def _text(value: bytes | None) -> str | None:
    return None if value is None else value[: 4 * _MAX_TEXT].decode("utf-8", "replace")[:_MAX_TEXT]


def _topic(value: bytes | None) -> str | None:
    text = _text(value)
    return text if text and is_topic_name(text) else None


def _number(value: bytes | None, largest: int) -> int | None:
    if value is None or not re.fullmatch(rb"[0-9]{1,19}", value):
        return None
    number = int(value)
    return number if number <= largest else None


def _binary(value: bytes | None, size_bytes: int) -> int | None:
    if value is None or len(value) != size_bytes:
        return None
    number = int.from_bytes(value, signed=True)
    return number if number >= 0 else None


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
    found = _formatted(error.__traceback__)
    cause = error.__cause__
    if cause is not None and cause.__traceback__ is not error.__traceback__:
        found += _formatted(cause.__traceback__)
    return found[-limit:]


_MAX_STACKTRACES: Final = 1_000
_MAX_CALLS: Final = 100
_stacktraces: Final[dict[tuple[int, ...], tuple[str, list[CodeType]]]] = {}
"""The text of each stack trace, by its calls: refused records have few, and to format one takes 0.2 ms.

A call is the id of its code, which is kept alive with the text, and the instruction.
"""


def _formatted(raised_through: TracebackType | None) -> str:
    codes: list[CodeType] = []
    calls: list[int] = []
    step = raised_through
    while step is not None:
        code = step.tb_frame.f_code
        codes.append(code)
        calls += id(code), step.tb_lasti
        step = step.tb_next
    known = _stacktraces.get(tuple(calls))
    if known is None:
        known = "".join(traceback.extract_tb(raised_through).format()), codes
        if len(_stacktraces) >= _MAX_STACKTRACES:
            _stacktraces.clear()
        if len(codes) <= _MAX_CALLS:  # a deep recursion can have as many traces as there are values
            _stacktraces[tuple(calls)] = known
    return known[0]
