"""Values read from text as Kafka 4.3 does."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal as DecimalNumber
from typing import Any

import pytest

from headerware.connect.data import (
    FLOAT32_SCHEMA,
    FLOAT64_SCHEMA,
    INT8_SCHEMA,
    INT16_SCHEMA,
    INT32_SCHEMA,
    INT64_SCHEMA,
    STRING_SCHEMA,
    Date,
    Decimal,
    Float32,
    Instant,
    Int8,
    Int16,
    Int32,
    Schema,
    SchemaAndValue,
    SchemaBuilder,
    Time,
    Timestamp,
    Type,
)
from headerware.connect.values import parse_string

DAY = datetime(2017, 5, 21, tzinfo=UTC)
CLOCK = datetime(1970, 1, 1, 16, 31, 5, 387000, UTC)
UNKNOWN_ARRAY = Schema(Type.ARRAY)
UNKNOWN_MAP = Schema(Type.MAP)


def text(value: str) -> SchemaAndValue:
    return SchemaAndValue(STRING_SCHEMA, value)


def array(element: Schema, *values: Any) -> SchemaAndValue:
    return SchemaAndValue(SchemaBuilder.array(element).build(), list(values))


def mapped(key: Schema, value: Schema, entries: dict[Any, Any]) -> SchemaAndValue:
    return SchemaAndValue(SchemaBuilder.map(key, value).build(), entries)


class TestKafka43:
    @pytest.mark.parametrize("given", ["null", " null ", "null\t"])
    def test_gives_none_for_null(self, given: str) -> None:
        assert parse_string(given, mode="kafka_4_3") is None

    @pytest.mark.parametrize(
        ("given", "schema", "value"),
        [
            ("127", INT8_SCHEMA, Int8(127)),
            ("-129", INT16_SCHEMA, Int16(-129)),
            ("32768", INT32_SCHEMA, Int32(32768)),
            ("2147483648", INT64_SCHEMA, 2147483648),
            ("1.0", INT8_SCHEMA, Int8(1)),
            ("+007", INT8_SCHEMA, Int8(7)),
            ("1E3", INT16_SCHEMA, Int16(1000)),
            ("٣", INT8_SCHEMA, Int8(3)),
            ("1.10", FLOAT32_SCHEMA, Float32(1.1)),
            ("-.5", FLOAT32_SCHEMA, Float32(-0.5)),
            ("1e-2147483647", FLOAT32_SCHEMA, Float32(0.0)),
            ("3.5e38", FLOAT64_SCHEMA, 3.5e38),
            ("1e309", Decimal.schema(-309), DecimalNumber("1e309")),
            # Halfway between two of 32 bits when it is rounded to 64 first.
            ("1.00000005960464478", FLOAT32_SCHEMA, Float32(1.0000001192092896)),
        ],
    )
    def test_reads_numbers_in_the_narrowest_type(self, given: str, schema: Schema, value: Any) -> None:
        assert parse_string(given, mode="kafka_4_3") == SchemaAndValue(schema, value)

    @pytest.mark.parametrize(
        "given", ["1e2147483648", "1e", "+-1", "1d", "\U0001d7d9", "½", "1 2", "NaN", "-"]
    )
    def test_leaves_what_is_no_number_to_java(self, given: str) -> None:
        assert parse_string(given, mode="kafka_4_3") == text(given)

    @pytest.mark.parametrize(
        ("given", "schema", "epoch_ms"),
        [
            ("2017-13-45", Date.SCHEMA, 1518566400000),
            ("0000-00-00", Date.SCHEMA, -62170156800000),
            ("2017-05-2x", Date.SCHEMA, 1493683200000),
            ("2E-05-2-01", Date.SCHEMA, -62164713600000),
            ("99:99:99.999Z", Time.SCHEMA, 362439999),
            ("16\\:31\\:05.387Z", Time.SCHEMA, 59465387),
            ("2016-12-31T23:59:60.000Z", Timestamp.SCHEMA, 1483228800000),
        ],
    )
    def test_reads_dates_leniently(self, given: str, schema: Schema, epoch_ms: int) -> None:
        found = parse_string(given, mode="kafka_4_3")
        assert found is not None
        assert found.schema == schema
        assert _epoch_ms(found.value) == epoch_ms

    @pytest.mark.parametrize(
        ("given", "value"),
        [("1,000", 1), ("12:34", 12), ("007:james", 7), ("1}", 1), ("16:31:05.387UTC", 16)],
    )
    def test_drops_what_follows_a_number(self, given: str, value: int) -> None:
        assert parse_string(given, mode="kafka_4_3") == SchemaAndValue(INT8_SCHEMA, Int8(value))

    @pytest.mark.parametrize(
        ("given", "expected"),
        [
            ("[1,128] tail", array(INT16_SCHEMA, Int16(1), Int16(128))),
            ("[1.5,1]", array(FLOAT32_SCHEMA, Float32(1.5), Float32(1))),
            ("[1,]", array(INT8_SCHEMA, Int8(1))),
            ("[]", SchemaAndValue(UNKNOWN_ARRAY, [])),
            ("[null]", SchemaAndValue(UNKNOWN_ARRAY, [None])),
            ("[true,1]", SchemaAndValue(UNKNOWN_ARRAY, [True, Int8(1)])),
            ('["a\\"b","a, ,b"]', array(STRING_SCHEMA, 'a\\"b', "a,,b")),
            ('["2017-05-21"]', array(Date.SCHEMA, DAY)),
            ("[2017-05-21,16:31:05.387Z]", array(Time.SCHEMA, DAY, CLOCK)),
            ("[1,2017-05-21]", array(Date.SCHEMA, datetime(1970, 1, 2, tzinfo=UTC), DAY)),
            ('{"a":1 "b":300}', mapped(STRING_SCHEMA, INT16_SCHEMA, {"a": Int16(1), "b": Int16(300)})),
            ("{}", SchemaAndValue(UNKNOWN_MAP, {})),
            ('{"a":null}', SchemaAndValue(Schema(Type.MAP, key_schema=STRING_SCHEMA), {"a": None})),
            ('{1:1,"a":2}', SchemaAndValue(UNKNOWN_MAP, {Int8(1): Int8(1), "a": Int8(2)})),
            ('{"a":1,"a":2}', mapped(STRING_SCHEMA, INT8_SCHEMA, {"a": Int8(2)})),
        ],
    )
    def test_reads_arrays_and_maps(self, given: str, expected: SchemaAndValue) -> None:
        assert parse_string(given, mode="kafka_4_3") == expected

    def test_reads_arrays_and_maps_as_keys(self) -> None:
        found = parse_string('{[1]:2,{"a":[1]}:3}', mode="kafka_4_3")
        assert found is not None
        assert list(found.value.values()) == [2, 3]
        assert list(found.value) == [(1,), {"a": (1,)}]

    @pytest.mark.parametrize(
        "given",
        [
            *(
                "[1,null]",
                "[1,,2]",
                "[1 2]",
                "[a]",
                "[1",
                '{"a"}',
                '{"a":abc}',
                "{null:1}",
                "{,}",
                "null,",
                "true:1",
            ),
            *("[0.5,2017-05-21]", "[2017-05-21,70000]"),
            # A dict holds one of these keys only; nothing is lost without a word.
            "{true:1,1:2}",
        ],
    )
    def test_leaves_what_is_no_value(self, given: str) -> None:
        assert parse_string(given, mode="kafka_4_3") == text(given)

    def test_gives_only_the_blanks_before_what_is_no_array(self) -> None:
        assert parse_string("  [1", mode="kafka_4_3") == text("  ")


def _epoch_ms(value: datetime | Instant) -> int:
    if isinstance(value, Instant):
        return int(value)
    return round(value.timestamp() * 1000)
