"""Cast in both modes."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal as DecimalNumber
from typing import Any

import pytest

from headerware.connect.data import (
    BOOLEAN_SCHEMA,
    BYTES_SCHEMA,
    FLOAT32_SCHEMA,
    FLOAT64_SCHEMA,
    INT8_SCHEMA,
    INT16_SCHEMA,
    INT32_SCHEMA,
    INT64_SCHEMA,
    OPTIONAL_INT32_SCHEMA,
    STRING_SCHEMA,
    BigInteger,
    Date,
    Decimal,
    Float32,
    Instant,
    Int8,
    Int16,
    Int32,
    Schema,
    SchemaBuilder,
    Struct,
    Time,
    Timestamp,
    Type,
    alike,
)
from headerware.connect.data.times import from_epoch_ms
from headerware.connect.errors import (
    ConnectConfigError,
    ConnectDataError,
    NullValueError,
    SchemaBuilderError,
    ValueClassError,
)
from headerware.connect.modes import KAFKA_4_3, STRICT, Mode
from headerware.connect.records import SourceRecord
from headerware.connect.transforms.cast import Cast
from tests.unit.connect.conftest import record

PRICES = Decimal.schema(2)


def cast_whole(spec: str, schema: Schema | None, value: Any, mode: Mode = STRICT) -> Any:
    """Return a record's value, cast."""
    return Cast.Value({"spec": spec}, mode=mode).apply(record(schema, value)).value


class TestSpec:
    @pytest.mark.parametrize(
        "spec",
        [
            "",
            "int8,int16",
            "a:int8,int16",
            "a:foo",
            "foo",
            "bytes",
            "a:struct",
            "a:int8:b",
            "a:int8,",
            "a:b:",
        ],
    )
    def test_refuses_invalid_input(self, spec: str, mode: Mode) -> None:
        with pytest.raises(ConnectConfigError) as caught:
            Cast.Value({"spec": spec}, mode=mode)
        assert caught.value.path == "spec"

    def test_is_needed(self, mode: Mode) -> None:
        with pytest.raises(ConnectConfigError):
            Cast.Value({}, mode=mode)

    def test_types_are_read_in_any_case(self, mode: Mode) -> None:
        assert cast_whole(" Int8 ", None, 5, mode) == 5

    def test_strict_refuses_empty_sides_and_repetitions(self) -> None:
        for spec in ("int8:", ":int8", ":", "a:int8,a:int16", "a:int8,a.b:int8"):
            with pytest.raises(ConnectConfigError):
                Cast.Value({"spec": spec})

    def test_kafka_reads_an_open_pair_as_a_type(self) -> None:
        assert alike(cast_whole("int8:", None, 300, KAFKA_4_3), Int8(44))

    def test_kafka_stumbles_over_a_lone_colon(self) -> None:
        with pytest.raises(ConnectConfigError) as caught:
            Cast.Value({"spec": ":"}, mode=KAFKA_4_3)
        assert caught.value.java == "java.lang.ArrayIndexOutOfBoundsException"

    def test_kafka_takes_the_last_of_a_field(self) -> None:
        made = Cast.Value({"spec": "a:int8,a:string"}, mode=KAFKA_4_3).apply(record(None, {"a": 1}))
        assert made.value == {"a": "1"}

    def test_kafka_stumbles_over_a_null_boolean(self) -> None:
        with pytest.raises(NullValueError):
            Cast.Value({"spec": "int8", "replace.null.with.default": None}, mode=KAFKA_4_3)

    def test_works_on_keys_or_values(self) -> None:
        with pytest.raises(TypeError, match=r"Cast\.Key"):
            Cast({"spec": "int8"})
        made = Cast.Key({"spec": "int8"}).apply(SourceRecord(key_schema=INT64_SCHEMA, key=5))
        assert (made.key_schema, made.key) == (INT8_SCHEMA, Int8(5))


