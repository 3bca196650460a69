"""Integers in text, as ``java.text`` reads them: as far as they go, exponents too, in any script."""

from __future__ import annotations

import math
import re
import unicodedata
from typing import Final

from headerware.connect.data.numbers import Int32

_PLAIN: Final = re.compile(r"-?[0-9]{1,9}(?![0-9E\u0080-\uffff])")
# Beyond the first plane, Java sees two characters, which are no digits.
_DIGITS: Final = r"(?:(?![\U00010000-\U0010ffff])\d)+"
_NUMBER: Final = re.compile(rf"(-?)({_DIGITS})(?:E(-?)({_DIGITS}))?")
_INFINITY: Final = "\N{INFINITY}"
_INT64: Final = range(-(1 << 63), 1 << 63)
_INT32_MAX: Final = (1 << 31) - 1
_INT32_MIN: Final = -(1 << 31)
_LONGEST: Final = 19
"""Digits that may fit into 64 bits."""


def read_integer(text: str, start: int, end: int) -> tuple[int, int] | None:
    """Read an integer, and give it in 32 bits with the place behind it; None where there is none.

    Args:
        text: the text.
        start: where the integer begins.
        end: where the text is taken to end.
    """
    plain = _PLAIN.match(text, start, end)
    if plain is not None:
        return int(plain[0]), plain.end()
    if text.startswith("NaN", start, end):
        return 0, start + 3
    for infinite, number in ((_INFINITY, _INT32_MAX), (f"-{_INFINITY}", _INT32_MIN)):
        if text.startswith(infinite, start, end):
            return number, start + len(infinite)
    match = _NUMBER.match(text, start, end)
    if match is None:
        return None
    exponent = _int64(match[3], _ascii(match[4])) if match[4] else 0
    if exponent is None:
        return _int32(match[1], _ascii(match[2]), 0), match.end(2)
    return _int32(match[1], _ascii(match[2]), int(Int32.wrapped(exponent))), match.end()


def _ascii(digits: str) -> str:
    if not digits.isascii():
        digits = "".join(str(unicodedata.decimal(digit)) for digit in digits)
    return digits.lstrip("0") or "0"


def _int64(sign: str, digits: str) -> int | None:
    if len(digits) > _LONGEST:
        return None
    number = int(sign + digits)
    return number if number in _INT64 else None


def _int32(sign: str, digits: str, exponent: int) -> int:
    """Return the lowest bits of what fits into 64; else the nearest end, or without its fraction."""
    whole = len(digits) + exponent
    if digits == "0" or whole <= 0:
        # The rounding of what is nearly one is Java's.
        return round(float(f"{sign}.{digits[:30]}")) if whole == 0 and digits.startswith("9" * 17) else 0
    significant = digits.rstrip("0")
    if whole <= _LONGEST and len(significant) <= whole:
        number = _int64(sign, significant.ljust(whole, "0"))
        if number is not None:
            return int(Int32.wrapped(number))
    if whole > _LONGEST:
        return _INT32_MIN if sign else _INT32_MAX
    rounded = float(f"{sign}{significant[:800]}E{whole - len(significant[:800])}")
    return max(_INT32_MIN, min(_INT32_MAX, math.trunc(rounded)))
