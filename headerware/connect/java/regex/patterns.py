r"""Java's regular expressions, as Python's ``re`` can match them, and what replaces a match.

The syntax is Java's, so that patterns out of a connector's configuration mean the same here: ASCII classes,
POSIX and Unicode properties, ``(?<name>...)``, intersections of classes, ``\Q...\E``, possessive
quantifiers. What Python cannot do is refused when the pattern is read. As in Java, a pattern may take
exponential time on a text that it nearly matches: patterns come from whoever configures, texts from anybody,
so write none like ``(a+)+``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from headerware.connect.config import Check
from headerware.connect.errors import ArgumentError, ConnectConfigError, GroupNumberError
from headerware.connect.java.regex.characters import NUMERALS, PatternSyntaxError
from headerware.connect.java.regex.syntax import PatternReader

Replacement = Callable[[re.Match[str]], str]
"""Gives the text that takes a match's place."""


@lru_cache(256)
def java_pattern(text: str, *, path: str = "") -> re.Pattern[str]:
    """Compile a regular expression in Java's syntax.

    Args:
        text: the expression.
        path: where it stands in the configuration, for the error.

    Raises:
        ConnectConfigError: Java cannot read it, or Python cannot do it.
    """
    try:
        return re.compile(PatternReader(text).written())
    except PatternSyntaxError as error:
        problem = f"not a regular expression of Java's that can be used here: {error}"
    except (re.error, OverflowError) as error:
        problem = f"a regular expression that Python cannot do: {error}"
    except RecursionError:
        problem = "a regular expression that is nested too deeply"
    raise ConnectConfigError(problem, path=path)


def _refuse_pattern(value: str | None) -> str | None:
    if value is None:
        return "expected a regular expression, found null"
    try:
        java_pattern(value)
    except ConnectConfigError as error:
        return str(error)
    return None


def _refuse_empty_or_pattern(value: str | None) -> str | None:
    return _refuse_pattern(value) if value is None or value else "expected a text that is not empty"


VALID_PATTERN: Final = Check("valid regex", _refuse_pattern)
"""Accept regular expressions only."""
PATTERN_WITH_TEXT: Final = Check("non-empty string, valid regex", _refuse_empty_or_pattern)
"""Accept regular expressions only, and not the empty one."""


def replacement(pattern: re.Pattern[str], text: str) -> Replacement:
    r"""Give what puts a replacement together, in the syntax of Java's ``Matcher.replaceFirst``.

    Args:
        pattern: the pattern whose groups it may use.
        text: the replacement: ``$1``, ``${name}``, and a backslash before what is to stand as it is.

    Raises:
        GroupNumberError: it uses a group that the pattern does not have.
        ArgumentError: it cannot be read.
    """
    parts = _Parts(pattern, text).read()
    if all(isinstance(part, str) for part in parts):
        whole = "".join(map(str, parts))
        return lambda _match: whole
    return lambda match: "".join(part if isinstance(part, str) else match[part] or "" for part in parts)


class _Parts:
    """Read a replacement into texts and numbers of groups."""

    def __init__(self, pattern: re.Pattern[str], text: str) -> None:
        self._pattern: Final = pattern
        self._text: Final = text
        self._at = 0

    def read(self) -> list[str | int]:
        parts: list[str | int] = []
        while char := self._next():
            if char == "$":
                parts.append(self._group())
            elif char == "\\":
                parts.append(self._escaped())
            else:
                parts.append(char)
        return parts

    def _next(self) -> str:
        char = self._text[self._at : self._at + 1]
        self._at += 1
        return char

    def _escaped(self) -> str:
        char = self._next()
        if not char:
            raise ArgumentError("the replacement ends with a backslash that escapes nothing")
        return char

    def _group(self) -> int:
        char = self._next()
        if char == "{":
            return self._named()
        if char not in NUMERALS:
            raise ArgumentError("expected a group's number or '{' behind a '$' of the replacement")
        number = int(char)
        while (char := self._next()) in NUMERALS and number * 10 + int(char) <= self._pattern.groups:
            number = number * 10 + int(char)
        self._at -= 1
        if number > self._pattern.groups:
            raise GroupNumberError(f"the pattern has {self._pattern.groups} groups; there is no ${number}")
        return number

    def _named(self) -> int:
        name, closing, _ = self._text[self._at :].partition("}")
        if not (closing and name.isascii() and name.isalnum()) or name[0].isdigit():
            raise ArgumentError("expected a group's name and '}' behind '${' of the replacement")
        if name not in self._pattern.groupindex:
            raise ArgumentError(f"the pattern has no group {name!r}")
        self._at += len(name) + 1
        return self._pattern.groupindex[name]
