"""Round amounts so that they add up to the rounded sum, by largest remainder.

Each amount is rounded down to the decimals that are shown. The units that are left over are given, one each,
to the amounts that lost most by rounding; among equal amounts, the first comes first. All tables of a report
therefore add up to the same total, and each row is off by less than one unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from typing import Final

EXACT: Final = Context(prec=120)
"""A context in which sums of costs are exact: 2**-30 has 30 decimals, rates and counts 15 and 20 more."""


def rounded(amount: Decimal, decimals: int) -> Decimal:
    """Return an amount rounded half to even."""
    return amount.quantize(_unit(decimals), ROUND_HALF_EVEN, EXACT)


def shares(amounts: Sequence[Decimal], decimals: int) -> list[Decimal]:
    """Return rounded amounts that add up to the rounded sum; each changes by less than one unit."""
    unit = _unit(decimals)
    cut = [amount.quantize(unit, ROUND_FLOOR, EXACT) for amount in amounts]
    left = int(EXACT.divide(EXACT.subtract(rounded(total(amounts), decimals), total(cut)), unit))
    by_loss = sorted(range(len(amounts)), key=lambda index: EXACT.subtract(cut[index], amounts[index]))
    for index in by_loss[:left]:
        cut[index] = EXACT.add(cut[index], unit)
    return cut


def total(amounts: Iterable[Decimal]) -> Decimal:
    """Return the exact sum of amounts."""
    found = Decimal(0)
    for amount in amounts:
        found = EXACT.add(found, amount)
    return found


def _unit(decimals: int) -> Decimal:
    return Decimal(1).scaleb(-decimals)
