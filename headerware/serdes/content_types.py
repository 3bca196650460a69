"""Content types (RFC 9110): their syntax, the formats that they stand for, and the headers that state them.

A format is a word such as ``json``. Several content types may stand for a format: its aliases, and types with
its structured suffix (RFC 6838), such as ``application/vnd.orders+json``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from headerware.core.bounded_cache import BoundedCache
from headerware.core.errors import ConfigError, SerdeError
from headerware.serdes.serde import SerdeContext

if TYPE_CHECKING:
    from headerware.core.headers import Headers

FORMATS: Final = {
    "application/json": "json",
    "application/x-json": "json",
    "text/json": "json",
    "text/x-json": "json",
    "application/msgpack": "msgpack",
    "application/vnd.msgpack": "msgpack",
    "application/x-msgpack": "msgpack",
    "application/cbor": "cbor",
    "application/avro-binary": "avro",
    "application/avro": "avro",
    "application/vnd.apache.avro": "avro",
    "avro/binary": "avro",
    "application/protobuf": "protobuf",
    "application/vnd.google.protobuf": "protobuf",
    "application/x-google-protobuf": "protobuf",
    "application/x-protobuf": "protobuf",
    "text/plain": "text",
    "application/octet-stream": "bytes",
}
"""The format that each content type stands for. The first content type of a format is written."""

WRITTEN: Final = {form: essence for essence, form in reversed(FORMATS.items())}
"""The content type that is written for each format."""

_SUFFIXES: Final = {form: form for form in ("avro", "cbor", "json", "msgpack", "protobuf")}
CODECS: Final = {
    **dict.fromkeys(("utf-8", "utf8"), "utf-8"),
    **dict.fromkeys(("us-ascii", "ascii"), "ascii"),
    **dict.fromkeys(("iso-8859-1", "latin-1", "latin1"), "iso8859-1"),
    **{f"iso-8859-{part}": f"iso8859-{part}" for part in (*range(2, 12), 13, 14, 15, 16)},
    **{f"windows-{page}": f"cp{page}" for page in range(1250, 1259)},
    **{name: name for name in ("utf-16", "utf-16be", "utf-16le", "utf-32", "utf-32be", "utf-32le")},
    **{name: name for name in ("big5", "euc-jp", "euc-kr", "gb18030", "gbk", "koi8-r", "koi8-u")},
    **dict.fromkeys(("shift_jis", "shift-jis"), "shift_jis"),
}
"""Python's codec for each supported charset.

Records choose the charset, so no others are allowed: some of Python's codecs, such as punycode, take
quadratic time, and Python remembers each unknown name for ever.
"""

_CONTENT_TYPE_HEADERS: Final = {"value": "content-type", "key": "key-content-type"}
"""The header that holds the content type of each part of a record."""

_MAX_BYTES: Final = 1024
_MAX_CACHED_BYTES: Final = 128
_MAX_CACHED: Final = 256
_WORD: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_ESSENCE: Final = re.compile(rf"[ \t]*({_WORD}/{_WORD})[ \t]*")
_QUOTED: Final = r'"((?:[^"\\\x00-\x08\x0a-\x1f\x7f]|\\[\t -~\x80-\U0010ffff])*)"'
_PARAMETER: Final = re.compile(rf";[ \t]*(?:({_WORD})=(?:({_WORD})|{_QUOTED}))?[ \t]*")
_ESCAPED: Final = re.compile(r"\\(.)")


class ContentType(msgspec.Struct, frozen=True):
    """Hold a parsed content type.

    Args:
        essence: type and subtype in lower case, such as ``application/json``.
        parameters: the parameters by name in lower case, with values as they were written.
        format: the format of the content type, such as ``json``; None if it is unknown.
        charset: the ``charset`` parameter in lower case, or None.
    """

    essence: str
    parameters: Mapping[str, str]
    format: str | None
    charset: str | None

    def choose(self, table: Mapping[str, Any]) -> Any:
        """Return a table's entry for this content type, or else for its format, or else None."""
        found = table.get(self.essence)
        return table.get(self.format) if found is None and self.format is not None else found


def parse_content_type(text: str) -> ContentType:
    """Read a content type with its parameters (RFC 9110, 8.3.1).

    Raises:
        SerdeError: the text is malformed, too long, or has a parameter twice.
    """
    if len(text) > _MAX_BYTES:
        raise SerdeError(f"expected a content type of at most {_MAX_BYTES} characters, found {len(text)}")
    found = _ESSENCE.match(text)
    if found is None:
        raise SerdeError(
            f"expected a content type such as application/json, found {len(text)} other characters"
        )
    essence, parameters = found[1].lower(), _parameters(text, found.end())
    charset = parameters.get("charset")
    return ContentType(
        essence,
        MappingProxyType(parameters),
        _format_of(essence),
        None if charset is None else charset.lower(),
    )


def content_type_of(value: bytes | None) -> ContentType:
    """Read the content type in a header's value; short ones are cached."""
    return _known[value]


