"""The report's tables: a name and its bar, what came in, what went out, and what it costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Final

import msgspec

from headerware.ops.chargeback.bill import Bill, Traffic
from headerware.ops.chargeback.report.amounts import bytes_text, count_text, money_text, share_text
from headerware.ops.chargeback.report.bars import budget_bar, traffic_bar
from headerware.ops.chargeback.report.markup import Html, element, joined
from headerware.ops.chargeback.report.periods import Periods
from headerware.ops.chargeback.report.ranked import Ranking, Row
from headerware.ops.chargeback.shares import rounded, total
from headerware.registry.header_names import printable

_NEAR: Final = Decimal("0.8")

Below = Callable[[Row], Html | None]
"""What stands below a row's bar, such as its budget."""


def nothing_below(row: Row) -> Html | None:  # noqa: ARG001 - it takes what others look at
    """Put nothing below a bar."""
    return None


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """What a table by rank is about.

    Args:
        caption: what the table is.
        noun: what a name is: ``owner``, ``topic``.
        unread: names whose reads are not known, or only in part; None is every name.
        incoming: whether there is a column of what came in.
        below: gives what stands below a row's bar.
    """

    caption: str
    noun: str
    unread: frozenset[str] | None = frozenset()
    incoming: bool = True
    below: Below = nothing_below


def ranked_table(found: Ranking, layout: Layout, currency: str) -> Html:
    """Return a table by rank, and the others behind it, folded.

    Args:
        found: the rows.
        layout: what the table is about.
        currency: what amounts are called.
    """
    if not found.shown:
        return element("p", f"No {layout.noun} had any traffic.", class_="note")
    longest = max(row.traffic.bytes_in + row.traffic.bytes_out for row in found.shown if row.count == 1)
    shown = _ranked(found.shown, layout, layout.caption, currency, longest)
    if not found.others:
        return shown
    listed = _ranked(found.others, layout, f"{layout.caption}: the others", currency, longest)
    count = count_text(sum(row.count for row in found.others))
    return joined(shown, element("details", element("summary", f"The other {count} {layout.noun}s"), listed))


def period_table(found: Periods, currency: str) -> Html:
    """Return the figures behind the chart, folded; quiet times are left out."""
    every = [*filter(None, [found.earlier]), *found.bars, *filter(None, [found.timeless])]
    listed = [period for period in every if period.traffic != Traffic()]
    rows = [
        _line(
            element("th", period.label or "without a time", scope="row"),
            _cells(period.traffic),
            period.amount,
        )
        for period in listed
    ]
    heads = (found.unit.capitalize(), "In", "Out", currency)
    table = _table(f"Traffic by {found.unit}", heads, rows, total(period.amount for period in listed))
    return element("details", element("summary", "The figures"), table)


def budget_note(bill: Bill) -> Below:
    """Return what tells how much of its budget an owner has spent."""

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


def _ranked(rows: Sequence[Row], layout: Layout, caption: str, currency: str, longest: int) -> Html:
    columns = ("In", "Out") if layout.incoming else ("Out",)
    heads = (layout.noun.capitalize(), *columns, currency)
    lines = [_ranked_row(row, layout, longest) for row in rows]
    return _table(caption, heads, lines, total(row.amount for row in rows))


def _ranked_row(row: Row, layout: Layout, longest: int) -> Html:
    kind = None
    if row.count > 1:
        name, kind = f"{count_text(row.count)} others", "rest"
    elif row.name is None:
        name, kind = f"unattributed: no {layout.noun} is named", "nobody"
    else:
        name = printable(row.name)  # groups are named by anyone, too
    bar = traffic_bar(row.traffic, longest) if row.count == 1 else None
    head = element("th", element("span", name, class_="name"), bar, layout.below(row), scope="row")
    unread = layout.unread is None or row.name in layout.unread
    cells = _cells(row.traffic, unread=unread)
    return _line(head, cells if layout.incoming else cells[1:], row.amount, kind)


def _line(head: Html, cells: Sequence[Html], amount: Decimal, kind: str | None = None) -> Html:
    return element("tr", head, *cells, element("td", money_text(amount)), class_=kind)


def _cells(traffic: Traffic, *, unread: bool = False) -> tuple[Html, Html]:
    outgoing = _moved(traffic.bytes_out, traffic.records_out)
    if unread and traffic.records_out:
        outgoing = _moved(traffic.bytes_out, traffic.records_out, "at least ")
    elif unread:
        outgoing = element("td", "unknown")
    return _moved(traffic.bytes_in, traffic.records_in), outgoing


def _moved(size: int, records: int, bound: str = "") -> Html:
    return element("td", bytes_text(size), element("small", bound + count_text(records, "record")))


def _table(caption: str, heads: Sequence[str], rows: Iterable[Html], amount: Decimal) -> Html:
    label = element("th", "Sum", scope="row", colspan=len(heads) - 1)
    return element(
        "table",
        element("caption", caption),
        element("thead", element("tr", *(element("th", head, scope="col") for head in heads))),
        element("tbody", *rows),
        element("tfoot", element("tr", label, element("td", money_text(amount)), class_="sum")),
    )
