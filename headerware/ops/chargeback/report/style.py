"""How the report looks: light and dark as the reader's system is, narrow and wide, and on paper."""

from __future__ import annotations

from typing import Final

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
