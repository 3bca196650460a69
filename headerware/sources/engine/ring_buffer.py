"""The ring buffer: keys of objects that were read completely lately; the next listing starts among them."""

from __future__ import annotations

from collections import OrderedDict
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
