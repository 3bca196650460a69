"""The text form of binary header values: base64, so that every value of ours decodes as UTF-8.

Applications and frameworks decode all headers of a record as text. A binary value would break them, so each
``hw.`` header holds its binary layout as base64 with the standard alphabet and padding (RFC 4648, section 4).
Each layout has exactly one spelling; others are refused.
"""

from __future__ import annotations

from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64

from headerware.core.errors import WireFormatError


def encode_text(layout: bytes) -> bytes:
    """Return the header value that stands for a binary layout."""
    return b2a_base64(layout, newline=False)


def text_bytes(layout_bytes: int) -> int:
    """Return how many bytes a layout of this length has as a header value."""
    return (layout_bytes + 2) // 3 * 4


def decode_text(value: bytes | None, name: str) -> bytes:
    """Return the binary layout of a header value.

    Args:
        value: the header's value.
        name: the header's name, for the error.

    Raises:
        WireFormatError: the value is null or not base64 in its one spelling.
    """
    if value is None:
        raise WireFormatError(f"header {name!r}: expected base64, found null")
    try:
        layout = a2b_base64(value, strict_mode=True)
    except (Base64Error, ValueError):
        layout = b""
    if not layout or b2a_base64(layout, newline=False) != value:
        raise WireFormatError(f"header {name!r}: expected base64 (RFC 4648, section 4, with padding)")
    return layout
