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


def nearest(value: object, known: Iterable[object]) -> str:
    """Return ``; did you mean 'x'?`` for the known word that is most like a value, or an empty text."""
    words = [each for each in known if isinstance(each, str)]
    near = closest(value, words) if isinstance(value, str) else None
    return "" if near is None else f"; did you mean {near!r}?"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``did you mean 'x'? `` for the known name that is most like a name, or an empty text."""
    near = closest(name, known)
    return "" if near is None else f"did you mean {near!r}? "
