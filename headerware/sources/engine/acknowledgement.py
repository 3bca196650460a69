"""Acknowledgement: which offsets may be stored, as the broker takes records in any order.

An object's offset goes on only as far as the run of its batches is unbroken: a record that is stored does not
vouch for one before it.
"""

from __future__ import annotations

from collections import deque
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headerware.sources.engine.batches import Batch
    from headerware.sources.offsets import OffsetKey


class Acknowledgements:
    """Follow the batches that a poll gave out. All methods may be called by several threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._given: dict[OffsetKey, deque[Batch]] = {}
        self._ready: dict[OffsetKey, Batch] = {}

    def give(self, batches: list[Batch]) -> None:
        """Note that batches are on their way."""
        with self._lock:
            for batch in batches:
                self._given.setdefault(batch.key, deque()).append(batch)

    def acknowledge(self, batch: Batch) -> None:
        """Note that all records of a batch are stored, or were dropped on purpose."""
        with self._lock:
            batch.is_stored = True
            run = self._given.get(batch.key)
            while run and run[0].is_stored:
                self._ready[batch.key] = run.popleft()
            if not run:
                self._given.pop(batch.key, None)

    def take(self) -> dict[OffsetKey, Batch]:
        """Return the last batch of each unbroken run since the last call: their entries may be stored."""
        with self._lock:
            ready, self._ready = self._ready, {}
        return ready

    def __len__(self) -> int:
        """Count the batches that are not stored as yet."""
        with self._lock:
            return sum(map(len, self._given.values()))
