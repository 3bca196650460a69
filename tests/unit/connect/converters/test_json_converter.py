"""JsonConverter: envelopes, schemas, nulls, payloads and logical types, in both modes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal as DecimalNumber
from decimal import localcontext
from typing import Any

import pytest

from headerware.connect.converters.json.converter import JsonConverter
from headerware.connect.data import (
    FLOAT64_SCHEMA,
    INT8_SCHEMA,
    INT32_SCHEMA,
    INT64_SCHEMA,
    OPTIONAL_INT32_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    Date,
    Decimal,
    Float32,
    Int8,
    Int16,
    Int32,
    SchemaAndValue,
    SchemaBuilder,
    Struct,
    Time,
    Timestamp,
    alike,
)
from headerware.connect.errors import (
    ConnectDataError,
    NullValueError,
    SchemaBuilderError,
)
from headerware.connect.modes import KAFKA_4_3, STRICT, Mode
from tests.unit.connect.converters.conftest import PLAIN, written

MODES: tuple[Mode, ...] = (STRICT, KAFKA_4_3)
NUMERIC = {**PLAIN, "decimal.format": "numeric"}
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


def envelope(schema: str, payload: str) -> bytes:
    return f'{{"schema":{schema},"payload":{payload}}}'.encode()


def read(schema: str, payload: str, mode: Mode) -> Any:
    return JsonConverter(mode=mode).to_connect_data("t", envelope(schema, payload)).value


class TestEnvelope:
    def test_holds_the_schema_as_kafka_writes_it(self, mode: Mode) -> None:
        data = JsonConverter(mode=mode).from_connect_data("t", ORDER, AN_ORDER)
        assert data is not None
        schema, _, payload = data.decode().partition(',"payload":')
        assert schema == (
            '{"schema":{"type":"struct","fields":['
            '{"type":"int64","optional":false,"field":"id"},'
            '{"type":"string","optional":true,"field":"name"},'
            '{"type":"bytes","optional":false,"name":"org.apache.kafka.connect.data.Decimal","version":1,'
            '"parameters":{"scale":"2"},"field":"price"},'
            '{"type":"int32","optional":false,"name":"org.apache.kafka.connect.data.Date","version":1,"field":"day"},'
            '{"type":"int64","optional":false,"name":"org.apache.kafka.connect.data.Timestamp","version":1,"field":"at"},'
            '{"type":"map","keys":{"type":"int32","optional":false},"values":{"type":"double","optional":false},'
            '"optional":false,"field":"counts"}'
            '],"optional":false,"name":"Order","version":3,"doc":"An order"}'
        )
        assert payload == (
            '{"id":7,"name":"é\\uD83D\\uDE00","price":"BOI=","day":19782,"at":1709209800000,"counts":[[1,1.5]]}}'
        )

    def test_comes_back_with_an_equal_schema(self, mode: Mode) -> None:
        converter = JsonConverter(mode=mode)
        data = converter.from_connect_data("t", ORDER, AN_ORDER)
        assert converter.to_connect_data("t", data) == SchemaAndValue(ORDER, AN_ORDER)

    def test_gives_equal_schemas_as_one(self, mode: Mode) -> None:
        converter = JsonConverter(mode=mode)
        one = converter.to_connect_data("t", envelope('{"type":"int32","optional":true}', "1")).schema
        again = converter.to_connect_data(
            "t", envelope('{ "optional" : true, "type" : "int32" }', "2")
        ).schema
        other = converter.to_connect_data("t", envelope('{"type":"int32"}', "2")).schema
        assert one is again
        assert one != other

    def test_tells_defaults_apart_that_differ_in_scale(self) -> None:
        schema = (
            f'{{"type":"bytes","name":"{Decimal.LOGICAL_NAME}","parameters":{{"scale":"1"}},"default":%s}}'
        )
        converter = JsonConverter(mode=KAFKA_4_3)
        for default in ("1.0", "1.00"):
            found = converter.to_connect_data("t", envelope(schema % default, "null"))
            assert str(found.value) == default

    def test_forgets_schemas_beyond_its_size(self, mode: Mode) -> None:
        converter = JsonConverter({"schemas.cache.size": 2}, mode=mode)
        for version in range(20):
            found = converter.to_connect_data("t", envelope(f'{{"type":"int32","version":{version}}}', "1"))
            assert found.schema is not None
            assert found.schema.version == version
            converter.from_connect_data("t", found.schema, found.value)
        caches = (
            converter._read_plans_by_text,
            converter._read_plans,
            converter._write_plans_by_id,
            converter._write_plans,
        )
        assert all(cache.total() <= 2 for cache in caches)

    def test_keeps_no_text_of_a_very_large_schema(self, mode: Mode) -> None:
        converter = JsonConverter(mode=mode)
        found = converter.to_connect_data("t", envelope(f'{{"type":"int32","doc":"{"a" * 70_000}"}}', "1"))
        assert found.value == 1
        assert converter._read_plans_by_text.total() == 0

    @pytest.mark.parametrize(
        "data",
        [
            b"1",
            b"null",
            b"",
            b"[]",
            b'{"schema":null}',
            b'{"payload":1}',
            b'{"schema":null,"payload":1,"x":1}',
        ],
    )
    def test_is_required(self, data: bytes, mode: Mode) -> None:
        with pytest.raises(ConnectDataError):
            JsonConverter(mode=mode).to_connect_data("t", data)

    def test_may_have_no_schema(self, mode: Mode) -> None:
        converter = JsonConverter(mode=mode)
        assert converter.from_connect_data("t", None, {"a": 1}) == b'{"schema":null,"payload":{"a":1}}'
        assert converter.to_connect_data("t", b'{"payload":{"a":[1.5]},"schema":null}') == SchemaAndValue(
            None, {"a": [1.5]}
        )

    def test_is_none_for_a_tombstone(self, mode: Mode) -> None:
        converter = JsonConverter(mode=mode)
        assert converter.from_connect_data("t", None, None) is None
        assert converter.to_connect_data("t", None) == SchemaAndValue(None, None)

    def test_escapes_names_that_look_like_formats(self, mode: Mode) -> None:
        schema = SchemaBuilder.struct().field("100%", INT8_SCHEMA).field("%s\n", INT8_SCHEMA).build()
        value = Struct.of(schema, {"100%": 1, "%s\n": 2})
        assert written(schema, value, mode) == '{"100%":1,"%s\\n":2}'


class TestSchemas:
    @pytest.mark.parametrize(
        "schema",
        [
            '"int32"',
            "5",
            "[]",
            "{}",
            '{"type":5}',
            '{"type":"float32"}',
            '{"type":"array"}',
            '{"type":"array","items":null}',
            '{"type":"array","items":5}',
            '{"type":"map","keys":{"type":"string"}}',
            '{"type":"map","values":{"type":"string"}}',
            '{"type":"struct"}',
            '{"type":"struct","fields":[null]}',
            '{"type":"struct","fields":[{"type":"int8"}]}',
            '{"type":"int32","parameters":{"a":1}}',
            '{"type":"int32","default":null,"optional":"true"}',
        ],
    )
    def test_refuses_invalid_input(self, schema: str, mode: Mode) -> None:
        with pytest.raises(ConnectDataError):
            read(schema, "null", mode)

    @pytest.mark.parametrize(
        "schema",
        [
            '{"type":"map","keys":null,"values":{"type":"string"}}',
            '{"type":"struct","fields":[{"type":"int8","field":""}]}',
            '{"type":"struct","fields":[{"type":"int8","field":"a"},{"type":"int8","field":"a"}]}',
        ],
    )
    def test_refuses_parts_that_do_not_fit_together(self, schema: str, mode: Mode) -> None:
        with pytest.raises(SchemaBuilderError):
            read(schema, "null", mode)

    @pytest.mark.parametrize(
        "schema",
        [
            '{"type":"int32","optional":"true"}',
            '{"type":"int32","name":5}',
            '{"type":"int32","doc":5}',
            '{"type":"int32","version":1.5}',
            '{"type":"int32","version":3000000000}',
            '{"type":"int32","parameters":[]}',
            '{"type":"int32","items":{"type":"int8"}}',
            '{"type":"int32","field":"a"}',
            '{"type":"int32","nullable":true}',
            '{"type":"int32","type":"int32"}',
        ],
    )
    def test_ignores_what_it_does_not_know_in_kafkas_mode_only(self, schema: str) -> None:
        assert alike(read(schema, "5", KAFKA_4_3), Int32(5))
        with pytest.raises(ConnectDataError):
            read(schema, "5", STRICT)

    def test_reads_defaults_and_writes_them(self, mode: Mode) -> None:
        date = f'{{"type":"int32","optional":false,"name":"{Date.LOGICAL_NAME}","version":1,"default":1}}'
        converter = JsonConverter(mode=mode)
        found = converter.to_connect_data("t", envelope(date, "null"))
        assert found.value == datetime(1970, 1, 2, tzinfo=UTC)
        assert converter.from_connect_data("t", found.schema, None) == envelope(date, "1")

    def test_takes_a_struct_for_a_default_in_the_strict_mode_only(self) -> None:
        schema = '{"type":"struct","fields":[{"type":"int8","field":"a"}],"default":{"a":1}}'
        assert read(schema, "null", STRICT).to_dict() == {"a": 1}
        with pytest.raises(SchemaBuilderError):
            read(schema, "null", KAFKA_4_3)

    def test_refuses_a_default_of_another_type(self, mode: Mode) -> None:
        with pytest.raises(ConnectDataError):
            read('{"type":"string","default":5}', '"x"', mode)

    @pytest.mark.parametrize(
        ("schema", "message"),
        [
            ('{"type":"integer"}', "schema: expected 'type' as one of .*; found 'integer'$"),
            ('{"type":"array","items":{"type":"map"}}', "schema.items: expected the schemas 'keys'"),
            ('{"type":"struct","fields":[{"type":"int8"}]}', r"schema.fields\[0\]: expected a field"),
            (
                '{"type":"struct","fields":[{"field":"a","type":"array","items":{"type":"x"}}]}',
                r"schema.fields\[0\].items: expected 'type'",
            ),
        ],
    )
    def test_says_where_a_schema_is_wrong(self, schema: str, message: str, mode: Mode) -> None:
        with pytest.raises(ConnectDataError, match=f"^{message}"):
            read(schema, "1", mode)

    def test_raises_kafkas_class_for_a_default_of_another_type(self) -> None:
        with pytest.raises(SchemaBuilderError):
            read('{"type":"string","default":5}', '"x"', KAFKA_4_3)


class TestNulls:
    @pytest.mark.parametrize(("replace", "found"), [("true", "d"), ("false", None)])
    def test_stand_for_the_default_where_that_is_configured(
        self, replace: str, found: str | None, mode: Mode
    ) -> None:
        config = {"replace.null.with.default": replace}
        schema = (
            SchemaBuilder.struct().field("a", SchemaBuilder.string().optional().default("d").build()).build()
        )
        converter = JsonConverter({**config, "schemas.enable": False}, mode=mode)
        expected = json.dumps({"a": found}, separators=(",", ":")).encode()
        assert converter.from_connect_data("t", schema, Struct(schema)) == expected
        text = JsonConverter(mode=mode).from_connect_data("t", schema, Struct(schema))
        assert text is not None
        back = JsonConverter(config, mode=mode).to_connect_data("t", text.replace(b'{"a":"d"}', b"{}"))
        assert back.value.get_without_default("a") == found

    def test_are_refused_where_a_value_is_required(self, mode: Mode) -> None:
        schema = SchemaBuilder.struct().field("a", INT32_SCHEMA).build()
        with pytest.raises(ConnectDataError, match="required"):
            written(INT32_SCHEMA, None, mode)
        with pytest.raises(ConnectDataError, match="'a'"):
            written(schema, Struct(schema), mode)
        with pytest.raises(ConnectDataError, match="required"):
            read('{"type":"int32"}', "null", mode)
        with pytest.raises(ConnectDataError, match="'a'"):
            read('{"type":"struct","fields":[{"type":"int32","field":"a"}]}', "{}", mode)

    def test_are_written_where_they_are_values(self, mode: Mode) -> None:
        assert written(OPTIONAL_INT32_SCHEMA, None, mode) == "null"
        assert written(None, [None, {"a": None}], mode) == '[null,{"a":null}]'


class TestPayloads:
    @pytest.mark.parametrize(
        ("schema", "payload", "value"),
        [
            ('{"type":"int8"}', "300", Int8(44)),
            ('{"type":"int16"}', "32768", Int16(-32768)),
            ('{"type":"int32"}', "3000000000", Int32(-1294967296)),
            ('{"type":"int32"}', "-1.9", Int32(-1)),
            ('{"type":"int32"}', "1e30", Int32(1073741824)),
            ('{"type":"int64"}', "1e19", -8446744073709551616),
            ('{"type":"int64"}', "9223372036854775808", -9223372036854775808),
            ('{"type":"int64"}', "1e999999999", 0),
            ('{"type":"int32"}', '"5"', Int32(0)),
            ('{"type":"int32"}', "true", Int32(0)),
            ('{"type":"boolean"}', "1", False),
            ('{"type":"string"}', "5", None),
            ('{"type":"bytes"}', "5", None),
            ('{"type":"bytes"}', '" aGk= aGk="', b"hihi"),
            ('{"type":"bytes"}', '"aGl="', b"hi"),
            ('{"type":"double"}', '"NaN"', 0.0),
            ('{"type":"double"}', "1e400", float("inf")),
            ('{"type":"double"}', "9007199254740993", 9007199254740992.0),
            ('{"type":"double"}', "-0.0", 0.0),
            ('{"type":"float"}', "1e39", Float32("inf")),
            ('{"type":"float"}', "true", Float32(0)),
            ('{"type":"array","items":{"type":"int8"}}', "5", []),
            ('{"type":"array","items":{"type":"int8"}}', '{"a":1,"b":2}', [Int8(1), Int8(2)]),
            ('{"type":"array","items":{"type":"string"}}', "[1]", [None]),
            (
                '{"type":"map","keys":{"type":"int8"},"values":{"type":"int8"}}',
                "[[1,2],[1,3]]",
                {Int8(1): Int8(3)},
            ),
        ],
    )
    def test_are_bent_to_the_schema_in_kafkas_mode_only(self, schema: str, payload: str, value: Any) -> None:
        assert alike(read(schema, payload, KAFKA_4_3), value)
        if payload != "-0.0":
            with pytest.raises(ConnectDataError):
                read(schema, payload, STRICT)

    def test_keep_the_sign_of_zero_in_the_strict_mode(self) -> None:
        assert alike(read('{"type":"double"}', "-0.0", STRICT), -0.0)
        assert alike(read('{"type":"double"}', "-1e-400", KAFKA_4_3), -0.0)

    @pytest.mark.parametrize(
        ("text", "bits"),
        [
            ("1.0000000596046447753906250000000001", "0x1.0000020000000p+0"),
            ("1.000000059604644775390625", "0x1.0000000000000p+0"),
            ("7.0064923216240854e-46", "0x1.0000000000000p-149"),
        ],
    )
    def test_are_rounded_to_float32_once(self, text: str, bits: str, mode: Mode) -> None:
        assert read('{"type":"float"}', text, mode).hex() == bits

    def test_may_be_whole_numbers_for_floats(self, mode: Mode) -> None:
        assert alike(read('{"type":"double"}', "5", mode), 5.0)
        assert alike(read('{"type":"float"}', "5", mode), Float32(5))

    @pytest.mark.parametrize("payload", ["[]", "5", '"x"', "{}"])
    def test_of_structs_and_maps_are_objects(self, payload: str) -> None:
        struct = '{"type":"struct","fields":[{"type":"int8","field":"a"}]}'
        pairs = '{"type":"map","keys":{"type":"int8"},"values":{"type":"int8"}}'
        for mode in MODES:
            with pytest.raises(ConnectDataError):
                read(struct, payload, mode)
        if payload != "[]":
            with pytest.raises(ConnectDataError):
                read(pairs, payload, KAFKA_4_3)

    @pytest.mark.parametrize("payload", ["[[1]]", "[[1,2,3]]", "[5]", '{"1":2}'])
    def test_of_maps_without_text_for_keys_are_pairs(self, payload: str, mode: Mode) -> None:
        with pytest.raises(ConnectDataError):
            read('{"type":"map","keys":{"type":"int8"},"values":{"type":"int8"}}', payload, mode)

    def test_of_maps_may_have_lists_for_keys_but_no_objects(self, mode: Mode) -> None:
        key = '{"type":"array","items":{"type":"int8"}}'
        assert read(f'{{"type":"map","keys":{key},"values":{{"type":"int8"}}}}', "[[[1],2]]", mode) == {
            (1,): 2
        }
        key = '{"type":"struct","fields":[]}'
        with pytest.raises(ConnectDataError, match="keys"):
            read(f'{{"type":"map","keys":{key},"values":{{"type":"int8"}}}}', "[[{},2]]", mode)

    def test_with_unknown_fields_are_refused_in_the_strict_mode(self) -> None:
        schema = '{"type":"struct","fields":[{"type":"int8","field":"a","optional":true}]}'
        assert read(schema, '{"a":1,"b":2}', KAFKA_4_3).to_dict() == {"a": 1}
        for payload in ('{"a":1,"b":2}', '{"b":2}'):
            with pytest.raises(ConnectDataError, match="'b'"):
                read(schema, payload, STRICT)

    def test_null_inside_of_structs_is_checked_deep_down(self, mode: Mode) -> None:
        schema = '{"type":"struct","fields":[{"type":"array","items":{"type":"string"},"field":"a"}]}'
        with pytest.raises(ConnectDataError, match="'a'"):
            read(schema, '{"a":[1]}', mode)


class TestLogicalTypes:
    DECIMAL = '{"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"2"}}'

    def test_decimals_are_base64_or_numbers(self, mode: Mode) -> None:
        value = DecimalNumber("123456789012345678901234567890123456.78")
        with localcontext() as context:
            context.prec = 3
            context.capitals = 0
            assert written(Decimal.schema(2), value, mode, decimal_format="NUMERIC") == str(value)
            text = written(Decimal.schema(2), value, mode)
            assert str(read(self.DECIMAL, text, mode)) == str(value)
            assert str(read(self.DECIMAL, str(value), mode)) == str(value)

    def test_decimals_take_the_schemas_scale_in_the_strict_mode(self) -> None:
        for text, kafka, strict in (
            ("1.5", "1.5", "1.50"),
            ("1e2", "1E+2", "100.00"),
            ("1.500", "1.500", "1.50"),
        ):
            assert str(read(self.DECIMAL, text, KAFKA_4_3)) == kafka
            assert str(read(self.DECIMAL, text, STRICT)) == strict
        assert str(read(self.DECIMAL, "1.505", KAFKA_4_3)) == "1.505"
        for text in ("1.505", "1e-999999999", "1e999999999", "0.001"):
            with pytest.raises(ConnectDataError):
                read(self.DECIMAL, text, STRICT)

    @pytest.mark.parametrize("payload", ['""', '"x"', "true", "[1]", '"' + "A" * 40_000 + '"'])
    def test_decimals_refuse_everything_else(self, payload: str, mode: Mode) -> None:
        with pytest.raises(ConnectDataError):
            read(self.DECIMAL, payload, mode)

    def test_decimals_of_a_schema_without_a_scale(self) -> None:
        schema = SchemaBuilder.bytes().name("org.apache.kafka.connect.data.Decimal").build()
        with pytest.raises(NullValueError):
            written(schema, DecimalNumber("1.5"), KAFKA_4_3)
        with pytest.raises(ConnectDataError):
            written(schema, DecimalNumber("1.5"), STRICT)

    def test_decimals_as_numbers_have_the_schemas_scale_in_the_strict_mode(self) -> None:
        schema = SchemaBuilder.bytes().name(Decimal.LOGICAL_NAME).build()
        for each in (Decimal.schema(2), schema):
            assert written(each, DecimalNumber("1.5"), KAFKA_4_3, decimal_format="NUMERIC") == "1.5"
            with pytest.raises(ConnectDataError):
                written(each, DecimalNumber("1.5"), decimal_format="NUMERIC")

    @pytest.mark.parametrize("scale", ["2000000000", "-2000000000", "1" * 100])
    def test_hostile_scales_cost_no_time(self, scale: str, mode: Mode) -> None:
        schema = self.DECIMAL.replace('"2"', f'"{scale}"')
        for payload in ("5", '"BQ=="'):
            try:
                read(schema, payload, mode)
            except ConnectDataError:
                continue
            assert mode == KAFKA_4_3

    def test_times_are_numbers(self, mode: Mode) -> None:
        name = '"name":"org.apache.kafka.connect.data.'
        at = datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)
        assert written(Time.SCHEMA, at, mode) == "5000"
        assert read(f'{{"type":"int32",{name}Time"}}', "5000", mode) == at
        assert read(f'{{"type":"int64",{name}Timestamp"}}', "5000", mode) == at
        for kind, payload in (
            ("Date", "3000000000"),
            ("Date", "1.0"),
            ("Time", "86400001"),
            ("Timestamp", '"x"'),
        ):
            with pytest.raises(ConnectDataError):
                read(f'{{"type":"int32",{name}{kind}"}}', payload, mode)

    def test_timestamps_beyond_64_bits_wrap_in_kafkas_mode_only(self) -> None:
        schema = '{"type":"int64","name":"org.apache.kafka.connect.data.Timestamp"}'
        assert read(schema, "18446744073709551621", KAFKA_4_3) == datetime(
            1970, 1, 1, 0, 0, 0, 5000, tzinfo=UTC
        )
        with pytest.raises(ConnectDataError):
            read(schema, "18446744073709551621", STRICT)
