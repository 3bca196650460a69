"""InsertHeader, DropHeaders and Filter."""

from __future__ import annotations

from typing import Any

import pytest

from headerware.connect.errors import ConnectConfigError
from headerware.connect.modes import Mode
from headerware.connect.records import SourceRecord
from headerware.connect.transforms.filter import Filter

MODES: tuple[Mode, ...] = ("strict", "kafka_4_3")


def record() -> SourceRecord:
    made = SourceRecord(topic="t", key=1, value={"a": 1}, timestamp=5)
    made.headers.add_string("h", "old").add_int("x", 1).add_string("h", "again")
    return made


class TestFilter:
    @pytest.mark.parametrize("mode", MODES)
    def test_drops_every_record(self, mode: Mode) -> None:
        dropped: Any = Filter(mode=mode)
        assert dropped.apply(record()) is None

    def test_strict_refuses_unknown_keys(self) -> None:
        with pytest.raises(ConnectConfigError):
            Filter({"predicate": "x"})
        Filter({"x": "y"}, mode="kafka_4_3")
