"""spec/vectors/dead-letter.json, read and written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headerware.core.chain import Chain
from headerware.core.context import Context
from headerware.core.dead_letter import (
    REDRIVEN,
    STUB,
    dead_letters,
    is_dead_letter_topic,
    read_reason,
    redriven,
    redrives,
    without_reason,
)
from headerware.core.errors import SignatureError
from headerware.core.headers import EMPTY, Headers
from headerware.core.hooks import DROP
from headerware.core.record import Record

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "spec" / "vectors" / "dead-letter.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("case", VECTORS["reasons"], ids=lambda case: case["name"])
def test_a_reason_is_read_as_it_says(case: dict[str, Any]) -> None:
    found = read_reason(Headers([(name, bytes.fromhex(value)) for name, value in case["headers"]]))
    assert (None if found is None else msgspec.to_builtins(found)) == case["reads"]


def from_hex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


class Refusing:
    name = "sign"
    on_error = "dead_letter"
    dead_letter_headers = "headerware"

    def on_consume(self, record: Record) -> Record:
        raise SignatureError("no signature")


def letter_in(dialect: str) -> Record:
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
    refusing = Refusing()
    refusing.dead_letter_headers = dialect
    assert Chain([refusing]).open(context).consume_outcome(record) is DROP
    return letters[0]


@pytest.mark.parametrize("case", VECTORS["written"], ids=lambda case: case["dialect"])
def test_a_letter_is_written_so(case: dict[str, Any]) -> None:
    written = letter_in(case["dialect"]).headers
    others = [pair for pair in written if not pair[0].endswith("stacktrace") and pair[0] != REDRIVEN]
    assert others == [(name, bytes.fromhex(value)) for name, value in case["headers"]]
    assert without_reason(written) == Headers({"a": "1"})


@pytest.mark.parametrize("case", VECTORS["stubs"], ids=lambda case: case["name"])
def test_a_stub_is_written_so(case: dict[str, Any]) -> None:
    record = Record(
        "orders",
        from_hex(case["value"]),
        from_hex(case["key"]),
        Headers([(name, from_hex(value)) for name, value in case["headers"]]),
        partition=3,
        offset=42,
    )
    *_, (stub, is_stub) = dead_letters(
        record,
        SignatureError("no signature"),
        stubs=True,
        topic="{topic}.dead-letter",
        names="connect",
        stage="ON_CONSUME",
        group_id=None,
        cluster=None,
        now_ms=0,
    )
    described = [[name, (value or b"").decode()] for name, value in stub.headers if name.startswith(STUB)]
    assert is_stub
    assert (stub.key, stub.value) == (case["stub_key"].encode(), None)
    assert described == case["stub_headers"]


@pytest.mark.parametrize(("pattern", "topic", "goes"), VECTORS["topics"])
def test_letters_go_there(pattern: str, topic: str, goes: bool) -> None:  # noqa: FBT001 - a vector's fact
    assert is_dead_letter_topic(pattern, topic) is goes


@pytest.mark.parametrize("case", VECTORS["counts"], ids=lambda case: case["value"])
def test_a_count(case: dict[str, Any]) -> None:
    value = bytes.fromhex(case["value"])
    assert redrives([("headerware.redriven", value)]) == (case["count"], case["first_ms"])
    if case["count"]:
        assert redriven(EMPTY, case["count"], case["first_ms"]) == (("headerware.redriven", value),)
