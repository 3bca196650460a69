"""Text as Kafka 4.3 reads values from it (``Values.parseString``).

The text is cut into tokens at ``: , { } [ ] "``, unless a backslash stands before one. Blanks around tokens,
and blank tokens even within quotes, fall away; so does what follows a number, an array or a map.

    null true false    only where nothing follows
    number             the narrowest integer; else a float32, a float64 or a decimal, the first that can
    date or time       see java_dates; in quotes, too, within arrays and maps
    [value, ...]       no element schema where the elements' types disagree
    {key: value ...}   the commas may lack

The one thing that a dict cannot hold, the keys ``true`` and ``1`` side by side, stays text.
"""

from __future__ import annotations

import re
from typing import Any, Final

from headerware.connect.data.equality import alike
from headerware.connect.data.schema import BOOLEAN_SCHEMA, STRING_SCHEMA, Schema
from headerware.connect.data.schema_and_value import SchemaAndValue
from headerware.connect.errors import ConnectDataError
from headerware.connect.values.aligning import aligned
from headerware.connect.values.java_numbers import BLANKS
from headerware.connect.values.lenient_scalars import number_of, temporal_of
from headerware.connect.values.shapes import MAX_DEPTH, array_of, map_of, widened

_TOKENS: Final = re.compile(r'[:,{}\[\]"]|(?:[^:,{}\[\]"\\]+|\\.?)+', re.DOTALL)
_CUTS: Final = re.compile(r'[:,{}\[\]"\\]')
_WORDS: Final = {
    "null": None,
    "true": SchemaAndValue(BOOLEAN_SCHEMA, value=True),
    "false": SchemaAndValue(BOOLEAN_SCHEMA, value=False),
}


def parse_lenient(text: str) -> SchemaAndValue | None:
    """Read a value from text as Kafka 4.3 does; None for ``null``.

    Args:
        text: the text, not empty.
    """
    if _CUTS.search(text) is None:
        return _uncut(text)
    try:
        return _Reader(text).value(0)
    except _TooDeepError:
        return SchemaAndValue(STRING_SCHEMA, text)


def _uncut(text: str) -> SchemaAndValue | None:
    """Read text of one token."""
    token = text.strip(BLANKS)
    if token in _WORDS:
        return _WORDS[token]
    return (_literal(token) if token else None) or SchemaAndValue(STRING_SCHEMA, text)


def _literal(token: str) -> SchemaAndValue | None:
    first = token[0]
    if first.isdecimal() and first < "\U00010000":
        return temporal_of(token) or number_of(token)
    return number_of(token) if first in "+-" else None


class _TooDeepError(Exception):
    """The text is nested deeper than it is read."""


class _Reader:
    """Read a text's tokens from left to right."""

    __slots__ = ("_index", "_text", "_tokens", "_trimmed")

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = _TOKENS.findall(text)
        self._trimmed = [token.strip(BLANKS) for token in self._tokens]
        self._index = 0

    def value(self, depth: int) -> SchemaAndValue | None:
        """Read a value; None for null, and where nothing is left.

        Args:
            depth: in how many arrays and maps it stands.

        Raises:
            ConnectDataError: within an array or map stands what is no value.
        """
        start = self._index
        following = self._peek()
        if following is None:
            return None
        if depth:
            start = self._index
        if following == '"' and depth:
            return self._quoted()
        if following in _WORDS and (depth or self._index + 1 == len(self._tokens)):
            self._index += 1
            return _WORDS[following]
        if following in _CONTAINERS:
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

    def _scalar(self, token: str) -> SchemaAndValue | None:
        """Read a number or a point in time, which may go on for four tokens, for it may hold two colons."""
        first = token[0]
        if not (first.isdecimal() and first < "\U00010000"):
            return number_of(token) if first in "+-" else None
        following = self._tokens[self._index : self._index + 4]
        if len(following) == 4:
            found = temporal_of(token + "".join(following))
            if found is not None:
                self._index += 4
                return found
        return temporal_of(token) or number_of(token)

    def _container(self, opening: str, depth: int) -> SchemaAndValue:
        if depth > MAX_DEPTH:
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
        return temporal_of(content) or SchemaAndValue(STRING_SCHEMA, content)

    def _array(self, depth: int) -> SchemaAndValue:
        values: list[Any] = []
        common = _Common()
        while (following := self._peek()) is not None:
            if following == "]":
                self._index += 1
                return SchemaAndValue(array_of(common.schema), common.align(values))
            if following == ",":
                raise ConnectDataError("expected an element, found a comma")
            found = self.value(depth)
            common.add(found)
            values.append(None if found is None else found.value)
            if self._peek() != "]" and not self._take(","):
                raise ConnectDataError("expected a comma between elements, found something else")
        raise ConnectDataError("expected an array that ends")

    def _map(self, depth: int) -> SchemaAndValue:
        keys, values = _Common(), _Common()
        entries: dict[Any, Any] = {}
        known: dict[Any, Any] = {}
        while (following := self._peek()) is not None:
            if following == "}":
                self._index += 1
                return _map_of(keys, values, entries)
            if following == ",":
                raise ConnectDataError("expected an entry, found a comma")
            key = self.value(depth)
            if key is None or not self._take(":"):
                raise ConnectDataError("expected a key and a colon, found something else")
            value = self.value(depth)
            name = frozen(key.value)
            if not alike(known.setdefault(name, name), name):
                raise ConnectDataError("expected keys that a dict can tell apart, which true and 1 are not")
            entries[name] = None if value is None else value.value
            self._take(",")
            keys.add(key)
            values.add(value)
        raise ConnectDataError("expected a map that ends")

    def _peek(self) -> str | None:
        """Give the next token that is not blank, without the blanks around it, or else the last one."""
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


_CONTAINERS: Final = frozenset("[{")


class _Common:
    """Find the schema of several values; None where they have none in common, or there are only nulls."""

    __slots__ = ("_mixed", "_sealed", "schema")

    def __init__(self) -> None:
        self.schema: Schema | None = None
        self._sealed = False
        self._mixed = False

    def add(self, found: SchemaAndValue | None) -> None:
        """Look at one more value."""
        if found is None or found.schema is None:
            self._mixed = True
        elif self.schema is None and not self._sealed:
            self.schema = found.schema
        elif found.schema is not self.schema and not self._sealed:
            self._mixed = True
            self.schema = None if self.schema is None else widened(self.schema, found.schema)
            self._sealed = self.schema is None

    def align(self, values: list[Any]) -> list[Any]:
        """Give the values as the schema has them."""
        if self.schema is None or not self._mixed:
            return values
        return [aligned(self.schema, value) for value in values]


def _map_of(keys: _Common, values: _Common, entries: dict[Any, Any]) -> SchemaAndValue:
    if keys.schema is None:
        return SchemaAndValue(map_of(None, None), entries)
    made = dict(zip(keys.align(list(entries)), values.align(list(entries.values())), strict=True))
    return SchemaAndValue(map_of(keys.schema, values.schema), made)


class MapKey(dict[Any, Any]):
    """A map that is the key of another one; it must not be changed."""

    def __hash__(self) -> int:  # type: ignore[override]  # unlike a dict's, which may change
        return hash(frozenset(self.items()))


def frozen(value: Any) -> Any:
    """Give a value that can be the key of a map: tuples for lists."""
    if isinstance(value, list):
        return tuple(map(frozen, value))
    if isinstance(value, dict):
        return MapKey({frozen(key): frozen(item) for key, item in value.items()})
    return value
