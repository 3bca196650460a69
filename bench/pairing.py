"""Compare two ways of doing one thing by alternating chunks between them.

Runs of the same code differ by a fifth on a shared machine; chunks that alternate see the same
neighbours, and the median of the paired ratios resolves a percent.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

Chunk = Callable[[], int]
"""Do one chunk of work, and return its number of units (records, bytes)."""


@dataclass(frozen=True)
class Paired:
    """The result of pairs of chunks.

    Attributes:
        ours: our rate, in units a second (median over the chunks).
        reference: the reference's rate.
        ratio: the median of the ratios, pair by pair; 1.0 is as fast as the reference.
    """

    ours: float
    reference: float
    ratio: float


def compare(ours: Chunk, reference: Chunk, *, pairs: int = 40, warm_up: int = 4) -> Paired:
    """Run both in turn, the first of each pair alternating, and take medians."""
    for _ in range(warm_up):
        ours()
        reference()
    ratios, our_rates, reference_rates = [], [], []
    gc.collect()
    gc.freeze()
    for index in range(pairs):
        if index % 2:
            theirs, mine = _rate(reference), _rate(ours)
        else:
            mine, theirs = _rate(ours), _rate(reference)
        our_rates.append(mine)
        reference_rates.append(theirs)
        ratios.append(mine / theirs)
    gc.unfreeze()
    return Paired(statistics.median(our_rates), statistics.median(reference_rates), statistics.median(ratios))


def _rate(chunk: Chunk) -> float:
    began = time.perf_counter()
    units = chunk()
    return units / (time.perf_counter() - began)
