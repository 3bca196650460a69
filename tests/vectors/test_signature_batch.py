"""spec/vectors/signature-batch.json against the interceptor, and a plain reading of the prose."""

from __future__ import annotations

import base64
import json
import struct
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from headerware.core.context import Context
from headerware.core.errors import SignatureError
from headerware.core.headers import Headers
from headerware.core.record import Record, Verified
from headerware.interceptors.sign import Sign, SignStep
from headerware.keyring import KeyringFile
from headerware.keyring.merkle import tree
from tests.batches import sent_together
from tests.vectors.test_signature import (
    headers_of,
    keyring_path,
    record_of,
    statement_by_the_prose,
    unhex,
)

__all__ = ["keyring_path"]  # the keys are those of signature.json

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "spec/vectors/signature-batch.json").read_text(encoding="utf-8")
)
_THUMBPRINTS = {
    "ed25519": "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k",
    "ecdsa-p256": "3ypMR_bB1TaN7enS8lf--ao9jKCFLXYB_v6mDXxXfN0",
}
"""Of the vectors' keys, as JWKs (RFC 7638)."""


def prefixed(value: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if value is None else struct.pack(">I", len(value)) + value


def hash_by_the_prose(leaves: list[bytes]) -> bytes:
    """MTH of RFC 9162, section 2.1.1, over leaves that are hashed already."""
    if len(leaves) == 1:
        return leaves[0]
    half = 1 << (len(leaves) - 1).bit_length() - 1
    return sha256(b"\x01" + hash_by_the_prose(leaves[:half]) + hash_by_the_prose(leaves[half:])).digest()


def path_by_the_prose(index: int, leaves: list[bytes]) -> list[bytes]:
    """PATH of RFC 9162, section 2.1.3.1."""
    if len(leaves) == 1:
        return []
    half = 1 << (len(leaves) - 1).bit_length() - 1
    if index < half:
        return [*path_by_the_prose(index, leaves[:half]), hash_by_the_prose(leaves[half:])]
    return [*path_by_the_prose(index - half, leaves[half:]), hash_by_the_prose(leaves[:half])]


def fields_of(batch: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
    shared = {name: value for name, value in batch.items() if name not in {"name", "records"}}
    return {**shared, **record}


def begun_by_the_prose(batch: dict[str, Any], record: dict[str, Any]) -> bytes:
    return b"\x02" + statement_by_the_prose(fields_of(batch, record))[1:]


def leaf_by_the_prose(batch: dict[str, Any], record: dict[str, Any]) -> bytes:
    key, value = unhex(record["key_hex"]), unhex(record["value_hex"])
    out = b"headerware/hw.sig/2" + prefixed(batch["algorithm"].encode())
    out += prefixed(begun_by_the_prose(batch, record))
    for part in (key, value):
        out += prefixed(part)[:4]
    out += struct.pack(">I", len(record["headers"])) + (key or b"") + (value or b"")
    for name, content in record["headers"]:
        out += prefixed(name.encode()) + prefixed(unhex(content))
    return sha256(b"\x00" + out).digest()


def signed_by_the_prose(batch: dict[str, Any], root: bytes) -> bytes:
    statement = begun_by_the_prose(batch, batch["records"][0])[:-24]
    out = b"headerware/hw.sig/2" + prefixed(batch["algorithm"].encode()) + prefixed(statement)
    return out + struct.pack(">H", len(batch["records"])) + root


def step_for(path: Path, case: dict[str, Any]) -> SignStep:
    return SignStep(
        Sign(
            keyring=str(path),
            key_id=case.get("key_id"),
            batch_records=0xFFFF,
            cluster=case.get("own_cluster", case.get("cluster")) or None,
        ),
        Context(now_ms=lambda: int(case.get("signed_at_ms", 0))),
        KeyringFile(path),
        producer=unhex(case.get("producer_hex")),
        sequence=case["records"][0]["sequence"] if "records" in case else 0,
    )


def names(kind: str) -> list[str]:
    return [case["name"] for case in VECTORS[kind]]


@pytest.mark.parametrize("case", VECTORS["trees"], ids=names("trees"))
def test_trees_are_those_of_rfc_9162(case: dict[str, Any]) -> None:
    leaves = [sha256(b"\x00" + bytes.fromhex(leaf)).digest() for leaf in case["leaves_hex"]]
    root, paths = tree(leaves)
    assert root.hex() == case["root_hex"] == hash_by_the_prose(leaves).hex()
    assert [path.hex() for path in paths] == case["paths_hex"]
    assert paths == [b"".join(path_by_the_prose(at, leaves)) for at in range(len(leaves))]


@pytest.mark.parametrize("batch", VECTORS["batches"], ids=names("batches"))
class TestBatchVectors:
    def test_signs_as_written(self, batch: dict[str, Any], keyring_path: Path) -> None:
        step = step_for(keyring_path, batch)
        given = [record_of(fields_of(batch, record), headers_of(record)) for record in batch["records"]]
        signed = sent_together(step, given)
        assert [out.headers[-1] for out in signed if isinstance(out, Record)] == [
            ("hw.sig", record["wire"].encode()) for record in batch["records"]
        ]

    @pytest.mark.parametrize("order", ["forwards", "backwards", "alone"])
    def test_verifies_what_is_written(self, batch: dict[str, Any], keyring_path: Path, order: str) -> None:
        step = step_for(keyring_path, batch)
        for record in batch["records"][:: -1 if order == "backwards" else 1]:
            if order == "alone":
                step = step_for(keyring_path, batch)
            headers = headers_of(record)
            arrived = record_of(fields_of(batch, record), headers.add("hw.sig", record["wire"]))
            read = step.on_consume(arrived)
            assert read.headers == headers
            assert read.verified == Verified(
                batch["key_id"],
                batch["key_version"],
                batch["signed_at_ms"],
                batch["cluster"],
                batch["topic"],
                bytes.fromhex(batch["producer_hex"]),
                record["sequence"],
                thumbprint=_THUMBPRINTS.get(batch["algorithm"], ""),
            )

    def test_follows_the_prose(self, batch: dict[str, Any]) -> None:
        leaves = [leaf_by_the_prose(batch, record) for record in batch["records"]]
        assert [leaf.hex() for leaf in leaves] == [record["leaf_hex"] for record in batch["records"]]
        root = hash_by_the_prose(leaves)
        assert signed_by_the_prose(batch, root).hex() == batch["signed_hex"]
        for index, record in enumerate(batch["records"]):
            layout = begun_by_the_prose(batch, record) + struct.pack(">HH", index, len(leaves))
            layout += b"".join(path_by_the_prose(index, leaves)) + bytes.fromhex(batch["signature_hex"])
            assert layout.hex() == record["layout_hex"]
            assert base64.b64encode(layout).decode() == record["wire"]


class TestRefusedRecords:
    @pytest.mark.parametrize("met_before", [False, True])
    @pytest.mark.parametrize("case", VECTORS["refused"], ids=names("refused"))
    def test_is_refused(self, case: dict[str, Any], keyring_path: Path, *, met_before: bool) -> None:
        step = step_for(keyring_path, case)
        if met_before:  # what was verified of a batch makes nothing else of it pass
            for genuine in VECTORS["batches"][0]["records"]:
                headers = headers_of(genuine).add("hw.sig", genuine["wire"])
                step.on_consume(record_of(fields_of(VECTORS["batches"][0], genuine), headers))
        with pytest.raises(SignatureError):
            step.on_consume(record_of(case, headers_of(case)))

    @pytest.mark.parametrize("case", VECTORS["accepted"], ids=names("accepted"))
    def test_its_harmless_neighbour_is_accepted(self, case: dict[str, Any], keyring_path: Path) -> None:
        arrived = step_for(keyring_path, case).on_consume(record_of(case, headers_of(case)))
        given = headers_of(case)
        assert arrived.headers == Headers(given[: given.names().index("hw.sig")])
