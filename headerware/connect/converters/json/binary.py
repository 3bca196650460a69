"""Bytes in JSON: Base64 with padding."""

from __future__ import annotations

import binascii
import re
from typing import Final

from headerware.connect.errors import ConnectDataError


def base64_text(data: bytes | bytearray | memoryview) -> str:
    """Return the Base64 of bytes."""
    return binascii.b2a_base64(data, newline=False).decode()


def bytes_of_base64(text: str) -> bytes:
    """Return the bytes of Base64 as it is written, and of no other.

    Raises:
        ConnectDataError: it is none, or none that :func:`base64_text` would write.
    """
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        data = None
    if data is None or base64_text(data) != text:
        raise ConnectDataError("expected Base64 with padding, found a text that is none")
    return data


def bytes_of_base64_as_jackson(text: str) -> bytes:
    """Give the bytes of Base64 as Jackson reads it: white space and padding may stand between groups of four.

    Raises:
        ConnectDataError: it is none.
    """
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        pass
    if not _GROUPS.fullmatch(text):
        raise ConnectDataError("expected Base64 with padding, found a text that is none")
    return b"".join(map(binascii.a2b_base64, _GROUP.findall(text)))


_GROUP: Final = re.compile(r"[A-Za-z0-9+/]{2}(?:[A-Za-z0-9+/]{2}|[A-Za-z0-9+/]=|==)")
_GROUPS: Final = re.compile(rf"(?:[\x00- ]*+{_GROUP.pattern})*+[\x00- ]*+")
