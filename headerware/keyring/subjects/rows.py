"""The rows of a topic of subjects' keys, and what they wrap (spec/subject-keys.md).

secret        key     u8      1
                      u8      purpose: 1 makes pseudonyms, 2 wraps subjects' keys (a table key)
                      8       id, random
              value   u8      version, 1
                      u64     offset at which the secret was first written; all ones: this row's own offset
                      u8 + n  id of the key-encryption key, UTF-8
                      n       the secret of 32 bytes, as the key service wrapped it

subject key   key     u8      2
                      16      pseudonym
                      8       id, random
              value   u8      version, 1
                      u32     how many erasures of the subject came before
                      8       id of the table key
                      12      nonce, random
                      48      the key of 32 bytes, sealed with AES-256-GCM under the table key

erasure       key     u8      3
                      16      pseudonym
              value   u8      version, 1
                      u32     number of the subject's erasure, from 1 on
                      u64     time of the erasure, milliseconds since the epoch
                      u32     how many keys it erased
                      u8      1 if the subject was readmitted afterwards, else 0

wrapped key   3       "hws"   the data key of hw.encrypt, wrapped under a subject's key
              u8      version, 1
              16      pseudonym
              8       id of the subject's key
              12      nonce, random
              48      the data key of 32 bytes, sealed with AES-256-GCM under the subject's key

Numbers are big-endian.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable
from struct import Struct, error
from typing import Final, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from headerware.core.errors import InvalidWrappedKeyError, WireFormatError

SECRET, SUBJECT_KEY, ERASURE = 1, 2, 3
"""The kinds of rows: the first byte of their keys."""
PSEUDONYMS, TABLE_KEYS = 1, 2
"""The purposes of secrets."""
PSEUDONYM_BYTES: Final = 16
ID_BYTES: Final = 8
KEY_BYTES: Final = 32
MAX_SUBJECT_BYTES: Final = 1024
MAX_GENERATION: Final = 0xFFFFFFFF
OWN_OFFSET: Final = 0xFFFFFFFFFFFFFFFF
_VERSION: Final = 1
_NONCE_BYTES: Final = 12
_SEALED_BYTES: Final = KEY_BYTES + 16
_PSEUDONYM_DOMAIN: Final = b"headerware/hw.subject/1\0"
_KEY_DOMAIN: Final = b"headerware/hw.subject-key/1\0"
_WRAPPED_DOMAIN: Final = b"headerware/hw.subject-wrapped/1\0"
_SECRET_KEY: Final = Struct(">BB8s")
_SECRET_VALUE: Final = Struct(">BQB")
_KEY_KEY: Final = Struct(">B16s8s")
_KEY_VALUE: Final = Struct(">BI8s12s48s")
_ERASURE_KEY: Final = Struct(">B16s")
_ERASURE_VALUE: Final = Struct(">BIQIB")
_WRAPPED: Final = Struct(">3sB16s8s12s48s")
_MAGIC: Final = b"hws"
_LENGTH: Final = Struct(">I").pack


class SecretRow(NamedTuple):
    """A secret of the topic, wrapped by a key service."""

    purpose: int
    id: bytes
    key_id: str
    """The key-encryption key that it is wrapped under."""
    wrapped: bytes
    since: int = OWN_OFFSET
    """The offset at which it was first written."""

    @property
    def row(self) -> tuple[bytes, bytes]:
        """The row's key and value."""
        name = self.key_id.encode()
        head = _SECRET_VALUE.pack(_VERSION, self.since, len(name))
        return _SECRET_KEY.pack(SECRET, self.purpose, self.id), head + name + self.wrapped

    def scope(self, topic: str) -> str:
        """Return the context that the key service authenticates; no record has one without a slash."""
        return f"subject keys:{topic}:{self.purpose}:{self.id.hex()}"


