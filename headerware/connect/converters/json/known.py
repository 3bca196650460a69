"""A bounded table of what was made, such as plans of schemas."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Known(Generic[Key, Value]):
    """Remember what was made for a key; when the table is full, the oldest half is forgotten.

    Args:
        size: how many entries there may be; there is always room for one.

    Safe for use by several threads at once: at worst they make a thing twice.
    """

    __slots__ = ("_entries", "_size", "get")

    def __init__(self, size: int) -> None:
        self._size: Final = max(1, size)
        self._entries: Final[dict[Key, Value]] = {}
        self.get: Final = self._entries.get
        """Gives what is remembered for a key, or None."""

    def put(self, key: Key, value: Value) -> Value:
        """Remember a value, and give it."""
        entries = self._entries
        if len(entries) >= self._size:
            for old in list(entries)[: (self._size + 1) // 2]:
                entries.pop(old, None)
        entries[key] = value
        return value

    def __len__(self) -> int:
        """Count what is remembered."""
        return len(self._entries)
