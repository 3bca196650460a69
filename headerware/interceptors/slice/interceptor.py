"""The interceptor ``slice``: its options, and the splitting of large records on send."""

from __future__ import annotations

import os
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

from msgspec import Meta

from headerware.core.errors import ConfigError, InterceptorError
from headerware.core.headers import EMPTY, Headers
from headerware.core.hooks import FanOut, Interceptor, Place, Role
from headerware.core.native import NativeForm, NativeState
from headerware.interceptors.slice.header import HEADER_BYTES, ID_BYTES, MAX_SLICES, SLICE_HEADER, SliceHeader
from headerware.interceptors.slice.reassembly import Reassembler

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headerware.core.batch import Batch
    from headerware.core.context import Context
    from headerware.core.record import Record
    from headerware.core.services import Direction

_DEFAULT_MAX_BYTES: Final = 900_000

# A record batch with one record: 61 bytes of batch header; then, as the longest varints that they can be,
# length, timestamp delta, offset delta, the lengths of key and value and the count of headers; and the
# attributes.
_FRAME_BYTES: Final = 61 + 5 + 10 + 5 + 5 + 5 + 5 + 1
_HEADER_FRAME_BYTES: Final = 10
_SLICE_HEADER_BYTES: Final = _HEADER_FRAME_BYTES + len(SLICE_HEADER) + HEADER_BYTES
_NO_DISK: Final = (
    "slice keeps messages in memory; claim_check stores large values beside Kafka, so that a record carries "
    "only where its value is"
)
_NO_COMPACTION: Final = (
    "compaction would keep one slice of a message; claim_check stores large values of compacted topics "
    'beside Kafka, so leave these topics out of slice (topics = ["*", "!customers"])'
)
_UTF8_MAX_BYTES: Final = 4


class Slice(Interceptor, frozen=True, kw_only=True):
    """Split large messages into slices on send, and reassemble them on consume.

    Slices of different partitions never mix. A message whose slices contradict one another is refused at
    once; a message that stays incomplete is given up, with a ``ReassemblyError`` from ``poll``. With
    ``on_error = "dead_letter"``, the slices of such a message that have arrived become dead letters. A
    message that arrives twice is delivered twice, like any record; ``dedup`` drops copies.

    Args:
        max_bytes: the size in bytes above which a record is split, and the largest size of a slice. It is
            the size of the record on the wire, with key, headers and framing, and with the bytes that the
            steps to the right add, which may be up to half of it. None means 900,000, or the client's largest
            message if that is less.
        max_message_bytes: the largest message that is split or reassembled, in bytes.
        max_pending_bytes: how many bytes incomplete messages may hold together.
        max_pending_messages: how many messages may be incomplete at a time; the oldest is given up for a
            newer one.
        expire_ms: how long an incomplete message waits for its next slice, in milliseconds.
        max_gap: how many offsets an incomplete message waits for its next slice.

    Raises:
        ConfigError: ``max_pending_bytes`` is smaller than ``max_message_bytes``; on opening, ``max_bytes`` is
            larger than the client's largest message.
    """

    type: ClassVar[str] = "slice"
    role: ClassVar[Role] = Role.TRANSFORM
    place: ClassVar[Place | None] = Place.SLICE
    decodes: ClassVar[tuple[str, ...]] = (SLICE_HEADER,)
    atomic: ClassVar[bool] = True
    splits: ClassVar[bool] = True
    removed: ClassVar[dict[str, str]] = {
        "compacted_topics": _NO_COMPACTION,
        "stream_above_bytes": _NO_DISK,
        "stream_folder": _NO_DISK,
    }

    max_bytes: Annotated[int, Meta(ge=1_000, le=1_000_000_000)] | None = None
    max_message_bytes: Annotated[int, Meta(ge=1)] = 256 * 1024 * 1024
    max_pending_bytes: Annotated[int, Meta(ge=1)] = 512 * 1024 * 1024
    max_pending_messages: Annotated[int, Meta(ge=1)] = 1_000
    expire_ms: Annotated[int, Meta(ge=1)] = 300_000
    max_gap: Annotated[int, Meta(ge=1)] = 20_000

    def __post_init__(self) -> None:
        """Refuse options that contradict one another."""
        if self.max_pending_bytes < self.max_message_bytes:
            raise ConfigError(
                f"expected at least max_message_bytes ({self.max_message_bytes}), found "
                f"{self.max_pending_bytes}: the largest message could never be reassembled",
                path="max_pending_bytes",
            )

    @property
    def carries_bytes(self) -> tuple[int, int]:
        """The size above which this step splits messages, and the largest message that it splits."""
        return self.max_bytes or _DEFAULT_MAX_BYTES, self.max_message_bytes

    def open(self, context: Context) -> SliceStep:
        """Return the hooks of one session.

        Raises:
            ConfigError: ``max_bytes`` is larger than the client's largest message.
        """
        max_bytes = _limit(self.max_bytes, context)
        splitter = Splitter(context, max_bytes=max_bytes, max_message_bytes=self.max_message_bytes)
        reassembler = Reassembler(
            context.now_ms,
            max_message_bytes=self.max_message_bytes,
            max_pending_bytes=self.max_pending_bytes,
            max_pending_messages=self.max_pending_messages,
            expire_ms=self.expire_ms,
            max_gap=self.max_gap,
            dead_letters=self.on_error == "dead_letter",
        )
        return SliceStep(splitter, reassembler)


