"""Points in time: a ``datetime`` in UTC for Connect's Date, Time and Timestamp, to the millisecond.

Java has one class for all three, ``java.util.Date``: milliseconds since the epoch, in any year. A
``datetime`` ends with the year 9999; a point in time beyond its range is an :class:`Instant`.
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
    """Return the point in time that is this many milliseconds after the epoch."""
    if _FIRST_MS <= epoch_ms <= _LAST_MS:
        return _EPOCH + timedelta(milliseconds=epoch_ms)
    return Instant(epoch_ms)


def to_epoch_ms(value: datetime | Instant | date | time) -> int:
    """Return the milliseconds since the epoch: of a date at midnight, of a time on 1 January 1970.

    A datetime or time without a zone is in UTC, as are Connect's logical types.
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
    """Return whether a value is a datetime or an Instant."""
    return isinstance(value, datetime | Instant)
