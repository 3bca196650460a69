"""Prepare the report's tables by rank and its chart of traffic over time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

import msgspec

from headerware.ops.chargeback.bill import Traffic
from headerware.ops.chargeback.shares import shares, total

SHOWN: Final = 20
"""How many rows a table shows; the other rows are summed up in one, and listed below the table."""
LISTED: Final = 500
"""How many of the other rows are listed: anyone can make up names, and the page must stay small."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One row for ``count`` names; ``name`` is None for unattributed traffic; ``amount`` is rounded."""

    name: str | None
    traffic: Traffic
    amount: Decimal
    count: int = 1


class Ranking(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of a table by rank.

    ``shown`` has the largest rows, always the row of unattributed traffic, and last one row for all other
    names; its amounts add up to the total. ``others`` lists the other names; its amounts add up to that last
    row.
    """

    shown: tuple[Row, ...] = ()
    others: tuple[Row, ...] = ()


def ranking(sums: Mapping[str | None, Traffic] | Mapping[str, Traffic], decimals: int) -> Ranking:
    """Rank sums by cost, then by bytes, then by name."""
    rows = _rows(sums, decimals)
    first, rest = rows[:SHOWN], rows[SHOWN:]
    first += [row for row in rest if row.name is None]
    rest = [row for row in rest if row.name is not None]
    if len(rest) < 2:
        return Ranking(shown=(*first, *rest))
    listed = rest[:LISTED]
    if len(rest) > LISTED:
        listed.append(_together(rest[LISTED:]))
    return Ranking(shown=(*first, _together(rest)), others=tuple(listed))


def _rows(sums: Mapping[str | None, Traffic] | Mapping[str, Traffic], decimals: int) -> list[Row]:
    ranked = sorted(
        sums.items(),
        key=lambda item: (-item[1].cost, -item[1].bytes_in - item[1].bytes_out, item[0] or ""),
    )
    amounts = shares([traffic.cost for _, traffic in ranked], decimals)
    return [
        Row(name=name, traffic=traffic, amount=amount)
        for (name, traffic), amount in zip(ranked, amounts, strict=True)
    ]


def _together(rows: list[Row]) -> Row:
    return Row(
        name=None,
        traffic=added(row.traffic for row in rows),
        amount=total(row.amount for row in rows),
        count=len(rows),
    )


def added(traffic: Iterable[Traffic]) -> Traffic:
    """Add several sums into one."""
    found = list(traffic)
    return Traffic(
        records_in=sum(each.records_in for each in found),
        bytes_in=sum(each.bytes_in for each in found),
        records_out=sum(each.records_out for each in found),
        bytes_out=sum(each.bytes_out for each in found),
        cost=total(each.cost for each in found),
    )


MAX_BARS: Final = 200


class Period(msgspec.Struct, frozen=True, kw_only=True):
    """One bar of the chart; its amount is rounded."""

    label: str
    traffic: Traffic
    amount: Decimal


class Periods(msgspec.Struct, frozen=True, kw_only=True):
    """All bars of the chart, oldest first, including bars without traffic between others.

    ``unit`` is ``hour``, ``day``, ``month`` or ``year``. ``earlier`` sums up older periods if there are too
    many bars; ``timeless`` sums up traffic without a timestamp. The amounts of all add up to the total.
    """

    unit: str
    bars: tuple[Period, ...] = ()
    earlier: Period | None = None
    timeless: Period | None = None


def periods(by_hour: Mapping[datetime | None, Traffic], decimals: int) -> Periods:
    """Group hours into at most :data:`MAX_BARS` bars."""
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
        earlier=_earlier_bars(bars[:-MAX_BARS]),
        timeless=timeless if timeless.traffic != Traffic() else None,
    )


_Following = Callable[[datetime], datetime]


def _next_month(moment: datetime) -> datetime:
    return (moment.replace(day=1) + timedelta(days=32)).replace(day=1)


_UNITS: Final[tuple[tuple[str, str, _Following | None], ...]] = (
    ("hour", "%Y-%m-%d %H:00", lambda moment: moment + timedelta(hours=1)),
    ("day", "%Y-%m-%d", lambda moment: moment + timedelta(days=1)),
    ("month", "%Y-%m", _next_month),
    ("year", "%Y", None),  # anyone can write timestamps, so years without traffic get no bars
)


def _fitting(first: datetime, last: datetime) -> tuple[str, str, _Following | None]:
    hours = (last - first) // timedelta(hours=1)
    needed = (hours + 1, hours // 24 + 2, hours // (24 * 28) + 2, 0)
    return next(unit for unit, bars in zip(_UNITS, needed, strict=True) if bars <= MAX_BARS)


def _empty(
    first: datetime, last: datetime, form: str, following: _Following | None
) -> dict[str, list[Traffic]]:
    """Return the labels of all bars from the first to the last, including bars without traffic."""
    labels: dict[str, list[Traffic]] = {}
    moment = first
    while following is not None and moment.strftime(form) <= last.strftime(form):
        labels[moment.strftime(form)] = []
        moment = following(moment)
    return labels


def _earlier_bars(bars: list[Period]) -> Period | None:
    if not bars:
        return None
    return Period(
        label=f"before {bars[-1].label} and in it",
        traffic=added(bar.traffic for bar in bars),
        amount=total(bar.amount for bar in bars),
    )
