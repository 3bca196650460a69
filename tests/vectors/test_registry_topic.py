from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headerware.core.errors import WireFormatError
from headerware.registry import without_built_in
from headerware.registry.stores.topic import Ledger, decode_change, encode_change
from headerware.topic_table.rows import TableRecord
from headerware.topic_table.snapshot import Snapshot, decode_snapshot, encode_snapshot

VECTORS = json.loads(
    (Path(__file__).parents[2] / "spec" / "vectors" / "registry-topic.json").read_text(encoding="utf-8")
)


def each(part: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", VECTORS[part], ids=lambda case: str(case["name"]))


def test_vectors_are_of_this_format() -> None:
    assert (VECTORS["format"], VECTORS["version"]) == ("registry-topic", 1)


@each("changes")
def test_changes_are_written_so(case: dict[str, Any]) -> None:
    assert encode_change(decode_change(json.dumps(case["means"]).encode())) == case["value"].encode()


@each("changes")
def test_changes_are_read_so(case: dict[str, Any]) -> None:
    assert json.loads(encode_change(decode_change(case["value"].encode()))) == case["means"]


@each("damaged")
def test_damaged_values_are_refused(case: dict[str, Any]) -> None:
    with pytest.raises(WireFormatError):
        decode_change(case["value"].encode())


@each("logs")
def test_logs_come_to_this(case: dict[str, Any]) -> None:
    ledger = Ledger()
    for offset, key, value in case["records"]:
        raw_key, raw_value = key and bytes.fromhex(key), value and value.encode()
        ledger.apply(TableRecord(offset, raw_key, raw_value))
    own = without_built_in(ledger.registry)
    assert own.registrar == case["registrar"]
    assert [[str(block.network), block.owner] for block in own.blocks] == case["blocks"]
    assert [[str(entry.id), entry.name, entry.retired] for entry in own.entries] == case["entries"]
    assert [conflict.offset for conflict in ledger.conflicts] == case["conflicts"]


def snapshot_of(case: dict[str, Any]) -> Snapshot:
    rows = [
        TableRecord(offset, bytes.fromhex(key), bytes.fromhex(value)) for offset, key, value in case["rows"]
    ]
    return Snapshot(case["topic"], case["complete_ms"], rows)


@each("snapshots")
def test_snapshots_are_written_so(case: dict[str, Any]) -> None:
    assert encode_snapshot(snapshot_of(case)).hex() == case["file"]


@each("snapshots")
def test_snapshots_are_read_so(case: dict[str, Any]) -> None:
    assert decode_snapshot(bytes.fromhex(case["file"])) == snapshot_of(case)
