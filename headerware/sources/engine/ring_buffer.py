"""Remember the keys of objects that were read recently or are in flight, whose offsets need no look-up.

Only the offset decides whether an object is read (:mod:`headerware.sources.engine.decision`). The ring buffer
only tells where a listing begins, and saves look-ups. No record is lost or repeated if the buffer is empty,
small or off. An object is in flight until its last batch is stored; without this, a listing before that would
find no complete offset, and read the object again.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Any, Final


class RingBuffer:
    """Remember the latest distinct keys with their versions, in constant time.

    Args:
        size: how many keys; 0 remembers none.
    """

    __slots__ = ("_keys", "_size")

    def __init__(self, size: int) -> None:
        self._size: Final = size
        self._keys: OrderedDict[Any, str | None] = OrderedDict()

    def add(self, key: Any, version: str | None = None) -> None:
        """Remember a key, and forget the oldest if there are too many; a known key does not move."""
        if not self._size:
            return
        if key not in self._keys and len(self._keys) >= self._size:
            self._keys.popitem(last=False)
        self._keys[key] = version

    def holds(self, key: Any, version: str | None) -> bool:
        """Return whether this version of an object was read completely."""
        return key in self._keys and self._keys[key] == version

    @property
    def oldest(self) -> Any:
        """The oldest key; None if there is none."""
        return next(iter(self._keys), None)

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self._keys)


class Known:
    """The keys whose offsets need no look-up: the ring buffer, and the objects in flight."""

    def __init__(self, size: int) -> None:
        self._lock = Lock()
        self._ring = RingBuffer(size)
        self._in_flight: set[Any] = set()

    @property
    def oldest(self) -> Any:
        """The oldest key in the ring buffer; None if it is empty."""
        with self._lock:
            return self._ring.oldest

    def holds(self, key: Any, version: str | None) -> bool:
        """Return whether an object is in flight, or this version of it was read completely."""
        with self._lock:
            return key in self._in_flight or self._ring.holds(key, version)

    def begin(self, key: Any) -> None:
        """Add an object to those in flight."""
        with self._lock:
            self._in_flight.add(key)

    def end(self, key: Any) -> None:
        """Remove an object from those in flight, when its offset is stored."""
        with self._lock:
            self._in_flight.discard(key)

    def add(self, key: Any, version: str | None) -> None:
        """Put a complete object into the ring buffer."""
        with self._lock:
            self._ring.add(key, version)
