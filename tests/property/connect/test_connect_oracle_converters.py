"""Converters of keys and values, beside Kafka Connect's own."""

from __future__ import annotations

from base64 import b64encode
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.connect_oracle.oracle import ConnectOracle
from tests.property.connect import oracle_json, oracle_texts
from tests.property.connect.conftest import Check, oracle_settings
from tests.property.connect.oracle_values import schemaless, struct_schemas, with_schema

pytestmark = pytest.mark.broker

JSON: Final = st.fixed_dictionaries(
    {},
    optional={
        "schemas.enable": st.sampled_from(["true", "false"]),
        "decimal.format": st.sampled_from(["BASE64", "NUMERIC", "numeric", "x"]),
        "replace.null.with.default": st.sampled_from(["true", "false"]),
        "schemas.cache.size": st.sampled_from(["0", "10", "x"]),
    },
)
OTHERS: Final = (
    "org.apache.kafka.connect.storage.StringConverter",
    *(
        f"org.apache.kafka.connect.converters.{kind}Converter"
        for kind in ("ByteArray", "Boolean", "Short", "Integer", "Long", "Float", "Double")
    ),
)
pairs: Final = st.one_of(with_schema(), with_schema(struct_schemas()), st.tuples(st.none(), schemaless))


class TestJsonConverter:
    @oracle_settings(350)
    @given(pairs, JSON)
    def test_writes_and_reads_back(
        self, agree: Check, connect_oracle: ConnectOracle, pair: tuple[Any, Any], config: dict[str, str]
    ) -> None:
        written = {"op": "converter.from", "schema": pair[0], "value": pair[1], "config": config}
        agree([written])
        (answer,) = connect_oracle.ask([written])
        if answer.get("b64") is not None:
            agree([{"op": "converter.to", "b64": answer["b64"], "config": config}])

    @oracle_settings(350)
    @given(oracle_json.envelopes(), JSON)
    def test_reads_any_json(self, agree: Check, text: str, config: dict[str, str]) -> None:
        agree([{"op": "converter.to", "utf8": text, "config": config}])


class TestOtherConverters:
    @oracle_settings(100)
    @given(pairs, st.booleans())
    def test_write(self, agree: Check, pair: tuple[Any, Any], is_key: bool) -> None:  # noqa: FBT001 - drawn
        asked = {"op": "converter.from", "schema": pair[0], "value": pair[1], "isKey": is_key}
        agree([{**asked, "class": kind} for kind in OTHERS])

    @oracle_settings(100)
    @given(st.one_of(st.binary(max_size=9), oracle_texts.plain.map(str.encode)))
    def test_read(self, agree: Check, data: bytes) -> None:
        asked = {"op": "converter.to", "b64": b64encode(data).decode()}
        agree([{**asked, "class": kind} for kind in OTHERS])
