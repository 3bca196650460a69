"""The page as a whole: totals, time, owners, topics, producers, readers, and how it all was counted."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headerware.core.errors import ConfigError
from headerware.ops.chargeback.bill import Bill, Traffic
from headerware.ops.chargeback.report.amounts import (
    bytes_text,
    count_text,
    moment_text,
    money_text,
    share_text,
)
from headerware.ops.chargeback.report.markup import Html, element
from headerware.ops.chargeback.report.method import method, unknown_reads
from headerware.ops.chargeback.report.periods import Periods, periods
from headerware.ops.chargeback.report.ranked import ranking
from headerware.ops.chargeback.report.style import STYLE
from headerware.ops.chargeback.report.tables import (
    Layout,
    budget_note,
    period_table,
    ranked_table,
)
from headerware.ops.chargeback.report.timeline import chart
from headerware.ops.chargeback.shares import rounded

if TYPE_CHECKING:
    import os

TITLE: Final = "Kafka chargeback"
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
"""The page loads nothing and runs nothing, whatever a name may hold."""


def write_report(
    path: str | os.PathLike[str], bill: Bill, *, title: str = TITLE, at: datetime | None = None
) -> None:
    """Write a bill as one HTML file that needs nothing else.

    Args:
        path: the file; what is there already is replaced.
        bill: the bill.
        title: what the page is called.
        at: when it was made, with a time zone; now where None.

    Raises:
        ConfigError: the file cannot be written.
    """
    try:
        Path(path).write_text(report_html(bill, title=title, at=at), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror or error}", path=str(path)) from error


def report_html(bill: Bill, *, title: str = TITLE, at: datetime | None = None) -> str:
    """Return a bill as the text of an HTML page; the arguments are those of :func:`write_report`."""
    time = periods(bill.by_hour, bill.prices.decimals)
    made = (at or datetime.now(UTC)).astimezone(UTC)
    body = element(
        "body",
        element("h1", title),
        element("p", f"{_period(bill)}. Made {moment_text(made)}.", class_="faint"),
        _tiles(bill),
        unknown_reads(bill),
        _over_time(time, bill.prices.currency),
        *_rankings(bill),
        method(bill),
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


def _period(bill: Bill) -> str:
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
    """Return the figure of outgoing traffic, and what is to be said of it."""
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
        chart(time, currency),
        *(element("p", note, class_="faint") for note in notes),
        period_table(time, currency) if time.bars or time.timeless else None,
    )


def _rankings(bill: Bill) -> list[Html]:
    prices = bill.prices
    return [
        element(
            "section",
            element("h2", f"By {layout.noun}"),
            ranked_table(ranking(sums, prices.decimals), layout, prices.currency),
        )
        for layout, sums in _layouts(bill)
        if sums or layout.incoming
    ]


def _layouts(bill: Bill) -> list[tuple[Layout, Mapping[str | None, Traffic] | Mapping[str, Traffic]]]:
    """Return the tables by rank; where no reads are known at all, each says so of every name."""
    unread = frozenset(each.topic for each in bill.unknown)
    every: frozenset[str] | None = frozenset() if bill.sources or not unread else None
    payers = Layout(caption="Who pays, and for how much", noun="owner", unread=every, below=budget_note(bill))
    topics = Layout(caption="Which topics the traffic belongs to", noun="topic", unread=unread)
    producers = Layout(
        caption="Which services produced the records that moved", noun="producer", unread=every
    )
    readers = Layout(caption="What the reads of consumer groups cost", noun="reader", incoming=False)
    return [
        (payers, bill.by_owner),
        (topics, bill.by_topic),
        (producers, bill.by_producer),
        (readers, bill.by_group),
    ]
