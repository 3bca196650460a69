"""spec/vectors/keyring.json: which files are keyrings, and what a key may vouch for."""

from __future__ import annotations

import base64
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from headerware import Context
from headerware.core.errors import InvalidWrappedKeyError, KeyringError
from headerware.keyring import (
    Key,
    Keyring,
    decode_keyring,
    encode_keyring,
    encode_snapshot,
    sign_snapshot,
    verify_snapshot,
)
from headerware.keyring.services import FileKeys
from headerware.keyring.services.file import wrap_under

VECTORS = json.loads((Path(__file__).parents[2] / "spec/vectors/keyring.json").read_text(encoding="utf-8"))


def cases(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", VECTORS[name], ids=[case["name"] for case in VECTORS[name]])


class TestKeyringVectors:
    @cases("accepted")
    def test_accepted_both_ways(self, case: dict[str, Any]) -> None:
        keyring = decode_keyring(case["text"].encode())
        assert decode_keyring(encode_keyring(keyring)) == keyring
        assert len(keyring.keys) == len(json.loads(case["text"])["keys"])

    @cases("refused")
    def test_refused(self, case: dict[str, Any]) -> None:
        with pytest.raises(KeyringError, match="is no keyring: "):
            decode_keyring(case["text"].encode())

    @cases("use")
    def test_what_a_key_may_vouch_for(self, case: dict[str, Any]) -> None:
        key = msgspec.convert(case["key"], Key)
        refusal = key.refusal(case["topic"], case["signed_at_ms"], case["now_ms"])
        assert (refusal is None) is case["may"]

    @cases("current")
    def test_which_version_signs_or_wraps(self, case: dict[str, Any]) -> None:
        keyring = Keyring(keys=msgspec.convert(case["keys"], tuple[Key, ...]))
        try:
            found = keyring.current_key(case["id"], case["use"], case["now_ms"]).version
        except KeyringError:
            found = None
        assert found == case["version"]

    @cases("next")
    def test_which_version_may_come(self, case: dict[str, Any]) -> None:
        keyring = Keyring(keys=msgspec.convert(case["keys"], tuple[Key, ...]))
        assert keyring.may_get(case["id"], case["version"]) is case["may_come"]

    @cases("revoked")
    def test_where_a_revoked_key_still_verifies(self, case: dict[str, Any]) -> None:
        key = msgspec.convert(case["key"], Key)
        position = (case["cluster"], case["topic"], case["partition"], case["offset"])
        assert key.verifies_at(*position) is case["may"]


class TestWrappedKeyVectors:
    """What the key service ``file`` wraps data keys into."""

    @cases("wrapped")
    def test_wrapped_both_ways(self, case: dict[str, Any], tmp_path: Path) -> None:
        key = msgspec.convert(case["key"], Key)
        context, wrapped = bytes.fromhex(case["context"]), bytes.fromhex(case["wrapped"])
        data_key, nonce = bytes.fromhex(case["data_key"]), bytes.fromhex(case["nonce"])
        assert wrap_under(key, data_key, context, nonce=nonce) == wrapped
        assert self.unwrapped(key, wrapped, context, tmp_path) == data_key

    @cases("wrapped_refused")
    def test_refused(self, case: dict[str, Any], tmp_path: Path) -> None:
        key = msgspec.convert(case["key"], Key)
        with pytest.raises(InvalidWrappedKeyError):
            self.unwrapped(key, bytes.fromhex(case["wrapped"]), bytes.fromhex(case["context"]), tmp_path)

    def unwrapped(self, key: Key, wrapped: bytes, context: bytes, folder: Path) -> bytes:
        path = folder / "keys.json"
        path.write_bytes(encode_keyring(Keyring(keys=(key,))))
        path.chmod(0o600)
        return FileKeys(keyring=str(path)).open(Context()).unwrap(key.id, wrapped, context)


class TestSnapshotVectors:
    @cases("snapshots")
    def test_signed_both_ways(self, case: dict[str, Any]) -> None:
        root, public_root = (msgspec.convert(case[name], Key) for name in ("root", "public_root"))
        times = {name: datetime.fromisoformat(case[name]) for name in ("created", "expires")}
        made = sign_snapshot(decode_keyring(case["keyring"].encode()), root, counter=case["counter"], **times)
        assert json.loads(encode_snapshot(made)) == json.loads(case["text"])
        found, keyring = verify_snapshot(case["text"].encode(), Keyring(keys=(public_root,)))
        assert (found, encode_keyring(keyring).decode()) == (made, case["keyring"])
        signed = b"headerware keyring snapshot\0" + bytes.fromhex(case["signed"])
        public_half = Ed25519PublicKey.from_public_bytes(base64.b64decode(case["public_root"]["public"]))
        public_half.verify(base64.b64decode(json.loads(case["text"])["signature"]), signed)

    @cases("snapshots_refused")
    def test_refused(self, case: dict[str, Any]) -> None:
        roots = Keyring(keys=(msgspec.convert(case["public_root"], Key),))
        with pytest.raises(KeyringError):
            verify_snapshot(case["text"].encode(), roots)
