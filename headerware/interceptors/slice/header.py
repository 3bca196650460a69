"""The ``hw.slice`` header: it identifies a slice's message, and the slice's part of that message.

    offset  bytes  field
    0       1      version, 1
    1       16     message id: random, the same in all slices of one message
    17      4      index of this slice, from 0
    21      4      count of slices
    25      8      total bytes: the length of the complete value
    33      4      slice bytes: the length of every slice's value but the last

All numbers are unsigned and big-endian. The header's value is these 37 bytes as base64, 52 characters.
spec/slice.md has the rules.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from headerware.core.errors import WireFormatError
from headerware.core.header_text import decode_text, encode_text, text_bytes

SLICE_HEADER: Final = "hw.slice"
VERSION: Final = 1
ID_BYTES: Final = 16
MAX_SLICES: Final = 100_000
"""The largest number of slices of a message."""

_LAYOUT: Final = struct.Struct(">B16sIIQI")
HEADER_BYTES: Final = text_bytes(_LAYOUT.size)


class SliceHeader(msgspec.Struct, frozen=True):
    """The value of ``hw.slice``: it identifies a slice's message, and the slice's part of that message.

    Args:
        message_id: 16 bytes, the same in all slices of one message and in no other message.
        index: the slice's number, from 0.
        count: how many slices there are.
        total_bytes: the length of the complete value.
        slice_bytes: the length of every slice's value but the last.
    """

    message_id: bytes
    index: int
    count: int
    total_bytes: int
    slice_bytes: int

    @property
    def payload_bytes(self) -> int:
        """The length that this slice's value must have."""
        if self.index == self.count - 1:
            return self.total_bytes - self.index * self.slice_bytes
        return self.slice_bytes

    @property
    def whole_in_words(self) -> str:
        """The numbers that all slices of the message share, in words."""
        return f"{self.count} slices, {self.total_bytes} bytes in slices of {self.slice_bytes}"

    def problem(self) -> str | None:
        """Return the contradiction in these numbers, or None."""
        if self.total_bytes < 1 or self.slice_bytes < 1:
            return f"slices of {self.slice_bytes} bytes for {self.total_bytes} in all; neither may be 0"
        if not 1 <= self.count <= MAX_SLICES:
            return f"a count of {self.count} slices; expected 1 to {MAX_SLICES}"
        expected = -(-self.total_bytes // self.slice_bytes)
        if self.count != expected:
            return (
                f"a count of {self.count} slices; {self.total_bytes} bytes in slices of "
                f"{self.slice_bytes} make {expected}"
            )
        return f"index {self.index} of {self.count} slices" if self.index >= self.count else None

    def same_message(self, other: SliceHeader) -> bool:
        """Return whether another slice has the same message id and the same numbers of the message."""
        return (
            self.count == other.count
            and self.total_bytes == other.total_bytes
            and self.slice_bytes == other.slice_bytes
            and self.message_id == other.message_id
        )

    def encode(self) -> bytes:
        """Return the header's value.

        Raises:
            WireFormatError: the numbers contradict one another, or do not fit their fields.
        """
        _require_possible(self)
        if len(self.message_id) != ID_BYTES:
            raise WireFormatError(f"expected a message id of {ID_BYTES} bytes, found {len(self.message_id)}")
        try:
            layout = _LAYOUT.pack(
                VERSION, self.message_id, self.index, self.count, self.total_bytes, self.slice_bytes
            )
        except struct.error as error:
            raise WireFormatError("a number does not fit its field in hw.slice") from error
        return encode_text(layout)

    @classmethod
    def decode(cls, value: bytes | None) -> SliceHeader:
        """Decode and check a header's value.

        Raises:
            WireFormatError: the value is not base64, has another length or version, or numbers that
                contradict one another.
        """
        header = cls.unpack(value)
        _require_possible(header)
        return header

    @classmethod
    def unpack(cls, value: bytes | None) -> SliceHeader:
        """Decode a header's value without checking its numbers: a header with wrong ones names its message.

        Raises:
            WireFormatError: the value is not base64, or has another length or version.
        """
        layout = decode_text(value, SLICE_HEADER)
        if layout[0] != VERSION:
            raise WireFormatError(f"hw.slice has version {layout[0]}; expected {VERSION}")
        if len(layout) != _LAYOUT.size:
            raise WireFormatError(f"hw.slice has {len(layout)} bytes as base64; expected {_LAYOUT.size}")
        _, message_id, index, count, total_bytes, slice_bytes = _LAYOUT.unpack(layout)
        return cls(message_id, index, count, total_bytes, slice_bytes)


def _require_possible(header: SliceHeader) -> None:
    problem = header.problem()
    if problem is not None:
        raise WireFormatError(f"hw.slice states {problem}")
