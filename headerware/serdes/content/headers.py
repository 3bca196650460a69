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
        served: the content types that the serde was given, by name: what states one of them comes back
            to it, whatever the serde itself would state.
    """

    header: str
    served: frozenset[str] = frozenset()


def header_for(context: SerdeContext) -> str:
    """Return the name of the header that holds a part's content type."""
    if isinstance(context, ContentTypeContext):
        return context.header
    return CONTENT_TYPE_HEADERS[context.part]


def spellings(name: str) -> frozenset[str]:
    """Return the names under which a content type is found, for bridges from HTTP keep HTTP's capitals."""
    return frozenset({name, name.title()} if name in CONTENT_TYPE_HEADERS.values() else {name})


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

    __slots__ = ("_charsets", "_codec", "_keeps", "_own", "_served", "name", "names")

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
        self.names: Final = spellings(self.name)
        self._own: Final = own.encode()
        self._keeps: Final = keeps
        self._served: Final = context.served if isinstance(context, ContentTypeContext) else frozenset()
        self._codec: Final = codec
        self._charsets: Final = charsets

    def state(self, headers: Headers) -> Headers:
        """Return headers that state the content type once; the very same where they do so already."""
        names, own = self.names, self._own
        if not own:
            return headers
        found = 0
        value: bytes | None = None
        for pair in headers:
            if pair[0] in names:
                found += 1
                value = pair[1]
        if not found:
            return headers.append((self.name, own))
        if found == 1 and (value == own or self._fits(value)):
            return headers
        return headers.keep(lambda name: name not in names).append((self.name, own))

    def stated(self, headers: Headers) -> bytes | None:
        """Return the content type that headers state; None where there is none, or a null."""
        return last_stated(headers, self.names)

    def codec(self, headers: Headers) -> str:
        """Return Python's codec for the charset that the headers state, or that of the serde.

        Raises:
            SerdeError: the charset is none of those that are read here.
        """
        value = last_stated(headers, self.names)
        read = None if value is None or value == self._own else _read(value)
        return self._codec if read is None or read.charset is None else codec_of(read.charset)

    def _fits(self, value: bytes | None) -> bool:
        """Return whether a content type that the application states holds for what the serde writes."""
        if self._keeps is None:
            return value is not None
        read = _read(value)
        if read is None or (read.format not in self._keeps and read.essence not in self._served):
            return False
        if read.charset is None or not self._charsets:
            return self._codec == "utf-8" and read.charset in {None, "utf-8"}
        return read.charset in CODECS


def last_stated(headers: Headers, names: frozenset[str]) -> bytes | None:
    """Return the last content type among headers, by the spellings of its name."""
    value: bytes | None
    for name, value in reversed(headers):
        if name in names:
            return value
    return None


def _read(value: bytes | None) -> ContentType | None:
    """Read a content type that nothing depends on: a malformed one is as good as none."""
    try:
        return content_type_of(value)
    except SerdeError:
        return None
