"""``python bench/simulate.py``: model and simulate sizes that no test machine has.

    python bench/simulate.py                     print all tables
    python bench/simulate.py --only keys         one section
    python bench/simulate.py --write             write the tables into docs/scale.md, and measure the anchors

Each section is a module of ``simulations``. It has a model, which docs/scale.md describes, its tables, and
anchors: measurements of this library that check the model's assumptions. Tables depend on the assumptions and
on seeds alone, never on the machine, so that a test can compare them with the document. The models transform
uniform random numbers, because numpy promises to keep no other stream.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click
from simulations import chargeback, guard, keys, reassembly, registry, retention, trails, windows
from simulations.section import Rows, Section, Table, count

DOCUMENT: Final = Path(__file__).parents[1] / "docs" / "scale.md"
SECTIONS: Final = tuple(
    each.SECTION for each in (registry, keys, reassembly, trails, windows, guard, retention, chargeback)
)


def anchors_table(sections: Sequence[Section]) -> Table:
    """Measure the assumptions of the models."""
    rows: Rows = [
        (anchor.what, section.name, count(anchor.assumed), count(anchor.measure()))
        for section in sections
        for anchor in section.anchors
    ]
    return Table("anchors", ("assumption", "used in", "assumed", "measured"), rows)


def between(name: str) -> re.Pattern[str]:
    """Return the pattern of a table in the document."""
    return re.compile(rf"(<!-- table: {name} -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def written(document: str, table: Table) -> str:
    """Return the document with the table instead of its earlier version."""
    text, found_count = between(table.name).subn(
        lambda found: f"{found[1]}{table.markdown()}\n{found[3]}", document
    )
    if found_count != 1:
        raise click.ClickException(f"expected one table {table.name} in {DOCUMENT}, found {found_count}")
    return text


@click.command()
@click.option(
    "--only", type=click.Choice([section.name for section in SECTIONS]), help="Print this section only."
)
@click.option("--write", is_flag=True, help="Write the tables into docs/scale.md, and measure the anchors.")
@click.option("--measure", is_flag=True, help="Also measure the anchors.")
def main(*, only: str | None, write: bool, measure: bool) -> None:
    """Print the tables of docs/scale.md."""
    sections = [section for section in SECTIONS if only in (None, section.name)]
    tables = [table for section in sections for table in section.tables(1.0)]
    if measure or (write and only is None):
        tables.append(anchors_table(sections))
    if write:
        text = DOCUMENT.read_text(encoding="utf-8")
        for table in tables:
            text = written(text, table)
        DOCUMENT.write_text(text, encoding="utf-8")
    sys.stdout.write("\n\n".join(table.markdown() for table in tables) + "\n")


if __name__ == "__main__":
    main()
