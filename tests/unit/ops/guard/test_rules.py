"""The rules of a guard: how much a holder of a certificate may write."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headerware import ConfigError
from headerware.interceptors.admission import Quota
from headerware.ops.guard.rules import Buckets, Routes

SHOP = ("issuer", "shop")
START_MS = 1_795_392_000_000


def take(buckets: Buckets, *quotas: Quota, at_ms: int = 0, who: Any = SHOP, size_bytes: int = 1) -> int:
    until_ms, _ = buckets.take(quotas, who, records=1, size_bytes=size_bytes, now_ms=START_MS + at_ms)
    return until_ms and until_ms - START_MS


class TestBuckets:
    def test_are_full_at_first(self) -> None:
        buckets, quota = Buckets(), Quota(records_per_s=10, burst_s=2)
        assert [take(buckets, quota) for _ in range(20)] == [0] * 20
        assert take(buckets, quota) == 101

    def test_fill_up_to_their_burst(self) -> None:
        buckets, quota = Buckets(), Quota(records_per_s=2)
        assert [take(buckets, quota) for _ in range(3)] == [0, 0, 501]
        assert [take(buckets, quota, at_ms=60_000) for _ in range(3)] == [0, 0, 60_501]

    def test_each_holder_has_its_own(self) -> None:
        buckets, quota = Buckets(), Quota(records_per_s=1)
        assert take(buckets, quota) == 0
        assert take(buckets, quota, who=("issuer", "bank")) == 0
        assert take(buckets, quota, who=("another", "shop")) == 0
        assert take(buckets, quota) > 0

    def test_what_is_larger_passes_and_is_paid_for(self) -> None:
        buckets, quota = Buckets(), Quota(bytes_per_s=1_000)
        assert take(buckets, quota, size_bytes=5_000) == 0
        assert take(buckets, quota) == 4_002
        assert take(buckets, quota, at_ms=4_002) == 0

    def test_nothing_is_taken_where_one_is_empty(self) -> None:
        buckets, small, large = Buckets(), Quota(records_per_s=1), Quota(records_per_s=2)
        assert take(buckets, small, large) == 0
        assert [take(buckets, small, large) > 0 for _ in range(5)] == [True] * 5
        assert take(buckets, large) == 0

    def test_a_clock_that_goes_back_gives_nothing(self) -> None:
        buckets, quota = Buckets(), Quota(records_per_s=1)
        assert take(buckets, quota, at_ms=10_000) == 0
        assert take(buckets, quota, at_ms=0) == 1_001
        assert take(buckets, quota, at_ms=1_001) == 0, "and holds nobody until it is where it was"

    @given(
        rate=st.integers(1, 50),
        burst_s=st.integers(1, 5),
        gaps=st.lists(st.integers(0, 2_000), max_size=200),
    )
    def test_over_any_time_no_more_than_rate_and_burst_passes(
        self, rate: int, burst_s: int, gaps: list[int]
    ) -> None:
        buckets, quota, at_ms, passed = Buckets(), Quota(records_per_s=rate, burst_s=burst_s), 0, 0
        for gap in gaps:
            at_ms += gap
            passed += not take(buckets, quota, at_ms=at_ms)
            assert passed <= rate * (burst_s + at_ms / 1_000) + 1

    def test_say_what_becomes_of_what_is_above(self) -> None:
        waits, refuses = Quota(records_per_s=9), Quota(records_per_s=1, over="refuse")
        buckets = Buckets()
        said = [
            buckets.take((waits, refuses), SHOP, records=1, size_bytes=1, now_ms=START_MS)[1]
            for _ in range(2)
        ]
        assert said == ["wait", "refuse"]


class TestQuota:
    def test_of_nothing_is_refused(self) -> None:
        with pytest.raises(ValueError, match="records_per_s"):
            Quota()


class TestRoutes:
    @pytest.mark.parametrize(
        ("table", "match"),
        [
            ({}, "at least one"),
            ({"a b": "c"}, "topic's name"),
            ({"in.{topic}.{topic}": "{topic}"}, "topic's name"),
            ({"in": "{topic}"}, "in both topics of a route"),
        ],
    )
    def test_refuse_what_is_none(self, table: dict[str, str], match: str) -> None:
        with pytest.raises(ConfigError, match=match):
            Routes(table)

    def test_a_pattern_takes_names_apart(self) -> None:
        routes = Routes({"in.{topic}.raw": "{topic}.clean"})
        assert routes.egress("in.orders.eu.raw") == "orders.eu.clean"
        assert routes.egress("in..raw") is None
        assert routes.egress("XinXordersXraw") is None
        assert routes.dead_letters("in.orders.raw") == "in.orders.raw.dead-letter"

    def test_say_which_no_topic_fits(self) -> None:
        routes = Routes({"in.{topic}": "{topic}", "ordres": "orders", "bills": "paid"})
        assert routes.unused(["bills", "in.a.dead-letter", "orders"]) == ["in.{topic}", "ordres"]
        assert routes.unused(["bills", "in.a", "ordres"]) == []
