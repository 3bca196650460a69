"""The report: one HTML file that needs nothing else, neither network nor script.

Totals come first, then time, owners, topics, producers, readers, and how it all was counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from headerware.core.errors import ConfigError
from headerware.ops.chargeback.bill import Bill, Traffic, UnknownReads
from headerware.ops.chargeback.html import (
    STYLE,
    Html,
    bytes_text,
    count_text,
    element,
    joined,
    moment_text,
    money_text,
    share_text,
)
from headerware.ops.chargeback.names import MAX_NAME_CHARACTERS
from headerware.ops.chargeback.prices import Prices, Rates
from headerware.ops.chargeback.report_rows import Period, Periods, Ranking, Row, periods, ranking
from headerware.ops.chargeback.shares import rounded, total
from headerware.ops.chargeback.sizes import FORMULA
from headerware.registry.header_names import printable

if TYPE_CHECKING:
    import os

_TITLE: Final = "Kafka chargeback"
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
"""The page loads nothing and runs nothing, whatever names contain."""


def write_report(
    path: str | os.PathLike[str], bill: Bill, *, title: str = _TITLE, at: datetime | None = None
) -> None:
    """Write a bill as one HTML file that needs nothing else.

    Args:
        path: the file; what is there already is replaced.
        bill: the bill.
        title: what the page is called.
        at: when it was made, with a time zone; None means now.

    Raises:
        ConfigError: the file cannot be written.
    """
    try:
        Path(path).write_text(report_html(bill, title=title, at=at), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror or error}", path=str(path)) from error


def report_html(bill: Bill, *, title: str = _TITLE, at: datetime | None = None) -> str:
    """Return a bill as the text of an HTML page; the arguments are those of :func:`write_report`."""
    time = periods(bill.by_hour, bill.prices.decimals)
    made = (at or datetime.now(UTC)).astimezone(UTC)
    body = element(
        "body",
        element("h1", title),
        element("p", f"{_time_span(bill)}. Made {moment_text(made)}.", class_="faint"),
        _tiles(bill),
        _unknown_reads(bill),
        _over_time(time, bill.prices.currency),
        *_rankings(bill),
        _method(bill),
    )
    return f"<!DOCTYPE html>\n{element('html', _head(title), body, lang='en')}\n"


def _head(title: str) -> Html:
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", Html(STYLE)),
    )


def _time_span(bill: Bill) -> str:
    hours = [hour for hour in bill.by_hour if hour is not None]
    if not hours:
        return "No hours with traffic"
    return f"From {moment_text(min(hours))} to {moment_text(max(hours) + timedelta(hours=1))}"


def _tiles(bill: Bill) -> Html:
    prices, total = bill.prices, bill.total
    nobody = bill.by_owner.get(None, Traffic())
    moved, unattributed = total.bytes_in + total.bytes_out, nobody.bytes_in + nobody.bytes_out
    amount = money_text(rounded(total.cost, prices.decimals), prices.currency)
    return element(
        "div",
        _tile("Cost", amount, f"{count_text(len(bill.by_owner.keys() - {None}), 'payer')}"),
        _tile("Incoming", bytes_text(total.bytes_in), count_text(total.records_in, "record"), "in"),
        _tile("Outgoing", *_outgoing(bill), "out"),
        _tile(
            "Unattributed",
            share_text(unattributed, moved),
            f"{bytes_text(unattributed)}, {share_text(nobody.cost, total.cost)} of the cost",
            "nobody" if unattributed else "",
        ),
        class_="tiles",
    )


def _tile(label: str, figure: str, more: str, kind: str = "") -> Html:
    return element("div", label, element("b", figure), element("small", more), class_=f"tile {kind}".strip())


def _outgoing(bill: Bill) -> tuple[str, str]:
    """Return the figure of outgoing traffic, and a note on it."""
    if bill.unknown and not bill.sources:
        return "unknown", "reads are not known"
    records = count_text(bill.total.records_out, "record")
    return bytes_text(bill.total.bytes_out), f"{records}, and unknown reads" if bill.unknown else records


def _over_time(time: Periods, currency: str) -> Html:
    notes = [
        f"{bytes_text(part.traffic.bytes_in + part.traffic.bytes_out)} {where}; not drawn."
        for part, where in ((time.timeless, "without a time"), (time.earlier, "before the first bar"))
        if part is not None
    ]
    return element(
        "section",
        element("h2", f"By {time.unit}"),
        element(
            "p",
            element("span", "incoming", class_="in"),
            element("span", "outgoing", class_="out"),
            class_="key",
        ),
        _chart(time, currency),
        *(element("p", note, class_="faint") for note in notes),
        _period_table(time, currency) if time.bars or time.timeless else None,
    )


def _rankings(bill: Bill) -> list[Html]:
    prices = bill.prices
    return [
        element(
            "section",
            element("h2", f"By {layout.noun}"),
            _ranked_table(ranking(sums, prices.decimals), layout, prices.currency),
        )
        for layout, sums in _layouts(bill)
        if sums or layout.incoming
    ]


def _layouts(bill: Bill) -> list[tuple[_Layout, Mapping[str | None, Traffic] | Mapping[str, Traffic]]]:
    """Return the tables by rank; if no reads are known at all, each says so for every name."""
    unread = frozenset(each.topic for each in bill.unknown)
    every: frozenset[str] | None = frozenset() if bill.sources or not unread else None
    payers = _Layout(
        caption="Who pays, and for how much", noun="owner", unread=every, below=_budget_note(bill)
    )
    topics = _Layout(caption="Which topics the traffic belongs to", noun="topic", unread=unread)
    producers = _Layout(
        caption="Which services produced the records that moved", noun="producer", unread=every
    )
    readers = _Layout(caption="What the reads of consumer groups cost", noun="reader", incoming=False)
    return [
        (payers, bill.by_owner),
        (topics, bill.by_topic),
        (producers, bill.by_producer),
        (readers, bill.by_group),
    ]


_NEAR: Final = Decimal("0.8")

_Below = Callable[[Row], Html | None]
"""Returns what is shown below the bar of a row, such as its budget."""


def _nothing_below(row: Row) -> Html | None:  # noqa: ARG001 - the signature of _Below
    return None


class _Layout(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a table by rank.

    ``noun`` is what a name is called: ``owner``, ``topic``. ``unread`` are names whose reads are not known,
    or only in part; None is every name. ``incoming`` says that there is a column of what came in. ``below``
    returns what is shown below the bar of a row.
    """

    caption: str
    noun: str
    unread: frozenset[str] | None = frozenset()
    incoming: bool = True
    below: _Below = _nothing_below


