"""Values converted to dates, times and timestamps."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from headerware.connect.data import INT64_SCHEMA, STRING_SCHEMA, Date, Instant, Schema, Time, Timestamp
from headerware.connect.data.times import from_epoch_ms
from headerware.connect.errors import ConnectDataError, NullValueError
from headerware.connect.modes import Mode
from headerware.connect.values import convert_to_date, convert_to_time, convert_to_timestamp

DAY = datetime(2017, 5, 21, tzinfo=UTC)
CLOCK = datetime(1970, 1, 1, 16, 31, 5, 387000, UTC)
MOMENT = datetime(2017, 5, 21, 16, 31, 5, 387000, UTC)
FIRST = datetime(1970, 1, 1, tzinfo=UTC)
EARLIER = datetime(1969, 12, 31, 16, 31, 5, 387000, UTC)
Convert = Callable[..., Any]
ALL = [convert_to_date, convert_to_time, convert_to_timestamp]


class TestBothModes:
    @pytest.mark.parametrize(
        ("convert", "schema", "value", "expected"),
        [
            (convert_to_date, Date.SCHEMA, DAY, DAY),
            (convert_to_date, Timestamp.SCHEMA, MOMENT, DAY),
            (convert_to_date, None, 17307, DAY),
            (convert_to_date, None, "17307", DAY),
            (convert_to_date, None, "2017-05-21", DAY),
            (convert_to_time, Time.SCHEMA, CLOCK, CLOCK),
            (convert_to_time, Timestamp.SCHEMA, MOMENT, CLOCK),
            (convert_to_time, Timestamp.SCHEMA, EARLIER, CLOCK),
            (convert_to_time, None, 59465387, CLOCK),
            (convert_to_time, None, "16:31:05.387Z", CLOCK),
            (convert_to_timestamp, Timestamp.SCHEMA, MOMENT, MOMENT),
            (convert_to_timestamp, None, MOMENT, MOMENT),
            (convert_to_timestamp, Date.SCHEMA, DAY, DAY),
            (convert_to_timestamp, INT64_SCHEMA, 1495384265387, MOMENT),
            (convert_to_timestamp, None, "2017-05-21T16:31:05.387Z", MOMENT),
            (convert_to_timestamp, None, 253402300800000, Instant(253402300800000)),
        ],
    )
    def test_convert(
        self, convert: Convert, schema: Schema | None, value: Any, expected: Any, mode: Mode
    ) -> None:
        assert convert(schema, value, mode=mode) == expected

    @pytest.mark.parametrize("convert", ALL)
    @pytest.mark.parametrize(
        ("schema", "value"),
        [(None, True), (None, "abc"), (None, "true"), (None, b"1"), (None, "[1]"), (INT64_SCHEMA, MOMENT)],
    )
    def test_require_a_time(self, convert: Convert, schema: Schema | None, value: Any, mode: Mode) -> None:
        with pytest.raises(ConnectDataError):
            convert(schema, value, mode=mode)

    @pytest.mark.parametrize("value", [-1, 86400001])
    def test_refuse_milliseconds_beyond_the_day(self, value: int, mode: Mode) -> None:
        with pytest.raises(ConnectDataError):
            convert_to_time(None, value, mode=mode)


class TestStrict:
    @pytest.mark.parametrize("convert", ALL)
    def test_leaves_null(self, convert: Convert) -> None:
        assert convert(None, None) is None

    def test_reads_texts_with_a_schema(self) -> None:
        assert convert_to_date(STRING_SCHEMA, "2017-05-21") == DAY
        assert convert_to_date(STRING_SCHEMA, "2017-05-21T16:31:05.387Z") == DAY
        assert convert_to_timestamp(STRING_SCHEMA, "2017-05-21") == DAY

    def test_takes_a_schemaless_time_for_a_timestamp(self) -> None:
        assert convert_to_date(None, MOMENT) == DAY
        assert convert_to_time(None, MOMENT) == CLOCK

    def test_gives_the_day_of_a_timestamp_before_the_epoch(self) -> None:
        assert convert_to_date(Timestamp.SCHEMA, EARLIER) == datetime(1969, 12, 31, tzinfo=UTC)

    @pytest.mark.parametrize(
        ("convert", "schema", "value"),
        [
            (convert_to_date, Time.SCHEMA, CLOCK),
            (convert_to_date, Date.SCHEMA, MOMENT),
            (convert_to_date, None, 1 << 31),
            (convert_to_date, None, 1.5),
            (convert_to_date, None, "2017-13-45"),
            (convert_to_time, Date.SCHEMA, DAY),
            (convert_to_time, Time.SCHEMA, MOMENT),
            (convert_to_timestamp, Time.SCHEMA, CLOCK),
            (convert_to_timestamp, Date.SCHEMA, MOMENT),
            (convert_to_timestamp, None, 1 << 63),
            (convert_to_timestamp, None, "null"),
        ],
    )
    def test_refuses_ambiguous_input(self, convert: Convert, schema: Schema | None, value: Any) -> None:
        with pytest.raises(ConnectDataError):
            convert(schema, value)


class TestKafka43:
    @pytest.mark.parametrize("convert", ALL)
    def test_refuses_null(self, convert: Convert) -> None:
        with pytest.raises(ConnectDataError):
            convert(None, None, mode="kafka_4_3")
        with pytest.raises(NullValueError):
            convert(None, "null", mode="kafka_4_3")

    @pytest.mark.parametrize(
        ("convert", "schema", "value", "expected"),
        [
            (convert_to_date, None, MOMENT, MOMENT),
            (convert_to_date, Timestamp.SCHEMA, EARLIER, FIRST),
            (convert_to_date, None, (1 << 32) + 17307, DAY),
            (convert_to_date, None, 1.9, datetime(1970, 1, 2, tzinfo=UTC)),
            (convert_to_date, None, "2017-04-51", DAY),
            (convert_to_time, None, "2017-05-21", DAY),
            (convert_to_time, Time.SCHEMA, MOMENT, MOMENT),
            (convert_to_time, Timestamp.SCHEMA, from_epoch_ms(-1), from_epoch_ms(86_399_999)),
            (convert_to_time, Timestamp.SCHEMA, from_epoch_ms(-62_135_769_600_000), FIRST),
            (convert_to_timestamp, Time.SCHEMA, CLOCK, CLOCK),
            (convert_to_timestamp, None, 1e300, Instant((1 << 63) - 1)),
        ],
    )
    def test_accepts_values_that_strict_refuses(
        self, convert: Convert, schema: Schema | None, value: Any, expected: Any
    ) -> None:
        assert convert(schema, value, mode="kafka_4_3") == expected

    def test_moves_times_to_the_first_day_of_their_era(self) -> None:
        with pytest.raises(ConnectDataError, match="a time of day"):
            convert_to_time(Timestamp.SCHEMA, from_epoch_ms(-62_135_769_600_001), mode="kafka_4_3")

    def test_refuses_a_text_of_a_date_with_a_schema(self) -> None:
        with pytest.raises(ConnectDataError):
            convert_to_date(STRING_SCHEMA, "2017-05-21", mode="kafka_4_3")
