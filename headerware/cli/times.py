"""Durations and moments as options of commands, in one form everywhere (docs/configuration.md)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import click

from headerware.core.durations import duration_s
from headerware.core.errors import ConfigError
from headerware.kafka.reader import Start

if TYPE_CHECKING:
    _Seconds = click.ParamType[float]
    _Milliseconds = click.ParamType[int]
else:  # in older versions of click these are not generic
    _Seconds = _Milliseconds = click.ParamType

_EPOCH_MS_DIGITS: Final = 12
"""From 1973 on, milliseconds since the epoch have at least this many digits."""
_MOST_S: Final = 1e10
"""Three centuries."""
LONGEST_ANSWER_S: Final = 3_600.0
"""Kafka's clients wait at most this long for one answer."""


class Duration(_Seconds):
    """A duration in seconds: ``90``, ``90s``, ``15m``, ``1.5h``, ``7d`` or ``500ms``.

    Args:
        above_s: the lower limit in seconds, which is not allowed itself; None allows 0.
        most_s: the upper limit in seconds.
    """

    name = "duration"

    def __init__(self, *, above_s: float | None = 0.0, most_s: float = _MOST_S) -> None:
        self._above_s = above_s
        self._most_s = most_s

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds; fail if the text is not a duration."""
        seconds = duration_s(value) if isinstance(value, str) else None
        if seconds is None:
            try:
                seconds = float(value)
            except ValueError:
                seconds = math.nan
        if not 0 <= seconds < math.inf:
            expected = "expected seconds, or a number with ms, s, m, h or d, such as 90s or 15m"
            self.fail(f"{expected}; found {value!r}", param, ctx)
        if self._above_s is not None and seconds <= self._above_s:
            self.fail(f"expected more than {self._above_s:g} s, found {value!r}", param, ctx)
        if seconds > self._most_s:
            self.fail(f"expected {self._most_s:g} s at most, found {value!r}", param, ctx)
        return seconds


class Moment(_Milliseconds):
    """A moment: ISO 8601, in UTC if it has no zone; an age; or milliseconds since the epoch."""

    name = "time"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the milliseconds since the epoch; fail if the text is not a moment."""
        if isinstance(value, int):
            return value
        if value.isdecimal() and len(value) >= _EPOCH_MS_DIGITS:  # a shorter number may be an age in seconds
            return int(value)
        try:
            start = Start.parse(value)
        except ConfigError:
            start = None
        if start is None or start.kind != "time":
            expected = "expected a time such as 2026-01-31T17:30, or an age such as 15m or 7d"
            self.fail(f"{expected}; found {value!r}", param, ctx)
        return start.number
