"""spec/vectors/signature.json against the interceptor, and against a plain reading of spec/signature.md."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import struct
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256

from headerware.core.context import Context
from headerware.core.errors import SignatureError
from headerware.core.headers import Headers
from headerware.core.record import Record, Verified
from headerware.interceptors.sign import Sign, SignStep
from headerware.keyring import Key, Keyring, KeyringFile, encode_keyring

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "spec" / "vectors" / "signature.json").read_text(encoding="utf-8")
)
NULL = 0xFFFFFFFF
P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def unhex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def headers_of(case: dict[str, Any]) -> Headers:
    return Headers([(name, unhex(value)) for name, value in case["headers"]])


def record_of(case: dict[str, Any], headers: Headers) -> Record:
    return Record(
        case["topic"],
        unhex(case["value_hex"]),
        unhex(case["key_hex"]),
        headers,
        partition=case.get("partition", 0),
        offset=case.get("offset", 0),
    )


def statement_by_the_prose(case: dict[str, Any]) -> bytes:
    out = b"\x01"
    out += bytes([len(case["key_id"].encode())]) + case["key_id"].encode()
    out += struct.pack(">H", case["key_version"])
    for text in (case["cluster"], case["topic"]):
        out += bytes([len(text.encode())]) + text.encode()
    out += struct.pack(">q", case["signed_at_ms"])
    out += bytes.fromhex(case["producer_hex"])
    return bytes(out + struct.pack(">Q", case["sequence"]))


def signed_by_the_prose(case: dict[str, Any]) -> bytes:
    def prefixed(value: bytes | None) -> bytes:
        return struct.pack(">I", NULL) if value is None else struct.pack(">I", len(value)) + value

    key, value = unhex(case["key_hex"]), unhex(case["value_hex"])
    out = b"headerware/hw.sig/1" + prefixed(case["algorithm"].encode())
    out += prefixed(statement_by_the_prose(case))
    out += struct.pack(">I", NULL if key is None else len(key))
    out += struct.pack(">I", NULL if value is None else len(value))
    out += struct.pack(">I", len(case["headers"]))
    out += (key or b"") + (value or b"")
    for name, content in case["headers"]:
        out += prefixed(name.encode()) + prefixed(unhex(content))
    return out


def signature_by_the_prose(case: dict[str, Any], key: dict[str, Any]) -> bytes:
    if case["algorithm"] == "hmac-sha256":
        return hmac.new(bytes.fromhex(key["secret_hex"]), signed_by_the_prose(case), hashlib.sha256).digest()
    private = bytes.fromhex(key["private_hex"])
    if case["algorithm"] == "ed25519":
        return Ed25519PrivateKey.from_private_bytes(private).sign(signed_by_the_prose(case))
    number = ec.derive_private_key(int.from_bytes(private, "big"), ec.SECP256R1())
    deterministic = ec.ECDSA(SHA256(), deterministic_signing=True)
    r, s = utils.decode_dss_signature(number.sign(signed_by_the_prose(case), deterministic))
    return r.to_bytes(32, "big") + min(s, P256_ORDER - s).to_bytes(32, "big")


def key_of(fields: dict[str, Any]) -> Key:
    return Key(
        id=fields["id"],
        version=fields["version"],
        algorithm=fields["algorithm"],
        status=fields["status"],
        created=datetime(2026, 1, 1, tzinfo=UTC),
        secret=unhex(fields.get("secret_hex")),
        private=unhex(fields.get("private_hex")),
        public=unhex(fields.get("public_hex")),
        revoked_from=fields.get("revoked_from", {}),
    )


@pytest.fixture
def keyring_path(tmp_path: Path) -> Path:
    path = tmp_path / "keyring.json"
    path.write_bytes(encode_keyring(Keyring(keys=tuple(map(key_of, VECTORS["keys"])))))
    path.chmod(0o600)
    return path


def step_for(path: Path, case: dict[str, Any]) -> SignStep:
    context = Context(now_ms=lambda: int(case.get("signed_at_ms", 0)))
    return SignStep(
        Sign(
            keyring=str(path),
            key_id=case.get("key_id"),
            cluster=case.get("own_cluster", case.get("cluster")) or None,
            accept_origins=tuple(case.get("accept_origins", ())),
        ),
        context,
        KeyringFile(path),
        producer=unhex(case.get("producer_hex")),
        sequence=case.get("sequence", 0),
    )


def thumbprint_of(case: dict[str, Any]) -> str:
    """Return the thumbprint of the vectors' key: RFC 8037's, appendix A.3, is known; HMAC has none."""
    known = {
        "ed25519": "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k",
        "ecdsa-p256": "3ypMR_bB1TaN7enS8lf--ao9jKCFLXYB_v6mDXxXfN0",
    }
    return known.get(case["algorithm"], "")


def names(kind: str) -> list[str]:
    return [case["name"] for case in VECTORS[kind]]


@pytest.mark.parametrize("case", VECTORS["cases"], ids=names("cases"))
class TestSignatureVectors:
    def test_signs_as_written(self, case: dict[str, Any], keyring_path: Path) -> None:
        step = step_for(keyring_path, case)
        signed = step.on_send(record_of(case, headers_of(case)))
        assert signed.headers[-1] == ("hw.sig", case["wire"].encode())

    def test_verifies_what_is_written(self, case: dict[str, Any], keyring_path: Path) -> None:
        headers = headers_of(case)
        arrived = record_of(case, headers.add("hw.sig", case["wire"]))
        read = step_for(keyring_path, case).on_consume(arrived)
        assert read.replace(local=None) == record_of(case, headers)
        assert read.verified == Verified(
            case["key_id"],
            case["key_version"],
            case["signed_at_ms"],
            case["cluster"],
            case["topic"],
            bytes.fromhex(case["producer_hex"]),
            case["sequence"],
            thumbprint=thumbprint_of(case),
        )

    def test_the_signed_bytes_follow_the_prose(self, case: dict[str, Any]) -> None:
        assert signed_by_the_prose(case).hex() == case["signed_hex"]

    def test_the_header_follows_the_prose(self, case: dict[str, Any]) -> None:
        (key,) = (
            key
            for key in VECTORS["keys"]
            if (key["id"], key["version"]) == (case["key_id"], case["key_version"])
        )
        wire = statement_by_the_prose(case) + signature_by_the_prose(case, key)
        assert wire.hex() == case["layout_hex"]
        assert base64.b64encode(wire).decode() == case["wire"]


class TestRefusedSignatures:
    @pytest.mark.parametrize("case", VECTORS["refused"], ids=names("refused"))
    def test_is_refused(self, case: dict[str, Any], keyring_path: Path) -> None:
        with pytest.raises(SignatureError):
            step_for(keyring_path, case).on_consume(record_of(case, headers_of(case)))

    @pytest.mark.parametrize("case", VECTORS["accepted"], ids=names("accepted"))
    def test_its_harmless_neighbour_is_accepted(self, case: dict[str, Any], keyring_path: Path) -> None:
        arrived = step_for(keyring_path, case).on_consume(record_of(case, headers_of(case)))
        given = headers_of(case)
        assert arrived.headers == Headers(given[: given.names().index("hw.sig")])
