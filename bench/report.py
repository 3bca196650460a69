"""Rows of the bench, written as JSON for machines and as Markdown for people."""

from __future__ import annotations

import json
import operator
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

FOLDER = Path(__file__).parent
_HOLDS = {"at least": operator.ge, "at most": operator.le}


@dataclass(frozen=True)
class Row:
    """One comparison.

    Attributes:
        name: what was compared.
        ours: our figure, in ``unit``.
        reference: the reference's figure, in ``unit``.
        unit: the unit, such as ``records/s``.
        ratio: ours to the reference's, by pairs where there are pairs.
        bar: the requirement: on the ratio, such as ``at least 0.97``; on our figure, such as
            ``ours at most 1500``; on the difference, such as ``adds at most 3000``; empty for rows that only
            inform.
        note: how it was measured.
        cpu_us: CPU microseconds a record of ours and of the reference, if they were measured.
    """

    name: str
    ours: float
    reference: float
    unit: str
    ratio: float
    bar: str = ""
    note: str = ""
    cpu_us: tuple[float, float] | None = None

    @property
    def holds(self) -> bool | None:
        """Whether the bar holds; None if there is none."""
        if not self.bar:
            return None
        *figure, at, bound, number = self.bar.split()
        figures = {"ours": self.ours, "adds": self.ours - self.reference}
        found = figures[figure[0]] if figure else self.ratio
        return bool(_HOLDS[f"{at} {bound}"](found, float(number)))


def write(rows: Sequence[Row], *, keep_others: bool = False) -> str:
    """Write ``results.json`` and ``RESULTS.md`` beside this file, and return the table of these rows.

    With ``keep_others``, the rows of other names keep their earlier figures.
    """
    results = FOLDER / "results.json"
    by_name = {row.name: row for row in (_read(results) if keep_others else [])}
    by_name.update({row.name: row for row in rows})
    found = [{**asdict(row), "holds": row.holds} for row in by_name.values()]
    results.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    text = f"# Bench\n\n{_machine()}\n\n{table([*by_name.values()])}"
    (FOLDER / "RESULTS.md").write_text(text, encoding="utf-8")
    return table(rows)


def _read(results: Path) -> list[Row]:
    rows = json.loads(results.read_text(encoding="utf-8"))
    return [Row(**{name: value for name, value in row.items() if name != "holds"}) for row in rows]


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a Markdown table."""
    lines = [
        "| work | ours | reference | unit | ratio | CPU us a record | bar | holds | how |",
        "| --- | ---: | ---: | --- | ---: | ---: | --- | --- | --- |",
    ]
    for row in rows:
        holds = {True: "yes", False: "no", None: ""}[row.holds]
        lines.append(
            f"| {row.name} | {row.ours:,.0f} | {row.reference:,.0f} | {row.unit} | {row.ratio:.3f} "
            f"| {_cpu(row)} | {row.bar} | {holds} | {row.note} |"
        )
    return "\n".join(lines) + "\n"


def _cpu(row: Row) -> str:
    return "" if row.cpu_us is None else " / ".join(f"{figure:,.1f}" for figure in row.cpu_us)


def _machine() -> str:
    return (
        f"Measured on {os.cpu_count()} cores, {platform.system()} {platform.machine()}, "
        f"Python {platform.python_version()}, confluent-kafka {version('confluent-kafka')}, "
        "on a real Apache Kafka 4.3.1 on the same machine. Ratios are medians of pairs of chunks that "
        "alternate between two live clients; `make bench` makes this file."
    )