def _read_value(value: bytes | None) -> ContentType:
    if value is None:
        raise SerdeError("expected a content type, found a null header")
    try:
        return parse_content_type(value.decode())
    except UnicodeDecodeError:
        raise SerdeError(f"expected a content type, found {len(value)} bytes that are not UTF-8") from None


def codec_of(charset: str) -> str:
    codec = CODECS.get(charset.lower())
    if codec is None:
        raise SerdeError("expected a charset such as utf-8 or iso-8859-1, found an unsupported one")
    return codec


def _is_long(value: bytes | None, _: object) -> bool:
    """Return whether a content type is too long to be cached: a flood of them must not displace others."""
    return value is None or len(value) > _MAX_CACHED_BYTES


_known: Final[BoundedCache[bytes | None, ContentType]] = BoundedCache(_MAX_CACHED, _read_value, cost=_is_long)


def _parameters(text: str, at: int) -> dict[str, str]:
    parameters: dict[str, str] = {}
    while at < len(text):
        found = _PARAMETER.match(text, at)
        if found is None:
            raise SerdeError(f"expected a content type's parameter at character {at}, found something else")
        at = found.end()
        if found[1] is None:  # nothing between two semicolons, or after the last
            continue
        name = found[1].lower()
        if name in parameters:
            raise SerdeError(
                f"expected each parameter of a content type once, found a second at character {at}"
            )
        parameters[name] = _ESCAPED.sub(r"\1", found[3]) if found[2] is None else found[2]
    return parameters


def _format_of(essence: str) -> str | None:
    known = FORMATS.get(essence)
    if known is not None:
        return known
    _, plus, suffix = essence.rpartition("+")
    if plus:
        return _SUFFIXES.get(suffix)
    return "text" if essence.startswith("text/") else None


class ContentTypeContext(SerdeContext, frozen=True, kw_only=True):
    """The context that a serde passes to the serdes within it."""

    header: str
    """The name of the header that holds the content type."""
    served: frozenset[str] = frozenset()
    """The content types that choose this serde; a record that states one of them keeps it."""


def header_for(context: SerdeContext) -> str:
    """Return the name of the header that holds a part's content type."""
    if isinstance(context, ContentTypeContext):
        return context.header
    return _CONTENT_TYPE_HEADERS[context.part]


def spellings(name: str) -> frozenset[str]:
    """Return the spellings of a content type's header: bridges from HTTP keep the capitals of HTTP."""
    return frozenset({name, name.title()} if name in _CONTENT_TYPE_HEADERS.values() else {name})


def require_content_type(text: str | None, *, path: str = "content_type") -> None:
    """Raise ConfigError for an option that is not a content type; None and empty text pass."""
    if not text:
        return
    try:
        parse_content_type(text)
    except SerdeError as error:
        raise ConfigError(error.message, path=path) from None


class ContentTypeHeader:
    """The content type that a serde states, and the content types that it accepts from applications.

    ``own`` is the content type that the serde states; empty for none. An application's own content type stays
    if its format is in ``keeps``, where None stands for an unknown format; if ``keeps`` is None, all stay.
    ``codec`` is for text whose charset is not stated. ``charsets`` says whether the serde writes in the
    charset that an application states.
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
        """Return headers that state the content type once; the same object if nothing has to change."""
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
        """Return the content type that headers state, or None if there is none or it is null."""
        return last_stated(headers, self.names)

    def of_others(self, headers: Headers) -> str:
        """Return advice for the end of an error, if headers state the content type of another serde."""
        value = self.stated(headers)
        read = _read(value)
        if value is None or read is None or value == self._own or self._fits(value):
            return ""
        return (
            f"; its {self.name} is {read.essence!r}: use the serde that wrote it, or polyglot, which reads "
            "by content type"
        )

    def codec(self, headers: Headers) -> str:
        """Return Python's codec for the charset that the headers state, or the serde's own."""
        value = last_stated(headers, self.names)
        read = None if value is None or value == self._own else _read(value)
        return self._codec if read is None or read.charset is None else codec_of(read.charset)

    def _fits(self, value: bytes | None) -> bool:
        """Return whether a content type that the application states describes the serde's bytes."""
        if self._keeps is None:
            return value is not None
        read = _read(value)
        if read is None or (read.format not in self._keeps and read.essence not in self._served):
            return False
        if read.charset is None or not self._charsets:
            return self._codec == "utf-8" and read.charset in {None, "utf-8"}
        return read.charset in CODECS


def last_stated(headers: Headers, names: frozenset[str]) -> bytes | None:
    """Return the last content type among headers, under any spelling of its name."""
    value: bytes | None
    for name, value in reversed(headers):
        if name in names:
            return value
    return None


def _read(value: bytes | None) -> ContentType | None:
    """Read a content type, or return None for a malformed one."""
    try:
        return content_type_of(value)
    except SerdeError:
        return None
