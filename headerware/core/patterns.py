"""Patterns of names and values: one syntax for all that is matched (spec/patterns.md).

``*`` stands for any text, even an empty one, and ``?`` for one character; all other characters stand for
themselves. The case counts. In a list, a pattern that begins with ``!`` excludes, and takes precedence.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

WILDCARDS: Final = frozenset("*?")
EXCLUDES: Final = "!"
_COMPILED_LIMIT: Final = 4_096
_STARS: Final = re.compile(r"\*+")


def fits(pattern: str, text: str) -> bool:
    """Return whether a pattern matches a complete text; the time is linear in both."""
    return compiled(pattern).match(text) is not None


def any_fits(patterns: Iterable[str], text: str) -> bool:
    """Return whether one of several patterns matches a text; none of them excludes."""
    return any(fits(pattern, text) for pattern in patterns)


@lru_cache(_COMPILED_LIMIT)
def compiled(pattern: str) -> re.Pattern[str]:
    """Return a regular expression that matches what a pattern matches, from the beginning of a text."""
    first, *rest = map(_literal, _STARS.split(pattern))
    if not rest:
        return re.compile(rf"{first}\Z", re.DOTALL)
    # Atomic groups: the text between two stars is matched at its first position only, without backtracking.
    middle = "".join(f"(?>.*?{part})" for part in rest[:-1])
    return re.compile(rf"{first}{middle}.*{rest[-1]}\Z", re.DOTALL)


def _literal(part: str) -> str:
    return "".join("." if character == "?" else re.escape(character) for character in part)
