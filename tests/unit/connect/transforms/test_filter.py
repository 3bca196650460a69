"""InsertHeader, DropHeaders and Filter."""

from __future__ import annotations

from typing import Any

import pytest

from headerware.connect.errors import ConnectConfigError
from headerware.connect.modes import Mode
from headerware.connect.transforms.filter import Filter
from tests.unit.connect.conftest import record_with_headers


class TestFilter:
    def test_drops_every_record(self, mode: Mode) -> None:
        dropped: Any = Filter(mode=mode)
        assert dropped.apply(record_with_headers()) is None

    def test_strict_refuses_unknown_keys(self) -> None:
        with pytest.raises(ConnectConfigError):
            Filter({"predicate": "x"})
        Filter({"x": "y"}, mode="kafka_4_3")
