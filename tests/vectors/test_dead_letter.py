"""spec/vectors/dead-letter.json, read and written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headerware.core.chain import Chain
from headerware.core.context import Context
from headerware.core.dead_letter import read_reason, redriven, redrives
from headerware.core.errors import SignatureError, WireFormatError
from headerware.core.headers import EMPTY, Headers
from headerware.core.hooks import DROP
from headerware.core.record import Record
from headerware.ops.stays import decode_stays, encode_stays

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "spec" / "vectors" / "dead-letter.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("case", VECTORS["reasons"], ids=lambda case: case["name"])
def test_a_reason_is_read_as_it_says(case: dict[str, Any]) -> None:
    found = read_reason(Headers([(name, bytes.fromhex(value)) for name, value in case["headers"]]))
    assert (None if found is None else msgspec.to_builtins(found)) == case["reads"]


class Refusing:
    name = "sign"
    on_error = "dead_letter"
    dead_letter_headers = "headerware"

    def on_consume(self, record: Record) -> Record:
        raise SignatureError("no signature")


def test_ours_is_written_so() -> None:
    expected = [(name, bytes.fromhex(value)) for name, value in VECTORS["reasons"][0]["headers"]]
    letters: list[Record] = []
    context = Context(
        publish=letters.append, group_id="billing", cluster_id=lambda: "c1", now_ms=lambda: 1_767_225_602_000
    )
    record = Record(
        "orders",
        b"value",
        headers=redriven(Headers({"a": "1"}), 1, 1_767_225_601_000),
        partition=3,
        offset=42,
        timestamp_ms=1_767_225_600_000,
    )
    assert Chain([Refusing()]).open(context).consume_outcome(record) is DROP
    assert [pair for pair in letters[0].headers if pair[0] != "headerware.redriven"] == expected


@pytest.mark.parametrize("case", VECTORS["counts"], ids=lambda case: case["value"])
def test_a_count(case: dict[str, Any]) -> None:
    value = bytes.fromhex(case["value"])
    assert redrives([("headerware.redriven", value)]) == (case["count"], case["first_ms"])
    if case["count"]:
        assert redriven(EMPTY, case["count"], case["first_ms"]) == (("headerware.redriven", value),)


@pytest.mark.parametrize("case", VECTORS["offsets"], ids=lambda case: str(len(case["stays"])))
def test_offsets(case: dict[str, Any]) -> None:
    expected = case["position"], frozenset(case["stays"])
    assert decode_stays(case["offset"], case["metadata"]) == expected
    offset, metadata = encode_stays(case["position"], set(case["stays"]))
    assert offset == case["offset"]
    assert decode_stays(offset, metadata) == expected


@pytest.mark.parametrize("metadata", VECTORS["refused_offsets"])
def test_other_metadata_is_refused(metadata: str) -> None:
    with pytest.raises(WireFormatError):
        decode_stays(9, metadata)


@pytest.mark.parametrize(("position", "stays"), [(10**17, {0}), (2_000_000, set(range(1_000_001)))])
def test_what_does_not_fit_is_refused_before_it_takes_memory(position: int, stays: set[int]) -> None:
    with pytest.raises(WireFormatError, match="do not fit"):
        encode_stays(position, stays)
