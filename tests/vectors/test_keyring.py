"""spec/vectors/keyring.json: which files are keyrings, and what a key may vouch for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headerware.core.errors import KeyringError
from headerware.keyring import Key, decode_keyring, encode_keyring

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
