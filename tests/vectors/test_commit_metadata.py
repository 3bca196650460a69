"""spec/vectors/commit-metadata.json, read and written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headerware.core.commit_metadata import PendingOffsets, decode_metadata, encode_metadata

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "spec" / "vectors" / "commit-metadata.json").read_text(encoding="utf-8")
)


def by_name(kind: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", VECTORS[kind], ids=lambda case: case["name"])


def meaning(case: dict[str, Any]) -> tuple[int | None, frozenset[int], str | None]:
    return case["position"], frozenset(case["pending"]), case["own"]


class TestCommitMetadataVectors:
    @by_name("cases")
    def test_reads_the_text(self, case: dict[str, Any]) -> None:
        assert decode_metadata(case.get("offset", 0), case["text"]) == meaning(case)

    @by_name("cases")
    def test_writes_the_text(self, case: dict[str, Any]) -> None:
        if not case["pending"]:
            assert encode_metadata(case["position"], case["own"]) == case["text"]
            return
        offset, text = PendingOffsets(case["pending"]).encode(case["position"], case["own"])
        assert offset == case["offset"]
        assert decode_metadata(offset, text) == meaning(case)

    @by_name("foreign")
    def test_leaves_foreign_text_to_whoever_commits(self, case: dict[str, Any]) -> None:
        found = decode_metadata(case.get("offset", 0), case["text"])
        assert found == (None, frozenset(), case["text"])
