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
from functools import partial

Chunk = Callable[[], int]
"""Do one chunk of work, and return its number of units (records, bytes)."""
Rate = Callable[[], float]
"""Do work that measures itself, and return its units a second."""


@dataclass(frozen=True)
class Paired:
    """The result of pairs of chunks.

    Attributes:
        ours: our rate, in units a second (median over the chunks).
        reference: the reference's rate.
        ratio: the median of the ratios, pair by pair; 1.0 is as fast as the reference.
        ratios: the ratio of each pair.
    """

    ours: float
    reference: float
    ratio: float
    ratios: tuple[float, ...]

    @property
    def spread(self) -> str:
        """The quartiles of the ratios, between which half of the pairs are; for a note."""
        lower, _, upper = statistics.quantiles(self.ratios, n=4, method="inclusive")
        return f"half of the ratios between {lower:.2f} and {upper:.2f}"


def compare(ours: Chunk, reference: Chunk, *, pairs: int = 40, warm_up: int = 4) -> Paired:
    """Run both in turn, the first of each pair alternating, and take medians."""
    return compare_rates(partial(rate, ours), partial(rate, reference), pairs=pairs, warm_up=warm_up)


def compare_rates(ours: Rate, reference: Rate, *, pairs: int, warm_up: int) -> Paired:
    """Compare work that measures itself, because a part of each run does not count."""
    for _ in range(warm_up):
        ours()
        reference()
    ratios, our_rates, reference_rates = [], [], []
    gc.collect()
    gc.freeze()
    for index in range(pairs):
        if index % 2:
            theirs, mine = reference(), ours()
        else:
            mine, theirs = ours(), reference()
        our_rates.append(mine)
        reference_rates.append(theirs)
        ratios.append(mine / theirs)
    gc.unfreeze()
    ours_rate, reference_rate, ratio = map(statistics.median, (our_rates, reference_rates, ratios))
    return Paired(ours_rate, reference_rate, ratio, tuple(ratios))


def rate(chunk: Chunk) -> float:
    """Return the units a second of one chunk."""
    began = time.perf_counter()
    units = chunk()
    return units / (time.perf_counter() - began)
