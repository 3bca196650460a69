r"""Read the characters of a regular expression in Java's syntax: quotes, escapes, classes.

A token is one character of the pattern, or one that stands between ``\Q`` and ``\E``, marked as such.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import ClassVar, Final

from headerware.connect.java.regex.classes import (
    DIGITS,
    HORIZONTAL,
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


class PatternSyntaxError(ValueError):
    """A pattern that Java refuses, too, or one that Python cannot do; the text says where."""


class CharacterReader:
    """Read characters and sets of them.

    Args:
        text: the pattern in Java's syntax.
    """

    def __init__(self, text: str) -> None:
        self._tokens: Final = _unquoted(text)
        self._at = 0
        self.flags: frozenset[str] = frozenset()
        """The flags that are on where the reader stands, such as ``i``."""

    def peek(self) -> str:
        """Return the next token, or nothing at the end; comments are skipped where they are on."""
        if "x" in self.flags:
            self._skip_comments()
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def next(self) -> str:
        """Return the next token and pass it."""
        char = self.peek()
        self._at += bool(char)
        return char

    def raw(self) -> str:
        """Return the next token and pass it, white space and all."""
        char = self._tokens[self._at] if self._at < len(self._tokens) else ""
        self._at += bool(char)
        return char

    def accept(self, *wanted: str) -> str:
        """Pass the next token where it is one of these, and give it."""
        char = self.peek()
        if char not in wanted:
            return ""
        self._at += 1
        return char

    def follows(self, *wanted: str) -> bool:
        """Return whether these are the next tokens."""
        at = self._at
        found = all(self.next() == each for each in wanted)
        self._at = at
        return found

    def back(self) -> None:
        """Return to the token before."""
        self._at -= 1

    def error(self, problem: str) -> PatternSyntaxError:
        """Say what is wrong, and where."""
        return PatternSyntaxError(f"{problem}, at character {self._at}")

    def cased(self, chars: CharSet) -> CharSet:
        """Return a set with both cases where case does not count."""
        return chars.any_case(beyond_ascii="u" in self.flags) if "i" in self.flags else chars

    def escaped(self) -> CharSet | str:
        r"""Read what stands behind a backslash, inside a class or out of it: a set or a character.

        Raises:
            PatternSyntaxError: this escape is not known, or means no character.
        """
        char = self.raw()
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
            raise self.error(f"the escape '\\{char}' is not supported here")
        return char[-1]

    def braced(self) -> str:
        """Return what stands between braces."""
        self.raw()
        inner = ""
        while (char := self.raw()) and char != "}":
            inner += char[-1]
        if not char:
            raise self.error("expected a '}'")
        return inner

    def read_set(self) -> CharSet:
        """Read a class behind its opening bracket, up to its closing one.

        Raises:
            PatternSyntaxError: it is not closed, or a part of it is empty or cannot be read.
        """
        negated = bool(self.accept("^"))
        found = self._members()
        if not self.accept("]"):
            raise self.error("a class that is not closed")
        return ~found if negated else found

    def _members(self) -> CharSet:
        """Read up to the closing bracket; '&&' is about everything to its left, as in Java."""
        found: CharSet | None = None
        while (char := self.peek()) and (char != "]" or found is None):
            if self.follows("&", "&"):
                right = self._right_of_and()
                found = right if found is None else found & right
            else:
                found = self._range() if found is None else found | self._range()
        if found is None:
            raise self.error("a class that is not closed")
        return found

    def _right_of_and(self) -> CharSet:
        """Read the other side of '&&': classes in brackets, and what follows them as a class of its own."""
        self.next()
        self.next()
        found: CharSet | None = None
        while self.peek() not in {"]", "&", ""}:
            part = self.read_set() if self.accept("[") else self._members()
            found = part if found is None else found | part
        if found is None:
            raise self.error("'&&' with nothing to its right")
        return found

    def _range(self) -> CharSet:
        char = self.next()
        if char == "[":
            return self.read_set()
        first = self._member(char)
        if isinstance(first, CharSet):
            return first
        if not self._opens_range():
            return self.cased(of_text(first))
        self.next()
        last = self._member(self.next())
        if isinstance(last, CharSet) or last < first:
            raise self.error("a range of characters whose ends are the wrong way round")
        return self.cased(CharSet(((ord(first), ord(last)),)))

    def _member(self, char: str) -> CharSet | str:
        if not char:
            raise self.error("a class that is not closed")
        return self.escaped() if char == "\\" else char[-1]

    def _opens_range(self) -> bool:
        return self.follows("-") and not (self.follows("-", "]") or self.follows("-", "["))

    def _property(self) -> CharSet:
        name = self.braced() if self.peek() == "{" else self.raw()
        found = property_set(name, any_case="i" in self.flags)
        if found is None:
            raise self.error(f"the property {name!r} is not supported")
        return found

    def _no_property(self) -> CharSet:
        return ~self._property()

    def _octal(self) -> str:
        digits = ""
        while len(digits) < 3 and self.peek() in _OCTAL and int(digits + self.peek(), 8) < 0o400:
            digits += self.raw()
        return self._coded(digits, 8)

    def _hexadecimal(self) -> str:
        return self._coded(self.braced() if self.peek() == "{" else self._fixed(2))

    def _utf16(self) -> str:
        char = self._coded(self._fixed(4))
        at = self._at
        if "\ud800" <= char <= "\udbff" and self.raw() == "\\" and self.raw() == "u":
            low = self._coded(self._fixed(4))
            if "\udc00" <= low <= "\udfff":
                return chr(0x10000 + ((ord(char) & 0x3FF) << 10 | ord(low) & 0x3FF))
        self._at = at
        return char

    def _fixed(self, count: int) -> str:
        digits = "".join(self.raw() for _ in range(count))
        return digits if len(digits) == count else ""

    def _coded(self, digits: str, base: int = 16) -> str:
        if not digits or not _HEX.issuperset(digits) or int(digits, base) > _LAST_CODE:
            raise self.error("expected a character's number")
        return chr(int(digits, base))

    def _control(self) -> str:
        char = self.raw()
        if not char:
            raise self.error("expected a character behind '\\c'")
        return chr(ord(char[-1]) ^ 64)

    def _unicode_name(self) -> str:
        name = self.braced() if self.peek() == "{" else ""
        try:
            return unicodedata.lookup(name)
        except KeyError:
            raise self.error("expected a character's name in braces behind '\\N'") from None

    def _skip_comments(self) -> None:
        tokens = self._tokens
        while self._at < len(tokens) and (tokens[self._at] in _BLANK or tokens[self._at] == "#"):
            if tokens[self._at] == "#":
                while self._at < len(tokens) and not self._ends_line(tokens[self._at]):
                    self._at += 1
            else:
                self._at += 1

    def _ends_line(self, char: str) -> bool:
        return char == "\n" or (char in _ENDERS and "d" not in self.flags)

    _ESCAPES: ClassVar[dict[str, Callable[[CharacterReader], CharSet | str]]] = {
        "0": _octal,
        "N": _unicode_name,
        "P": _no_property,
        "c": _control,
        "p": _property,
        "u": _utf16,
        "x": _hexadecimal,
    }


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
