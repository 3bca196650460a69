"""The parts of a simulation: the tables of a model, and the anchors that check its assumptions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parents[1]
Rows = list[tuple[str, ...]]
MB: Final = 1_000_000
MIB: Final = 1 << 20


@dataclass(frozen=True)
class Table:
    """A table that depends on nothing but the assumptions."""

    name: str
    columns: tuple[str, ...]
    rows: Rows

    def markdown(self) -> str:
        """Return the table as Markdown; numbers are flush right."""
        rules = ("---", *("---:" for _ in self.columns[1:]))
        lines = (self.columns, rules, *self.rows)
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


@dataclass(frozen=True)
class Anchor:
    """An assumption of a model, and a measurement of this library that checks it."""

    what: str
    assumed: float
    unit: str
    measure: Callable[[], float]


@dataclass(frozen=True)
class Section:
    """A simulation: its tables, at a size of 1 as the document has them, and its anchors."""

    name: str
    tables: Callable[[float], Iterator[Table]]
    anchors: tuple[Anchor, ...] = ()


def count(value: float) -> str:
    """Return a number for a table: three significant digits, or all digits of a large number."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value else "0"


def measured_row(name: str) -> float:
    """Return our figure of a row of bench/results.json."""
    rows = json.loads((FOLDER / "results.json").read_text(encoding="utf-8"))
    return next(float(row["ours"]) for row in rows if row["name"] == name)


def least(work: Callable[[], object], clock: Callable[[], float]) -> float:
    """Return the least seconds of three runs, by a clock: the CPU's, or the wall's if the work waits."""
    times = []
    for _ in range(3):
        began = clock()
        work()
        times.append(clock() - began)
    return min(times)
