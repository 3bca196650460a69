"""Waiting for what a test expects, with a deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

DEADLINE_S = 120.0
PAUSE_S = 0.005


def until(
    condition: Callable[[], object],
    what: str = "what was awaited",
    *,
    meanwhile: Callable[[], object] | None = None,
) -> None:
    """Wait until a condition holds, or fail; ``meanwhile`` is called instead of a pause."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {DEADLINE_S:.0f} s: {what}"
        if meanwhile is None:
            time.sleep(PAUSE_S)
        else:
            meanwhile()


async def until_async(
    condition: Callable[[], object], pause: Callable[[float], Awaitable[object]] = asyncio.sleep
) -> None:
    """Wait in an event loop until a condition holds, or fail."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"the condition did not hold within {DEADLINE_S:.0f} s"
        await pause(PAUSE_S)
