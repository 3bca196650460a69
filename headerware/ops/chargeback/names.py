"""Read owners and producers from headers; anyone can write these, so their text is shortened and escaped."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from headerware.core.errors import WireFormatError
from headerware.interceptors.trail import decode_trail
from headerware.registry.header_names import printable

OWNER_HEADER: Final = "hw.owner"
MAX_NAME_CHARACTERS: Final = 120
MAX_OWNER_BYTES: Final = 1024
"""How many bytes of the header ``hw.owner`` are read."""

TIMELESS: Final = "1,at=0"
"""The beginning of an opening: a trail whose first entry has the time 0."""
OPENING: Final = (
    r"^1(?:;left=[0-9]{1,5})?"
    r"(?:,at=-?[0-9]{1,19}(;by=[^;,]{0,255}|(?!;by=))(?![^;,])|(?![\s\S]))"
)
"""Matches a trail up to the end of its first service (spec/trail.md), in Python and in Java."""
_opening: Final = re.compile(OPENING.encode())
_BATCH_MARKS: Final = "/#"


class Producer(NamedTuple):
    """The service that began a record's trail; ``name`` is None if the trail names no service.

    ``malformed`` is True if the record has a trail that cannot be read.
    """

    name: str | None
    malformed: bool = False


def owner_name(value: bytes | None) -> str | None:
    """Return the owner that a header names, or None.

    Bytes that are not UTF-8 are replaced, and characters that cannot be printed are escaped.
    """
    return _name((value or b"")[:MAX_OWNER_BYTES].decode("utf-8", "replace"))


def trail_opening(value: bytes) -> bytes:
    """Return a trail of one entry, which names the producer and has no time; empty if the value is no trail.

    Without the time, all records of a producer have the same opening.
    """
    found = _opening.match(value)
    return b"" if found is None else TIMELESS.encode() + (found[1] or b"")


def producer_name(opening: bytes | None) -> Producer:
    """Return the service in an opening from :func:`trail_opening`; of ``service/job#batch``, the service."""
    if opening is None:
        return Producer(None)
    try:
        service = decode_trail(opening)[0].by_whom
    except WireFormatError:
        return Producer(None, malformed=True)
    for mark in _BATCH_MARKS:
        service = (service or "").partition(mark)[0]
    return Producer(_name(service or ""))


def _name(text: str) -> str | None:
    shown = printable(text.strip())
    if len(shown) > MAX_NAME_CHARACTERS:
        shown = f"{shown[: MAX_NAME_CHARACTERS - 1]}\N{HORIZONTAL ELLIPSIS}"
    return shown or None
