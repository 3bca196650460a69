"""SimpleHeaderConverter, Connect's default: header values as text, whose types are inferred (KIP-145)."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from headerware.connect.converters.base import HeaderConverter
from headerware.connect.converters.charsets import utf_8_as_java
from headerware.connect.data.schema import BYTES_SCHEMA, NULL, STRING_SCHEMA, Schema, SchemaAndValue
from headerware.connect.data.struct import Struct
from headerware.connect.errors import ConnectDataError, ConnectError
from headerware.connect.modes import STRICT
from headerware.connect.values import convert_to_string, parse_string
from headerware.connect.values.parse import parse_nested


class SimpleHeaderConverter(HeaderConverter):
    """Write header values as text, and infer their types when they are read.

    See :func:`~headerware.connect.values.parse_string` for the types. The ``strict`` mode reads bytes that
    are not UTF-8 as bytes, and does not write bytes, which would be read back as text. It reads arrays, maps
    and structs whose parts have no common type as plain lists and dicts, without a schema.
    """

    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: Any) -> bytes | None:
        """Return the text of a header's value, in UTF-8.

        Raises:
            ConnectDataError: the value has no text or, in the strict mode, contains bytes.
        """
        del topic, key
        if value is None:
            return None
        strict = self.mode == STRICT
        text = convert_to_string(schema, value, mode=self.mode) or ""
        if strict and _holds_bytes(value):
            raise ConnectDataError(
                "SimpleHeaderConverter would write bytes as Base64, which is read back as text; "
                "set header.converter to ByteArrayConverter, or convert the bytes to text first"
            )
        try:
            return text.encode()
        except UnicodeEncodeError:
            if strict:
                raise ConnectDataError("the text holds half of a surrogate pair, which UTF-8 lacks") from None
            return text.encode("utf-8", "replace")

    def to_connect_header(self, topic: str, key: str, data: bytes | None) -> SchemaAndValue:
        """Return the value of a header's text; bytes that cannot be read stay bytes."""
        del topic, key
        if data is None:
            return NULL
        try:
            text = data.decode() if self.mode == STRICT else utf_8_as_java(data)
            found = parse_string(text, mode=self.mode) or NULL
        except (UnicodeDecodeError, ConnectError, RecursionError):
            return SchemaAndValue(BYTES_SCHEMA, data)
        if self.mode == STRICT and found.schema is STRING_SCHEMA and text.startswith(("[", "{")):
            with suppress(ConnectDataError):
                return SchemaAndValue(None, parse_nested(text))
        return found


def _holds_bytes(value: Any) -> bool:
    if isinstance(value, Struct):
        return any(_holds_bytes(value.get_without_default(field.name)) for field in value.schema.fields)
    if isinstance(value, list | tuple):
        return any(map(_holds_bytes, value))
    if isinstance(value, dict):
        return any(map(_holds_bytes, value)) or any(map(_holds_bytes, value.values()))
    return isinstance(value, bytes | bytearray | memoryview)
