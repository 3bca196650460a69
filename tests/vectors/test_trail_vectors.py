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
from headerware.interceptors.trail import Trail
from headerware.interceptors.trail_entries import (
    TRAIL_HEADER,
    TrailEntry,
    TrailReading,
    appended,
    decode_trail,
    encode_trail,
    entry_starts,
    read_trail,
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
            "cases": 13,
            "appended": 8,
            "completed": 2,
            "refused": 15,
        }

    @by_name("cases")
    def test_writes_the_bytes(self, case: dict[str, Any]) -> None:
        assert encode_trail(reading_of(case)).hex() == case["wire_hex"]

    @by_name("cases")
    def test_reads_the_bytes(self, case: dict[str, Any]) -> None:
        assert decode_trail(bytes.fromhex(case["wire_hex"])) == reading_of(case)

    @by_name("appended")
    def test_appends_within_the_bounds(self, case: dict[str, Any]) -> None:
        before, entry = bytes.fromhex(case["before_hex"]), bytes.fromhex(case["entry_hex"])
        after = appended(before, entry_starts(before), entry, case["max_entries"], case["max_bytes"])
        assert after.hex() == case["after_hex"]

    @by_name("completed")
    def test_completes_what_was_read(self, case: dict[str, Any]) -> None:
        step = Trail(service="another", cluster=case["produced_into_cluster"]).open(Context())
        headers = Headers([(TRAIL_HEADER, bytes.fromhex(case["before_hex"]))])
        sent = step.on_send(Record(case["produced_into_topic"], b"", headers=headers))
        assert sent.headers == Headers([(TRAIL_HEADER, bytes.fromhex(case["after_hex"]))])

    @by_name("refused")
    def test_refuses(self, case: dict[str, Any]) -> None:
        value = None if case["wire_hex"] is None else bytes.fromhex(case["wire_hex"])
        with pytest.raises(WireFormatError, match=case["reason"]):
            read_trail([(TRAIL_HEADER, value)])
