"""The report's tables: a name and its bar, what came in, what went out, and what it costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Final

from headerware.ops.chargeback.bill import Bill, Traffic
from headerware.ops.chargeback.report.amounts import bytes_text, count_text, money_text, share_text
from headerware.ops.chargeback.report.bars import budget_bar, traffic_bar
from headerware.ops.chargeback.report.markup import Html, element, joined
from headerware.ops.chargeback.report.periods import Periods
from headerware.ops.chargeback.report.ranked import Ranking, Row
from headerware.ops.chargeback.shares import rounded, total

_NEAR: Final = Decimal("0.8")

Extra = Callable[[Row], Html | None]
"""What stands below a row's bar, such as its budget."""


def no_extra(row: Row) -> Html | None:  # noqa: ARG001 - it takes what others look at
    """Put nothing below a bar."""
    return None


def ranked_table(found: Ranking, caption: str, noun: str, currency: str, extra: Extra = no_extra) -> Html:
    """Give a table by rank, and the others behind it, folded.

    Args:
        found: the rows.
        caption: what the table is.
        noun: what a name is: ``owner``, ``topic``.
        currency: what amounts are called.
        extra: gives what stands below a row's bar.
    """
    if not found.shown:
        return element("p", f"No {noun} had any traffic.", class_="note")
    longest = max(row.traffic.bytes_in + row.traffic.bytes_out for row in found.shown if row.count == 1)
    rows = [_ranked_row(row, noun, longest, extra) for row in found.shown]
    shown = _table(caption, noun, currency, rows, total(row.amount for row in found.shown))
    if not found.others:
        return shown
    rest = [_ranked_row(row, noun, longest, extra) for row in found.others]
    listed = _table(f"{caption}: the others", noun, currency, rest, total(row.amount for row in found.others))
    count = count_text(sum(row.count for row in found.others))
    return joined(shown, element("details", element("summary", f"The other {count} {noun}s"), listed))


def period_table(found: Periods, currency: str) -> Html:
    """Give the figures behind the chart, folded; quiet times are left out."""
    every = [*filter(None, [found.earlier]), *found.bars, *filter(None, [found.timeless])]
    listed = [period for period in every if period.traffic != Traffic()]
    rows = [
        _line(element("th", period.label or "without a time", scope="row"), period.traffic, period.amount)
        for period in listed
    ]
    table = _table(
        f"Traffic by {found.unit}", found.unit, currency, rows, total(period.amount for period in listed)
    )
    return element("details", element("summary", "The figures"), table)


def budget_note(bill: Bill) -> Extra:
    """Give what tells how much of its budget an owner has spent."""

    def note(row: Row) -> Html | None:
        budget = bill.prices.budgets.get(row.name) if row.name is not None else None
        if budget is None:
            return None
        share = row.amount / budget if budget else Decimal(2 if row.amount else 0)
        state, word = ("over", "over budget: ") if share > 1 else ("within", "")
        if _NEAR <= share <= 1:
            state, word = "near", "near its budget: "
        money = money_text(rounded(budget, bill.prices.decimals), bill.prices.currency)
        spent = share_text(row.amount, budget) if budget else "spent without one"
        text = element("small", f"{word}{spent} of {money}", class_=state)
        return joined(budget_bar(share, state), text)

    return note


def _ranked_row(row: Row, noun: str, longest: int, extra: Extra) -> Html:
    name = row.name
    kind = None
    if row.count > 1:
        name = f"{count_text(row.count)} others"
        kind = "rest"
    elif row.name is None:
        name = f"unattributed: no {noun} is named"
        kind = "nobody"
    bar = traffic_bar(row.traffic, longest) if row.count == 1 else None
    head = element("th", element("span", name, class_="name"), bar, extra(row), scope="row")
    return _line(head, row.traffic, row.amount, kind)


def _line(head: Html, traffic: Traffic, amount: Decimal, kind: str | None = None) -> Html:
    return element(
        "tr",
        head,
        _moved(traffic.bytes_in, traffic.records_in),
        _moved(traffic.bytes_out, traffic.records_out),
        element("td", money_text(amount)),
        class_=kind,
    )


def _moved(size: int, records: int) -> Html:
    return element("td", bytes_text(size), element("small", count_text(records, "record")))


def _table(caption: str, noun: str, currency: str, rows: Iterable[Html], amount: Decimal) -> Html:
    heads = (noun.capitalize(), "In", "Out", currency)
    foot = element(
        "tr", element("th", "Sum", scope="row", colspan=3), element("td", money_text(amount)), class_="sum"
    )
    return element(
        "table",
        element("caption", caption),
        element("thead", element("tr", *(element("th", head, scope="col") for head in heads))),
        element("tbody", *rows),
        element("tfoot", foot),
    )
