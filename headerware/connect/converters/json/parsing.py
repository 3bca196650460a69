"""Parse JSON to None, bool, int, float or Decimal, str, list and dict.

:class:`StrictParser` accepts only JSON, and an object only if it has each name once. :class:`KafkaParser`
accepts the same texts as Jackson: numbers with leading zeros, halves of surrogate pairs, UTF-16 and UTF-32;
it ignores all text after the first value. :class:`JsonParser` has the contract of both. Parsing does not
depend on the thread's decimal context.
"""

from __future__ import annotations

import codecs
import json
import math
import re
from collections.abc import Callable
from decimal import Decimal as DecimalNumber
from decimal import InvalidOperation
from typing import Any, ClassVar, Final, Protocol

import msgspec

from headerware.connect.data.numbers import BigInteger, wrapped_int64
from headerware.connect.errors import ConnectDataError
from headerware.connect.java.numbers import to_float64

MISSING: Final = object()
"""The value that Kafka reads from no bytes or only white space; it has no JSON type."""
_MAX_DIGITS: Final = 1000
"""Jackson's limit of the digits of a number."""
_MAX_SCALE: Final = (1 << 31) - 1
_SCALE_EXPECTED: Final = "expected numbers with a scale of 32 bits, found one"
PARSE_ERRORS: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ConnectDataError)
"""The errors of parsing for text that is not JSON, or exceeds a limit."""
_CONTAINERS: Final = (list, dict)
_INT64: Final = range(-(1 << 63), 1 << 63)
# Translation makes all digits zeros, so that a bytes search finds many of them in a row, or an exponent.
_DIGITS: Final = bytes.maketrans(b"123456789E", b"000000000e")
_MAYBE_OVER_64_BITS: Final = b"0" * 19
_NUMBERS: Final = bytes.maketrans(b"123456789.eE+-", b"0" * 14)
_EXPONENT: Final = b"0e"
_TOO_MANY_DIGITS: Final = b"0" * (_MAX_DIGITS + 1)
_COLONS: Final = (b'":', b" :", b"\t:", b"\n:", b"\r:")
# A string matches even if it has no end, so that the search never begins again within it.
_STRING_OR_NUMBER: Final = re.compile(
    rb'"(?:[^"\\]++|\\.?)*+"?|([0-9]++(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?)', re.DOTALL
)
_BYTE: Final = re.compile(r"\(byte ([0-9]+)\)")


_NAN: Final = DecimalNumber("NaN")


def _decimal_of(text: str) -> DecimalNumber:
    """Return the exact number; as in Java, zero has no sign."""
    number = _signed_decimal_of(text)
    return number or number.copy_abs()


def _signed_decimal_of(text: str) -> DecimalNumber:
    """Return the exact number; zero keeps its sign, because it may become a float."""
    _require_few_digits(text)
    try:
        number = DecimalNumber(text)
    except InvalidOperation:
        number = _NAN
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int):  # too large even for a Decimal; a context without traps gives NaN
        raise ConnectDataError(f"{_SCALE_EXPECTED} whose exponent is larger")
    if not -_MAX_SCALE <= exponent <= _MAX_SCALE:
        raise ConnectDataError(f"{_SCALE_EXPECTED} of {-exponent}")
    return number


def _require_few_digits(text: str) -> None:
    if len(text) > _MAX_DIGITS and (digits := sum(map(str.isdigit, text))) > _MAX_DIGITS:
        raise ConnectDataError(f"expected numbers of up to {_MAX_DIGITS} digits, found one of {digits}")


def _replace_numbers(tree: Any, convert: Callable[[Any], Any]) -> Any:
    """Replace all ints and Decimals of a tree in place, without recursion."""
    root = [tree]
    pending: list[Any] = [root]
    while pending:
        container = pending.pop()
        for at, item in container.items() if container.__class__ is dict else enumerate(container):
            kind = item.__class__
            if kind is dict or kind is list:
                pending.append(item)
            elif kind is int or kind is DecimalNumber:
                container[at] = convert(item)
    return root[0]


