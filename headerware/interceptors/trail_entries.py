"""The paper trail's wire format: header ``hw.trail``, version 1 (spec/trail.md; seed 004).

    1;left=7,at=1767225600000;by=shop;into=eu/orders,at=1767225601500;by=mirror;from=eu/orders;into=us/orders

    trail  = "1" [";left=" count] *entry          oldest first
    entry  = ",at=" time [";by=" text] [";from=" place] [";into=" place]
    place  = (text / "?") "/" (text / "?")        cluster and topic; "?" is unknown, not both
    count  = 1 to 65,535: entries that were dropped between the first and the second
    time   = milliseconds since the epoch, a signed integer of 64 bits
    text   = up to 255 bytes: letters, digits, "-._~:@#+" and, after "by=", "/"; all else is
             percent-encoded UTF-8

It is ASCII, at most 65,535 bytes, in the manner of HTTP's Forwarded (RFC 7239). An entry is added at the end,
and completed there, without reading what is there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote_to_bytes

import msgspec

from headerware.core.errors import WireFormatError
from headerware.core.headers import Headers, HeadersLike

if TYPE_CHECKING:
    from collections.abc import Iterator

TRAIL_HEADER: Final = "hw.trail"
VERSION: Final = 1
MAX_TRAIL_BYTES: Final = 0xFFFF
MAX_START_BYTES: Final = len(b"1;left=65535")
MAX_ENTRY_BYTES: Final = len(b",at=-9223372036854775808;by=;from=/;into=/") + 5 * 255
START: Final = b"1"
"""A trail without entries."""

_MAX_TEXT_BYTES: Final = 255
_MAX_LEFT_OUT: Final = 0xFFFF
_TIMES: Final = range(-(2**63), 2**63)
_PLAIN: Final = ":@#+"  # beside letters, digits and "-._~"
_UNKNOWN: Final = "?"

_NUMBER = rb"0|-?[1-9][0-9]{0,18}"
_TEXT = rb"[A-Za-z0-9._~:@#+%-]*"
_BY = _TEXT.replace(rb"@#", rb"@#/")
_PLACE = rb"(\?|TEXT)/(\?|TEXT)".replace(b"TEXT", _TEXT)
_start = re.compile(rb"1(?:;left=([1-9][0-9]{0,4}))?")
_entry = re.compile(rb"at=(%b)(?:;by=(%b))?(?:;from=%b)?(?:;into=%b)?" % (_NUMBER, _BY, _PLACE, _PLACE))


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
        """Return one entry; -1 is the latest."""
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
    start, *entries = checked(value).split(b",")
    return TrailReading(tuple(map(_decode_entry, entries, range(len(entries)))), _left_out(start))


def encode_trail(reading: TrailReading) -> bytes:
    """Encode a trail as the value of ``hw.trail``; texts are cut where they take more than 255 bytes.

    Raises:
        WireFormatError: more entries than a trail can hold, or a number out of range.
    """
    if not 0 <= reading.left_out <= _MAX_LEFT_OUT:
        message = f"{TRAIL_HEADER}: the number of entries left out is out of range, 0 to {_MAX_LEFT_OUT}"
        raise WireFormatError(message)
    value = _encode_start(reading.left_out) + b"".join(map(encode_entry, reading.entries))
    if len(value) > MAX_TRAIL_BYTES:
        message = f"{TRAIL_HEADER}: {len(value)} bytes, more than the {MAX_TRAIL_BYTES} of a trail"
        raise WireFormatError(message)
    return value


def encode_entry(entry: TrailEntry) -> bytes:
    """Encode one entry, the comma before it included."""
    if entry.when_ms not in _TIMES:
        message = f"{TRAIL_HEADER}: a time is out of range, signed 64 bits"
        raise WireFormatError(message)
    return b",at=%d%b" % (entry.when_ms, encode_texts(entry))


def encode_texts(entry: TrailEntry) -> bytes:
    """Encode all that an entry says beside its time."""
    by_whom = "" if entry.by_whom is None else f";by={_quoted(entry.by_whom, _PLAIN + '/')}"
    read = _place(";from=", entry.read_from_cluster, entry.read_from_topic)
    return (
        f"{by_whom}{read}{_place(';into=', entry.produced_into_cluster, entry.produced_into_topic)}".encode()
    )


def checked(value: bytes | None) -> bytes:
    """Return a value that an entry may be added to; what its entries say is not looked at.

    Raises:
        WireFormatError: it is null, of another version, too long, or not ASCII.
    """
    if (
        value is not None
        and len(value) <= MAX_TRAIL_BYTES
        and value.isascii()
        and (value.startswith(_BEGINNINGS) or value == START)
    ):
        return value
    raise WireFormatError(_why_not(value))


_BEGINNINGS: Final = (START + b",", START + b";")


def is_completable(value: bytes) -> bool:
    """Return whether the latest entry of a trail has been read and not yet produced."""
    latest = value.rfind(b",")
    return value.find(b";from=", latest) > 0 > value.find(b";into=", latest)


def shortened(value: bytes, max_entries: int, max_bytes: int) -> bytes:
    """Leave out entries from the second on, as few as will do, and count them.

    Args:
        value: a trail; its first and its latest entry stay.
        max_entries: how many entries may be there afterwards, two or more.
        max_bytes: how long it may be afterwards, enough for two entries of any size.

    Raises:
        WireFormatError: an entry is longer than any can be, so that nothing makes the trail short enough.
    """
    start, first, *others = value.split(b",")
    left_out = _left_out(start)
    dropped = max(0, len(others) + 1 - max_entries)
    size = len(first) + 1 + sum(len(entry) + 1 for entry in others[dropped:])
    while len(_encode_start(left_out + dropped)) + size > max_bytes and dropped < len(others) - 1:
        size -= len(others[dropped]) + 1
        dropped += 1
    short = b",".join((_encode_start(left_out + dropped), first, *others[dropped:]))
    if len(short) > max_bytes:
        message = f"{TRAIL_HEADER}: an entry that is longer than {MAX_ENTRY_BYTES} bytes"
        raise WireFormatError(message)
    return short


def _left_out(start: bytes) -> int:
    found = _start.fullmatch(start)
    left_out = int(found[1] or 0) if found else _MAX_LEFT_OUT + 1
    if left_out > _MAX_LEFT_OUT:
        message = f'{TRAIL_HEADER}: expected "1" or "1;left=" and 1 to {_MAX_LEFT_OUT} first'
        raise WireFormatError(message)
    return left_out


def _encode_start(left_out: int) -> bytes:
    return b"%b;left=%d" % (START, min(left_out, _MAX_LEFT_OUT)) if left_out else START


def _decode_entry(entry: bytes, index: int) -> TrailEntry:
    found = _entry.fullmatch(entry)
    try:
        if found is None or int(found[1]) not in _TIMES:
            raise ValueError  # noqa: TRY301 - told in one place
        _, by_whom, *places = found.groups()
        texts = [_unquoted(by_whom, _PLAIN + "/"), *map(_unquoted_part, places)]
        if _EMPTY in (places[:2], places[2:]):
            raise ValueError  # noqa: TRY301
    except ValueError:
        message = (
            f"{TRAIL_HEADER}: entry {index} is malformed, expected at=, by=, from= and into= with texts in "
            f"their one spelling (spec/trail.md)"
        )
        raise WireFormatError(message) from None
    return TrailEntry(
        when_ms=int(found[1]),
        by_whom=texts[0],
        read_from_cluster=texts[1],
        read_from_topic=texts[2],
        produced_into_cluster=texts[3],
        produced_into_topic=texts[4],
    )


_EMPTY: Final = [b"?", b"?"]


def _place(label: str, cluster: str | None, topic: str | None) -> str:
    if cluster is None and topic is None:
        return ""
    return f"{label}{_known(cluster)}/{_known(topic)}"


def _known(text: str | None) -> str:
    return _UNKNOWN if text is None else _quoted(text, _PLAIN)


def _quoted(text: str, plain: str) -> str:
    """Percent-encode a text, cut after the last whole character that fits."""
    quoted = quote(text, plain, errors="replace")
    while len(quoted) > _MAX_TEXT_BYTES:
        text = text[: min(len(text) - 1, _MAX_TEXT_BYTES)]
        quoted = quote(text, plain, errors="replace")
    return quoted


def _unquoted_part(part: bytes | None) -> str | None:
    return None if part == b"?" else _unquoted(part, _PLAIN)


def _unquoted(quoted: bytes | None, plain: str) -> str | None:
    """Read a text; ValueError where it is not UTF-8, too long, or not in its one spelling."""
    if quoted is None:
        return None
    text = unquote_to_bytes(quoted).decode() if b"%" in quoted else quoted.decode()
    if len(quoted) > _MAX_TEXT_BYTES or (b"%" in quoted and quote(text, plain).encode() != quoted):
        raise ValueError
    return text


def _why_not(value: bytes | None) -> str:
    if value is None:
        return f"{TRAIL_HEADER}: null"
    if len(value) > MAX_TRAIL_BYTES:
        return f"{TRAIL_HEADER}: {len(value)} bytes, expected at most {MAX_TRAIL_BYTES}"
    if value.isascii():
        return f"{TRAIL_HEADER}: another version, expected {VERSION}"
    return f"{TRAIL_HEADER}: bytes that are not ASCII; texts are percent-encoded"
