"""Java's calendar, and dates as Kafka reads and writes them."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headerware.connect.data.times import DAY_MS
from headerware.connect.java.dates.days import fields_of, gregorian_fields_of, lenient_epoch_ms
from headerware.connect.java.dates.iso import (
    kafka_text,
    lenient_date,
    lenient_time,
    lenient_timestamp,
    time_of_day_ms,
    timestamp_text,
)

CUTOVER_MS = -12219292800000
EPOCH = date(1970, 1, 1).toordinal()


class TestCalendar:
    @given(st.dates())
    def test_agrees_with_iso_8601_on_gregorian_days(self, day: date) -> None:
        assert gregorian_fields_of(day.toordinal() - EPOCH) == (day.year, day.month, day.day)

    @given(st.integers(-10_000_000, 10_000_000))
    def test_finds_each_day_again(self, epoch_days: int) -> None:
        assert lenient_epoch_ms(*fields_of(epoch_days), 0) == epoch_days * DAY_MS

    def test_is_julian_before_the_fifteenth_of_october_1582(self) -> None:
        assert fields_of(CUTOVER_MS // DAY_MS) == (1582, 10, 15)
        assert fields_of(CUTOVER_MS // DAY_MS - 1) == (1582, 10, 4)

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
        assert lenient_epoch_ms(*fields, 0) == lenient_epoch_ms(*same_as, 0)


class TestLenientReading:
    @pytest.mark.parametrize(
        ("given", "same_as"),
        [
            ("2017-5-21 x", "2017-05-21"),
            ("2017- 5-\t21", "2017-05-21"),
            ("2E3-5-21", "2000-05-21"),
            ("2017--1-21", "2016-11-21"),
            ("2017-NaN-1", "2016-12-01"),
            ("٢٠١٧-05-21", "2017-05-21"),
            ("4294967297-1-1", "0001-01-01"),
        ],
    )
    def test_takes_any_integers(self, given: str, same_as: str) -> None:
        assert lenient_date(given) == lenient_date(same_as) is not None

    @pytest.mark.parametrize(
        "given", ["2017/05/21", "+2017-05-21", "x2017-05-21", "2017-05-", "2017-05--", "\U0001d7da-1-1"]
    )
    def test_gives_none_where_there_is_no_date(self, given: str) -> None:
        assert lenient_date(given) is None

    def test_reads_times(self) -> None:
        assert lenient_time("16:31:05.387Z") == 59465387
        assert lenient_time("-1:0:0.0Z") == -3600000
        assert lenient_time("16:31:05.387z") is None

    def test_reads_timestamps(self) -> None:
        assert lenient_timestamp("2017-05-21T16:31:05.387Z") == 1495384265387
        assert lenient_timestamp("2017-05-21 16:31:05.387Z") is None


class TestWriting:
    @pytest.mark.parametrize(
        ("epoch_ms", "expected"),
        [
            (0, "00:00:00.000Z"),
            (86399999, "23:59:59.999Z"),
            (-1, "23:59:59.999Z"),
            (86400000, "1970-01-02"),
            (1495384265387, "2017-05-21T16:31:05.387Z"),
            (253402300800000, "10000-01-01"),
        ],
    )
    def test_guesses_the_type_as_kafka_does(self, epoch_ms: int, expected: str) -> None:
        assert kafka_text(epoch_ms) == expected

    @given(st.datetimes(timezones=st.just(UTC)))
    def test_writes_timestamps_as_iso_8601(self, moment: datetime) -> None:
        epoch_ms = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // (datetime.resolution * 1000)
        expected = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        assert timestamp_text(epoch_ms) == expected

    def test_moves_times_to_the_first_day_of_their_era(self) -> None:
        assert time_of_day_ms(-1) == 86399999
        assert time_of_day_ms(-62135769600001) < 0
