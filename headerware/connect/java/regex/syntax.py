r"""Read a regular expression in Java's syntax, and write it for Python's ``re``.

What is written needs no flags: ``(?i)``, ``(?s)`` and the like are worked into the characters, since Java
lets them begin in mid-pattern. What ``re`` cannot do is refused: ``\X``, ``\b{g}``, scripts and blocks,
``(?U)``, references to a group that is not closed yet.

Beside that, it is noted how many ways there may be to match a text, for ``re`` may try them all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar, Final

from headerware.connect.java.regex.characters import NUMERALS, CharacterReader
from headerware.connect.java.regex.classes import NO_LINE_END, VERTICAL, CharSet, of_text

_START: Final = r"(?:\A)"
_END: Final = r"(?:\Z)"
_END_OR_LAST_LINE_END: Final = r"(?:\Z|(?=\r\n\Z)|(?=[\r\x85\u2028\u2029]\Z)|(?<!\r)(?=\n\Z))"
_LINE_START: Final = r"(?:(?!\Z)(?:\A|(?<=[\n\x85\u2028\u2029])|(?<=\r)(?!\n)))"
_LINE_END: Final = r"(?:\Z|(?=[\r\x85\u2028\u2029])|(?<!\r)(?=\n))"
_UNIX_END_OR_LAST_LINE_END: Final = r"(?:(?=\n?\Z))"
_UNIX_LINE_START: Final = r"(?:(?!\Z)(?:\A|(?<=\n)))"
_UNIX_LINE_END: Final = r"(?:\Z|(?=\n))"
_PLACES: Final = {"A": _START, "G": _START, "z": _END, "B": r"(?:(?!\b))"}
_FLAGS: Final = frozenset("idmsux")
_INSIDE: Final = frozenset({":", "=", "!", ">", "<=", "<!"})
_QUANTIFIERS: Final = ("*", "+", "?", "{")
_INT_MAX: Final = (1 << 31) - 1
_TIMES: Final = {"*": (0, _INT_MAX), "+": (1, _INT_MAX), "?": (0, 1)}
_FEW: Final = 3
_SAME_IN_RE2: Final = (
    (_END_OR_LAST_LINE_END, r"(?:\z)", "line_end_at_end"),
    (_UNIX_END_OR_LAST_LINE_END, r"(?:\z)", "line_end_at_end"),
    (_LINE_START, r"(?:\A)", "line_ends"),
    (_UNIX_LINE_START, r"(?:\A)", "line_ends"),
    (_LINE_END, r"(?:\z)", "line_ends"),
    (_UNIX_LINE_END, r"(?:\z)", "line_ends"),
    (r"(?:(?!\b))", r"(?:\B)", "beyond_ascii"),
    (r"(?:\b)", r"(?:\b)", "beyond_ascii"),
    (_END, r"(?:\z)", ""),
    ("(?!)", r"[^\x{0}-\x{10ffff}]", ""),
)
"""What ``re`` is given, what means the same to RE2, and what a text must not have for that."""
_NOTHING: Final = frozenset(
    {
        *(_START, _END, _END_OR_LAST_LINE_END, _LINE_START, _LINE_END, _UNIX_END_OR_LAST_LINE_END),
        *(_UNIX_LINE_START, _UNIX_LINE_END, r"(?:(?!\b))", r"(?:\b)", "(?:)"),
    }
)
"""Units that match places, and no characters."""
_CODE: Final = re.compile(r"\\U([0-9a-f]{8})")


def for_re2(written: str) -> tuple[str, frozenset[str]]:
    """Write a pattern for RE2 that was written for ``re``.

    Returns:
        The pattern, which RE2 refuses where it has looks around, references or possessive counts; and what
        texts must not have, for on them it would mean something else: ``line_ends``, ``line_end_at_end``,
        ``beyond_ascii``.
    """
    without: set[str] = set()
    for ours, theirs, unless in _SAME_IN_RE2:
        if ours in written:
            written = written.replace(ours, theirs)
            without.add(unless)
    return _CODE.sub(lambda code: f"\\x{{{int(code[1], 16):x}}}", written), frozenset(without - {""})


class PatternReader(CharacterReader):
    """Read one pattern.

    Args:
        text: the pattern in Java's syntax.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._groups = 0
        self._closed: set[int] = set()
        self._names: dict[str, int] = {}
        self.degree: int = 0
        """How many parts repeat as often as the text allows; the ways grow with its length to this power."""
        self.choices: int = 1
        """How many ways there are beside that, whatever the text."""
        self.is_nested: bool = False
        """Whether a part that matches in several ways is repeated: then the ways grow exponentially."""
        self.repeats_nothing: bool = False
        """Whether a part is repeated that may match nothing, where RE2 goes on and Java does not."""
        self._least = 0

    def written(self) -> str:
        """Return the whole pattern, as ``re`` writes it.

        Raises:
            PatternSyntaxError: it cannot be read.
        """
        found = "|".join(self._alternatives())
        if self.peek():
            raise self.error("a closing bracket that nothing opens")
        return found

    def _alternatives(self) -> list[str]:
        found = [self._sequence()]
        least = self._least
        while self.accept("|"):
            found.append(self._sequence())
            least = min(least, self._least)
        self.choices *= len(found)
        self._least = least
        return found

    def _sequence(self) -> str:
        parts: list[str] = []
        least = 0
        while (char := self.peek()) and char not in {"|", ")"}:
            before, self._least = (self.degree, self.choices), 1
            read = self._UNITS.get(self.next())
            unit = self._literal(char[-1]) if read is None else read(self)
            if unit is not None:
                is_simple = before == (self.degree, self.choices)
                self._least *= unit not in _NOTHING
                parts.append(unit + self._quantifier(is_simple=is_simple))
                least += self._least
        self._least = least
        return "".join(parts)

    def _literal(self, char: str) -> str:
        return self.cased(of_text(char)).pattern()

    def _dot(self) -> str:
        if "s" in self.flags:
            return "(?s:.)"
        return (~of_text("\n") if "d" in self.flags else NO_LINE_END).pattern()

    def _caret(self) -> str:
        if "m" not in self.flags:
            return _START
        return _UNIX_LINE_START if "d" in self.flags else _LINE_START

    def _dollar(self) -> str:
        if "m" not in self.flags:
            return self._before_last_line_end()
        return _UNIX_LINE_END if "d" in self.flags else _LINE_END

    def _before_last_line_end(self) -> str:
        return _UNIX_END_OR_LAST_LINE_END if "d" in self.flags else _END_OR_LAST_LINE_END

    def _class(self) -> str:
        return self.read_set().pattern()

    # Quantifiers

    def _quantifier(self, *, is_simple: bool) -> str:
        char = self.accept(*_QUANTIFIERS)
        if not char:
            return ""
        count, least, most = self._count() if char == "{" else (char, *_TIMES[char])
        self.is_nested |= most > 1 and not is_simple
        self.repeats_nothing |= most > 1 and not self._least
        self._least *= least
        if most - least > _FEW:
            self.degree += 1
        else:
            self.choices *= 1 + most - least
        return count + self.accept("?", "+")

    def _count(self) -> tuple[str, int, int]:
        least = most = self._number()
        if not least:
            raise self.error("expected a number behind '{'")
        if self.accept(","):
            most = self._number()
        if not self.accept("}"):
            raise self.error("expected a '}' behind a count")
        if most and int(most) < int(least):
            raise self.error("a count whose limits are the wrong way round")
        return f"{{{least},{most}}}", int(least), int(most or _INT_MAX)

    def _number(self) -> str:
        digits = ""
        while self.peek() in NUMERALS:
            digits += self.next()
            if int(digits) > _INT_MAX:
                raise self.error("a count that is too large")
        return digits

    def _dangling(self) -> str:
        raise self.error("a quantifier that follows nothing")

    def _count_of_nothing(self) -> str:
        # Java repeats the empty text here.
        self.back()
        return "(?:)"

    # Groups

    @contextmanager
    def _scope(self) -> Iterator[None]:
        """Read to the end of a group; flags that are set within it end with it."""
        before = self.flags
        yield
        if not self.accept(")"):
            raise self.error("a group that is not closed")
        self.flags = before

    def _group(self) -> str | None:
        if not self.accept("?"):
            return self._capturing("(")
        kind = self.raw()
        if kind == "<":
            kind += self.raw()
        if kind in _INSIDE:
            with self._scope():
                inner = self._alternatives()
            self._least *= kind == ":"
            return _around(kind, inner)
        if kind.startswith("<"):
            return self._capturing(f"(?P<{self._new_name(kind[1:])}>")
        if kind:
            self.back()
        return self._flagged()

    def _capturing(self, opening: str) -> str:
        self._groups += 1
        number = self._groups
        with self._scope():
            inner = "|".join(self._alternatives())
        self._closed.add(number)
        return f"{opening}{inner})"

    def _new_name(self, first: str) -> str:
        name = self._name(first)
        if name in self._names:
            raise self.error(f"group {name!r} is there already")
        self._names[name] = self._groups + 1
        return name

    def _name(self, name: str) -> str:
        while (char := self.raw()) and char != ">":
            name += char
        if not (char and name.isascii() and name.isalnum() and name[0].isalpha()):
            raise self.error("expected a group's name of letters and digits, and a '>'")
        return name

    def _flagged(self) -> str | None:
        flags, change = set(self.flags), set.add
        while (char := self.raw()) not in {")", ":"}:
            if char == "-" and change is set.add:
                change = set.discard
            elif char in _FLAGS:
                change(flags, char)
            else:
                raise self.error("a group that is not closed, or of a kind or flag that is not supported")
        if char == ")":
            self.flags: frozenset[str] = frozenset(flags)
            return None
        with self._scope():
            self.flags = frozenset(flags)
            inner = self._alternatives()
        return _around(":", inner)

    # Escapes that are no characters

    def _escape(self) -> str:
        char = self.raw()
        read = self._OUTSIDE.get(char)
        if read is not None:
            return read(self)
        if char in _PLACES:
            return _PLACES[char]
        if char in NUMERALS and char != "0":
            return self._reference(int(char))
        if char:
            self.back()
        found = self.escaped()
        return found.pattern() if isinstance(found, CharSet) else self._literal(found)

    def _boundary(self) -> str:
        if self.follows("{", "g"):
            raise self.error("'\\b{g}' is not supported")
        return r"(?:\b)"

    def _line_end(self) -> str:
        # Java tries the two ends of "\r\n" apart, but not where it repeats.
        opening = "(?>" if self.peek() in _QUANTIFIERS else "(?:"
        return rf"{opening}\r\n|{VERTICAL.pattern()})"

    def _named_reference(self) -> str:
        if self.raw() != "<":
            raise self.error("expected '<' and a group's name behind '\\k'")
        name = self._name("")
        return self._compared(self._names.get(name, 0))

    def _reference(self, number: int) -> str:
        while self.peek() in NUMERALS and number * 10 + int(self.peek()) <= self._groups:
            number = number * 10 + int(self.raw())
        return self._compared(number)

    def _compared(self, number: int) -> str:
        self.degree += 1  # for as long as the comparison takes
        self._least = 0
        if number not in self._closed:
            raise self.error("a reference to a group that is not closed yet, or does not exist")
        if "i" not in self.flags:
            return f"(?:\\{number})"
        return f"(?{'u' if 'u' in self.flags else 'a'}i:\\{number})"

    _UNITS: ClassVar[dict[str, Callable[[PatternReader], str | None]]] = {
        "\\": _escape,
        "[": _class,
        "(": _group,
        ".": _dot,
        "^": _caret,
        "$": _dollar,
        "{": _count_of_nothing,
        "*": _dangling,
        "+": _dangling,
        "?": _dangling,
    }
    _OUTSIDE: ClassVar[dict[str, Callable[[PatternReader], str]]] = {
        "R": _line_end,
        "Z": _before_last_line_end,
        "b": _boundary,
        "k": _named_reference,
    }


def _around(kind: str, alternatives: list[str]) -> str:
    """Write a group that captures nothing.

    ``re`` looks behind by a fixed length only, but each alternative may have its own.
    """
    if kind == "<=" and len(alternatives) > 1:
        return f"(?:{'|'.join(f'(?<={each})' for each in alternatives)})"
    if kind == "<!":
        return f"(?:{''.join(f'(?<!{each})' for each in alternatives)})"
    return f"(?{kind}{'|'.join(alternatives)})"
