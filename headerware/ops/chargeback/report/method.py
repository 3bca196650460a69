"""The end of the report: how it was counted, what is not known, and the prices."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from headerware.ops.chargeback.bill import Bill, UnknownReads
from headerware.ops.chargeback.names import MAX_NAME_CHARACTERS
from headerware.ops.chargeback.prices import Prices, Rates
from headerware.ops.chargeback.report.amounts import count_text, money_text
from headerware.ops.chargeback.report.markup import Html, element, joined
from headerware.ops.chargeback.sizes import FORMULA
from headerware.registry.header_names import printable

_LISTED: Final = 200
_UNFOLDED: Final = 8
_FREE: Final = Rates(per_gib=Decimal(0), per_million_records=Decimal(0))
_SOURCES: Final = {
    "audit": "counted by the consumers themselves (audit)",
    "offsets": "counted from the records between the offsets that groups committed",
}


def unknown_reads(bill: Bill) -> Html | None:
    """Tell which reads are not known, and so not charged; nothing where all are."""
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


def method(bill: Bill) -> Html:
    """Tell how the figures came about, and which prices were used."""
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
