"""Which records below a position are not done, as the metadata of a commit (spec/dead-letter.md).

A worker that cannot answer records in their order commits the offset of the first that stays. The metadata
says how far it has come, and which below that stay, too. So there is no state beside the topics.
"""

from __future__ import annotations

import base64
import re
import zlib
from typing import Final

from headerware.core.errors import WireFormatError

_METADATA: Final = "hwr1:"
_MAX_METADATA_BYTES: Final = 4_000
_MAX_STAYS_BYTES: Final = 4_000_000
_MAX_STAYS: Final = 1_000_000
"""Some 100 MB here; so many take a few hundred bytes of metadata if they stand side by side."""


def encode_stays(position_: int, stays: set[int]) -> tuple[int, str]:
    """Return the offset and the metadata to commit, so that only these records below a position stay.

    Raises:
        WireFormatError: there are more than a commit's metadata can note.
    """
    if not stays:
        return position_, ""
    first, text = min(stays), ""
    size_bytes = (position_ - first + 7) // 8
    if size_bytes <= _MAX_STAYS_BYTES and len(stays) <= _MAX_STAYS:
        bits = bytearray(size_bytes)
        for offset in stays:
            at = offset - first
            bits[at // 8] |= 0x80 >> at % 8
        text = f"{_METADATA}{position_}:{base64.b64encode(zlib.compress(bits, 9)).decode()}"
    if not 0 < len(text) <= _MAX_METADATA_BYTES:
        raise WireFormatError(f"the {len(stays)} records that stay do not fit the metadata of a commit")
    return first, text


def decode_stays(offset: int, metadata: str) -> tuple[int, frozenset[int]]:
    """Return the position and the records below it that stay, of a committed offset.

    Raises:
        WireFormatError: the metadata is of another kind.
    """
    if not metadata:
        return offset, frozenset()
    match = re.fullmatch(r"hwr1:([0-9]{1,18}):([A-Za-z0-9+/=]*)", metadata)
    bits = None if match is None or len(metadata) > _MAX_METADATA_BYTES else _unpacked(match[2])
    if match is None or bits is None:
        raise WireFormatError("the metadata of the group's committed offset is of another kind")
    below = int(match[1])
    stays = frozenset(
        offset + 8 * index + bit
        for index, byte in enumerate(bits)
        if byte
        for bit in range(8)
        if byte & 0x80 >> bit
    )
    if any(each >= below for each in stays):
        raise WireFormatError("the metadata of a committed offset names records behind its position")
    return below, stays


def _unpacked(text: str) -> bytes | None:
    """Return the bits of packed metadata; None if it is none, or more than we write."""
    unpacking = zlib.decompressobj()
    try:
        bits = unpacking.decompress(base64.b64decode(text, validate=True), _MAX_STAYS_BYTES)
    except (ValueError, zlib.error):
        return None
    whole = unpacking.eof and not unpacking.unused_data
    return bits if whole and int.from_bytes(bits).bit_count() <= _MAX_STAYS else None
