"""Casts of the strict mode."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal as DecimalNumber
from typing import Any

import pytest

from headerware.connect.data import (
    BYTES_SCHEMA,
    INT8_SCHEMA,
    Date,
    Decimal,
    Float32,
    Int8,
    Int16,
    Int32,
    Schema,
    SchemaBuilder,
    Time,
    Timestamp,
    Type,
    alike,
)
from headerware.connect.data.times import from_epoch_ms
from headerware.connect.errors import (
    ConnectDataError,
)
from headerware.connect.modes import STRICT, Mode
from headerware.connect.records import SourceRecord
from headerware.connect.transforms.cast import Cast

PRICES = Decimal.schema(2)


def cast_whole(spec: str, schema: Schema | None, value: Any, mode: Mode = STRICT) -> Any:
    """Return a record's value, cast."""
    return Cast.Value({"spec": spec}, mode=mode).apply(record(schema, value)).value


def record(schema: Schema | None, value: Any) -> SourceRecord:
    """Return a record of a value."""
    return SourceRecord(topic="t", value_schema=schema, value=value)


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
    def test_refuse_what_would_be_lost(self, spec: str, value: Any) -> None:
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