def _ranked_table(found: Ranking, layout: _Layout, currency: str) -> Html:
    """Return a table by rank, and a folded table of the others below it."""
    if not found.shown:
        return element("p", f"No {layout.noun} had any traffic.", class_="note")
    longest = max(row.traffic.bytes_in + row.traffic.bytes_out for row in found.shown if row.count == 1)
    shown = _ranked(found.shown, layout, layout.caption, currency, longest)
    if not found.others:
        return shown
    listed = _ranked(found.others, layout, f"{layout.caption}: the others", currency, longest)
    count = count_text(sum(row.count for row in found.others))
    return joined(shown, element("details", element("summary", f"The other {count} {layout.noun}s"), listed))


def _period_table(found: Periods, currency: str) -> Html:
    """Return a folded table of the chart's figures, without periods that have no traffic."""
    every = [*filter(None, [found.earlier]), *found.bars, *filter(None, [found.timeless])]
    listed = [period for period in every if period.traffic != Traffic()]
    rows = [
        _row(
            element("th", period.label or "without a time", scope="row"),
            _cells(period.traffic),
            period.amount,
        )
        for period in listed
    ]
    heads = (found.unit.capitalize(), "In", "Out", currency)
    table = _table(f"Traffic by {found.unit}", heads, rows, total(period.amount for period in listed))
    return element("details", element("summary", "The figures"), table)


def _budget_note(bill: Bill) -> _Below:
    """Return a function that shows how much of its budget an owner has spent."""

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
        return joined(_budget_bar(share, state), text)

    return note


def _ranked(rows: Sequence[Row], layout: _Layout, caption: str, currency: str, longest: int) -> Html:
    columns = ("In", "Out") if layout.incoming else ("Out",)
    heads = (layout.noun.capitalize(), *columns, currency)
    lines = [_ranked_row(row, layout, longest) for row in rows]
    return _table(caption, heads, lines, total(row.amount for row in rows))


def _ranked_row(row: Row, layout: _Layout, longest: int) -> Html:
    kind = None
    if row.count > 1:
        name, kind = f"{count_text(row.count)} others", "rest"
    elif row.name is None:
        name, kind = f"unattributed: no {layout.noun} is named", "nobody"
    else:
        name = printable(row.name)  # anyone can name groups, too
    bar = _traffic_bar(row.traffic, longest) if row.count == 1 else None
    head = element("th", element("span", name, class_="name"), bar, layout.below(row), scope="row")
    unread = layout.unread is None or row.name in layout.unread
    cells = _cells(row.traffic, unread=unread)
    return _row(head, cells if layout.incoming else cells[1:], row.amount, kind)


