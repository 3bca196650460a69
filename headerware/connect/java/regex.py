r"""Java's regular expressions, matched by Python's ``re`` or by RE2, and the replacement of matches.

The syntax is Java's, so that patterns from a connector's configuration mean the same here: ASCII classes,
POSIX and Unicode properties, ``(?<name>...)``, intersections of classes, ``\Q...\E``, possessive
quantifiers. A pattern that Python does not support is refused when it is read.

Texts may come from an attacker, and ``re`` may take exponential time on a text that a pattern nearly matches.
So ``re`` gets only texts so short that it can try all ways to match them; longer texts go to RE2, which takes
linear time. For a pattern that RE2 does not support (lookaround, references, possessive counts), the length
of texts is limited; if no text is short enough, as for ``(?=(a+)+)``, the pattern is refused.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from importlib import import_module
from typing import Any, Final, Protocol

from headerware.connect.config import Check
from headerware.connect.errors import ArgumentError, ConnectConfigError, ConnectDataError, GroupNumberError
from headerware.connect.java.regex_syntax import NUMERALS, PatternReader, PatternSyntaxError, for_re2
from headerware.core.extras import install_command

_QUICK_STEPS: Final = 100_000
"""The most steps of ``re`` for a text that RE2 can match; a call of RE2 costs as much as some thousand."""
_MOST_STEPS: Final = 50_000_000
"""The most steps of ``re`` for a text that RE2 cannot match: about a second."""
_LINE_ENDS: Final = ("\n", "\r", "\x85", "\u2028", "\u2029")
_LINE_END: Final = re.compile("[\n\r\x85\u2028\u2029]")
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class Match(Protocol):
    """A match, by ``re`` or by RE2."""

    def start(self) -> int:
        """Return the start of the match."""

    def end(self) -> int:
        """Return the end of the match."""

    def __getitem__(self, group: int | str, /) -> str | Any:
        """Return the text of a group, or None."""


class Groups(Protocol):
    """A pattern's groups."""

    @property
    def groups(self) -> int:
        """The number of groups."""

    @property
    def groupindex(self) -> Mapping[str, int]:
        """The numbers of the groups that have names."""


Replacement = Callable[[Any], str]
"""Returns the text that replaces a match."""


class JavaPattern:
    """A pattern that takes bounded time on every text; safe for use by several threads."""

    __slots__ = ("_linear", "_longest", "_path", "_quick", "_without", "exact")

    def __init__(self, exact: re.Pattern[str], reader: PatternReader, path: str) -> None:
        self.exact: Final = exact
        """The pattern of ``re``, which takes time without bound."""
        self._path: Final = path
        self._quick: Final = _longest_text(reader, _QUICK_STEPS)
        self._longest: Final = _longest_text(reader, _MOST_STEPS)
        text, self._without = for_re2(exact.pattern)
        self._linear: Final[Any] = None if reader.repeats_nothing else _compiled_by_re2(text)
        if self._linear is None and self._longest < 0:
            raise ConnectConfigError(_unbounded(), path=path)

    @property
    def groups(self) -> int:
        """The number of groups."""
        return self.exact.groups

    @property
    def groupindex(self) -> Mapping[str, int]:
        """The numbers of the groups that have names."""
        return self.exact.groupindex

    def search(self, text: str) -> Match | None:
        """Return the first match in a text; this and all other methods refuse a text that is too long."""
        return self._for(text).search(text)  # type: ignore[no-any-return]

    def fullmatch(self, text: str) -> Match | None:
        """Return the match of the complete text."""
        return self._for(text).fullmatch(text)  # type: ignore[no-any-return]

    def sub(self, replace: Replacement, text: str) -> str:
        """Return a text with all matches replaced; as in Java, the search goes on after an empty match."""
        engine = self._for(text)
        matches = _by_re(self.exact, text) if engine is self.exact else _by_re2(engine, text)
        parts, at = [], 0
        for match in matches:
            parts += [text[at : match.start()], replace(match)]
            at = match.end()
        return "".join([*parts, text[at:]])

    def _for(self, text: str) -> Any:
        """Return the pattern to match a text with, compiled by ``re`` or by RE2."""
        if len(text) <= self._quick or not text:
            return self.exact
        if self._linear is not None and self._means_the_same(text):
            return self._linear
        if len(text) <= self._longest:
            return self.exact
        of_key = f" of {self._path}" if self._path else ""
        raise ConnectDataError(
            f"the pattern{of_key} could take too much time on a text of {len(text)} characters; the limit is "
            f"{max(0, self._longest)} characters for a pattern with lookaround, references or possessive "
            f"counts, and for one with ^, $ or \\b if the text has line ends or is not ASCII"
        )

    def _means_the_same(self, text: str) -> bool:
        """Return whether RE2 finds the same matches in a text as Java."""
        without = self._without
        if text.isascii():
            fits = True
        else:
            fits = "beyond_ascii" not in without and _LONE_SURROGATE.search(text) is None
        if "line_ends" in without:
            return fits and _LINE_END.search(text) is None
        return fits and not ("line_end_at_end" in without and text.endswith(_LINE_ENDS))


