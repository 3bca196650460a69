"""InsertHeader, DropHeaders and Filter."""

from __future__ import annotations

from typing import Any

import pytest

from headerware.connect.data import INT32_SCHEMA, STRING_SCHEMA, Int32
from headerware.connect.errors import ConnectConfigError
from headerware.connect.modes import Mode
from headerware.connect.records import SinkRecord
from headerware.connect.transforms.drop_headers import DropHeaders
from tests.unit.connect.conftest import record_with_headers


class TestDropHeaders:
    @pytest.mark.parametrize(
        ("names", "left"),
        [("h", ["x"]), (" h , x ", []), ("nope", ["h", "x", "h"]), ("h,h", ["x"]), (["x"], ["h", "h"])],
    )
    def test_removes_all_of_these_names(self, names: Any, left: list[str], mode: Mode) -> None:
        before = record_with_headers()
        made = DropHeaders({"headers": names}, mode=mode).apply(before)
        assert [header.key for header in made.headers] == left
        assert made is not before
        assert before == record_with_headers()

    def test_strict_knows_escaped_commas(self) -> None:
        before = record_with_headers()
        before.headers.add_string("a,b", "1").add_string("a\\", "2")
        assert len(DropHeaders({"headers": "a\\,b,h,x"}).apply(before).headers) == 1
        kept = DropHeaders({"headers": "a\\,b,h,x"}, mode="kafka_4_3").apply(before).headers
        assert [header.key for header in kept] == ["a,b"]

    @pytest.mark.parametrize("config", [{}, {"headers": ""}, {"headers": "h,,x"}, {"headers": None}])
    def test_wants_names(self, config: dict[str, Any], mode: Mode) -> None:
        with pytest.raises(ConnectConfigError):
            DropHeaders(config, mode=mode)

    def test_keeps_what_a_sink_record_has(self) -> None:
        before = SinkRecord("t", 1, INT32_SCHEMA, Int32(1), STRING_SCHEMA, "v", 9, 3)
        assert DropHeaders({"headers": "h"}).apply(before) == before
