"""Text as the ``strict`` mode reads arrays and maps from it: all of it or nothing.

    [value, ...]  {key: value, ...}   blanks, tabs and line breaks between tokens; each key once, none null
    "text"                            always a string; a backslash stands before a quote or a backslash
    other values                      as in exact_scalars

All elements have one type, as have the keys and the values of a map. Integers go with floats or decimals
where these hold them exactly; nulls make the type optional. A text that does not agree, or from which no type
can be told, such as ``[]``, stays text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal as DecimalNumber
from typing import Any, Final, NamedTuple, NoReturn

from headerware.connect.data.schema import FLOAT64_SCHEMA, INT64_SCHEMA, STRING_SCHEMA, Schema, SchemaAndValue
from headerware.connect.errors import ConnectDataError
from headerware.connect.values.exact_scalars import DECIMAL_SCHEMA, literal_of
from headerware.connect.values.flat import FlatText
from headerware.connect.values.shapes import MAX_DEPTH, array_of, map_of, optional

_TOKEN: Final = re.compile(
    r"""[ \t\r\n]*(?:
        ([\[\]{},:])
        | "([^"\\]*(?:\\["\\][^"\\]*)*)"
        | ([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z
          | [0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z
          | [^ \t\r\n\[\]{},:"\\]+)
    )""",
    re.VERBOSE,
)
_FLAT: Final = FlatText(r'[^"\\]*+', r'[^ \t\r\n\[\]{},:"\\]++')
_ESCAPED: Final = re.compile(r"\\(.)")
_EXACT_FLOAT64: Final = 1 << 53


class _Array(NamedTuple):
    """What stands in an array."""

    items: list[Any]


class _Map(NamedTuple):
    """What stands in a map: its keys, and its values in the same order."""

    keys: list[Any]
    items: list[Any]


class _RefusedError(Exception):
    """The text is no array or map of which everything is understood."""


def parse_exact(text: str) -> SchemaAndValue | None:
    """Read an array or map, with its schema; None where the text is none, or no schema fits it.

    Args:
        text: the text, which begins with a bracket or a brace.
    """
    try:
        if (flat := _flat(text)) is not None:
            return flat
        node = _parsed(text)
        schema = _schema_of([node])
        return SchemaAndValue(schema, _fit(schema, node))
    except _RefusedError:
        return None


def _flat(text: str) -> SchemaAndValue | None:
    """Read an array or map of one type without others in it, as most are; None for any other."""
    items = _FLAT.items(text)
    if items is None:
        return None
    found = [_string(quoted) if not bare else literal_of(bare) for quoted, bare in items]
    values = [item[1] for item in found if item is not None]
    if text[0] == "[":
        schema = _single(found)
        return None if schema is None else SchemaAndValue(array_of(schema), values)
    of_key, of_value = _single(found[::2]), _single(found[1::2])
    if of_key is None or of_value is None:
        return None
    return SchemaAndValue(map_of(of_key, of_value), _dict(values[::2], values[1::2]))


def _single(found: list[SchemaAndValue | None]) -> Schema | None:
    """Return the schema that several values have; None where they have not just one."""
    schemas = {None if item is None else item[0] for item in found}
    return schemas.pop() if len(schemas) == 1 else None


def _string(quoted: str) -> SchemaAndValue:
    return SchemaAndValue(STRING_SCHEMA, _ESCAPED.sub(r"\1", quoted) if "\\" in quoted else quoted)


def parse_nested(text: str) -> list[Any] | dict[Any, Any]:
    """Read an array or map, even where its items have no type in common.

    Args:
        text: the text.

    Raises:
        ConnectDataError: it is none.
    """
    try:
        node = _parsed(text)
        schema = _schema_or_none(node)
        fitted: list[Any] | dict[Any, Any] = _plain(node) if schema is None else _fit(schema, node)
    except _RefusedError:
        raise ConnectDataError("expected the text of an array or map, found another") from None
    return fitted


def _schema_or_none(node: _Array | _Map) -> Schema | None:
    try:
        return _schema_of([node])
    except _RefusedError:
        return None


def _parsed(text: str) -> _Array | _Map:
    reader = _Reader(text)
    node = reader.item(reader.token(), 0)
    if reader.position != len(text) or not isinstance(node, _Array | _Map):
        _refuse()
    return node


def _refuse() -> NoReturn:
    raise _RefusedError


class _Reader:
    """Read a text's tokens from left to right."""

    __slots__ = ("_text", "position")

    def __init__(self, text: str) -> None:
        self._text = text
        self.position = 0

    def token(self) -> re.Match[str]:
        """Return the next token: a delimiter, the inside of quotes, or another text."""
        match = _TOKEN.match(self._text, self.position)
        if match is None:
            _refuse()
        self.position = match.end()
        return match

    def item(self, token: re.Match[str], depth: int) -> _Array | _Map | SchemaAndValue:
        """Read the value that begins with a token."""
        delimiter, quoted, word = token.groups()
        if quoted is not None:
            return _string(quoted)
        if word is not None:
            return literal_of(word) or _refuse()
        if depth == MAX_DEPTH:
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
        schema = array_of(_schema_of(_together(node.items for node in present)))
    elif kind is _Map:
        keys = _together(node.keys for node in present)
        if not all(type(key) is SchemaAndValue and key.schema is not None for key in keys):
            _refuse()
        schema = map_of(_schema_of(keys), _schema_of(_together(node.items for node in present)))
    else:
        schema = _common({node.schema for node in present})
    return schema if len(present) == len(nodes) else optional(schema)


def _common(schemas: set[Schema]) -> Schema:
    if len(schemas) == 1:
        return schemas.pop()
    if len(schemas) == 2 and INT64_SCHEMA in schemas:
        for wider in (FLOAT64_SCHEMA, DECIMAL_SCHEMA):
            if wider in schemas:
                return wider
    _refuse()


def _is_null(node: Any) -> bool:
    return type(node) is SchemaAndValue and node.schema is None


def _together(lists: Iterable[list[Any]]) -> list[Any]:
    return [item for items in lists for item in items]


def _fit(schema: Schema, node: Any) -> Any:
    """Return a value as its schema has it."""
    if type(node) is _Array:
        element: Any = schema.value_schema
        return [_fit(element, item) for item in node.items]
    if type(node) is _Map:
        of_key: Any = schema.key_schema
        of_value: Any = schema.value_schema
        keys = [_fit(of_key, key) for key in node.keys]
        return _dict(keys, [_fit(of_value, item) for item in node.items])
    value = node.value
    if node.schema is INT64_SCHEMA:
        if schema.type is FLOAT64_SCHEMA.type:
            return float(value) if abs(value) <= _EXACT_FLOAT64 else _refuse()
        if schema.name is not None:
            return DecimalNumber(value)
    return value


def _plain(node: Any) -> Any:
    """Return a value without a schema."""
    if type(node) is _Array:
        return [_plain(item) for item in node.items]
    if type(node) is _Map:
        return _dict([_plain(key) for key in node.keys], [_plain(item) for item in node.items])
    return node.value


def _dict(keys: list[Any], values: list[Any]) -> dict[Any, Any]:
    if any(isinstance(key, list | dict) for key in keys):
        _refuse()
    made = dict(zip(keys, values, strict=True))
    if len(made) != len(keys):
        _refuse()
    return made
