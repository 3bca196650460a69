"""Write the report: one self-contained HTML file, without scripts or network access.

The page shows totals, traffic over time, owners, topics, producers, readers, and how the figures were
counted. ``report.html.jinja`` is its template and ``report.css`` its style; this module prepares the
contents.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headerware.core.errors import ConfigError, MissingPartError
from headerware.core.extras import install_command
from headerware.ops.chargeback.bill import Bill, Traffic
from headerware.ops.chargeback.figures import bytes_text, count_text, moment_text, money_text, share_text
from headerware.ops.chargeback.names import MAX_NAME_CHARACTERS
from headerware.ops.chargeback.prices import Prices, Rates
from headerware.ops.chargeback.report_rows import Period, Periods, Row, periods, ranking
from headerware.ops.chargeback.rules import require_zone
from headerware.ops.chargeback.shares import rounded, total
from headerware.ops.chargeback.sizes import FORMULA
from headerware.registry.header_names import printable

if TYPE_CHECKING:
    import os

_TITLE: Final = "Kafka chargeback"
_LISTED: Final = 200
"""How many unknown reads are listed."""
_UNFOLDED: Final = 8
"""Up to this number, the list of unknown reads is open when the page loads."""


def write_report(
    path: str | os.PathLike[str], bill: Bill, *, title: str = _TITLE, at: datetime | None = None
) -> None:
    """Write a bill as one self-contained HTML file.

    Args:
        path: the file; an existing file is replaced.
        bill: the bill.
        title: the title of the page.
        at: the time of the report, with a time zone; None means now.

    Raises:
        ConfigError: the file cannot be written, or ``at`` has no time zone.
        MissingPartError: jinja2 is not installed.
    """
    try:
        Path(path).write_text(report_html(bill, title=title, at=at), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror or error}", path=str(path)) from error


def require_report() -> None:
    """Raise MissingPartError if jinja2, which the report needs, is not installed."""
    _template()


def report_html(bill: Bill, *, title: str = _TITLE, at: datetime | None = None) -> str:
    """Return the text of the HTML page; the arguments are as for :func:`write_report`."""
    require_zone(at, "at")
    page, style = _template()
    time = periods(bill.by_hour, bill.prices.decimals)
    text: str = page.render(
        title=title,
        style=style,
        time_span=_time_span(bill),
        made=(at or datetime.now(UTC)).astimezone(UTC),
        tiles=_tiles(bill),
        unknown=bill.unknown,
        unread_topics=len({each.topic for each in bill.unknown}),
        listed=_LISTED,
        unfolded=_UNFOLDED,
        time=time,
        chart=_chart(time, bill.prices.currency),
        not_drawn=_not_drawn(time),
        figures=_period_table(time, bill.prices.currency),
        rankings=_rankings(bill),
        method=_method(bill),
        prices=bill.prices,
        rates=_rates(bill.prices),
        zero=Decimal(0),
    )
    return f"{text}\n"


@cache
def _template() -> tuple[Any, str]:
    """Return the template of the page, and the text of its style."""
    try:
        from jinja2 import Environment, StrictUndefined  # noqa: PLC0415 - only the report needs it
    except ImportError as error:
        raise MissingPartError(f"the report needs jinja2: {install_command('report')}") from error
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    environment.filters |= {
        "bytes": bytes_text,
        "count_of": count_text,
        "moment": moment_text,
        "money": money_text,
        "printable": printable,
    }
    folder = files(__package__)
    text = folder.joinpath("report.html.jinja").read_text(encoding="utf-8")
    page = environment.from_string(re.sub(r"\n\s*", "", text).replace("<!DOCTYPE html>", "<!DOCTYPE html>\n"))
    return page, "\n" + folder.joinpath("report.css").read_text(encoding="utf-8")


def _time_span(bill: Bill) -> str:
    hours = [hour for hour in bill.by_hour if hour is not None]
    if not hours:
        return "No hours with traffic"
    return f"From {moment_text(min(hours))} to {moment_text(max(hours) + timedelta(hours=1))}"


class _Tile(NamedTuple):
    label: str
    figure: str
    more: str
    kind: str = ""


def _tiles(bill: Bill) -> list[_Tile]:
    prices, total = bill.prices, bill.total
    nobody = bill.by_owner.get(None, Traffic())
    moved, unattributed = total.bytes_in + total.bytes_out, nobody.bytes_in + nobody.bytes_out
    amount = money_text(rounded(total.cost, prices.decimals), prices.currency)
    return [
        _Tile("Cost", amount, f"{count_text(len(bill.by_owner.keys() - {None}), 'payer')}"),
        _Tile("Incoming", bytes_text(total.bytes_in), count_text(total.records_in, "record"), "in"),
        _Tile("Outgoing", *_outgoing(bill), "out"),
        _Tile(
            "Unattributed",
            share_text(unattributed, moved),
            f"{bytes_text(unattributed)}, {share_text(nobody.cost, total.cost)} of the cost",
            "nobody" if unattributed else "",
        ),
    ]


def _outgoing(bill: Bill) -> tuple[str, str]:
    """Return the figure of outgoing traffic, and a note on it."""
    if bill.unknown and not bill.sources:
        return "unknown", "reads are not known"
    records = count_text(bill.total.records_out, "record")
    return bytes_text(bill.total.bytes_out), f"{records}, and unknown reads" if bill.unknown else records


class _Cell(NamedTuple):
    figure: str
    records: str = ""


class _BarPart(NamedTuple):
    kind: str
    begin: int
    width: int


class _Bar(NamedTuple):
    kind: str
    told: str
    parts: Sequence[_BarPart]


class _Note(NamedTuple):
    state: str
    text: str


class _Line(NamedTuple):
    """A line of a table; in a table by rank, the name may have bars and a note below."""

    name: str
    cells: Sequence[_Cell]
    amount: Decimal
    kind: str = ""
    is_ranked: bool = False
    bars: Sequence[_Bar] = ()
    note: _Note | None = None


class _Table(NamedTuple):
    caption: str
    heads: Sequence[str]
    lines: Sequence[_Line]
    amount: Decimal


class _Ranked(NamedTuple):
    """A table by rank, and a collapsed table of the other names."""

    noun: str
    shown: _Table | None
    others: _Table | None
    other_names: int


_Below = Callable[[Row], tuple[_Bar, _Note] | None]
"""Returns a bar and a note to show below the bar of a row, such as its budget."""


def _nothing_below(row: Row) -> None:
    """Return None, for tables that show nothing below the bar of a row."""


class _Layout(NamedTuple):
    """The contents of a table by rank.

    ``noun`` is the kind of the names: ``owner``, ``topic``. ``unread`` has the names whose reads are unknown
    or partly unknown; None means all names. ``incoming`` is True if the table has a column of incoming
    traffic.
    """

    caption: str
    noun: str
    unread: frozenset[str] | None = frozenset()
    incoming: bool = True
    below: _Below = _nothing_below


def _rankings(bill: Bill) -> list[_Ranked]:
    return [_ranked(sums, layout, bill.prices) for layout, sums in _layouts(bill) if sums or layout.incoming]


def _layouts(bill: Bill) -> list[tuple[_Layout, Mapping[str | None, Traffic] | Mapping[str, Traffic]]]:
    """Return the tables by rank; if no reads are known at all, each table shows them as unknown."""
    unread = frozenset(each.topic for each in bill.unknown)
    every: frozenset[str] | None = frozenset() if bill.sources or not unread else None
    payers = _Layout("Who pays, and for how much", "owner", unread=every, below=_budget_note(bill))
    topics = _Layout("Which topics the traffic belongs to", "topic", unread=unread)
    producers = _Layout("Which services produced the records that moved", "producer", unread=every)
    readers = _Layout("What the reads of consumer groups cost", "reader", incoming=False)
    return [
        (payers, bill.by_owner),
        (topics, bill.by_topic),
        (producers, bill.by_producer),
        (readers, bill.by_group),
    ]


def _ranked(
    sums: Mapping[str | None, Traffic] | Mapping[str, Traffic], layout: _Layout, prices: Prices
) -> _Ranked:
    found = ranking(sums, prices.decimals)
    if not found.shown:
        return _Ranked(layout.noun, None, None, 0)
    longest = max(_bytes_of(row) for row in found.shown if row.count == 1)
    columns = ("In", "Out") if layout.incoming else ("Out",)
    heads = (layout.noun.capitalize(), *columns, prices.currency)

    def table(caption: str, rows: Sequence[Row]) -> _Table:
        lines = [_ranked_line(row, layout, longest) for row in rows]
        return _Table(caption, heads, lines, total(row.amount for row in rows))

    others = table(f"{layout.caption}: the others", found.others) if found.others else None
    names = sum(row.count for row in found.others)
    return _Ranked(layout.noun, table(layout.caption, found.shown), others, names)


def _ranked_line(row: Row, layout: _Layout, longest: int) -> _Line:
    kind = ""
    if row.count > 1:
        name, kind = f"{count_text(row.count)} others", "rest"
    elif row.name is None:
        name, kind = f"unattributed: no {layout.noun} is named", "nobody"
    else:
        name = printable(row.name)  # anyone can choose a group's name
    bars = [_traffic_bar(row.traffic, longest)] if row.count == 1 else []
    note = None
    if (below := layout.below(row)) is not None:
        bar, note = below
        bars.append(bar)
    unread = layout.unread is None or row.name in layout.unread
    cells = _cells(row.traffic, unread=unread)
    return _Line(name, cells if layout.incoming else cells[1:], row.amount, kind, True, bars, note)  # noqa: FBT003 - in order of the fields


_NEAR: Final = Decimal("0.8")


def _budget_note(bill: Bill) -> _Below:
    """Return a function that shows how much of its budget an owner has spent."""

    def note(row: Row) -> tuple[_Bar, _Note] | None:
        budget = bill.prices.budgets.get(row.name) if row.name is not None else None
        if budget is None:
            return None
        share = row.amount / budget if budget else Decimal(2 if row.amount else 0)
        state, word = ("over", "over budget: ") if share > 1 else ("within", "")
        if _NEAR <= share <= 1:
            state, word = "near", "near its budget: "
        money = money_text(rounded(budget, bill.prices.decimals), bill.prices.currency)
        spent = share_text(row.amount, budget) if budget else "spent without one"
        return _budget_bar(share, state), _Note(state, f"{word}{spent} of {money}")

    return note


def _cells(traffic: Traffic, *, unread: bool = False) -> list[_Cell]:
    outgoing = _moved(traffic.bytes_out, traffic.records_out)
    if unread and traffic.records_out:
        outgoing = _moved(traffic.bytes_out, traffic.records_out, "at least ")
    elif unread:
        outgoing = _Cell("unknown")
    return [_moved(traffic.bytes_in, traffic.records_in), outgoing]


def _moved(size: int, records: int, bound: str = "") -> _Cell:
    return _Cell(bytes_text(size), bound + count_text(records, "record"))


_BAR_WIDTH: Final = 1000


def _traffic_bar(traffic: Traffic, longest: int) -> _Bar:
    """Return a bar of incoming traffic, followed by outgoing traffic."""
    incoming = _bar_length(traffic.bytes_in, longest)
    outgoing = _bar_length(traffic.bytes_out, longest)
    told = f"{bytes_text(traffic.bytes_in)} in, {bytes_text(traffic.bytes_out)} out"
    return _bar("bar", told, _BarPart("in", 0, incoming), _BarPart("out", incoming, outgoing))


def _budget_bar(share: Decimal, state: str) -> _Bar:
    """Return a bar that shows the spent share of a budget."""
    spent = min(int(share * _BAR_WIDTH), _BAR_WIDTH)
    told = f"{share * 100:.0f}% of the budget"
    return _bar("bar budget", told, _BarPart("whole", 0, _BAR_WIDTH), _BarPart(state, 0, spent))


def _bar(kind: str, told: str, *parts: _BarPart) -> _Bar:
    return _Bar(kind, told, [part for part in parts if part.width])


def _bar_length(size: int, longest: int) -> int:
    """Return the length of a bar; a size above 0 is always visible."""
    return max(size * _BAR_WIDTH // longest, 2) if size and longest else 0


def _bytes_of(part: Row | Period) -> int:
    return part.traffic.bytes_in + part.traffic.bytes_out


def _period_table(found: Periods, currency: str) -> _Table | None:
    """Return a table of the chart's figures, without periods that have no traffic."""
    if not found.bars and not found.timeless:
        return None
    every = [*filter(None, [found.earlier]), *found.bars, *filter(None, [found.timeless])]
    listed = [period for period in every if period.traffic != Traffic()]
    lines = [
        _Line(period.label or "without a time", _cells(period.traffic), period.amount) for period in listed
    ]
    heads = (found.unit.capitalize(), "In", "Out", currency)
    return _Table(f"Traffic by {found.unit}", heads, lines, total(period.amount for period in listed))


