"""The converters of one primitive value: bytes, booleans, numbers."""

from __future__ import annotations

import math
from decimal import Decimal as DecimalNumber
from typing import Any

import pytest

from headerware.connect.converters.base import DualConverter
from headerware.connect.converters.primitives import (
    BooleanConverter,
    ByteArrayConverter,
    DoubleConverter,
    FloatConverter,
    IntegerConverter,
    LongConverter,
    NumberConverter,
    ShortConverter,
)
from headerware.connect.converters.string import StringConverter
from headerware.connect.data import (
    BOOLEAN_SCHEMA,
    BYTES_SCHEMA,
    OPTIONAL_BOOLEAN_SCHEMA,
    OPTIONAL_BYTES_SCHEMA,
    STRING_SCHEMA,
    Decimal,
    Float32,
    Int8,
    Int16,
    Int32,
    SchemaAndValue,
)
from headerware.connect.errors import ConnectConfigError, ConnectDataError
from headerware.connect.modes import KAFKA_4_3, Mode

NUMBERS: tuple[tuple[type[NumberConverter], Any, bytes], ...] = (
    (ShortConverter, Int16(-2), b"\xff\xfe"),
    (IntegerConverter, Int32(1), b"\0\0\0\1"),
    (LongConverter, 1 << 40, b"\0\0\1\0\0\0\0\0"),
    (FloatConverter, Float32(1.5), b"\x3f\xc0\0\0"),
    (DoubleConverter, 1.5, b"\x3f\xf8\0\0\0\0\0\0"),
)


class TestDualConverter:
    @pytest.mark.parametrize("kind", [ByteArrayConverter, BooleanConverter, StringConverter, LongConverter])
    def test_treats_headers_as_values(self, kind: type[DualConverter]) -> None:
        value = {ByteArrayConverter: b"x", BooleanConverter: True, StringConverter: "x", LongConverter: 1}[
            kind
        ]
        converter = kind()
        data = converter.from_connect_header("t", "h", None, value)
        assert data == converter.from_connect_data("t", None, value)
        assert converter.to_connect_header("t", "h", data) == converter.to_connect_data("t", data)

    def test_takes_its_use_and_nothing_else(self) -> None:
        assert LongConverter({"converter.type": "header"}).options == {"converter.type": "header"}
        with pytest.raises(ConnectConfigError, match=r"converter\.type"):
            LongConverter({"converter.type": "footer"})
        with pytest.raises(ConnectConfigError, match=r"schemas\.enable"):
            LongConverter({"schemas.enable": "false"})

    def test_describes_its_keys(self) -> None:
        assert [key.name for key in StringConverter.config()] == ["converter.type", "converter.encoding"]


class TestByteArrayConverter:
    def test_passes_bytes_and_null_through(self, mode: Mode) -> None:
        converter = ByteArrayConverter(mode=mode)
        assert converter.from_connect_data("t", BYTES_SCHEMA, b"\xff\0") == b"\xff\0"
        assert converter.from_connect_data("t", None, memoryview(b"ab")) == b"ab"
        assert converter.from_connect_data("t", OPTIONAL_BYTES_SCHEMA, None) is None
        assert converter.to_connect_data("t", b"ab") == SchemaAndValue(OPTIONAL_BYTES_SCHEMA, b"ab")
        assert converter.to_connect_data("t", None) == SchemaAndValue(OPTIONAL_BYTES_SCHEMA, None)

    def test_refuses_everything_else(self, mode: Mode) -> None:
        converter = ByteArrayConverter(mode=mode)
        for schema, value in ((None, "x"), (STRING_SCHEMA, None), (Decimal.schema(2), DecimalNumber("1.50"))):
            with pytest.raises(ConnectDataError):
                converter.from_connect_data("t", schema, value)

    def test_looks_at_no_configuration_in_kafkas_mode(self) -> None:
        ByteArrayConverter({"converter.type": "x", "y": "z"}, mode=KAFKA_4_3)
        with pytest.raises(ConnectConfigError):
            ByteArrayConverter({"y": "z"})