class TestKafkaCasts:
    @pytest.mark.parametrize(
        ("spec", "value", "expected"),
        [
            ("int8", 300, Int8(44)),
            ("int8", 127.9, Int8(127)),
            ("int8", 3e9, Int8(-1)),
            ("int16", -32_769, Int16(32_767)),
            ("int32", 1 << 31, Int32(-(1 << 31))),
            ("int32", math.inf, Int32((1 << 31) - 1)),
            ("int64", 1e30, (1 << 63) - 1),
            ("int64", math.nan, 0),
            ("int64", "+7", 7),
            ("int64", "٣", 3),
            ("int8", True, Int8(1)),
            ("float32", 16_777_217, Float32(16_777_216)),
            ("float32", (1 << 60) + (1 << 36) + 1, Float32(float((1 << 60) + (1 << 37)))),
            ("float32", " 0x1p3 ", Float32(8)),
            ("float64", "1e999", math.inf),
            ("float64", "1.5d", 1.5),
            ("boolean", "TRUE", True),
            ("boolean", "yes", False),
            ("boolean", 0.5, False),
            ("boolean", -1, True),
            ("string", 1e7, "1.0E7"),
            ("string", Float32(0.1), "0.1"),
            ("string", False, "false"),
            ("string", b"hi", "aGk="),
            ("string", memoryview(b"hi"), "aGk="),
        ],
    )
    def test_are_those_of_java(self, spec: str, value: Any, expected: Any) -> None:
        assert alike(cast_whole(spec, None, value, KAFKA_4_3), expected)

    @pytest.mark.parametrize(
        ("spec", "value"),
        [
            ("int8", "128"),
            ("int64", "1.5"),
            ("int64", ""),
            ("float64", "x"),
            ("int8", b"hi"),
            ("int8", BigInteger(5)),
            ("int8", DecimalNumber("1.00")),
            ("int8", from_epoch_ms(0)),
            ("string", []),
            ("string", {}),
            ("string", Instant(1 << 60)),
        ],
    )
    def test_refuse_the_same_input_as_java(self, spec: str, value: Any) -> None:
        with pytest.raises(ConnectDataError):
            cast_whole(spec, None, value, KAFKA_4_3)

    @pytest.mark.parametrize(
        ("spec", "schema", "value", "expected"),
        [
            ("int32", Date.SCHEMA, from_epoch_ms(86_400_000), Int32(1)),
            ("int8", Time.SCHEMA, from_epoch_ms(300), Int8(44)),
            ("int64", Timestamp.SCHEMA, from_epoch_ms(-1), -1),
            ("string", Date.SCHEMA, from_epoch_ms(0), "00:00:00.000Z"),
            ("string", Timestamp.SCHEMA, from_epoch_ms(86_400_000), "1970-01-02"),
            ("int64", PRICES, DecimalNumber("18446744073709551617.99"), 1),
            ("float64", PRICES, DecimalNumber("0.10"), 0.1),
            ("string", PRICES, DecimalNumber("1.50"), "1.50"),
        ],
    )
    def test_encode_logical_types(self, spec: str, schema: Schema, value: Any, expected: Any) -> None:
        assert alike(cast_whole(spec, schema, value, KAFKA_4_3), expected)

    def test_keep_the_name_of_a_logical_type_that_is_the_value_itself(self) -> None:
        made = Cast.Value({"spec": "int64"}, mode=KAFKA_4_3).apply(record(Date.SCHEMA, from_epoch_ms(0)))
        assert made.value_schema == Schema(Type.INT64, name=Date.LOGICAL_NAME, version=1)

    def test_stumble_over_a_value_that_is_no_time(self) -> None:
        with pytest.raises(ValueClassError):
            cast_whole("int64", Date.SCHEMA, Int32(5), KAFKA_4_3)

    def test_a_name_that_is_no_longer_true_spoils_the_default(self) -> None:
        schema = Date.builder().default(from_epoch_ms(0)).build()
        with pytest.raises(SchemaBuilderError):
            cast_whole("int64", schema, from_epoch_ms(0), KAFKA_4_3)

    def test_a_struct_with_a_default_is_refused(self) -> None:
        plain = SchemaBuilder.struct().field("id", INT64_SCHEMA).build()
        schema = SchemaBuilder.like(plain, fields=True).default(Struct.of(plain, {"id": 1})).build()
        with pytest.raises(ConnectDataError):
            Cast.Value({"spec": "id:int8"}, mode=KAFKA_4_3).apply(
                record(schema, Struct.of(schema, {"id": 1}))
            )

    def test_unsupported_fields_matter_with_a_value_only(self) -> None:
        schema = SchemaBuilder.struct().field("x", SchemaBuilder.array(INT8_SCHEMA).optional()).build()
        cast = Cast.Value({"spec": "x:string"}, mode=KAFKA_4_3)
        assert cast.apply(record(schema, Struct(schema))).value["x"] is None
        with pytest.raises(ConnectDataError):
            cast.apply(record(schema, Struct.of(schema, {"x": [1]})))


