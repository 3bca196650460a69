"""Compact keys: ids in place of header names, one header for each id (spec/header-ids.md).

A header's name on the wire, in ASCII:

    marker  1 character         ~
    digits  1 to 6 characters   the id in base 64, of A-Z a-z 0-9 - _, the most significant first;
                                it fits 32 bits and does not begin with the zero, A

A plain name that begins with the marker gets a second marker. Any other name that begins with the marker was
written by software that does not compact; it is read as it is.
"""

from __future__ import annotations

import re
from typing import Final

from headerware.core.header_ids import MAX_ID

MARKER: Final = "~"

_DIGITS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_VALUES: Final = {digit: value for value, digit in enumerate(_DIGITS)}
_KEY: Final = re.compile(r"~([B-Za-z0-9_-][A-Za-z0-9_-]{0,5})")


def compact_key(header_id: int) -> str:
    """Write an id, 1 to 2**32 - 1, as a header's name."""
    if not 1 <= header_id <= MAX_ID:
        raise ValueError(f"expected an id from 1 to {MAX_ID}, found {header_id}")
    digits = ""
    left = int(header_id)
    while left:
        left, digit = divmod(left, 64)
        digits = _DIGITS[digit] + digits
    return MARKER + digits


def id_of_key(name: str) -> int | None:
    """Read the id that a header's name on the wire stands for; None for any other name."""
    found = _KEY.fullmatch(name)
    if found is None:
        return None
    value = 0
    for digit in found[1]:
        value = value * 64 + _VALUES[digit]
    return value if value <= MAX_ID else None


def escape(name: str) -> str:
    """Return the name on the wire of a header that has no id."""
    return MARKER + name if name[:1] == MARKER else name


def unescape(name: str) -> str:
    """Return the plain name of a header whose name on the wire stands for no id."""
    return name[1:] if name[:2] == "~~" else name
