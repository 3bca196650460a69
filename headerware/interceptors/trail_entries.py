"""The paper trail's wire format: header ``hw.trail``, version 1 (spec/trail.md; seed 004).

    version   u8    1
    left_out  u16   how many entries were dropped between the first and the second, at most 65,535
    entries         until the end of the value, oldest first:
      length  u16   of what follows, 9 to 1,289
      flags   u8    which texts are there; the upper three bits are 0
      when    i64   milliseconds since the epoch
      texts         for each flag that is set, from the lowest: u8 length, then that many bytes of UTF-8
                    0x01 by whom
                    0x02 read from cluster      0x04 read from topic
                    0x08 produced into cluster  0x10 produced into topic

Integers are big-endian. A whole trail has at most 65,535 bytes. The produced half stands last, so that an
entry is completed by adding to its end.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import msgspec

from headerware.core.errors import WireFormatError
from headerware.core.headers import Headers, HeadersLike

if TYPE_CHECKING:
    from collections.abc import Iterator

TRAIL_HEADER: Final = "hw.trail"
VERSION: Final = 1
MAX_TRAIL_BYTES: Final = 0xFFFF
MAX_ENTRY_BYTES: Final = 9 + 5 * 256
START: Final = b"\x01\x00\x00"
"""A trail without entries."""

_MIN_ENTRY_BYTES = 9
_MAX_TEXT_BYTES = 255
_TEXTS: Final = (
    (0x01, "by_whom"),
    (0x02, "read_from_cluster"),
    (0x04, "read_from_topic"),
    (0x08, "produced_into_cluster"),
    (0x10, "produced_into_topic"),
)
_READ, _PRODUCED, _RESERVED = 0x06, 0x18, 0xE0
_when = struct.Struct(">q")


class TrailEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One stop of a record's way: read from somewhere, produced into somewhere, or both.

    Args:
        by_whom: the service that did it.
        produced_into_cluster: the cluster that it was produced into, where that is known.
        produced_into_topic: the topic that it was produced into; None for an entry that was only read.
        when_ms: when the entry was made, in milliseconds since the epoch, by that service's clock.
        read_from_cluster: the cluster that it was read from, where that is known.
        read_from_topic: the topic that it was read from; None for an entry that was only produced.
    """

    by_whom: str | None = None
    produced_into_cluster: str | None = None
    produced_into_topic: str | None = None
    when_ms: int
    read_from_cluster: str | None = None
    read_from_topic: str | None = None


class TrailReading(msgspec.Struct, frozen=True):
    """A trail as it was read: a sequence of entries, and how many are missing.

    Args:
        entries: the entries, oldest first.
        left_out: how many entries the bounds of earlier writers dropped, between the first and the second.
    """

    entries: tuple[TrailEntry, ...] = ()
    left_out: int = 0

    def __len__(self) -> int:
        """Count the entries that are there."""
        return len(self.entries)

    def __iter__(self) -> Iterator[TrailEntry]:
        """Go through the entries, oldest first."""
        return iter(self.entries)

    def __getitem__(self, index: int) -> TrailEntry:
        """Give one entry; -1 is the latest."""
        return self.entries[index]


def read_trail(headers: HeadersLike) -> TrailReading:
    """Read the trail that a record's headers carry; an empty one where there is none.

    Args:
        headers: headers in any of the forms that Headerware takes. Of several trails the last counts.

    Raises:
        WireFormatError: the header does not follow spec/trail.md.
        HeaderError: these are no headers.
    """
    values = Headers(headers).all(TRAIL_HEADER)
    return decode_trail(values[-1]) if values else TrailReading()


def decode_trail(value: bytes | None) -> TrailReading:
    """Decode the value of one ``hw.trail`` header.

    Raises:
        WireFormatError: it does not follow spec/trail.md.
    """
    value = present(value)
    starts = entry_starts(value)
    ends = [*starts[1:], len(value)]
    entries = tuple(_decode_entry(value[start + 2 : end]) for start, end in zip(starts, ends, strict=False))
    return TrailReading(entries, int.from_bytes(value[1:3]))


def encode_trail(reading: TrailReading) -> bytes:
    """Encode a trail as the value of ``hw.trail``; texts are cut after 255 bytes of UTF-8.

    Raises:
        WireFormatError: more entries than a trail can hold, or a number out of range.
    """
    try:
        opening = struct.pack(">BH", VERSION, reading.left_out)
        value = opening + b"".join(map(encode_entry, reading.entries))
    except struct.error as error:
        message = f"{TRAIL_HEADER}: a number of the trail is out of range: {error}"
        raise WireFormatError(message) from error
    if len(value) > MAX_TRAIL_BYTES:
        message = f"{TRAIL_HEADER}: {len(value)} bytes, more than the {MAX_TRAIL_BYTES} of a trail"
        raise WireFormatError(message)
    return value


