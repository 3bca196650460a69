"""spec/vectors/encrypt.json against the code, and against a plain reading of spec/encrypt.md."""

from __future__ import annotations

import base64
import json
import struct
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, AESSIV
from cryptography.hazmat.primitives.hashes import SHA512
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from headerware.core.errors import DecryptionError, WireFormatError
from headerware.core.header_text import decode_text
from headerware.core.headers import Headers
from headerware.core.record import VERIFIED, Record, Verified
from headerware.interceptors.encrypt.envelope import (
    TAG_BYTES,
    TAIL_BYTES,
    Statement,
    decode_statement,
    deriver,
    opener,
    sealer,
)
from headerware.interceptors.encrypt.fields import field_opener, field_sealer
from headerware.interceptors.encrypt.names import FIELD_PREFIX
from headerware.interceptors.encrypt.record_keys import KeySecret, RecordKeys, decode_key_secret
from headerware.interceptors.encrypt.statement_cache import check_signer

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "spec" / "vectors" / "encrypt.json").read_text(encoding="utf-8")
)
ALWAYS_BOUND = {
    *("hw.compress", "hw.id", "hw.schema", "avro.schema", "avro.schema.key"),
    *("__key_schema_id", "__value_schema_id"),
    *("content-type", "Content-Type", "key-content-type", "Key-Content-Type"),
}


def is_bound(name: str, bound: list[str]) -> bool:
    return name in ALWAYS_BOUND or name.startswith("ce_") or name in bound


def unhex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def prefixed(content: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if content is None else struct.pack(">I", len(content)) + content


def text(content: str) -> bytes:
    return bytes([len(content.encode())]) + content.encode()


def statement_by_the_prose(case: dict[str, Any]) -> bytes:
    out = b"\x01\x01" + text(case["key_id"]) + text(case["key_version"])
    wrapped = bytes.fromhex(case["wrapped_hex"])
    out += struct.pack(">H", len(wrapped)) + wrapped
    out += text(case["cluster"]) + text(case["topic"]) + text(case["signer"])
    out += bytes([case["key_is_encrypted"], len(case["bound"])])
    return bytes(out + b"".join(map(text, case["bound"])))


def derived_by_the_prose(case: dict[str, Any], domain: bytes) -> bytes:
    info = b"\x01" + bytes.fromhex(case["salt_hex"])
    return HKDF(SHA512(), 64, salt=domain, info=info).derive(bytes.fromhex(case["data_key_hex"]))


def authenticated_by_the_prose(case: dict[str, Any]) -> bytes:
    out = b"headerware/hw.encrypt/1" + prefixed(statement_by_the_prose(case))
    out += b"\x01" if case["value_hex"] is None else b"\x00"
    out += prefixed(unhex(case["key_hex"]))
    bound = [pair for pair in case["headers"] if is_bound(pair[0], case["bound"])]
    out += struct.pack(">I", len(bound))
    for name, content in bound:
        out += prefixed(name.encode()) + prefixed(unhex(content))
    return out


def sealed_by_the_prose(case: dict[str, Any]) -> tuple[bytes, bytes | None]:
    """Return the layout and the value to send."""
    derived = derived_by_the_prose(case, b"headerware/hw.encrypt/1")
    sealed = AESGCM(derived[:32]).encrypt(
        bytes(12), unhex(case["value_hex"]) or b"", authenticated_by_the_prose(case)
    )
    layout = statement_by_the_prose(case) + bytes.fromhex(case["salt_hex"]) + derived[32:]
    return (layout + sealed, None) if case["value_hex"] is None else (layout, sealed)


def field_context_by_the_prose(case: dict[str, Any]) -> bytes:
    out = b"headerware/hw.field/1" + prefixed(statement_by_the_prose(case))
    out += b"\x01" + prefixed(unhex(case["key_hex"])) if case["key_is_bound"] else b"\x00"
    out += bytes([len(case["path"])])
    for step in case["path"]:
        kind, shown = (b"\x01", str(step)) if isinstance(step, int) else (b"\x00", step)
        out += kind + prefixed(shown.encode())
    return out


def field_by_the_prose(case: dict[str, Any]) -> str:
    derived = derived_by_the_prose(case, b"headerware/hw.field/1")
    sealed = AESGCM(derived[:32]).encrypt(
        bytes(12), bytes.fromhex(case["messagepack_hex"]), field_context_by_the_prose(case)
    )
    tail = bytes.fromhex(case["salt_hex"]) + derived[32:] + sealed
    parts = (base64.b64encode(part).decode() for part in (statement_by_the_prose(case), tail))
    return "hw-encrypted:" + ".".join(parts)


def record_key_by_the_prose(case: dict[str, Any]) -> bytes:
    domain, topic = b"headerware/hw.key/1", case["topic"].encode()
    key = HKDF(SHA512(), 64, salt=domain, info=topic).derive(bytes.fromhex(case["secret_hex"]))
    return AESSIV(key).encrypt(bytes.fromhex(case["key_hex"]), [domain, topic])


def statement_of(case: dict[str, Any]) -> Statement:
    return Statement(
        key_id=case["key_id"],
        key_version=case["key_version"],
        wrapped=bytes.fromhex(case["wrapped_hex"]),
        cluster=case["cluster"],
        topic=case["topic"],
        signer=case["signer"],
        key_is_encrypted=bool(case["key_is_encrypted"]),
        bound=tuple(case["bound"]),
    )


def headers_of(case: dict[str, Any]) -> Headers:
    return Headers([(name, unhex(value)) for name, value in case["headers"]])


def opened(case: dict[str, Any]) -> bytes | None:
    """Decrypt a record as it came."""
    layout = decode_text(case["wire"].encode(), "hw.encrypt")
    value = unhex(case["wire_value_hex"])
    end = len(layout) - TAIL_BYTES - (TAG_BYTES if value is None else 0)
    statement = decode_statement(layout[: max(0, end)])
    unseal = opener(bytes.fromhex(case["data_key_hex"]), layout[:end], statement.bound)
    return unseal(layout[end:], unhex(case["key_hex"]), value, headers_of(case))


def named(cases: list[dict[str, Any]]) -> Any:
    return pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in cases])


