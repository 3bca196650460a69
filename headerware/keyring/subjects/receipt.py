"""Receipts of erasures: what was erased, where and when, signed; an audit can verify it later.

A receipt has the subject's pseudonym, and no name. Its layout is in spec/subject-keys.md.
"""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from headerware.core.errors import KeyringError
from headerware.core.strict_json import decode_json
from headerware.keyring.keyring import Moment
from headerware.keyring.signature import signer, verifier

if TYPE_CHECKING:
    from headerware.keyring.keyring import Key, Keyring
    from headerware.keyring.subjects.store import Subject
    from headerware.keyring.subjects.topic import Erased

RECEIPT_USE: Final = "erasures"
"""The use of keys that sign receipts; keys that sign records do not have it."""
_DOMAIN: Final = b"headerware/hw.erasure/1"
_LENGTH: Final = struct.Struct(">I").pack


class Receipt(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The receipt of an erasure.

    Args:
        cluster: the id of the cluster.
        topic: the topic of subjects' keys.
        pseudonym: the subject's pseudonym there, in hexadecimal.
        generation: the number of the subject's erasure.
        erased: when it was erased.
        keys: how many keys were erased.
        offset: the offset of the erasure's record; None if the subject had been erased before.
        key_id: the id of the key that signed the receipt, or None.
        key_version: that key's version, or None.
        signature: the signature, or nothing.
    """

    version: Literal[1] = 1
    cluster: str
    topic: str
    pseudonym: str
    generation: int
    erased: Moment
    keys: int
    offset: int | None
    key_id: str | None = None
    key_version: int | None = None
    signature: bytes = b""


def receipt_of(erased: Erased, *, cluster: str, topic: str) -> Receipt:
    """Return the receipt of an erasure, unsigned."""
    row = erased.row
    return Receipt(
        cluster=cluster,
        topic=topic,
        pseudonym=row.pseudonym.hex(),
        generation=row.generation,
        erased=datetime.fromtimestamp(row.erased_ms / 1000, UTC),
        keys=row.keys,
        offset=erased.offset,
    )


def sign_receipt(receipt: Receipt, key: Key) -> Receipt:
    """Return a receipt, signed with a key whose use is ``erasures``.

    Raises:
        KeyringError: the key cannot sign.
    """
    unsigned = msgspec.structs.replace(receipt, key_id=key.id, key_version=key.version)
    return msgspec.structs.replace(unsigned, signature=signer(key, _DOMAIN)(_signed_bytes(unsigned)))


def encode_receipt(receipt: Receipt) -> bytes:
    """Return a receipt as JSON."""
    return msgspec.json.format(msgspec.json.encode(receipt), indent=2) + b"\n"


def decode_receipt(text: bytes, *, source: str = "receipt") -> Receipt:
    """Return the receipt in a JSON text, or raise KeyringError."""
    try:
        receipt = decode_json(text, Receipt)
        if len(bytes.fromhex(receipt.pseudonym)) == 16 and receipt.pseudonym == receipt.pseudonym.lower():
            return receipt
    except ValueError:
        pass
    raise KeyringError(f"{source} is no receipt of an erasure: headerware keys erase makes them")


def verify_receipt(receipt: Receipt, keyring: Keyring) -> None:
    """Verify the signature of a receipt with a trusted keyring.

    Raises:
        KeyringError: it is not signed, or not by a key of the keyring that may sign receipts.
    """
    if receipt.key_id is None or receipt.key_version is None:
        raise KeyringError("the receipt is not signed: headerware keys erase --sign-with signs it")
    key = keyring.verifying_key(receipt.key_id, receipt.key_version)
    name = f"key {key.id!r} version {key.version}"
    if RECEIPT_USE not in key.use:
        raise KeyringError(f"{name} is for {', '.join(key.use)}, not for {RECEIPT_USE}")
    if key.status == "revoked":
        raise KeyringError(f"{name} is revoked")
    begins, ends = key.limits_ms
    if not begins <= receipt.erased.timestamp() * 1000 <= ends:
        raise KeyringError(f"{name} was not valid at {receipt.erased.isoformat()}")
    if not verifier(key, _DOMAIN)(_signed_bytes(receipt), receipt.signature):
        raise KeyringError(f"the receipt was changed, or was not signed by {name}")


def contradiction(receipt: Receipt, subject: Subject) -> str | None:
    """Return what the topic says against a receipt, or None if it says the same.

    Args:
        receipt: the receipt.
        subject: what the topic has under the receipt's pseudonym, read to the end.
    """
    erasure = subject.erasure
    if erasure is None or erasure.generation < receipt.generation:
        return "the topic does not have this erasure: it may have been restored to an earlier state"
    if erasure.generation == receipt.generation and (erasure.erased_ms, erasure.keys) != (
        round(receipt.erased.timestamp() * 1000),
        receipt.keys,
    ):
        return (
            "the topic has another erasure of the same number, as if the subject was erased twice at once: "
            "run headerware keys erase again for a receipt of the one that stayed"
        )
    if subject.others:
        count = len(subject.others)
        return f"{count} erased keys still have a row in the topic: run headerware keys erase again"
    return None


def _signed_bytes(receipt: Receipt) -> bytes:
    parts = (
        receipt.version,
        receipt.cluster,
        receipt.topic,
        receipt.pseudonym,
        receipt.generation,
        receipt.erased.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.")
        + f"{receipt.erased.microsecond // 1000:03}Z",
        receipt.keys,
        receipt.offset,
        receipt.key_id,
        receipt.key_version,
    )
    texts = [b"" if part is None else str(part).encode() for part in parts]
    return b"".join(_LENGTH(len(text)) + text for text in texts)
