"""A connector's own lines in a client's configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headerware import Chain, ConfigError
from headerware.core.client_chain import client_chain
from headerware.core.config import is_ours
from headerware.interceptors import Serialize, Transforms
from headerware.interceptors.connector_lines import connector_source
from headerware.serdes import Json

if TYPE_CHECKING:
    from pathlib import Path

LINES = {
    "transforms": "mask",
    "transforms.mask.type": "org.apache.kafka.connect.transforms.MaskField$Value",
    "transforms.mask.fields": "ssn",
    "transforms.mask.predicate": "people",
    "predicates": "people",
    "predicates.people.type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
    "predicates.people.pattern": "people.*",
    "header.converter": "org.apache.kafka.connect.storage.StringConverter",
}
CONVERTERS = {
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}


def steps(config: dict[str, Any]) -> tuple[Any, ...]:
    return Chain.from_config(config).interceptors


class TestLines:
    @pytest.mark.parametrize(
        ("key", "answer"),
        [
            ("transforms", True),
            ("transforms.a.type", True),
            ("predicates.p.negate", True),
            ("key.converter", True),
            ("value.converter.schemas.enable", True),
            ("header.converter.converter.encoding", True),
            ("transforms_mask", False),
            ("value.serializer", False),
            ("bootstrap.servers", False),
        ],
    )
    def test_are_told_from_the_clients_own_keys(self, key: str, answer: bool) -> None:  # noqa: FBT001 - parametrized
        assert is_ours(key) is answer

    def test_become_one_interceptor_that_works_on_whatever_the_client_does(self) -> None:
        (transforms,) = steps(LINES)
        assert isinstance(transforms, Transforms)
        assert (transforms.config, transforms.on) == (LINES, "both")

    @pytest.mark.parametrize("key", ["header.converter", "header.converter.schemas.enable"])
    def test_of_a_header_converter_alone_are_told(self, key: str) -> None:
        with pytest.raises(ConfigError, match=f"{key}: found a header converter and no transforms"):
            Chain.from_config({key: "org.example.Converter"})

    def test_of_a_header_converter_beside_others_do_nothing_more(self) -> None:
        found = steps({**CONVERTERS, "header.converter": "org.apache.kafka.connect.storage.StringConverter"})
        assert [type(step) for step in found] == [Serialize]

    def test_leave_the_clients_own_keys_to_it(self) -> None:
        chain, rest = client_chain({"bootstrap.servers": "x:1", **LINES, **CONVERTERS})
        assert rest == {"bootstrap.servers": "x:1"}
        assert chain.names == ("transforms", "converters")

    def test_name_converters_that_serialize_behind_the_transforms(self) -> None:
        transforms, serialize = steps({**CONVERTERS, **LINES})
        assert isinstance(transforms, Transforms)
        assert isinstance(serialize, Serialize)
        assert serialize.key is None
        assert serialize.value.options == {"schemas.enable": "false"}

    def test_stand_before_what_the_client_lists(self) -> None:
        config = {"interceptors": "trail", **CONVERTERS, **LINES}
        assert Chain.from_config(config).names == ("transforms", "converters", "trail")

    def test_take_further_options_under_their_alias(self) -> None:
        (transforms,) = steps({**LINES, "interceptors.transforms.mode": "kafka_4_3"})
        assert transforms.mode == "kafka_4_3"

    def test_take_options_of_a_converters_serde_under_their_alias_too(self) -> None:
        options = {
            "interceptors.converters.value.plain": "true",
            "interceptors.converters.value.mode": "kafka_4_3",
        }
        (serialize,) = steps({**CONVERTERS, **options})
        assert (serialize.value.plain, serialize.value.mode) == (True, "kafka_4_3")
        assert serialize.value.options == {"schemas.enable": "false"}

    def test_give_way_to_another_serde_under_their_alias(self) -> None:
        (serialize,) = steps({**CONVERTERS, "interceptors.converters.value": "json"})
        assert serialize.value == Json()

    def test_come_behind_a_file_that_the_client_names(self, tmp_path: Path) -> None:
        file = tmp_path / "platform.toml"
        file.write_text('[[interceptors]]\ntype = "trail"\n')
        assert Chain.from_config({"headerware.config": str(file), **LINES}).names == ("transforms", "trail")


class TestWrongLines:
    def test_without_a_converter_but_with_its_options_are_refused(self) -> None:
        with pytest.raises(ConfigError, match=r"value\.converter"):
            connector_source({"value.converter.schemas.enable": "false"})

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"transforms.mask.type": "MaskFeld$Value"}, r"transforms\.mask\.type"),
            ({"transforms.mask.feilds": "ssn"}, r"transforms\.mask\.feilds"),
            ({"transforms.maks.fields": "ssn"}, r"transforms\.maks"),
            ({"transforms.mask.predicate": "poeple"}, r"transforms\.mask\.predicate"),
            ({"predicates.people.pattern": "("}, r"predicates\.people\.pattern"),
            ({"header.converter": "NoConverter"}, r"header\.converter"),
        ],
    )
    def test_are_refused_when_the_client_is_made_and_say_which(
        self, change: dict[str, str], said: str
    ) -> None:
        with pytest.raises(ConfigError, match=said):
            Chain.from_config({**LINES, **change})

    def test_are_named_as_they_are_written(self) -> None:
        with pytest.raises(ConfigError) as caught:
            Chain.from_config({**LINES, "transforms.mask.type": "MaskFeld$Value"})
        assert caught.value.path == "transforms.mask.type"

    def test_of_two_serializers_are_refused(self) -> None:
        config = {"interceptors": "serialize", "interceptors.serialize.value": "json", **CONVERTERS}
        with pytest.raises(ConfigError, match="both serialize"):
            Chain.from_config(config)
