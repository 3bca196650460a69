"""Format the figures of a bill as text."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Final

_UNITS: Final = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def bytes_text(size: int) -> str:
    """Return a size in the largest binary unit that is not larger than the size: ``1.50 GiB``."""
    if size < 1024:
        return f"{size} B"
    scaled = [(Decimal(size) / 1024**power, unit) for power, unit in enumerate(_UNITS, start=1)]
    value, unit = next((each for each in scaled if each[0] < 1000), scaled[-1])
    return f"{value:.{_decimals(value)}f} {unit}"


def count_text(count: int, noun: str = "") -> str:
    """Return a count with separators, followed by the noun if one is given: ``1,204 records``."""
    if not noun:
        return f"{count:,}"
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def money_text(amount: Decimal, currency: str = "") -> str:
    """Return a rounded amount as text."""
    return f"{amount:,f} {currency}".rstrip()


def share_text(part: Decimal | int, whole: Decimal | int) -> str:
    """Return a part's share of the whole in percent; 0% if the whole is 0."""
    if not whole:
        return "0%"
    percent = Decimal(part) * 100 / Decimal(whole)
    if 0 < percent < Decimal("0.1"):
        return "less than 0.1%"
    return f"{percent:.1f}%"


def moment_text(moment: datetime) -> str:
    """Return a moment in UTC, to the minute."""
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def _decimals(value: Decimal) -> int:
    """Return the number of decimals that gives three digits in total."""
    return 2 if value < 10 else 1 if value < 100 else 0
