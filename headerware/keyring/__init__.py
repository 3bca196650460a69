"""Keyrings: keys that sign and verify, their files, their rotation and their revocation."""

from headerware.keyring.file import KeyringFile, Permissions, read_keyring
from headerware.keyring.jwks import encode_jwks
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
    "Key",
    "Keyring",
    "KeyringFile",
    "Permissions",
    "Status",
    "decode_keyring",
    "encode_jwks",
    "encode_keyring",
    "key_id_problem",
    "public_part",
    "read_keyring",
    "with_new_key",
    "with_revocation",
    "with_rotation",
]
