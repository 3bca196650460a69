"""Keyrings: keys that sign and verify, their files, their rotation and their revocation."""

from headerware.keyring.certificate import Certificate, certify, issuer_jwks, key_thumbprint, read_certificate
from headerware.keyring.file import KeyringFile, Permissions, read_keyring
from headerware.keyring.keyring import (
    Algorithm,
    Key,
    Keyring,
    Status,
    decode_keyring,
    encode_keyring,
    key_id_problem,
)
from headerware.keyring.lifecycle import public_part, with_new_key, with_revocation, with_rotation

__all__ = [
    "Algorithm",
    "Certificate",
    "Key",
    "Keyring",
    "KeyringFile",
    "Permissions",
    "Status",
    "certify",
    "decode_keyring",
    "encode_keyring",
    "issuer_jwks",
    "key_id_problem",
    "key_thumbprint",
    "public_part",
    "read_certificate",
    "read_keyring",
    "with_new_key",
    "with_revocation",
    "with_rotation",
]
