"""The text form of binary header values: base64, so that every value of ours decodes as UTF-8.

Applications and frameworks decode all headers of a record as text. A binary value would break them, so each
``hw.`` header holds its binary layout as base64 with the standard alphabet and padding (RFC 4648, section 4).
Each layout has exactly one spelling; others are refused.

msgspec writes and reads bytes in JSON as base64, four times as fast as ``binascii`` does. Two checks refuse
other spellings. JSON permits escapes, so a text may be longer than the base64 of its layout. Base64 permits
several last characters, which differ in bits that are not used.
"""

from __future__ import annotations

from typing import Final

import msgspec

from headerware.core.errors import WireFormatError

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(bytes).decode
_LAST: Final[tuple[frozenset[int], ...]] = (frozenset(), frozenset(b"AQgw"), frozenset(b"AEIMQUYcgkosw048"))
"""The characters that are permitted before the padding if the last group holds one byte, or two."""


def encode_text(layout: bytes) -> bytes:
    """Return the header value that stands for a binary layout."""
    return _encode(layout)[1:-1]


def text_bytes(layout_bytes: int) -> int:
    """Return how many bytes a layout of this length has as a header value."""
    return (layout_bytes + 2) // 3 * 4


def decode_text(value: bytes | None, name: str) -> bytes:
    """Return the binary layout of a header value; refuse null, and any spelling other than its one."""
    if value is None:
        raise WireFormatError(f"header {name!r}: expected base64, found null")
    try:
        layout = _decode(b'"%b"' % value)
    except msgspec.MsgspecError:
        layout = b""
    size = len(layout)
    odd = size % 3
    if not size or len(value) != (size + 2) // 3 * 4 or (odd and value[odd - 4] not in _LAST[odd]):
        raise WireFormatError(f"header {name!r}: expected base64 (RFC 4648, section 4, with padding)")
    return layout
