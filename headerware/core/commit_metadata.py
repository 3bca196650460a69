"""The metadata of a committed offset: a position, and the offsets below it that are pending.

Records of a partition are not always done in their order. Then the committed offset is the offset of the
first pending record. The metadata of the commit has the position of the reader, and the pending offsets below
the position. So no state is kept outside of the topics. As text (spec/commit-metadata.md):

    hw1:<position>[~<pending>]:<own>

    position   decimal; absent if it is the committed offset
    pending    base64 of a zlib stream of bits, most significant first: bit n stands for the record at the
               committed offset + n, and is 1 if that record is pending; absent if none is
    own        the application's own metadata; any text

Records below the position that are not pending are done. Text of another form is an application's metadata.
"""

from __future__ import annotations

import base64
import re
import zlib
from typing import TYPE_CHECKING, Final, NamedTuple

from headerware.core.errors import WireFormatError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PREFIX: Final = "hw1:"
MAX_BYTES: Final = 4_096
"""How long the whole metadata may be; a broker takes no more (``offset.metadata.max.bytes``)."""
MAX_OWN_BYTES: Final = 1_000
"""How long a worker's own metadata may be, so that there is room for pending offsets."""
MAX_PENDING_BYTES: Final = 4_000
"""How long the text of the pending offsets may be."""
MAX_FIELD_BYTES: Final = 4_000_000
MAX_PENDING: Final = 1_000_000
"""Some 100 MB in memory. The metadata of so many offsets has a few hundred bytes if they are consecutive."""
_LAST_OFFSET: Final = 2**63 - 1
_LAYOUT: Final = re.compile(r"hw1:(?:([0-9]{1,19})(?:~([A-Za-z0-9+/=]+))?)?:(.*)", re.DOTALL)


class Committed(NamedTuple):
    """A committed offset with its metadata, read.

    Args:
        position: the offset below which all records except pending ones are done; None means that the
            position is the committed offset.
        pending: the offsets below the position that are not done.
        own: the application's own metadata; None if there is none.
    """

    position: int | None
    pending: frozenset[int]
    own: str | None


