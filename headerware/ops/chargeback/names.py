"""Owners and producers as headers name them: text from anyone, made harmless before it is a name."""

from __future__ import annotations

from typing import Final, NamedTuple

from headerware.interceptors.trail_entries import MAX_ENTRY_BYTES, START, VERSION
from headerware.registry.header_names import printable

OWNER_HEADER: Final = "hw.owner"
MAX_NAME_CHARACTERS: Final = 120
MAX_OWNER_BYTES: Final = 1024
"""How much of an owner's header is looked at."""

_WHEN: Final = slice(6, 14)  # where a trail's first entry has its time (spec/trail.md)
_AFTER_FLAGS: Final = 6
_LENGTH: Final = 14
_BY_WHOM: Final = 0x01
_RESERVED: Final = 0xE0
_MIN_ENTRY_BYTES: Final = 9
_BATCH_MARKS: Final = "/#"


class Producer(NamedTuple):
    """Who began a record's trail.

    Attributes:
        name: the service, or None where the trail does not say.
        malformed: whether there is a trail that cannot be read.
    """

    name: str | None
    malformed: bool = False


def owner_name(value: bytes | None) -> str | None:
    """Give the owner that a header names, as text that can be shown anywhere; None for none.

    Args:
        value: the header's value. What is no UTF-8 is replaced, what does not print is escaped.
    """
    return _name((value or b"")[:MAX_OWNER_BYTES].decode("utf-8", "replace"))


def trail_opening(value: bytes) -> bytes:
    """Cut a trail down to what names its producer, without its time: equal for all that a service sends."""
    if len(value) <= _LENGTH:
        return value[:_AFTER_FLAGS]
    return value[:_AFTER_FLAGS] + value[_LENGTH : _LENGTH + 1 + value[_LENGTH]]


def producer_name(opening: bytes | None) -> Producer:
    """Give the service that a trail begins with; entries of a job (``service/job#batch``) name theirs too.

    Args:
        opening: what :func:`trail_opening` gave; None where there is no trail. What stands behind the first
            entry is not looked at.
    """
    if opening is None or (len(opening) == len(START) and opening[0] == VERSION):
        return Producer(None)  # no trail, or one without entries
    try:
        return Producer(_by_whom(opening))
    except (IndexError, ValueError):
        return Producer(None, malformed=True)


def _by_whom(opening: bytes) -> str | None:
    claimed, flags = int.from_bytes(opening[3:5]), opening[5]
    if opening[0] != VERSION or flags & _RESERVED or not _MIN_ENTRY_BYTES <= claimed <= MAX_ENTRY_BYTES:
        raise ValueError
    if not flags & _BY_WHOM:
        return None
    text = opening[_AFTER_FLAGS + 1 :]
    if len(text) != opening[_AFTER_FLAGS] or claimed < _MIN_ENTRY_BYTES + 1 + len(text):
        raise ValueError
    service = text.decode()
    for mark in _BATCH_MARKS:
        service = service.partition(mark)[0]
    return _name(service)


def _name(text: str) -> str | None:
    shown = printable(text.strip())
    if len(shown) > MAX_NAME_CHARACTERS:
        shown = f"{shown[: MAX_NAME_CHARACTERS - 1]}\N{HORIZONTAL ELLIPSIS}"
    return shown or None
