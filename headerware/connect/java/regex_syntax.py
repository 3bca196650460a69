r"""Read a regular expression in Java's syntax, and write it for Python's ``re``.

The result needs no flags: the effect of ``(?i)``, ``(?s)`` and the like is written into the characters,
because Java allows these flags within a pattern. Syntax that ``re`` does not support is refused: ``\X``,
``\b{g}``, scripts and blocks, ``(?U)``, references to a group that is not closed yet.

The reader also counts the ways in which a text may match, because ``re`` may try them all.

A token is one character of the pattern; a character between ``\Q`` and ``\E`` is marked as quoted.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar, Final

from headerware.connect.java.character_sets import (
    DIGITS,
    HORIZONTAL,
    NO_LINE_END,
    SPACES,
    VERTICAL,
    WORD,
    CharSet,
    of_text,
    property_set,
)

NUMERALS: Final = frozenset("0123456789")
_SETS: Final = {"d": DIGITS, "h": HORIZONTAL, "s": SPACES, "v": VERTICAL, "w": WORD}
_CONTROLS: Final = {"a": "\a", "e": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_QUOTED: Final = "\\Q"
_BLANK: Final = frozenset(" \t\n\x0b\f\r")
_ENDERS: Final = frozenset("\n\r\x85\u2028\u2029")
_OCTAL: Final = frozenset("01234567")
_HEX: Final = frozenset("0123456789abcdefABCDEF")
_LAST_CODE: Final = 0x10FFFF
_START: Final = r"(?:\A)"
_END: Final = r"(?:\Z)"
_END_OR_LAST_LINE_END: Final = r"(?:\Z|(?=\r\n\Z)|(?=[\r\x85\u2028\u2029]\Z)|(?<!\r)(?=\n\Z))"
_LINE_START: Final = r"(?:(?!\Z)(?:\A|(?<=[\n\x85\u2028\u2029])|(?<=\r)(?!\n)))"
_LINE_END: Final = r"(?:\Z|(?=[\r\x85\u2028\u2029])|(?<!\r)(?=\n))"
_UNIX_END_OR_LAST_LINE_END: Final = r"(?:(?=\n?\Z))"
_UNIX_LINE_START: Final = r"(?:(?!\Z)(?:\A|(?<=\n)))"
_UNIX_LINE_END: Final = r"(?:\Z|(?=\n))"
_ANCHORS: Final = {"A": _START, "G": _START, "z": _END, "B": r"(?:(?!\b))"}
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
"""A unit for ``re``, the unit for RE2, and the property of texts for which the two differ."""
_NOTHING: Final = frozenset(
    {
        *(_START, _END, _END_OR_LAST_LINE_END, _LINE_START, _LINE_END, _UNIX_END_OR_LAST_LINE_END),
        *(_UNIX_LINE_START, _UNIX_LINE_END, r"(?:(?!\b))", r"(?:\b)", "(?:)"),
    }
)
"""Units that match a position between characters."""
_CODE: Final = re.compile(r"\\U([0-9a-f]{8})")


class PatternSyntaxError(ValueError):
    """A pattern that Java refuses, or that Python does not support; the message says where."""


def for_re2(written: str) -> tuple[str, frozenset[str]]:
    """Translate a pattern for ``re`` to RE2.

    Return the pattern, and the properties of texts for which its meaning differs: ``line_ends``,
    ``line_end_at_end``, ``beyond_ascii``. RE2 refuses a pattern with lookaround, references or possessive
    counts.
    """
    without: set[str] = set()
    for ours, theirs, unless in _SAME_IN_RE2:
        if ours in written:
            written = written.replace(ours, theirs)
            without.add(unless)
    return _CODE.sub(lambda code: f"\\x{{{int(code[1], 16):x}}}", written), frozenset(without - {""})


class PatternReader:
    """Read one pattern in Java's syntax, and count the ways in which a text may match."""

    def __init__(self, text: str) -> None:
        self._tokens: Final = _unquoted(text)
        self._at = 0
        self._flags: frozenset[str] = frozenset()
        """The flags at the current position, such as ``i``."""
        self._groups = 0
        self._closed: set[int] = set()
        self._names: dict[str, int] = {}
        self._least = 0
        """The least number of characters that the last part can match."""
        self.degree: int = 0
        """The number of parts that repeat without a limit; the ways grow with the text to this power."""
        self.choices: int = 1
        """A factor of the number of ways that does not depend on the text."""
        self.is_nested: bool = False
        """Whether a part that matches in several ways is repeated: then the ways grow exponentially."""
        self.repeats_nothing: bool = False
        """Whether a part that may match nothing is repeated: RE2 goes on repeating it, and Java does not."""

    def written(self) -> str:
        """Return the complete pattern for ``re``, or raise PatternSyntaxError."""
        found = "|".join(self._alternatives())
        if self._peek():
            raise self._error("a closing bracket that nothing opens")
        return found

    # Tokens

    def _peek(self) -> str:
        """Return the next token, or nothing at the end; skip comments if they are on."""
        if "x" in self._flags:
            self._skip_comments()
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        """Return the next token, and move past it."""
        char = self._peek()
        self._at += bool(char)
        return char

    def _raw(self) -> str:
        """Return the next token, white space included, and move past it."""
        char = self._tokens[self._at] if self._at < len(self._tokens) else ""
        self._at += bool(char)
        return char

    def _accept(self, *wanted: str) -> str:
        """Return the next token and move past it if it is one of these; otherwise return nothing."""
        char = self._peek()
        if char not in wanted:
            return ""
        self._at += 1
        return char

    def _follows(self, *wanted: str) -> bool:
        """Return whether these are the next tokens."""
        at = self._at
        found = all(self._next() == each for each in wanted)
        self._at = at
        return found

    def _back(self) -> None:
        self._at -= 1

    def _error(self, problem: str) -> PatternSyntaxError:
        return PatternSyntaxError(f"{problem}, at character {self._at}")

    # Units

    def _alternatives(self) -> list[str]:
        found = [self._sequence()]
        least = self._least
        while self._accept("|"):
            found.append(self._sequence())
            least = min(least, self._least)
        self.choices *= len(found)
        self._least = least
        return found

    def _sequence(self) -> str:
        parts: list[str] = []
        least = 0
        while (char := self._peek()) and char not in {"|", ")"}:
            before, self._least = (self.degree, self.choices), 1
            read = self._UNITS.get(self._next())
            unit = self._literal(char[-1]) if read is None else read(self)
            if unit is not None:
                is_simple = before == (self.degree, self.choices)
                self._least *= unit not in _NOTHING
                parts.append(unit + self._quantifier(is_simple=is_simple))
                least += self._least
        self._least = least
        return "".join(parts)

    def _literal(self, char: str) -> str:
        return self._cased(of_text(char)).pattern()

    def _dot(self) -> str:
        if "s" in self._flags:
            return "(?s:.)"
        return (~of_text("\n") if "d" in self._flags else NO_LINE_END).pattern()

    def _caret(self) -> str:
        if "m" not in self._flags:
            return _START
        return _UNIX_LINE_START if "d" in self._flags else _LINE_START

    def _dollar(self) -> str:
        if "m" not in self._flags:
            return self._before_last_line_end()
        return _UNIX_LINE_END if "d" in self._flags else _LINE_END

    def _before_last_line_end(self) -> str:
        return _UNIX_END_OR_LAST_LINE_END if "d" in self._flags else _END_OR_LAST_LINE_END

    def _class(self) -> str:
        return self._read_set().pattern()

    # Quantifiers

    def _quantifier(self, *, is_simple: bool) -> str:
        char = self._accept(*_QUANTIFIERS)
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
        return count + self._accept("?", "+")

    def _count(self) -> tuple[str, int, int]:
        least = most = self._number()
        if not least:
            raise self._error("expected a number after '{'")
        if self._accept(","):
            most = self._number()
        if not self._accept("}"):
            raise self._error("expected a '}' after a count")
        if most and int(most) < int(least):
            raise self._error("a count whose lower limit is above its upper limit")
        return f"{{{least},{most}}}", int(least), int(most or _INT_MAX)

    def _number(self) -> str:
        digits = ""
        while self._peek() in NUMERALS:
            digits += self._next()
            if int(digits) > _INT_MAX:
                raise self._error("a count that is too large")
        return digits

    def _dangling(self) -> str:
        raise self._error("a quantifier that follows nothing")

    def _count_of_nothing(self) -> str:
        # Java repeats the empty text here.
        self._back()
        return "(?:)"

    # Groups

    @contextmanager
    def _scope(self) -> Iterator[None]:
        """Read to the end of a group; flags that are set within it end with it."""
        before = self._flags
        yield
        if not self._accept(")"):
            raise self._error("a group that is not closed")
        self._flags = before

    def _group(self) -> str | None:
        if not self._accept("?"):
            return self._capturing("(")
        kind = self._raw()
        if kind == "<":
            kind += self._raw()
        if kind in _INSIDE:
            with self._scope():
                inner = self._alternatives()
            self._least *= kind == ":"
            return _around(kind, inner)
        if kind.startswith("<"):
            return self._capturing(f"(?P<{self._new_name(kind[1:])}>")
        if kind:
            self._back()
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
            raise self._error(f"group {name!r} exists already")
        self._names[name] = self._groups + 1
        return name

    def _name(self, name: str) -> str:
        while (char := self._raw()) and char != ">":
            name += char
        if not (char and name.isascii() and name.isalnum() and name[0].isalpha()):
            raise self._error("expected a group's name of letters and digits, and a '>'")
        return name

    def _flagged(self) -> str | None:
        flags, change = set(self._flags), set.add
        while (char := self._raw()) not in {")", ":"}:
            if char == "-" and change is set.add:
                change = set.discard
            elif char in _FLAGS:
                change(flags, char)
            else:
                raise self._error("a group that is not closed, or of a kind or flag that is not supported")
        if char == ")":
            self._flags = frozenset(flags)
            return None
        with self._scope():
            self._flags = frozenset(flags)
            inner = self._alternatives()
        return _around(":", inner)

    # Escapes that are not characters

    def _escape(self) -> str:
        char = self._raw()
        read = self._OUTSIDE.get(char)
        if read is not None:
            return read(self)
        if char in _ANCHORS:
            return _ANCHORS[char]
        if char in NUMERALS and char != "0":
            return self._reference(int(char))
        if char:
            self._back()
        found = self._escaped()
        return found.pattern() if isinstance(found, CharSet) else self._literal(found)

    def _boundary(self) -> str:
        if self._follows("{", "g"):
            raise self._error("'\\b{g}' is not supported")
        return r"(?:\b)"

    def _line_end(self) -> str:
        # Java tries the two ends of "\r\n" apart, but not in a repetition.
        opening = "(?>" if self._peek() in _QUANTIFIERS else "(?:"
        return rf"{opening}\r\n|{VERTICAL.pattern()})"

    def _named_reference(self) -> str:
        if self._raw() != "<":
            raise self._error("expected '<' and a group's name after '\\k'")
        name = self._name("")
        return self._compared(self._names.get(name, 0))

    def _reference(self, number: int) -> str:
        while self._peek() in NUMERALS and number * 10 + int(self._peek()) <= self._groups:
            number = number * 10 + int(self._raw())
        return self._compared(number)

    def _compared(self, number: int) -> str:
        self.degree += 1  # because the comparison takes time, too
        self._least = 0
        if number not in self._closed:
            raise self._error("a reference to a group that is not closed yet, or does not exist")
        if "i" not in self._flags:
            return f"(?:\\{number})"
        return f"(?{'u' if 'u' in self._flags else 'a'}i:\\{number})"

    # Characters, and sets of them

    def _cased(self, chars: CharSet) -> CharSet:
        return chars.any_case(beyond_ascii="u" in self._flags) if "i" in self._flags else chars

    def _escaped(self) -> CharSet | str:
        """Read a set or a character after a backslash, inside a class or outside."""
        char = self._raw()
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char in _SETS:
            return _SETS[char]
        if char.lower() in _SETS:
            return ~_SETS[char.lower()]
        read = self._ESCAPES.get(char)
        if read is not None:
            return read(self)
        if not char or (char.isascii() and char.isalnum()):
            raise self._error(f"the escape '\\{char}' is not supported here")
        return char[-1]

    def _braced(self) -> str:
        self._raw()
        inner = ""
        while (char := self._raw()) and char != "}":
            inner += char[-1]
        if not char:
            raise self._error("expected a '}'")
        return inner

    def _read_set(self) -> CharSet:
        """Read a class after its opening bracket, up to its closing bracket."""
        negated = bool(self._accept("^"))
        found = self._members()
        if not self._accept("]"):
            raise self._error("a class that is not closed")
        return ~found if negated else found

    def _members(self) -> CharSet:
        """Read up to the closing bracket; as in Java, '&&' applies to all members to its left."""
        found: CharSet | None = None
        while (char := self._peek()) and (char != "]" or found is None):
            if self._follows("&", "&"):
                right = self._right_of_and()
                found = right if found is None else found & right
            else:
                found = self._range() if found is None else found | self._range()
        if found is None:
            raise self._error("a class that is not closed")
        return found

    def _right_of_and(self) -> CharSet:
        """Read the other side of '&&': classes in brackets, and the members after them as one more class."""
        self._next()
        self._next()
        found: CharSet | None = None
        while self._peek() not in {"]", "&", ""}:
            part = self._read_set() if self._accept("[") else self._members()
            found = part if found is None else found | part
        if found is None:
            raise self._error("'&&' with nothing to its right")
        return found

    def _range(self) -> CharSet:
        char = self._next()
        if char == "[":
            return self._read_set()
        first = self._member(char)
        if isinstance(first, CharSet):
            return first
        if not self._opens_range():
            return self._cased(of_text(first))
        self._next()
        last = self._member(self._next())
        if isinstance(last, CharSet) or last < first:
            raise self._error("a range of characters whose first character comes after its last")
        return self._cased(CharSet(((ord(first), ord(last)),)))

    def _member(self, char: str) -> CharSet | str:
        if not char:
            raise self._error("a class that is not closed")
        return self._escaped() if char == "\\" else char[-1]

    def _opens_range(self) -> bool:
        return self._follows("-") and not (self._follows("-", "]") or self._follows("-", "["))

    def _property(self) -> CharSet:
        name = self._braced() if self._peek() == "{" else self._raw()
        found = property_set(name, any_case="i" in self._flags)
        if found is None:
            raise self._error(f"the property {name!r} is not supported")
        return found

    def _no_property(self) -> CharSet:
        return ~self._property()

    def _octal(self) -> str:
        digits = ""
        while len(digits) < 3 and self._peek() in _OCTAL and int(digits + self._peek(), 8) < 0o400:
            digits += self._raw()
        return self._coded(digits, 8)

    def _hexadecimal(self) -> str:
        return self._coded(self._braced() if self._peek() == "{" else self._fixed(2))

    def _utf16(self) -> str:
        char = self._coded(self._fixed(4))
        at = self._at
        if "\ud800" <= char <= "\udbff" and self._raw() == "\\" and self._raw() == "u":
            low = self._coded(self._fixed(4))
            if "\udc00" <= low <= "\udfff":
                return chr(0x10000 + ((ord(char) & 0x3FF) << 10 | ord(low) & 0x3FF))
        self._at = at
        return char

    def _fixed(self, count: int) -> str:
        digits = "".join(self._raw() for _ in range(count))
        return digits if len(digits) == count else ""

    def _coded(self, digits: str, base: int = 16) -> str:
        if not digits or not _HEX.issuperset(digits) or int(digits, base) > _LAST_CODE:
            raise self._error("expected a character's number")
        return chr(int(digits, base))

    def _control(self) -> str:
        char = self._raw()
        if not char:
            raise self._error("expected a character after '\\c'")
        return chr(ord(char[-1]) ^ 64)

    def _unicode_name(self) -> str:
        name = self._braced() if self._peek() == "{" else ""
        try:
            return unicodedata.lookup(name)
        except KeyError:
            raise self._error("expected a character's name in braces after '\\N'") from None

    def _skip_comments(self) -> None:
        tokens = self._tokens
        while self._at < len(tokens) and (tokens[self._at] in _BLANK or tokens[self._at] == "#"):
            if tokens[self._at] == "#":
                while self._at < len(tokens) and not self._ends_line(tokens[self._at]):
                    self._at += 1
            else:
                self._at += 1

    def _ends_line(self, char: str) -> bool:
        return char == "\n" or (char in _ENDERS and "d" not in self._flags)

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
    _ESCAPES: ClassVar[dict[str, Callable[[PatternReader], CharSet | str]]] = {
        "0": _octal,
        "N": _unicode_name,
        "P": _no_property,
        "c": _control,
        "p": _property,
        "u": _utf16,
        "x": _hexadecimal,
    }


def _around(kind: str, alternatives: list[str]) -> str:
    # re looks behind by a fixed length only, but each alternative may have its own.
    if kind == "<=" and len(alternatives) > 1:
        return f"(?:{'|'.join(f'(?<={each})' for each in alternatives)})"
    if kind == "<!":
        return f"(?:{''.join(f'(?<!{each})' for each in alternatives)})"
    return f"(?{kind}{'|'.join(alternatives)})"


def _unquoted(text: str) -> list[str]:
    tokens: list[str] = []
    at = 0
    while at < len(text):
        if text.startswith(_QUOTED, at):
            end = text.find("\\E", at + 2)
            end = len(text) if end < 0 else end
            tokens += [_QUOTED + char for char in text[at + 2 : end]]
            at = end + 2
        else:
            width = 2 if text[at] == "\\" else 1
            tokens += text[at : at + width]
            at += width
    return tokens