class SubjectKeyRow(NamedTuple):
    """A subject's key, sealed under a table key."""

    pseudonym: bytes
    id: bytes
    generation: int
    """How many erasures of the subject its writer knew of; the key is valid after exactly that many."""
    table_key_id: bytes
    nonce: bytes
    sealed: bytes

    @property
    def row(self) -> tuple[bytes, bytes]:
        """The row's key and value."""
        return (
            _KEY_KEY.pack(SUBJECT_KEY, self.pseudonym, self.id),
            _KEY_VALUE.pack(_VERSION, self.generation, self.table_key_id, self.nonce, self.sealed),
        )

    def open(self, table_key: bytes, topic: str) -> bytes:
        """Return the subject's key.

        Raises:
            InvalidWrappedKeyError: it was not sealed under this table key for this subject, id, generation
                and topic.
        """
        context = _key_context(topic, self.pseudonym, self.id, self.generation, self.table_key_id)
        try:
            return AESGCM(table_key).decrypt(self.nonce, self.sealed, context)
        except InvalidTag:
            raise InvalidWrappedKeyError(
                "the row of its subject's key was changed, or copied from another subject or topic"
            ) from None


class ErasureRow(NamedTuple):
    """The erasure of a subject, which stays in the topic."""

    pseudonym: bytes
    generation: int
    """The number of this erasure of the subject, from 1 on."""
    erased_ms: int
    keys: int
    """How many keys were erased."""
    readmitted: bool = False

    @property
    def row(self) -> tuple[bytes, bytes]:
        """The row's key and value."""
        numbers = (_VERSION, self.generation, self.erased_ms, self.keys, self.readmitted)
        return _ERASURE_KEY.pack(ERASURE, self.pseudonym), _ERASURE_VALUE.pack(*numbers)


class WrappedName(NamedTuple):
    """The subject's key that a wrapped data key names."""

    pseudonym: bytes
    id: bytes


def pseudonym_of(secret: bytes, subject: str) -> bytes:
    """Return the pseudonym of a subject; nobody without the secret can compute it or link it to the name."""
    return hmac.digest(secret, _PSEUDONYM_DOMAIN + subject.encode(), "sha256")[:PSEUDONYM_BYTES]


def seal_subject_key(
    table_key: bytes,
    secret: bytes,
    *,
    topic: str,
    pseudonym: bytes,
    generation: int,
    table_key_id: bytes,
    key_id: bytes | None = None,
    nonce: bytes | None = None,
) -> SubjectKeyRow:
    """Return the row of a subject's new key; id and nonce are random unless a test gives them."""
    key_id = os.urandom(ID_BYTES) if key_id is None else key_id
    nonce = os.urandom(_NONCE_BYTES) if nonce is None else nonce
    context = _key_context(topic, pseudonym, key_id, generation, table_key_id)
    sealed = AESGCM(table_key).encrypt(nonce, secret, context)
    return SubjectKeyRow(pseudonym, key_id, generation, table_key_id, nonce, sealed)


def wrap_data_key(
    subject_key: bytes, data_key: bytes, name: WrappedName, context: bytes, nonce: bytes | None = None
) -> bytes:
    """Return a data key, wrapped under a subject's key for a context."""
    nonce = os.urandom(_NONCE_BYTES) if nonce is None else nonce
    sealed = AESGCM(subject_key).encrypt(nonce, data_key, _wrapped_context(name, context))
    return _WRAPPED.pack(_MAGIC, _VERSION, *name, nonce, sealed)


def unwrap_data_key(subject_key: bytes, wrapped: bytes, context: bytes) -> bytes:
    """Return the data key.

    Raises:
        InvalidWrappedKeyError: it was not wrapped under this key for this subject and context.
    """
    *_, pseudonym, key_id, nonce, sealed = _WRAPPED.unpack(wrapped)
    context = _wrapped_context(WrappedName(pseudonym, key_id), context)
    try:
        return AESGCM(subject_key).decrypt(nonce, sealed, context)
    except InvalidTag:
        raise InvalidWrappedKeyError(
            "it was not wrapped under its subject's key for this context, or was changed"
        ) from None


