"""Values: parsed, converted, and through header converters, beside Kafka Connect's own."""

from __future__ import annotations

from base64 import b64encode
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.connect import oracle_texts
from tests.property.connect.conftest import Check, oracle_settings
from tests.property.connect.oracle_values import SCALARS, schemaless, typed, with_schema

pytestmark = pytest.mark.broker

CONVERSIONS: Final = (
    *(
        "Boolean",
        "Byte",
        "Short",
        "Integer",
        "Long",
        "Float",
        "Double",
        "String",
        "Time",
        "Date",
        "Timestamp",
    ),
    *("Decimal", "List", "Map", "Struct"),
)
CONVERTERS: Final = (
    "Simple",
    "String",
    "Json",
    "ByteArray",
    "Boolean",
    "Short",
    "Integer",
    "Long",
    "Float",
    "Double",
)
CONFIGS: Final[tuple[dict[str, str], ...]] = (
    {},
    {"schemas.enable": "false"},
    {"schemas.enable": "true"},
    {"converter.encoding": "UTF-16"},
    {"converter.encoding": "ISO-8859-1"},
    {"decimal.format": "NUMERIC"},
)
pairs: Final = st.one_of(
    with_schema(),
    st.tuples(st.none(), schemaless),
    st.tuples(st.sampled_from(["string", "string?", None]), typed("string", oracle_texts.texts)),
    st.sampled_from([*SCALARS]).flatmap(lambda kind: st.tuples(st.just(kind), SCALARS[kind])),
)


class TestParseString:
    @oracle_settings(600)
    @given(st.lists(oracle_texts.texts, min_size=1, max_size=4))
    def test_parses_as_kafka_does(self, agree: Check, texts: list[str]) -> None:
        agree([{"op": "parseString", "s": text} for text in texts])


class TestConversions:
    @oracle_settings(300)
    @given(pairs, st.integers(-2, 4))
    def test_converts_to_every_type(self, agree: Check, pair: tuple[Any, Any], scale: int) -> None:
        schema, value = pair
        asked = {"op": "convert", "schema": schema, "value": value, "scale": scale}
        agree([{**asked, "to": to} for to in CONVERSIONS])


class TestHeaderConverters:
    @oracle_settings(200)
    @given(pairs, st.sampled_from(CONFIGS))
    def test_come_back_as_from_kafka(
        self, agree: Check, pair: tuple[Any, Any], config: dict[str, str]
    ) -> None:
        asked = {"op": "header.roundtrip", "schema": pair[0], "value": pair[1], "config": config}
        agree([{**asked, "converter": converter} for converter in CONVERTERS])

    @oracle_settings(200)
    @given(st.one_of(oracle_texts.texts.map(str.encode), st.binary(max_size=9)), st.sampled_from(CONFIGS))
    def test_read_what_is_on_the_wire(self, agree: Check, data: bytes, config: dict[str, str]) -> None:
        asked = {"op": "header.to", "b64": b64encode(data).decode(), "config": config}
        agree([{**asked, "converter": converter} for converter in CONVERTERS])
