"""JSON as the oracle reads it: numbers keep their digits, and texts and numbers turn into one another."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from headerware.connect.errors import ArgumentError, NullValueError

_INT32: Final = 1 << 31
_INT64: Final = 1 << 63
_INTEGER: Final = re.compile(r"[+-]?\d+")
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_BIT32: Final = 32
_BIT64: Final = 64


def read_json(line: str | bytes) -> Any:
    """Read a line; numbers with a point or an exponent become exact decimals without trailing zeros."""
    return json.loads(line, parse_float=_decimal)


def write_json(node: Any) -> bytes:
    """Write a line; half a surrogate pair, for which UTF-8 has no bytes, is a question mark, as in Java."""
    return json.dumps(node, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _decimal(text: str) -> Decimal:
    try:
        sign, digits, exponent = Decimal(text).as_tuple()
    except InvalidOperation as error:
        raise ValueError("a number has an exponent that no decimal has") from error
    assert isinstance(exponent, int), "JSON has no infinities"
    kept = len(digits)
    while kept > 1 and digits[kept - 1] == 0:
        kept -= 1
    if digits[:kept] == (0,):
        return Decimal(0)
    return Decimal((sign, digits[:kept], exponent + len(digits) - kept))


def present(node: Any) -> Any:
    """Return a node that must be there."""
    if node is None:
        raise NullValueError("the case lacks a part that it needs")
    return node


def member(case: Any, name: str) -> Any:
    """Return a member that must be there, though it may be null, as one that Java then asks for its text."""
    if not isinstance(case, dict) or name not in case:
        raise NullValueError(f"the case lacks {name!r}")
    return case[name]


def as_text(node: Any) -> str:
    """Return a node's text; that of a null is ``null``, and that of what holds others is empty."""
    if isinstance(node, str):
        return node
    if node is None:
        return "null"
    if isinstance(node, bool):
        return "true" if node else "false"
    return "" if isinstance(node, dict | list) else str(node)


def as_boolean(node: Any) -> bool:
    """Return a node as a boolean; what is none is false."""
    return (
        node.strip() == "true" if isinstance(node, str) else bool(node) and not isinstance(node, dict | list)
    )


def as_int(node: Any) -> int:
    """Return a node as an integer of 32 bits, the lowest ones; what is none is 0."""
    if node.__class__ is int and -_INT32 <= node < _INT32:
        return node
    return _as_integer(node, _BIT32)


def as_long(node: Any) -> int:
    """Return a node as an integer of 64 bits, the lowest ones; what is none is 0."""
    if node.__class__ is int and -_INT64 <= node < _INT64:
        return node
    return _as_integer(node, _BIT64)


def _as_integer(node: Any, bits: int) -> int:
    if isinstance(node, str):
        text = node.strip()
        return wrapped(int(text), bits) if _INTEGER.fullmatch(text) else 0
    if isinstance(node, int | Decimal):
        return wrapped(int(node), bits)
    return 0


def wrapped(number: int, bits: int) -> int:
    """Keep the lowest bits of a number."""
    half = _INT32 if bits == _BIT32 else _INT64
    return ((number + half) & (2 * half - 1)) - half


def as_bytes(node: Any) -> bytes:
    """Return the bytes of a node's Base64, whose padding may be missing."""
    text = as_text(present(node))
    if not _BASE64.fullmatch(text):
        raise ArgumentError("expected Base64")
    return b64decode(text + "=" * (-len(text) % 4))


def bytes_of(case: dict[str, Any]) -> bytes | None:
    """Return the bytes of a case, which has them in Base64 or as text, or not at all."""
    if case.get("b64") is not None:
        return as_bytes(case["b64"])
    if case.get("utf8") is not None:
        return as_text(case["utf8"]).encode("utf-8", "replace")
    return None
