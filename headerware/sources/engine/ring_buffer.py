"""The keys that need no look at their offsets: of objects that were read lately, or are on their way.

Whether an object is read is decided by its offset alone (:mod:`headerware.sources.engine.decision`). The ring
buffer only says where a listing begins, and spares a look-up; so nothing is lost or repeated if it is empty,
small or off. An object is on its way until its last batch is stored. Otherwise a listing that comes earlier
would find no complete offset, and would read the object again.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Any, Final


class RingBuffer:
    """Remember the latest distinct keys with their versions; constant time for all of it.

    Args:
        size: how many keys; 0 remembers none.
    """

    __slots__ = ("_keys", "_size")

    def __init__(self, size: int) -> None:
        self._size: Final = size
        self._keys: OrderedDict[Any, str | None] = OrderedDict()

    def add(self, key: Any, version: str | None = None) -> None:
        """Remember a key, and forget the oldest one if there are too many; a known key keeps its place."""
        if not self._size:
            return
        if key not in self._keys and len(self._keys) >= self._size:
            self._keys.popitem(last=False)
        self._keys[key] = version

    def holds(self, key: Any, version: str | None) -> bool:
        """Return whether an object was read completely in this version."""
        return key in self._keys and self._keys[key] == version

    @property
    def oldest(self) -> Any:
        """The key that was added first, or None."""
        return next(iter(self._keys), None)

    def __len__(self) -> int:
        """Count the keys."""
        return len(self._keys)


class Known:
    """The keys that need no look at the offsets: the ring buffer, and objects on their way."""

    def __init__(self, size: int) -> None:
        self._lock = Lock()
        self._ring = RingBuffer(size)
        self._on_their_way: set[Any] = set()

    @property
    def oldest(self) -> Any:
        """The oldest key in the ring buffer, or None."""
        with self._lock:
            return self._ring.oldest

    def holds(self, key: Any, version: str | None) -> bool:
        """Return whether an object is on its way, or was read completely in this version."""
        with self._lock:
            return key in self._on_their_way or self._ring.holds(key, version)

    def begin(self, key: Any) -> None:
        """Note that an object is being read."""
        with self._lock:
            self._on_their_way.add(key)

    def end(self, key: Any) -> None:
        """Note that the reading of an object is over, and its offset stored."""
        with self._lock:
            self._on_their_way.discard(key)

    def add(self, key: Any, version: str | None) -> None:
        """Put a complete object into the ring buffer."""
        with self._lock:
            self._ring.add(key, version)
