"""spec/vectors/expires.json, read and written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headerware import DROP, Context, DelayedError, Headers, InterceptorError, Record, WireFormatError
from headerware.interceptors import Delay, Expire, expires_header, not_before_header
from headerware.interceptors.times.moments import EXPIRES_HEADER, NOT_BEFORE_HEADER, decode_moment

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "spec" / "vectors" / "expires.json").read_text(encoding="utf-8")
)


def by_name(kind: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", VECTORS[kind], ids=lambda case: case["name"])


def record_of(case: dict[str, Any], name: str) -> Record:
    value = None if case.get("tombstone") else b"v"
    headers = Headers([(name, text.encode()) for text in case["headers"]])
    return Record("orders", value, b"k", headers, timestamp_ms=case.get("timestamp_ms"))


class TestExpiresVectors:
    def test_covers_every_kind(self) -> None:
        kinds = ("moments", "refused", "expired", "delayed")
        assert {name: len(VECTORS[name]) for name in kinds} == dict(zip(kinds, (4, 16, 10, 10), strict=True))

    @by_name("moments")
    def test_reads_and_writes_the_text(self, case: dict[str, Any]) -> None:
        wire = case["wire"].encode()
        assert expires_header(case["ms"]) == (EXPIRES_HEADER, wire)
        assert not_before_header(case["ms"]) == (NOT_BEFORE_HEADER, wire)
        assert decode_moment(wire, EXPIRES_HEADER) == case["ms"]

    @by_name("refused")
    def test_refuses(self, case: dict[str, Any]) -> None:
        value = None if case["wire"] is None else case["wire"].encode()
        with pytest.raises(WireFormatError, match=r"hw\.expires"):
            decode_moment(value, EXPIRES_HEADER)

    @by_name("expired")
    def test_judges_lifetimes(self, case: dict[str, Any]) -> None:
        record = record_of(case, EXPIRES_HEADER)
        context = Context(now_ms=lambda: case["now_ms"])
        step = Expire(clock_skew_ms=case["clock_skew_ms"]).open(context)
        outcome = step.on_consume(record)
        assert outcome is (DROP if case["outcome"] == "dropped" else record)
        assert step.stats()["expired"] == (case["outcome"] == "dropped")
        assert step.stats()["malformed"] == (case["outcome"] == "malformed")

    @by_name("delayed")
    def test_judges_moments(self, case: dict[str, Any]) -> None:
        record = record_of(case, NOT_BEFORE_HEADER)
        context = Context(now_ms=lambda: case["now_ms"])
        step = Delay(max_delay_ms=case["max_delay_ms"]).open(context)
        if case["outcome"] in {"delivered", "malformed"}:
            assert step.on_consume(record) is record
        else:
            with pytest.raises(InterceptorError) as refused:
                step.on_consume(record)
            assert isinstance(refused.value, DelayedError) is (case["outcome"] == "waits")
        assert step.stats()["malformed"] == (case["outcome"] == "malformed")
