"""Batches: consecutive records of one object, from the worker through a bounded queue to a poll."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from threading import Condition
from typing import TYPE_CHECKING, Any, Final

import msgspec

from headerware.core.record import Record
from headerware.sources.engine.retries import StoppedError
from headerware.sources.offsets import OffsetEntry, OffsetKey

if TYPE_CHECKING:
    from headerware.sources.config import SourceConfig

_PATIENCE_S: Final = 0.05
"""How long polls wait for a full batch before they ask for a partial one, in seconds."""


class Batch(msgspec.Struct, eq=False, kw_only=True):
    """Consecutive records of one object. When all records are stored, the entry may be stored.

    Args:
        native_key: the object's key.
        key: the key of the object's offset.
        entry: how far the object is read with these records; usually complete in the last batch.
        records: the records, in order; as columns (:class:`headerware.core.batch.Batch`) if they have much in
            common. Empty if the object has no good records.
        numbers: the numbers of the records in their object, after ``part``; ``3.1`` and ``3.2`` are records
            that transformers made of record 3.
        dead_letters: complete dead letters, which do not pass through the chain.
        size_bytes: the approximate size of the records.
        part: the prefix of the records' numbers, if they are counted within a part of the object.
        is_last: whether this is the last batch of this reading of the object.
    """

    native_key: Any
    key: OffsetKey
    entry: OffsetEntry
    records: Sequence[Record]
    numbers: list[int | str]
    dead_letters: list[Record]
    size_bytes: int = 0
    part: str = ""
    is_last: bool = False
    is_serialized: bool = False
    """Whether the records have passed the chain; the sender sets this."""
    refused: set[int] = msgspec.field(default_factory=set)
    """The indexes of records that were refused and are left out; the sender sets this."""
    goes_alone: bool = False
    """Whether each record is sent in its own request; the sender sets this."""
    is_stored: bool = False
    """Whether the records are stored; :class:`Acknowledgements` sets this."""


class BatchQueue:
    """Pass batches from one worker to polls; wait while the queue is full or empty.

    The queue never holds more records or bytes than the configuration permits, or a single larger batch.
    """

    def __init__(self, config: SourceConfig) -> None:
        self._max_records: Final = config.queue_records
        self._max_bytes: Final = config.queue_bytes
        self._batches: deque[Batch] = deque()
        self._records = 0
        self._bytes = 0
        self._changed = Condition()
        self._stopped = False
        self._failure: BaseException | None = None
        self._ended = False
        self._empty_since: float | None = None
        """The time since which polls have found no batch; None if the last poll found one."""
        self.hand_over: Callable[[], None] = _nothing
        """Puts the worker's partial batch; a poll that has waited for a while calls this in its thread."""

    def put(self, batch: Batch) -> None:
        """Append a batch when there is room; raise StoppedError if the task stops."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._has_room(batch))
            if self._stopped:
                raise StoppedError
            self._batches.append(batch)
            self._records += _weight(batch)
            self._bytes += batch.size_bytes
            self._changed.notify_all()

    def take(self, max_records: int, max_bytes: int, wait_s: float) -> list[Batch]:
        """Return batches up to a limit, in order; wait at most ``wait_s`` for the first one.

        Raises:
            BaseException: the worker's error, after all earlier batches were taken.
        """
        now = time.monotonic()
        deadline = now + wait_s
        if self._empty_since is None:
            self._empty_since = now
        while True:
            with self._changed:
                left = deadline - now
                if left > 0 and not (self._batches or self._ended or self._stopped):
                    self._changed.wait(min(left, _PATIENCE_S))
                if self._batches or self._ended or self._stopped:
                    self._empty_since = None
                    return self._taken(max_records, max_bytes)
            now = time.monotonic()
            if now - self._empty_since >= _PATIENCE_S:
                self.hand_over()
            if now >= deadline:
                with self._changed:
                    return self._taken(max_records, max_bytes)

    def _taken(self, max_records: int, max_bytes: int) -> list[Batch]:
        taken: list[Batch] = []
        records = size_bytes = 0
        while self._batches:
            batch = self._batches[0]
            records += _weight(batch)
            size_bytes += batch.size_bytes
            if taken and (records > max_records or size_bytes > max_bytes):
                break
            taken.append(self._batches.popleft())
            self._records -= _weight(batch)
            self._bytes -= batch.size_bytes
        if taken:
            self._changed.notify_all()
        elif self._failure is not None:
            raise self._failure
        return taken

    def end(self, error: BaseException | None) -> None:
        """Mark the queue as ended; if there is an error, :meth:`take` raises it when the queue is empty."""
        with self._changed:
            self._failure, self._ended = error, True
            self._changed.notify_all()

    def stop(self) -> None:
        """Wake waiting threads; later puts raise StoppedError."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    @property
    def is_drained(self) -> bool:
        """Whether the queue is empty and has ended without an error."""
        with self._changed:
            return self._ended and not self._batches and self._failure is None

    def __len__(self) -> int:
        """Return the number of records in the queue."""
        return self._records

    def _has_room(self, batch: Batch) -> bool:
        return not self._batches or (
            self._records + _weight(batch) <= self._max_records
            and self._bytes + batch.size_bytes <= self._max_bytes
        )


def _nothing() -> None:
    """Do nothing while no object is read."""


def _weight(batch: Batch) -> int:
    """Return how many records a batch counts as: at least 1, because an empty batch takes memory too."""
    return max(1, len(batch.records) + len(batch.dead_letters))
