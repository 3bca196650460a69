"""Read owners and producers from headers; anyone may write these, so the text is made harmless."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from headerware.core.errors import WireFormatError
from headerware.interceptors.trail import decode_trail
from headerware.registry.header_names import printable

OWNER_HEADER: Final = "hw.owner"
MAX_NAME_CHARACTERS: Final = 120
MAX_OWNER_BYTES: Final = 1024
"""How many bytes of an owner's header are read."""

TIMELESS: Final = "1,at=0"
"""The beginning of an opening that has an entry: that of a trail whose first entry has no time."""
OPENING: Final = (
    r"^1(?:;left=[0-9]{1,5})?"
    r"(?:,at=-?[0-9]{1,19}(;by=[^;,]{0,255}|(?!;by=))(?![^;,])|(?![\s\S]))"
)
"""The beginning of a trail, up to the end of its first service (spec/trail.md); for Python and Java."""
_opening: Final = re.compile(OPENING.encode())
_BATCH_MARKS: Final = "/#"


class Producer(NamedTuple):
    """The service that began a record's trail; ``name`` is None if the trail does not say.

    ``malformed`` says that there is a trail that cannot be read.
    """

    name: str | None
    malformed: bool = False


def owner_name(value: bytes | None) -> str | None:
    """Return the owner that a header names, or None.

    Bytes that are no UTF-8 are replaced, and characters that do not print are escaped.
    """
    return _name((value or b"")[:MAX_OWNER_BYTES].decode("utf-8", "replace"))


def trail_opening(value: bytes) -> bytes:
    """Return the part of a trail that names its producer, without the time, so that it is the same each time.

    It is a trail of one entry, or empty if the value is no trail.
    """
    found = _opening.match(value)
    return b"" if found is None else TIMELESS.encode() + (found[1] or b"")


def producer_name(opening: bytes | None) -> Producer:
    """Return the service that a trail begins with; entries of a job (``service/job#batch``) name theirs too.

    ``opening`` is the result of :func:`trail_opening`. Nothing behind the first entry's service is read.
    """
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
