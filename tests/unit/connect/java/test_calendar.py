"""Java's calendar."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headerware.connect.data.times import DAY_MS
from headerware.connect.java.calendar import EPOCH_DAY, date_of, epoch_ms_of, gregorian_date_of

CUTOVER_DAY = date(1582, 10, 15).toordinal()


def epoch_ms(year: int, month: int, day: int) -> int:
    """Return the milliseconds since the epoch of a date whose fields may be out of range."""
    return epoch_ms_of({"year": year, "month": month - 1, "day": day})


class TestCalendar:
    @given(st.dates())
    def test_agrees_with_iso_8601_on_gregorian_days(self, day: date) -> None:
        assert gregorian_date_of(day.toordinal()) == (day.year, day.month, day.day)

    @given(st.integers(-10_000_000, 10_000_000))
    def test_finds_each_day_again(self, epoch_days: int) -> None:
        assert epoch_ms(*date_of(epoch_days + EPOCH_DAY)) == epoch_days * DAY_MS

    def test_is_julian_before_the_fifteenth_of_october_1582(self) -> None:
        assert date_of(CUTOVER_DAY) == (1582, 10, 15)
        assert date_of(CUTOVER_DAY - 1) == (1582, 10, 4)

    @pytest.mark.parametrize(
        ("fields", "same_as"),
        [
            ((2017, 13, 1), (2018, 1, 1)),
            ((2017, 0, 1), (2016, 12, 1)),
            ((2017, 2, 31), (2017, 3, 3)),
            ((2017, 1, 0), (2016, 12, 31)),
            ((1500, 2, 30), (1500, 3, 1)),
            ((1582, 10, 10), (1582, 10, 20)),
        ],
    )
    def test_counts_on_where_fields_are_out_of_range(
        self, fields: tuple[int, int, int], same_as: tuple[int, int, int]
    ) -> None:
        assert epoch_ms(*fields) == epoch_ms(*same_as)
