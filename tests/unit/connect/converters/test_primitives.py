"""The converters other than JSON's: bytes, booleans, numbers, text, and SimpleHeaderConverter."""

from __future__ import annotations

import math
from datetime import UTC, datetime
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
from headerware.connect.converters.simple import SimpleHeaderConverter
from headerware.connect.converters.string import StringConverter
from headerware.connect.data import (
    BOOLEAN_SCHEMA,
    BYTES_SCHEMA,
    FLOAT32_SCHEMA,
    INT8_SCHEMA,
    INT32_SCHEMA,
    INT64_SCHEMA,
    OPTIONAL_BOOLEAN_SCHEMA,
    OPTIONAL_BYTES_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    Decimal,
    Float32,
    Int8,
    Int16,
    Int32,
    SchemaAndValue,
    SchemaBuilder,
    Struct,
)
from headerware.connect.errors import ConnectConfigError, ConnectDataError, ConversionError
from headerware.connect.modes import KAFKA_4_3, STRICT, Mode

MODES: tuple[Mode, ...] = (STRICT, KAFKA_4_3)
both = pytest.mark.parametrize("mode", MODES)
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
    @both
    def test_passes_bytes_and_null_through(self, mode: Mode) -> None:
        converter = ByteArrayConverter(mode=mode)
        assert converter.from_connect_data("t", BYTES_SCHEMA, b"\xff\0") == b"\xff\0"
        assert converter.from_connect_data("t", None, memoryview(b"ab")) == b"ab"
        assert converter.from_connect_data("t", OPTIONAL_BYTES_SCHEMA, None) is None
        assert converter.to_connect_data("t", b"ab") == SchemaAndValue(OPTIONAL_BYTES_SCHEMA, b"ab")
        assert converter.to_connect_data("t", None) == SchemaAndValue(OPTIONAL_BYTES_SCHEMA, None)

    @both
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
    @both
    def test_writes_and_reads_one_byte(self, mode: Mode) -> None:
        converter = BooleanConverter(mode=mode)
        for value, data in ((True, b"\1"), (False, b"\0"), (None, None)):
            assert converter.from_connect_data("t", OPTIONAL_BOOLEAN_SCHEMA, value) == data
            assert converter.to_connect_data("t", data) == SchemaAndValue(OPTIONAL_BOOLEAN_SCHEMA, value)

    @both
    def test_refuses_everything_else(self, mode: Mode) -> None:
        converter = BooleanConverter(mode=mode)
        for schema, value in ((None, 1), (STRING_SCHEMA, True), (BOOLEAN_SCHEMA, "true")):
            with pytest.raises(ConnectDataError):
                converter.from_connect_data("t", schema, value)
        for data in (b"", b"\2", b"\0\0", b"true"):
            with pytest.raises(ConnectDataError):
                converter.to_connect_data("t", data)


class TestNumberConverter:
    @both
    @pytest.mark.parametrize(("kind", "value", "data"), NUMBERS)
    def test_writes_and_reads_big_endian_bytes(
        self, kind: type[NumberConverter], value: Any, data: bytes, mode: Mode
    ) -> None:
        converter = kind(mode=mode)
        assert converter.from_connect_data("t", converter.SCHEMA, value) == data
        assert converter.to_connect_data("t", data) == SchemaAndValue(converter.SCHEMA, value)
        assert converter.from_connect_data("t", converter.SCHEMA, None) is None
        assert converter.to_connect_data("t", None) == SchemaAndValue(converter.SCHEMA, None)

    @both
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


