"""JSON as Jackson reads it, where that is more than JSON.

Kafka takes numbers with leading zeros, halves of surrogate pairs, and UTF-16 and UTF-32; what follows the
first value is not looked at. Lists and objects are nested without recursion.
"""

from __future__ import annotations

import codecs
import re
from typing import Any, Final

from headerware.connect.converters.json.nodes import MAX_DEPTH, MAX_DIGITS, MISSING, decimal_of
from headerware.connect.errors import ConnectDataError


def parse_as_jackson(data: bytes) -> Any:
    """Read one value, numbers with a point or an exponent as Decimals.

    Args:
        data: the bytes; :data:`~headerware.connect.converters.json.nodes.MISSING` comes of none.

    Raises:
        ConnectDataError: they are no JSON, or nested too deeply.
    """
    text = _decoded(data)
    at = _space(text, 0)
    if at == len(text):
        return MISSING
    return _Parser(text, at).parse()


class _Parser:
    """The place in a text, and the lists and objects that are open there.

    Args:
        text: the text.
        at: where its value begins.
    """

    def __init__(self, text: str, at: int) -> None:
        self._text: Final = text
        self._at = at
        self._open: list[Any] = []
        self._names: list[str] = []
        """The name of each open object's next value."""

    def parse(self) -> Any:
        while True:
            value = self._value()
            if value.__class__ in _HOLDERS and self._opened(value):
                continue
            if not self._open:
                return value
            value = self._closed(value)
            if not self._open:
                return value

    def _value(self) -> Any:
        match = _VALUE.match(self._text, self._at)
        if match is None:
            raise self._malformed()
        self._at = match.end()
        kind = match.lastgroup
        if kind == "opening":
            return [] if match[0] == "[" else {}
        if kind == "string":
            return _unescaped(match["string"])
        if kind == "word":
            return self._at_root(_WORDS[match[0]], _PART_OF_WORD)
        return self._at_root(_number(match["integral"], match["rest"] or ""), _PART_OF_NUMBER)

    def _at_root(self, value: Any, going_on: re.Pattern[str]) -> Any:
        if not self._open and going_on.match(self._text, self._at):
            raise self._malformed()
        return value

    def _opened(self, holder: Any) -> bool:
        """Open a list or object, and say whether there is something in it."""
        if len(self._open) >= MAX_DEPTH:
            raise ConnectDataError(f"expected JSON that is nested {MAX_DEPTH} levels deep at most")
        self._at = _space(self._text, self._at)
        if self._text.startswith("]" if holder.__class__ is list else "}", self._at):
            self._at += 1
            return False
        self._open.append(holder)
        if holder.__class__ is dict:
            self._name()
        return True

    def _closed(self, value: Any) -> Any:
        """Put a value where it belongs, and give the outermost of what ends with it."""
        while self._open:
            holder = self._open[-1]
            if holder.__class__ is list:
                holder.append(value)
            else:
                holder[self._names.pop()] = value
            self._at = _space(self._text, self._at)
            found = self._text[self._at : self._at + 1]
            self._at += 1
            if found == ",":
                self._at = _space(self._text, self._at)
                if holder.__class__ is dict:
                    self._name()
                break
            if found != ("]" if holder.__class__ is list else "}"):
                raise self._malformed()
            value = self._open.pop()
        return value

    def _name(self) -> None:
        match = _NAME.match(self._text, self._at)
        if match is None:
            raise self._malformed()
        name = _unescaped(match[1])
        if _SURROGATE.search(name):  # which Jackson takes in text alone
            raise self._malformed()
        self._names.append(name)
        self._at = match.end()

    def _malformed(self) -> ConnectDataError:
        return ConnectDataError(f"expected JSON, but it is malformed at character {self._at}")


def _decoded(data: bytes) -> str:
    for mark, codec in _MARKS:
        if data.startswith(mark) and len(data) > 3:
            return _text(data[len(mark) :], codec)
    return _text(data, _codec(data))


def _text(data: bytes, codec: str) -> str:
    return data.decode(codec, _ESCAPE if codec == "utf-8" else "replace")


def _codec(data: bytes) -> str:
    """Return the encoding of bytes without a mark, by where the zeros are, for JSON starts with ASCII."""
    zeros = tuple(byte == 0 for byte in data[:4])
    return _BY_ZEROS.get(zeros) or _BY_ZEROS.get(zeros[:2]) or "utf-8"


def _space(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]  # it matches nothing, too


def _number(integral: str, rest: str) -> Any:
    if rest:
        return decimal_of(integral + rest)
    if len(integral.removeprefix("-")) > MAX_DIGITS:
        raise ConnectDataError(f"expected numbers of up to {MAX_DIGITS} digits")
    return int(integral)


def _unescaped(text: str) -> str:
    if "\\" in text:
        text = _ESCAPED.sub(_unescape, text)
        if _SURROGATE.search(text):
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return text


def _unescape(match: re.Match[str]) -> str:
    found = match[1]
    return chr(int(found[1:], 16)) if len(found) > 1 else _ESCAPES.get(found, found)


_ESCAPE: Final = "surrogateescape"
"""Keeps bytes that are no UTF-8, as characters that no string may hold."""
_HOLDERS: Final = (list, dict)
_WORDS: Final = {"true": True, "false": False, "null": None}
_ESCAPES: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_MARKS: Final = (
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF8, "utf-8"),
)
_BY_ZEROS: Final[dict[tuple[bool, ...], str]] = {
    (True, True, True, False): "utf-32-be",
    (False, True, True, True): "utf-32-le",
    (True, False): "utf-16-be",
    (False, True): "utf-16-le",
}
_STRING: Final = r'"((?:[^"\\\x00-\x1f\udc80-\udcff]++|\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4}))*+)"'
_NAME: Final = re.compile(_STRING + r"[ \t\r\n]*:[ \t\r\n]*")
_VALUE: Final = re.compile(
    r"(?P<opening>[\[{])|"
    + _STRING.replace("(", "(?P<string>", 1)
    + r"|(?P<integral>-?[0-9]+)(?P<rest>(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)|(?P<word>true|false|null)"
)
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_PART_OF_NUMBER: Final = re.compile(r"[^ \t\r\n]")
_PART_OF_WORD: Final = re.compile(r"[\w$]")
_ESCAPED: Final = re.compile(r'\\(["\\/bfnrt]|u[0-9A-Fa-f]{4})')
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
