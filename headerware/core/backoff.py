"""Pauses between attempts at one thing: each is twice as long as the one before, up to a longest."""

from __future__ import annotations

import random
from collections.abc import Callable
from threading import Event
from typing import Final

_MOST_DOUBLINGS: Final = 30
"""More would change nothing, and the power must stay a number."""


def pause_s(failures: int, first_s: float, longest_s: float) -> float:
    """Return the seconds to wait after so many failures, of which there is one or more."""
    return min(longest_s, first_s * 2.0 ** min(failures - 1, _MOST_DOUBLINGS))


def jittered(seconds: float, chance: Callable[[], float] = random.random) -> float:
    """Return between half of a pause and all of it: what failed together does not come back together."""
    return seconds * (0.5 + chance() / 2)


class Backoff:
    """The pauses after failures that follow each other; for one thread at a time.

    Args:
        first_s: the first pause, in seconds.
        longest_s: the longest pause, in seconds.
        jitter: whether each pause is shortened by chance, to half of it at the most.
    """

    __slots__ = ("_failures", "_first_s", "_jitter", "_longest_s")

    def __init__(self, first_s: float, longest_s: float, *, jitter: bool = False) -> None:
        self._first_s: Final = first_s
        self._longest_s: Final = longest_s
        self._jitter: Final = jitter
        self._failures = 0

    @property
    def is_fresh(self) -> bool:
        """Whether there was no failure, or none since the last success."""
        return not self._failures

    def next_s(self) -> float:
        """Note a failure, and return the seconds to wait after it."""
        self._failures += 1
        pause = pause_s(self._failures, self._first_s, self._longest_s)
        return jittered(pause) if self._jitter else pause

    def wait(self, stop: Event) -> bool:
        """Note a failure, and wait after it; return whether ``stop`` was set before the pause was over."""
        return stop.wait(self.next_s())

    def reset(self) -> None:
        """Note a success: the next pause is the first one again."""
        self._failures = 0
