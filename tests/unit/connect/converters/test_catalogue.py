"""Converters by configuration."""

from __future__ import annotations

from typing import Any

import pytest

from headerware.connect.converters.base import Converter
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
from headerware.connect.errors import ConnectConfigError, UnknownClassError
from headerware.connect.modes import KAFKA_4_3, Mode

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
    def test_takes_the_connectors_with_its_options(self, mode: Mode) -> None:
        config = {"value.converter": JSON, "value.converter.schemas.enable": "false", "key.converter": STRING}
        found = converter_from(config, "value", worker={"value.converter": STRING}, mode=mode)
        assert isinstance(found, JsonConverter)
        assert found.options["schemas.enable"] is False
        assert found.options["converter.type"] == "value"
        assert isinstance(converter_from(config, "key", mode=mode), StringConverter)

    def test_gives_it_none_of_the_workers_options(self, mode: Mode) -> None:
        worker = {"value.converter": JSON, "value.converter.schemas.enable": "false"}
        assert converter_from({"value.converter": JSON}, "value", worker=worker, mode=mode).options[
            "schemas.enable"
        ]
        defaulted = converter_from({"name": "c"}, "value", worker=worker, mode=mode)
        assert not defaulted.options["schemas.enable"]

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

    def test_names_the_full_key_of_a_wrong_option(self) -> None:
        for option in ("schemas.enable", "schemas.enabled"):
            config = {"value.converter": JSON, f"value.converter.{option}": "x"}
            with pytest.raises(ConnectConfigError) as caught:
                converter_from(config, "value")
            assert caught.value.path == f"value.converter.{option}"
            assert str(caught.value).startswith(f"value.converter.{option}: ")
            assert str(caught.value).count(option + ":") == 1


class TestHeaderConverterFrom:
    def test_is_simple_by_default(self, mode: Mode) -> None:
        assert isinstance(header_converter_from({}, mode=mode), SimpleHeaderConverter)
        assert isinstance(header_converter_from({}, worker={}, mode=mode), SimpleHeaderConverter)

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
