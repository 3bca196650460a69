from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headerware import ConfigError
from headerware.spark_bridge.batches.tables import Snapshot, last_batch, table_sink

OURS, OTHERS = "query/write", "another/write"


class TestLastBatch:
    @pytest.mark.parametrize(
        ("snapshots", "found"),
        [
            ({}, -1),
            ({2: Snapshot(1, OURS, 8), 1: Snapshot(None, OURS, 7)}, 8),
            ({2: Snapshot(1, OTHERS, 9), 1: Snapshot(None, OURS, 7)}, 7),
            ({2: Snapshot(1, None, None), 1: Snapshot(None, OTHERS, 9)}, -1),
            ({2: Snapshot(1, OTHERS, 9)}, None),  # the parent has expired
            ({2: Snapshot(1, OURS, 8)}, 8),
            ({2: Snapshot(None, OTHERS, 9), 3: Snapshot(2, OURS, 8)}, -1),  # not on this branch
        ],
    )
    def test_goes_along_the_ancestors(self, snapshots: dict[int, Snapshot], found: int | None) -> None:
        assert last_batch(2 if snapshots else None, snapshots, OURS) == found


class TestTableSink:
    @pytest.mark.parametrize(
        ("table", "options", "message"),
        [
            ("orders", {"format": "parquet"}, r"format: expected delta or iceberg, found 'parquet'"),
            ("", {"format": "delta"}, "table: expected the name of a table"),
            ("/data/orders", {"format": "iceberg"}, "table: expected the name of a table in a catalog"),
            (Path("orders"), {"format": "iceberg"}, "table: expected the name of a table in a catalog"),
            ("orders", {"format": "delta", "options": {"TXNVERSION": 1}}, "TXNVERSION: .*sets it itself"),
        ],
    )
    def test_refuses_what_cannot_work(self, table: Any, options: dict[str, Any], message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            table_sink(table, **options)
