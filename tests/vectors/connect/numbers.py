"""Floating-point numbers of text, as Java's ``parseFloat`` and ``parseDouble`` read it."""

from __future__ import annotations

import math
import re
import struct
from decimal import Decimal
from fractions import Fraction
from typing import Final

from headerware.connect.data import Float32
from headerware.connect.errors import NumberTextError

_WORDS: Final = {"NaN": math.nan, "Infinity": math.inf, "+Infinity": math.inf, "-Infinity": -math.inf}
_DECIMAL: Final = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_HEXADECIMAL: Final = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)
_BLANK: Final = "".join(map(chr, range(33)))


def float64_of(text: str) -> float:
    """Read a float of 64 bits."""
    text = text.strip(_BLANK)
    if text in _WORDS:
        return _WORDS[text]
    if found := _DECIMAL.fullmatch(text):
        return float(found[1])
    if found := _HEXADECIMAL.fullmatch(text):
        try:
            return float.fromhex(found[1])
        except OverflowError:
            return -math.inf if text.startswith("-") else math.inf
    raise NumberTextError("expected a floating-point number")


def float32_of(text: str) -> Float32:
    """Read a float of 32 bits, rounding once."""
    number = float64_of(text)
    rounded = Float32(number)
    found = _DECIMAL.fullmatch(text.strip(_BLANK))
    if found is None or math.isinf(number) or math.isinf(rounded):
        return rounded
    exact = Decimal(found[1])
    if exact == Decimal(number):
        return rounded
    return min(_beside(rounded), key=lambda near: abs(Fraction(exact) - Fraction(float(near))))


def _beside(number: Float32) -> list[Float32]:
    """Return a float and its two neighbours."""
    (bits,) = struct.unpack(">I", struct.pack(">f", number))
    near = [struct.unpack(">f", struct.pack(">I", bits + step))[0] for step in (-1, 1) if bits + step >= 0]
    return [number, *(Float32(each) for each in near if math.isfinite(each))]
