"""Between a record's headers on the wire and Connect's, through a header converter (KIP-145).

A header is decoded when somebody looks at its value. One that nobody touches leaves with the bytes that it
came with, so that a converter that would write it otherwise changes nothing.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from headerware.connect.headers import ConnectHeaders, WireHeader
from headerware.core.headers import Headers

if TYPE_CHECKING:
    from headerware.connect.converters.base import HeaderConverter


def to_connect(topic: str, headers: Headers, converter: HeaderConverter) -> ConnectHeaders:
    """Give headers as Connect has them.

    Args:
        topic: the record's topic.
        headers: the headers on the wire.
        converter: decodes a header when its schema or value is asked for; what it raises is raised there.
    """
    if not headers:
        return ConnectHeaders()
    decode = partial(converter.to_connect_header, topic)
    return ConnectHeaders([WireHeader(key, raw, decode) for key, raw in headers])


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
    if not headers:
        return Headers()
    encode = converter.from_connect_header
    return Headers.trusted(
        (
            header.key,
            header.raw
            if isinstance(header, WireHeader)
            else encode(topic, header.key, header.schema, header.value),
        )
        for header in headers
    )