def _row(head: Html, cells: Sequence[Html], amount: Decimal, kind: str | None = None) -> Html:
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


_BAR_WIDTH: Final = 1000
_BAR_HEIGHT: Final = 10


def _traffic_bar(traffic: Traffic, longest: int) -> Html:
    """Return a bar of incoming and, behind it, outgoing traffic."""
    incoming = _bar_length(traffic.bytes_in, longest)
    outgoing = _bar_length(traffic.bytes_out, longest)
    told = f"{bytes_text(traffic.bytes_in)} in, {bytes_text(traffic.bytes_out)} out"
    return _svg_bar("bar", told, _bar_part("in", 0, incoming), _bar_part("out", incoming, outgoing))


def _budget_bar(share: Decimal, state: str) -> Html:
    """Return a bar of how much of a budget is spent."""
    return _svg_bar(
        "bar budget",
        f"{share * 100:.0f}% of the budget",
        _bar_part("whole", 0, _BAR_WIDTH),
        _bar_part(state, 0, min(int(share * _BAR_WIDTH), _BAR_WIDTH)),
    )


def _svg_bar(kind: str, told: str, *parts: Html | None) -> Html:
    box = f"0 0 {_BAR_WIDTH} {_BAR_HEIGHT}"
    return element(
        "svg",
        element("title", told),
        *parts,
        class_=kind,
        role="img",
        aria_label=told,
        viewBox=box,
        preserveAspectRatio="none",
    )


def _bar_part(kind: str, begin: int, width: int) -> Html | None:
    if not width:
        return None
    return element("rect", class_=kind, x=begin, y=0, width=width, height=_BAR_HEIGHT)


