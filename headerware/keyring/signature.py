"""The layout of ``hw.sig``, which is base64 on the wire, and of what a signature covers (spec/signature.md).

    hw.sig        u8      version, 1
                  u8 + n  key id, UTF-8
                  u16     key version
                  u8 + n  cluster id, UTF-8; empty where the signer did not know it
                  u8 + n  topic, UTF-8
                  i64     time of signing, milliseconds since the epoch
                  8       producer id, random for each session
                  u64     sequence of the record in its session
                  n       signature: 32 bytes for hmac-sha256, 64 for ed25519

    signed        19      "headerware/hw.sig/1"
                  u32 + n algorithm, "hmac-sha256" or "ed25519"
                  u32 + n hw.sig as above, up to and without the signature
                  u32     length of the record's key, 0xFFFFFFFF for null
                  u32     length of its value, 0xFFFFFFFF for null
                  u32     number of headers that stand before hw.sig
                  n       key
                  n       value
                  then for each of these headers, in order:
                  u32 + n name, UTF-8
                  u32 + n value, 0xFFFFFFFF and nothing for null

Numbers are big-endian. The part up to the topic is the statement; it is the same for all records of a key
and a topic, so that both ends prepare it once. Time, producer and sequence are the stamp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

import msgspec

from headerware.core.edge import is_own
from headerware.core.errors import SignatureError, WireFormatError
from headerware.core.headers import Pair

if TYPE_CHECKING:
    from headerware.keyring.keyring import Algorithm

HEADER: Final = "hw.sig"
VERSION: Final = 1
DOMAIN: Final = b"headerware/hw.sig/1"
STAMP_BYTES: Final = 24
STATEMENT_FIXED_BYTES: Final = 6
"""The statement without its key id, cluster and topic."""

_TEXT_MAX_BYTES: Final = 255
_NULL: Final = 0xFFFFFFFF
_NAMES_MAX: Final = 4096
_SIZES_MAX: Final = 4096
_NAME_BYTES_MAX: Final = 256

_u16 = Struct(">H")
_u32 = Struct(">I").pack
_NULL_LENGTH: Final = _u32(_NULL)
_stamp = Struct(">q8sQ")


class Statement(msgspec.Struct, frozen=True):
    """Say by which key, for which cluster and which topic a record was signed.

    Args:
        key_id: the key's name.
        key_version: its version.
        cluster: the cluster's id, or an empty text where the signer did not know it.
        topic: the topic.
    """

    key_id: str
    key_version: int
    cluster: str
    topic: str

    def encode(self) -> bytes:
        """Write the statement.

        Raises:
            WireFormatError: a text of more than 255 bytes, or a version that is no u16.
        """
        if not 0 <= self.key_version <= 0xFFFF:
            raise WireFormatError(f"a key version is a u16, not {self.key_version}")
        place = _text("cluster id", self.cluster) + _text("topic", self.topic)
        return bytes((VERSION,)) + _text("key id", self.key_id) + _u16.pack(self.key_version) + place


def decode_statement(value: bytes) -> tuple[Statement, int]:
    """Read the statement that a value of ``hw.sig`` begins with, and where it ends.

    Raises:
        WireFormatError: another version, text that is no UTF-8, or a value that is cut off.
    """
    if value[:1] != bytes((VERSION,)):
        raise WireFormatError("its first byte is not version 1")
    key_id, at = _read_text(value, 1)
    if at + _u16.size > len(value):
        raise WireFormatError("it is cut off in the key version")
    (key_version,) = _u16.unpack_from(value, at)
    cluster, at = _read_text(value, at + _u16.size)
    topic, at = _read_text(value, at)
    if len(value) <= at + STAMP_BYTES:
        raise WireFormatError("it is cut off behind the topic")
    return Statement(key_id, key_version, cluster, topic), at


def beginning(algorithm: Algorithm, statement: bytes) -> bytes:
    """Return what the signed bytes begin with, up to the stamp; it is fixed for a key and a topic."""
    name = algorithm.encode()
    return b"".join((DOMAIN, _u32(len(name)), name, _u32(len(statement) + STAMP_BYTES), statement))


encode_stamp: Final[Callable[[int, bytes, int], bytes]] = _stamp.pack
"""Write the stamp: time in milliseconds since the epoch, 8 bytes of producer id, sequence."""


decode_stamp: Final[Callable[[bytes], Any]] = _stamp.unpack
"""Read the stamp: time, producer id, sequence."""


class _Names(dict[str, bytes]):
    """Names with their length prefixes; those already met cost one look-up."""

    def __missing__(self, name: str) -> bytes:
        if name == HEADER:
            raise SignatureError("the record carries more than one hw.sig")
        text = name.encode()
        prefixed = _u32(len(text)) + text
        if len(self) < _NAMES_MAX and len(text) <= _NAME_BYTES_MAX:
            self[name] = prefixed
        return prefixed


class _Sizes(dict[int, bytes]):
    """Lengths as they are written; small ones cost one look-up."""

    def __missing__(self, size: int) -> bytes:
        written = _u32(size)
        if size < _SIZES_MAX:
            self[size] = written
        return written


Rest = Callable[[bytes, bytes | None, bytes | None, tuple[Pair, ...]], bytes]
"""Lays out what is signed after the beginning, from stamp, key, value and the headers before ``hw.sig``."""


def rest_of_signed_bytes() -> Rest:
    """Return the function that lays out what is signed after the beginning.

    Each session has its own, for it remembers names that it has met, up to a bound. It raises
    SignatureError where ``hw.sig`` is among the headers.
    """
    names, sizes, join = _Names(), _Sizes(), b"".join
    counts: Callable[[int, int, int], bytes] = Struct(">III").pack

    def rest(stamp: bytes, key: bytes | None, value: bytes | None, headers: tuple[Pair, ...], /) -> bytes:
        parts = [
            stamp,
            counts(_NULL if key is None else len(key), _NULL if value is None else len(value), len(headers)),
            key or b"",
            value or b"",
        ]
        for name, content in headers:
            parts.append(names[name])
            if content is None:
                parts.append(_NULL_LENGTH)
            else:
                parts.append(sizes[len(content)])
                parts.append(content)
        return join(parts)

    return rest


def repeats(covered: Iterable[str], added: Iterable[str]) -> bool:
    """Return whether a header that was added later bears a name that is signed or reserved, in any case.

    The compact keys of reserved names are reserved, too.
    """
    signed = {name.casefold() for name in covered}
    return any(is_own(name) or name.casefold() in signed for name in added)


def _text(what: str, text: str) -> bytes:
    encoded = text.encode()
    if len(encoded) > _TEXT_MAX_BYTES:
        raise WireFormatError(f"the {what} has {len(encoded)} bytes; {_TEXT_MAX_BYTES} are possible")
    return bytes((len(encoded),)) + encoded


def _read_text(value: bytes, at: int) -> tuple[str, int]:
    end = at + 1 + value[at] if at < len(value) else len(value) + 1
    if end > len(value):
        raise WireFormatError("it is cut off")
    try:
        return value[at + 1 : end].decode(), end
    except UnicodeDecodeError:
        raise WireFormatError("it holds text that is no UTF-8") from None
