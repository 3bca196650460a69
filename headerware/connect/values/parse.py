"""Read values from text (KIP-145's ``Values.parseString``), in two modes.

``strict`` reads a text as another value only if the complete text is one, as ``convert_to_string`` writes it:

    null true false
    integer                   an int64; beyond 64 bits, a decimal without a fraction
    2.5  1.0E7                a float64, with exactly the digits that Java writes
    date, time or timestamp   2017-05-21   16:31:05.387Z   2017-05-21T16:31:05.387Z
    [value, ...]              blanks, tabs and line breaks may stand between tokens
    {key: value, ...}         each key once, and none null
    "text"                    within arrays and maps; a backslash stands before a quote or a backslash

All elements have one type, and so have the keys and the values of a map. Integers may be mixed with floats or
decimals that hold them exactly; nulls make the type optional. A text whose items have no common type, or that
has no items, such as ``[]``, stays text.

``kafka_4_3`` reads what Apache Kafka 4.3 reads. The text is split into tokens at ``: , { } [ ] "``, unless a
backslash precedes one. Blanks around tokens, and blank tokens even within quotes, are dropped; so is the text
after a number, an array or a map.

    null true false           only if nothing follows
    number                    the narrowest integer; else the first of float32, float64, decimal that holds it
    date, time or timestamp   as Java's SimpleDateFormat reads them; in quotes, too, within arrays and maps
    [value, ...]              no element schema if the types of the elements disagree
    {key: value ...}          the commas may be missing

A map with both of the keys ``true`` and ``1`` stays text, because a dict cannot hold them.

In both modes the first character decides most cases, because most texts are plain text. One regular
expression splits the arrays and maps that contain no others.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from decimal import Decimal as DecimalNumber
from functools import lru_cache
from typing import Any, Final, NamedTuple, NoReturn

from headerware.connect.data.equality import alike
from headerware.connect.data.logical import TIME_TYPES, Date, Decimal, Time, Timestamp
from headerware.connect.data.numbers import Float32, Int8, Int16, Int32
from headerware.connect.data.schema import (
    BOOLEAN_SCHEMA,
    FLOAT32_SCHEMA,
    FLOAT64_SCHEMA,
    INT8_SCHEMA,
    INT16_SCHEMA,
    INT32_SCHEMA,
    INT64_SCHEMA,
    NULL,
    NUMBER_CLASSES,
    STRING_SCHEMA,
    TIMESTAMP,
    Schema,
    SchemaAndValue,
    Type,
)
from headerware.connect.data.times import from_epoch_ms, is_time
from headerware.connect.errors import ConnectDataError
from headerware.connect.java.date_patterns import parse_pattern
from headerware.connect.java.lenient_dates import lenient_reader
from headerware.connect.java.numbers import BLANKS, decimal_or_none, float32_of_decimal, to_float64
from headerware.connect.java.text import float64_text
from headerware.connect.modes import KAFKA_4_3, STRICT, Mode, require_mode

_MAX_DEPTH: Final = 100
"""How deep arrays and maps may be nested in a text; a text that goes deeper stays text."""
_KEPT: Final = 256
"""The number of cached schemas; a stream has few, and a flood of them must not fill the memory."""
# SchemaAndValue(...) calls this; to call it directly is faster.
_new: Final = tuple.__new__


def parse_string(text: str | None, *, mode: Mode = "strict") -> SchemaAndValue | None:
    """Read a value from text, with its schema.

    Args:
        text: the text; None gives null without a schema.
        mode: ``strict`` reads the text as another value only if the complete text is one value, and writing
            this value gives the same text, apart from blanks in arrays and maps, and integers among floats.
            ``kafka_4_3`` reads what Apache Kafka 4.3 reads.

    Returns:
        The schema and the value. For the text ``null``, a null without a schema in ``strict``, and None in
        ``kafka_4_3``.
    """
    if not text:
        return NULL if text is None else SchemaAndValue(STRING_SCHEMA, text)
    if mode not in _READERS:
        require_mode(mode)
    read = _READERS[mode].get(text[0])
    if read is None:
        return _new(SchemaAndValue, (STRING_SCHEMA, text))
    return read(text)


# What both modes share


@lru_cache(_KEPT)
def _array_of(element: Schema | None) -> Schema:
    return Schema(Type.ARRAY, value_schema=element)


@lru_cache(_KEPT)
def _map_of(key: Schema | None, value: Schema | None) -> Schema:
    return Schema(Type.MAP, key_schema=key, value_schema=value)


@lru_cache(_KEPT)
def decimal_of(scale: int) -> Schema:
    """Return the schema of decimals of a scale, one object for equal ones."""
    return Decimal.schema(scale)


class _FlatText:
    """Split the texts of arrays and maps of words, numbers and strings in quotes."""

    __slots__ = ("_array", "_items", "_map")

    def __init__(self, quoted: str, bare: str) -> None:
        blanks = r"[ \t\r\n]*+"
        item = rf'{blanks}(?:"{quoted}"|{bare}){blanks}'
        self._array: Final = re.compile(rf"\[(?:{item},)*+{item}\]")
        self._map: Final = re.compile(rf"\{{(?:{item}:{item},)*+{item}:{item}\}}")
        self._items: Final = re.compile(rf'"([^"]*)"|({bare})')

    def items(self, text: str) -> list[tuple[str, str]] | None:
        """Return the elements of an array, or the keys and values of a map in turn; None for another text.

        Each item is a pair: the text in quotes and an empty text, or an empty text and the bare text.
        """
        pattern = self._array if text[0] == "[" else self._map
        if pattern.fullmatch(text) is None:
            return None
        found: list[tuple[str, str]] = self._items.findall(text)
        return found


_DAY: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK: Final = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]\.[0-9]{3}Z"
_TIMES: Final = {
    len("2017-05-21"): (Date.SCHEMA, re.compile(_DAY), "", "T00:00:00Z"),
    len("16:31:05.387Z"): (Time.SCHEMA, re.compile(_CLOCK), "1970-01-01T", ""),
    len("2017-05-21T16:31:05.387Z"): (Timestamp.SCHEMA, re.compile(f"{_DAY}T{_CLOCK}"), "", ""),
}
"""By length: the schema, the pattern, and the texts before and after that complete it to a timestamp."""


def _time(text: str) -> SchemaAndValue | None:
    """Read a date, a time or a timestamp that is written exactly as Connect writes it."""
    known = _TIMES.get(len(text))
    if known is None:
        return None
    schema, pattern, before, after = known
    if pattern.fullmatch(text) is None:
        return None
    try:
        return SchemaAndValue(schema, datetime.fromisoformat(f"{before}{text}{after}"))
    except ValueError:
        return None


# The strict mode

_STRICT_WORDS: Final = {
    "null": NULL,
    "true": SchemaAndValue(BOOLEAN_SCHEMA, value=True),
    "false": SchemaAndValue(BOOLEAN_SCHEMA, value=False),
}
# Longer integers stay text, because computing with millions of digits takes minutes.
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,9999}")
_FLOAT: Final = re.compile(r"-?[0-9]{1,7}\.[0-9]{1,20}(?:E-?[1-9][0-9]{0,2})?")
_BIG_INTEGER_SCHEMA: Final = decimal_of(0)
_STRICT_TOKEN: Final = re.compile(
    r"""[ \t\r\n]*(?:
        ([\[\]{},:])
        | "([^"\\]*(?:\\["\\][^"\\]*)*)"
        | ([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z
          | [0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z
          | [^ \t\r\n\[\]{},:"\\]+)
    )""",
    re.VERBOSE,
)
_STRICT_FLAT: Final = _FlatText(r'[^"\\]*+', r'[^ \t\r\n\[\]{},:"\\]++')
_ESCAPED: Final = re.compile(r"\\(.)")
_EXACT_FLOAT64: Final = 1 << 53


def _strict_scalar_or_text(text: str) -> SchemaAndValue:
    return _strict_scalar(text) or SchemaAndValue(STRING_SCHEMA, text)


def _strict_scalar(text: str) -> SchemaAndValue | None:
    if len(text) < 19 and text.isascii() and text.isdecimal():
        return SchemaAndValue(INT64_SCHEMA, int(text)) if text[0] != "0" or text == "0" else None
    if text in _STRICT_WORDS:
        return _STRICT_WORDS[text]
    return _time(text) or _strict_number(text)


def _strict_number(text: str) -> SchemaAndValue | None:
    if _INTEGER.fullmatch(text) is not None:
        number = DecimalNumber(text)
        if -(1 << 63) <= number < 1 << 63:
            return SchemaAndValue(INT64_SCHEMA, int(number))
        return SchemaAndValue(_BIG_INTEGER_SCHEMA, number)
    if _FLOAT.fullmatch(text) is not None and float64_text(value := float(text)) == text:
        return SchemaAndValue(FLOAT64_SCHEMA, value)
    return None


def _strict_string(quoted: str) -> SchemaAndValue:
    return SchemaAndValue(STRING_SCHEMA, _ESCAPED.sub(r"\1", quoted) if "\\" in quoted else quoted)


class _Array(NamedTuple):
    items: list[Any]


class _Map(NamedTuple):
    keys: list[Any]
    items: list[Any]


class _RefusedError(Exception):
    """The text is not an array or map that can be read completely."""


def _refuse() -> NoReturn:
    raise _RefusedError


def _strict_nested_or_text(text: str) -> SchemaAndValue:
    if (flat := _strict_flat(text)) is not None:
        return flat
    try:
        node = _strict_node(text)
        schema = _schema_of([node])
        return SchemaAndValue(schema, _fit(schema, node))
    except _RefusedError:
        return SchemaAndValue(STRING_SCHEMA, text)


def parse_nested(text: str) -> list[Any] | dict[Any, Any]:
    """Read an array or map as ``strict`` does, even if its items have no type in common."""
    try:
        node = _strict_node(text)
        try:
            fitted: list[Any] | dict[Any, Any] = _fit(_schema_of([node]), node)
        except _RefusedError:
            fitted = _without_schema(node)
    except _RefusedError:
        raise ConnectDataError("expected the text of an array or map, found other text") from None
    return fitted


def _strict_flat(text: str) -> SchemaAndValue | None:
    """Read an array or map of one type without others in it; return None for any other text."""
    items = _STRICT_FLAT.items(text)
    if items is None:
        return None
    found = [_strict_string(quoted) if not bare else _strict_scalar(bare) for quoted, bare in items]
    values = [item[1] for item in found if item is not None]
    if text[0] == "[":
        schema = _single(found)
        return None if schema is None else SchemaAndValue(_array_of(schema), values)
    of_key, of_value = _single(found[::2]), _single(found[1::2])
    if of_key is None or of_value is None:
        return None
    entries = dict(zip(values[::2], values[1::2], strict=True))
    return SchemaAndValue(_map_of(of_key, of_value), entries) if len(entries) * 2 == len(values) else None


def _single(found: list[SchemaAndValue | None]) -> Schema | None:
    """Return the schema that all values share; None if they have several or none."""
    schemas = {None if item is None else item[0] for item in found}
    return schemas.pop() if len(schemas) == 1 else None


def _strict_node(text: str) -> _Array | _Map:
    reader = _StrictReader(text)
    node = reader.item(reader.token(), 0)
    if reader.position != len(text) or not isinstance(node, _Array | _Map):
        _refuse()
    return node


class _StrictReader:
    """Read the tokens of a text from left to right."""

    __slots__ = ("_text", "position")

    def __init__(self, text: str) -> None:
        self._text = text
        self.position = 0

    def token(self) -> re.Match[str]:
        """Return the next token: a delimiter, the inside of quotes, or another text."""
        match = _STRICT_TOKEN.match(self._text, self.position)
        if match is None:
            _refuse()
        self.position = match.end()
        return match

    def item(self, token: re.Match[str], depth: int) -> _Array | _Map | SchemaAndValue:
        """Read the value that begins with a token."""
        delimiter, quoted, word = token.groups()
        if quoted is not None:
            return _strict_string(quoted)
        if word is not None:
            return _strict_scalar(word) or _refuse()
        if depth == _MAX_DEPTH:
            _refuse()
        if delimiter == "[":
            return self._array(depth + 1)
        return self._map(depth + 1) if delimiter == "{" else _refuse()

    def _array(self, depth: int) -> _Array:
        items: list[Any] = []
        token = self.token()
        if token[1] == "]":
            return _Array(items)
        while True:
            items.append(self.item(token, depth))
            if not self._goes_on("]"):
                return _Array(items)
            token = self.token()

    def _map(self, depth: int) -> _Map:
        made = _Map([], [])
        token = self.token()
        if token[1] == "}":
            return made
        while True:
            made.keys.append(self.item(token, depth))
            if self.token()[1] != ":":
                _refuse()
            made.items.append(self.item(self.token(), depth))
            if not self._goes_on("}"):
                return made
            token = self.token()

    def _goes_on(self, end: str) -> bool:
        delimiter = self.token()[1]
        if delimiter == ",":
            return True
        return False if delimiter == end else _refuse()


def _schema_of(nodes: list[Any]) -> Schema:
    """Return the schema that fits all of several values; nulls among them make it optional."""
    present = [node for node in nodes if not _is_null(node)]
    kinds = set(map(type, present))
    if len(kinds) != 1:
        _refuse()
    kind = kinds.pop()
    if kind is _Array:
        schema = _array_of(_schema_of(_together(node.items for node in present)))
    elif kind is _Map:
        keys = _together(node.keys for node in present)
        if not all(type(key) is SchemaAndValue and key.schema is not None for key in keys):
            _refuse()
        schema = _map_of(_schema_of(keys), _schema_of(_together(node.items for node in present)))
    else:
        schema = _exactly_common({node.schema for node in present})
    return schema if len(present) == len(nodes) else _optional(schema)


def _exactly_common(schemas: set[Schema]) -> Schema:
    if len(schemas) == 1:
        return schemas.pop()
    if len(schemas) == 2 and INT64_SCHEMA in schemas:
        for wider in (FLOAT64_SCHEMA, _BIG_INTEGER_SCHEMA):
            if wider in schemas:
                return wider
    _refuse()


@lru_cache(_KEPT)
def _optional(schema: Schema) -> Schema:
    nested = schema.type is Type.ARRAY or schema.type is Type.MAP
    return Schema(
        schema.type,
        optional=True,
        name=schema.name,
        version=schema.version,
        parameters=schema.parameters,
        key_schema=schema.key_schema if schema.type is Type.MAP else None,
        value_schema=schema.value_schema if nested else None,
    )


def _is_null(node: Any) -> bool:
    return type(node) is SchemaAndValue and node.schema is None


def _together(lists: Iterable[list[Any]]) -> list[Any]:
    return [item for items in lists for item in items]


def _fit(schema: Schema, node: Any) -> Any:
    """Return the value of a node in the form of the schema."""
    if type(node) is _Array:
        element: Any = schema.value_schema
        return [_fit(element, item) for item in node.items]
    if type(node) is _Map:
        of_key: Any = schema.key_schema
        of_value: Any = schema.value_schema
        keys = [_fit(of_key, key) for key in node.keys]
        return _unique(keys, [_fit(of_value, item) for item in node.items])
    value = node.value
    if node.schema is INT64_SCHEMA:
        if schema.type is FLOAT64_SCHEMA.type:
            return float(value) if abs(value) <= _EXACT_FLOAT64 else _refuse()
        if schema.name is not None:
            return DecimalNumber(value)
    return value


def _without_schema(node: Any) -> Any:
    if type(node) is _Array:
        return [_without_schema(item) for item in node.items]
    if type(node) is _Map:
        return _unique(list(map(_without_schema, node.keys)), list(map(_without_schema, node.items)))
    return node.value


def _unique(keys: list[Any], values: list[Any]) -> dict[Any, Any]:
    if any(isinstance(key, list | dict) for key in keys):
        _refuse()
    made = dict(zip(keys, values, strict=True))
    if len(made) != len(keys):
        _refuse()
    return made


# The kafka_4_3 mode

_Found = SchemaAndValue | None
"""A value with its schema, or None for null."""
_KAFKA_WORDS: Final[dict[str, _Found]] = {**_STRICT_WORDS, "null": None}
_KAFKA_TOKENS: Final = re.compile(r'[:,{}\[\]"]|(?:[^:,{}\[\]"\\]++|\\.?)++', re.DOTALL)
_KAFKA_DELIMITERS: Final = re.compile(r'[:,{}\[\]"\\]')
_KAFKA_FLAT: Final = _FlatText(r'[^"\\:,{}\[\]]*+', r"(?:true|false|null|[+-]?[0-9][0-9.]*+)")
_OPENING: Final = frozenset("[{")
_FRACTION: Final = re.compile(r"[+-]?[0-9]{1,15}\.[0-9]{0,7}[1-9]")
"""A number with a fraction of so few digits that rounding it to 64 bits first gives the same float32."""
_INT8_VALUES: Final = [SchemaAndValue(INT8_SCHEMA, Int8.wrapped(low)) for low in range(256)]
_FLOAT32: Final = struct.Struct(">f")
_GREGORIAN: Final = "1583"
"""From this year on, Java and Python read dates alike; they read all times of day alike."""
_KAFKA_TIMES: Final = {
    length: (schema, mark, lenient_reader(parse_pattern(pattern), datetime.now(UTC)))
    for length, schema, mark, pattern in (
        (len("2017-05-21"), Date.SCHEMA, "-", "yyyy-MM-dd"),
        (len("16:31:05.387Z"), Time.SCHEMA, ":", "HH:mm:ss.SSS'Z'"),
        (len("2017-05-21T16:31:05.387Z"), Timestamp.SCHEMA, "-", "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"),
    )
}
"""By length in UTF-16 units: the schema, a character that every such text has, and the reader of the text."""


def _kafka_word(text: str) -> _Found:
    word = text.strip(BLANKS)
    return _KAFKA_WORDS[word] if word in _KAFKA_WORDS else SchemaAndValue(STRING_SCHEMA, text)


def _kafka_number_or_other(text: str) -> _Found:
    return _usual_scalar(text) or _kafka_value(text)


def _kafka_value(text: str) -> _Found:
    if _KAFKA_DELIMITERS.search(text) is None:
        token = text.strip(BLANKS)
        if token in _KAFKA_WORDS:
            return _KAFKA_WORDS[token]
        return (_kafka_scalar(token) if token else None) or SchemaAndValue(STRING_SCHEMA, text)
    if text[0] in _OPENING and (flat := _kafka_flat(text)) is not None:
        return flat
    try:
        return _KafkaReader(text).value(0)
    except _TooDeepError:
        return SchemaAndValue(STRING_SCHEMA, text)


def _kafka_scalar(token: str) -> _Found:
    """Read a number or a point in time; return None for another token."""
    first = token[0]
    if first.isdecimal() and first < "\U00010000":
        return _usual_scalar(token) or _kafka_time(token) or _kafka_number(token)
    return _kafka_number(token) if first in "+-" else None


def _usual_scalar(token: str) -> _Found:
    """Read dates, times, integers and fractions in their usual forms; return None for any other token."""
    if len(token) < 19 and token.isascii() and token.isdecimal():
        return _narrowest_integer(int(token))
    if _FRACTION.fullmatch(token) is not None:
        (narrow,) = _FLOAT32.unpack(_FLOAT32.pack(float(token)))
        return SchemaAndValue(FLOAT32_SCHEMA, float.__new__(Float32, narrow))
    return _usual_time(token)


def _usual_time(token: str) -> _Found:
    return _time(token) if token > _GREGORIAN or token[2:3] == ":" else None


def _kafka_time(token: str) -> _Found:
    """Read a date, a time or a timestamp; return None for another token."""
    if (usual := _usual_time(token)) is not None:
        return usual
    if "\\" in token:
        token = token.replace("\\:", ":")
    length = len(token)
    if not token.isascii():
        length += sum(char > "\uffff" for char in token)
    if length not in _KAFKA_TIMES:
        return None
    schema, mark, read = _KAFKA_TIMES[length]
    if mark not in token or (moment := read(token)) is None:
        return None
    return SchemaAndValue(schema, from_epoch_ms(moment.epoch_ms))


def _kafka_number(token: str) -> _Found:
    """Read a number in the narrowest type; return None for another token."""
    number = decimal_or_none(token)
    if number is None:
        return None
    whole = _int64_or_none(number)
    if whole is not None:
        return _narrowest_integer(whole)
    exponent = number.as_tuple().exponent
    scale = -exponent if isinstance(exponent, int) else 0
    if scale != 0:
        if math.isfinite(narrow := float32_of_decimal(token)):
            return SchemaAndValue(FLOAT32_SCHEMA, narrow)
        if math.isfinite(wide := to_float64(number)):
            return SchemaAndValue(FLOAT64_SCHEMA, wide)
    return SchemaAndValue(decimal_of(scale), number)


def _int64_or_none(number: DecimalNumber) -> int | None:
    if not number:
        return 0
    if not 0 <= number.adjusted() < 20:
        return None
    whole = int(number)
    return whole if whole == number and -(1 << 63) <= whole < 1 << 63 else None


def _narrowest_integer(number: int) -> SchemaAndValue:
    if -0x80 <= number < 0x80:
        return _INT8_VALUES[number & 0xFF]
    if -0x8000 <= number < 0x8000:
        return SchemaAndValue(INT16_SCHEMA, int.__new__(Int16, number))
    if -0x80000000 <= number < 0x80000000:
        return SchemaAndValue(INT32_SCHEMA, int.__new__(Int32, number))
    return SchemaAndValue(INT64_SCHEMA, number)


def _kafka_flat(text: str) -> _Found:
    """Read an array or map of words, numbers and strings; return None for any other text.

    Unusual texts, for example with backslashes or points in time without quotes, are read token by token.
    """
    items = _KAFKA_FLAT.items(text)
    if items is None:
        return None
    found: list[_Found] = []
    for quoted, bare in items:
        if not bare:
            value = _kafka_string(quoted)
        elif bare in _KAFKA_WORDS:
            found.append(_KAFKA_WORDS[bare])
            continue
        else:
            value = _usual_scalar(bare) or _kafka_number(bare)
        if value is None:
            return None
        found.append(value)
    try:
        return _kafka_array(found) if text[0] == "[" else _kafka_flat_map(found)
    except ConnectDataError:
        return SchemaAndValue(STRING_SCHEMA, text)


def _kafka_string(quoted: str) -> _Found:
    """Return a string or a point in time; None for blanks, which Kafka drops."""
    if quoted and not quoted.strip(BLANKS):
        return None
    if len(quoted) < 10 and quoted.isascii():
        return _new(SchemaAndValue, (STRING_SCHEMA, quoted))
    return _kafka_time(quoted) or SchemaAndValue(STRING_SCHEMA, quoted)


def _kafka_flat_map(found: list[_Found]) -> SchemaAndValue:
    keys = [key for key in found[::2] if key is not None]
    if len(keys) * 2 != len(found):
        raise ConnectDataError("expected a key, found null")
    return _kafka_map(keys, found[1::2])


class _TooDeepError(Exception):
    """The text is nested deeper than the limit."""


class _KafkaReader:
    """Read the tokens of a text from left to right."""

    __slots__ = ("_index", "_text", "_tokens", "_trimmed")

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = _KAFKA_TOKENS.findall(text)
        self._trimmed = [token.strip(BLANKS) for token in self._tokens]
        self._index = 0

    def value(self, depth: int) -> _Found:
        """Read a value within ``depth`` arrays and maps; return None for null, and if nothing is left."""
        start = self._index
        following = self._peek()
        if following is None:
            return None
        if depth:
            start = self._index
        if following == '"' and depth:
            return self._quoted()
        if following in _KAFKA_WORDS and (depth or self._index + 1 == len(self._tokens)):
            self._index += 1
            return _KAFKA_WORDS[following]
        if following in _OPENING:
            try:
                return self._container(following, depth + 1)
            except ConnectDataError:
                self._index = start
        return self._token(depth)

    def _token(self, depth: int) -> SchemaAndValue:
        token, trimmed = self._tokens[self._index], self._trimmed[self._index]
        self._index += 1
        if not trimmed:
            return SchemaAndValue(STRING_SCHEMA, token)
        found = self._scalar(trimmed)
        if found is not None:
            return found
        if depth:
            raise ConnectDataError("expected a value, found something else")
        return SchemaAndValue(STRING_SCHEMA, self._text)

    def _scalar(self, token: str) -> _Found:
        """Read a number, or a point in time, which its two colons split into five tokens."""
        following = self._tokens[self._index : self._index + 4]
        if len(following) == 4 and token[0].isdecimal():
            found = _kafka_time(token + "".join(following))
            if found is not None:
                self._index += 4
                return found
        return _kafka_scalar(token)

    def _container(self, opening: str, depth: int) -> SchemaAndValue:
        if depth > _MAX_DEPTH:
            raise _TooDeepError
        self._index += 1
        return self._array(depth) if opening == "[" else self._map(depth)

    def _quoted(self) -> SchemaAndValue:
        self._index += 1
        parts = []
        while (following := self._peek()) is not None and following != '"':
            parts.append(self._tokens[self._index])
            self._index += 1
        self._index += following is not None
        content = "".join(parts)
        return _kafka_time(content) or SchemaAndValue(STRING_SCHEMA, content)

    def _array(self, depth: int) -> SchemaAndValue:
        found: list[_Found] = []
        while (following := self._peek()) is not None:
            if following == "]":
                self._index += 1
                return _kafka_array(found)
            if following == ",":
                raise ConnectDataError("expected an element, found a comma")
            found.append(self.value(depth))
            if self._peek() != "]" and not self._take(","):
                raise ConnectDataError("expected a comma between elements, found something else")
        raise ConnectDataError("expected an array that ends")

    def _map(self, depth: int) -> SchemaAndValue:
        keys: list[SchemaAndValue] = []
        items: list[_Found] = []
        while (following := self._peek()) is not None:
            if following == "}":
                self._index += 1
                return _kafka_map(keys, items)
            if following == ",":
                raise ConnectDataError("expected an entry, found a comma")
            key = self.value(depth)
            if key is None or not self._take(":"):
                raise ConnectDataError("expected a key and a colon, found something else")
            keys.append(key)
            items.append(self.value(depth))
            self._take(",")
        raise ConnectDataError("expected a map that ends")

    def _peek(self) -> str | None:
        """Return the next token that is not blank, without the blanks around it, or else the last one."""
        trimmed, index = self._trimmed, self._index
        last = len(trimmed) - 1
        while index < last and not trimmed[index]:
            index += 1
        self._index = index
        return trimmed[index] if index <= last else None

    def _take(self, expected: str) -> bool:
        if self._peek() != expected:
            return False
        self._index += 1
        return True


def _kafka_array(found: list[_Found]) -> SchemaAndValue:
    schema, is_exact = _kafka_common(found)
    values = [None if item is None else item[1] for item in found]
    if schema is not None and not is_exact:
        values = [_aligned(schema, value) for value in values]
    return SchemaAndValue(_array_of(schema), values)


def _kafka_map(keys: list[SchemaAndValue], items: list[_Found]) -> SchemaAndValue:
    """Return a map, with schemas if its keys have a common one; the last value of equal keys counts."""
    of_key, keys_are_exact = _kafka_common(keys)
    of_item, items_are_exact = _kafka_common(items)
    plain = of_key is STRING_SCHEMA and keys_are_exact
    names = [key[1] for key in keys] if plain else _names(keys)
    values = [None if item is None else item[1] for item in items]
    made = dict(zip(names, values, strict=True))
    if of_key is None:
        return SchemaAndValue(_map_of(None, None), made)
    if not keys_are_exact:
        made = {_aligned(of_key, name): value for name, value in made.items()}
    if of_item is not None and not items_are_exact:
        made = {name: _aligned(of_item, value) for name, value in made.items()}
    return SchemaAndValue(_map_of(of_key, of_item), made)


def _kafka_common(found: list[SchemaAndValue] | list[_Found]) -> tuple[Schema | None, bool]:
    """Return the common schema of several values, and whether every value has exactly this schema.

    The schema is None if the values have no common schema, or are all null.
    """
    schema: Schema | None = None
    is_exact = True
    for item in found:
        of_item = None if item is None else item[0]
        if of_item is schema and of_item is not None:
            continue
        if of_item is None:
            is_exact = False
        elif schema is None:
            schema = of_item
        else:
            is_exact = False
            schema = _widened(schema, of_item)
            if schema is None:
                break
    return schema, is_exact


_WIDTHS: Final = {kind: width for width, kind in enumerate(NUMBER_CLASSES)}


def _widened(one: Schema, other: Schema) -> Schema | None:
    """Return the schema that Kafka uses for values of both: the wider number, or the last one of a type."""
    if one.type is other.type:
        return other
    if one.type in _WIDTHS and other.type in _WIDTHS:
        return one if _WIDTHS[one.type] > _WIDTHS[other.type] else other
    return None


_NARROWING: Final[dict[Type, Callable[[Any], Any]]] = {
    **NUMBER_CLASSES,
    Type.INT8: Int8.wrapped,
    Type.INT16: Int16.wrapped,
    Type.INT32: Int32.wrapped,
}


def _aligned(schema: Schema, value: Any) -> Any:
    """Return a value in the width of the common schema that Kafka uses for it and its neighbours."""
    if value is None:
        raise ConnectDataError("expected a value, found null among other values")
    number = _NARROWING.get(schema.type)
    if number is None:
        return value
    logical = TIME_TYPES.get(schema.name or "")
    if logical is not None:
        if is_time(value):
            return value
        return logical.to_logical(schema, value if schema.name == TIMESTAMP else Int32.wrapped(value))
    if is_time(value):
        raise ConnectDataError("expected a number, found a point in time")
    return number(value)


def _names(keys: list[SchemaAndValue]) -> list[Any]:
    known: dict[Any, Any] = {}
    names = [_frozen(key.value) for key in keys]
    if not all(alike(known.setdefault(name, name), name) for name in names):
        raise ConnectDataError("expected keys that differ in a dict; true and 1 do not")
    return names


class _MapKey(dict[Any, Any]):
    """A map that is the key of another one; it must not be changed."""

    def __hash__(self) -> int:  # type: ignore[override]  # unlike a dict's, which may change
        return hash(frozenset(self.items()))


def _frozen(value: Any) -> Any:
    """Return a value that can be the key of a map: tuples for lists."""
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    if isinstance(value, dict):
        return _MapKey({_frozen(key): _frozen(item) for key, item in value.items()})
    return value


_Read = Callable[[str], SchemaAndValue | None]
_ASCII_DIGITS: Final = "0123456789"
_READERS: Final[dict[str, dict[str, _Read]]] = {
    STRICT: {
        **dict.fromkeys(_ASCII_DIGITS + "-ntf", _strict_scalar_or_text),
        **dict.fromkeys("[{", _strict_nested_or_text),
    },
    KAFKA_4_3: {
        **dict.fromkeys(BLANKS + "[{+-", _kafka_value),
        # The digits of all scripts, of the basic plane.
        **dict.fromkeys(filter(str.isdecimal, map(chr, range(0x10000))), _kafka_value),
        **dict.fromkeys(_ASCII_DIGITS, _kafka_number_or_other),
        **dict.fromkeys("ntf", _kafka_word),
    },
}
"""By mode: how to read a text that begins with a character."""