def _by_re(exact: re.Pattern[str], text: str) -> Iterator[Match]:
    at = 0
    while at <= len(text) and (match := exact.search(text, at)):
        yield match
        at = match.end() + (match.end() == match.start())


def _by_re2(linear: Any, text: str) -> Iterator[Match]:
    before = (-1, -1)
    for match in linear.finditer(text):
        if match.span() != before:  # RE2's module returns an empty match twice
            yield match
        before = match.span()


def _longest_text(reader: PatternReader, steps: int) -> int:
    """Return the length of the longest text that takes this many steps at most; -1 if there is none."""
    if reader.is_nested or reader.choices > steps:
        return -1
    cuts = reader.degree + 1  # the end of each repetition, and the beginning of the match

    def fits(length: int) -> bool:
        return reader.choices * math.comb(length + cuts, cuts) <= steps

    high = 1
    while high < steps and fits(high):
        high *= 2
    return bisect_left(range(high), x=True, key=lambda length: not fits(length)) - 1


@cache
def _re2() -> Any:
    try:
        return import_module("re2")
    except ImportError:
        return None


def _compiled_by_re2(text: str) -> Any:
    library = _re2()
    if library is None:
        return None
    options = library.Options()
    options.log_errors = False
    try:
        return library.compile(text, options)
    except (library.error, UnicodeEncodeError):
        return None


def _unbounded() -> str:
    problem = (
        "a regular expression that takes time without bound on some texts: it repeats a part that can match "
        "in several ways, as in (a+)+"
    )
    if _re2() is None:
        return f"{problem}; such a pattern needs RE2: {install_command('connect')}"
    return (
        f"{problem}, and has lookaround, references, possessive counts, counts above 1000, or repeats a "
        f"part that may match nothing, as in (a*)*"
    )


@lru_cache(256)
def java_pattern(text: str, *, path: str = "") -> JavaPattern:
    """Compile a regular expression in Java's syntax; refuse one that takes time without bound."""
    reader = PatternReader(text)
    try:
        return JavaPattern(re.compile(reader.written()), reader, path)
    except PatternSyntaxError as error:
        problem = f"not a regular expression of Java's that can be used here: {error}"
    except (re.error, OverflowError) as error:
        problem = f"a regular expression that Python does not support: {error}"
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
"""The check that accepts only regular expressions."""
PATTERN_WITH_TEXT: Final = Check("non-empty string, valid regex", _refuse_empty_or_pattern)
"""The check that accepts only regular expressions that are not empty."""


def replacement(pattern: Groups, text: str) -> Replacement:
    """Compile a replacement in the syntax of Java's ``Matcher.replaceFirst`` to a function of the match."""
    parts = _Parts(pattern, text).read()
    if all(isinstance(part, str) for part in parts):
        constant = "".join(map(str, parts))
        return lambda _match: constant
    return lambda match: "".join(part if isinstance(part, str) else match[part] or "" for part in parts)


class _Parts:
    """Split a replacement into texts and numbers of groups."""

    def __init__(self, pattern: Groups, text: str) -> None:
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
            raise ArgumentError("expected a group's number or '{' after a '$' of the replacement")
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
            raise ArgumentError("expected a group's name and '}' after '${' of the replacement")
        if name not in self._pattern.groupindex:
            raise ArgumentError(f"the pattern has no group {name!r}")
        self._at += len(name) + 1
        return self._pattern.groupindex[name]
