"""The rules for names in a registry, and a form to find names that look the same."""

from __future__ import annotations

import re
from typing import Final
from unicodedata import normalize

from headerware.core.printable import printable as escaped
from headerware.registry.wire.compact_keys import MARKER

MAX_NAME_CHARACTERS: Final = 249
MAX_OWNER_CHARACTERS: Final = 100
MAX_DESCRIPTION_CHARACTERS: Final = 1000

_MAX_SHOWN: Final = 1000
_INVISIBLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Invisible characters that Python calls printable: default ignorables, and the blank of Braille."""
_LIKE_AN_ID: Final = re.compile(r"[0-9]+(\.[0-9]+){3}")


def look(name: str) -> str:
    """Return a form that is equal for names that differ only in case or Unicode form."""
    return normalize("NFKC", normalize("NFKC", name).casefold())


def name_problem(name: str) -> str | None:
    """Return why a header's name cannot be registered, or None if it can."""
    if look(name).startswith(MARKER):
        return f"a name does not begin with {MARKER}, which marks compact keys"
    if _LIKE_AN_ID.fullmatch(look(name)):
        return f"a name does not look like an id, as {name!r} does"
    return line_problem(name, MAX_NAME_CHARACTERS, "a name")


def line_problem(text: str, most: int, what: str) -> str | None:
    """Return why a text is not one readable line, or None if it is; ``what`` names the text."""
    if not text:
        return f"{what} is not empty"
    if len(text) > most:
        return f"{what} has at most {most} characters; this one has {len(text)}"
    if not text.isprintable() or text != text.strip() or _INVISIBLE.search(text):
        # Invisible characters would make two names look the same, and could control a terminal.
        return f"{what} is one line of printable characters without space around it; found {text!a}"
    return None


def printable(text: str) -> str:
    """Return an untrusted text as a terminal can show it: escaped and truncated."""
    shown = escaped(text)
    return shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}..."
