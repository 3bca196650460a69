"""Text for people: untrusted text escaped for a terminal, counts with nouns, and errors without values."""

from __future__ import annotations

import re
from typing import Final

from headerware.core.plain_words import plain_words

_VALUE: Final = re.compile(
    r"(?<=^Invalid enum value) (?:'.*'|[0-9-]+)(?= - at|$)|(?<=^Invalid value) '.*'(?= - at|$)", re.DOTALL
)
_FIELD: Final = re.compile(r"(?<=^Object contains unknown field) `(?![a-z_]{1,32}`).*`(?= - at|$)", re.DOTALL)


def printable(text: str) -> str:
    """Escape characters that a terminal acts on, such as escape sequences, line breaks and text direction."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Return a count with its noun, such as ``1 record`` and ``2 records``."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def without_values(error: Exception) -> str:
    """Return the text of an error of msgspec in plain words, without quoted values and odd names."""
    problem, _, place = _FIELD.sub("", _VALUE.sub("", str(error))).partition(" - at `$")
    where = place.removesuffix("`").removeprefix(".")
    problem = plain_words(problem, where.rpartition(".")[2])
    return f"{problem}, at {where}" if where else problem
