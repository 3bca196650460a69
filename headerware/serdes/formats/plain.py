"""Plain formats: bytes, text and JSON with the content type in a header; the base of MessagePack and CBOR.

The application's own content type stays if it describes the bytes, such as ``application/vnd.orders+json``
for JSON. Keys have one form only (entries sorted by name), because equal keys must go to the same partition.
All formats are safe for use by several threads at once.
"""

from __future__ import annotations

import json
import math
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

import msgspec

from headerware.core.errors import ConfigError, SerdeError
from headerware.serdes.content_types import (
    CODECS,
    ContentTypeHeader,
    parse_content_type,
    require_content_type,
)
from headerware.serdes.formats.refusals import REFUSALS, cannot_read, cannot_write
from headerware.serdes.serde import Serde, SerdeContext

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headerware.core.headers import Headers

_UTF_8: Final = frozenset({"utf-8", "ascii"})
_BYTES: Final = (bytes, bytearray, memoryview)


class Plain(Serde, frozen=True, kw_only=True):
    """Hold the options that the plain formats have in common.

    Args:
        content_type: the content type to state in place of the format's own; empty for none.

    Raises:
        ConfigError: ``content_type`` is not a content type.
    """

    default_content_type: ClassVar[str] = ""
    """The content type that is stated if the options have none."""

    content_type: str | None = None

    def __post_init__(self) -> None:
        """Check the content type."""
        require_content_type(self.content_type)

    def stated(self) -> str:
        """Return the content type that is stated; empty for none."""
        return self.default_content_type if self.content_type is None else self.content_type

    def keeps(self, *formats: str | None) -> frozenset[str | None]:
        """Return the formats for which an application's content type stays; none if the options set one."""
        return frozenset(formats if self.content_type is None else ())


class Bytes(Plain, frozen=True, kw_only=True):
    """Write and read bytes as they are; every content type that the application states stays.

    Args:
        content_type: the content type to state in place of ``application/octet-stream``; empty for none.
    """

    type: ClassVar[str] = "bytes"
    default_content_type: ClassVar[str] = "application/octet-stream"

    def open(self, context: SerdeContext) -> PlainFunctions:
        """Return the functions for one client."""
        keeps = None if self.content_type is None else self.keeps()
        return PlainFunctions("bytes", ContentTypeHeader(context, self.stated(), keeps), _to_bytes, bytes)


class Text(Plain, frozen=True, kw_only=True):
    """Write and read text in the charset that the content type states, or in a charset of its own.

    Args:
        encoding: the charset if the headers state none, such as ``utf-8`` or ``iso-8859-1``.
        content_type: the content type to state in place of ``text/plain; charset=...``; empty for none.

    Raises:
        ConfigError: the charset is unknown, or the content type has another one.
    """

    type: ClassVar[str] = "text"
    default_content_type: ClassVar[str] = "text/plain"

    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        """Refuse an unknown charset, and a content type that contradicts it."""
        super().__post_init__()
        codec = CODECS.get(self.encoding.lower())
        if codec is None:
            raise ConfigError(f"expected one of {', '.join(sorted(CODECS))}", path="encoding")
        charset = parse_content_type(self.content_type).charset if self.content_type else None
        if charset is not None and CODECS.get(charset) != codec:
            raise ConfigError(f"its charset is not {self.encoding}, the encoding", path="content_type")

    def stated(self) -> str:
        """Return the content type that is stated; empty for none."""
        own = super().stated()
        return own if self.content_type is not None or not own else f"{own}; charset={self.encoding.lower()}"

    def open(self, context: SerdeContext) -> TextFunctions:
        """Return the functions for one client."""
        codec = CODECS[self.encoding.lower()]
        keeps = self.keeps("text", None)
        return TextFunctions(ContentTypeHeader(context, self.stated(), keeps, codec=codec, charsets=True))


class Json(Plain, frozen=True, kw_only=True):
    """Write and read JSON as plain objects; Structs, dataclasses, Decimal, dates and UUIDs are written, too.

    JSON is written in UTF-8; another charset is read if the content type states it. NaN and the infinities,
    which JSON does not have, are refused, not written as null. Bytes within an object are written as Base64;
    bytes in place of the object are refused, because they are probably serialized already.

    Args:
        content_type: the content type to state in place of ``application/json``; empty for none.
    """

    type: ClassVar[str] = "json"
    default_content_type: ClassVar[str] = "application/json"

    def open(self, context: SerdeContext) -> JsonFunctions:
        """Return the functions for one client."""
        header = ContentTypeHeader(context, self.stated(), self.keeps("json"))
        encode = msgspec.json.Encoder(order=order_for(context), enc_hook=plain_number).encode
        return JsonFunctions("JSON", header, encode, msgspec.json.Decoder().decode)


class PlainFunctions:
    __slots__ = ("_decode", "_encode", "_header", "_what")

    def __init__(
        self,
        what: str,
        header: ContentTypeHeader,
        encode: Callable[[Any], bytes],
        decode: Callable[[Any], Any],
    ) -> None:
        self._what: Final = what
        self._header: Final = header
        self._encode: Final = encode
        self._decode: Final = decode

    def serialize(self, topic: str, headers: Headers, value: Any) -> tuple[bytes | None, Headers]:  # noqa: ARG002
        """Write an object, and state the content type."""
        if value is None:
            return None, headers
        try:
            payload = self._encode(value)
        except REFUSALS as error:
            raise cannot_write(self._what, value, error) from None
        return payload, self._header.state(headers)

    def serialize_many(
        self,
        topic: str,  # noqa: ARG002 - as any serde takes it
        headers: Headers,
        values: list[Any],
    ) -> tuple[list[bytes], Headers]:
        """Write many objects, none of them null, and state the content type."""
        if type(None) in set(map(type, values)):
            raise SerdeError("a null has other headers than an object")
        return self._encode_many(values), self._header.state(headers)

    def _encode_many(self, values: list[Any]) -> list[bytes]:
        return list(map(self._encode, values))

    def deserialize(self, topic: str, headers: Headers, payload: bytes | None) -> tuple[Any, Headers]:  # noqa: ARG002
        """Read an object; the content type stays, for the application."""
        if payload is None:
            return None, headers
        try:
            return self._decode(payload), headers
        except REFUSALS as error:
            raise cannot_read(self._what, payload, error, self._header.of_others(headers)) from None


