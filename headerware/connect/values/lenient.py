"""Text as Kafka 4.3 reads values from it (``Values.parseString``).

The text is cut into tokens at ``: , { } [ ] "``, unless a backslash stands before one. Blanks around tokens,
and blank tokens even within quotes, fall away; so does what follows a number, an array or a map.

    null true false    only where nothing follows
    number             the narrowest integer; else a float32, a float64 or a decimal, the first that can
    date or time       see java.dates.iso; in quotes, too, within arrays and maps
    [value, ...]       no element schema where the elements' types disagree
    {key: value ...}   the commas may lack

The one thing that a dict cannot hold, the keys ``true`` and ``1`` side by side, stays text.
"""

from __future__ import annotations

import re
from typing import Final

from headerware.connect.data.schema import STRING_SCHEMA, SchemaAndValue
from headerware.connect.errors import ConnectDataError
from headerware.connect.java.numbers import BLANKS
from headerware.connect.values.lenient_flat import parse_flat
from headerware.connect.values.lenient_nested import array_value, map_value
from headerware.connect.values.lenient_scalars import WORDS, scalar_of, temporal_of
from headerware.connect.values.shapes import MAX_DEPTH

_TOKENS: Final = re.compile(r'[:,{}\[\]"]|(?:[^:,{}\[\]"\\]++|\\.?)++', re.DOTALL)
_CUTS: Final = re.compile(r'[:,{}\[\]"\\]')
_CONTAINERS: Final = frozenset("[{")


def parse_lenient(text: str) -> SchemaAndValue | None:
    """Read a value from text as Kafka 4.3 does; None for ``null``.

    Args:
        text: the text, not empty.
    """
    if _CUTS.search(text) is None:
        return _uncut(text)
    if text[0] in _CONTAINERS and (flat := parse_flat(text)) is not None:
        return flat
    try:
        return _Reader(text).value(0)
    except _TooDeepError:
        return SchemaAndValue(STRING_SCHEMA, text)


def _uncut(text: str) -> SchemaAndValue | None:
    """Read text of one token."""
    token = text.strip(BLANKS)
    if token in WORDS:
        return WORDS[token]
    return (scalar_of(token) if token else None) or SchemaAndValue(STRING_SCHEMA, text)


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
        if following in WORDS and (depth or self._index + 1 == len(self._tokens)):
            self._index += 1
            return WORDS[following]
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
        following = self._tokens[self._index : self._index + 4]
        if len(following) == 4 and token[0].isdecimal():
            found = temporal_of(token + "".join(following))
            if found is not None:
                self._index += 4
                return found
        return scalar_of(token)

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
        found: list[SchemaAndValue | None] = []
        while (following := self._peek()) is not None:
            if following == "]":
                self._index += 1
                return array_value(found)
            if following == ",":
                raise ConnectDataError("expected an element, found a comma")
            found.append(self.value(depth))
            if self._peek() != "]" and not self._take(","):
                raise ConnectDataError("expected a comma between elements, found something else")
        raise ConnectDataError("expected an array that ends")

    def _map(self, depth: int) -> SchemaAndValue:
        keys: list[SchemaAndValue] = []
        items: list[SchemaAndValue | None] = []
        while (following := self._peek()) is not None:
            if following == "}":
                self._index += 1
                return map_value(keys, items)
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