def count_names(tree: Any) -> int:
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


def check_names(data: bytes, count: int) -> None:
    """Refuse JSON in which an object has a name twice; ``count`` is the number of names that were read."""
    # A name's colon follows a quote or white space. If there are no more such colons than names were read, no
    # name was lost; if there are more, they may be part of a text, so each object is checked.
    if sum(map(data.count, _COLONS)) > count:
        try:
            json.loads(data, object_pairs_hook=_unique)
        except RecursionError as error:
            raise _malformed(data, error) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ConnectDataError("expected each name once in a JSON object, found one twice")
    return made


def may_exceed_digit_limit(data: bytes) -> bool:
    """Return False only if no number has more than 1000 digits."""
    return len(data) > _MAX_DIGITS and _TOO_MANY_DIGITS in data.translate(_NUMBERS)


_FAST: Final = msgspec.json.Decoder()
_EXACT: Final = msgspec.json.Decoder(float_hook=_decimal_of)
_SIGNED: Final = msgspec.json.Decoder(float_hook=_signed_decimal_of)


def _decoded_within(max_depth: int, decoder: msgspec.json.Decoder[Any], data: bytes) -> Any:
    """Decode JSON; raise a RecursionError if it is nested deeper than a limit, whatever Python's limit is."""
    tree = decoder.decode(data)
    if is_deeper(data, tree, max_depth):
        raise RecursionError
    return tree


def is_deeper(data: bytes, tree: Any, max_depth: int) -> bool:
    """Return whether a tree, which was read from these bytes, is nested deeper than a limit."""
    if data.count(b"[") + data.count(b"{") <= max_depth:
        return False
    level = [tree] if tree.__class__ in _CONTAINERS else []
    for _ in range(max_depth):
        if not level:
            return False
        level = [
            item
            for container in level
            for item in (container.values() if container.__class__ is dict else container)
            if item.__class__ in _CONTAINERS
        ]
    return bool(level)


class JsonParser(Protocol):
    """What both parsers do; text that a parser does not accept raises a ConnectDataError.

    From bytes without a value, ``parse_fast`` and ``parse_exact`` of Kafka's parser return ``MISSING``.
    """

    max_depth: ClassVar[int]
    """How many levels of lists and objects JSON may have."""

    def parse_fast(self, data: bytes) -> Any:
        """Parse JSON; numbers with a point or an exponent are floats, or Decimals if this fails."""

    def parse_exact(self, data: bytes) -> Any:
        """Parse JSON; numbers with a point or an exponent are Decimals, so that no digit is lost."""

    def parse_schemaless(self, data: bytes) -> Any:
        """Parse JSON, and return it as a value without a schema."""

    def without_decimals(self, tree: Any) -> Any:
        """Convert a tree of ``parse_exact`` to a value without a schema, in place."""


class KafkaParser:
    """Read JSON as Kafka does with Jackson.

    Integers of more than 64 bits wrap. If an object has a name twice, the last value counts.
    """

    max_depth: ClassVar[int] = 1000
    """Jackson's limit."""

    def parse_fast(self, data: bytes) -> Any:
        """Parse JSON; numbers with a point or an exponent are floats, or Decimals if this fails."""
        if may_exceed_digit_limit(data):
            return self.parse_exact(data)
        try:
            return _decoded_within(self.max_depth, _FAST, data)
        except PARSE_ERRORS:
            return self.parse_exact(data)

    def parse_exact(self, data: bytes) -> Any:
        """Parse JSON; numbers with a point or an exponent are Decimals."""
        if may_exceed_digit_limit(data):
            return _parse_as_jackson(data)
        try:
            return _decoded_within(self.max_depth, _EXACT, data)
        except PARSE_ERRORS:
            return _parse_as_jackson(data)

    def parse_schemaless(self, data: bytes) -> Any:
        """Parse a value without a schema: integers of 64 bits, and floats."""
        if (
            b"-0" not in data
            and _MAYBE_OVER_64_BITS not in data.translate(_DIGITS)
            and not may_exceed_digit_limit(data)
        ):
            try:
                return _decoded_within(self.max_depth, _FAST, data)
            except PARSE_ERRORS:
                pass
        return self.without_decimals(self.parse_exact(data))

    def without_decimals(self, tree: Any) -> Any:
        """Convert a tree of ``parse_exact`` to a value without a schema; ``MISSING`` becomes None."""
        return None if tree is MISSING else _replace_numbers(tree, _wrapped)


