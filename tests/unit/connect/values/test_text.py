"""Values written as text."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal as DecimalNumber
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headerware.connect.data import (
    INT32_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    BigInteger,
    Date,
    Float32,
    Instant,
    Int8,
    Schema,
    SchemaBuilder,
    Struct,
    Time,
    Timestamp,
)
from headerware.connect.data.times import from_epoch_ms
from headerware.connect.errors import ConnectDataError
from headerware.connect.modes import Mode
from headerware.connect.values import convert_to_string

FIRST = datetime(1970, 1, 1, tzinfo=UTC)
DAY = datetime(2017, 5, 21, tzinfo=UTC)
MOMENT = datetime(2017, 5, 21, 16, 31, 5, 387000, UTC)
STRUCT_SCHEMA = (
    SchemaBuilder.struct()
    .field("id", INT32_SCHEMA)
    .field('na"me', OPTIONAL_STRING_SCHEMA)
    .field("day", SchemaBuilder.like(Date.SCHEMA).optional().build())
    .field("other", SchemaBuilder.string().optional().default("d").build())
    .build()
)


class Named(str):
    """A text of another class."""

    __slots__ = ()


class TestConvertToString:
    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            (None, None),
            ("", ""),
            ('a"b', 'a"b'),
            (Named("a"), "a"),
            (True, "true"),
            (Int8(-1), "-1"),
            (1.0, "1.0"),
            (1e10, "1.0E10"),
            (Float32(0.1), "0.1"),
            (BigInteger(1 << 70), "1180591620717411303424"),
            (DecimalNumber("1.50"), "1.50"),
            (b"\x01\x02", "AQI="),
            (memoryview(b"\x01\x02"), "AQI="),
            ([], "[]"),
            ((1, None, "a", b"\x01\x02", [True]), '[1,null,"a","AQI=",[true]]'),
            ({"a\\": 'b"', Int8(1): None}, '{"a\\\\":"b\\"",1:null}'),
        ],
    )
    def test_writes(self, value: Any, expected: str | None, mode: Mode) -> None:
        assert convert_to_string(None, value, mode=mode) == expected

    def test_writes_structs_as_maps_with_defaults(self, mode: Mode) -> None:
        struct = Struct.of(STRUCT_SCHEMA, {"id": 1, "day": DAY})
        expected = '{"id":1,"na\\"me":null,"day":2017-05-21,"other":"d"}'
        assert convert_to_string(STRUCT_SCHEMA, struct, mode=mode) == expected

    def test_requires_a_value_of_connect(self, mode: Mode) -> None:
        with pytest.raises(ConnectDataError, match="class object"):
            convert_to_string(None, [object()], mode=mode)

    def test_refuses_deep_nesting(self, mode: Mode) -> None:
        value: list[Any] = []
        for _ in range(100_000):
            value = [value]
        with pytest.raises(ConnectDataError, match="nested too deeply"):
            convert_to_string(None, value, mode=mode)

    @pytest.mark.parametrize(
        ("schema", "value", "strict", "kafka"),
        [
            (Date.SCHEMA, FIRST, "1970-01-01", "00:00:00.000Z"),
            (Date.SCHEMA, DAY, "2017-05-21", "2017-05-21"),
            (Date.SCHEMA, datetime(1066, 10, 14, tzinfo=UTC), "1066-10-14", "00:00:00.000Z"),
            (Time.SCHEMA, FIRST, "00:00:00.000Z", "00:00:00.000Z"),
            (Timestamp.SCHEMA, FIRST, "1970-01-01T00:00:00.000Z", "00:00:00.000Z"),
            (Timestamp.SCHEMA, DAY, "2017-05-21T00:00:00.000Z", "2017-05-21"),
            (Timestamp.SCHEMA, MOMENT, "2017-05-21T16:31:05.387Z", "2017-05-21T16:31:05.387Z"),
            (Timestamp.SCHEMA, Instant(253402300800001), *["10000-01-01T00:00:00.001Z"] * 2),
            (None, DAY, "2017-05-21T00:00:00.000Z", "2017-05-21"),
            (SchemaBuilder.array(Date.SCHEMA).build(), [FIRST], "[1970-01-01]", "[00:00:00.000Z]"),
            (
                SchemaBuilder.map(STRING_SCHEMA, Time.SCHEMA).build(),
                {"a": FIRST},
                *['{"a":00:00:00.000Z}'] * 2,
            ),
        ],
    )
    def test_writes_points_in_time(self, schema: Schema | None, value: Any, strict: str, kafka: str) -> None:
        assert convert_to_string(schema, value) == strict
        assert convert_to_string(schema, value, mode="kafka_4_3") == kafka

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
        assert convert_to_string(None, from_epoch_ms(epoch_ms), mode="kafka_4_3") == expected

    @given(st.datetimes(timezones=st.just(UTC)))
    def test_writes_timestamps_as_iso_8601(self, moment: datetime) -> None:
        milliseconds = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
        expected = milliseconds.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        assert convert_to_string(Timestamp.SCHEMA, moment) == expected

    @pytest.mark.parametrize(("schema", "value"), [(Date.SCHEMA, MOMENT), (Time.SCHEMA, DAY)])
    def test_refuses_points_in_time_that_are_not_what_their_schema_says(
        self, schema: Schema, value: datetime
    ) -> None:
        with pytest.raises(ConnectDataError):
            convert_to_string(schema, value)
