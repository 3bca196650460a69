"""The identity of a record: header ``hw.id``, version 1, base64 of this layout (spec/dedup.md).

    version   u8   1
    kind      u8   1 or 2
    source    16   kind 1: the producer, drawn at random; kind 2: the scope of the digest
    mark           kind 1: sequence, u64; kind 2: digest, 16 bytes

Integers are big-endian. Scope and digest are the first 16 bytes of SHA-256 over a domain of their own and
the parts, each prefixed with its length as u32.
"""

from __future__ import annotations

import struct
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import msgspec

from headerware.core.dead_letter import CONNECT, HEADERWARE, KAFKA, PREFIXES, SPRING
from headerware.core.errors import InterceptorError, WireFormatError
from headerware.core.header_text import decode_text, encode_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headerware.core.headers import Pair
    from headerware.core.record import Record

ID_HEADER: Final = "hw.id"
SOURCE_BYTES: Final = 16
_DIGEST_BYTES: Final = 16
MARK_AT: Final = 2 + SOURCE_BYTES
NUMBERED: Final = b"\x01\x01"
DERIVED: Final = b"\x01\x02"
_LENGTHS: Final = {NUMBERED: MARK_AT + 8, DERIVED: MARK_AT + _DIGEST_BYTES}
"""The length of an identity, by its first two bytes."""

_VERSION: Final = 1
_SCOPE: Final = b"hw.id scope\x00"
_CONTENT: Final = b"hw.id content\x00"
_DEAD_LETTER: Final = b"hw.id letter\x00"
_MAX_SEQUENCE: Final = 2**64 - 1
_ORIGINS: Final = frozenset(
    prefix + part
    for prefix in (CONNECT, KAFKA, HEADERWARE, f"{SPRING}original-")
    for part in ("topic", "partition", "offset")
)

pack_sequence: Final = struct.Struct(">Q").pack
_pack_length: Final = struct.Struct(">I").pack


class Identity(msgspec.Struct, frozen=True):
    """The identity of a record, the same however often it is sent.

    A record with an identity in ``record.local["dedup"]`` is sent with that identity. :meth:`numbered` and
    :meth:`derived` make the two kinds.

    Args:
        source: 16 bytes: the producer, or the scope within which digests differ.
        sequence: the record's number by that producer, 0 to 2**64 - 1; None if there is a digest.
        digest: 16 bytes made from the record's content; None if there is a sequence.

    Raises:
        WireFormatError: a part has a wrong length or range, or there is not exactly one of sequence and
            digest.
    """

    source: bytes
    sequence: int | None = None
    digest: bytes | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be encoded."""
        if (self.sequence is None) == (self.digest is None):
            found = "neither" if self.digest is None else "both"
            raise WireFormatError(f"expected either a sequence or a digest, found {found}")
        if len(self.source) != SOURCE_BYTES:
            raise WireFormatError(f"expected a source of {SOURCE_BYTES} bytes, found {len(self.source)}")
        if self.digest is not None and len(self.digest) != _DIGEST_BYTES:
            raise WireFormatError(f"expected a digest of {_DIGEST_BYTES} bytes, found {len(self.digest)}")
        if self.sequence is not None and not 0 <= self.sequence <= _MAX_SEQUENCE:
            raise WireFormatError(f"expected a sequence of 0 to 2**64 - 1, found {self.sequence}")

    @classmethod
    def numbered(cls, producer: bytes, sequence: int) -> Identity:
        """Make the identity of a producer's record.

        Args:
            producer: 16 bytes that no other producer has.
            sequence: a number that the producer uses for this record only.

        Raises:
            WireFormatError: a part has a wrong length or range.
        """
        return cls(producer, sequence=sequence)

    @classmethod
    def derived(cls, scope: Iterable[str], parts: Iterable[bytes]) -> Identity:
        """Make an identity from the content of a record; the same content always has the same identity.

        Args:
            scope: texts that distinguish these records from other records with the same parts.
            parts: the facts that identify the record within the scope, in order.
        """
        return cls(scope_of(scope), digest=content_digest(parts))

    def encode(self) -> bytes:
        """Return the header's value: 36 bytes of text with a sequence, 48 with a digest."""
        if self.digest is not None:
            return encode_text(DERIVED + self.source + self.digest)
        assert self.sequence is not None  # noqa: S101 - it has one of the two
        return encode_text(NUMBERED + self.source + pack_sequence(self.sequence))

    @classmethod
    def decode(cls, value: bytes | None) -> Identity:
        """Read a header's value.

        Raises:
            WireFormatError: the value is not an identity of version 1.
        """
        layout = layout_of(value)
        source, mark = layout[2:MARK_AT], layout[MARK_AT:]
        if layout[:2] == DERIVED:
            return cls(source, digest=mark)
        return cls(source, sequence=int.from_bytes(mark))


def layout_of(value: bytes | None) -> bytes:
    """Return the layout that a header's value encodes, after a check of its version and length."""
    layout = decode_text(value, ID_HEADER)
    if _LENGTHS.get(layout[:2]) != len(layout):
        raise WireFormatError(_why_not(layout))
    return layout


def scope_of(texts: Iterable[str]) -> bytes:
    """Return the digest of a scope."""
    return _digest(_SCOPE, [text.encode() for text in texts])


def content_digest(parts: Iterable[bytes]) -> bytes:
    """Return the digest of the parts that identify a record within its scope."""
    return _digest(_CONTENT, parts)


def identity_of(record: Record) -> bytes:
    """Return the identity of a record with ``hw.id``: its layout, and for a dead letter also its origin.

    A dead letter is the refused record, with headers added that state the reason. It must not count as a copy
    of the refused record, neither in the dead-letter topic nor after it is redriven. So its identity also has
    a digest of its topic and origin.
    """
    headers = record.headers
    indexes = [index for index, pair in enumerate(headers) if pair[0] == ID_HEADER]
    if len(indexes) != 1:
        raise InterceptorError(f"expected one {ID_HEADER} header, found {len(indexes)}")
    try:
        layout = layout_of(headers[indexes[0]][1])
    except WireFormatError as error:
        raise InterceptorError(f"its {ID_HEADER} cannot be read: {error}") from error
    reasons = [pair for pair in headers[indexes[0] + 1 :] if pair[0].startswith(PREFIXES)]
    return layout + _dead_letter_digest(record.topic, reasons) if reasons else layout


def _dead_letter_digest(topic: str, reasons: Sequence[Pair]) -> bytes:
    """Return a digest that distinguishes the dead letters of one record by their topic and origin."""
    origin = [part for name, value in reasons if name in _ORIGINS for part in (name.encode(), value or b"")]
    return _digest(_DEAD_LETTER, [topic.encode(), *origin])


def _digest(domain: bytes, parts: Iterable[bytes]) -> bytes:
    hashed = sha256(domain)
    for part in parts:
        hashed.update(_pack_length(len(part)) + part)
    return hashed.digest()[:_DIGEST_BYTES]


def _why_not(layout: bytes) -> str:
    if layout[0] != _VERSION:
        return f"expected version {_VERSION}, found {layout[0]}"
    expected = _LENGTHS.get(layout[:2])
    if expected is None:
        return f"expected kind 1 or 2, found {layout[1] if len(layout) > 1 else 'nothing'}"
    return f"expected {expected} bytes, found {len(layout)}"
