"""JsonConverter: values without a schema, writing, and configuration, in both modes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal as DecimalNumber
from typing import Any

import pytest

from headerware.connect.converters.json.converter import JsonConverter
from headerware.connect.data import (
    BOOLEAN_SCHEMA,
    BYTES_SCHEMA,
    FLOAT32_SCHEMA,
    FLOAT64_SCHEMA,
    INT8_SCHEMA,
    INT16_SCHEMA,
    INT32_SCHEMA,
    INT64_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    BigInteger,
    Date,
    Decimal,
    Field,
    Float32,
    Int8,
    Int32,
    Schema,
    SchemaAndValue,
    SchemaBuilder,
    Struct,
    Timestamp,
    Type,
    alike,
)
from headerware.connect.errors import (
    ConnectConfigError,
    ConnectDataError,
    NullValueError,
)
from headerware.connect.modes import KAFKA_4_3, Mode
from tests.unit.connect.converters.conftest import PLAIN, written

ORDER = (
    SchemaBuilder.struct()
    .name("Order")
    .version(3)
    .doc("An order")
    .field("id", INT64_SCHEMA)
    .field("name", OPTIONAL_STRING_SCHEMA)
    .field("price", Decimal.schema(2))
    .field("day", Date.SCHEMA)
    .field("at", Timestamp.SCHEMA)
    .field("counts", SchemaBuilder.map(INT32_SCHEMA, FLOAT64_SCHEMA).build())
    .build()
)
AN_ORDER = Struct.of(
    ORDER,
    {
        "id": 7,
        "name": "é😀",
        "price": DecimalNumber("12.50"),
        "day": datetime(2024, 2, 29, tzinfo=UTC),
        "at": datetime(2024, 2, 29, 12, 30, tzinfo=UTC),
        "counts": {1: 1.5},
    },
)


class TestSchemaless:
    @pytest.mark.parametrize(
        "text", ["1", "1.5", '"x"', "true", "null", "[]", "{}", '{"a":[1,{"b":null}],"c":"é"}', "[[1,2],[3]]"]
    )
    def test_reads_json_and_writes_it(self, text: str, mode: Mode) -> None:
        converter = JsonConverter(PLAIN, mode=mode)
        found = converter.to_connect_data("t", text.encode())
        assert found == SchemaAndValue(None, json.loads(text))
        if text != "null":
            assert converter.from_connect_data("t", None, found.value) == text.encode()

    def test_large_integers_wrap_in_kafkas_mode_only(self) -> None:
        text = b'{"a":[18446744073709551617,1]}'
        kafka, strict = JsonConverter(PLAIN, mode=KAFKA_4_3), JsonConverter(PLAIN)
        assert alike(kafka.to_connect_data("t", text).value, {"a": [1, 1]})
        found = strict.to_connect_data("t", text).value
        assert alike(found, {"a": [BigInteger(18446744073709551617), 1]})
        assert strict.from_connect_data("t", None, found) == text
        with pytest.raises(ConnectDataError):
            kafka.from_connect_data("t", None, found)

    def test_large_floats_become_infinite_in_kafkas_mode_only(self) -> None:
        assert JsonConverter(PLAIN, mode=KAFKA_4_3).to_connect_data("t", b"[1e400]").value == [float("inf")]
        for text in (b"[1e400]", b"-1E400", b'{"a":2e308}'):
            with pytest.raises(ConnectDataError):
                JsonConverter(PLAIN).to_connect_data("t", text)

    def test_floats_next_to_large_ones_keep_their_text_exactly(self) -> None:
        assert JsonConverter(PLAIN, mode=KAFKA_4_3).to_connect_data("t", b"[-0.0,-1e-400,0.1]").value == [
            0.0,
            -0.0,
            0.1,
        ]

    def test_maps_with_other_keys_are_lists_of_pairs(self, mode: Mode) -> None:
        assert written(None, {1: "a", "b": None}, mode) == '[[1,"a"],["b",null]]'
        assert written(None, {None: 1}, mode) == "[[null,1]]"

    @pytest.mark.parametrize(
        "value", [DecimalNumber("1.5"), datetime(2024, 1, 1, tzinfo=UTC), object(), 1 << 63, {1, 2}]
    )
    def test_refuses_a_value_that_needs_a_schema(self, value: Any, mode: Mode) -> None:
        with pytest.raises(ConnectDataError):
            written(None, value, mode)

    def test_refuses_a_struct(self, mode: Mode) -> None:
        with pytest.raises(ConnectDataError):
            written(None, AN_ORDER, mode)

    def test_takes_subclasses(self, mode: Mode) -> None:
        class Text(str):
            __slots__ = ()

        assert (
            written(None, [Text("x"), memoryview(b"hi"), bytearray(b"hi"), (Int8(1),)], mode)
            == '["x","aGk=","aGk=",[1]]'
        )


class TestWriting:
    @pytest.mark.parametrize(
        ("schema", "value"),
        [
            (INT32_SCHEMA, 5),
            (INT64_SCHEMA, Int32(5)),
            (INT64_SCHEMA, True),
            (INT64_SCHEMA, 1 << 63),
            (INT16_SCHEMA, Int8(1)),
            (STRING_SCHEMA, 5),
            (BOOLEAN_SCHEMA, 1),
            (BYTES_SCHEMA, "x"),
            (FLOAT32_SCHEMA, 1.5),
            (FLOAT64_SCHEMA, Float32(1.5)),
            (Decimal.schema(2), 1.5),
            (Decimal.schema(2), DecimalNumber("1.5")),
            (Decimal.schema(2), DecimalNumber("NaN")),
            (Timestamp.SCHEMA, 5),
            (Date.SCHEMA, datetime(1970, 1, 1, 1, tzinfo=UTC)),
            (SchemaBuilder.array(INT32_SCHEMA).build(), "x"),
            (SchemaBuilder.map(STRING_SCHEMA, INT32_SCHEMA).build(), []),
            (ORDER, {"id": 7}),
            (SchemaBuilder.struct().build(), AN_ORDER),
        ],
    )
    def test_refuses_values_of_another_class(self, schema: Schema, value: Any, mode: Mode) -> None:
        with pytest.raises(ConnectDataError):
            written(schema, value, mode)

    def test_never_shows_the_value(self) -> None:
        schema = SchemaBuilder.struct().field("a", INT32_SCHEMA).build()
        with pytest.raises(ConnectDataError) as caught:
            written(schema, Struct.trusted(schema, ["secret"]))
        assert "'a'" in str(caught.value)
        assert "secret" not in str(caught.value)

    def test_nan_is_text_in_kafkas_mode_only(self) -> None:
        for number, text in ((float("nan"), '"NaN"'), (float("-inf"), '"-Infinity"')):
            assert written(FLOAT64_SCHEMA, number, KAFKA_4_3) == text
            assert written(None, [Float32(number)], KAFKA_4_3) == f"[{text}]"
            for schema, value in (
                (FLOAT64_SCHEMA, number),
                (None, [number]),
                (FLOAT32_SCHEMA, Float32(number)),
            ):
                with pytest.raises(ConnectDataError):
                    written(schema, value)

    def test_half_a_surrogate_pair_is_escaped_in_kafkas_mode_only(self) -> None:
        assert written(STRING_SCHEMA, "a\ud800", KAFKA_4_3) == '"a\\uD800"'
        for schema, value in ((STRING_SCHEMA, "\udc00"), (None, {"\ud800": 1})):
            with pytest.raises(ConnectDataError):
                written(schema, value)

    def test_escapes_as_jackson_does(self, mode: Mode) -> None:
        text = '\0\b\t\n\x0b\f\r\x1f"\\/\x7f\x80\u2028\uffff😀'
        expected = '"\\u0000\\b\\t\\n\\u000B\\f\\r\\u001F\\"\\\\/\x7f\x80\u2028\uffff\\uD83D\\uDE00"'
        assert written(STRING_SCHEMA, text, mode) == expected
        assert written(None, {text: 1}, mode) == f"{{{expected}:1}}"

    @pytest.mark.parametrize(
        ("number", "text"),
        [(1.0, "1.0"), (1e7, "1.0E7"), (0.001, "0.001"), (1e-4, "1.0E-4"), (-0.0, "-0.0"), (1e21, "1.0E21")],
    )
    def test_writes_floats_as_java_does(self, number: float, text: str, mode: Mode) -> None:
        assert written(FLOAT64_SCHEMA, number, mode) == text

    def test_a_null_key_is_a_name_in_kafkas_mode_only(self) -> None:
        schema = SchemaBuilder.map(OPTIONAL_STRING_SCHEMA, INT8_SCHEMA).build()
        assert written(schema, {None: Int8(1), "null": Int8(2)}, KAFKA_4_3) == '{"null":2}'
        with pytest.raises(ConnectDataError):
            written(schema, {None: Int8(1)})

    def test_logical_types_can_be_names(self, mode: Mode) -> None:
        key = SchemaBuilder.string().name("org.apache.kafka.connect.data.Timestamp").build()
        schema = SchemaBuilder.map(key, INT8_SCHEMA).build()
        assert written(schema, {datetime(1970, 1, 1, tzinfo=UTC): Int8(1)}, mode) == '{"0":1}'

    def test_a_map_whose_schema_has_no_keys(self) -> None:
        schema = Schema(Type.MAP)
        with pytest.raises(NullValueError):
            written(schema, {}, KAFKA_4_3)
        with pytest.raises(ConnectDataError):
            written(schema, {})

    def test_a_list_may_hold_values_without_a_schema(self, mode: Mode) -> None:
        assert written(Schema(Type.ARRAY), [1, None, "x"], mode) == '[1,null,"x"]'

    def test_finds_equal_schemas_that_are_made_anew(self, mode: Mode) -> None:
        converter = JsonConverter(PLAIN, mode=mode)
        for number in range(3):
            fields = (Field("a", 0, Schema(Type.INT8)),)
            schema = Schema(Type.STRUCT, fields=fields)
            value = Struct.of(schema, {"a": number})
            assert converter.from_connect_data("t", schema, value) == f'{{"a":{number}}}'.encode()

    def test_a_value_that_contains_itself_is_refused(self, mode: Mode) -> None:
        value: list[Any] = []
        value.append(value)
        with pytest.raises(ConnectDataError, match="deep"):
            written(None, value, mode)


class TestConfiguration:
    @pytest.mark.parametrize(
        "config", [{"schemas.enable": "maybe"}, {"decimal.format": "HEX"}, {"schemas.cache.size": "many"}]
    )
    def test_refuses_wrong_values(self, config: dict[str, str], mode: Mode) -> None:
        with pytest.raises(ConnectConfigError):
            JsonConverter(config, mode=mode)

    def test_refuses_more_in_the_strict_mode(self) -> None:
        for config in ({"schemas.cache.size": "-1"}, {"schemas.enabled": "true"}):
            JsonConverter(config, mode=KAFKA_4_3)
            with pytest.raises(ConnectConfigError):
                JsonConverter(config)

    @pytest.mark.parametrize("key", ["schemas.enable", "schemas.cache.size", "replace.null.with.default"])
    def test_stumbles_over_null_as_kafka_does(self, key: str) -> None:
        with pytest.raises(NullValueError):
            JsonConverter({key: None}, mode=KAFKA_4_3)
        with pytest.raises(ConnectConfigError):
            JsonConverter({key: None})

    def test_schema_content_is_the_schema_of_all_values(self, mode: Mode) -> None:
        converter = JsonConverter({"schema.content": '{"type":"int32"}'}, mode=mode)
        assert alike(converter.to_connect_data("t", b"5"), SchemaAndValue(INT32_SCHEMA, Int32(5)))
        assert converter.from_connect_data("t", STRING_SCHEMA, "x") == (
            b'{"schema":{"type":"string","optional":false},"payload":"x"}'
        )

    def test_schema_content_takes_anything_in_kafkas_mode(self) -> None:
        converter = JsonConverter({"schema.content": '{"type":"int32"}'}, mode=KAFKA_4_3)
        assert alike(converter.to_connect_data("t", b"").value, Int32(0))
        assert alike(converter.to_connect_data("t", b"1.5").value, Int32(1))
        strict = JsonConverter({"schema.content": '{"type":"int32"}'})
        for data in (b"", b"1.5", b'{"a":1,"a":1}'):
            with pytest.raises(ConnectDataError):
                strict.to_connect_data("t", data)

    @pytest.mark.parametrize("content", ["x", '{"type":"bogus"}', "5"])
    def test_schema_content_must_be_a_schema(self, content: str) -> None:
        with pytest.raises(ConnectDataError):
            JsonConverter({"schema.content": content}, mode=KAFKA_4_3)
        with pytest.raises(ConnectConfigError, match=r"schema\.content"):
            JsonConverter({"schema.content": content})

    @pytest.mark.parametrize("content", ["", "null", None])
    def test_schema_content_may_be_none(self, content: str | None, mode: Mode) -> None:
        with pytest.raises(ConnectDataError):
            JsonConverter({"schema.content": content}, mode=mode).to_connect_data("t", b"5")
