"""SimpleHeaderConverter: header values as text."""

from __future__ import annotations

from typing import Any

import pytest

from headerware.connect.converters.simple import SimpleHeaderConverter
from headerware.connect.data import (
    BOOLEAN_SCHEMA,
    BYTES_SCHEMA,
    FLOAT32_SCHEMA,
    INT8_SCHEMA,
    INT32_SCHEMA,
    INT64_SCHEMA,
    STRING_SCHEMA,
    Float32,
    Int8,
    Int32,
    SchemaAndValue,
    SchemaBuilder,
    Struct,
)
from headerware.connect.errors import ConnectDataError
from headerware.connect.modes import KAFKA_4_3, Mode


class TestSimpleHeaderConverter:
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

    def test_survives_hostile_nesting(self, mode: Mode) -> None:
        found = SimpleHeaderConverter(mode=mode).to_connect_header("t", "h", b"[" * 100_000)
        assert found.schema in {STRING_SCHEMA, BYTES_SCHEMA}