class PendingOffsets:
    """The pending offsets of a partition, as bits: a change costs the same however many offsets there are.

    The offsets from the first to the last take a byte for every eight, in one bytearray.

    Args:
        offsets: the offsets that are pending at first.
    """

    def __init__(self, offsets: Iterable[int] = ()) -> None:
        self._bits = bytearray()
        self._begin = 0
        """The index that the first byte would have if the bits began at offset 0."""
        self._beyond: set[int] = set()
        """The offsets that are too far from the others to be noted in a commit."""
        self._count = 0
        for offset in sorted(offsets):
            self.add(offset)

    def __len__(self) -> int:
        """Count the offsets."""
        return self._count + len(self._beyond)

    def __contains__(self, offset: int) -> bool:
        """Return whether an offset is pending."""
        byte, bit = divmod(offset, 8)
        at = byte - self._begin
        known = 0 <= at < len(self._bits) and bool(self._bits[at] & 0x80 >> bit)
        return known or offset in self._beyond

    def __iter__(self) -> Iterator[int]:
        """Yield the offsets, in no order."""
        for index, byte in enumerate(self._bits):
            for bit in range(8) if byte else ():
                if byte & 0x80 >> bit:
                    yield 8 * (self._begin + index) + bit
        yield from self._beyond

    def add(self, offset: int) -> None:
        """Add an offset."""
        if offset in self._beyond:
            return
        byte, bit = divmod(offset, 8)
        if not self._count:
            self._bits, self._begin = bytearray(), byte
        before, after = self._begin - byte, byte + 1 - self._begin - len(self._bits)
        if len(self._bits) + max(before, after) > MAX_FIELD_BYTES:
            self._beyond.add(offset)
            return
        if before > 0:
            self._bits[:0] = bytes(before)
            self._begin = byte
        elif after > 0:
            self._bits += bytes(after)
        mask, at = 0x80 >> bit, byte - self._begin
        self._count += not self._bits[at] & mask
        self._bits[at] |= mask

    def discard(self, offset: int) -> None:
        """Remove an offset if it is there."""
        self._beyond.discard(offset)
        byte, bit = divmod(offset, 8)
        mask, at = 0x80 >> bit, byte - self._begin
        if 0 <= at < len(self._bits) and self._bits[at] & mask:
            self._bits[at] &= ~mask
            self._count -= 1

    def encode(self, position: int, own: str | None = None) -> tuple[int, str | None]:
        """Return the offset and the metadata to commit, which say that these offsets are pending.

        Args:
            position: the offset below which all others are done.
            own: the application's own metadata.

        Raises:
            WireFormatError: there are more offsets than the metadata of a commit can note.
        """
        if not self:
            return position, encode_metadata(None, own)
        self._trim()
        if not self._beyond:
            bits = self._bits
            dropped = 8 - bits[0].bit_length()
            first = 8 * self._begin + dropped
            size_bytes = (position - first + 7) // 8
            if size_bytes <= MAX_FIELD_BYTES and self._count <= MAX_PENDING:
                field = (int.from_bytes(bits) << dropped).to_bytes(len(bits))
                field = field[:size_bytes].ljust(size_bytes, b"\0")
                packed = base64.b64encode(zlib.compress(field, 9)).decode()
                metadata = f"{PREFIX}{position}~{packed}:{own or ''}"
                if len(packed) <= MAX_PENDING_BYTES and len(metadata.encode()) <= MAX_BYTES:
                    return first, metadata
        raise WireFormatError(f"{len(self)} pending offsets do not fit the metadata of a commit")

    def _trim(self) -> None:
        """Take bytes without offsets from both ends, and take back the offsets that fit then."""
        bits = self._bits.lstrip(b"\0")
        self._begin += len(self._bits) - len(bits)
        self._bits = bits.rstrip(b"\0")
        beyond, self._beyond = self._beyond, set()
        for offset in sorted(beyond):
            self.add(offset)


def encode_metadata(position: int | None, own: str | None) -> str | None:
    """Return the metadata of a commit without pending offsets: ``own``, with the position if there is one."""
    if position is None and not (own or "").startswith(PREFIX):
        return own
    return f"{PREFIX}{'' if position is None else position}:{own or ''}"


def decode_metadata(offset: int, metadata: str | None) -> Committed:
    """Return a committed offset, read; text of another form is the application's own metadata."""
    match = None if metadata is None else _LAYOUT.fullmatch(metadata)
    if match is None:
        return Committed(None, frozenset(), metadata or None)
    position = int(match[1]) if match[1] else None
    pending = _unpacked(offset, match[2]) if match[2] else frozenset[int]()
    # No offset is larger; a reader would never read the partition again from a larger position.
    is_possible = position is None or (
        position <= _LAST_OFFSET and all(each < position for each in pending or ())
    )
    if pending is None or not is_possible:
        return Committed(None, frozenset(), metadata)
    return Committed(position, pending, match[3] or None)


def _unpacked(offset: int, text: str) -> frozenset[int] | None:
    """Return the pending offsets of packed metadata; None if it is invalid, or larger than we write."""
    if len(text) > MAX_PENDING_BYTES:
        return None
    unpacking = zlib.decompressobj()
    try:
        bits = unpacking.decompress(base64.b64decode(text, validate=True), MAX_FIELD_BYTES)
    except (ValueError, zlib.error):
        return None
    is_complete = unpacking.eof and not unpacking.unused_data
    if not is_complete or int.from_bytes(bits).bit_count() > MAX_PENDING:
        return None
    return frozenset(
        offset + 8 * index + bit
        for index, byte in enumerate(bits)
        if byte
        for bit in range(8)
        if byte & 0x80 >> bit
    )
