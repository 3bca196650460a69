"""Pauses between attempts: each pause is twice as long as the last one, up to a limit."""

from __future__ import annotations

from collections.abc import Callable
from random import SystemRandom
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headerware.core.stop_flag import StopFlag

_MOST_DOUBLINGS: Final = 30
"""More doublings would change nothing, and the power of two would overflow."""
CHANCE: Final = SystemRandom().random
"""A random number from 0 to 1, 1 excluded.

Not the generator of the ``random`` module: an application that seeds it wants its own numbers.
"""


def pause_s(failures: int, first_s: float, longest_s: float) -> float:
    """Return the seconds to wait after a number of failures, which is at least 1."""
    return min(longest_s, first_s * 2.0 ** min(failures - 1, _MOST_DOUBLINGS))


def jittered(seconds: float, chance: Callable[[], float] = CHANCE) -> float:
    """Return a random part of a pause, at least half: clients that failed together then retry apart."""
    return seconds * (0.5 + chance() / 2)


class Backoff:
    """The pauses after failures that follow each other; for one thread at a time.

    Args:
        first_s: the first pause, in seconds.
        longest_s: the longest pause, in seconds.
        jitter: whether each pause is shortened at random, to no less than half.
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

    def wait(self, stop: StopFlag) -> bool:
        """Note a failure, and wait after it; return whether ``stop`` was set before the pause was over."""
        return stop.wait(self.next_s())

    def reset(self) -> None:
        """Note a success: the next pause is the first one again."""
        self._failures = 0
