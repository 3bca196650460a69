"""CBOR by cbor2, within limits: no references, no tags that run code or take time, no trailing bytes."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from io import BytesIO
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal
from uuid import UUID

import msgspec

from headerware.core.errors import ConfigError, SerdeError
from headerware.core.extras import install_command
from headerware.serdes.content_types import ContentTypeHeader
from headerware.serdes.formats.plain import Plain, PlainFunctions, plain_number
from headerware.serdes.serde import SerdeContext

if TYPE_CHECKING:
    from collections.abc import Callable

_REFUSED_TAGS: Final = (5, 25, 28, 29, 30, 35, 36, 52, 54, 256, 260, 261, 43000)
"""Tags that cbor2 knows and that are refused: references make cycles, regular expressions and bigfloats take
time, and the rest are of types that no other format here has. Unknown tags are refused, too."""

_SELF_DESCRIBED: Final = 55799
"""The tag for CBOR itself; after it cbor2 would make tuples and frozen maps."""

_OLDEST: Final = [6, 2]
"""The first cbor2 that can refuse keys of maps."""

_MAX_NUMBER_BYTES: Final = 1024
_NATIVE: Final = (bytes, bytearray, memoryview, datetime, date, Decimal, UUID)


class Cbor(Plain, frozen=True, kw_only=True):
    """Write and read CBOR (RFC 8949) as plain objects; Structs and dataclasses are written, too.

    The tags of dates, UUIDs, sets and numbers of at most 1024 bytes are read; others, references among them,
    are refused. :meth:`open` raises ConfigError without cbor2, which comes with the extra ``cbor``.

    Args:
        keys: the keys of maps that are read: ``text`` (and bytes), or ``any`` if senders are trusted: keys of
            other types can be made to collide, which takes quadratic time.
        content_type: the content type to state in place of ``application/cbor``; empty for none.
    """

    type: ClassVar[str] = "cbor"
    default_content_type: ClassVar[str] = "application/cbor"

    keys: Literal["text", "any"] = "text"

    def open(self, context: SerdeContext) -> PlainFunctions:
        """Return the functions for one client.

        Raises:
            ConfigError: cbor2 is missing, or too old.
        """
        header = ContentTypeHeader(context, self.stated(), self.keeps("cbor"))
        encode = _encoder(canonical=context.part == "key")
        return PlainFunctions("CBOR", header, encode, _decoder(any_keys=self.keys == "any"))


def cbor_is_there() -> bool:
    """Return whether a cbor2 with limits is installed, without loading it."""
    try:
        found = [int(part) for part in version("cbor2").split(".")[:2]]
    except (PackageNotFoundError, ValueError):
        return False
    return found >= _OLDEST


def _encoder(*, canonical: bool) -> Callable[[Any], bytes]:
    cbor2 = _cbor2()
    dumps, refusal = partial(cbor2.dumps, canonical=canonical), cbor2.CBORError
    order: Literal["deterministic"] | None = "deterministic" if canonical else None

    def encode(value: Any) -> bytes:
        # cbor2 itself ends the process on an object that is nested too deeply; msgspec raises.
        plain = msgspec.to_builtins(value, builtin_types=_NATIVE, order=order, enc_hook=plain_number)
        try:
            payload: bytes = dumps(plain)
        except refusal as error:
            raise ValueError from error
        return payload

    return encode


def _decoder(*, any_keys: bool) -> Callable[[bytes], Any]:
    cbor2 = _cbor2()
    tags = {
        **dict.fromkeys(_REFUSED_TAGS, _refuse),
        2: _unsigned,
        3: _negative,
        _SELF_DESCRIBED: _itself,
    }
    limits = {"semantic_decoders": tags, "tag_hook": _refuse, "strict_hashable_types": not any_keys}
    opened, refusal, ends = partial(cbor2.CBORDecoder, **limits), cbor2.CBORError, cbor2.CBORDecodeEOF
    try:
        opened(BytesIO())
    except TypeError:
        raise ConfigError(f"expected cbor2 6.2 or newer: {install_command('cbor')}") from None

    def decode(payload: bytes) -> Any:
        stream = BytesIO(payload)
        try:
            value = opened(stream).decode()
        except refusal as error:
            if isinstance(error.__cause__, SerdeError):
                raise error.__cause__ from None
            raise ValueError("truncated" if isinstance(error, ends) else "malformed") from None
        if stream.tell() != len(payload):
            raise SerdeError(f"expected CBOR, found more bytes after its first {stream.tell()}")
        return value

    return decode


def _cbor2() -> Any:
    try:
        import cbor2  # noqa: PLC0415 - an extra, loaded where it is used
    except ImportError:
        raise ConfigError(f"CBOR needs cbor2: {install_command('cbor')}") from None
    return cbor2


def _unsigned(value: Any, _immutable: object) -> int:
    if not isinstance(value, bytes) or len(value) > _MAX_NUMBER_BYTES:
        raise SerdeError(f"expected CBOR with numbers of at most {_MAX_NUMBER_BYTES} bytes, found another")
    return int.from_bytes(value, "big")


def _negative(value: Any, immutable: object) -> int:
    return -1 - _unsigned(value, immutable)


def _itself(value: Any, _immutable: object) -> Any:
    return value


def _refuse(_tag: Any, _immutable: object) -> Any:
    raise SerdeError("expected CBOR with dates, UUIDs, sets and numbers as its only tags, found another")
