"""Decide which offsets may be stored, because the broker may acknowledge batches in any order.

The offset of a batch may be stored only when all earlier batches of its object are acknowledged too.
"""

from __future__ import annotations

from collections import deque
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headerware.sources.engine.batches import Batch
    from headerware.sources.offsets import OffsetKey


class Acknowledgements:
    """Follow the batches that polls returned. All methods may be called by several threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._given: dict[OffsetKey, deque[Batch]] = {}
        self._ready: dict[OffsetKey, Batch] = {}

    def give(self, batches: list[Batch]) -> None:
        """Add batches that are being sent."""
        with self._lock:
            for batch in batches:
                self._given.setdefault(batch.key, deque()).append(batch)

    def acknowledge(self, batch: Batch) -> None:
        """Mark a batch as stored: all its records are stored, or were dropped on purpose."""
        with self._lock:
            batch.is_stored = True
            given = self._given.get(batch.key)
            while given and given[0].is_stored:
                self._ready[batch.key] = given.popleft()
            if not given:
                self._given.pop(batch.key, None)

    def take(self) -> dict[OffsetKey, Batch]:
        """Return, for each object, the last batch whose entry may be stored, if new since the last call."""
        with self._lock:
            ready, self._ready = self._ready, {}
        return ready

    def __len__(self) -> int:
        """Return the number of batches that are not stored yet."""
        with self._lock:
            return sum(map(len, self._given.values()))