class JsonFunctions(PlainFunctions):
    """Write JSON without the numbers that it does not have, which msgspec writes as null.

    It refuses bytes, which msgspec writes as Base64, and reads JSON that may be in another charset.
    """

    __slots__ = ("_encode_any",)

    def __init__(
        self,
        what: str,
        header: ContentTypeHeader,
        encode: Callable[[Any], bytes],
        decode: Callable[[Any], Any],
    ) -> None:
        super().__init__(what, header, self._encode_checked, decode)
        self._encode_any: Final = encode

    def _encode_checked(self, value: Any) -> bytes:
        if isinstance(value, _BYTES):
            raise _serialized_already(value)
        payload = self._encode_any(value)
        if b"null" in payload:  # NaN and the infinities are written as null
            _require_finite(value)
        return payload

    def _encode_many(self, values: list[Any]) -> list[bytes]:
        if any(issubclass(kind, _BYTES) for kind in set(map(type, values))):
            raise next(_serialized_already(value) for value in values if isinstance(value, _BYTES))
        payloads = list(map(self._encode_any, values))
        if b"null" in b"".join(payloads):
            for value, payload in zip(values, payloads, strict=True):
                if b"null" in payload:
                    _require_finite(value)
        return payloads

    def deserialize(self, topic: str, headers: Headers, payload: bytes | None) -> tuple[Any, Headers]:  # noqa: ARG002
        """Read an object; the content type stays, for the application."""
        if payload is None:
            return None, headers
        codec = self._header.codec(headers)
        try:
            return self._decode(payload if codec in _UTF_8 else payload.decode(codec)), headers
        except REFUSALS as error:
            raise cannot_read(self._what, payload, error, self._header.of_others(headers)) from None


class TextFunctions:
    __slots__ = ("_header",)

    def __init__(self, header: ContentTypeHeader) -> None:
        self._header: Final = header

    def serialize(self, topic: str, headers: Headers, value: Any) -> tuple[bytes | None, Headers]:  # noqa: ARG002
        """Write text in the charset that the headers then state."""
        if value is None:
            return None, headers
        if not isinstance(value, str):
            raise SerdeError(f"expected str, found {type(value).__qualname__}")
        stated = self._header.state(headers)
        try:
            return value.encode(self._header.codec(stated)), stated
        except UnicodeEncodeError as error:
            raise cannot_write("text", value, error) from None

    def deserialize(self, topic: str, headers: Headers, payload: bytes | None) -> tuple[Any, Headers]:  # noqa: ARG002
        """Read text in the charset that the headers state."""
        if payload is None:
            return None, headers
        try:
            return payload.decode(self._header.codec(headers)), headers
        except UnicodeDecodeError as error:
            raise cannot_read("text", payload, error, self._header.of_others(headers)) from None


def _to_bytes(value: Any) -> bytes:
    if not isinstance(value, _BYTES):
        raise SerdeError(f"expected bytes, bytearray or memoryview, found {type(value).__qualname__}")
    return bytes(value)


def _serialized_already(value: bytes | bytearray | memoryview) -> SerdeError:
    return SerdeError(
        f"expected an object to write as JSON, found {type(value).__qualname__}; pass the object, or leave "
        f"the serializer out if the application serializes already"
    )


def order_for(context: SerdeContext) -> Literal["deterministic"] | None:
    """Return the order of entries: keys have one form only."""
    return "deterministic" if context.part == "key" else None


def _require_finite(value: Any) -> None:
    """Raise SerdeError for NaN and the infinities, which says where the first one is."""
    plain = _plain(value)
    try:
        json.dumps(plain, allow_nan=False)
    except ValueError:
        raise SerdeError(
            f"cannot write {type(value).__qualname__} as JSON: it holds NaN or an infinity at "
            f"{_not_finite(plain)}, which JSON does not have; write null or a text instead"
        ) from None


def _not_finite(plain: Any) -> str:
    """Return the path of the first number that is not finite."""
    waiting = [("$", plain)]
    while waiting:
        path, found = waiting.pop()
        if isinstance(found, float) and not math.isfinite(found):
            return path
        items: Iterable[tuple[str, Any]] = ()
        if isinstance(found, dict):
            items = ((f"{path}.{name}", each) for name, each in found.items())
        elif isinstance(found, list | tuple):
            items = ((f"{path}[{at}]", each) for at, each in enumerate(found))
        waiting += reversed(list(items))
    return "an unknown place"


def plain_number(value: Any) -> int | float:
    """Convert a number of a subclass, such as Connect's Int32; raise TypeError for any other object.

    msgspec writes only Python's own numbers, and calls this for all objects that it does not know.
    """
    found = _plain_number_or_none(value)
    if found is None:
        raise TypeError(f"found an object of class {type(value).__qualname__}")
    return found


def _plain_number_or_none(value: Any) -> int | float | None:
    if isinstance(value, int):
        return int(value)
    return float(value) if isinstance(value, float) else None


_plain: Final = partial(msgspec.to_builtins, str_keys=True, enc_hook=_plain_number_or_none)
