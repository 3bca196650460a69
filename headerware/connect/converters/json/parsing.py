"""Parse JSON to None, bool, int, float or Decimal, str, list and dict.

A parser's ``fast`` reads numbers with a point or an exponent as floats; ``exact`` reads them as Decimals and
is used if all digits matter. ``schemaless`` returns a value without a schema. The decimal context has no
effect.

:class:`StrictParser` accepts only JSON. :class:`KafkaParser` accepts the same texts as Jackson: numbers with
leading zeros, halves of surrogate pairs, UTF-16 and UTF-32; it ignores all text after the first value.
"""

from __future__ import annotations

import codecs
import json
import math
import re
from collections.abc import Callable
from decimal import Decimal as DecimalNumber
from decimal import InvalidOperation
from typing import Any, Final

import msgspec

from headerware.connect.data.numbers import BigInteger, wrapped_int64
from headerware.connect.errors import ConnectDataError
from headerware.connect.java.numbers import to_float64

MISSING: Final = object()
"""The value that Kafka reads from no bytes; it has no JSON type."""
_MAX_DIGITS: Final = 1000
"""Jackson's limit of the digits of a number."""
_MAX_DEPTH: Final = 1000
"""Jackson's limit of nesting."""
_MAX_SCALE: Final = (1 << 31) - 1
_EXPONENT: Final = "expected numbers with exponents of up to 32 bits"
REFUSALS: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ConnectDataError)
"""The errors of the msgspec decoders for text that is not JSON, or exceeds their limits."""
_INT64: Final = range(-(1 << 63), 1 << 63)
# Translation makes all digits zeros, so that a bytes search finds many of them in a row.
_DIGITS: Final = bytes.maketrans(b"123456789", b"000000000")
_LARGE: Final = b"0" * 19
_NUMBERS: Final = bytes.maketrans(b"123456789.eE+-", b"0" * 14)
_LONG: Final = b"0" * (_MAX_DIGITS + 1)
_COLONS: Final = (b'":', b" :", b"\t:", b"\n:", b"\r:")


class DigitsNeededError(Exception):
    """A number was read as float, but its digits matter; the JSON has to be read again with Decimals."""


def _decimal_of(text: str) -> DecimalNumber:
    """Return the exact number; as in Java, zero has no sign."""
    number = _signed_decimal_of(text)
    return number or number.copy_abs()


def _signed_decimal_of(text: str) -> DecimalNumber:
    """Return the exact number; zero keeps its sign, because it may become a float."""
    if len(text) > _MAX_DIGITS and sum(map(str.isdigit, text)) > _MAX_DIGITS:
        raise ConnectDataError(f"expected numbers of up to {_MAX_DIGITS} digits")
    try:
        number = DecimalNumber(text)
    except InvalidOperation:  # the exponent is too large even for a Decimal
        raise ConnectDataError(_EXPONENT) from None
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int) or not -_MAX_SCALE <= exponent <= _MAX_SCALE:
        raise ConnectDataError(_EXPONENT)
    return number


def _with_numbers(tree: Any, number: Callable[[Any], Any]) -> Any:
    """Replace all ints and Decimals of a tree in place, without recursion."""
    root = [tree]
    pending: list[Any] = [root]
    while pending:
        holder = pending.pop()
        for at, item in holder.items() if holder.__class__ is dict else enumerate(holder):
            kind = item.__class__
            if kind is dict or kind is list:
                pending.append(item)
            elif kind is int or kind is DecimalNumber:
                holder[at] = number(item)
    return root[0]


def count_of_names(tree: Any) -> int:
    """Count the names in all objects."""
    count = 0
    pending: list[Any] = [tree]
    while pending:
        node = pending.pop()
        if node.__class__ is dict:
            count += len(node)
            node = node.values()
        elif node.__class__ is not list:
            continue
        pending += [item for item in node if item.__class__ is dict or item.__class__ is list]
    return count


def is_long(data: bytes) -> bool:
    """Return whether there may be a number of more digits than allowed."""
    return len(data) > _MAX_DIGITS and _LONG in data.translate(_NUMBERS)


_FAST: Final = msgspec.json.Decoder()
_EXACT: Final = msgspec.json.Decoder(float_hook=_decimal_of)
_SIGNED: Final = msgspec.json.Decoder(float_hook=_signed_decimal_of)


