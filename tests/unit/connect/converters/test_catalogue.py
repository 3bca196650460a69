"""Converters by configuration, and headers through them."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from headerware.connect.config import ConfigDef
from headerware.connect.converters.base import Converter, HeaderConverter
from headerware.connect.converters.catalogue import (
    converter_from,
    converter_type,
    header_converter_from,
    header_converter_type,
)
from headerware.connect.converters.json.converter import JsonConverter
from headerware.connect.converters.primitives import LongConverter
from headerware.connect.converters.simple import SimpleHeaderConverter
from headerware.connect.converters.string import StringConverter
from headerware.connect.converters.wire_headers import WireHeader, from_connect, to_connect
from headerware.connect.data import NULL, STRING_SCHEMA, Schema, SchemaAndValue
from headerware.connect.errors import ConnectConfigError, ConnectDataError, UnknownClassError
from headerware.connect.headers import ConnectHeader
from headerware.connect.modes import KAFKA_4_3, STRICT, Mode
from headerware.connect.records import SinkRecord
from headerware.core.errors import HeaderError
from headerware.core.headers import Headers

MODES: tuple[Mode, ...] = (STRICT, KAFKA_4_3)
both = pytest.mark.parametrize("mode", MODES)
JSON = "org.apache.kafka.connect.json.JsonConverter"
STRING = "org.apache.kafka.connect.storage.StringConverter"


class TestCatalogue:
    @pytest.mark.parametrize("name", converter_type.names())
    def test_has_converters_by_both_names(self, name: str) -> None:
        kind: Any = converter_type(name)
        assert issubclass(kind, Converter)
        assert header_converter_type(name) is kind
        full = next(each for each in converter_type.built_in if each.endswith(f".{name}"))
        assert converter_type(full) is kind

    def test_has_simple_header_converter_for_headers_only(self) -> None:
        assert header_converter_type("SimpleHeaderConverter") is SimpleHeaderConverter
        with pytest.raises(UnknownClassError):
            converter_type("SimpleHeaderConverter")

    def test_hints_at_near_names(self) -> None:
        with pytest.raises(UnknownClassError, match=r"value\.converter.*JsonConverter"):
            converter_type("JsonConvertor", path="value.converter")


class TestConverterFrom:
    @both
    def test_takes_the_connectors_with_its_options(self, mode: Mode) -> None:
        config = {"value.converter": JSON, "value.converter.schemas.enable": "false", "key.converter": STRING}
        found = converter_from(config, "value", worker={"value.converter": STRING}, mode=mode)
        assert isinstance(found, JsonConverter)
        assert found.options["schemas.enable"] is False
        assert found.options["converter.type"] == "value"
        assert isinstance(converter_from(config, "key", mode=mode), StringConverter)

    @both
    def test_gives_it_none_of_the_workers_options(self, mode: Mode) -> None:
        worker = {"value.converter": JSON, "value.converter.schemas.enable": "false"}
        assert converter_from({"value.converter": JSON}, "value", worker=worker, mode=mode).options[
            "schemas.enable"
        ]
        defaulted = converter_from({"name": "c"}, "value", worker=worker, mode=mode)
        assert not defaulted.options["schemas.enable"]

    @both
    def test_is_required(self, mode: Mode) -> None:
        with pytest.raises(ConnectConfigError, match=r"key\.converter"):
            converter_from({}, "key", worker={"value.converter": JSON}, mode=mode)
        with pytest.raises(ConnectConfigError, match=r"key\.converter"):
            converter_from({"key.converter": None}, "key", mode=mode)

    def test_refuses_options_without_their_converter_in_the_strict_mode(self) -> None:
        config, worker = {"value.converter.schemas.enable": "false"}, {"value.converter": JSON}
        found = converter_from(config, "value", worker=worker, mode=KAFKA_4_3)
        assert found.options["schemas.enable"] is True
        with pytest.raises(ConnectConfigError, match=r"value\.converter\.schemas\.enable"):
            converter_from(config, "value", worker=worker)

    def test_tells_the_whole_key_of_a_wrong_option(self) -> None:
        for option in ("schemas.enable", "schemas.enabled"):
            config = {"value.converter": JSON, f"value.converter.{option}": "x"}
            with pytest.raises(ConnectConfigError) as caught:
                converter_from(config, "value")
            assert caught.value.path == f"value.converter.{option}"
            assert str(caught.value).startswith(f"value.converter.{option}: ")
            assert str(caught.value).count(option + ":") == 1


class TestHeaderConverterFrom:
    @both
    def test_is_simple_by_default(self, mode: Mode) -> None:
        assert isinstance(header_converter_from({}, mode=mode), SimpleHeaderConverter)
        assert isinstance(header_converter_from({}, worker={}, mode=mode), SimpleHeaderConverter)

    @both
    def test_takes_the_connectors_before_the_workers(self, mode: Mode) -> None:
        worker = {"header.converter": JSON, "header.converter.schemas.enable": "false"}
        found = header_converter_from({"header.converter": "LongConverter"}, worker=worker, mode=mode)
        assert isinstance(found, LongConverter)
        assert found.options == {"converter.type": "header"}
        defaulted = header_converter_from({}, worker=worker, mode=mode)
        assert defaulted.options["schemas.enable"] is False

    def test_refuses_options_that_the_default_does_not_have(self) -> None:
        worker = {"header.converter.schemas.enable": "false"}
        header_converter_from({}, worker=worker, mode=KAFKA_4_3)
        with pytest.raises(ConnectConfigError, match=r"header\.converter\.schemas\.enable"):
            header_converter_from({}, worker=worker)


class Counting(HeaderConverter):
    """Count what is decoded and encoded."""

    CONFIG: ClassVar[ConfigDef] = ConfigDef()

    def __init__(self) -> None:
        super().__init__()
        self.decoded: list[str] = []
        self.encoded: list[str] = []

    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: Any) -> bytes | None:
        del topic, schema
        self.encoded.append(key)
        return str(value).encode()

    def to_connect_header(self, topic: str, key: str, data: bytes | None) -> SchemaAndValue:
        del topic
        self.decoded.append(key)
        if data == b"bad":
            raise ConnectDataError("bad")
        return NULL if data is None else SchemaAndValue(STRING_SCHEMA, data.decode("latin1"))


WIRE = Headers([("a", b"1"), ("b", None), ("a", b"\xff"), ("c", b"3")])


class TestHeadersCodec:
    def test_gives_the_very_headers_back_where_nobody_looked(self) -> None:
        converter = Counting()
        headers = to_connect("t", WIRE, converter)
        assert from_connect("t", headers, converter) is WIRE
        record = SinkRecord("t", headers=to_connect("t", WIRE, converter)).with_topic("u")
        assert from_connect("u", record.headers, converter) is WIRE
        assert (converter.decoded, converter.encoded) == ([], [])

    def test_decodes_what_is_looked_at_once(self) -> None:
        converter = Counting()
        headers = to_connect("t", WIRE, converter)
        assert [header.key for header in headers] == ["a", "b", "a", "c"]
        last = headers.last_with_name("c")
        assert last is not None
        assert (last.value, last.schema, last.value) == ("3", STRING_SCHEMA, "3")
        assert converter.decoded == ["c"]

    def test_keeps_the_bytes_of_what_is_not_replaced(self) -> None:
        converter = Counting()
        headers = to_connect("t", WIRE, converter)
        headers.apply(lambda header: header.rename("z") if header.key == "c" else header)
        headers.add("new", "x", STRING_SCHEMA)
        found = from_connect("t", headers, converter)
        assert found == Headers([("a", b"1"), ("b", None), ("a", b"\xff"), ("z", b"3"), ("new", b"x")])
        assert (converter.decoded, converter.encoded) == ([], ["new"])

    def test_writes_what_was_replaced(self) -> None:
        converter = Counting()
        headers = to_connect("t", Headers([("a", b"1")]), converter)
        headers.apply(lambda header: header.with_value(STRING_SCHEMA, f"{header.value}!"))
        assert from_connect("t", headers, converter) == Headers([("a", b"1!")])

    def test_freezes_what_left(self) -> None:
        converter = Counting()
        for headers in (to_connect("t", WIRE, converter), to_connect("t", WIRE, converter).remove("a")):
            from_connect("t", headers, converter)
            with pytest.raises(HeaderError):
                headers.add_string("x", "y")
            assert len(headers.duplicate().add_string("x", "y")) == len(headers) + 1

    def test_raises_where_a_bad_header_is_looked_at(self) -> None:
        converter = Counting()
        headers = to_connect("t", Headers([("a", b"bad")]), converter)
        duplicate = headers.duplicate()
        header = next(iter(headers))
        assert isinstance(header, WireHeader)
        with pytest.raises(ConnectDataError):
            _ = header.value
        assert from_connect("t", duplicate, converter) == Headers([("a", b"bad")])

    def test_knows_no_other_attributes(self) -> None:
        headers = to_connect("t", WIRE, Counting())
        assert not hasattr(headers, "other")
        assert headers == to_connect("t", WIRE, Counting())
        assert list(headers)[1] == ConnectHeader("b", None, None)

    def test_takes_no_headers(self) -> None:
        headers = to_connect("t", Headers(), Counting())
        assert len(headers) == 0
        assert from_connect("t", headers, Counting()) == Headers()
