"""Sequences of records: numbers of which each is used once."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from itertools import count, islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable


class Sequences:
    """Draw numbers from a first one on; safe for several threads.

    Numbers that were drawn for native code, which then left their records to the hooks, are drawn again. So
    the hooks give these records the same numbers. None is left out, because an audit takes a gap for a loss.
    """

    __slots__ = ("_fresh", "_unused")

    def __init__(self, first: int = 0) -> None:
        self._fresh: Final = count(first)
        self._unused: Final = deque[int]()

    def draw(self) -> int:
        """Return the next number."""
        return self.draw_many(1)[0] if self._unused else next(self._fresh)

    def draw_many(self, records: int) -> list[int]:
        """Return a number for each record."""
        drawn: list[int] = []
        with suppress(IndexError):  # the others are drawn anew
            while len(drawn) < records:
                drawn.append(self._unused.popleft())
        return [*drawn, *islice(self._fresh, records - len(drawn))]

    def give_back(self, numbers: Iterable[int]) -> None:
        """Have numbers drawn again that no record got."""
        self._unused.extend(numbers)