class KafkaParser:
    """Read JSON as Kafka does with Jackson; integers of more than 64 bits wrap."""

    def fast(self, data: bytes) -> Any:
        """Read JSON with floats, or with Decimals if this fails."""
        if is_long(data):
            return self.exact(data)
        try:
            return _FAST.decode(data)
        except REFUSALS:
            return self.exact(data)

    def exact(self, data: bytes) -> Any:
        """Read JSON with Decimals."""
        if is_long(data):
            return parse_as_jackson(data)
        try:
            return _EXACT.decode(data)
        except REFUSALS:
            return parse_as_jackson(data)

    def schemaless(self, data: bytes) -> Any:
        """Read a value without a schema: integers of 64 bits, and floats."""
        if b"-0" not in data and _LARGE not in data.translate(_DIGITS) and not is_long(data):
            try:
                return _FAST.decode(data)
            except REFUSALS:
                pass
        return self.plain(self.exact(data))

    def plain(self, tree: Any) -> Any:
        """Return the value without a schema that a tree with Decimals stands for."""
        return None if tree is MISSING else _with_numbers(tree, _wrapped)

    def check_names(self, data: bytes, count: int) -> None:
        """Accept a name that an object has twice, as Kafka does: the last one counts."""


def _wrapped(number: DecimalNumber | int) -> int | float:
    return wrapped_int64(number) if isinstance(number, int) else to_float64(number)


class StrictParser:
    """Read JSON, in which an object has each name once; numbers keep their values."""

    def fast(self, data: bytes) -> Any:
        """Read JSON with floats, or with Decimals if a number is too large for a float."""
        try:
            return _FAST.decode(data)
        except msgspec.ValidationError:
            return self.exact(data)
        except REFUSALS as error:
            raise _malformed(data, error) from None

    def exact(self, data: bytes) -> Any:
        """Read JSON with Decimals."""
        try:
            return _SIGNED.decode(data)
        except REFUSALS as error:
            raise _malformed(data, error) from None

    def schemaless(self, data: bytes) -> Any:
        """Read a value without a schema; integers of more than 64 bits are ``BigInteger``."""
        tree = self.fast(data)
        self.check_names(data, count_of_names(tree))
        if (
            tree.__class__ is DecimalNumber
            or b"e" in data
            or b"E" in data
            or _LARGE in data.translate(_DIGITS)
        ):
            return self.plain(tree)
        return tree

    def plain(self, tree: Any) -> Any:
        """Return the value without a schema that a tree with Decimals stands for."""
        return _with_numbers(tree, _unwrapped)

    def check_names(self, data: bytes, count: int) -> None:
        """Refuse JSON in which an object has a name twice; ``count`` names were read."""
        # A name's colon follows a quote or white space. If there are no more such colons than names were
        # read, no name was lost; if there are more, they may be part of a text, so each object is checked.
        if sum(map(data.count, _COLONS)) > count:
            try:
                json.loads(data, object_pairs_hook=_unique)
            except RecursionError as error:
                raise _malformed(data, error) from None


def _unwrapped(number: DecimalNumber | int) -> int | float:
    if isinstance(number, int):
        return number if number in _INT64 else BigInteger(number)
    found = to_float64(number)
    if math.isinf(found):
        raise ConnectDataError("expected numbers in the range of a float of 64 bits")
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ConnectDataError("a name occurs twice in a JSON object")
    return made


def _malformed(data: bytes, error: Exception) -> ConnectDataError:
    if isinstance(error, ConnectDataError):
        return error
    problem = "nested too deeply" if isinstance(error, RecursionError) else "malformed"
    return ConnectDataError(f"expected JSON, found {len(data)} bytes that are {problem}")


_ESCAPE: Final = "surrogateescape"
"""The codec's error handler that keeps bytes that are not UTF-8, as characters that no string may hold."""
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


def parse_as_jackson(data: bytes) -> Any:
    """Read the first value of the bytes, with Decimals; return MISSING if there is none."""
    text = _decoded(data)
    at = _space(text, 0)
    if at == len(text):
        return MISSING
    return _JacksonParser(text, at).parse()


class _JacksonParser:
    """A position in a text, and the lists and objects that are open there; there is no recursion."""

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
        """Open a list or object, and return whether it has any items."""
        if len(self._open) >= _MAX_DEPTH:
            raise ConnectDataError(f"expected JSON that is nested {_MAX_DEPTH} levels deep at most")
        self._at = _space(self._text, self._at)
        if self._text.startswith("]" if holder.__class__ is list else "}", self._at):
            self._at += 1
            return False
        self._open.append(holder)
        if holder.__class__ is dict:
            self._name()
        return True

    def _closed(self, value: Any) -> Any:
        """Add a value to its list or object, and return the outermost list or object that ends here."""
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
        if _SURROGATE.search(name):  # Jackson accepts halves of surrogate pairs only in values
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
    """Return the encoding of bytes without a mark, by their zero bytes: JSON begins with ASCII."""
    zeros = tuple(byte == 0 for byte in data[:4])
    return _BY_ZEROS.get(zeros) or _BY_ZEROS.get(zeros[:2]) or "utf-8"


def _space(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]  # it also matches the empty text


def _number(integral: str, rest: str) -> Any:
    if rest:
        return _decimal_of(integral + rest)
    if len(integral.removeprefix("-")) > _MAX_DIGITS:
        raise ConnectDataError(f"expected numbers of up to {_MAX_DIGITS} digits")
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
