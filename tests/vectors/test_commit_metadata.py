"""spec/vectors/commit-metadata.json, read and written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headerware.clients.offsets import decode_metadata, encode_metadata

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "spec" / "vectors" / "commit-metadata.json").read_text(encoding="utf-8")
)


def by_name(kind: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", VECTORS[kind], ids=lambda case: case["name"])


class TestCommitMetadataVectors:
    @by_name("cases")
    def test_writes_the_text(self, case: dict[str, Any]) -> None:
        assert encode_metadata(case["watermark"], case["own"]) == case["text"]

    @by_name("cases")
    def test_reads_the_text(self, case: dict[str, Any]) -> None:
        assert decode_metadata(case["text"]) == (case["watermark"], case["own"])

    @by_name("foreign")
    def test_leaves_foreign_text_to_the_application(self, case: dict[str, Any]) -> None:
        assert decode_metadata(case["text"]) == (None, case["text"])
