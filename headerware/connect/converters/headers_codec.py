"""Between a record's headers on the wire and Connect's, through a header converter (KIP-145).

Nothing is made before somebody looks at the headers, and a header is decoded when somebody looks at its
value. One that nobody touches leaves with the bytes that it came with, so that a converter that would write
it otherwise changes nothing.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headerware.connect.headers import ConnectHeader, ConnectHeaders, WireHeader
from headerware.core.headers import Headers

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware.connect.converters.base import HeaderConverter
    from headerware.connect.data.schema_and_value import SchemaAndValue


def to_connect(topic: str, headers: Headers, converter: HeaderConverter) -> ConnectHeaders:
    """Give headers as Connect has them.

    Args:
        topic: the record's topic.
        headers: the headers on the wire.
        converter: decodes a header when its schema or value is asked for; what it raises is raised there.
    """
    return _WireHeaders(headers, partial(converter.to_connect_header, topic))


def from_connect(topic: str, headers: ConnectHeaders, converter: HeaderConverter) -> Headers:
    """Give headers as they are on the wire, and freeze Connect's: they have left.

    Args:
        topic: the record's topic.
        headers: Connect's headers.
        converter: encodes the headers that did not come from the wire.

    Raises:
        ConnectError: a header cannot be written.
    """
    headers.freeze()
    if isinstance(headers, _WireHeaders) and not headers.looked_at:
        return headers.wire
    encode = partial(converter.from_connect_header, topic)
    return Headers.trusted((header.key, _encoded(header, encode)) for header in headers)


def _encoded(header: ConnectHeader, encode: Callable[..., bytes | None]) -> bytes | None:
    if isinstance(header, WireHeader):
        return header.raw
    return encode(header.key, header.schema, header.value)


class _WireHeaders(ConnectHeaders):
    """Headers from the wire, of which each becomes a :class:`WireHeader` when somebody looks at any.

    Args:
        wire: the headers on the wire.
        decode: gives the schema and value of a header's name and bytes.
    """

    __slots__ = ("_decode", "looked_at", "wire")

    def __init__(self, wire: Headers, decode: Callable[[str, bytes | None], SchemaAndValue]) -> None:
        # The list of the base class is not made here: it is missing until it is asked for.
        self._frozen = False
        self._decode: Final = decode
        self.wire: Final = wire
        self.looked_at = False

    def __getattr__(self, name: str) -> Any:
        if name != "_headers":
            raise AttributeError(name)
        self._headers = [WireHeader(key, raw, self._decode) for key, raw in self.wire]
        self.looked_at = True
        return self._headers

    def duplicate(self) -> ConnectHeaders:
        """Give a copy that can be changed."""
        return super().duplicate() if self.looked_at else _WireHeaders(self.wire, self._decode)
