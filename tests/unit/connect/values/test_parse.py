"""Values read from text: as the strict mode does, and as Kafka 4.3 does."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal as DecimalNumber
from typing import Any

import pytest

from headerware.connect.data import (
    BOOLEAN_SCHEMA,
    FLOAT32_SCHEMA,
    FLOAT64_SCHEMA,
    INT8_SCHEMA,
    INT16_SCHEMA,
    INT32_SCHEMA,
    INT64_SCHEMA,
    NULL,
    OPTIONAL_INT64_SCHEMA,
    STRING_SCHEMA,
    Date,
    Decimal,
    Float32,
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
from headerware.connect.data.times import to_epoch_ms
from headerware.connect.modes import Mode
from headerware.connect.values import parse_string

DAY = datetime(2017, 5, 21, tzinfo=UTC)
CLOCK = datetime(1970, 1, 1, 16, 31, 5, 387000, UTC)
MOMENT = datetime(2017, 5, 21, 16, 31, 5, 387000, UTC)
UNKNOWN_ARRAY = Schema(Type.ARRAY)
UNKNOWN_MAP = Schema(Type.MAP)


def text(value: str) -> SchemaAndValue:
    return SchemaAndValue(STRING_SCHEMA, value)


def array(element: Schema, *values: Any) -> SchemaAndValue:
    return SchemaAndValue(SchemaBuilder.array(element).build(), list(values))


def mapped(key: Schema, value: Schema, entries: dict[Any, Any]) -> SchemaAndValue:
    return SchemaAndValue(SchemaBuilder.map(key, value).build(), entries)


class TestParseString:
    def test_gives_null_for_none(self, mode: Mode) -> None:
        assert parse_string(None, mode=mode) == NULL

    @pytest.mark.parametrize(
        "given", ["", "abc", "NULL", "True", "a,b", '"abc"', "]", ".5", "1_000", "0x1F", "é"]
    )
    def test_leaves_text_as_it_is(self, given: str, mode: Mode) -> None:
        assert parse_string(given, mode=mode) == text(given)

    @pytest.mark.parametrize("given", [True, False])
    def test_reads_booleans(self, given: bool, mode: Mode) -> None:  # noqa: FBT001 - it is what is read
        assert parse_string(str(given).lower(), mode=mode) == SchemaAndValue(BOOLEAN_SCHEMA, given)

    @pytest.mark.parametrize(
        ("given", "schema", "value"),
        [
            ("2017-05-21", Date.SCHEMA, DAY),
            ("16:31:05.387Z", Time.SCHEMA, CLOCK),
            ("00:00:00.000Z", Time.SCHEMA, datetime(1970, 1, 1, tzinfo=UTC)),
            ("2017-05-21T16:31:05.387Z", Timestamp.SCHEMA, MOMENT),
        ],
    )
    def test_reads_dates_and_times(self, given: str, schema: Schema, value: Any, mode: Mode) -> None:
        assert parse_string(given, mode=mode) == SchemaAndValue(schema, value)

    def test_reads_integers_beyond_64_bits_as_decimals(self, mode: Mode) -> None:
        digits = "9" * 60
        assert parse_string(digits, mode=mode) == SchemaAndValue(Decimal.schema(0), DecimalNumber(digits))

    @pytest.mark.parametrize(
        "given",
        ["[" * 100_000, '{"a":' * 100_000, '["' * 100_000, "[" * 101 + "1" + "]" * 101, "1" * 100_000 + "x"],
        ids=["arrays", "maps", "quotes", "deep", "digits"],
    )
    def test_leaves_hostile_text_as_it_is(self, given: str, mode: Mode) -> None:
        assert parse_string(given, mode=mode) == text(given)

    def test_reads_a_value_that_is_nested_a_hundred_deep(self, mode: Mode) -> None:
        found = parse_string("[" * 100 + "1" + "]" * 100, mode=mode)
        assert found is not None
        for _ in range(100):
            assert isinstance(found.value, list)
            found = SchemaAndValue(None, found.value[0])
        assert found.value == 1


class TestStrict:
    def test_reads_null(self) -> None:
        assert parse_string("null") == NULL

    @pytest.mark.parametrize("given", ["0", "-1", "42", "9223372036854775807", "-9223372036854775808"])
    def test_reads_integers_of_64_bits(self, given: str) -> None:
        assert parse_string(given) == SchemaAndValue(INT64_SCHEMA, int(given))

    @pytest.mark.parametrize(
        "given", ["1.5", "1.0", "-0.0", "0.001", "1.0E7", "1.7976931348623157E308", "4.9E-324"]
    )
    def test_reads_floats_that_are_written_back_the_same(self, given: str) -> None:
        assert parse_string(given) == SchemaAndValue(FLOAT64_SCHEMA, float(given))

    @pytest.mark.parametrize(
        "given",
        [
            *(
                "007",
                "-0",
                "+5",
                "1e5",
                "1.10",
                "1.",
                "-.5",
                "12345678.9",
                "NaN",
                "1,000",
                "192:168",
                "1 ",
                " 1",
            ),
            *("0.1000000000000000055", "٣", "1" * 20_000, " true", "true ", "null ", "nul", "-"),
            *("2017-13-45", "2017-02-30", "2017-05-2x", "0000-01-01", "24:00:00.000Z", "16:31:60.000Z"),
            *(
                "2017-05-21t16:31:05.387Z",
                "2017-05-21T16:31:05Z",
                "16\\:31\\:05.387Z",
                "2017-W05-1",
                "\u0662\u0660\u0661\u0667-05-21",
            ),
        ],
    )
    def test_leaves_what_would_be_written_otherwise(self, given: str) -> None:
        assert parse_string(given) == text(given)

    @pytest.mark.parametrize(
        ("given", "expected"),
        [
            ("[1,2]", array(INT64_SCHEMA, 1, 2)),
            ('["a","b\\"c","d\\\\e"]', array(STRING_SCHEMA, "a", 'b"c', "d\\e")),
            ('["2017-05-21","a, ,b"," "]', array(STRING_SCHEMA, "2017-05-21", "a, ,b", " ")),
            ("[2017-05-21]", array(Date.SCHEMA, DAY)),
            ("[16:31:05.387Z]", array(Time.SCHEMA, CLOCK)),
            ("[2017-05-21T16:31:05.387Z]", array(Timestamp.SCHEMA, MOMENT)),
            ("[[1],[2]]", array(SchemaBuilder.array(INT64_SCHEMA).build(), [1], [2])),
            ("[[],[1]]", array(SchemaBuilder.array(INT64_SCHEMA).build(), [], [1])),
            ("[ 1\t,\r\n2 ]", array(INT64_SCHEMA, 1, 2)),
            ('{"a":1,"b":2}', mapped(STRING_SCHEMA, INT64_SCHEMA, {"a": 1, "b": 2})),
            ('{ "a" : true }', mapped(STRING_SCHEMA, BOOLEAN_SCHEMA, {"a": True})),
            ("{1:1.5}", mapped(INT64_SCHEMA, FLOAT64_SCHEMA, {1: 1.5})),
            ("{16:31:05.387Z:1}", mapped(Time.SCHEMA, INT64_SCHEMA, {CLOCK: 1})),
        ],
    )
    def test_reads_arrays_and_maps(self, given: str, expected: SchemaAndValue) -> None:
        assert parse_string(given) == expected

    def test_makes_the_elements_optional_where_there_are_nulls(self) -> None:
        assert parse_string("[1,null]") == array(OPTIONAL_INT64_SCHEMA, 1, None)
        assert parse_string('{"a":null,"b":1}') == mapped(
            STRING_SCHEMA, OPTIONAL_INT64_SCHEMA, {"a": None, "b": 1}
        )
        optional_array = SchemaBuilder.array(INT64_SCHEMA).optional().build()
        assert parse_string("[[1],null]") == array(optional_array, [1], None)

    def test_widens_integers_among_floats_and_decimals(self) -> None:
        assert parse_string("[1,1.5]") == array(FLOAT64_SCHEMA, 1.0, 1.5)
        assert parse_string("[1,99999999999999999999]") == array(
            Decimal.schema(0), DecimalNumber(1), DecimalNumber(99999999999999999999)
        )
        inner = SchemaBuilder.array(FLOAT64_SCHEMA).build()
        assert parse_string("[[1],[1.5]]") == array(inner, [1.0], [1.5])

    @pytest.mark.parametrize(
        "given",
        [
            *(
                "[]",
                "{}",
                "[null]",
                '{"a":null}',
                "[[],[]]",
                '[1,"a"]',
                "[true,1]",
                '{"a":1,"b":"x"}',
                "[[1],1]",
            ),
            *("[9007199254740993,1.5]", "[0.5,99999999999999999999]", "[2017-05-21,1]", "[[1],[[1]]]"),
            *(
                "[1,]",
                "[,1]",
                "[1 2]",
                "[1]]",
                "[1] ",
                " [1]",
                "[1",
                "[007]",
                "[a]",
                '["a\\n"]',
                '["a',
                "[1}",
            ),
            *(
                '{"a"}',
                '{"a":1,}',
                '{"a":1 "b":2}',
                '{"a":1,"a":2}',
                "{null:1}",
                "{[1]:2}",
                '{"a":}',
                '{"a" 1}',
            ),
        ],
    )
    def test_leaves_arrays_and_maps_that_do_not_agree(self, given: str) -> None:
        assert parse_string(given) == text(given)


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
    def test_keeps_text_that_is_not_a_number_in_java(self, given: str) -> None:
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
        assert to_epoch_ms(found.value) == epoch_ms

    @pytest.mark.parametrize(
        ("given", "value"),
        [("1,000", 1), ("12:34", 12), ("007:james", 7), ("1}", 1), ("16:31:05.387UTC", 16)],
    )
    def test_drops_the_text_after_a_number(self, given: str, value: int) -> None:
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
    def test_keeps_text_that_is_not_a_value(self, given: str) -> None:
        assert parse_string(given, mode="kafka_4_3") == text(given)

    def test_gives_only_the_blanks_before_an_unclosed_array(self) -> None:
        assert parse_string("  [1", mode="kafka_4_3") == text("  ")
