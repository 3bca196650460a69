"""Bars in SVG. Names and figures stand beside them as text, so that a bar may be as wide as the page."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from headerware.ops.chargeback.bill import Traffic
from headerware.ops.chargeback.report.amounts import bytes_text
from headerware.ops.chargeback.report.markup import Html, element

_WIDTH: Final = 1000
_HEIGHT: Final = 10


def traffic_bar(traffic: Traffic, longest: int) -> Html:
    """Return a bar of what came in and, behind it, what went out.

    Args:
        traffic: what moved.
        longest: the bytes that fill the whole width.
    """
    incoming = _scaled(traffic.bytes_in, longest)
    outgoing = _scaled(traffic.bytes_out, longest)
    told = f"{bytes_text(traffic.bytes_in)} in, {bytes_text(traffic.bytes_out)} out"
    return _bar("bar", told, _part("in", 0, incoming), _part("out", incoming, outgoing))


def budget_bar(share: Decimal, state: str) -> Html:
    """Return a bar of how much of a budget is spent.

    Args:
        share: the part of it, 1 for all.
        state: the class that gives its colour: ``within``, ``near`` or ``over``.
    """
    return _bar(
        "bar budget",
        f"{share * 100:.0f}% of the budget",
        _part("whole", 0, _WIDTH),
        _part(state, 0, min(int(share * _WIDTH), _WIDTH)),
    )


def _bar(kind: str, told: str, *parts: Html | None) -> Html:
    box = f"0 0 {_WIDTH} {_HEIGHT}"
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


def _part(kind: str, begin: int, width: int) -> Html | None:
    if not width:
        return None
    return element("rect", class_=kind, x=begin, y=0, width=width, height=_HEIGHT)


def _scaled(size: int, longest: int) -> int:
    """Return a length; the least that is anything is still seen."""
    return max(size * _WIDTH // longest, 2) if size and longest else 0
