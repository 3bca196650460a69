"""``make bench``: measure against the bare libraries, on a real broker, and write the results.

With ``--quick``, fewer pairs run, for rough figures.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import aio
import chargeback
import claims
import click
import compaction
import connect
import dead_letters
import encryption
import guard
import header_ids
import large
import natively
import peers
import protection
import retention
import signatures
import small
import sources
import spark
import subjects
import tracing
from report import Row, table, write
from rich.console import Console

import serdes
from headerware.testing import KafkaBroker


@click.command()
@click.option("--quick", is_flag=True, help="Run fewer pairs, and write nothing.")
@click.option(
    "--only",
    type=click.Choice(
        [
            *(
                "small",
                "dead-letters",
                "large",
                "tracing",
                "aio",
                "serdes",
                "header-ids",
                "signatures",
                "encryption",
            ),
            *(
                "subjects",
                "protection",
                "natively",
                "guard",
                "compaction",
                "retention",
                "claims",
                "connect",
                "chargeback",
                "sources",
            ),
            *("peers", "spark", "spark-columns", "spark-batches"),
        ]
    ),
    help="Measure one group, and keep the results of the others. spark includes spark-columns and -batches.",
)
@click.option("--subjects", "subject_count", default=1_000_000, help="How many subjects have keys.")
def main(*, quick: bool, only: str | None, subject_count: int) -> None:
    """Measure all rows; exit with code 1 if a bar does not hold."""
    console = Console(stderr=True, highlight=False)
    rows: list[Row] = []
    alone = {
        "serdes": lambda: serdes.rows(pairs=8 if quick else 60),
        "header-ids": lambda: header_ids.rows(pairs=8 if quick else 60),
        "signatures": lambda: signatures.rows(pairs=5 if quick else 40),
        "encryption": lambda: encryption.rows(pairs=8 if quick else 60),
        "subjects": lambda: subjects.rows(
            pairs=8 if quick else 60, subjects=100_000 if quick else subject_count
        ),
        "protection": lambda: protection.rows(pairs=8 if quick else 60),
        "natively": lambda: natively.rows(pairs=8 if quick else 60),
        "claims": lambda: claims.rows(pairs=3 if quick else 15),
        "connect": lambda: connect.rows(seconds=1 if quick else 3),
        "spark": lambda: spark.rows(pairs=3 if quick else 7, many=2_000_000 if quick else spark.MANY),
        "spark-columns": lambda: spark.columns(pairs=3 if quick else 7),
        "spark-batches": lambda: spark.small_batches(batches=3 if quick else 9),
    }
    on_a_broker = {
        "small": lambda broker: small.rows(broker, pairs=8 if quick else 40),
        "dead-letters": lambda broker: dead_letters.rows(broker, pairs=5 if quick else 20),
        "aio": lambda broker: aio.rows(broker, pairs=8 if quick else 40),
        "large": lambda broker: large.rows(broker, pairs=3 if quick else 9),
        "compaction": lambda broker: compaction.rows(
            broker,
            pairs=3 if quick else 7,
            records=100_000 if quick else 1_000_000,
            keys=1_000_000 if quick else 10_000_000,
        ),
        "retention": lambda broker: retention.rows(
            broker,
            pairs=3 if quick else 7,
            records=100_000 if quick else 1_000_000,
            keys=1_000_000 if quick else 10_000_000,
        ),
        "tracing": lambda broker: tracing.rows(broker, pairs=5 if quick else 25),
        "guard": lambda broker: guard.rows(broker, pairs=1 if quick else 7),
        "chargeback": lambda broker: chargeback.rows(broker, pairs=3 if quick else 15),
        "sources": lambda broker: sources.rows(broker, pairs=2 if quick else 9),
        "peers": lambda broker: peers.rows(broker, pairs=4 if quick else 40),
    }

    def measured(group: Iterator[Row]) -> None:
        for row in group:
            rows.append(row)
            console.print(f"{row.name}: {row.ratio:.3f}  {row.bar and f'({row.bar})'}")

    if only not in alone:
        with console.status("starting Apache Kafka"), KafkaBroker() as broker:
            for name, group in on_a_broker.items():
                if only in (None, name):
                    measured(group(broker))
    for name, rows_of in alone.items():
        if only in (None, name) or name.startswith(f"{only}-"):
            measured(rows_of())
    print(table(rows) if quick else write(rows, keep_others=only is not None))
    sys.exit(any(row.holds is False for row in rows))


if __name__ == "__main__":
    main()
