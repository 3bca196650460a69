"""Hours put together into as many bars as a page can show: by hour, by day, by month, or by year."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

import msgspec

from headerware.ops.chargeback.bill import Traffic
from headerware.ops.chargeback.report.ranked import added
from headerware.ops.chargeback.shares import shares, total

MAX_BARS: Final = 200


class Period(msgspec.Struct, frozen=True, kw_only=True):
    """One bar.

    Args:
        label: when, as text.
        traffic: what moved.
        amount: what it costs, rounded.
    """

    label: str
    traffic: Traffic
    amount: Decimal


class Periods(msgspec.Struct, frozen=True, kw_only=True):
    """All bars, oldest first; with ``earlier`` and ``timeless`` their amounts add up to the total.

    Args:
        unit: what a bar is: ``hour``, ``day``, ``month`` or ``year``.
        bars: the bars, those without any traffic between others included.
        earlier: what lies before the first bar because there are too many.
        timeless: what has no time.
    """

    unit: str
    bars: tuple[Period, ...] = ()
    earlier: Period | None = None
    timeless: Period | None = None


def periods(by_hour: Mapping[datetime | None, Traffic], decimals: int) -> Periods:
    """Put hours together.

    Args:
        by_hour: what moved, by hour.
        decimals: what amounts are rounded to.
    """
    hours = [hour for hour in by_hour if hour is not None]
    unit, form, following = _fitting(min(hours), max(hours)) if hours else _UNITS[0]
    grouped: dict[str, list[Traffic]] = _empty(min(hours), max(hours), form, following) if hours else {}
    for hour in sorted(hours):
        grouped.setdefault(hour.strftime(form), []).append(by_hour[hour])
    grouped[""] = [by_hour[None]] if None in by_hour else []
    sums = {label: added(traffic) for label, traffic in grouped.items()}
    amounts = shares([each.cost for each in sums.values()], decimals)
    found = [
        Period(label=label, traffic=traffic, amount=amount)
        for (label, traffic), amount in zip(sums.items(), amounts, strict=True)
    ]
    bars, timeless = found[:-1], found[-1]
    return Periods(
        unit=unit,
        bars=tuple(bars[-MAX_BARS:]),
        earlier=_together(bars[:-MAX_BARS]),
        timeless=timeless if timeless.traffic != Traffic() else None,
    )


_Following = Callable[[datetime], datetime]


def _next_month(moment: datetime) -> datetime:
    return (moment.replace(day=1) + timedelta(days=32)).replace(day=1)


_UNITS: Final[tuple[tuple[str, str, _Following | None], ...]] = (
    ("hour", "%Y-%m-%d %H:00", lambda moment: moment + timedelta(hours=1)),
    ("day", "%Y-%m-%d", lambda moment: moment + timedelta(days=1)),
    ("month", "%Y-%m", _next_month),
    ("year", "%Y", None),  # timestamps are anyone's to write: years without traffic are no bars
)


def _fitting(first: datetime, last: datetime) -> tuple[str, str, _Following | None]:
    hours = (last - first) // timedelta(hours=1)
    needed = (hours + 1, hours // 24 + 2, hours // (24 * 28) + 2, 0)
    return next(unit for unit, bars in zip(_UNITS, needed, strict=True) if bars <= MAX_BARS)


def _empty(
    first: datetime, last: datetime, form: str, following: _Following | None
) -> dict[str, list[Traffic]]:
    """Return every bar from the first to the last, so that quiet times are seen."""
    labels: dict[str, list[Traffic]] = {}
    moment = first
    while following is not None and moment.strftime(form) <= last.strftime(form):
        labels[moment.strftime(form)] = []
        moment = following(moment)
    return labels


def _together(bars: list[Period]) -> Period | None:
    if not bars:
        return None
    return Period(
        label=f"before {bars[-1].label} and in it",
        traffic=added(bar.traffic for bar in bars),
        amount=total(bar.amount for bar in bars),
    )
