"""Retries: the same thing again after a pause, to a deadline."""

from __future__ import annotations

import logging
import time
from math import isinf
from typing import TYPE_CHECKING, Final

from headerware.core.backoff import Backoff
from headerware.core.errors import SourceUnavailableError, described

if TYPE_CHECKING:
    from headerware.core.stop_flag import StopFlag
    from headerware.sources.config import SourceConfig

_log: Final = logging.getLogger("headerware.sources")


class StoppedError(Exception):
    """The task is stopping; it unwinds what the worker is about, and no user ever sees it."""


class Retries:
    """Pause between attempts at one thing, twice as long each time, until a deadline without progress.

    Args:
        config: has the deadline and the pauses.
        stopping: set when the task stops.
        what: what is tried, for the log.
        deadline_s: another deadline than that of the configuration, in seconds; ``math.inf`` is none.
    """

    def __init__(
        self, config: SourceConfig, stopping: StopFlag, what: str, *, deadline_s: float | None = None
    ) -> None:
        self._deadline_s: Final = config.retry_deadline_s if deadline_s is None else deadline_s
        self._stopping: Final = stopping
        self._what: Final = what
        self._backoff: Final = Backoff(config.retry_pause_s, config.retry_max_pause_s, jitter=True)
        self._deadline: float | None = None
        self._due = 0.0

    def progress(self) -> None:
        """Begin anew: something was read since the last failure."""
        self._deadline = None
        self._backoff.reset()

    def pause(self, error: Exception, shown: str | None = None) -> None:
        """Wait for the next attempt, or raise the error if there is no time for another one.

        ``shown`` is the error's text for the log, if it may be shown and :func:`described` does not know.

        Raises:
            StoppedError: the task stops.
        """
        if self._stopping.wait(self.postpone(error, shown)):
            raise StoppedError

    def postpone(self, error: Exception, shown: str | None = None) -> float:
        """Return how many seconds to wait for the next attempt, or raise the error as :meth:`pause` does."""
        now = time.monotonic()
        if self._deadline is None:
            self._deadline = now + self._deadline_s
        left = self._deadline - now
        if left <= 0:
            raise error
        if self._backoff.is_fresh:
            how_long = "" if isinf(left) else f" for {left:.0f} s"
            _log.warning(
                "%s failed, and is tried again%s: %s", self._what, how_long, shown or described(error)
            )
        wait_s = min(left, self._backoff.next_s())
        if isinstance(error, SourceUnavailableError):
            wait_s = min(left, max(wait_s, error.after_s))
        self._due = now + wait_s
        return wait_s

    @property
    def is_due(self) -> bool:
        """Whether it is time for the next attempt."""
        return time.monotonic() >= self._due
