"""Errors for values and payloads that a library refuses, without the value or the payload in the text."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from headerware.core.errors import SerdeError

REFUSALS: Final = (msgspec.MsgspecError, ValueError, TypeError, ArithmeticError, RecursionError)
"""The exceptions of the formats' libraries for values and payloads that they refuse."""

_PLACE: Final = re.compile(r"\(byte [0-9]+\)$")
_REASONS: Final[tuple[tuple[type[Exception], str], ...]] = (
    (RecursionError, "is nested too deeply, or in itself"),
    (UnicodeDecodeError, "holds text that is not what its charset says"),
    (UnicodeEncodeError, "holds text that its charset does not have"),
    (msgspec.ValidationError, "holds a number or a time out of range"),
    (OverflowError, "holds a number out of range"),
)


def cannot_read(what: str, payload: bytes, error: Exception) -> SerdeError:
    """Return the error for bytes that do not follow the format."""
    return SerdeError(f"expected {what}, but the payload of {len(payload)} bytes {_why(error)}")


def cannot_write(what: str, value: object, error: Exception) -> SerdeError:
    """Return the error for an object that a format cannot express."""
    reason = _why(error) if not isinstance(error, TypeError) else "holds an object of a type that it cannot"
    return SerdeError(f"cannot write {type(value).__qualname__} as {what}: it {reason}")


def _why(error: Exception) -> str:
    for kind, reason in _REASONS:
        if isinstance(error, kind):
            return reason
    if "truncated" in str(error):
        return "is truncated"
    place = _PLACE.search(str(error))  # msgspec's; the rest of its text may quote the payload
    return f"is malformed at {place[0][1:-1]}" if place else "is malformed"