def _wrapped(number: DecimalNumber | int) -> int | float:
    return wrapped_int64(number) if isinstance(number, int) else to_float64(number)


class StrictParser:
    """Read JSON in which an object has each name once; numbers keep their values."""

    max_depth: ClassVar[int] = 500
    """Half of Python's recursion limit, which limits msgspec's decoders in Python 3.11, but not in 3.12."""

    def parse_fast(self, data: bytes) -> Any:
        """Parse JSON with floats, or with Decimals if a number is too large for a float."""
        _require_short_numbers(data)
        try:
            tree = _decoded_within(self.max_depth, _FAST, data)
        except msgspec.ValidationError:
            return self.parse_exact(data)
        except PARSE_ERRORS as error:
            raise _malformed(data, error) from None
        check_names(data, count_names(tree))
        return tree

    def parse_exact(self, data: bytes) -> Any:
        """Parse JSON; numbers with a point or an exponent are Decimals."""
        _require_short_numbers(data)
        try:
            tree = _decoded_within(self.max_depth, _SIGNED, data)
        except PARSE_ERRORS as error:
            raise _malformed(data, error) from None
        check_names(data, count_names(tree))
        return tree

    def parse_schemaless(self, data: bytes) -> Any:
        """Parse a value without a schema; integers of more than 64 bits are ``BigInteger``."""
        tree = self.parse_fast(data)
        # An integer of more than 64 bits has many digits. A number that is too large for a float, which is a
        # Decimal here, has many digits or an exponent.
        digits = data.translate(_DIGITS)
        if _EXPONENT in digits or _MAYBE_OVER_64_BITS in digits:
            return self.without_decimals(tree)
        return tree

    def without_decimals(self, tree: Any) -> Any:
        """Convert a tree of ``parse_exact`` to a value without a schema."""
        return _replace_numbers(tree, _unwrapped)


def _require_short_numbers(data: bytes) -> None:
    if may_exceed_digit_limit(data):
        for found in _STRING_OR_NUMBER.finditer(data):
            if found[1] is not None:
                _require_few_digits(found[1].decode())


def _unwrapped(number: DecimalNumber | int) -> int | float:
    if isinstance(number, int):
        return number if number in _INT64 else BigInteger(number)
    found = to_float64(number)
    if math.isinf(found):
        raise ConnectDataError("expected numbers in the range of a float of 64 bits, found a larger one")
    return found


def _malformed(data: bytes, error: Exception) -> ConnectDataError:
    for found in (error, error.__cause__):  # msgspec wraps the errors of its hooks
        if isinstance(found, ConnectDataError):
            return found
    problem = "nested too deeply" if isinstance(error, RecursionError) else "malformed"
    place = _BYTE.search(str(error))
    where = f" at byte {place[1]}" if place else ""
    return ConnectDataError(f"expected JSON, found {len(data)} bytes that are {problem}{where}")


# Jackson's grammar, for texts that msgspec does not accept

