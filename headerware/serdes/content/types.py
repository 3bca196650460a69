"""Content types: read as RFC 9110 writes them, and what format each of them stands for.

A format is a word such as ``json``; several content types may stand for it: its aliases, and those with
its structured suffix (RFC 6838), such as ``application/vnd.orders+json``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from headerware.core.errors import SerdeError

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
"""The format that each content type stands for. The first of a format is its own."""

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
"""Python's codec for each charset that is read.

Only these, for of the others that a record could name some, such as punycode, take quadratic time, and each
name that Python does not know it remembers for ever.
"""

_MAX_BYTES: Final = 1024
_MAX_REMEMBERED_BYTES: Final = 128
_MAX_REMEMBERED: Final = 256
_WORD: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_ESSENCE: Final = re.compile(rf"[ \t]*({_WORD}/{_WORD})[ \t]*")
_QUOTED: Final = r'"((?:[^"\\\x00-\x08\x0a-\x1f\x7f]|\\[\t -~\x80-\U0010ffff])*)"'
_PARAMETER: Final = re.compile(rf";[ \t]*(?:({_WORD})=(?:({_WORD})|{_QUOTED}))?[ \t]*")
_ESCAPED: Final = re.compile(r"\\(.)")


class ContentType(msgspec.Struct, frozen=True):
    """A content type that was read.

    Args:
        essence: type and subtype, in lower case, such as ``application/json``.
        parameters: the parameters by their names in lower case, with values as they were written.
        format: the format that it stands for, such as ``json``; None where that is not known.
        charset: the ``charset`` parameter, in lower case, or None.
    """

    essence: str
    parameters: Mapping[str, str]
    format: str | None
    charset: str | None

    def choose(self, table: Mapping[str, Any]) -> Any:
        """Return what a table has for this very type, or else for its format; None for neither."""
        found = table.get(self.essence)
        return table.get(self.format) if found is None and self.format is not None else found


def parse_content_type(text: str) -> ContentType:
    """Read a content type with its parameters (RFC 9110, 8.3.1).

    Raises:
        SerdeError: it is malformed, too long, or has a parameter twice.
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
    """Read the content type in a header's value; those that come often are remembered.

    Raises:
        SerdeError: it is null or malformed.
    """
    known = _remembered.get(value)
    if known is not None:
        return known
    if value is None:
        raise SerdeError("expected a content type, found a null header")
    try:
        read = parse_content_type(value.decode())
    except UnicodeDecodeError:
        raise SerdeError(f"expected a content type, found {len(value)} bytes that are no UTF-8") from None
    if len(value) <= _MAX_REMEMBERED_BYTES:
        if len(_remembered) >= _MAX_REMEMBERED:
            _remembered.clear()  # a flood of types costs time, but no memory
        _remembered[value] = read
    return read


def codec_of(charset: str) -> str:
    """Return Python's codec for a charset.

    Raises:
        SerdeError: it is none of those that are read here.
    """
    codec = CODECS.get(charset.lower())
    if codec is None:
        raise SerdeError("expected a charset such as utf-8 or iso-8859-1, found one that is not read here")
    return codec


_remembered: Final[dict[bytes | None, ContentType]] = {}


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
