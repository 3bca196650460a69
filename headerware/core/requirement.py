"""Requirements: what a reader does with records that lack a protection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from headerware.core.boundary import header_ids_advice
from headerware.core.errors import ConfigError
from headerware.core.suggestions import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from logging import Logger

    from headerware.core.errors import InterceptorError
    from headerware.core.record import Record

Require = bool | Literal["off", "warn", "enforce", "true", "false"]
"""The option; False and True mean off and enforce."""
_LEVELS: Final[Mapping[bool | str, Literal["off", "warn", "enforce"]]] = {
    "off": "off",
    "warn": "warn",
    "enforce": "enforce",
    False: "off",
    True: "enforce",
    "false": "off",
    "true": "enforce",
}
_MAX_TOPICS: Final = 1024


def requirement(given: Require) -> Literal["off", "warn", "enforce"]:
    """Return an option in its one form; ConfigError for anything else, at ``require``."""
    level = _LEVELS.get(given)
    if level is None:
        raise ConfigError(
            f"expected off, warn or enforce, found {given!r}{did_you_mean(given, _LEVELS)}", path="require"
        )
    return level


def writer_advice(step: str) -> str:
    """Return what to look at on the side of the producer, if a record lacks what a step adds."""
    return (
        f"; likely its producer has no chain, or a chain without {step!r} for this topic: look at the "
        f"producer's chain, its topics, HEADERWARE_CONFIG and HEADERWARE_DISABLED"
    )


class Unprotected:
    """Judge records without a protection: pass and count them, also log each topic once, or refuse them.

    Args:
        require: the option.
        log: the log for the topics.
        without: the protection that the records lack, such as "without a signature".
        step: the word of the interceptor whose absence is the likely cause; empty if there are others.
        refusal: makes the error; its argument is advice for the text.
    """

    __slots__ = ("_advice", "_level", "_log", "_refusal", "_warned", "_without", "count")

    def __init__(
        self,
        require: Require,
        *,
        log: Logger,
        without: str,
        step: str = "",
        refusal: Callable[[str], InterceptorError],
    ) -> None:
        self._level: Final = requirement(require)
        self._log: Final = log
        self._without: Final = without
        self._advice: Final = writer_advice(step) if step else ""
        self._refusal: Final = refusal
        self._warned: Final[set[str]] = set()
        self.count: int = 0
        """How many records have passed."""

    def judge(self, record: Record) -> None:
        """Let a record pass, or raise the error."""
        if self._level == "enforce":
            raise self._refusal(header_ids_advice(record.headers) or self._advice)
        self.count += 1
        topic = record.topic
        if self._level == "warn" and topic not in self._warned:
            if len(self._warned) < _MAX_TOPICS:
                self._warned.add(topic)
            self._log.warning("topic %r has records %s", topic, self._without)
