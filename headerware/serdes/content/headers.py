"""Where content types stand in a record, and how a serde states its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headerware.core.errors import ConfigError, SerdeError
from headerware.serdes.content.types import CODECS, codec_of, content_type_of, parse_content_type
from headerware.serdes.serde import SerdeContext

if TYPE_CHECKING:
    from headerware.core.headers import Headers
    from headerware.serdes.content.types import ContentType

CONTENT_TYPE_HEADERS: Final = {"value": "content-type", "key": "key-content-type"}
"""The header that holds the content type of each part of a record."""


class ContentTypeContext(SerdeContext, frozen=True, kw_only=True):
    """What a serde that holds other serdes tells them of their surroundings.

    Args:
        header: the name of the header that holds the content type.
    """

    header: str


def header_for(context: SerdeContext) -> str:
    """Give the name of the header that holds a part's content type."""
    if isinstance(context, ContentTypeContext):
        return context.header
    return CONTENT_TYPE_HEADERS[context.part]


def require_content_type(text: str | None, *, path: str = "content_type") -> None:
    """Refuse an option that is no content type; None and nothing pass.

    Raises:
        ConfigError: what was expected.
    """
    if not text:
        return
    try:
        parse_content_type(text)
    except SerdeError as error:
        raise ConfigError(error.message, path=path) from None


class ContentTypeHeader:
    """One serde's content type: what it states, and what it finds.

    Args:
        context: tells the part, and so the header.
        own: the content type that the serde states; empty for none.
        keeps: the formats that an application's own content type may stand for; None among them is any
            that is not known. None keeps whatever stands there.
        codec: Python's codec for text whose charset is not stated.
        charsets: whether the serde writes in the charset that an application states.
    """

    __slots__ = ("_charsets", "_codec", "_keeps", "_own", "name")

    def __init__(
        self,
        context: SerdeContext,
        own: str,
        keeps: frozenset[str | None] | None = frozenset(),
        *,
        codec: str = "utf-8",
        charsets: bool = False,
    ) -> None:
        self.name: Final = header_for(context)
        self._own: Final = own.encode()
        self._keeps: Final = keeps
        self._codec: Final = codec
        self._charsets: Final = charsets

    def state(self, headers: Headers) -> Headers:
        """Give headers that state the content type once; the very same where they do so already."""
        name, own = self.name, self._own
        if not own:
            return headers
        found = 0
        value: bytes | None = None
        for pair in headers:
            if pair[0] == name:
                found += 1
                value = pair[1]
        if not found:
            return headers.append((name, own))
        return headers if found == 1 and (value == own or self._fits(value)) else headers.put(name, own)

    def codec(self, headers: Headers) -> str:
        """Give Python's codec for the charset that the headers state, or that of the serde.

        Raises:
            SerdeError: the charset is none of those that are read here.
        """
        name = self.name
        for pair in reversed(headers):
            if pair[0] == name:
                read = None if pair[1] == self._own else _read(pair[1])
                return self._codec if read is None or read.charset is None else codec_of(read.charset)
        return self._codec

    def _fits(self, value: bytes | None) -> bool:
        """Whether a content type that the application states holds for what the serde writes."""
        if self._keeps is None:
            return value is not None
        read = _read(value)
        if read is None or read.format not in self._keeps:
            return False
        if read.charset is None or not self._charsets:
            return self._codec == "utf-8" and read.charset in {None, "utf-8"}
        return read.charset in CODECS


def _read(value: bytes | None) -> ContentType | None:
    """Read a content type that nothing depends on: a malformed one is as good as none."""
    try:
        return content_type_of(value)
    except SerdeError:
        return None
