"""Keyrings: keys that sign, verify and wrap, their files, their rotation, revocation and deletion.

Provisional: a minor release may change the names of this package (docs/stability.md).
"""

from headerware.keyring.certificate import (
    Certificate,
    certify,
    key_fingerprint,
    key_thumbprint,
    read_certificate,
)
from headerware.keyring.document import decode_keyring, encode_keyring
from headerware.keyring.file import KeyringFile, Permissions, read_keyring
from headerware.keyring.jwks import encode_jwks
from headerware.keyring.keyring import (
    Algorithm,
    Key,
    Keyring,
    Status,
    key_id_problem,
)
from headerware.keyring.lifecycle import (
    public_part,
    with_deletion,
    with_imported,
    with_new_key,
    with_public_versions,
    with_revocation,
    with_rotation,
)
from headerware.keyring.snapshot import Snapshot, encode_snapshot, sign_snapshot, verify_snapshot

__all__ = [
    "Algorithm",
    "Certificate",
    "Key",
    "Keyring",
    "KeyringFile",
    "Permissions",
    "Snapshot",
    "Status",
    "certify",
    "decode_keyring",
    "encode_jwks",
    "encode_keyring",
    "encode_snapshot",
    "key_fingerprint",
    "key_id_problem",
    "key_thumbprint",
    "public_part",
    "read_certificate",
    "read_keyring",
    "sign_snapshot",
    "verify_snapshot",
    "with_deletion",
    "with_imported",
    "with_new_key",
    "with_public_versions",
    "with_revocation",
    "with_rotation",
]
