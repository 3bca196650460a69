"""Between a record's headers on the wire and Connect's, through a header converter (KIP-145).

Nothing is made before somebody looks at the headers, and a header is decoded when somebody looks at its
value. One that nobody touches leaves with the bytes that it came with, so that a converter that would write
it otherwise changes nothing.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headerware.connect.headers import ConnectHeaders, WireHeader
from headerware.core.headers import Headers

if TYPE_CHECKING:
    from headerware.connect.converters.base import HeaderConverter


def to_connect(topic: str, headers: Headers, converter: HeaderConverter) -> ConnectHeaders:
    """Return headers as Connect has them.

    Args:
        topic: the record's topic.
        headers: the headers on the wire.
        converter: decodes a header when its schema or value is asked for; what it raises is raised there.
    """
    return _WireHeaders(headers, topic, converter)


def from_connect(topic: str, headers: ConnectHeaders, converter: HeaderConverter) -> Headers:
    """Return headers as they are on the wire, and freeze Connect's: they have left.

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
    encode = converter.from_connect_header
    return Headers.trusted(
        [
            (header.key, header.raw)
            if isinstance(header, WireHeader)
            else (header.key, encode(topic, header.key, header.schema, header.value))
            for header in headers
        ]
    )


class _WireHeaders(ConnectHeaders):
    """Headers from the wire, of which each becomes a :class:`WireHeader` when somebody looks at any.

    Args:
        wire: the headers on the wire.
        topic: the record's topic.
        converter: decodes them.
    """

    __slots__ = ("_converter", "_topic", "looked_at", "wire")

    def __init__(self, wire: Headers, topic: str, converter: HeaderConverter) -> None:
        # The list of the base class is not made here: it is missing until it is asked for.
        self._frozen = False
        self._topic: Final = topic
        self._converter: Final = converter
        self.wire: Final[Headers] = wire
        self.looked_at: bool = False

    def __getattr__(self, name: str) -> Any:
        if name != "_headers":
            raise AttributeError(name)
        decode = partial(self._converter.to_connect_header, self._topic)
        self._headers = [WireHeader(key, raw, decode) for key, raw in self.wire]
        self.looked_at = True
        return self._headers

    def duplicate(self) -> ConnectHeaders:
        """Return a copy that can be changed."""
        if self.looked_at:
            return super().duplicate()
        return _WireHeaders(self.wire, self._topic, self._converter)
