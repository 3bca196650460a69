"""``make bench``: measure against the things themselves, on a real broker, and write the results.

With ``--quick`` fewer pairs are run, for a look rather than a figure.
"""

from __future__ import annotations

import sys

import click
import large
import small
from report import Row, table, write
from rich.console import Console

from headerware.testing import KafkaBroker


@click.command()
@click.option("--quick", is_flag=True, help="Fewer pairs; writes nothing.")
@click.option("--only", type=click.Choice(["small", "large"]), help="Measure one group; writes nothing.")
def main(*, quick: bool, only: str | None) -> None:
    """Measure all rows; exit code 1 where a bar does not hold."""
    console = Console(stderr=True, highlight=False)
    rows: list[Row] = []
    groups = {
        "small": lambda broker: small.rows(broker, pairs=8 if quick else 40),
        "large": lambda broker: large.rows(broker, pairs=3 if quick else 9),
    }
    with console.status("starting Apache Kafka"), KafkaBroker() as broker:
        for name, group in groups.items():
            if only in (None, name):
                for row in group(broker):
                    rows.append(row)
                    console.print(f"{row.name}: {row.ratio:.3f}  {row.bar and f'({row.bar})'}")
    print(table(rows) if quick or only else write(rows))
    sys.exit(any(row.holds is False for row in rows))


if __name__ == "__main__":
    main()
