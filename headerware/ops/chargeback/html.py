"""Write the parts of the page: markup that escapes, figures as text, and the style."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from html import escape
from typing import Final

_VOID: Final = frozenset({"meta"})


class Html(str):
    """Markup, as opposed to plain text; only :func:`element` and :func:`joined` make it."""

    __slots__ = ()


def element(tag: str, /, *parts: str | None, **attributes: str | float | None) -> Html:
    """Return an element."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{tag}{written}>" if tag in _VOID else f"<{tag}{written}>{joined(*parts)}</{tag}>")


def joined(*parts: str | None) -> Html:
    """Return parts joined; plain text is escaped, None is left out."""
    return Html("".join(part if isinstance(part, Html) else escape(part) for part in parts if part))


_UNITS: Final = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def bytes_text(size: int) -> str:
    """Return a size in the largest binary unit that it fills: ``1.50 GiB``."""
    if size < 1024:
        return f"{size} B"
    scaled = [(Decimal(size) / 1024**power, unit) for power, unit in enumerate(_UNITS, start=1)]
    value, unit = next((each for each in scaled if each[0] < 1000), scaled[-1])
    return f"{value:.{_decimals(value)}f} {unit}"


def count_text(count: int, noun: str = "") -> str:
    """Return a count with separators, and with the noun if there is one: ``1,204 records``."""
    if not noun:
        return f"{count:,}"
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def money_text(amount: Decimal, currency: str = "") -> str:
    """Return an amount, which is rounded already, as text."""
    return f"{amount:,f} {currency}".rstrip()


def share_text(part: Decimal | int, whole: Decimal | int) -> str:
    """Return the share of a whole in percent; 0% if the whole is 0."""
    if not whole:
        return "0%"
    percent = Decimal(part) * 100 / Decimal(whole)
    if 0 < percent < Decimal("0.1"):
        return "less than 0.1%"
    return f"{percent:.1f}%"


def moment_text(moment: datetime) -> str:
    """Return a moment in UTC, to the minute."""
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def _decimals(value: Decimal) -> int:
    """Return how many decimals make three digits, which are enough to compare by."""
    return 2 if value < 10 else 1 if value < 100 else 0


STYLE: Final = """
:root {
  color-scheme: light dark;
  --paper: #ffffff; --panel: #f4f6f8; --ink: #1b2430; --faint: #55606e; --rule: #d5dbe2;
  --in: #1f6fb2; --out: #c8601a; --whole: #dfe4ea;
  --within: #2f7d4f; --near: #946200; --over: #b3261e; --warning: #fdf3df;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14181d; --panel: #1d232a; --ink: #e6eaef; --faint: #a3adb9; --rule: #36404b;
    --in: #62aef0; --out: #f0975a; --whole: #36404b;
    --within: #6cc492; --near: #e3b04b; --over: #ff8a80; --warning: #33290f;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 62rem;
  background: var(--paper); color: var(--ink); font: 1rem/1.5 system-ui, sans-serif;
}
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .25rem; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 .5rem; }
.faint, small, caption { color: var(--faint); }
small { display: block; font-size: .8rem; font-weight: 400; }
small.near { color: var(--near); }
small.over { color: var(--over); font-weight: 600; }
.tiles {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr));
  gap: .75rem; margin: 1.25rem 0;
}
.tile {
  background: var(--panel); border-top: 4px solid var(--rule);
  border-radius: 4px; padding: .6rem .9rem .8rem;
}
.tile b { display: block; font-size: 1.45rem; line-height: 1.35; overflow-wrap: anywhere; }
.tile.in { border-color: var(--in); }
.tile.out { border-color: var(--out); }
.tile.nobody { border-color: var(--over); }
.warning {
  background: var(--warning); border-left: 4px solid var(--near); border-radius: 4px;
  padding: .1rem 1rem .6rem; margin: 1.5rem 0;
}
.warning h2 { margin-top: .7rem; }
.key { display: flex; gap: 1.25rem; flex-wrap: wrap; font-size: .9rem; }
.key span::before {
  content: ""; display: inline-block; width: .8em;
  height: .8em; margin-right: .4em; border-radius: 2px;
}
.key .in::before { background: var(--in); }
.key .out::before { background: var(--out); }
svg .in { fill: var(--in); }
svg .out { fill: var(--out); }
svg .whole { fill: var(--whole); }
svg .within { fill: var(--within); }
svg .near { fill: var(--near); }
svg .over { fill: var(--over); }
svg .grid { stroke: var(--rule); stroke-width: 1; vector-effect: non-scaling-stroke; }
.chart { display: grid; grid-template-columns: auto 1fr; column-gap: .6rem; margin-top: .5rem; }
.scale { position: relative; min-width: 4.2rem; text-align: right; font-size: .8rem; color: var(--faint); }
.scale span { position: absolute; right: 0; top: -.7em; }
.scale span + span { top: calc(50% - .7em); }
.plot { height: 13rem; border: 1px solid var(--rule); border-width: 1px 0; }
.plot svg { display: block; width: 100%; height: 100%; }
.labels { grid-column: 2; position: relative; height: 1.6rem; font-size: .75rem; color: var(--faint); }
.labels span { position: absolute; top: .2rem; white-space: nowrap; }
table { width: 100%; border-collapse: collapse; margin: .75rem 0; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-size: .9rem; padding-bottom: .3rem; }
th, td { padding: .4rem .5rem; border-bottom: 1px solid var(--rule); text-align: right; vertical-align: top; }
th:first-child { text-align: left; padding-left: 0; width: 46%; }
thead th { font-size: .85rem; color: var(--faint); }
tbody th { font-weight: 400; }
td { white-space: nowrap; }
.name { overflow-wrap: anywhere; }
.nobody .name { color: var(--over); font-weight: 600; }
.rest .name { font-style: italic; }
.sum th, .sum td { font-weight: 700; border-bottom: 0; }
.bar { display: block; width: 100%; height: .6rem; margin: .25rem 0 .1rem; }
.bar.budget { height: .3rem; }
.prices th:first-child { width: auto; overflow-wrap: anywhere; }
summary { cursor: pointer; padding: .3rem 0; }
li { overflow-wrap: anywhere; margin: .2rem 0; }
@media (max-width: 40rem) {
  body { padding: 1rem .75rem 3rem; }
  table { font-size: .85rem; }
  th, td { padding: .35rem .3rem; }
  th:first-child { width: 38%; }
  .prices td { white-space: normal; }
  .labels span:nth-child(even) { display: none; }
}
@media print {
  :root {
    --paper: #ffffff; --panel: #ffffff; --ink: #000000; --faint: #444444; --rule: #bbbbbb;
    --in: #1f6fb2; --out: #c8601a; --whole: #e4e4e4;
    --within: #2f7d4f; --near: #946200; --over: #b3261e; --warning: #ffffff;
  }
  body { max-width: none; padding: 0; font-size: 10pt; }
  tr, .tile, .chart, .warning { break-inside: avoid; }
  h2 { break-after: avoid; }
}
"""
