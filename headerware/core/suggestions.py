"""Suggest a known name for an unknown one."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def closest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the known name that is most like a name, or None; one that differs only in case comes first."""
    names = list(known)
    folded = name.casefold()
    same = (each for each in names if each.casefold() == folded)
    return next(same, None) or next(iter(get_close_matches(name, names, n=1, cutoff=cutoff)), None)


def with_equals(text: str) -> str | None:
    """Return ``NAME=VALUE`` for a text such as ``NAME: VALUE``; None for a text that has no such colon.

    A name may have a colon before a ``=``, as in ``a:b=c``, but not one that a space follows.
    """
    name, colon, value = text.partition(":")
    is_meant = colon and name.strip() and "=" not in name and ("=" not in value or value.startswith(" "))
    return f"{name.strip()}={value.strip()}" if is_meant else None


def did_you_mean(value: object, known: Iterable[object], *, then: str = "") -> str:
    """Return the end of an error's sentence: ``; did you mean 'x'?``, with the known word most like a value.

    Args:
        value: what was found; only text can be like a word.
        known: the words; others than text are left out.
        then: what follows, such as ``known: a, b``; it follows the sentence itself if no word is like the
            value.
    """
    words = [each for each in known if isinstance(each, str)]
    near = closest(value, words) if isinstance(value, str) else None
    parts = [f"did you mean {near!r}?" if near is not None else "", then]
    text = " ".join(filter(None, parts))
    return f"; {text}" if text else ""
