"""Keys made ready for use: what can be computed once for a key and a fixed beginning is computed once."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from headerware.core.errors import KeyringError

if TYPE_CHECKING:
    from hashlib import _Hash

    from headerware.keyring.keyring import Algorithm, Key

SIGNATURE_BYTES: Final[dict[Algorithm, int]] = {"hmac-sha256": 32, "ed25519": 64}

Sign = Callable[[bytes], bytes]
"""Signs the fixed beginning followed by what it is given."""
Verify = Callable[[bytes, bytes], bool]
"""Tells whether a signature (second) is that of the fixed beginning followed by the first argument."""

_CopyState = Callable[[], "_Hash"]

_BLOCK_BYTES: Final = 64
_INNER: Final = bytes(byte ^ 0x36 for byte in range(256))
_OUTER: Final = bytes(byte ^ 0x5C for byte in range(256))


def signer(key: Key, beginning: bytes) -> Sign:
    """Make a key ready to sign what begins in a fixed way.

    Args:
        key: a key with its secret or private half.
        beginning: what everything that will be signed begins with.

    Raises:
        KeyringError: the key has only its public half.
    """
    if key.secret is not None:
        return _hmac_signer(key.secret, beginning)
    if key.private is not None:
        return _ed25519_signer(key.private, beginning)
    raise KeyringError(f"key {key.id!r} version {key.version} has only its public half and cannot sign")


def verifier(key: Key, beginning: bytes) -> Verify:
    """Make a key ready to verify what begins in a fixed way.

    Args:
        key: the key; its algorithm counts, whatever a record may say.
        beginning: what everything that will be verified begins with.
    """
    if key.secret is not None:
        return _hmac_verifier(key.secret, beginning)
    return _ed25519_verifier(key, beginning)


def public_half(private: bytes) -> bytes:
    """Return the public half of an Ed25519 private key, 32 bytes each."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415 - heavy, and HMAC needs none
        Ed25519PrivateKey,
    )

    return Ed25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def _hmac_signer(secret: bytes, beginning: bytes) -> Sign:
    copy_inner, copy_outer = _hmac_states(secret, beginning)

    def sign(rest: bytes) -> bytes:
        inner = copy_inner()
        inner.update(rest)
        outer = copy_outer()
        outer.update(inner.digest())
        return outer.digest()

    return sign


def _hmac_verifier(secret: bytes, beginning: bytes) -> Verify:
    copy_inner, copy_outer = _hmac_states(secret, beginning)
    same = hmac.compare_digest

    def verify(rest: bytes, signature: bytes) -> bool:
        inner = copy_inner()
        inner.update(rest)
        outer = copy_outer()
        outer.update(inner.digest())
        return same(outer.digest(), signature)

    return verify


def _hmac_states(secret: bytes, beginning: bytes) -> tuple[_CopyState, _CopyState]:
    # RFC 2104, from hash states that are copied: half the cost of hmac.digest for small records.
    block = (sha256(secret).digest() if len(secret) > _BLOCK_BYTES else secret).ljust(_BLOCK_BYTES, b"\0")
    return sha256(block.translate(_INNER) + beginning).copy, sha256(block.translate(_OUTER)).copy


def _ed25519_signer(private: bytes, beginning: bytes) -> Sign:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415 - heavy, and HMAC needs none
        Ed25519PrivateKey,
    )

    sign = Ed25519PrivateKey.from_private_bytes(private).sign
    return lambda rest: sign(beginning + rest)


def _ed25519_verifier(key: Key, beginning: bytes) -> Verify:
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - heavy, and HMAC needs none
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415 - likewise
        Ed25519PublicKey,
    )

    half = public_half(key.private) if key.private is not None else key.public
    check = Ed25519PublicKey.from_public_bytes(half or b"").verify

    def verify(rest: bytes, signature: bytes) -> bool:
        try:
            check(signature, beginning + rest)
        except InvalidSignature:
            return False
        return True

    return verify