class TestBooleanConverter:
    def test_writes_and_reads_one_byte(self, mode: Mode) -> None:
        converter = BooleanConverter(mode=mode)
        for value, data in ((True, b"\1"), (False, b"\0"), (None, None)):
            assert converter.from_connect_data("t", OPTIONAL_BOOLEAN_SCHEMA, value) == data
            assert converter.to_connect_data("t", data) == SchemaAndValue(OPTIONAL_BOOLEAN_SCHEMA, value)

    def test_refuses_everything_else(self, mode: Mode) -> None:
        converter = BooleanConverter(mode=mode)
        for schema, value in ((None, 1), (STRING_SCHEMA, True), (BOOLEAN_SCHEMA, "true")):
            with pytest.raises(ConnectDataError):
                converter.from_connect_data("t", schema, value)
        for data in (b"", b"\2", b"\0\0", b"true"):
            with pytest.raises(ConnectDataError):
                converter.to_connect_data("t", data)


class TestNumberConverter:
    @pytest.mark.parametrize(("kind", "value", "data"), NUMBERS)
    def test_writes_and_reads_big_endian_bytes(
        self, kind: type[NumberConverter], value: Any, data: bytes, mode: Mode
    ) -> None:
        converter = kind(mode=mode)
        assert converter.from_connect_data("t", converter.SCHEMA, value) == data
        assert converter.to_connect_data("t", data) == SchemaAndValue(converter.SCHEMA, value)
        assert converter.from_connect_data("t", converter.SCHEMA, None) is None
        assert converter.to_connect_data("t", None) == SchemaAndValue(converter.SCHEMA, None)

    @pytest.mark.parametrize("kind", [each[0] for each in NUMBERS])
    def test_refuses_other_sizes_and_classes(self, kind: type[NumberConverter], mode: Mode) -> None:
        converter = kind(mode=mode)
        for data in (b"", b"1", bytes(3), bytes(9)):
            with pytest.raises(ConnectDataError, match="bytes"):
                converter.to_connect_data("t", data)
        for value in (True, "1", Int8(1), DecimalNumber(1)):
            with pytest.raises(ConnectDataError):
                converter.from_connect_data("t", None, value)

    def test_ignores_the_schema_in_kafkas_mode_only(self) -> None:
        assert IntegerConverter(mode=KAFKA_4_3).from_connect_data("t", STRING_SCHEMA, Int32(1)) == b"\0\0\0\1"
        with pytest.raises(ConnectDataError):
            IntegerConverter().from_connect_data("t", STRING_SCHEMA, Int32(1))

    def test_takes_plain_numbers_that_fit_in_the_strict_mode_only(self) -> None:
        assert IntegerConverter().from_connect_data("t", None, 1) == b"\0\0\0\1"
        assert FloatConverter().from_connect_data("t", None, 1.5) == b"\x3f\xc0\0\0"
        assert FloatConverter().from_connect_data("t", None, float("nan")) == b"\x7f\xc0\0\0"
        for kind, value in (
            (IntegerConverter, 1 << 31),
            (LongConverter, 1 << 63),
            (FloatConverter, 0.1),
            (FloatConverter, 1e300),
            (DoubleConverter, (1 << 53) + 1),
            (DoubleConverter, 10**400),
        ):
            with pytest.raises(ConnectDataError):
                kind().from_connect_data("t", None, value)
        with pytest.raises(ConnectDataError):
            IntegerConverter(mode=KAFKA_4_3).from_connect_data("t", None, 1)


class TestNaN:
    """Java writes one NaN of 64 bits, whatever bits it has, and keeps those of 32."""

    def test_of_any_sign_has_the_same_bytes(self, mode: Mode) -> None:
        converter = DoubleConverter(mode=mode)
        written = [converter.from_connect_data("t", None, nan) for nan in (math.nan, -math.nan)]
        assert written == [b"\x7f\xf8\0\0\0\0\0\0"] * 2
