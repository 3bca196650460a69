"""spec/vectors/trail.json, read and written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headerware.core.context import Context
from headerware.core.errors import WireFormatError
from headerware.core.headers import Headers
from headerware.core.record import Record
from headerware.interceptors.trail import (
    TRAIL_HEADER,
    Trail,
    TrailEntry,
    TrailReading,
    decode_trail,
    encode_trail,
    read_trail,
    shortened,
)

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "spec" / "vectors" / "trail.json").read_text(encoding="utf-8")
)


def by_name(kind: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", VECTORS[kind], ids=lambda case: case["name"])


def reading_of(case: dict[str, Any]) -> TrailReading:
    return TrailReading(tuple(TrailEntry(**entry) for entry in case["entries"]), case["left_out"])


class TestTrailVectors:
    def test_covers_every_kind(self) -> None:
        assert {kind: len(VECTORS[kind]) for kind in ("cases", "appended", "completed", "refused")} == {
            "cases": 19,
            "appended": 9,
            "completed": 2,
            "refused": 38,
        }

    @by_name("cases")
    def test_writes_the_text(self, case: dict[str, Any]) -> None:
        assert encode_trail(reading_of(case)).decode() == case["wire"]

    @by_name("cases")
    def test_reads_the_text(self, case: dict[str, Any]) -> None:
        assert decode_trail(case["wire"].encode()) == reading_of(case)

    @by_name("appended")
    def test_appends_within_the_bounds(self, case: dict[str, Any]) -> None:
        whole = (case["before"] + case["entry"]).encode()
        assert shortened(whole, case["max_entries"], case["max_bytes"]).decode() == case["after"]

    @by_name("completed")
    def test_completes_what_was_read(self, case: dict[str, Any]) -> None:
        step = Trail(service="another", cluster=case["produced_into_cluster"]).open(Context())
        headers = Headers([(TRAIL_HEADER, case["before"])])
        sent = step.on_send(Record(case["produced_into_topic"], b"", headers=headers))
        assert sent.headers == Headers([(TRAIL_HEADER, case["after"])])

    @by_name("refused")
    def test_refuses(self, case: dict[str, Any]) -> None:
        value = bytes.fromhex(case["wire_hex"]) if "wire_hex" in case else case["wire"]
        with pytest.raises(WireFormatError, match=case["reason"]):
            read_trail([(TRAIL_HEADER, value)])
