"""Patterns of dates and times, as ``java.text.SimpleDateFormat`` has them: runs of letters, and literal text.

G era                 y year               Y year of the week    M, L month           w week in year
W week in month       D day in year        d day in month        F which such weekday in month
E weekday             u weekday, Monday 1  a AM, PM              H hour 0-23          k hour 1-24
K hour 0-11           h hour 1-12          m minute              s second             S millisecond
z zone's name         Z +0100              X +01, XX +0100, XXX +01:00

Text between single quotes is literal, two of them are one, and so is whatever is no ASCII letter.
"""

from __future__ import annotations

import string
from typing import Final, NamedTuple

from headerware.connect.errors import ArgumentError

LETTERS: Final = frozenset("GyYMLwWDdFEuaHkKhmsSzZX")
_QUOTE: Final = "'"
_ASCII: Final = frozenset(string.ascii_letters)
_LONGEST_ISO_ZONE: Final = 3


class Piece(NamedTuple):
    """One part of a pattern.

    Args:
        letter: which field; empty for literal text.
        width: how often the letter stands there.
        text: the literal text.
    """

    letter: str
    width: int = 0
    text: str = ""


def parse_pattern(pattern: str) -> list[Piece]:
    """Take a pattern apart.

    Raises:
        ArgumentError: a letter means nothing, a quote is not closed, or a zone has more than three ``X``.
    """
    pieces: list[Piece] = []
    at, quoted = 0, False
    while at < len(pattern):
        character = pattern[at]
        if character == _QUOTE:
            if pattern.startswith(_QUOTE, at + 1):
                _add_text(pieces, _QUOTE)
                at += 1
            else:
                quoted = not quoted
        elif quoted or character not in _ASCII:
            _add_text(pieces, character)
        else:
            end = at + 1
            while end < len(pattern) and pattern[end] == character:
                end += 1
            pieces.append(_field(character, end - at))
            at = end - 1
        at += 1
    if quoted:
        raise ArgumentError("a single quote in the pattern is not closed; two of them stand for one")
    return pieces


def _add_text(pieces: list[Piece], text: str) -> None:
    if pieces and not pieces[-1].letter:
        pieces[-1] = Piece("", text=pieces[-1].text + text)
    else:
        pieces.append(Piece("", text=text))


def _field(letter: str, count: int) -> Piece:
    if letter not in LETTERS:
        raise ArgumentError(
            f"the letter {letter!r} stands for nothing in a pattern; quote it if it is literal text"
        )
    if letter == "X" and count > _LONGEST_ISO_ZONE:
        raise ArgumentError(f"expected X, XX or XXX in a pattern, found {count} of them")
    return Piece(letter, count)
