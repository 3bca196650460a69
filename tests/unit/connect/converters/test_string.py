"""StringConverter: text in a character set."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal as DecimalNumber
from typing import Any

import pytest

from headerware.connect.converters.string import StringConverter
from headerware.connect.data import (
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    Int8,
    SchemaAndValue,
)
from headerware.connect.errors import ConnectConfigError, ConnectDataError, ConversionError
from headerware.connect.modes import KAFKA_4_3, Mode


class TestStringConverter:
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
