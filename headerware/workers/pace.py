"""A limit on how many records a worker handles in a second."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headerware.core.stop_flag import StopFlag


class Pace:
    """Keep a rate of records; a pause, such as an idle topic, is not made up for.

    Args:
        rate: the most records in a second; None for no limit.
        stop: ends each wait.
    """

    def __init__(self, rate: float | None, stop: StopFlag) -> None:
        self._rate: Final = rate
        self._stop: Final = stop
        self._due = 0.0

    def batch(self, most: int) -> int:
        """Return how many records to read together, so that no batch takes much longer than a second."""
        return most if self._rate is None else max(1, min(most, int(self._rate)))

    def begin(self) -> None:
        """Note that the work on a batch begins."""
        self._due = max(self._due, time.monotonic())

    def keep(self, count: int) -> None:
        """Wait until the records of the batch keep the rate, or until the work is stopped."""
        if self._rate is not None:
            self._due += count / self._rate
            self._stop.wait(max(0.0, self._due - time.monotonic()))
