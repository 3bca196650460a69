"""Schemas, structs, logical types, projection and headers, beside Kafka Connect's own."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.connect import oracle_headers
from tests.property.connect.conftest import Check, oracle_settings
from tests.property.connect.oracle_values import (
    LOGICAL,
    SCALARS,
    fitting,
    schemaless,
    schemas,
    struct_schemas,
    with_schema,
)

pytestmark = pytest.mark.broker


@st.composite
def logical(draw: st.DrawFn) -> list[dict[str, Any]]:
    word = draw(st.sampled_from(["Date", "Time", "Timestamp", "Decimal"]))
    own = "Decimal(2)" if word == "Decimal" else word
    schema = draw(
        st.one_of(st.just(own), st.sampled_from(["int32", "string", "bytes", "Decimal(0)", "Date"]))
    )
    low = SCALARS[{"Timestamp": "int64", "Decimal": "bytes"}.get(word, "int32")]
    to = draw(st.booleans())
    value = draw(
        st.one_of(low, low, st.none()) if to else st.one_of(LOGICAL[own], *LOGICAL.values(), st.none())
    )
    asked = {"op": "logical", "type": word, "schema": schema, "dir": "to" if to else "from"}
    return [{**asked, "value": value}]


@st.composite
def projections(draw: st.DrawFn) -> list[dict[str, Any]]:
    source = draw(st.one_of(schemas(), struct_schemas()))
    value = draw(fitting(source))
    if isinstance(source, dict) and source["type"] == "struct" and draw(st.booleans()):
        kept = draw(st.permutations(source["fields"]))[: draw(st.integers(0, 4))]
        added = [["new", draw(schemas(1))]] if draw(st.booleans()) else []
        target = {**source, "fields": kept + added}
    else:
        number = st.sampled_from(["int8", "int16", "int32", "int64", "float32", "float64", "int64?"])
        target = draw(st.one_of(st.just(source), number, schemas()))
    return [{"op": "project", "source": source, "target": target, "value": value}]


class TestData:
    @oracle_settings(300)
    @given(with_schema())
    def test_validates_as_kafka_does(self, agree: Check, pair: tuple[Any, Any]) -> None:
        schema, value = pair
        agree([{"op": "validate", "schema": schema, "value": value}])

    @oracle_settings(200)
    @given(logical())
    def test_reads_and_writes_logical_types(self, agree: Check, questions: list[Any]) -> None:
        agree(questions)

    @oracle_settings(250)
    @given(projections())
    def test_projects(self, agree: Check, questions: list[Any]) -> None:
        agree(questions)

    @oracle_settings(200)
    @given(st.one_of(schemaless, with_schema().map(lambda pair: pair[1])))
    def test_infers_schemas(self, agree: Check, value: Any) -> None:
        agree([{"op": "inferSchema", "value": value}])


class TestHeaders:
    @oracle_settings(250)
    @given(oracle_headers.programs())
    def test_changes_headers(self, agree: Check, questions: list[Any]) -> None:
        agree(questions)