class SliceStep:
    """The hooks of one session; its two directions share nothing but the statistics."""

    __slots__ = (
        "_reassembler",
        "_splitter",
        "close",
        "is_due",
        "on_consume",
        "on_consume_batch",
        "on_send",
        "on_send_batch",
        "poll",
        "reached",
        "revoke",
        "safe_offset",
        "safe_offsets",
        "seek",
        "waiting_offsets",
    )

    def __init__(self, splitter: Splitter, reassembler: Reassembler) -> None:
        self._splitter = splitter
        self._reassembler = reassembler
        self.on_send: Final = splitter.on_send
        self.on_send_batch: Final = splitter.on_send_batch
        self.on_consume: Final = reassembler.on_consume
        self.on_consume_batch: Final = reassembler.on_consume_batch
        self.poll: Final = reassembler.poll
        self.is_due: Final = reassembler.is_due
        self.revoke: Final = reassembler.revoke
        self.seek: Final = reassembler.seek
        self.safe_offset: Final = reassembler.safe_offset
        self.safe_offsets: Final = reassembler.safe_offsets
        self.waiting_offsets: Final = reassembler.waiting_offsets
        self.reached: Final = reassembler.reached
        self.close: Final = reassembler.close

    def native_form(self, direction: Direction, topic: str) -> NativeForm:  # noqa: ARG002 - as asked for
        """Return the native form of a batch hook: whatever is split or reassembled is left to Python."""
        if direction == "send":
            fits = NativeState("fits", None, lambda: (self._splitter.fits_bytes,))
            return NativeForm(lambda _batch: fits)
        unsliced = NativeState("unsliced", None, tuple)
        return NativeForm(lambda _batch: None if self._reassembler.is_waiting() else unsliced)

    def stats(self) -> dict[str, int]:
        """Return the counters of both directions."""
        return {**self._splitter.stats(), **self._reassembler.stats()}


