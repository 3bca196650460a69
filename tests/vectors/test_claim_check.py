"""spec/vectors/claim-check.json, read and written."""

from __future__ import annotations

import hashlib
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headerware import ClaimError, Context
from headerware.core.headers import Headers
from headerware.core.record import Record
from headerware.interceptors import Claim, ClaimCheck, decode_claim
from headerware.interceptors.claim_check import CLAIM_HEADER, STUB
from headerware.object_store import FolderObjects

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "spec" / "vectors" / "claim-check.json").read_text(encoding="utf-8")
)


def by_name(kind: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", VECTORS[kind], ids=lambda case: case["name"])


def optional(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def claim_of(case: dict[str, Any]) -> Claim:
    content = bytes.fromhex(case["object_hex"])
    digest = hashlib.sha256(content).digest()
    return Claim(case["store"], case["topic"], bytes.fromhex(case["object_id_hex"]), digest, len(content))


def stored(folder: Path, name: str, content: bytes) -> None:
    (folder / name).parent.mkdir()
    (folder / name).write_bytes(content)


class TestClaimCheckVectors:
    def test_covers_every_kind(self) -> None:
        assert bytes.fromhex(VECTORS["stub_hex"]) == STUB
        assert len(VECTORS["cases"]) >= 6
        assert len(VECTORS["refused"]) >= 45

    @by_name("cases")
    def test_writes_the_header(self, case: dict[str, Any]) -> None:
        assert claim_of(case).encode().decode() == case["header"]
        assert claim_of(case).name == case["object_name"]

    @by_name("cases")
    def test_reads_the_header(self, case: dict[str, Any]) -> None:
        assert decode_claim(case["header"].encode()) == claim_of(case)

    @by_name("cases")
    def test_fetches_the_object(self, case: dict[str, Any], tmp_path: Path) -> None:
        content = bytes.fromhex(case["object_hex"])
        stored(tmp_path, case["object_name"], content)
        options = ClaimCheck(stores={case["store"]: FolderObjects(path=str(tmp_path))})
        headers = Headers([("a", b"1"), (CLAIM_HEADER, case["header"])])
        with closing(options.open(Context())) as step:
            found = step.on_consume(Record(case["topic"], STUB, headers=headers))
        assert (found.value, found.headers) == (content, Headers([("a", b"1")]))

    @by_name("refused")
    def test_refuses(self, case: dict[str, Any], tmp_path: Path) -> None:
        known = VECTORS["refused_with"]
        stored(tmp_path, known["object_name"], bytes.fromhex(known["object_hex"]))
        options = ClaimCheck(
            stores={known["store"]: FolderObjects(path=str(tmp_path))},
            max_object_bytes=known["max_object_bytes"],
        )
        headers = Headers([(CLAIM_HEADER, case["header"])] * case.get("headers", 1))
        with closing(options.open(Context())) as step, pytest.raises(ClaimError, match=case["reason"]):
            step.on_consume(Record(known["topic"], optional(case["value_hex"]), headers=headers))