_KEEP_BAD_BYTES: Final = "surrogateescape"
"""The codec's error handler that maps bytes that are not UTF-8 to lone surrogates, which _STRING refuses."""
_WORDS: Final = {"true": True, "false": False, "null": None}
_SIMPLE_ESCAPES: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
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
# `rest` is a group of its own, which always matches, so that it is the last group of a number.
_VALUE: Final = re.compile(
    r"(?P<opening>[\[{])|"
    + _STRING.replace("(", "(?P<string>", 1)  # the same pattern, with a name for its only group
    + r"|(?P<integral>-?[0-9]+)(?P<rest>(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)|(?P<word>true|false|null)"
)
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_PART_OF_NUMBER: Final = re.compile(r"[^ \t\r\n]")
_PART_OF_WORD: Final = re.compile(r"[\w$]")
_ESCAPE_SEQUENCE: Final = re.compile(r'\\(["\\/bfnrt]|u[0-9A-Fa-f]{4})')
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def _parse_as_jackson(data: bytes) -> Any:
    """Parse the first value of the bytes, with Decimals; return MISSING if there is none."""
    text = _decoded(data)
    at = _skip_space(text, 0)
    if at == len(text):
        return MISSING
    return _JacksonParser(text, at).parse()


class _JacksonParser:
    """Parse one JSON value with an explicit stack, so that deep nesting does not recurse."""

    def __init__(self, text: str, at: int) -> None:
        self._text: Final = text
        self._at = at
        self._open: list[Any] = []
        self._names: list[str] = []
        """The name of each open object's next value."""

    def parse(self) -> Any:
        while True:
            value = self._value()
            if value.__class__ in _CONTAINERS and self._open_container(value):
                continue
            if not self._open:
                return value
            value = self._add_and_close(value)
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
            return self._require_end_of_scalar(_WORDS[match[0]], _PART_OF_WORD)
        number = _number(match["integral"], match["rest"] or "")
        return self._require_end_of_scalar(number, _PART_OF_NUMBER)

    def _require_end_of_scalar(self, value: Any, continuation: re.Pattern[str]) -> Any:
        if not self._open and continuation.match(self._text, self._at):
            raise self._malformed()
        return value

    def _open_container(self, container: Any) -> bool:
        """Open a list or object, and return whether it has any items."""
        if len(self._open) >= KafkaParser.max_depth:
            raise ConnectDataError(
                f"expected JSON that is nested {KafkaParser.max_depth} levels deep at most"
            )
        self._at = _skip_space(self._text, self._at)
        if self._text.startswith("]" if container.__class__ is list else "}", self._at):
            self._at += 1
            return False
        self._open.append(container)
        if container.__class__ is dict:
            self._name()
        return True

    def _add_and_close(self, value: Any) -> Any:
        """Add a value to its list or object, and return the outermost list or object that ends here."""
        while self._open:
            container = self._open[-1]
            if container.__class__ is list:
                container.append(value)
            else:
                container[self._names.pop()] = value
            self._at = _skip_space(self._text, self._at)
            found = self._text[self._at : self._at + 1]
            self._at += 1
            if found == ",":
                self._at = _skip_space(self._text, self._at)
                if container.__class__ is dict:
                    self._name()
                break
            if found != ("]" if container.__class__ is list else "}"):
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
        if data.startswith(mark) and len(data) > 3:  # Jackson looks for a mark only in four bytes or more
            return _text(data[len(mark) :], codec)
    return _text(data, _codec(data))


def _text(data: bytes, codec: str) -> str:
    return data.decode(codec, _KEEP_BAD_BYTES if codec == "utf-8" else "replace")


def _codec(data: bytes) -> str:
    """Return the encoding of bytes without a mark, by their zero bytes: JSON begins with ASCII."""
    zeros = tuple(byte == 0 for byte in data[:4])
    return _BY_ZEROS.get(zeros) or _BY_ZEROS.get(zeros[:2]) or "utf-8"


def _skip_space(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]  # it also matches the empty text


def _number(integral: str, rest: str) -> Any:
    if rest:
        return _decimal_of(integral + rest)
    _require_few_digits(integral)
    return int(integral)


def _unescaped(text: str) -> str:
    if "\\" in text:
        text = _ESCAPE_SEQUENCE.sub(_unescape, text)
        if _SURROGATE.search(text):
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return text


def _unescape(match: re.Match[str]) -> str:
    found = match[1]
    return chr(int(found[1:], 16)) if len(found) > 1 else _SIMPLE_ESCAPES.get(found, found)
