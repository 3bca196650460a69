"""The guard: batches that are read, verified and written in a transaction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from simulations.section import Anchor, Rows, Section, Table, count, measured_row

VERIFY_US: Final = 15.0
FORWARD_US: Final = 10.0
COMMIT_MS: Final = 15.0
BATCH: Final = 1_000


def guard(rate: float, batch: int, records: int, seed: int) -> tuple[float, float]:
    """Return the median and the 99th percentile of a record's time through the guard, in ms.

    Records arrive in bursts of 20 on average. A batch takes the records that have arrived, at most ``batch``,
    and costs a time for each record and for a commit.
    """
    rng = np.random.default_rng(seed)
    bursts = records // 20
    gaps = -np.log1p(-rng.random(bursts)) * 20 / rate
    arrivals = np.repeat(np.cumsum(gaps), 20)
    done = 0.0
    at = 0
    times = np.empty(arrivals.size)
    while at < arrivals.size:
        begin = max(done, float(arrivals[at]))
        taken = min(int(np.searchsorted(arrivals, begin, side="right")) - at, batch)
        done = begin + taken * (VERIFY_US + FORWARD_US) / 1e6 + COMMIT_MS / 1e3
        times[at : at + taken] = done - arrivals[at : at + taken]
        at += taken
    times.sort()
    return float(times[times.size // 2]) * 1e3, float(times[int(0.99 * times.size)]) * 1e3


def guard_tables(size: float) -> Iterator[Table]:
    rows: Rows = []
    for batch in (1, 10, 100, 1_000, 10_000):
        most = batch / (batch * (VERIFY_US + FORWARD_US) / 1e6 + COMMIT_MS / 1e3)
        rows.append(
            (
                f"{batch:,}",
                count(most),
                f"{COMMIT_MS / (COMMIT_MS + batch * (VERIFY_US + FORWARD_US) / 1e3):.0%}",
            )
        )
    yield Table("guard-batches", ("records in a transaction", "records a second", "time for commits"), rows)
    rows = []
    most = BATCH / (BATCH * (VERIFY_US + FORWARD_US) / 1e6 + COMMIT_MS / 1e3)
    for load in (0.1, 0.5, 0.8, 0.9, 0.95):
        median, late = guard(load * most, BATCH, int(400_000 * size), seed=5)
        rows.append((f"{load:.0%}", count(load * most), count(median), count(late)))
    yield Table(
        "guard-times",
        ("load", "records a second", "median, ms", "99 % below, ms"),
        rows,
    )


def _verify_us() -> float:
    return 1e6 / measured_row("consume, trail + compress + sign (HMAC)")


def _forward_us() -> float:
    return 1e6 / measured_row("produce, 4 no-op interceptors") + 1e6 / measured_row(
        "consume, 4 no-op interceptors"
    )


SECTION: Final = Section(
    "guard",
    guard_tables,
    (
        Anchor("reading and verifying a record (HMAC), us", VERIFY_US, "us", _verify_us),
        Anchor("handing a record on, us", FORWARD_US, "us", _forward_us),
    ),
)
