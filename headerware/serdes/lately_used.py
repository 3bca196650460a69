"""A bounded table of what was used lately, with one look-up for a hit."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class LatelyUsed(Generic[Key, Value]):
    """Remember what was used lately, in two generations.

    What is asked for moves to the young one; when that is full, the old one is forgotten and the young one
    takes its place. So the most lately used half always stays, a hit among the young costs one look-up and
    takes no lock, and threads that meet here at worst make something twice.

    Args:
        max_entries: how many are remembered.
        max_cost: how much they may cost together, by the costs that ``put`` was told.
    """

    __slots__ = ("_cost", "_half_cost", "_half_entries", "_old", "_young")

    def __init__(self, max_entries: int, max_cost: int) -> None:
        self._half_entries: Final = max(1, max_entries // 2)
        self._half_cost: Final = max_cost // 2
        self._young: dict[Key, tuple[Value, int]] = {}
        self._old: dict[Key, tuple[Value, int]] = {}
        self._cost = 0

    def get(self, key: Key) -> Value | None:
        """Return what was put under a key, or None."""
        found = self._young.get(key)
        if found is not None:
            return found[0]
        found = self._old.get(key)
        if found is None:
            return None
        self.put(key, *found)
        return found[0]

    def put(self, key: Key, value: Value, cost: int = 0) -> None:
        """Remember a value; one that costs more than half of the maximum is not."""
        if cost > self._half_cost:
            return
        if len(self._young) >= self._half_entries or self._cost + cost > self._half_cost:
            self._old, self._young, self._cost = self._young, {}, 0
        self._young[key] = (value, cost)
        self._cost += cost

    def __len__(self) -> int:
        """Count what is remembered."""
        return len(self._young.keys() | self._old.keys())
