"""Which records below a position are not done, as the metadata of a commit (spec/dead-letter.md).

A worker that cannot answer records in their order commits the offset of the first that stays. The metadata
says how far it has come, and which below that stay, too. So there is no state beside the topics.
"""

from __future__ import annotations

import base64
import re
import zlib
from typing import TYPE_CHECKING, Final

from headerware.core.errors import WireFormatError

if TYPE_CHECKING:
    from collections.abc import Iterable

_METADATA: Final = "hwr1:"
_MAX_METADATA_BYTES: Final = 4_000
_MAX_STAYS_BYTES: Final = 4_000_000
_MAX_STAYS: Final = 1_000_000
"""Some 100 MB here; so many take a few hundred bytes of metadata if they stand side by side."""


class Stays:
    """Offsets that stay, as bits: to change one costs the same however many there are.

    What is noted of many is a byte for eight offsets between the first and the last, in one piece.

    Args:
        offsets: which stay at first.
    """

    def __init__(self, offsets: Iterable[int] = ()) -> None:
        self._bits = bytearray()
        self._begin = 0
        """Which byte the bits begin with, counted from offset 0."""
        self._beyond: set[int] = set()
        """What is too far away from the others to be noted in a commit."""
        self._count = 0
        for offset in sorted(offsets):
            self.add(offset)

    def __len__(self) -> int:
        """Count the offsets."""
        return self._count + len(self._beyond)

    def add(self, offset: int) -> None:
        """Let an offset stay."""
        byte, bit = divmod(offset, 8)
        if not self._count:
            self._bits, self._begin = bytearray(), byte
        before, behind = self._begin - byte, byte + 1 - self._begin - len(self._bits)
        if len(self._bits) + max(before, behind) > _MAX_STAYS_BYTES:
            self._beyond.add(offset)
            return
        if before > 0:
            self._bits[:0] = bytes(before)
            self._begin = byte
        elif behind > 0:
            self._bits += bytes(behind)
        mask, at = 0x80 >> bit, byte - self._begin
        self._count += not self._bits[at] & mask
        self._bits[at] |= mask

    def discard(self, offset: int) -> None:
        """Let an offset stay no more; one that does not is no error."""
        self._beyond.discard(offset)
        byte, bit = divmod(offset, 8)
        mask, at = 0x80 >> bit, byte - self._begin
        if 0 <= at < len(self._bits) and self._bits[at] & mask:
            self._bits[at] &= ~mask
            self._count -= 1

    def encode(self, position_: int) -> tuple[int, str]:
        """Return the offset and the metadata to commit, so that only these below a position stay.

        Raises:
            WireFormatError: there are more than a commit's metadata can note.
        """
        if not self:
            return position_, ""
        first, text = min(self._beyond, default=0), ""
        if not self._beyond:
            bits = self._bits.lstrip(b"\0")
            self._begin += len(self._bits) - len(bits)
            self._bits = bits
            dropped = 8 - bits[0].bit_length()
            first = 8 * self._begin + dropped
            size_bytes = (position_ - first + 7) // 8
            if size_bytes <= _MAX_STAYS_BYTES and self._count <= _MAX_STAYS:
                field = (int.from_bytes(bits) << dropped).to_bytes(len(bits))
                field = field[:size_bytes].ljust(size_bytes, b"\0")
                text = f"{_METADATA}{position_}:{base64.b64encode(zlib.compress(field, 9)).decode()}"
        if not 0 < len(text) <= _MAX_METADATA_BYTES:
            raise WireFormatError(f"the {len(self)} records that stay do not fit the metadata of a commit")
        return first, text


def encode_stays(position_: int, stays: Iterable[int]) -> tuple[int, str]:
    """Return the offset and the metadata to commit, so that only these records below a position stay.

    Raises:
        WireFormatError: there are more than a commit's metadata can note.
    """
    return Stays(stays).encode(position_)


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