class TestEverySource:
    @pytest.mark.parametrize(
        ("schema", "value"),
        [
            (INT8_SCHEMA, Int8(1)),
            (INT16_SCHEMA, Int16(1)),
            (INT32_SCHEMA, Int32(1)),
            (INT64_SCHEMA, 1),
            (FLOAT32_SCHEMA, Float32(1)),
            (FLOAT64_SCHEMA, 1.0),
            (BOOLEAN_SCHEMA, True),
            (OPTIONAL_INT32_SCHEMA, Int32(1)),
        ],
    )
    def test_one_is_one_in_every_type(self, schema: Schema, value: Any, mode: Mode) -> None:
        for spec, expected in (
            ("int8", Int8(1)),
            ("int16", Int16(1)),
            ("int32", Int32(1)),
            ("int64", 1),
            ("float32", Float32(1)),
            ("float64", 1.0),
            ("boolean", True),
        ):
            made = Cast.Value({"spec": spec}, mode=mode).apply(record(schema, value))
            assert alike(made.value, expected)
            assert made.value_schema == Schema(Type(spec), optional=schema.optional)


class TestExactCasts:
    @pytest.mark.parametrize(
        ("spec", "value", "expected"),
        [
            ("int8", 127, Int8(127)),
            ("int8", 5.0, Int8(5)),
            ("int64", "-9223372036854775808", -(1 << 63)),
            ("int64", "0", 0),
            ("int16", True, Int16(1)),
            ("float32", 0.1, Float32(0.1)),
            ("float32", 16_777_216, Float32(16_777_216)),
            ("float32", "1.50", Float32(1.5)),
            ("float32", math.inf, Float32(math.inf)),
            ("float64", Float32(0.5), 0.5),
            ("float64", "-1e3", -1000.0),
            ("float64", 1 << 53, float(1 << 53)),
            ("boolean", "true", True),
            ("boolean", Int8(0), False),
            ("boolean", 1.0, True),
            ("string", 42, "42"),
            ("string", "x", "x"),
            ("string", b"hi", "aGk="),
        ],
    )
    def test_keep_what_a_value_says(self, spec: str, value: Any, expected: Any) -> None:
        assert alike(cast_whole(spec, None, value), expected)

    @pytest.mark.parametrize(
        ("spec", "value"),
        [
            ("int8", 128),
            ("int8", -129.0),
            ("int64", 9.3e18),
            ("int32", 1.5),
            ("int32", math.nan),
            ("int32", "+7"),
            ("int32", "007"),
            ("int32", "-0"),
            ("int32", " 7"),
            ("int32", "٣"),
            ("int32", "1.0"),
            ("int64", "9" * 10_000),
            ("float32", 16_777_217),
            ("float32", 1.1234567890123),
            ("float32", 1e300),
            ("float32", "16777217"),
            ("float64", (1 << 53) + 1),
            ("float64", "1e999"),
            ("float64", "NaN"),
            ("float64", "1f"),
            ("float64", ".5"),
            ("float64", "0x1p3"),
            ("float64", "0.1234567890123456789"),
            ("boolean", "True"),
            ("boolean", "1"),
            ("boolean", 2),
            ("boolean", 0.5),
            ("int8", b"hi"),
            ("string", []),
            ("string", from_epoch_ms(0)),
        ],
    )
    def test_refuse_a_loss(self, spec: str, value: Any) -> None:
        with pytest.raises(ConnectDataError) as caught:
            cast_whole(spec, None, value)
        assert repr(value) not in str(caught.value)

    @pytest.mark.parametrize(
        ("spec", "schema", "value", "expected"),
        [
            ("int32", Date.SCHEMA, from_epoch_ms(-86_400_000), Int32(-1)),
            ("string", Date.SCHEMA, from_epoch_ms(0), "1970-01-01"),
            ("string", Time.SCHEMA, from_epoch_ms(300), "00:00:00.300Z"),
            ("string", Timestamp.SCHEMA, datetime(1, 1, 1, tzinfo=UTC), "0001-01-01T00:00:00.000Z"),
            ("int64", PRICES, DecimalNumber("5.00"), 5),
            ("int64", Decimal.schema(-3), DecimalNumber("5E+3"), 5000),
            ("float64", PRICES, DecimalNumber("0.10"), 0.1),
            ("string", PRICES, DecimalNumber("1.50"), "1.50"),
        ],
    )
    def test_write_logical_types_by_their_schema(
        self, spec: str, schema: Schema, value: Any, expected: Any
    ) -> None:
        assert alike(cast_whole(spec, schema, value), expected)

    @pytest.mark.parametrize(
        ("spec", "schema", "value"),
        [
            ("int8", Time.SCHEMA, from_epoch_ms(300)),
            ("int64", Date.SCHEMA, Int32(5)),
            ("int64", PRICES, DecimalNumber("1.50")),
            ("int64", PRICES, DecimalNumber("18446744073709551617.00")),
            ("int64", PRICES, DecimalNumber("1E+999999999")),
            ("int64", PRICES, DecimalNumber("1E-999999999")),
            ("float64", PRICES, DecimalNumber("1E+999999999")),
            ("boolean", PRICES, DecimalNumber("2.00")),
            ("int8", BYTES_SCHEMA, b"1"),
            ("string", SchemaBuilder.array(INT8_SCHEMA).build(), []),
        ],
    )
    def test_refuse_logical_values_that_do_not_fit(self, spec: str, schema: Schema, value: Any) -> None:
        with pytest.raises(ConnectDataError):
            cast_whole(spec, schema, value)

    def test_drop_the_name_of_a_logical_type(self) -> None:
        schema = Schema(Type.BYTES, name=Decimal.LOGICAL_NAME, parameters={"scale": "2"}, doc="d")
        made = Cast.Value({"spec": "string"}).apply(record(schema, DecimalNumber("1.00")))
        assert made.value_schema == Schema(Type.STRING, doc="d")

    def test_keep_another_name(self) -> None:
        schema = SchemaBuilder.int64().name("com.acme.Id").version(2).default(5).build()
        made = Cast.Value({"spec": "int8"}).apply(record(schema, 7))
        assert made.value_schema == Schema(Type.INT8, name="com.acme.Id", version=2, default=Int8(5))