def _bar_length(size: int, longest: int) -> int:
    """Return the length of a bar; more than nothing is always visible."""
    return max(size * _BAR_WIDTH // longest, 2) if size and longest else 0


_SLOT: Final = 10
_GAP: Final = 1
_CHART_HEIGHT: Final = 1000
_LEAST_SLOTS: Final = 8
_LABELS: Final = 4


def _chart(found: Periods, currency: str) -> Html:
    """Return the chart, or a note if there is no traffic."""
    if not found.bars:
        return element("p", "There is no traffic to draw.", class_="note")
    most = max(_bytes_of(bar) for bar in found.bars)
    slots = max(len(found.bars), _LEAST_SLOTS)
    told = f"Bytes by {found.unit}, incoming below and outgoing above; at most {bytes_text(most)}"
    drawn = element(
        "svg",
        element("title", told),
        element("line", class_="grid", x1=0, x2=slots * _SLOT, y1=_CHART_HEIGHT // 2, y2=_CHART_HEIGHT // 2),
        *(_column(index, bar, most, currency) for index, bar in enumerate(found.bars)),
        role="img",
        aria_label=told,
        viewBox=f"0 0 {slots * _SLOT} {_CHART_HEIGHT}",
        preserveAspectRatio="none",
    )
    scale = element(
        "div", element("span", bytes_text(most)), element("span", bytes_text(most // 2)), class_="scale"
    )
    return element(
        "div", scale, element("div", drawn, class_="plot"), _chart_labels(found, slots), class_="chart"
    )


def _column(index: int, bar: Period, most: int, currency: str) -> Html:
    incoming = _column_height(bar.traffic.bytes_in, most)
    outgoing = _column_height(bar.traffic.bytes_out, most)
    told = (
        f"{bar.label}: {bytes_text(bar.traffic.bytes_in)} in, {bytes_text(bar.traffic.bytes_out)} out, "
        f"{money_text(bar.amount, currency)}"
    )
    return element(
        "g",
        element("title", told),
        _column_part("in", index, _CHART_HEIGHT - incoming, incoming),
        _column_part("out", index, _CHART_HEIGHT - incoming - outgoing, outgoing),
    )


def _column_part(kind: str, index: int, top: int, height: int) -> Html | None:
    if not height:
        return None
    return element("rect", class_=kind, x=index * _SLOT + _GAP, y=top, width=_SLOT - 2 * _GAP, height=height)


def _chart_labels(found: Periods, slots: int) -> Html:
    """Return the labels of some of the bars, each at its bar."""
    count = len(found.bars)
    step = max(1, -(-count // _LABELS))
    named = range(0, count, step)
    parts = (
        element("span", found.bars[index].label, style=f"left:{100 * index / slots:.2f}%") for index in named
    )
    return element("div", joined(*parts), class_="labels", aria_hidden="true")


def _bytes_of(bar: Period) -> int:
    return bar.traffic.bytes_in + bar.traffic.bytes_out


def _column_height(size: int, most: int) -> int:
    return max(size * _CHART_HEIGHT // most, 4) if size and most else 0


_LISTED: Final = 200
_UNFOLDED: Final = 8
_FREE: Final = Rates(per_gib=Decimal(0), per_million_records=Decimal(0))
_SOURCES: Final = {
    "audit": "counted by the consumers themselves (audit)",
    "offsets": "counted from the records between the offsets that groups committed",
}


def _unknown_reads(bill: Bill) -> Html | None:
    """List the reads that are not known, and so not charged; None if all are known."""
    if not bill.unknown:
        return None
    topics = len({each.topic for each in bill.unknown})
    listed = [element("li", _unknown_line(each)) for each in bill.unknown[:_LISTED]]
    unfolded = "" if len(listed) <= _UNFOLDED else None
    if len(bill.unknown) > _LISTED:
        listed.append(element("li", f"and {count_text(len(bill.unknown) - _LISTED)} more"))
    return element(
        "section",
        element("h2", "Reads that are not known"),
        element(
            "p",
            f"Some or all reads of {count_text(topics, 'topic')} are not known: they are in no figure here, "
            "and cost nothing. Outgoing traffic is therefore at least what is shown.",
        ),
        element("details", element("summary", "Which"), element("ul", *listed), open=unfolded),
        class_="warning",
    )


def _method(bill: Bill) -> Html:
    """Explain how the figures were counted, and which prices were used."""
    prices = bill.prices
    read = "; ".join(_SOURCES[source] for source in sorted(bill.sources) if source in _SOURCES)
    points = (
        f"Bytes of a record: {FORMULA}, as they travel, before a producer compresses whole batches.",
        "Incoming traffic is every record that the job saw, in the hour of its timestamp (UTC).",
        f"Outgoing traffic: {read or 'none is known'}.",
        (
            "The owner is the record's last hw.owner, else the topic's by the table of owners; for what "
            "a consumer group reads, the table of groups comes first. The producer is the service that "
            f"began the paper trail. Names are cut after {MAX_NAME_CHARACTERS} characters; whatever names "
            "nobody is unattributed, and is charged to nobody in particular."
        ),
        (
            f"{count_text(bill.malformed, 'incoming record')} had a trail or a block of header ids that "
            "cannot be read."
        ),
        (
            f"Costs are exact sums. Amounts are rounded to {prices.decimals} decimals by largest remainder: "
            "each table adds up to the same total, and no row is off by a whole unit."
        ),
        "Prices are per GiB (2**30 bytes) and per million records.",
    )
    return element(
        "section",
        element("h2", "How this was counted"),
        element("ul", *(element("li", point) for point in points)),
        element("h2", "Prices"),
        _prices(prices),
        _patterns("Owners by topic", prices.owners),
        _patterns("Payers by consumer group", prices.groups),
    )


def _prices(prices: Prices) -> Html:
    heads = ("Topics", "In per GiB", "In per million", "Out per GiB", "Out per million")
    incoming, outgoing = prices.incoming.over(_FREE), prices.outgoing.over(_FREE)
    rows = [
        (each.pattern, each.incoming.over(incoming), each.outgoing.over(outgoing)) for each in prices.topics
    ]
    rows.append(("all others" if rows else "all", incoming, outgoing))
    return element(
        "table",
        element("caption", f"In {prices.currency}; of several patterns that match, the first counts"),
        element("thead", element("tr", *(element("th", head, scope="col") for head in heads))),
        element("tbody", *(_price_row(*row) for row in rows)),
        class_="prices",
    )


def _price_row(pattern: str, incoming: Rates, outgoing: Rates) -> Html:
    amounts = (rate for rates in (incoming, outgoing) for rate in (rates.per_gib, rates.per_million_records))
    cells = (element("td", money_text(amount or Decimal(0))) for amount in amounts)
    return element("tr", element("th", pattern, scope="row"), *cells)


def _patterns(title: str, table: Mapping[str, str]) -> Html | None:
    if not table:
        return None
    lines = (element("li", f"{pattern}: {owner}") for pattern, owner in table.items())
    return element("details", element("summary", title), element("ul", *lines))


def _unknown_line(each: UnknownReads) -> Html:
    if each.group is None:
        return joined(
            element("b", each.topic), ": neither audit counts nor committed offsets tell who read it"
        )
    if each.offsets is None:
        what = "read an unknown number of records (it was new, or went back)"
    else:
        what = f"passed over {count_text(each.offsets, 'offset')} of records that this job did not see"
    return joined(element("b", each.topic), f": group {printable(each.group)} {what}")
