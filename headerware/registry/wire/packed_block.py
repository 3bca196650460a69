"""The packed block: all headers that have ids in one header, ``hw.ids`` (spec/header-ids.md).

    version           "1"
    items             at least 1, until the end of the value; each is a header
        id      number   1 to 2**32 - 1
        length  number   0 if the value is null, else its length and 1
        value   bytes
                      or says that plain headers come here
        mark    number   0
        count   number   how many of the record's next plain headers come here, at least 1

A number is printable ASCII, so that a block of texts is text. It is at most 2**32 - 1, and has one spelling:
for 0 to 29, a character from "!" to ">". For a larger number n: the remainder of n - 30 by 64, as a character
from "?" to "~", and after it the quotient, as a number.

The block has the position of its first header. The plain headers before the block in the record come before
that header. The plain headers after the block come where its items say, or at the end. So an item about plain
headers is neither the first item nor the last, and never follows another such item.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from headerware.core.errors import WireFormatError
from headerware.core.header_ids import MAX_ID
from headerware.core.headers import HeaderValue, Pair

HEADER: Final = "hw.ids"
VERSION: Final = 1
MAX_PACKED: Final = 10_000
"""How many headers a block may hold; without a limit, a small block could hold very many."""
FIXED_BYTES: Final = 1 + len(HEADER) + 5 + 1
"""The largest size of a block without its items: both lengths, its name and the version."""
_LEAST_BYTES: Final = FIXED_BYTES - 4
"""The same size if the length of its value takes one byte and not five."""

Spelling = tuple[bytes, int] | str | None
"""The wire form of a name: its id as a number, and the bytes that this saves; or another name; or None if it
stays as it is."""

_BEGINNING: Final = b"%d" % VERSION
_LAST: Final = ord("!")
_MORE: Final = ord("?")
_ENDS: Final = _MORE - _LAST
_RADIX: Final = 64
_SHORT_SIZES: Final = 1_024


def encode_number(number: int) -> bytes:
    """Write a number, from 0, in as few characters as it takes."""
    written = bytearray()
    while number >= _ENDS:
        number, rest = divmod(number - _ENDS, _RADIX)
        written.append(_MORE + rest)
    written.append(_LAST + number)
    return bytes(written)


_PLAIN: Final = encode_number(0)
_NULL: Final = encode_number(0)
_NUMBERS: Final = tuple(encode_number(number) for number in range(_SHORT_SIZES))


def pack(headers: Iterable[Pair], spellings: Mapping[str, Spelling]) -> tuple[list[Pair], int] | None:
    """Return a record's headers in wire form, and how many bytes of names that saves; None for no change."""
    wire: list[Pair] = []
    parts = [_BEGINNING]
    saved = escaped = 0
    start = -1  # the index of the block in the record
    placed = 0  # the number of plain headers before the latest header of the block
    for pair in headers:
        name, value = pair
        spelling = spellings[name]
        if spelling is None:
            wire.append(pair)
        elif isinstance(spelling, str):
            wire.append((spelling, value))
            escaped += 1
        else:
            plain = len(wire)
            if start < 0:
                start = placed = plain
                saved -= _LEAST_BYTES
            elif plain > placed:
                parts += (_PLAIN, encode_number(plain - placed))
                saved -= 2
                placed = plain
            saved += spelling[1]
            if value is None:
                parts += (spelling[0], _NULL)
            else:
                size = len(value) + 1
                parts += (spelling[0], _NUMBERS[size] if size < _SHORT_SIZES else encode_number(size), value)
    if start >= 0:
        wire.insert(start, (HEADER, b"".join(parts)))
    elif not escaped:
        return None
    return wire, saved - escaped


def unpack(block: HeaderValue, following: Sequence[Pair], names: Mapping[int, str]) -> list[Pair]:
    """Return the headers of a block, merged with the headers that follow it in the record."""
    if block is None:
        raise WireFormatError(f"{HEADER} is null, expected a block of headers")
    if block[:1] != _BEGINNING:
        found = "another version" if block else "no byte"
        raise WireFormatError(f"{HEADER}: expected version {VERSION}, found {found}")
    try:
        return _unpacked(block, following, names)
    except IndexError:
        raise WireFormatError(f"{HEADER} ends within an item, at byte {len(block)}") from None


def _unpacked(block: bytes, following: Sequence[Pair], names: Mapping[int, str]) -> list[Pair]:
    read: list[Pair] = []
    size, at, packed, used = len(block), 1, 0, 0
    last, ends = _LAST, _ENDS
    after_header = False
    while at < size or not after_header:
        # The fast path: one character for most ids, one or two for most lengths. _read_number does the rest.
        header_id = block[at] - last
        at += 1
        if not 0 <= header_id < ends:
            header_id, at = _read_number(block, at - 1)
        length = block[at] - last
        at += 1
        if not 0 <= length < ends:
            above = block[at] - last
            if ends <= length < ends + _RADIX and 0 <= above < ends:
                length += above * _RADIX  # it already has the 30 that were subtracted
                at += 1
            else:
                length, at = _read_number(block, at - 1)
        if header_id:
            packed += 1
            if packed > MAX_PACKED:
                raise WireFormatError(f"{HEADER} holds more than {MAX_PACKED} headers")
            end = at + length - 1 if length else at
            if end > size:
                raise WireFormatError(f"{HEADER}: a value ends {end - size} bytes after the block's end")
            read.append((names[header_id], block[at:end] if length else None))
            at, after_header = end, True
        else:
            if not after_header or not 0 < length <= len(following) - used:
                raise _misplaced(after_header, length, len(following) - used)
            read += following[used : used + length]
            used, after_header = used + length, False
    read += following[used:]
    return read


def _read_number(block: bytes, at: int) -> tuple[int, int]:
    """Return the number that begins at a byte, and where the next item begins."""
    start, number = at, 0
    for weight in _WEIGHTS:
        found = block[at] - _LAST
        at += 1
        if not 0 <= found < _ENDS + _RADIX:
            raise WireFormatError(f"{HEADER}: the byte at {at - 1} is not part of a number")
        number += found * weight
        if number > MAX_ID:
            break
        if found < _ENDS:
            return number, at
    raise WireFormatError(f"{HEADER}: the number at byte {start} is larger than {MAX_ID}")


_WEIGHTS: Final = tuple(_RADIX**power for power in range(7))


def _misplaced(after_header: bool, count: int, left: int) -> WireFormatError:  # noqa: FBT001 - a fact, no option
    """Return the error for an item about plain headers that is misplaced or counts too many."""
    if not after_header:
        return WireFormatError(f"{HEADER}: plain headers stand first, or twice in a row; expected an id")
    return WireFormatError(
        f"{HEADER} says that {count} plain headers come in one place, where {left} are left"
    )
