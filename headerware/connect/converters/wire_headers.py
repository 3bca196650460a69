"""Convert a record's headers on the wire to Connect's and back, with a header converter (KIP-145).

The headers are created when a transform first reads them, and a header is decoded when its value is first
read. A header that no transform reads or changes keeps its bytes, even if the converter would write others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headerware.connect.data.schema import Schema, SchemaAndValue
from headerware.connect.headers import ConnectHeader, ConnectHeaders
from headerware.core.headers import Headers

if TYPE_CHECKING:
    from headerware.connect.converters.base import HeaderConverter


def to_connect(topic: str, headers: Headers, converter: HeaderConverter) -> ConnectHeaders:
    """Return headers as Connect's headers; each is decoded when its schema or value is first read."""
    return _WireHeaders(headers, topic, converter)


def from_connect(topic: str, headers: ConnectHeaders, converter: HeaderConverter) -> Headers:
    """Return the headers for the wire, and freeze the given headers, because their record leaves."""
    headers.freeze()
    if isinstance(headers, _WireHeaders) and not headers.is_read:
        return headers.wire
    encode = converter.from_connect_header
    return Headers.trusted(
        [
            (header.key, header.raw)
            if isinstance(header, WireHeader)
            else (header.key, encode(topic, header.key, header.schema, header.value))
            for header in headers
        ]
    )


class WireHeader(ConnectHeader):
    """A header from the wire, which is decoded when its schema or value is first read."""

    __slots__ = ("_decode", "_raw")

    def __init__(
        self, key: str, raw: bytes | None, decode: Callable[[str, bytes | None], SchemaAndValue]
    ) -> None:
        # Skip the base class's constructor, to save time; _decoded() sets schema and value.
        self._key = key
        self._raw = raw
        self._decode: Callable[[str, bytes | None], SchemaAndValue] | None = decode

    @property
    def raw(self) -> bytes | None:
        """The bytes on the wire."""
        return self._raw

    @property
    def schema(self) -> Schema | None:
        """The schema of the value."""
        self._decoded()
        return super().schema

    @property
    def value(self) -> Any:
        """The value."""
        self._decoded()
        return self._value

    def rename(self, key: str) -> ConnectHeader:
        """Return a header of another name with the same bytes."""
        if key == self._key:
            return self
        decode = self._decode
        if decode is None:
            renamed = WireHeader(key, self._raw, _none)
            renamed._schema, renamed._value, renamed._decode = self._schema, self._value, None
            return renamed
        return WireHeader(key, self._raw, decode)

    def _decoded(self) -> None:
        # Read once, because another thread may set it to None.
        decode = self._decode
        if decode is not None:
            self._schema, self._value = decode(self._key, self._raw)
            self._decode = None


def _none(_key: str, _raw: bytes | None) -> SchemaAndValue:
    return SchemaAndValue(None, None)


class _WireHeaders(ConnectHeaders):
    """Headers from the wire, which become :class:`WireHeader` when any of them is first read."""

    __slots__ = ("_converter", "_topic", "is_read", "wire")

    def __init__(self, wire: Headers, topic: str, converter: HeaderConverter) -> None:
        # The base class's list is missing until __getattr__ makes it.
        self._frozen = False
        self._topic: Final = topic
        self._converter: Final = converter
        self.wire: Final[Headers] = wire
        self.is_read: bool = False

    def __getattr__(self, name: str) -> Any:
        if name != "_headers":
            raise AttributeError(name)
        decode = partial(self._converter.to_connect_header, self._topic)
        self._headers = [WireHeader(key, raw, decode) for key, raw in self.wire]
        self.is_read = True
        return self._headers

    def duplicate(self) -> ConnectHeaders:
        """Return a copy that can be changed."""
        if self.is_read:
            return super().duplicate()
        return _WireHeaders(self.wire, self._topic, self._converter)
