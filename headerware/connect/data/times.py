"""Points in time: ``datetime`` in UTC for Connect's Date, Time and Timestamp, to the millisecond.

Java has one class for the three, milliseconds since the epoch, of any year; Python's datetime ends with
the year 9999. What lies beyond is an :class:`Instant`.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final

DAY_MS: Final = 86_400_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_FIRST_MS: Final = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND
_LAST_MS: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND


class Instant(int):
    """Milliseconds since the epoch, for a point in time that ``datetime`` cannot hold."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Instant({int(self)})"


def from_epoch_ms(epoch_ms: int) -> datetime | Instant:
    """Return the point in time of so many milliseconds since the epoch."""
    if _FIRST_MS <= epoch_ms <= _LAST_MS:
        return _EPOCH + timedelta(milliseconds=epoch_ms)
    return Instant(epoch_ms)


def to_epoch_ms(value: datetime | Instant | date | time) -> int:
    """Return the milliseconds since the epoch; a date is its midnight, a time lies on the first day.

    A datetime or time without a zone is taken for UTC, which Connect's logical types are in.
    """
    if isinstance(value, Instant):
        return int(value)
    if isinstance(value, datetime):
        return ((value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH) // _MILLISECOND
    if isinstance(value, date):
        return (value.toordinal() - _EPOCH.toordinal()) * DAY_MS
    of_day = value.hour * 3_600_000 + value.minute * 60_000 + value.second * 1000 + value.microsecond // 1000
    offset = value.utcoffset()
    return of_day - (offset // _MILLISECOND if offset else 0)


def is_time(value: Any) -> bool:
    """Return whether a value is a point in time as this package has them."""
    return isinstance(value, datetime | Instant)
