"""Rows of a table by rank: the largest, what nobody is named for, and the rest as one row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Final

import msgspec

from headerware.ops.chargeback.bill import Traffic
from headerware.ops.chargeback.shares import shares, total

SHOWN: Final = 20
"""How many rows a table shows; the others are one row, and listed behind it."""
LISTED: Final = 500
"""How many of the others are listed: names come from anyone, and a page has to open."""

_NOTHING: Final = Traffic()


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One row.

    Args:
        name: a name, or None for what is unattributed.
        traffic: what moved.
        amount: what it costs, rounded.
        count: how many names the row stands for, where it stands for several.
    """

    name: str | None
    traffic: Traffic
    amount: Decimal
    count: int = 1


class Ranking(msgspec.Struct, frozen=True, kw_only=True):
    """A table's rows; the amounts of ``shown`` add up to the total, those of ``others`` to its last row.

    Args:
        shown: the largest, the unattributed among them, and behind them one row for all others.
        others: what that row stands for.
    """

    shown: tuple[Row, ...] = ()
    others: tuple[Row, ...] = ()


def ranking(sums: Mapping[str | None, Traffic] | Mapping[str, Traffic], decimals: int) -> Ranking:
    """Rank sums by cost, then by bytes, then by name.

    Args:
        sums: what moved, by name.
        decimals: what amounts are rounded to.
    """
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
