"""The text form of binary header values: base64, so that every value of ours decodes as UTF-8.

Applications and frameworks decode all headers of a record as text. A binary value would break them, so each
``hw.`` header holds its binary layout as base64 with the standard alphabet and padding (RFC 4648, section 4).
Each layout has exactly one spelling; others are refused.

msgspec writes and reads bytes in JSON as base64, four times as fast as ``binascii`` does. JSON permits
escapes, and base64 permits several spellings; both are found by encoding the layout again.
"""

from __future__ import annotations

import msgspec

from headerware.core.errors import WireFormatError

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(bytes).decode


def encode_text(layout: bytes) -> bytes:
    """Return the header value that stands for a binary layout."""
    return _encode(layout)[1:-1]


def text_bytes(layout_bytes: int) -> int:
    """Return how many bytes a layout of this length has as a header value."""
    return (layout_bytes + 2) // 3 * 4


def decode_text(value: bytes | None, name: str) -> bytes:
    """Return the binary layout of a header value; a null or anything but its one spelling is refused."""
    if value is None:
        raise WireFormatError(f"header {name!r}: expected base64, found null")
    quoted = b'"%b"' % value
    try:
        layout = _decode(quoted)
    except msgspec.MsgspecError:
        layout = b""
    if not layout or _encode(layout) != quoted:
        raise WireFormatError(f"header {name!r}: expected base64 (RFC 4648, section 4, with padding)")
    return layout