class TestStringConverter:
    @both
    def test_writes_and_reads_text_in_a_character_set(self, mode: Mode) -> None:
        for name, data in (("UTF-8", b"\xc3\xa9"), ("latin1", b"\xe9"), ("UTF-16", b"\xfe\xff\0\xe9")):
            converter = StringConverter({"converter.encoding": name}, mode=mode)
            assert converter.from_connect_data("t", STRING_SCHEMA, "é") == data
            assert converter.to_connect_data("t", data) == SchemaAndValue(OPTIONAL_STRING_SCHEMA, "é")
        assert StringConverter(mode=mode).from_connect_data("t", None, None) is None
        assert StringConverter(mode=mode).to_connect_data("t", None) == (OPTIONAL_STRING_SCHEMA, None)

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (Int8(1), b"1"),
            (True, b"true"),
            (1.0, b"1.0"),
            (1e10, b"1.0E10"),
            (DecimalNumber("1.50"), b"1.50"),
        ],
    )
    @both
    def test_writes_numbers_and_booleans_as_java_does(self, value: Any, text: bytes, mode: Mode) -> None:
        assert StringConverter(mode=mode).from_connect_data("t", None, value) == text

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            ([1, "a"], b"[1, a]"),
            ({"a": 1}, b"{a=1}"),
            (datetime(1970, 1, 1, tzinfo=UTC), b"Thu Jan 01 00:00:00 UTC 1970"),
        ],
    )
    def test_writes_other_values_in_kafkas_mode_only(self, value: Any, text: bytes) -> None:
        assert StringConverter(mode=KAFKA_4_3).from_connect_data("t", None, value) == text
        with pytest.raises(ConnectDataError):
            StringConverter().from_connect_data("t", None, value)

    def test_replaces_what_it_cannot_express_in_kafkas_mode_only(self) -> None:
        config = {"converter.encoding": "US-ASCII"}
        assert StringConverter(config, mode=KAFKA_4_3).from_connect_data("t", None, "aé😀") == b"a??"
        assert StringConverter(config, mode=KAFKA_4_3).to_connect_data("t", b"a\xe9").value == "a\ufffd"
        assert StringConverter(mode=KAFKA_4_3).to_connect_data("t", b"\xed\xa0\x80").value == "\ufffd"
        assert StringConverter(mode=KAFKA_4_3).from_connect_data("t", None, "\ud800") == b"?"
        with pytest.raises(ConnectDataError):
            StringConverter(config).from_connect_data("t", None, "é")
        with pytest.raises(ConnectDataError):
            StringConverter(config).to_connect_data("t", b"\xe9")

    @pytest.mark.parametrize("name", ["bogus", "utf_8", "utf-7", "rot13", "idna", ""])
    def test_refuses_an_unknown_character_set_when_it_is_made(self, name: str) -> None:
        with pytest.raises(ConnectConfigError, match=r"converter\.encoding"):
            StringConverter({"converter.encoding": name})
        with pytest.raises(ConversionError):
            StringConverter({"converter.encoding": name}, mode=KAFKA_4_3)

    def test_takes_null_for_utf_8_in_kafkas_mode(self) -> None:
        converter = StringConverter({"converter.encoding": None}, mode=KAFKA_4_3)
        assert converter.to_connect_data("t", b"\xc3\xa9").value == "é"

    @pytest.mark.parametrize(
        ("units", "text"),
        [
            ("d800 0041 0042", "\ufffdB"),  # what stands in place of a pair's second half goes with it
            ("d800 d83d de00", "\ufffd\ufffd"),
            ("dc00 0041", "\ufffdA"),
            ("0041 d800", "A\ufffd"),
            ("0041 d8", "A\ufffd"),
            ("d83d de00 fffe", "😀\ufffe"),
        ],
    )
    def test_reads_malformed_utf_16_as_java_does(self, units: str, text: str) -> None:
        converter = StringConverter({"converter.encoding": "UTF-16"}, mode=KAFKA_4_3)
        assert converter.to_connect_data("t", bytes.fromhex(units)).value == text

    def test_reads_utf_16_by_its_mark(self) -> None:
        converter = StringConverter({"converter.encoding": "UTF-16"})
        for data in (b"\xff\xfea\0", b"\xfe\xff\0a", b"\0a"):
            assert converter.to_connect_data("t", data).value == "a"
        assert converter.from_connect_data("t", None, "") == b""


