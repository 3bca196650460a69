"""MessagePack, without arrays as keys of large maps, because they could be made to collide.

An array becomes a tuple, whose hash anyone can compute; a map of ten thousand such keys with one hash takes
minutes. Text and bytes have secret hashes, and few numbers collide. Only payloads with a large map are walked
before they are decoded.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import msgspec

from headerware.core.errors import SerdeError
from headerware.serdes.content_types import ContentTypeHeader
from headerware.serdes.formats.plain import Plain, PlainFunctions, order_for, plain_number
from headerware.serdes.serde import SerdeContext

if TYPE_CHECKING:
    from collections.abc import Callable

_LARGE: Final = 64
"""The least number of entries of a large map: below, collisions cost no more than decoding."""

_MAP_16: Final = b"\xde"
_MAP_32: Final = b"\xdf"
_LARGE_MAP: Final = re.compile(rb"\xde(?:\x00[\x40-\xff]|[\x01-\xff])|\xdf", re.DOTALL)


class MessagePack(Plain, frozen=True, kw_only=True):
    """Write and read MessagePack as plain objects; Structs, dataclasses, dates and UUIDs are written, too.

    Maps of 64 entries or more with arrays as keys are refused, because such keys can be made to collide.

    Args:
        content_type: the content type to state in place of ``application/msgpack``; empty for none.
    """

    type: ClassVar[str] = "msgpack"
    default_content_type: ClassVar[str] = "application/msgpack"

    def open(self, context: SerdeContext) -> PlainFunctions:
        """Return the functions for one client."""
        header = ContentTypeHeader(context, self.stated(), self.keeps("msgpack"))
        encode = msgspec.msgpack.Encoder(order=order_for(context), enc_hook=plain_number).encode
        return PlainFunctions(
            "MessagePack", header, encode, _without_array_keys(msgspec.msgpack.Decoder().decode)
        )


def _without_array_keys(decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    def decode_without(payload: bytes) -> Any:
        if has_array_keys(payload):
            raise SerdeError(
                "expected MessagePack with text or numbers as keys of its large maps, found an array"
            )
        return decode(payload)

    return decode_without


class _Form(NamedTuple):
    """The layout after a first byte."""

    size_bytes: int = 0
    """The number of bytes of the size."""
    size: int = 0
    """The size, if the first byte itself contains it."""
    unit: int = 1
    """The number of items, or of bytes of plain data, for each unit of the size."""
    more: int = 0
    """The number of further bytes."""
    nests: bool = False
    """Whether items follow, not plain data."""


def has_array_keys(payload: bytes) -> bool:
    """Return whether an array is a key of a large map, as far as the payload can be read."""
    if (_MAP_16 not in payload and _MAP_32 not in payload) or _LARGE_MAP.search(payload) is None:
        return False
    left: list[int] = []  # the items that each open array or map still has; even before a map's key
    large: list[bool] = []
    at = 0
    while at < len(payload):
        first = payload[at]
        if left:
            if large[-1] and not left[-1] % _PAIR and first in _ARRAYS:
                return True
            left[-1] -= 1
        form = _FORMS[first]
        end = at + 1 + form.size_bytes
        size = form.size or int.from_bytes(payload[at + 1 : end], "big")
        at = end + form.more + (0 if form.nests else size)
        if form.nests and size:
            left.append(size * form.unit)
            large.append(form.unit == _PAIR and size >= _LARGE)
        while left and not left[-1]:
            left.pop()
            large.pop()
    return False


_PAIR: Final = 2
_ARRAYS: Final = frozenset({*range(0x90, 0xA0), 0xDC, 0xDD})
_FORMS: Final = (
    *[_Form()] * 0x80,
    *[_Form(size=size, unit=_PAIR, nests=True) for size in range(16)],
    *[_Form(size=size, nests=True) for size in range(16)],
    *[_Form(size=size) for size in range(32)],
    *[_Form()] * 4,
    *[_Form(size_bytes=1 << power) for power in range(3)],
    *[_Form(size_bytes=1 << power, more=1) for power in range(3)],
    *[_Form(more=size) for size in (4, 8, 1, 2, 4, 8, 1, 2, 4, 8)],
    *[_Form(more=1 + (1 << power)) for power in range(5)],
    *[_Form(size_bytes=1 << power) for power in range(3)],
    *[_Form(size_bytes=size, nests=True) for size in (2, 4)],
    *[_Form(size_bytes=size, unit=_PAIR, nests=True) for size in (2, 4)],
    *[_Form()] * 0x20,
)
"""The forms by their first byte, as the specification of MessagePack lists them."""
