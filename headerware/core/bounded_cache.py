"""The bounded cache: a dict of the entries that were used lately."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Key = TypeVar("Key")
Value = TypeVar("Value")
_ABSENT: Final = object()


class BoundedCache(dict[Key, Value]):
    """Keep recently used entries, in two generations.

    New entries go to the young generation, and so do old entries that are asked for again. When the young
    generation is full, the old one is forgotten, and the young one becomes the old one. So the half that was
    used last is always kept, and ``cache[key]`` costs no more than in a dict if the entry is young. There is
    no lock: at worst, threads that ask at the same time make a value twice.

    ``make`` makes a missing value; without it, a missing key is a KeyError. ``max_cost`` limits the sum of
    ``cost``; an entry that costs more than half of it is not kept.
    """

    __slots__ = ("_cost", "_costs", "_half_cost", "_half_entries", "_make", "_old")

    def __init__(
        self,
        max_entries: int,
        make: Callable[[Key], Value] | None = None,
        *,
        max_cost: int = 0,
        cost: Callable[[Key, Value], int] | None = None,
    ) -> None:
        super().__init__()
        self._half_entries: Final = max(1, max_entries // 2)
        self._half_cost: Final = max_cost // 2
        self._make: Final = make
        self._cost: Final = cost
        self._costs = 0
        self._old: dict[Key, Value] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle an empty cache; its entries are made again."""
        most, max_cost = 2 * self._half_entries, 2 * self._half_cost
        return partial(BoundedCache, most, self._make, max_cost=max_cost, cost=self._cost), ()

    def __missing__(self, key: Key) -> Value:
        """Return an old entry, or a new one; either is young from now on."""
        if key in (old := self._old):
            value = old[key]
        elif self._make is not None:
            value = self._make(key)
        else:
            raise KeyError(key)
        self[key] = value
        return value

    def get(self, key: Key, default: Value | None = None) -> Value | None:  # type: ignore[override]
        """Return an entry, or the default; make nothing."""
        # Another thread may forget the entry at any point, so nothing is looked up twice.
        found: Any = super().get(key, _ABSENT)
        if found is not _ABSENT:
            return found  # type: ignore[no-any-return]
        found = self._old.get(key, _ABSENT)
        if found is _ABSENT:
            return default
        self[key] = found
        return found  # type: ignore[no-any-return]

    def __setitem__(self, key: Key, value: Value) -> None:
        """Keep an entry, unless it costs too much."""
        cost = self._cost(key, value) if self._cost is not None else 0
        if cost > self._half_cost:
            return
        if len(self) >= self._half_entries or self._costs + cost > self._half_cost:
            self._old = dict(self)
            super().clear()
            self._costs = 0
        self._costs += cost
        super().__setitem__(key, value)

    def clear(self) -> None:
        """Forget everything."""
        super().clear()
        self._old = {}
        self._costs = 0

    def entries(self) -> dict[Key, Value]:
        """Return the entries of both generations."""
        return {**self._old, **self}

    def total(self) -> int:
        """Count the entries of both generations."""
        return len(self.keys() | self._old.keys())
