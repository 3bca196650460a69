from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from headerware.core.errors import ConfigError
from headerware.ops.chargeback.reads import Covered, GroupOffset, ReadRange, Reads, read_ranges
from headerware.ops.chargeback.usage import Usage

NINE = datetime(2026, 1, 31, 9, 0, 30, tzinfo=UTC)
TEN = NINE + timedelta(hours=1)
HOUR = datetime(2026, 1, 31, 9, tzinfo=UTC)
ALL = [Covered("orders", 0, 0, 100)]


def at(moment: datetime, offset: int, group: str = "billing", topic: str = "orders") -> GroupOffset:
    return GroupOffset(group, topic, 0, offset, moment)


def unknown(records: int | None, group: str = "billing", topic: str = "orders") -> Usage:
    return Usage(
        hour=HOUR, topic=topic, direction="out", group=group, records=records, bytes=None, source="unknown"
    )


class TestReadRanges:
    def test_are_what_a_group_passed_over(self) -> None:
        assert read_ranges([at(NINE, 10), at(TEN, 30)], ALL) == Reads(
            (ReadRange("billing", "orders", 0, 10, 30, HOUR),)
        )

    def test_count_for_the_hour_in_which_they_began(self) -> None:
        india = timezone(timedelta(hours=5, minutes=30))
        found = read_ranges([at(NINE.astimezone(india), 10), at(TEN.astimezone(india), 30)], ALL)
        assert [each.hour for each in found.ranges] == [HOUR]

    def test_go_from_moment_to_moment_in_any_order(self) -> None:
        eleven = TEN + timedelta(hours=1)
        found = read_ranges([at(eleven, 50), at(NINE, 10), at(TEN, 30)], ALL)
        assert [(each.begin, each.end) for each in found.ranges] == [(10, 30), (30, 50)]

    def test_are_none_of_one_moment(self) -> None:
        assert read_ranges([at(NINE, 10)], ALL) == Reads()

    def test_say_of_a_topic_that_nobody_read_that_it_is_so(self) -> None:
        found = read_ranges([at(NINE, 10), at(TEN, 10)], ALL)
        assert found.rows == (
            Usage(hour=None, topic="orders", direction="out", records=0, bytes=0, source="offsets"),
        )

    @pytest.mark.parametrize(
        ("begin", "end", "ranges", "records"),
        [
            (90, 130, [(90, 100)], 30),
            (100, 130, [], 30),
            (0, 40, [(20, 40)], 20),
            (0, 130, [(20, 100)], 50),
        ],
    )
    def test_are_unknown_where_there_are_no_records(
        self, begin: int, end: int, ranges: list[tuple[int, int]], records: int
    ) -> None:
        found = read_ranges([at(NINE, begin), at(TEN, end)], [Covered("orders", 0, 20, 100)])
        assert [(each.begin, each.end) for each in found.ranges] == ranges
        assert found.rows == (unknown(records),)

    def test_are_unknown_of_a_topic_that_is_not_there(self) -> None:
        found = read_ranges([at(NINE, 1, topic="other"), at(TEN, 5, topic="other")], [])
        assert found == Reads((), (unknown(4, topic="other"),))

    def test_are_unknown_of_a_group_that_was_not_there_before(self) -> None:
        found = read_ranges([at(NINE, 1), at(TEN, 5, "fraud"), at(TEN, 1)], ALL)
        assert found == Reads((), (unknown(None, "fraud"),))

    def test_are_unknown_of_a_group_that_went_back(self) -> None:
        assert read_ranges([at(NINE, 50), at(TEN, 5)], ALL) == Reads((), (unknown(None),))

    def test_add_up_what_is_unknown_by_group_topic_and_hour(self) -> None:
        offsets = [
            GroupOffset("billing", "orders", partition, offset, moment)
            for partition in (0, 1)
            for moment, offset in ((NINE, 0), (TEN, 7))
        ]
        assert read_ranges(offsets, []).rows == (unknown(14),)

    def test_refuse_a_moment_without_a_time_zone(self) -> None:
        with pytest.raises(ConfigError, match=r"^offsets\.at: expected a moment with a time zone"):
            read_ranges([at(NINE.replace(tzinfo=None), 1)], ALL)
