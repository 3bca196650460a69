"""The layout of ``hw.encrypt``, which is base64 on the wire, and its cryptography (spec/encrypt.md).

    hw.encrypt    u8      version, 1
                  u8      suite, 1: HKDF-SHA512, AES-256-GCM
                  u8 + n  id of the key-encryption key, UTF-8
                  u8 + n  version of that key, UTF-8; empty if the key service states none
                  u16 + n the data key, wrapped
                  u8 + n  cluster id, UTF-8; empty if the writer did not know it
                  u8 + n  topic, UTF-8
                  u8 + n  id of the key that signs the record, UTF-8; empty if none does
                  u8      the record's key: 0 plain, 1 deterministically encrypted
                  u8      number of names that follow, in ascending order
                  u8 + n  for each: name of a header that is bound, UTF-8
                  24      salt, random for each record
                  32      key commitment
                  16      tag, only if the record's value is null

    keys          HKDF-SHA512 (RFC 5869): input is the data key, salt the domain, info the suite and the
                  record's salt. 64 bytes: 32 of the record's AES-256 key, 32 of the key commitment.

    authenticated 23      domain, "headerware/hw.encrypt/1"
                  u32 + n hw.encrypt up to and without the salt
                  u8      0 for a value, 1 for a null value
                  u32 + n the record's key as it is on the wire, 0xFFFFFFFF and nothing for null
                  u32     number of bound headers that the record has
                  u32 + n name and value of each, in order, 0xFFFFFFFF and nothing for a null value

Numbers are big-endian. The nonce is 12 zero bytes, because each record has a key of its own. The part up to
the salt is the statement; it is the same for all records of a data key and a topic, so both ends prepare it
once.

The signer is authenticated, too. Otherwise somebody could remove a signature, and sign the ciphertext as
their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from hashlib import sha512
from hmac import compare_digest
from struct import Struct
from typing import TYPE_CHECKING, Final, Protocol

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from headerware.core.bounded_cache import BoundedCache
from headerware.core.errors import DecryptionError, WireFormatError
from headerware.core.header_text import encode_text
from headerware.core.hmac_states import CopyState, hmac_states
from headerware.interceptors.encrypt.names import BLOCK_HEADER, ENCRYPT_HEADER

if TYPE_CHECKING:
    from headerware.core.headers import Pair

SALT_BYTES: Final = 24
COMMITMENT_BYTES: Final = 32
TAG_BYTES: Final = 16
TAIL_BYTES: Final = SALT_BYTES + COMMITMENT_BYTES
"""The size of the salt and the key commitment, which follow the statement."""
ALWAYS_BOUND: Final = frozenset({
    *("hw.compress", "hw.id", "hw.schema", "avro.schema", "avro.schema.key"),
    *("content-type", "Content-Type", "key-content-type", "Key-Content-Type"),
    *("__key_schema_id", "__value_schema_id"),
})  # fmt: skip
"""Headers that describe the plaintext; they are bound in every record, and no statement names them."""
EVENT_PREFIX: Final = "ce_"
"""The prefix of CloudEvents' headers, which are always bound, too."""
DOMAIN: Final = b"headerware/hw.encrypt/1"

_KEPT_NAMES: Final = 256
_KEPT_NAMES_BYTES: Final = 1 << 16
_KEPT_CONTEXTS: Final = 64
"""All statements that bind the same headers share what is kept of names; a subject has its own statements."""
MAX_BOUND_HEADERS: Final = 64

_VERSION: Final = 1
_SUITE: Final = 1
_MAX_TEXT_BYTES: Final = 255
_MAX_WRAPPED_BYTES: Final = 0xFFFF
KEY_BYTES: Final = 32
NONCE: Final = bytes(12)
NULL: Final = b"\xff\xff\xff\xff"
_BLOCK_NUMBER: Final = b"\x01"
"""The number of the only block that HKDF expands here: SHA-512 gives all 64 bytes at once."""
_KEY_MODES: Final = (b"\0", b"\x01")
_pack_u16 = Struct(">H").pack
_pack_u32 = Struct(">I").pack