def is_of_subject(wrapped: bytes) -> bool:
    """Return whether a data key was wrapped under a subject's key, as far as its first bytes say."""
    return wrapped.startswith(_MAGIC)


def name_in(wrapped: bytes) -> WrappedName | None:
    """Return the subject's key that a wrapped data key names; None if a key service wrapped it directly.

    Raises:
        InvalidWrappedKeyError: it cannot be read.
    """
    if not is_of_subject(wrapped):
        return None
    if len(wrapped) != _WRAPPED.size or wrapped[len(_MAGIC)] != _VERSION:
        raise InvalidWrappedKeyError(
            f"expected a data key wrapped under a subject's key, of {_WRAPPED.size} bytes and version "
            f"{_VERSION}; found {len(wrapped)} bytes of another form"
        )
    start = len(_MAGIC) + 1
    return WrappedName(
        wrapped[start : start + PSEUDONYM_BYTES],
        wrapped[start + PSEUDONYM_BYTES : start + PSEUDONYM_BYTES + ID_BYTES],
    )


Row = SecretRow | SubjectKeyRow | ErasureRow


def decode_row(key: bytes, value: bytes) -> Row:
    """Return the row of a record, or raise WireFormatError."""
    decode = _DECODERS.get(key[0] if key else 0)
    if decode is None:
        raise WireFormatError("its key belongs to no kind of row")
    try:
        return decode(key, value)
    except (error, UnicodeDecodeError):
        raise WireFormatError("it does not follow the layout of its kind of row") from None


def pseudonym_in(key: bytes) -> bytes | None:
    """Return the pseudonym in a row's key, or None if the row is of no subject."""
    if len(key) > PSEUDONYM_BYTES and key[0] in {SUBJECT_KEY, ERASURE}:
        return key[1 : 1 + PSEUDONYM_BYTES]
    return None


def _secret(key: bytes, value: bytes) -> SecretRow:
    _, purpose, secret_id = _SECRET_KEY.unpack(key)
    version, since, length = _SECRET_VALUE.unpack_from(value)
    end = _SECRET_VALUE.size + length
    if version != _VERSION or purpose not in {PSEUDONYMS, TABLE_KEYS} or not length or len(value) <= end:
        raise WireFormatError("it is no secret of version 1")
    return SecretRow(purpose, secret_id, value[_SECRET_VALUE.size : end].decode(), value[end:], since)


def _subject_key(key: bytes, value: bytes) -> SubjectKeyRow:
    _, pseudonym, key_id = _KEY_KEY.unpack(key)
    version, *rest = _KEY_VALUE.unpack(value)
    if version != _VERSION:
        raise WireFormatError("it is no subject's key of version 1")
    return SubjectKeyRow(pseudonym, key_id, *rest)


def _erasure(key: bytes, value: bytes) -> ErasureRow:
    _, pseudonym = _ERASURE_KEY.unpack(key)
    version, generation, erased_ms, keys, readmitted = _ERASURE_VALUE.unpack(value)
    if version != _VERSION or not generation or readmitted > 1:
        raise WireFormatError("it is no erasure of version 1")
    return ErasureRow(pseudonym, generation, erased_ms, keys, bool(readmitted))


_DECODERS: Final[dict[int, Callable[[bytes, bytes], Row]]] = {
    SECRET: _secret,
    SUBJECT_KEY: _subject_key,
    ERASURE: _erasure,
}


def _key_context(topic: str, pseudonym: bytes, key_id: bytes, generation: int, table_key_id: bytes) -> bytes:
    return b"".join((_KEY_DOMAIN, pseudonym, key_id, _LENGTH(generation), table_key_id, topic.encode()))


def _wrapped_context(name: WrappedName, context: bytes) -> bytes:
    return b"".join((_WRAPPED_DOMAIN, *name, context))
