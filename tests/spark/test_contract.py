"""Spark compares rows with a contract, on both ways."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from headerware import Chain
from headerware.interceptors import Compress, Contract, decode_broken_rules
from headerware.spark_bridge import decode, encode

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

FRAME = "topic string, key binary, value binary, headers array<struct<key:string,value:binary>>"
MESSAGE = {
    "contentType": "application/json",
    "headers": {"required": ["tenant"]},
    "x-headerware-rules": {"paid": "value.amount > 0"},
}


def marks(frame: DataFrame) -> dict[bytes, tuple[str, ...]]:
    """Return the last part of each broken rule, by value."""
    found: dict[bytes, tuple[str, ...]] = {}
    for row in frame.collect():
        mark = next((bytes(value) for name, value in row.headers if name == "hw.contract"), None)
        rules = () if mark is None else decode_broken_rules(mark)
        found[bytes(row.value)] = tuple(rule.rpartition("/")[2] for rule in rules)
    return found


def test_rows_are_marked_and_dropped_by_their_contract(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "orders.json"
    channels = {"orders": {"address": "orders", "messages": {"Order": MESSAGE}}}
    path.write_text(json.dumps({"asyncapi": "3.0.0", "channels": channels}))
    tenant = [("tenant", b"north")]
    rows: list[Any] = [
        ("orders", b"k", b'{"amount": 1}', tenant),
        ("orders", b"k", b'{"amount": 2}', []),
        ("orders", b"k", b'{"amount": 0}', tenant),
    ]
    marking = Chain([Contract(file=str(path), on_failure="mark"), Compress(min_bytes=1)])
    sent = encode(spark.createDataFrame(rows, FRAME), marking)
    broken = {b'{"amount": 1}': (), b'{"amount": 2}': ("required",), b'{"amount": 0}': ("paid",)}
    assert marks(sent) == broken
    positions = [
        (*row, 0, offset)
        for offset, row in enumerate(sent.select("topic", "key", "value", "headers").collect())
    ]
    wire = spark.createDataFrame(positions, f"{FRAME}, partition int, offset long")
    assert marks(decode(wire, marking)) == broken
    refusing = Chain([Contract(file=str(path), on_error="drop"), Compress()])
    assert [bytes(row.value) for row in decode(wire, refusing).collect()] == [b'{"amount": 1}']
