"""Windows of dedup and of replay."""

from __future__ import annotations

import tracemalloc
from collections import deque
from collections.abc import Iterator
from typing import Final

import numpy as np
from simulations.section import MB, Anchor, Rows, Section, Table, count

from headerware import Record
from headerware.interceptors.dedup.identity import MARK_AT
from headerware.interceptors.dedup.windows import MemoryWindows

WINDOW: Final = 10_000
MAX_IDENTITIES: Final = 1_000_000
IDENTITY_BYTES: Final = 120


def recognised(producers: int, delay_s: float, records_per_s: float, size: float, seed: int) -> float:
    """Return the share of copies that our own window recognises; windows and rates are scaled down alike.

    Each record is copied once, after a delay. All producers have an equal chance to send the next record.
    """
    window, most = max(10, int(WINDOW * size)), max(20, int(MAX_IDENTITIES * size))
    rng = np.random.default_rng(seed)
    windows = MemoryWindows(window, most)
    delayed = int(delay_s * records_per_s * size)
    number = min(delayed, 3 * most) + 2_000
    chosen = (rng.random(number) * producers).astype(np.int64).tolist()
    waiting: deque[tuple[bytes, Record]] = deque()
    found = asked = 0
    for offset, producer in enumerate(chosen):
        identity = producer.to_bytes(MARK_AT, "big") + offset.to_bytes(8, "big")
        assert not windows.is_duplicate(identity, Record("t", None, partition=0, offset=offset))
        waiting.append((identity, Record("t", None, partition=1, offset=offset)))
        if len(waiting) > delayed:
            asked += 1
            found += windows.is_duplicate(*waiting.popleft())
    return found / asked if asked else 0.0


def window_tables(size: float) -> Iterator[Table]:
    rows: Rows = []
    for producers, rate in (
        (10, 100.0),
        (10, 10_000.0),
        (100, 10_000.0),
        (1_000, 10_000.0),
        (1_000, 100_000.0),
    ):
        span_s = min(2 * WINDOW * producers, MAX_IDENTITIES) / rate
        held = min(2 * WINDOW * producers, MAX_IDENTITIES)
        parts = [recognised(producers, delay, rate, 0.01 * size, seed=4) for delay in (1, 60, 3_600)]
        rows.append(
            (
                f"{producers:,}",
                f"{rate:,.0f}",
                count(held * IDENTITY_BYTES / MB),
                count(span_s),
                *(f"{part:.0%}" for part in parts),
            )
        )
    yield Table(
        "windows",
        (
            "producers",
            "records a second, of all",
            "memory at most, MB",
            "oldest that is remembered, s",
            "copies recognised after 1 s",
            "after 1 min",
            "after 1 h",
        ),
        rows,
    )


def measured_identity_bytes() -> float:
    number = 100_000
    tracemalloc.start()
    windows = MemoryWindows(number, 2 * number)
    for offset in range(number - 1):
        identity = bytes(MARK_AT) + offset.to_bytes(8, "big")
        windows.is_duplicate(identity, Record("t", None, partition=0, offset=offset))
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(windows) == number - 1
    return size / number


SECTION: Final = Section(
    "windows",
    window_tables,
    (Anchor("memory of an identity, bytes", IDENTITY_BYTES, "bytes", measured_identity_bytes),),
)