def _not_drawn(time: Periods) -> list[str]:
    parts = ((time.timeless, "without a time"), (time.earlier, "before the first bar"))
    return [f"{bytes_text(_bytes_of(part))} {where}" for part, where in parts if part is not None]


_SLOT: Final = 10
_GAP: Final = 1
_CHART_HEIGHT: Final = 1000
_LEAST_SLOTS: Final = 8
_LABELS: Final = 4


class _ColumnPart(NamedTuple):
    kind: str
    top: int
    height: int


class _Column(NamedTuple):
    told: str
    left: int
    parts: Sequence[_ColumnPart]


class _Label(NamedTuple):
    left: str
    text: str


class _Chart(NamedTuple):
    told: str
    most: int
    width: int
    columns: Sequence[_Column]
    labels: Sequence[_Label]


def _chart(found: Periods, currency: str) -> _Chart | None:
    """Return the chart; None if there is no traffic."""
    if not found.bars:
        return None
    most = max(map(_bytes_of, found.bars))
    slots = max(len(found.bars), _LEAST_SLOTS)
    step = max(1, -(-len(found.bars) // _LABELS))
    return _Chart(
        f"Bytes by {found.unit}, incoming below and outgoing above; at most {bytes_text(most)}",
        most,
        slots * _SLOT,
        [_column(index, bar, most, currency) for index, bar in enumerate(found.bars)],
        [
            _Label(f"{100 * index / slots:.2f}", found.bars[index].label)
            for index in range(0, len(found.bars), step)
        ],
    )


def _column(index: int, bar: Period, most: int, currency: str) -> _Column:
    incoming = _column_height(bar.traffic.bytes_in, most)
    outgoing = _column_height(bar.traffic.bytes_out, most)
    told = (
        f"{bar.label}: {bytes_text(bar.traffic.bytes_in)} in, {bytes_text(bar.traffic.bytes_out)} out, "
        f"{money_text(bar.amount, currency)}"
    )
    parts = (
        _ColumnPart("in", _CHART_HEIGHT - incoming, incoming),
        _ColumnPart("out", _CHART_HEIGHT - incoming - outgoing, outgoing),
    )
    return _Column(told, index * _SLOT + _GAP, [part for part in parts if part.height])


def _column_height(size: int, most: int) -> int:
    return max(size * _CHART_HEIGHT // most, 4) if size and most else 0


_FREE: Final = Rates(per_gib=Decimal(0), per_million_records=Decimal(0))
_SOURCES: Final = {
    "audit": "counted by the consumers themselves (audit)",
    "offsets": "counted from the records between the offsets that groups committed",
}


def _method(bill: Bill) -> tuple[str, ...]:
    """Return sentences that explain how the figures were counted."""
    read = "; ".join(_SOURCES[source] for source in sorted(bill.sources) if source in _SOURCES)
    return (
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
            f"Costs are exact sums. Amounts are rounded to {bill.prices.decimals} decimals by largest "
            "remainder: each table adds up to the same total, and no row is off by a whole unit."
        ),
        "Prices are per GiB (2**30 bytes) and per million records.",
    )


def _rates(prices: Prices) -> list[tuple[str, Rates, Rates]]:
    """Return the incoming and the outgoing rates of each pattern of topics."""
    incoming, outgoing = prices.incoming.over(_FREE), prices.outgoing.over(_FREE)
    rates = [
        (each.pattern, each.incoming.over(incoming), each.outgoing.over(outgoing)) for each in prices.topics
    ]
    return [*rates, ("all others" if rates else "all", incoming, outgoing)]
