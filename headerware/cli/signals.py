"""Signals that stop a command after the work in progress."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stopped_by_signals(stop: Callable[[], object]) -> Iterator[None]:
    """Stop work on SIGINT and SIGTERM; a second signal ends the process."""

    def hear(number: int, _: Any) -> None:
        signal.signal(number, before[number])  # first, because a second signal may come at once
        stop()

    before: dict[int, Any] = {number: signal.signal(number, hear) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