def encode_entry(entry: TrailEntry) -> bytes:
    """Encode one entry, its length included."""
    flags, texts = encode_texts(entry)
    return struct.pack(">HBq", _MIN_ENTRY_BYTES + len(texts), flags, entry.when_ms) + texts


def encode_texts(entry: TrailEntry) -> tuple[int, bytes]:
    """Give an entry's flags and its texts as they stand on the wire."""
    flags, parts = 0, []
    for flag, name in _TEXTS:
        text = getattr(entry, name)
        if text is not None:
            flags |= flag
            parts.append(_encode_text(text))
    return flags, b"".join(parts)


def present(value: bytes | None) -> bytes:
    """Give the value itself where it can be a trail's at all.

    Raises:
        WireFormatError: it is null, of another version, too short or too long.
    """
    if value is not None and len(START) <= len(value) <= MAX_TRAIL_BYTES and value[0] == VERSION:
        return value
    raise WireFormatError(_why_not(value))


def entry_starts(value: bytes) -> list[int]:
    """Find where each entry of a value that is :func:`present` begins, by their lengths alone.

    Raises:
        WireFormatError: a length that no entry has, or the value ends within an entry.
    """
    size = len(value)
    starts: list[int] = []
    at = 3
    try:
        while at < size:
            starts.append(at)
            length = value[at] << 8 | value[at + 1]
            if not _MIN_ENTRY_BYTES <= length <= MAX_ENTRY_BYTES:
                message = f"{TRAIL_HEADER}: entry {len(starts) - 1} claims {length} bytes, not 9 to 1289"
                raise WireFormatError(message)
            at += 2 + length
    except IndexError:
        at = size + 1
    if at != size:
        message = f"{TRAIL_HEADER}: ends within entry {len(starts) - 1}"
        raise WireFormatError(message)
    return starts


def completed(entry: bytes, flags: int, texts: bytes) -> bytes | None:
    """Add the produced half to an entry that has only been read; None where it is no such entry.

    Args:
        entry: the last entry of a trail, its length included.
        flags: the flags of what is added.
        texts: its texts.
    """
    found = entry[2]
    if found & _PRODUCED or not found & _READ:
        return None
    return (len(entry) - 2 + len(texts)).to_bytes(2) + bytes((found | flags,)) + entry[3:] + texts


def appended(value: bytes, starts: list[int], entry: bytes, max_entries: int, max_bytes: int) -> bytes:
    """Put an entry at the end of a trail; over a bound, entries in the middle are left out and counted.

    Args:
        value: a trail.
        starts: where its entries begin.
        entry: the new entry, its length included.
        max_entries: how many entries may be there afterwards, two or more.
        max_bytes: how long it may be afterwards, enough for two entries of any size.
    """
    if len(starts) < max_entries and len(value) + len(entry) <= max_bytes:
        return value + entry
    ends = [*starts[1:], len(value)]
    first = value[3 : ends[0]]
    kept = 1
    while kept < len(starts) and (
        len(starts) - kept + 2 > max_entries
        or len(START) + len(first) + len(value) - starts[kept] + len(entry) > max_bytes
    ):
        kept += 1
    left_out = min(int.from_bytes(value[1:3]) + kept - 1, 0xFFFF)
    return b"".join((value[:1], left_out.to_bytes(2), first, value[ends[kept - 1] :], entry))


def _decode_entry(entry: bytes) -> TrailEntry:
    flags, at = entry[0], _MIN_ENTRY_BYTES
    texts: dict[str, str] = {}
    try:
        for flag, name in _TEXTS:
            if flags & flag:
                end = at + 1 + entry[at]
                texts[name] = entry[at + 1 : end].decode()
                at = end
    except (IndexError, UnicodeDecodeError):
        at = -1
    if at != len(entry) or flags & _RESERVED:
        message = f"{TRAIL_HEADER}: an entry of {len(entry)} bytes whose texts do not fit it"
        raise WireFormatError(message)
    return TrailEntry(when_ms=_when.unpack_from(entry, 1)[0], **texts)


def _encode_text(text: str) -> bytes:
    raw = text.encode("utf-8", "replace")
    if len(raw) > _MAX_TEXT_BYTES:
        raw = raw[:_MAX_TEXT_BYTES].decode("utf-8", "ignore").encode()
    return bytes((len(raw),)) + raw


def _why_not(value: bytes | None) -> str:
    if value is None:
        return f"{TRAIL_HEADER}: null"
    if value and value[0] != VERSION:
        return f"{TRAIL_HEADER}: version {value[0]}, expected {VERSION}"
    return f"{TRAIL_HEADER}: {len(value)} bytes, expected {len(START)} to {MAX_TRAIL_BYTES}"
