"""The options of ``run``, for consumers that process records on threads or in tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import msgspec

from headerware.core.backoff import CHANCE, jittered, pause_s
from headerware.core.errors import ConfigError
from headerware.core.hooks import DeadLetterHeaders, DeadLetterUnavailable

Order = Literal["key", "partition", "none"]
"""Which records are processed one after the other: records of one key, of one partition, or none."""
OnFailure = Literal["raise", "skip", "dead_letter"]
"""What happens to a record whose processing failed and gets no further attempt."""


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of ``run``, as :meth:`headerware.Consumer.run` explains them."""

    workers: int = 8
    order: Order = "key"
    on_failure: OnFailure = "raise"
    attempts: int = 1
    retry_on: tuple[type[Exception], ...] = (Exception,)
    backoff_s: float = 0.5
    max_backoff_s: float = 30.0
    dead_letter_topic: str = "{topic}.dead-letter"
    dead_letter_headers: DeadLetterHeaders = "connect"
    dead_letter_unavailable: DeadLetterUnavailable = "hold"
    max_pending: int = 1_000
    stop_timeout_s: float = 30.0
    revoke_timeout_s: float = 10.0

    def __post_init__(self) -> None:
        """Raise a ConfigError if an option cannot work."""
        words = (
            ("order", get_args(Order)),
            ("on_failure", get_args(OnFailure)),
            ("dead_letter_headers", get_args(DeadLetterHeaders)),
            ("dead_letter_unavailable", get_args(DeadLetterUnavailable)),
        )
        for name, known in words:
            if (found := getattr(self, name)) not in known:
                raise ConfigError(f"expected one of {', '.join(known)}; found {found!r}", path=name)
        types: object = self.retry_on  # code may pass anything; isinstance takes a single type, too
        for each in types if isinstance(types, tuple) else (types,):
            if not (isinstance(each, type) and issubclass(each, Exception)):
                raise ConfigError(f"expected subclasses of Exception, found {each!r}", path="retry_on")
        for name in ("workers", "attempts", "max_pending"):
            if not isinstance(found := getattr(self, name), int) or found < 1:
                raise ConfigError(f"expected a whole number of at least 1, found {found!r}", path=name)
        for name in ("backoff_s", "max_backoff_s", "stop_timeout_s", "revoke_timeout_s"):
            if not isinstance(found := getattr(self, name), int | float) or not found >= 0:  # nan is not
                raise ConfigError(f"expected a number of seconds of at least 0, found {found!r}", path=name)

    def pause_s(
        self, attempts: int, error: BaseException, chance: Callable[[], float] = CHANCE
    ) -> float | None:
        """Return the pause after this number of attempts, in seconds; None if there is no further attempt."""
        if attempts >= self.attempts or not isinstance(error, self.retry_on):
            return None
        return jittered(pause_s(attempts, self.backoff_s, self.max_backoff_s), chance)
