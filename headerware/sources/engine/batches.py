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
"""How long polls wait for a full batch before one asks for one that is not full, in seconds."""


class Batch(msgspec.Struct, eq=False, kw_only=True):
    """Consecutive records of one object. When all are stored, so may be the entry.

    Args:
        native_key: the object's key.
        key: the name of its offset.
        entry: how far the object was read when these are stored; complete with the last batch, as a rule.
        records: the records, in order, by columns (:class:`headerware.core.batch.Batch`) where they differ in
            little; none if an object has none, or only bad ones.
        numbers: those of the records in their object, behind ``part``; ``3.1`` and ``3.2`` are what
            transformers have made of record 3.
        dead_letters: finished dead letters, which go past the chain.
        size_bytes: the approximate size of the records.
        part: what stands before the records' numbers, if they are counted in a part of the object.
        is_last: whether it is the last batch of this reading of the object.
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
    """Whether the records are what the chain has made of them; set by whoever sends them."""
    refused: set[int] = msgspec.field(default_factory=set)
    """Which records, from 0, were refused and are left out; set by whoever sends them."""
    goes_alone: bool = False
    """Whether each record goes in a request of its own; set in the same way."""
    is_stored: bool = False
    """Whether its records are stored; set by the acknowledgement."""


class BatchQueue:
    """Pass batches from one worker to polls; whoever finds it full or empty waits.

    It never holds more records or bytes than the configuration says, but one batch of any size.
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
        """Since when polls have found nothing."""
        self.hand_over: Callable[[], None] = _nothing
        """Puts what the worker has so far; a poll that has waited for a while calls it, in its own thread."""

    def put(self, batch: Batch) -> None:
        """Append a batch when there is room for it.

        Raises:
            StoppedError: the task stops.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._has_room(batch))
            if self._stopped:
                raise StoppedError
            self._batches.append(batch)
            self._records += _weight(batch)
            self._bytes += batch.size_bytes
            self._changed.notify_all()

    def take(self, max_records: int, max_bytes: int, wait_s: float) -> list[Batch]:
        """Return batches up to a limit, in order; wait for the first one, and no longer than ``wait_s``.

        Raises:
            BaseException: the worker's, when everything that it has read before is taken.
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
        """Note that nothing more will come; an error is raised by whoever finds the queue empty."""
        with self._changed:
            self._failure, self._ended = error, True
            self._changed.notify_all()

    def stop(self) -> None:
        """Wake whoever waits; nothing is put any more."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    @property
    def is_drained(self) -> bool:
        """Whether nothing is there and nothing more will come, not even an error."""
        with self._changed:
            return self._ended and not self._batches and self._failure is None

    def __len__(self) -> int:
        """Count the records that wait."""
        return self._records

    def _has_room(self, batch: Batch) -> bool:
        return not self._batches or (
            self._records + _weight(batch) <= self._max_records
            and self._bytes + batch.size_bytes <= self._max_bytes
        )


def _nothing() -> None:
    """Hand over nothing, as long as nothing is read."""


def _weight(batch: Batch) -> int:
    """Return what a batch counts: one without records still takes memory."""
    return max(1, len(batch.records) + len(batch.dead_letters))
