"""spec/vectors/encrypt-headers.json against the code, and against a plain reading of spec/encrypt.md."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, AESSIV
from cryptography.hazmat.primitives.hashes import SHA512
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from headerware.core.chain import Chain
from headerware.core.context import Context
from headerware.core.errors import DecryptionError, InvalidWrappedKeyError, WireFormatError
from headerware.core.headers import Headers
from headerware.core.record import Record
from headerware.interceptors import Encrypt
from headerware.interceptors.encrypt.envelope import sealer
from headerware.interceptors.encrypt.record_keys import KeySecret, RecordKeys
from headerware.interceptors.encrypt.secret_headers import BlockCipher, decode_block, hidden
from headerware.keyring.services import Wrapped
from tests.vectors.test_encrypt import (
    derived_by_the_prose,
    named,
    prefixed,
    sealed_by_the_prose,
    statement_by_the_prose,
    statement_of,
    text,
    unhex,
)

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "spec" / "vectors" / "encrypt-headers.json").read_text(encoding="utf-8")
)
Pairs = list[tuple[str, bytes | None]]


def pairs_of(found: list[list[Any]]) -> Pairs:
    return [(name, unhex(value)) for name, value in found]


def deterministic_by_the_prose(case: dict[str, Any], name: str, value: bytes | None) -> bytes | None:
    if not value:
        return value
    domain, topic = b"headerware/hw.header/1", case["topic"].encode()
    key = HKDF(SHA512(), 64, salt=domain, info=topic).derive(bytes.fromhex(case["secret_hex"]))
    return base64.b64encode(AESSIV(key).encrypt(value, [domain, topic, name.encode()]))


def block_by_the_prose(case: dict[str, Any]) -> bytes | None:
    """Return the block before its encryption; None if nothing is encrypted."""
    names = {name for name, _ in case["headers"]}
    deterministic = sorted(names.intersection(case["deterministic"]))
    out = bytes([len(deterministic)]) + b"".join(map(text, deterministic))
    for index, (name, value) in enumerate(case["headers"]):
        if name in case["secret"]:
            out += struct.pack(">I", index) + text(name) + prefixed(unhex(value))
    return None if out == b"\0" else out


def block_authenticated_by_the_prose(case: dict[str, Any]) -> bytes:
    return b"headerware/hw.secret/1" + prefixed(statement_by_the_prose(case))


def record_by_the_prose(case: dict[str, Any]) -> tuple[Pairs, bytes | None]:
    """Return the headers and the value to send."""
    headers: Pairs = []
    for name, value in pairs_of(case["headers"]):
        if name in case["deterministic"]:
            value = deterministic_by_the_prose(case, name, value)  # noqa: PLW2901 - the value to send
        if name not in case["secret"]:
            headers.append((name, value))
    block = block_by_the_prose(case)
    if block is not None:
        key = derived_by_the_prose(case, b"headerware/hw.encrypt/1")[:32]
        sealed = AESGCM(key).encrypt(bytes(11) + b"\1", block, block_authenticated_by_the_prose(case))
        headers.append(("hw.secret", base64.b64encode(b"\1" + sealed)))
    on_wire = [[name, None if value is None else value.hex()] for name, value in headers]
    layout, value = sealed_by_the_prose({**case, "headers": on_wire})
    return [*headers, ("hw.encrypt", base64.b64encode(layout))], value


class Service:
    """A key service that holds the keys of one vector, and wraps nothing."""

    def __init__(self, case: dict[str, Any]) -> None:
        scope = f"{case['cluster']}/{case['topic']}".encode()
        self._keys = {(bytes.fromhex(case["wrapped_hex"]), scope): bytes.fromhex(case["data_key_hex"])}
        if case["secret_hex"] is not None:
            self._keys[b"secret", b"record keys"] = bytes.fromhex(case["secret_hex"])

    def wrap(self, key_id: str, data_key: bytes, context: bytes) -> Wrapped:
        raise NotImplementedError

    def unwrap(self, key_id: str, wrapped: bytes, context: bytes) -> bytes:
        try:
            return self._keys[wrapped, context]
        except KeyError:
            raise InvalidWrappedKeyError("it was not wrapped here for this context") from None

    def close(self) -> None:
        """Close nothing."""


def read(case: dict[str, Any]) -> Record:
    """Read a record as it arrives."""
    options: dict[str, Any] = {"headers": tuple(case.get("requires", ()))}
    if case["secret_hex"] is not None:
        secret = KeySecret(case["key_id"], b"secret").encode()
        options |= {"deterministic_headers": tuple(case["deterministic"]), "key_secret": secret}
    encrypt = Encrypt(key_service=Service(case), key_ids=(case["key_id"],), cluster="prod-1", **options)
    wire = Record(
        case["topic"],
        unhex(case["wire_value_hex"]),
        unhex(case["key_hex"]),
        Headers(pairs_of(case["wire_headers"])),
    )
    [record] = Chain([encrypt]).open(Context(side="consumer")).consume([wire])
    return record


@named(VECTORS["cases"])
class TestRecords:
    def test_the_prose_gives_the_vector(self, case: dict[str, Any]) -> None:
        assert unhex(case["block_hex"]) == block_by_the_prose(case)
        assert unhex(case["block_authenticated_hex"]) == block_authenticated_by_the_prose(case)
        assert record_by_the_prose(case) == (pairs_of(case["wire_headers"]), unhex(case["wire_value_hex"]))

    def test_the_code_writes_it(self, case: dict[str, Any]) -> None:
        data_key, salt = bytes.fromhex(case["data_key_hex"]), bytes.fromhex(case["salt_hex"])
        statement, derived = statement_of(case), None
        keys = RecordKeys(unhex(case["secret_hex"]) or b"")
        left, block = hidden(
            Headers(pairs_of(case["headers"])),
            case["secret"],
            case["deterministic"],
            lambda name, value: keys.encrypt_header(case["topic"], name, value),
        )
        assert block == (unhex(case["block_hex"]) or b"")
        if block:
            cipher = BlockCipher(data_key, statement.encode())
            derived = cipher.derive(salt)
            left = (*left, ("hw.secret", cipher.encrypt(derived, block)))
        seal = sealer(data_key, statement.encode(), statement.bound)
        header, value = seal(salt, unhex(case["key_hex"]), unhex(case["value_hex"]), left, derived)
        assert [*left, ("hw.encrypt", header)] == pairs_of(case["wire_headers"])
        assert value == unhex(case["wire_value_hex"])

    def test_the_code_reads_it(self, case: dict[str, Any]) -> None:
        record = read(case)
        assert record.value == unhex(case["value_hex"])
        assert record.headers == Headers(pairs_of(case["headers"]))


@named(VECTORS["moved"])
class TestMoved:
    def test_headers_come_back(self, case: dict[str, Any]) -> None:
        assert read(case).headers == Headers(pairs_of(case["headers"]))


@named(VECTORS["refused"])
class TestRefused:
    def test_with_this_reason(self, case: dict[str, Any]) -> None:
        with pytest.raises(DecryptionError) as refused:
            read(case)
        assert case["because"] in str(refused.value)


@named(VECTORS["blocks_refused"])
class TestBlocks:
    def test_are_refused_with_this_reason(self, case: dict[str, Any]) -> None:
        with pytest.raises(WireFormatError) as refused:
            decode_block(bytes.fromhex(case["block_hex"]))
        assert case["because"] in str(refused.value)


@named(VECTORS["deterministic"])
class TestDeterministic:
    def test_the_prose_gives_the_vector(self, case: dict[str, Any]) -> None:
        value = deterministic_by_the_prose(case, case["header"], unhex(case["value_hex"]))
        assert value == unhex(case["wire_hex"])

    def test_the_code_writes_and_reads_it(self, case: dict[str, Any]) -> None:
        keys = RecordKeys(bytes.fromhex(case["secret_hex"]))
        named = case["topic"], case["header"]
        assert keys.encrypt_header(*named, unhex(case["value_hex"])) == unhex(case["wire_hex"])
        assert keys.decrypt_header(*named, unhex(case["wire_hex"])) == unhex(case["value_hex"])
