"""spec/vectors/json.json: which texts are JSON of the profile of files that decide who is trusted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headerware.core.strict_json import decode_json

VECTORS = json.loads((Path(__file__).parents[2] / "spec/vectors/json.json").read_text(encoding="utf-8"))


def cases(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", VECTORS[name], ids=[case["name"] for case in VECTORS[name]])


def content(case: dict[str, str]) -> bytes:
    return bytes.fromhex(case["hex"]) if "hex" in case else case["text"].encode()


class TestJsonVectors:
    @cases("accepted")
    def test_accepted(self, case: dict[str, str]) -> None:
        found: Any = decode_json(content(case), object)
        assert found == json.loads(case["text"])

    @cases("refused")
    def test_refused(self, case: dict[str, str]) -> None:
        with pytest.raises(ValueError, match=r"."):
            decode_json(content(case), object)
