"""The layouts of ``hw.sig``, which is base64 on the wire, and of the signed bytes (spec/signature.md).

    hw.sig        u8      version, 1; 2 for a signature of a batch, see :mod:`headerware.keyring.merkle`
                  u8 + n  key id, UTF-8
                  u16     key version
                  u8 + n  cluster id, UTF-8; empty if the signer did not know it
                  u8 + n  topic, UTF-8
                  i64     time of signing, milliseconds since the epoch
                  8       producer id, random for each session
                  u64     sequence of the record in its session
                  n       signature, as the key's algorithm makes it

    signed        19      "headerware/hw.sig/", and the version as a digit
                  u32 + n algorithm of the key, such as "hmac-sha256"
                  u32 + n hw.sig as above, up to and without the signature
                  u32     length of the record's key, 0xFFFFFFFF for null
                  u32     length of its value, 0xFFFFFFFF for null
                  u32     number of headers before hw.sig
                  n       key
                  n       value
                  then for each of these headers, in order:
                  u32 + n name, UTF-8
                  u32 + n value, 0xFFFFFFFF and nothing for null

Numbers are big-endian. The part up to the topic is the statement; it is the same for all records of a key
and a topic. So writers and readers prepare the key and these bytes once: :func:`signer` and :func:`verifier`
take the fixed beginning, and the functions that they return take the rest. Time, producer id and sequence are
the stamp.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable
from hashlib import sha256
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

import msgspec

from headerware.core.boundary import is_own
from headerware.core.bounded_cache import BoundedCache
from headerware.core.errors import KeyringError, SignatureError, WireFormatError
from headerware.core.headers import Pair
from headerware.core.hmac_states import hmac_states
from headerware.keyring.asymmetric import SCHEMES

if TYPE_CHECKING:
    from headerware.keyring.keyring import Algorithm, Key

SIGNATURE_HEADER: Final = "hw.sig"
STAMP_BYTES: Final = 24
HMAC_BYTES: Final = 32
STATEMENT_FIXED_BYTES: Final = 6
"""The statement without its key id, cluster and topic."""

SINGLE: Final = 1
"""The version of the layout in which each record has its own signature."""
BATCH: Final = 2
"""The version of the layout in which the records of a batch share a signature."""
_DOMAIN: Final = b"headerware/hw.sig/%d"
_MAX_TEXT_BYTES: Final = 255
_ZERO_BYTE: Final = b"\0"
_NULL: Final = 0xFFFFFFFF
_MAX_NAMES: Final = 4096
_MAX_NAMES_BYTES: Final = 1 << 20
_MAX_SIZE: Final = 4096

_u16 = Struct(">H")
_u32 = Struct(">I").pack
_NULL_LENGTH: Final = _u32(_NULL)
_stamp = Struct(">q8sQ")


class Statement(msgspec.Struct, frozen=True):
    """The key that signed a record, and the cluster and topic that it was signed for.

    ``cluster`` is empty if the signer did not know it.
    """

    key_id: str
    key_version: int
    cluster: str
    topic: str

    def encode(self, version: int = SINGLE) -> bytes:
        """Return the bytes of the statement; its texts have at most 255 bytes each, the key version is a u16.

        ``version`` is the version of the layout.
        """
        if not 0 <= self.key_version <= 0xFFFF:
            raise WireFormatError(f"a key version is a u16, not {self.key_version}")
        belongs_to = _text("cluster id", self.cluster) + _text("topic", self.topic)
        return bytes((version,)) + _text("key id", self.key_id) + _u16.pack(self.key_version) + belongs_to


def statement_end(value: bytes) -> int:
    """Return the index after the statement in a value of ``hw.sig``; the length if the value is cut off."""
    try:
        at = 4 + value[1]
        at += 1 + value[at]
        return at + 1 + value[at]
    except IndexError:
        return len(value)


def decode_statement(value: bytes) -> tuple[Statement, int]:
    """Read the statement at the beginning of a value of ``hw.sig``; return it and the index of its end."""
    if value[:1] not in {b"\x01", b"\x02"}:
        raise WireFormatError("its first byte is neither version 1 nor version 2")
    key_id, at = _read_text(value, 1)
    if at + _u16.size > len(value):
        raise WireFormatError("it is cut off in the key version")
    (key_version,) = _u16.unpack_from(value, at)
    cluster, at = _read_text(value, at + _u16.size)
    topic, at = _read_text(value, at)
    if len(value) <= at + STAMP_BYTES:
        raise WireFormatError("it is cut off after the topic")
    return Statement(key_id, key_version, cluster, topic), at


def beginning(
    algorithm: Algorithm, statement: bytes, *, stamped: bool = True, domain: bytes | None = None
) -> bytes:
    """Return the signed bytes up to the stamp; they are the same for all records of a key and a topic.

    ``stamped`` is False for the root of a batch, where no stamp follows the statement. ``domain`` is what is
    signed, if it is not ``hw.sig``; nothing else has a stamp.
    """
    name, size = algorithm.encode(), len(statement) + (STAMP_BYTES if stamped and domain is None else 0)
    domain = _DOMAIN % statement[0] if domain is None else domain
    return b"".join((domain, _u32(len(name)), name, _u32(size), statement))


encode_stamp: Final[Callable[[int, bytes, int], bytes]] = _stamp.pack
"""Write the stamp: time in milliseconds since the epoch, 8 bytes of producer id, sequence."""

decode_stamp: Final[Callable[[bytes], Any]] = _stamp.unpack
"""Read the stamp: time, producer id, sequence."""


class _Sizes(dict[int, bytes]):
    """Encoded lengths by length; only small lengths are kept."""

    def __missing__(self, size: int) -> bytes:
        written = _u32(size)
        if size < _MAX_SIZE:
            self[size] = written
        return written


def _prefixed(name: str) -> bytes:
    """Return the encoded name of a header, with its length before it."""
    if name == SIGNATURE_HEADER:
        raise SignatureError("the record carries more than one hw.sig")
    try:
        text = name.encode()
    except UnicodeEncodeError:
        raise SignatureError("the name of a header cannot be written in UTF-8") from None
    if _ZERO_BYTE in text:
        raise SignatureError("the name of a header has a zero byte, where some clients cut the name off")
    return _u32(len(text)) + text


Rest = Callable[[bytes, bytes | None, bytes | None, tuple[Pair, ...]], bytes]
"""Makes the signed bytes from the stamp on; takes stamp, key, value and the headers before ``hw.sig``."""


def rest_of_signed_bytes() -> Rest:
    """Return a function that makes the signed bytes from the stamp on.

    Each session makes its own function, because the function remembers names of headers. The function raises
    SignatureError if ``hw.sig`` is among the headers.
    """
    names = BoundedCache(
        _MAX_NAMES, _prefixed, max_cost=_MAX_NAMES_BYTES, cost=lambda _name, prefixed: len(prefixed)
    )
    sizes, join = _Sizes(), b"".join
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
    """Return whether a header that was added later has a covered or reserved name; case is ignored.

    Headerware's own header ids are reserved. A name with a zero byte is refused, too, because some clients
    cut the name off there, which can leave a covered name.
    """
    signed = {name.casefold() for name in covered}
    return any("\0" in name or is_own(name) or name.casefold() in signed for name in added)


def _text(what: str, text: str) -> bytes:
    encoded = text.encode()
    if len(encoded) > _MAX_TEXT_BYTES:
        raise WireFormatError(f"the {what} has {len(encoded)} bytes, expected at most {_MAX_TEXT_BYTES}")
    return bytes((len(encoded),)) + encoded


def _read_text(value: bytes, at: int) -> tuple[str, int]:
    end = at + 1 + value[at] if at < len(value) else len(value) + 1
    if end > len(value):
        raise WireFormatError("it is cut off")
    try:
        return value[at + 1 : end].decode(), end
    except UnicodeDecodeError:
        raise WireFormatError("it holds text that is not UTF-8") from None


Sign = Callable[[bytes], bytes]
"""Signs the fixed beginning followed by its argument."""
Verify = Callable[[bytes, bytes], bool]
"""Returns whether the second argument is the signature of the fixed beginning followed by the first."""


def signer(key: Key, beginning: bytes) -> Sign:
    """Return a function that signs with a key; computations on the fixed beginning are done once, here."""
    if key.secret is not None:
        return _hmac_signer(key.secret, beginning)
    if key.private is None:
        raise KeyringError(f"key {key.id!r} version {key.version} has only its public half and cannot sign")
    sign = SCHEMES[key.algorithm].signer(key.private)
    return lambda rest: sign(beginning + rest)


def verifier(key: Key, beginning: bytes) -> Verify:
    """Return a function that verifies with a key and the key's algorithm; a record cannot choose another."""
    if key.secret is not None:
        return _hmac_verifier(key.secret, beginning)
    verify = SCHEMES[key.algorithm].verifier(key.public_half or b"")
    return lambda rest, signature: verify(beginning + rest, signature)


def signature_bytes(key: Key) -> int:
    """Return the length of a key's signatures."""
    if key.algorithm == "hmac-sha256":
        return HMAC_BYTES
    return SCHEMES[key.algorithm].signature_bytes(key.public_half or b"")


def _hmac_signer(secret: bytes, beginning: bytes) -> Sign:
    copy_inner, copy_outer = hmac_states(sha256, secret, beginning)

    def sign(rest: bytes) -> bytes:
        inner = copy_inner()
        inner.update(rest)
        outer = copy_outer()
        outer.update(inner.digest())
        return outer.digest()

    return sign


def _hmac_verifier(secret: bytes, beginning: bytes) -> Verify:
    copy_inner, copy_outer = hmac_states(sha256, secret, beginning)
    same = hmac.compare_digest

    def verify(rest: bytes, signature: bytes) -> bool:
        inner = copy_inner()
        inner.update(rest)
        outer = copy_outer()
        outer.update(inner.digest())
        return same(outer.digest(), signature)

    return verify
