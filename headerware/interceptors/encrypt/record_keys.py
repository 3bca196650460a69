"""Encrypt record keys and headers so that equal ones stay equal: AES-SIV (RFC 5297), under a lasting secret.

Compaction and partitioning compare a record's key as it is on the wire. So the ciphertext of a key must stay
the same for years, while data keys and key-encryption keys change. The secret is therefore generated once,
and only its wrapping changes.

    key secret    u8      version, 1
                  u8 + n  id of the key-encryption key, UTF-8
                  n       the secret of 32 bytes, wrapped for the scope "record keys"

    SIV key       HKDF-SHA512: input is the secret, salt the domain "headerware/hw.key/1", info the topic
                  in UTF-8; 64 bytes, for AES-256-SIV
    ciphertext    16 + n  AES-SIV of the key; its associated data are the domain and the topic

    header        16 + n  likewise, in base64, with the domain "headerware/hw.header/1"; the associated data
                          are the domain, the topic and the header's name

Null stays null and empty stays empty.
"""

from __future__ import annotations

import os
from base64 import b64encode
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from cryptography.hazmat.primitives.hashes import SHA512
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from headerware.core.bounded_cache import BoundedCache
from headerware.core.errors import DecryptionError, WireFormatError
from headerware.core.header_text import decode_text, encode_text

if TYPE_CHECKING:
    from headerware.keyring.services import KeyService

RECORD_KEY_SCOPE: Final = "record keys"
SIV_TAG_BYTES: Final = 16
_VERSION: Final = 1
_SECRET_BYTES: Final = 32
_KEY_DOMAIN: Final = b"headerware/hw.key/1"
_HEADER_DOMAIN: Final = b"headerware/hw.header/1"
_MAX_TOPICS: Final = 1024


class KeySecret(NamedTuple):
    """The secret under which record keys are encrypted, wrapped, as it is written in configuration."""

    key_id: str
    wrapped: bytes

    def encode(self) -> str:
        """Return the text for the option ``key_secret``."""
        name = self.key_id.encode()
        return b64encode(bytes((_VERSION, len(name))) + name + self.wrapped).decode()


def decode_key_secret(text: str) -> KeySecret:
    """Decode the text of the option ``key_secret``, or raise WireFormatError."""
    layout = decode_text(text.encode(), "key_secret")
    end = 2 + layout[1] if len(layout) > 1 else len(layout)
    if layout[0] != _VERSION or not 2 < end < len(layout):
        raise WireFormatError("expected a wrapped secret of version 1, found something else")
    try:
        return KeySecret(layout[2:end].decode(), layout[end:])
    except UnicodeDecodeError:
        raise WireFormatError("it holds text that is no UTF-8") from None


def new_key_secret(service: KeyService, key_id: str) -> str:
    """Return a new secret for record keys, wrapped, as the text for the option ``key_secret``.

    Args:
        service: the key service that wraps the secret.
        key_id: the key-encryption key to wrap the secret under.

    Raises:
        KeyServiceError: the service does not wrap the secret.
    """
    wrapped = service.wrap(key_id, os.urandom(_SECRET_BYTES), RECORD_KEY_SCOPE.encode())
    return KeySecret(key_id, wrapped.wrapped).encode()


def rewrapped_key_secret(service: KeyService, key_secret: str, key_id: str) -> str:
    """Return the same secret, wrapped again: under another key, or under the newest version of the same key.

    Args:
        service: the key service that holds both keys.
        key_secret: the present text of the option ``key_secret``.
        key_id: the key-encryption key to wrap the secret under.

    Raises:
        KeyServiceError: the service does not unwrap or wrap the secret.
        WireFormatError: the text is not a wrapped secret.
    """
    old = decode_key_secret(key_secret)
    secret = service.unwrap(old.key_id, old.wrapped, RECORD_KEY_SCOPE.encode())
    return KeySecret(key_id, service.wrap(key_id, secret, RECORD_KEY_SCOPE.encode()).wrapped).encode()


_Cipher = tuple[AESSIV, list[bytes]]
"""A topic's cipher, and the associated data that all its uses share."""


class RecordKeys:
    """Encrypt and decrypt record keys, and values of headers; safe for several threads."""

    def __init__(self, secret: bytes) -> None:
        self._ciphers: BoundedCache[str, _Cipher] = BoundedCache(
            _MAX_TOPICS, partial(_cipher, secret, _KEY_DOMAIN)
        )
        self._header_ciphers: BoundedCache[str, _Cipher] = BoundedCache(
            _MAX_TOPICS, partial(_cipher, secret, _HEADER_DOMAIN)
        )

    def encrypt(self, topic: str, key: bytes | None) -> bytes | None:
        """Return the encrypted key; null and empty keys are returned unchanged."""
        if not key:
            return key
        cipher, context = self._ciphers[topic]
        return cipher.encrypt(key, context)

    def decrypt(self, topic: str, key: bytes | None) -> bytes | None:
        """Return the plain key, or raise DecryptionError if the key was not encrypted for the topic."""
        if not key:
            return key
        cipher, context = self._ciphers[topic]
        try:
            return cipher.decrypt(key, context)
        except (InvalidTag, ValueError):
            raise DecryptionError(
                "its key was not encrypted with this key_secret for this topic, or was changed"
            ) from None

    def encrypt_header(self, topic: str, name: str, value: bytes | None) -> bytes | None:
        """Return the encrypted value of a header, as text; null and empty values are returned unchanged."""
        if not value:
            return value
        cipher, context = self._header_ciphers[topic]
        return encode_text(cipher.encrypt(value, [*context, name.encode()]))

    def decrypt_header(self, topic: str, name: str, value: bytes | None) -> bytes | None:
        """Return the plain value of a header; raise DecryptionError if it is for another topic or name."""
        if not value:
            return value
        cipher, context = self._header_ciphers[topic]
        try:
            return cipher.decrypt(decode_text(value, name), [*context, name.encode()])
        except (InvalidTag, ValueError, WireFormatError):
            raise DecryptionError(
                f"its header {name!r} was not encrypted with this key_secret for this topic and name, or was "
                f"changed"
            ) from None


def _cipher(secret: bytes, domain: bytes, topic: str) -> _Cipher:
    info = topic.encode()
    return AESSIV(HKDF(SHA512(), 64, salt=domain, info=info).derive(secret)), [domain, info]
