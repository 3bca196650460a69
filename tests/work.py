"""What something may cost: counted in calls, which no machine changes, or bounded in CPU time."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

_ROOM: Final = 20
"""A busy machine, a cold cache and another processor together change CPU time by far less."""
_CALLS: Final = frozenset({"call", "c_call"})


class Work:
    """What a block has cost; complete once the block is left."""

    calls: int = 0
    """The calls of functions, Python's and C's; each turn of a generator counts as one."""


@contextmanager
def counted() -> Iterator[Work]:
    """Count the calls that a block makes on this thread."""
    work = Work()

    def count(_frame: FrameType, event: str, _argument: Any) -> None:
        if event in _CALLS:
            work.calls += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield work
    finally:
        sys.setprofile(before)


@contextmanager
def cpu_within(seen_s: float, clock: Callable[[], float] = time.thread_time) -> Iterator[None]:
    """Fail if a block takes twenty times the CPU time that it was seen to take.

    For work in C, which makes no calls. Time on the wall counts only where a deadline is what is tested.
    """
    began = clock()
    yield
    took_s = clock() - began
    assert took_s < _ROOM * seen_s, f"{took_s:.2f} s of CPU time, and {seen_s} s were seen"