NESTED = SchemaBuilder.struct().field("n", INT64_SCHEMA).field("s", STRING_SCHEMA).build()


WIDE = (
    SchemaBuilder.struct()
    .name("Wide")
    .field("id", INT64_SCHEMA)
    .field("count", SchemaBuilder.int32().optional().doc("how many").default(Int32(7)))
    .field("nested", NESTED)
    .field("a.b", STRING_SCHEMA)
    .build()
)


def wide() -> Struct:
    """Return a struct with all kinds of fields."""
    return Struct.of(WIDE, {"id": 5, "nested": {"n": 6, "s": "8"}, "a.b": "9"})


class TestFields:
    def test_are_cast_and_the_rest_stays(self, mode: Mode) -> None:
        made = Cast.Value({"spec": "id:int8,count:string"}, mode=mode).apply(record(WIDE, wide()))
        assert made.value_schema.name == "Wide"
        assert [field.schema.type for field in made.value_schema.fields[:2]] == [Type.INT8, Type.STRING]
        assert made.value_schema.field("count").schema.default == "7"
        assert made.value_schema.field("count").schema.optional
        assert alike(made.value.values[:2], [Int8(5), "7"])
        assert made.value["nested"] == wide()["nested"]

    def test_null_stays_where_defaults_are_not_put_in(self, mode: Mode) -> None:
        config = {"spec": "count:string", "replace.null.with.default": "false"}
        made = Cast.Value(config, mode=mode).apply(record(WIDE, wide()))
        assert made.value.get_without_default("count") is None

    def test_kafka_refuses_null_in_a_required_field_with_a_default(self) -> None:
        schema = SchemaBuilder.struct().field("x", SchemaBuilder.int32().default(Int32(1))).build()
        config = {"spec": "x:string", "replace.null.with.default": False}
        with pytest.raises(ConnectDataError, match="x"):
            Cast.Value(config, mode=KAFKA_4_3).apply(record(schema, Struct(schema)))
        assert Cast.Value(config).apply(record(schema, Struct(schema))).value["x"] == "1"

    def test_one_schema_comes_out_of_equal_ones(self, mode: Mode) -> None:
        cast = Cast.Value({"spec": "id:int8"}, mode=mode)
        again = SchemaBuilder.like(WIDE, fields=True).build()
        one, other = cast.apply(record(WIDE, wide())), cast.apply(record(again, wide()))
        assert one.value_schema is other.value_schema
        assert one.value == other.value

    def test_a_null_key_or_value_passes(self, mode: Mode) -> None:
        for given in (record(None, None), record(WIDE, None)):
            assert Cast.Value({"spec": "id:int8"}, mode=mode).apply(given) is given

    @pytest.mark.parametrize(
        ("schema", "value"),
        [(INT64_SCHEMA, 5), (None, 5), (None, [1]), (WIDE, 5), (WIDE, Struct(NESTED))],
    )
    def test_need_a_struct_or_dict(self, schema: Schema | None, value: Any, mode: Mode) -> None:
        with pytest.raises(ConnectDataError):
            Cast.Value({"spec": "id:int8"}, mode=mode).apply(record(schema, value))

    def test_kafka_passes_over_a_field_that_is_not_there(self) -> None:
        cast = Cast.Value({"spec": "nested.n:int8,zz:int8"}, mode=KAFKA_4_3)
        assert cast.apply(record(WIDE, wide())).value["nested"]["n"] == 6
        assert cast.apply(record(None, {"b": 1})).value == {"b": 1, "nested.n": None, "zz": None}

    def test_strict_refuses_a_field_that_is_not_there(self) -> None:
        with pytest.raises(ConnectDataError, match="it has: id, count"):
            Cast.Value({"spec": "zz:int8"}).apply(record(WIDE, wide()))

    def test_strict_leaves_an_absent_field_absent(self) -> None:
        given = {"b": 1}
        made = Cast.Value({"spec": "zz:int8,a.b:int8"}).apply(record(None, given)).value
        assert made == {"b": 1}
        assert made is not given

    def test_strict_goes_into_structs_and_dicts(self) -> None:
        cast = Cast.Value({"spec": r"nested.n:string,nested.s:int8,a\.b:int8"})
        made = cast.apply(record(WIDE, wide())).value
        assert alike((made["nested"]["n"], made["nested"]["s"], made["a.b"]), ("6", Int8(8), Int8(9)))
        given = {"nested": {"n": 6, "s": "8", "x": 1}, "a.b": "9"}
        assert cast.apply(record(None, given)).value == {"nested": {"n": "6", "s": 8, "x": 1}, "a.b": 9}
        assert given["nested"] == {"n": 6, "s": "8", "x": 1}

    def test_strict_knows_escaped_colons_and_commas(self) -> None:
        cast = Cast.Value({"spec": r"a\:b:int8,c\,d:string"})
        assert cast.apply(record(None, {"a:b": "1", "c,d": 2})).value == {"a:b": 1, "c,d": "2"}

    def test_strict_keeps_what_a_field_says_of_itself(self) -> None:
        made = Cast.Value({"spec": "count:int64"}).apply(record(WIDE, wide()))
        assert made.value_schema.field("count").schema == Schema(
            Type.INT64, optional=True, doc="how many", default=7
        )

    def test_strict_casts_the_default_of_a_struct(self) -> None:
        plain = SchemaBuilder.struct().field("id", INT64_SCHEMA).build()
        schema = (
            SchemaBuilder.like(plain, fields=True).default(Struct.of(plain, {"id": 1})).optional().build()
        )
        made = Cast.Value({"spec": "id:int8"}).apply(record(schema, Struct.of(schema, {"id": 2})))
        assert made.value_schema.optional
        assert alike(made.value_schema.default["id"], Int8(1))
