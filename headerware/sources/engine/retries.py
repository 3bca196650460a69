"""Retry an operation after pauses, until a deadline."""

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
    """The task is stopping; this ends the worker, and never reaches a user."""


class Retries:
    """Pause between attempts, twice as long each time, until a deadline without progress.

    Args:
        config: the configuration, with the deadline and the pauses.
        stopping: set when the task stops.
        what: the operation, for the log.
        deadline_s: a deadline in place of the configured one, in seconds; ``math.inf`` means no deadline.
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
        """Reset the deadline and the pauses, because there was progress since the last failure."""
        self._deadline = None
        self._backoff.reset()

    def pause(self, error: Exception, shown: str | None = None) -> None:
        """Wait for the next attempt; raise the error if the deadline has passed.

        ``shown`` is the error's text for the log, if :func:`described` does not have a safe one.

        Raises:
            StoppedError: the task stops.
        """
        if self._stopping.wait(self.postpone(error, shown)):
            raise StoppedError

    def postpone(self, error: Exception, shown: str | None = None) -> float:
        """Return how many seconds to wait for the next attempt; raise the error after the deadline."""
        now = time.monotonic()
        if self._deadline is None:
            self._deadline = now + self._deadline_s
        left = self._deadline - now
        if left <= 0:
            raise error
        if self._backoff.is_fresh:
            how_long = "" if isinf(left) else f" for {left:.0f} s"
            _log.warning(
                "%s failed, and will be tried again%s: %s", self._what, how_long, shown or described(error)
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
