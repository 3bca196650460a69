"""Cast in both modes."""

from __future__ import annotations

import math
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
    OPTIONAL_INT32_SCHEMA,
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

MODES = pytest.mark.parametrize("mode", [STRICT, KAFKA_4_3])
PRICES = Decimal.schema(2)


def cast_whole(spec: str, schema: Schema | None, value: Any, mode: Mode = STRICT) -> Any:
    """Return a record's value, cast."""
    return Cast.Value({"spec": spec}, mode=mode).apply(record(schema, value)).value


def record(schema: Schema | None, value: Any) -> SourceRecord:
    """Return a record of a value."""
    return SourceRecord(topic="t", value_schema=schema, value=value)


class TestSpec:
    @MODES
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
    def test_refuses_what_is_none(self, spec: str, mode: Mode) -> None:
        with pytest.raises(ConnectConfigError) as caught:
            Cast.Value({"spec": spec}, mode=mode)
        assert caught.value.path == "spec"

    @MODES
    def test_is_needed(self, mode: Mode) -> None:
        with pytest.raises(ConnectConfigError):
            Cast.Value({}, mode=mode)

    @MODES
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
    def test_refuse_what_java_refuses(self, spec: str, value: Any) -> None:
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

    def test_keep_the_name_of_a_whole_logical_type(self) -> None:
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
    @MODES
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
