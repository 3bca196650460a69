"""Errors for values and payloads that a library refuses, without the value or the payload in the text."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from headerware.core.errors import SerdeError

REFUSALS: Final = (msgspec.MsgspecError, ValueError, TypeError, ArithmeticError, RecursionError)
"""The exceptions of the formats' libraries for values and payloads that they refuse."""

WRITER_ADVICE: Final = (
    "; perhaps its writer uses another format, or no serializer (see headerware tail --values text)"
)
"""Advice for a reader whose serde does not fit."""
_LACKED: Final = re.compile(r"(?:Encoding|found an) objects? of (?:type|class) ([\w.]+)(?: is unsupported)?")
_POSITION: Final = re.compile(r"\(byte [0-9]+\)$")
_REASONS: Final[tuple[tuple[type[Exception], str], ...]] = (
    (RecursionError, "is nested too deeply, or contains itself"),
    (UnicodeDecodeError, "holds text that is not in its charset"),
    (UnicodeEncodeError, "holds text that its charset does not have"),
    (msgspec.ValidationError, "holds a number or a time out of range"),
    (OverflowError, "holds a number out of range"),
)


def cannot_read(what: str, payload: bytes, error: Exception, advice: str = "") -> SerdeError:
    """Return the error for bytes that do not follow the format; ``advice`` is its end."""
    return SerdeError(
        f"expected {what}, but the payload of {len(payload)} bytes {_why(error)}{advice or WRITER_ADVICE}"
    )


def cannot_write(what: str, value: object, error: Exception) -> SerdeError:
    """Return the error for an object that a format cannot express."""
    wrong_type = isinstance(error, TypeError)
    found = _LACKED.fullmatch(str(error)) if wrong_type else None
    kind = f"type {found[1]}, which the format lacks" if found else "a type that the format lacks"
    reason = f"holds an object of {kind}; convert it first" if wrong_type else _why(error)
    return SerdeError(f"cannot write {type(value).__qualname__} as {what}: it {reason}")


def _why(error: Exception) -> str:
    for kind, reason in _REASONS:
        if isinstance(error, kind):
            return reason
    if "truncated" in str(error):
        return "is truncated"
    position = _POSITION.search(str(error))  # msgspec's; the rest of its text may quote the payload
    return f"is malformed at {position[0][1:-1]}" if position else "is malformed"
