"""Chargeback in one process."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import confluent_kafka
from simulations.section import Anchor, Rows, Section, Table, count, least

from headerware.ops.chargeback import KeptUsage, count_usage
from headerware.testing import EmbeddedCluster

COUNTED_PER_S: Final = 40_000.0


def chargeback_tables(_: float) -> Iterator[Table]:
    rows: Rows = []
    for rate in (100.0, 1_000.0, 10_000.0, 30_000.0, 100_000.0):
        used = rate / COUNTED_PER_S
        hour = rate * 3600 / COUNTED_PER_S / 60
        rows.append(
            (
                f"{rate:,.0f}",
                count(rate * 86_400 / 1e6),
                f"{used:.1%}",
                count(hour) if used < 1 else "never ends",
            )
        )
    yield Table(
        "chargeback",
        ("records a second", "million records a day", "of a process", "an hour's run, min"),
        rows,
    )


def measured_counted_per_s() -> float:
    number = 60_000
    headers = [("hw.owner", b"shop"), ("hw.trail", b"1,at=1767225600000;by=checkout;into=east/orders")]
    with EmbeddedCluster(topics={"orders": 3}) as cluster, tempfile.TemporaryDirectory() as folder:
        conf = {"bootstrap.servers": cluster.bootstrap_servers}
        producer = confluent_kafka.Producer({**conf, "linger.ms": 50})
        for offset in range(number):
            producer.produce(
                "orders", bytes(50), partition=offset % 3, headers=list(headers)
            )  # each keeps 5 MB
            if offset % 10_000 == 0:
                producer.flush(30)
        producer.flush(30)
        runs = iter(range(3))

        def run() -> None:
            with KeptUsage(Path(folder) / f"{next(runs)}.db") as kept:
                assert count_usage(conf, ["orders"], kept, groups=None).records == number

        return number / least(run, time.perf_counter)


SECTION: Final = Section(
    "chargeback",
    chargeback_tables,
    (Anchor("records counted a second", COUNTED_PER_S, "records/s", measured_counted_per_s),),
)