class Statement(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """The part of ``hw.encrypt`` that all records of a data key and a topic share.

    ``key_version``, ``cluster`` and ``signer`` are empty if there is none. ``bound`` has the names of bound
    headers in ascending order, without the headers that are always bound.
    """

    key_id: str
    key_version: str
    wrapped: bytes
    cluster: str
    topic: str
    signer: str = ""
    key_is_encrypted: bool = False
    bound: tuple[str, ...] = ()

    def encode(self) -> bytes:
        """Return the statement's bytes; texts have at most 255 bytes each, a wrapped key 65,535."""
        if not 0 < len(self.wrapped) <= _MAX_WRAPPED_BYTES:
            raise WireFormatError(
                f"expected a wrapped data key of 1 to {_MAX_WRAPPED_BYTES} bytes, found {len(self.wrapped)}"
            )
        return b"".join(
            (
                bytes((_VERSION, _SUITE)),
                short_text("key id", self.key_id),
                short_text("key version", self.key_version),
                _pack_u16(len(self.wrapped)),
                self.wrapped,
                short_text("cluster id", self.cluster),
                short_text("topic", self.topic),
                short_text("signing key's id", self.signer),
                bytes((self.key_is_encrypted, len(self.bound))),
                *(short_text("name of a bound header", name) for name in self.bound),
            )
        )


def decode_statement(statement: bytes) -> Statement:
    """Decode a statement that fills all of the given bytes.

    Raises:
        WireFormatError: it has another version or suite, is cut off, or has extra bytes.
    """
    reader = LayoutReader(statement)
    version, suite = reader.take(2)
    if (version, suite) != (_VERSION, _SUITE):
        raise WireFormatError(f"expected version {_VERSION} and suite {_SUITE}, found {version} and {suite}")
    key_id, key_version = reader.text(), reader.text()
    wrapped = reader.take(int.from_bytes(reader.take(2), "big"))
    cluster, topic, signer = reader.text(), reader.text(), reader.text()
    mode, count = reader.take(2)
    bound = tuple(reader.text() for _ in range(count))
    if not reader.is_at_end():
        raise WireFormatError("it has bytes too many, or too few bytes follow its statement")
    if mode >= len(_KEY_MODES):
        raise WireFormatError(f"expected mode 0 or 1 for the record's key, found mode {mode}")
    if not key_id or not wrapped:
        raise WireFormatError("it names no key, or holds no wrapped data key")
    if list(bound) != sorted(set(bound)):
        raise WireFormatError("its names of bound headers are not in ascending order")
    return Statement(key_id, key_version, wrapped, cluster, topic, signer, bool(mode), bound)


def statement_of(layout: bytes, *, is_null: bool) -> tuple[Statement, int]:
    """Return the statement of a layout, and the index of its end."""
    end = max(0, len(layout) - TAIL_BYTES - TAG_BYTES * is_null)
    return decode_statement(layout[:end]), end


def deriver(data_key: bytes, domain: bytes = DOMAIN) -> Callable[[bytes], bytes]:
    """Return the function that derives a record's 64 bytes of key and commitment from its salt."""
    copy_inner, copy_outer = _states(data_key, domain)

    def derive(salt: bytes) -> bytes:
        inner = copy_inner()
        inner.update(salt + _BLOCK_NUMBER)
        outer = copy_outer()
        outer.update(inner.digest())
        return outer.digest()

    return derive


def _states(data_key: bytes, domain: bytes) -> tuple[CopyState, CopyState]:
    """Return the states of HKDF's expansion; its extraction is done here, once for a data key."""
    extract_inner, extract_outer = hmac_states(sha512, domain, data_key)
    outer = extract_outer()
    outer.update(extract_inner().digest())
    return hmac_states(sha512, outer.digest(), bytes((_SUITE,)))


class Seal(Protocol):
    """Takes salt, key, value and headers, and returns the value of ``hw.encrypt`` and the value to send.

    A caller that has derived the record's 64 bytes already gives them, too.
    """

    def __call__(
        self,
        salt: bytes,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[Pair, ...],
        derived: bytes | None = None,
        /,
    ) -> tuple[bytes, bytes | None]: ...


class Open(Protocol):
    """Takes the bytes after the statement, and the received key, value and headers; returns the plain value.

    A caller that has derived the record's 64 bytes already gives them, too.
    """

    def __call__(
        self,
        tail: bytes,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[Pair, ...],
        derived: bytes | None = None,
        /,
    ) -> bytes | None: ...


def sealer(data_key: bytes, statement: bytes, bound: Iterable[str]) -> Seal:
    """Return the function that encrypts records under a data key and a statement."""
    # The derivation is written out here, because seal() runs for each record.
    copy_inner, copy_outer = _states(data_key, DOMAIN)
    context, to_text = _contexts(tuple(bound)), encode_text
    of_value, of_null = _beginnings(statement)
    cipher, nonce, block_number = AESGCM, NONCE, _BLOCK_NUMBER
    # Base64 encodes three bytes at a time, so all of the statement but its last bytes is encoded once.
    end = len(statement) // 3 * 3
    text, rest = to_text(statement[:end]), statement[end:]

    def seal(
        salt: bytes,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[Pair, ...],
        derived: bytes | None = None,
        /,
    ) -> tuple[bytes, bytes | None]:
        if derived is None:
            inner, outer = copy_inner(), copy_outer()
            inner.update(salt + block_number)
            outer.update(inner.digest())
            derived = outer.digest()
        if value is None:
            tag = cipher(derived[:KEY_BYTES]).encrypt(nonce, b"", context(key, of_null, headers))
            return text + to_text(rest + salt + derived[KEY_BYTES:] + tag), None
        return (
            text + to_text(rest + salt + derived[KEY_BYTES:]),
            cipher(derived[:KEY_BYTES]).encrypt(nonce, value, context(key, of_value, headers)),
        )

    return seal


def opener(data_key: bytes, statement: bytes, bound: Iterable[str]) -> Open:
    """Return the function that decrypts records of a data key and a statement, or raises DecryptionError."""
    # Written out as in sealer(); decrypted() has the same steps.
    copy_inner, copy_outer = _states(data_key, DOMAIN)
    context, same = _contexts(tuple(bound)), compare_digest
    of_value, of_null = _beginnings(statement)
    cipher, nonce, block_number = AESGCM, NONCE, _BLOCK_NUMBER

    def unseal(
        tail: bytes,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[Pair, ...],
        derived: bytes | None = None,
        /,
    ) -> bytes | None:
        if derived is None:
            inner, outer = copy_inner(), copy_outer()
            inner.update(tail[:SALT_BYTES] + block_number)
            outer.update(inner.digest())
            derived = outer.digest()
        if not same(derived[KEY_BYTES:], tail[SALT_BYTES:TAIL_BYTES]):
            raise DecryptionError(_WRONG_KEY)
        try:
            if value is None:
                cipher(derived[:KEY_BYTES]).decrypt(nonce, tail[TAIL_BYTES:], context(key, of_null, headers))
                return None
            return cipher(derived[:KEY_BYTES]).decrypt(nonce, value, context(key, of_value, headers))
        except InvalidTag:
            raise DecryptionError(_CHANGED) from None

    return unseal


def decrypted(derive: Callable[[bytes], bytes], tail: bytes, sealed: bytes, context: bytes) -> bytes:
    """Return the plaintext; ``tail`` begins with the salt and the key commitment, which is compared first.

    Raises:
        DecryptionError: the commitment or the tag does not fit.
    """
    derived = derive(tail[:SALT_BYTES])
    if not compare_digest(derived[KEY_BYTES:], tail[SALT_BYTES:TAIL_BYTES]):
        raise DecryptionError(_WRONG_KEY)
    try:
        return AESGCM(derived[:KEY_BYTES]).decrypt(NONCE, sealed, context)
    except InvalidTag:
        raise DecryptionError(_CHANGED) from None


_WRONG_KEY: Final = (
    "its key commitment does not fit: the data key is another one, or the salt or the commitment was changed"
)
_CHANGED: Final = (
    "its tag does not fit: the value, the key, a bound header or hw.encrypt was changed, or comes from "
    "another record"
)


def _beginnings(statement: bytes) -> tuple[bytes, bytes]:
    """Return the first bytes of the authenticated data, for values and for null values."""
    beginning = DOMAIN + prefixed(statement)
    return beginning + b"\0", beginning + b"\x01"


@lru_cache(_KEPT_CONTEXTS)
def _contexts(
    bound: tuple[str, ...],
) -> Callable[[bytes | None, bytes, tuple[Pair, ...]], bytes]:
    """Return the function that makes the authenticated data of a record, given their first bytes."""
    names, pack, null = ALWAYS_BOUND.union(bound), _pack_u32, NULL

    def prefix(name: str) -> bytes:
        """Return a bound header's name as it is authenticated, and nothing for other names."""
        if name == ENCRYPT_HEADER:
            raise DecryptionError("the record carries more than one hw.encrypt")
        if name == BLOCK_HEADER and name not in names:
            raise DecryptionError("the record carries an hw.secret that its hw.encrypt does not bind")
        return prefixed(name.encode()) if name in names or name.startswith(EVENT_PREFIX) else b""

    # What a sender names is bounded, in number and size.
    prefixes = BoundedCache(_KEPT_NAMES, prefix, max_cost=_KEPT_NAMES_BYTES, cost=lambda name, _: len(name))

    def context(key: bytes | None, beginning: bytes, headers: tuple[Pair, ...]) -> bytes:
        found = [
            before + (null if content is None else pack(len(content)) + content)
            for name, content in headers
            if (before := prefixes[name])
        ]
        key_bytes = null if key is None else pack(len(key)) + key
        return beginning + key_bytes + pack(len(found)) + b"".join(found)

    return context


def prefixed(content: bytes) -> bytes:
    """Return bytes, prefixed with their length."""
    return _pack_u32(len(content)) + content


class LayoutReader:
    """Read a layout from left to right; raise WireFormatError if it is cut off."""

    def __init__(self, layout: bytes) -> None:
        self._layout = layout
        self._at = 0

    def take(self, count: int) -> bytes:
        """Return the next bytes."""
        taken = self._layout[self._at : self._at + count]
        if len(taken) < count:
            raise WireFormatError("it is cut off")
        self._at += count
        return taken

    def text(self) -> str:
        """Return the next text, whose length is in one byte."""
        try:
            return self.take(self.take(1)[0]).decode()
        except UnicodeDecodeError:
            raise WireFormatError("it holds text that is no UTF-8") from None

    def is_at_end(self) -> bool:
        """Return whether all bytes are read."""
        return self._at == len(self._layout)


def short_text(what: str, text: str) -> bytes:
    """Return a text, prefixed with its length in one byte; raise WireFormatError if it is too long."""
    encoded = text.encode()
    if len(encoded) > _MAX_TEXT_BYTES:
        raise WireFormatError(f"the {what} has {len(encoded)} bytes, expected at most {_MAX_TEXT_BYTES}")
    return bytes((len(encoded),)) + encoded