class Splitter:
    """Split records that are too large for the wire; safe for several threads at once."""

    __slots__ = (
        "_context",
        "_lock",
        "_max_bytes",
        "_max_message_bytes",
        "_sliced",
        "_slices",
        "fits_bytes",
    )

    def __init__(self, context: Context, *, max_bytes: int, max_message_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._max_message_bytes = max_message_bytes
        self._context = context
        self._lock = Lock()
        self._sliced = 0
        self._slices = 0
        # A record up to this size takes less than half of the limit, and the steps to the right may take the
        # other half. In on_send a character of a name counts as one byte, but it can take four.
        self.fits_bytes: int = (max_bytes // 2 - _FRAME_BYTES) // _UTF8_MAX_BYTES

    def on_send(self, record: Record) -> Record | FanOut:
        """Return the record itself if it fits, or else its slices."""
        if self._surely_fits(record.value, record.key, record.headers):
            return record
        return self._split_if_large(record)

    def on_send_batch(self, batch: Batch) -> Batch:
        """Leave the records that may have to be split to :meth:`on_send`."""
        fits = map(self._surely_fits, batch.values, batch.keys, batch.headers)
        large = [at for at, does_fit in enumerate(fits) if not does_fit]
        return batch.replace(not_taken=large) if large else batch

    def _surely_fits(self, value: Any, key: Any, headers: Headers) -> bool:
        """Return whether the sizes alone show that a record fits."""
        try:
            size = len(value) + 10 * len(headers)
            for name, content in headers:
                size += len(name) + len(content)  # type: ignore[arg-type]  # null raises TypeError
            if key:
                size += len(key)
        except TypeError:  # faster than asking each value whether it is null
            return value is None
        return size <= self.fits_bytes

    def stats(self) -> dict[str, int]:
        """Return the counts of split messages and of their slices."""
        return {"sliced": self._sliced, "slices": self._slices}

    def _split_if_large(self, record: Record) -> Record | FanOut:
        frame = _frame_bytes(record.key, record.headers)
        if frame + len(record.value) <= self._max_bytes - self._context.overhead_bytes(record):
            return record
        # A slice is never split again; slices of a refused message are sent as dead letters.
        return record if record.headers.all(SLICE_HEADER) else self._split(record, frame)

    def _split(self, record: Record, frame: int) -> FanOut:
        total = len(record.value)
        first = frame + _SLICE_HEADER_BYTES
        overhead = self._context.overhead_bytes(
            record.with_headers(record.headers.append((SLICE_HEADER, bytes(HEADER_BYTES))))
        )
        room = self._max_bytes - first - overhead
        count = self._count(total, room, first, overhead)
        later = _frame_bytes(record.key, EMPTY) + _SLICE_HEADER_BYTES
        if self._context.is_compacted(record.topic):
            raise InterceptorError(
                f"the value has {total} bytes, more than one record takes (max_bytes is {self._max_bytes}), "
                f"and topic {record.topic!r} is compacted: compaction would keep one slice of the message; "
                f"put claim_check into the chain for large values of compacted topics"
            )
        message = self._with_partition(record)
        with self._lock:
            self._sliced += 1
            self._slices += count
        header = SliceHeader(os.urandom(ID_BYTES), 0, count, total, room)
        size_bytes = total + first + (count - 1) * later + count * overhead
        return FanOut(count, _Slices(message, header).split, size_bytes=size_bytes)

    def _count(self, total: int, room: int, frame: int, overhead: int) -> int:
        if total > self._max_message_bytes:
            raise InterceptorError(
                f"the value has {total} bytes; max_message_bytes is {self._max_message_bytes}"
            )
        taken = f"key, headers and framing take {frame} bytes and the steps to the right {overhead}"
        if room < 1:
            raise InterceptorError(
                f"{taken}, which leaves no room for a value: max_bytes is {self._max_bytes}"
            )
        count = -(-total // room)
        if count > MAX_SLICES:
            raise InterceptorError(
                f"{taken}, so that {total} bytes would need {count} slices of {room}; "
                f"at most {MAX_SLICES} are permitted (max_bytes is {self._max_bytes})"
            )
        return count

    def _with_partition(self, record: Record) -> Record:
        """Choose one partition for all slices, unless the key decides it."""
        if record.partition is not None:
            return record
        partition = self._context.pick_partition(record)
        return record if partition is None else record.replace(partition=partition)


class _Slices:
    """A message with the header of its first slice; each call of ``split`` splits the message again."""

    __slots__ = ("_first", "_record")

    def __init__(self, record: Record, first: SliceHeader) -> None:
        self._record = record
        self._first = first

    def split(self) -> Iterator[Record]:
        """Make the slices one at a time, so that only one copy is in memory."""
        return map(self._slice, range(self._first.count))

    def _slice(self, index: int) -> Record:
        record, first = self._record, self._first
        header = SliceHeader(first.message_id, index, first.count, first.total_bytes, first.slice_bytes)
        begin = index * header.slice_bytes
        value: Any = record.value[begin : begin + header.slice_bytes]
        headers = record.headers if index == 0 else EMPTY
        return record.with_value(value, headers.append((SLICE_HEADER, header.encode())))


def _limit(max_bytes: int | None, context: Context) -> int:
    """Return the size above which records are split; the client must accept messages of that size."""
    client = None if context.side == "consumer" else context.max_message_bytes
    if client is None:
        return _DEFAULT_MAX_BYTES if max_bytes is None else max_bytes
    if max_bytes is not None and max_bytes > client:
        raise ConfigError(
            f"expected at most the client's message.max.bytes ({client}), found {max_bytes}: slices would be "
            f"refused as too large",
            path="max_bytes",
        )
    return min(_DEFAULT_MAX_BYTES, client) if max_bytes is None else max_bytes


def _frame_bytes(key: bytes | None, headers: Headers) -> int:
    """Return an upper bound of a record's size on the wire without its value."""
    size = _FRAME_BYTES + len(key or b"")
    for name, value in headers:
        size += _HEADER_FRAME_BYTES + len(name.encode()) + len(value or b"")
    return size
