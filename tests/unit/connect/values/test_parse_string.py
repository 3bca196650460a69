"""Values read from text: as the strict mode does, and as Kafka 4.3 does."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal as DecimalNumber
from typing import Any

import pytest

from headerware.connect.data import (
    BOOLEAN_SCHEMA,
    FLOAT64_SCHEMA,
    INT64_SCHEMA,
    NULL,
    OPTIONAL_INT64_SCHEMA,
    STRING_SCHEMA,
    Date,
    Decimal,
    Schema,
    SchemaAndValue,
    SchemaBuilder,
    Time,
    Timestamp,
)
from headerware.connect.modes import Mode
from headerware.connect.values import parse_string

MODES: list[Mode] = ["strict", "kafka_4_3"]
DAY = datetime(2017, 5, 21, tzinfo=UTC)
CLOCK = datetime(1970, 1, 1, 16, 31, 5, 387000, UTC)
MOMENT = datetime(2017, 5, 21, 16, 31, 5, 387000, UTC)


def text(value: str) -> SchemaAndValue:
    return SchemaAndValue(STRING_SCHEMA, value)


def array(element: Schema, *values: Any) -> SchemaAndValue:
    return SchemaAndValue(SchemaBuilder.array(element).build(), list(values))


def mapped(key: Schema, value: Schema, entries: dict[Any, Any]) -> SchemaAndValue:
    return SchemaAndValue(SchemaBuilder.map(key, value).build(), entries)


class TestParseString:
    @pytest.mark.parametrize("mode", MODES)
    def test_gives_null_for_none(self, mode: Mode) -> None:
        assert parse_string(None, mode=mode) == NULL

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize(
        "given", ["", "abc", "NULL", "True", "a,b", '"abc"', "]", ".5", "1_000", "0x1F", "é"]
    )
    def test_leaves_text_as_it_is(self, given: str, mode: Mode) -> None:
        assert parse_string(given, mode=mode) == text(given)

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("given", [True, False])
    def test_reads_booleans(self, given: bool, mode: Mode) -> None:  # noqa: FBT001 - it is what is read
        assert parse_string(str(given).lower(), mode=mode) == SchemaAndValue(BOOLEAN_SCHEMA, given)

    @pytest.mark.parametrize("mode", MODES)
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

    @pytest.mark.parametrize("mode", MODES)
    def test_reads_integers_beyond_64_bits_as_decimals(self, mode: Mode) -> None:
        digits = "9" * 60
        assert parse_string(digits, mode=mode) == SchemaAndValue(Decimal.schema(0), DecimalNumber(digits))

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize(
        "given",
        ["[" * 100_000, '{"a":' * 100_000, '["' * 100_000, "[" * 101 + "1" + "]" * 101, "1" * 100_000 + "x"],
        ids=["arrays", "maps", "quotes", "deep", "digits"],
    )
    def test_leaves_hostile_text_as_it_is(self, given: str, mode: Mode) -> None:
        assert parse_string(given, mode=mode) == text(given)

    @pytest.mark.parametrize("mode", MODES)
    def test_reads_what_is_nested_a_hundred_deep(self, mode: Mode) -> None:
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
