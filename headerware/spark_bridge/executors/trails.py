"""Decode trails on the executors."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from headerware.core.errors import WireFormatError
from headerware.interceptors.trail import TrailEntry, decode_trail

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pandas as pd

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def decode_trails() -> Callable[[Iterable[pd.Series]], Iterator[pd.Series]]:
    """Begin a task that decodes the values of trails, which may be null."""
    return lambda batches: (values.map(_entries, na_action="ignore") for values in batches)


def _entries(value: bytes) -> list[dict[str, Any]] | None:
    try:
        return list(map(_plain, decode_trail(value)))
    except WireFormatError:
        return None


def _plain(entry: TrailEntry) -> dict[str, Any]:
    return {
        "when": _time(entry.when_ms),
        "by_whom": entry.by_whom,
        "read_from_cluster": entry.read_from_cluster,
        "read_from_topic": entry.read_from_topic,
        "produced_into_cluster": entry.produced_into_cluster,
        "produced_into_topic": entry.produced_into_topic,
    }


def _time(when_ms: int) -> datetime | None:
    """Return a time, or None if it is not in the years 1 to 9999, for the writer chooses it."""
    try:
        return _EPOCH + timedelta(milliseconds=when_ms)
    except OverflowError:
        return None