class TestSimpleHeaderConverter:
    @both
    def test_writes_text_and_reads_what_it_stands_for(self, mode: Mode) -> None:
        converter = SimpleHeaderConverter(mode=mode)
        assert converter.from_connect_header("t", "h", INT32_SCHEMA, Int32(42)) == b"42"
        assert converter.from_connect_header("t", "h", STRING_SCHEMA, "é") == "é".encode()
        assert converter.from_connect_header("t", "h", STRING_SCHEMA, None) is None
        assert converter.to_connect_header("t", "h", "é".encode()) == SchemaAndValue(STRING_SCHEMA, "é")
        assert converter.to_connect_header("t", "h", b"true") == (BOOLEAN_SCHEMA, True)
        assert converter.to_connect_header("t", "h", None) == (None, None)
        assert converter.to_connect_header("t", "h", b"null") == (None, None)

    def test_reads_numbers_in_the_least_width_in_kafkas_mode(self) -> None:
        kafka = SimpleHeaderConverter(mode=KAFKA_4_3)
        assert kafka.to_connect_header("t", "h", b"42") == SchemaAndValue(INT8_SCHEMA, Int8(42))
        assert kafka.to_connect_header("t", "h", b"12.50") == SchemaAndValue(FLOAT32_SCHEMA, Float32(12.5))
        strict = SimpleHeaderConverter()
        assert strict.to_connect_header("t", "h", b"42") == SchemaAndValue(INT64_SCHEMA, 42)
        assert strict.to_connect_header("t", "h", b"12.50") == SchemaAndValue(STRING_SCHEMA, "12.50")

    def test_takes_bytes_that_are_no_text_for_bytes_in_the_strict_mode(self) -> None:
        strict, kafka = SimpleHeaderConverter(), SimpleHeaderConverter(mode=KAFKA_4_3)
        assert strict.to_connect_header("t", "h", b"\xff\xfe") == SchemaAndValue(BYTES_SCHEMA, b"\xff\xfe")
        assert kafka.to_connect_header("t", "h", b"\xff\xfe") == SchemaAndValue(STRING_SCHEMA, "\ufffd\ufffd")

    @pytest.mark.parametrize(
        "value",
        [
            {"a": 1, "b": "x", "c": True, "d": None, "e": [1, "a"], "f": {"g": 1.5}},
            [1, "a", None, True, [2, ['\\ and "']], {}],
            {1: 2, "a": [], "b": {}},
            [],
            {},
            [None],
            [True, "true", "1", "null"],
        ],
    )
    def test_reads_back_mixed_values_that_it_wrote(self, value: Any) -> None:
        converter = SimpleHeaderConverter()
        raw = converter.from_connect_header("t", "h", None, value)
        assert converter.to_connect_header("t", "h", raw) == SchemaAndValue(None, value)

    def test_reads_a_struct_back_as_a_dict(self) -> None:
        inner = SchemaBuilder.struct().field("x", INT32_SCHEMA).build()
        schema = SchemaBuilder.struct().field("name", STRING_SCHEMA).field("at", inner).build()
        struct = Struct(schema).put("name", "a, b").put("at", Struct(inner).put("x", Int32(5)))
        converter = SimpleHeaderConverter()
        raw = converter.from_connect_header("t", "h", schema, struct)
        read = SchemaAndValue(None, {"name": "a, b", "at": {"x": 5}})
        assert converter.to_connect_header("t", "h", raw) == read

    @pytest.mark.parametrize(
        "text", ["[a] b", "{not: json, really: 1}", "[INFO, 12]", '{"a":1,"a":"x"}', "[1"]
    )
    def test_leaves_text_that_is_no_array_or_map(self, text: str) -> None:
        found = SimpleHeaderConverter().to_connect_header("t", "h", text.encode())
        assert found == SchemaAndValue(STRING_SCHEMA, text)

    @pytest.mark.parametrize("value", [[b"x"], {"a": [1, bytearray(b"x")]}, {b"k": 1}])
    def test_refuses_to_write_bytes_within_others(self, value: Any) -> None:
        with pytest.raises(ConnectDataError, match="ByteArrayConverter"):
            SimpleHeaderConverter().from_connect_header("t", "h", None, value)

    def test_refuses_to_write_bytes_in_the_strict_mode(self) -> None:
        kafka = SimpleHeaderConverter(mode=KAFKA_4_3)
        assert kafka.from_connect_header("t", "h", BYTES_SCHEMA, b"hi") == b"aGk="
        with pytest.raises(ConnectDataError, match="ByteArrayConverter"):
            SimpleHeaderConverter().from_connect_header("t", "h", BYTES_SCHEMA, b"hi")

    def test_writes_half_a_surrogate_pair_in_kafkas_mode_only(self) -> None:
        kafka = SimpleHeaderConverter(mode=KAFKA_4_3)
        assert kafka.from_connect_header("t", "h", STRING_SCHEMA, "\ud800") == b"?"
        with pytest.raises(ConnectDataError):
            SimpleHeaderConverter().from_connect_header("t", "h", STRING_SCHEMA, "\ud800")

    @both
    def test_survives_hostile_nesting(self, mode: Mode) -> None:
        found = SimpleHeaderConverter(mode=mode).to_connect_header("t", "h", b"[" * 100_000)
        assert found.schema in {STRING_SCHEMA, BYTES_SCHEMA}


class TestNaN:
    """Java writes one NaN of 64 bits, whatever bits it has, and keeps those of 32."""

    @pytest.mark.parametrize("mode", ["strict", "kafka_4_3"])
    def test_of_any_sign_has_the_same_bytes(self, mode: Mode) -> None:
        converter = DoubleConverter(mode=mode)
        written = [converter.from_connect_data("t", None, nan) for nan in (math.nan, -math.nan)]
        assert written == [b"\x7f\xf8\0\0\0\0\0\0"] * 2
