"""Expressions over what senders write: what they would build is refused before it is built."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from headerware.connect.errors import ConnectDataError
from headerware.connect.expressions import CompiledExpression
from headerware.connect.records import SourceRecord

EIGHT = "[1,2,3,4,5,6,7,8]"
LIMITS = r"may build values of (\d+|inf) bytes and read \d+ bytes on this record"


def evaluated(expression: str, value: Any) -> Any:
    return CompiledExpression(expression).evaluate(SourceRecord(value=value))


class TestGrowth:
    @pytest.mark.parametrize(
        ("expression", "value"),
        [
            ("value.t.replace('a', value.t)", {"t": "a" * 10_000}),
            ("value.t.replace('a', value.t).replace('a', value.t)", {"t": "a" * 500}),
            ("value.l.map(x, value.t + value.t).join('')", {"l": list(range(2_000)), "t": "x" * 100_000}),
            ("value.l.map(x, value.l.map(y, value.t))", {"l": list(range(90)), "t": "x" * 20_000}),
            ("value.l.map(x, value.l).size()", {"l": list(range(3_000))}),
            ("value.l.join(value.t)", {"l": [""] * 5_000, "t": "x" * 20_000}),
            (
                f"{EIGHT}.map(a, {EIGHT}.map(b, {EIGHT}.map(c, {EIGHT}.map(d, value.t + value.t)))) != []",
                {"t": "x" * 50_000},
            ),
            ("value.t.split('').map(x, value.t)", {"t": "x" * 20_000}),
            ("value.l.map(x, base64.encode(bytes(value.t)))", {"l": list(range(900)), "t": "x" * 100_000}),
            (
                "value.l.map(x, '%s%s'.format([value.t, value.t]))",
                {"l": list(range(900)), "t": "x" * 100_000},
            ),
            ("value.t.format([1.5])", {"t": "%.999999f"}),
        ],
    )
    def test_of_memory_is_refused(self, expression: str, value: Any) -> None:
        compiled = CompiledExpression(expression)
        tracemalloc.start()
        try:
            with pytest.raises(ConnectDataError, match=LIMITS):
                compiled.evaluate(SourceRecord(value=value))
            assert tracemalloc.get_traced_memory()[1] < 4 << 20
        finally:
            tracemalloc.stop()

    @pytest.mark.parametrize(
        ("expression", "value"),
        [
            ("value.l.exists(x, value.t.matches('(a+)+b'))", {"l": list(range(5_000)), "t": "a" * 500_000}),
            ("value.l.all(x, value.l == value.l)", {"l": ["x" * 100] * 5_000}),
            ("value.l.filter(x, x in value.l)", {"l": ["x" * 100] * 5_000}),
        ],
    )
    def test_of_work_is_refused(self, expression: str, value: Any) -> None:
        with pytest.raises(ConnectDataError, match=LIMITS):
            evaluated(expression, value)

    @pytest.mark.parametrize(
        ("expression", "value", "found"),
        [
            ("value.t + value.t", {"t": "x" * 1_000_000}, "x" * 2_000_000),
            ("value.t.replace('a', 'bb')", {"t": "a" * 1_000_000}, "bb" * 1_000_000),
            ("value.l.filter(x, x.startsWith('a'))", {"l": ["a" * 200] * 5_000}, ["a" * 200] * 5_000),
            ("value.l.map(x, x.n + '!')", {"l": [{"n": "a" * 50}] * 2_000}, ["a" * 50 + "!"] * 2_000),
            ("value.l.exists(x, x.n == 'b')", {"l": [{"n": "a"}] * 3_000 + [{"n": "b"}]}, True),
            ("value.l.all(x, x > 0) && value.l.size() == 9000", {"l": [1] * 9_000}, True),
            ("value.l.join(', ')", {"l": ["abc"] * 5_000}, ", ".join(["abc"] * 5_000)),
            ("value.m.map(k, k).size()", {"m": {str(index): "x" * 100 for index in range(2_000)}}, 2_000),
            ("has(value.t) ? value.t : 'none'", {"t": "x" * 100_000}, "x" * 100_000),
        ],
    )
    def test_that_is_usual_is_none(self, expression: str, value: Any, found: Any) -> None:
        assert evaluated(expression, value) == found