@named(VECTORS["cases"])
class TestRecords:
    def test_the_prose_gives_the_vector(self, case: dict[str, Any]) -> None:
        layout, value = sealed_by_the_prose(case)
        assert authenticated_by_the_prose(case).hex() == case["authenticated_hex"]
        assert layout.hex() == case["layout_hex"]
        assert value == unhex(case["wire_value_hex"])
        assert base64.b64encode(layout).decode() == case["wire"]

    def test_the_code_writes_it(self, case: dict[str, Any]) -> None:
        statement = statement_of(case)
        seal = sealer(bytes.fromhex(case["data_key_hex"]), statement.encode(), statement.bound)
        wire, value = seal(
            bytes.fromhex(case["salt_hex"]),
            unhex(case["key_hex"]),
            unhex(case["value_hex"]),
            headers_of(case),
        )
        assert wire.decode() == case["wire"]
        assert value == unhex(case["wire_value_hex"])

    def test_the_code_reads_it(self, case: dict[str, Any]) -> None:
        assert opened(case) == unhex(case["value_hex"])
        assert decode_statement(statement_by_the_prose(case)) == statement_of(case)

    def test_keys_are_those_of_hkdf(self, case: dict[str, Any]) -> None:
        derive = deriver(bytes.fromhex(case["data_key_hex"]))
        assert derive(bytes.fromhex(case["salt_hex"])) == derived_by_the_prose(
            case, b"headerware/hw.encrypt/1"
        )


@named(VECTORS["refused"])
class TestRefused:
    def test_with_this_reason(self, case: dict[str, Any]) -> None:
        with pytest.raises((DecryptionError, WireFormatError)) as refused:
            opened(case)
        assert case["because"] in str(refused.value)


@named(VECTORS["signers"])
class TestSigners:
    def test_are_compared_if_one_is_stated(self, case: dict[str, Any]) -> None:
        key_id = case["verified"]
        verified = None if key_id is None else Verified(key_id, 1, 0, "prod", "orders", bytes(8), 1)
        record = Record("orders", b"v", local={} if verified is None else {VERIFIED: verified})
        statement = Statement("orders", "1", b"w", "prod", "orders", case["stated"])
        signer_of = {True: "", False: None}[case["reader_verifies"]]
        with pytest.raises(DecryptionError) if case["refused"] else nullcontext():
            check_signer(statement, record, lambda _topic: signer_of)


@named(VECTORS["fields"])
class TestFields:
    def test_the_prose_gives_the_vector(self, case: dict[str, Any]) -> None:
        assert field_context_by_the_prose(case).hex() == case["authenticated_hex"]
        assert field_by_the_prose(case) == case["text"]

    def test_the_code_writes_it(self, case: dict[str, Any]) -> None:
        seal = field_sealer(bytes.fromhex(case["data_key_hex"]), statement_of(case).encode())
        assert case["text"] == seal(
            bytes.fromhex(case["salt_hex"]),
            b"\x01" + prefixed(unhex(case["key_hex"])) if case["key_is_bound"] else b"\x00",
            tuple(case["path"]),
            bytes.fromhex(case["messagepack_hex"]),
        )

    def test_the_code_reads_it(self, case: dict[str, Any]) -> None:
        statement, tail = case["text"].removeprefix(FIELD_PREFIX).split(".")
        unseal = field_opener(bytes.fromhex(case["data_key_hex"]), base64.b64decode(statement))
        plain = unseal(
            base64.b64decode(tail),
            b"\x01" + prefixed(unhex(case["key_hex"])) if case["key_is_bound"] else b"\x00",
            tuple(case["path"]),
        )
        assert plain.hex() == case["messagepack_hex"]


@named(VECTORS["record_keys"])
class TestRecordKeys:
    def test_the_prose_gives_the_vector(self, case: dict[str, Any]) -> None:
        assert record_key_by_the_prose(case).hex() == case["wire_hex"]

    def test_the_code_writes_and_reads_it(self, case: dict[str, Any]) -> None:
        keys = RecordKeys(bytes.fromhex(case["secret_hex"]))
        assert keys.encrypt(case["topic"], bytes.fromhex(case["key_hex"])) == bytes.fromhex(case["wire_hex"])
        assert keys.decrypt(case["topic"], bytes.fromhex(case["wire_hex"])) == bytes.fromhex(case["key_hex"])

    def test_null_and_empty_stay(self, case: dict[str, Any]) -> None:
        keys = RecordKeys(bytes.fromhex(case["secret_hex"]))
        assert keys.encrypt(case["topic"], None) is keys.decrypt(case["topic"], None) is None
        assert keys.encrypt(case["topic"], b"") == keys.decrypt(case["topic"], b"") == b""


@named(VECTORS["key_secrets"])
class TestKeySecrets:
    def test_both_ways(self, case: dict[str, Any]) -> None:
        secret = KeySecret(case["key_id"], bytes.fromhex(case["wrapped_hex"]))
        assert secret.encode() == case["text"]
        assert decode_key_secret(case["text"]) == secret
