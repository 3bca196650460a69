"""Text and numbers in JSON, byte for byte as Jackson writes them."""

from __future__ import annotations

import math
import re
from json.encoder import encode_basestring
from typing import Final

from headerware.connect.errors import ConnectDataError
from headerware.connect.values import float32_text, float64_text


def quoted(text: str) -> str:
    """Return text in quotes; what lies beyond 16 bits is escaped, and so are halves of surrogate pairs."""
    if text.isprintable() and (text.isascii() or max(text) < "\ud800"):
        return encode_basestring(text)
    return f'"{_SPECIAL.sub(_escaped, text)}"'


def quoted_strictly(text: str) -> str:
    """Return text in quotes.

    Raises:
        ConnectDataError: it holds half of a surrogate pair, which no reader has to accept.
    """
    if not text.isascii() and _SURROGATE.search(text):
        raise ConnectDataError("the text holds half of a surrogate pair")
    return quoted(text)


def float64_json(number: float) -> str:
    """Return a number; what JSON has no number for becomes text."""
    return float64_text(number) if math.isfinite(number) else f'"{float64_text(number)}"'


def float32_json(number: float) -> str:
    """Return a number of 32 bits; what JSON has no number for becomes text."""
    return float32_text(number) if math.isfinite(number) else f'"{float32_text(number)}"'


def refuse_infinite(number: float) -> None:
    """Refuse what JSON has no number for.

    Raises:
        ConnectDataError: the number is NaN or infinite.
    """
    if not math.isfinite(number):
        raise ConnectDataError("JSON has neither NaN nor infinity")


def _escaped(match: re.Match[str]) -> str:
    found = match[0]
    short = _SHORT.get(found)
    if short is not None:
        return short
    units = found.encode("utf-16-be", "surrogatepass").hex().upper()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


_SHORT: Final = {
    '"': '\\"',
    "\\": "\\\\",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
}
_SPECIAL: Final = re.compile('["\\\\\x00-\x1f\ud800-\udfff\U00010000-\U0010ffff]')
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
