from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headerware.core.errors import ConfigError
from headerware.ops.chargeback.bill import Bill, Traffic, UnknownReads, charge
from headerware.ops.chargeback.prices import Prices, Rates, TopicRates
from headerware.ops.chargeback.shares import rounded, shares
from headerware.ops.chargeback.usage import Usage

HOUR = datetime(2026, 1, 31, 9, tzinfo=UTC)
GIB = 2**30
PRICES = Prices(
    incoming=Rates(per_gib=Decimal("0.09"), per_million_records=Decimal("0.2")),
    outgoing=Rates(per_gib=Decimal("0.05")),
    topics=(TopicRates(pattern="dear", incoming=Rates(per_gib=Decimal(1))),),
)


def came(**fields: Any) -> Usage:
    base = {"hour": HOUR, "topic": "orders", "direction": "in", "records": 10, "bytes": GIB}
    return msgspec.convert({**base, "source": "records", **fields}, Usage)


def went(**fields: Any) -> Usage:
    return came(**{"direction": "out", "group": "g", "source": "offsets", **fields})


def without_sums(bill: Bill) -> tuple[Any, ...]:
    return bill.by_owner, bill.by_topic, bill.by_producer, bill.by_hour


class TestCharge:
    def test_is_exact(self) -> None:
        bill = charge([came(records=1, bytes=1)] * 3, PRICES)
        assert bill.total.cost == 3 * (Decimal("0.09") / GIB + Decimal("0.2") / 10**6)

    def test_is_exact_for_very_much(self) -> None:
        bill = charge([came(records=10**15 + 1, bytes=10**18 + 1)], PRICES)
        fraction = Decimal("0.09").as_integer_ratio()
        exact = (10**18 + 1) * fraction[0] * 10**6 * 5 + (10**15 + 1) * GIB * fraction[1]
        assert bill.total.cost.as_integer_ratio()[0] * (GIB * 10**6 * 5 * fraction[1]) == (
            exact * bill.total.cost.as_integer_ratio()[1]
        )

    def test_sums_by_each_name(self) -> None:
        rows = [
            came(owner="a", producer="p"),
            came(owner="b", topic="dear", hour=None),
            went(owner="a", producer="p", records=4, bytes=2 * GIB),
        ]
        bill = charge(rows, PRICES)
        assert bill.by_owner["a"] == Traffic(
            records_in=10,
            bytes_in=GIB,
            records_out=4,
            bytes_out=2 * GIB,
            cost=Decimal("0.09") + Decimal("0.000002") + Decimal("0.1"),
        )
        assert bill.by_topic["dear"].cost == Decimal("1.000002")
        assert set(bill.by_producer) == {"p", None}
        assert set(bill.by_hour) == {HOUR, None}
        assert {name: each.bytes_out for name, each in bill.by_group.items()} == {"g": 2 * GIB}
        for sums in without_sums(bill):
            assert sum(each.cost for each in sums.values()) == bill.total.cost

    def test_shows_what_is_unattributed(self) -> None:
        assert charge([came(), came(owner="a")], PRICES).by_owner[None].bytes_in == GIB

    def test_of_nothing_is_nothing(self) -> None:
        bill = charge([], PRICES)
        assert bill.total == Traffic()
        assert without_sums(bill) == ({}, {}, {}, {})

    def test_a_topic_without_outgoing_rows_has_unknown_reads(self) -> None:
        assert charge([came()], PRICES).unknown == (UnknownReads(topic="orders"),)

    def test_a_topic_that_nobody_read_has_none(self) -> None:
        bill = charge([came(), went(group=None, hour=None, records=0, bytes=0)], PRICES)
        assert bill.unknown == ()
        assert bill.by_group == {}
        assert set(bill.by_hour) == {HOUR}

    def test_unknown_reads_cost_nothing_and_are_listed(self) -> None:
        rows = [
            went(records=5, bytes=None, source="unknown"),
            went(records=6, bytes=None, source="unknown"),
            went(group="h", records=None, bytes=None, source="unknown"),
            went(group="h", records=6, bytes=None, source="unknown"),
        ]
        bill = charge(rows, PRICES)
        assert bill.total == Traffic()
        assert bill.unknown == (
            UnknownReads(topic="orders", group="g", offsets=11),
            UnknownReads(topic="orders", group="h", offsets=None),
        )

    def test_counts_malformed_trails_once(self) -> None:
        assert charge([came(malformed=3), went(malformed=3)], PRICES).malformed == 3

    def test_counts_hours_of_any_zone_in_utc(self) -> None:
        zoned = HOUR.astimezone(timezone(timedelta(hours=5)))
        (hour,) = charge([came(hour=zoned), came(hour=HOUR)], PRICES).by_hour
        assert repr(hour) == repr(HOUR)

    @pytest.mark.parametrize("records", [10, None])
    def test_refuses_an_hour_without_a_time_zone(self, records: int | None) -> None:
        with pytest.raises(ConfigError, match=r"^usage\.hour: expected a moment with a time zone"):
            charge([came(hour=HOUR.replace(tzinfo=None), records=records)], PRICES)


AMOUNTS = st.lists(st.decimals(min_value=0, max_value=10**12, places=9), max_size=40)


class TestShares:
    @given(AMOUNTS, st.integers(0, 6))
    def test_add_up_and_are_near(self, amounts: list[Decimal], decimals: int) -> None:
        found = shares(amounts, decimals)
        assert sum(found, Decimal(0)) == rounded(sum(amounts, Decimal(0)), decimals)
        assert all(
            abs(share - amount) < Decimal(1).scaleb(-decimals)
            for share, amount in zip(found, amounts, strict=True)
        )

    def test_leave_nothing_to_chance(self) -> None:
        third = Decimal(1) / 3
        assert shares([third] * 3, 2) == [Decimal("0.34"), Decimal("0.33"), Decimal("0.33")]

    def test_round_half_to_even(self) -> None:
        assert [rounded(Decimal(each), 2) for each in ("0.125", "0.135")] == [
            Decimal("0.12"),
            Decimal("0.14"),
        ]
