"""Traffic over time: stacked bars in SVG, as wide as the page, with their labels as text around them."""

from __future__ import annotations

from typing import Final

from headerware.ops.chargeback.report.amounts import bytes_text, money_text
from headerware.ops.chargeback.report.markup import Html, element, joined
from headerware.ops.chargeback.report.periods import Period, Periods

_SLOT: Final = 10
_GAP: Final = 1
_HEIGHT: Final = 1000
_LEAST_SLOTS: Final = 8
_LABELS: Final = 4


def chart(found: Periods, currency: str) -> Html:
    """Return the chart; nothing where there are no bars.

    Args:
        found: the bars.
        currency: what amounts are called.
    """
    if not found.bars:
        return element("p", "There is no traffic to draw.", class_="note")
    most = max(_bytes(bar) for bar in found.bars)
    slots = max(len(found.bars), _LEAST_SLOTS)
    told = f"Bytes by {found.unit}, incoming below and outgoing above; at most {bytes_text(most)}"
    drawn = element(
        "svg",
        element("title", told),
        element("line", class_="grid", x1=0, x2=slots * _SLOT, y1=_HEIGHT // 2, y2=_HEIGHT // 2),
        *(_bar(index, bar, most, currency) for index, bar in enumerate(found.bars)),
        role="img",
        aria_label=told,
        viewBox=f"0 0 {slots * _SLOT} {_HEIGHT}",
        preserveAspectRatio="none",
    )
    scale = element(
        "div", element("span", bytes_text(most)), element("span", bytes_text(most // 2)), class_="scale"
    )
    return element("div", scale, element("div", drawn, class_="plot"), _labels(found, slots), class_="chart")


def _bar(index: int, bar: Period, most: int, currency: str) -> Html:
    incoming = _scaled(bar.traffic.bytes_in, most)
    outgoing = _scaled(bar.traffic.bytes_out, most)
    told = (
        f"{bar.label}: {bytes_text(bar.traffic.bytes_in)} in, {bytes_text(bar.traffic.bytes_out)} out, "
        f"{money_text(bar.amount, currency)}"
    )
    return element(
        "g",
        element("title", told),
        _part("in", index, _HEIGHT - incoming, incoming),
        _part("out", index, _HEIGHT - incoming - outgoing, outgoing),
    )


def _part(kind: str, index: int, top: int, height: int) -> Html | None:
    if not height:
        return None
    return element("rect", class_=kind, x=index * _SLOT + _GAP, y=top, width=_SLOT - 2 * _GAP, height=height)


def _labels(found: Periods, slots: int) -> Html:
    """Name some of the bars, each where its bar stands."""
    count = len(found.bars)
    step = max(1, -(-count // _LABELS))
    named = range(0, count, step)
    parts = (
        element("span", found.bars[index].label, style=f"left:{100 * index / slots:.2f}%") for index in named
    )
    return element("div", joined(*parts), class_="labels", aria_hidden="true")


def _bytes(bar: Period) -> int:
    return bar.traffic.bytes_in + bar.traffic.bytes_out


def _scaled(size: int, most: int) -> int:
    return max(size * _HEIGHT // most, 4) if size and most else 0
