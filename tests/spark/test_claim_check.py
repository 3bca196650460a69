"""Spark's workers store and fetch values by the same chain as clients."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from headerware import Chain, Context, Headers, Record
from headerware.interceptors import ClaimCheck, Slice
from headerware.interceptors.claim_check import STUB
from headerware.object_store import FolderObjects
from headerware.spark_bridge import decode, encode

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

COLUMNS = "topic string, key binary, value binary, headers array<struct<key string, value binary>>"


@pytest.mark.one_spark
def test_values_of_three_sizes_there_and_back(spark: SparkSession, tmp_path: Path) -> None:
    chain = Chain(
        [
            ClaimCheck(stores={"archive": FolderObjects(path=str(tmp_path))}, min_bytes=50_000),
            Slice(max_bytes=10_000),
        ]
    )
    values = [os.urandom(size) for size in (100, 30_000, 200_000)]
    plain = spark.createDataFrame([("scans", b"k", value, []) for value in values], COLUMNS)
    wire = encode(plain, chain).collect()
    assert len(list((tmp_path / "scans").iterdir())) == 1
    assert [bytes(row.value) for row in wire if row.headers and row.headers[0].key == "hw.claim"] == [STUB]
    rows = [
        (row.topic, bytes(row.key), bytes(row.value), [(n, bytes(v)) for n, v in row.headers], 0, offset)
        for offset, row in enumerate(wire)
    ]
    read = decode(spark.createDataFrame(rows, f"{COLUMNS}, partition int, offset long"), chain).collect()
    assert sorted(bytes(row.value) for row in read) == sorted(values)
    records = [
        Record(topic, value, key, Headers(headers), partition=partition, offset=offset)
        for topic, key, value, headers, partition, offset in rows
    ]
    with chain.open(Context(side="consumer")) as session:
        assert sorted(record.value for record in session.consume(records)) == sorted(values)
