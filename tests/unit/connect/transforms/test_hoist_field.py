"""HoistField in both modes."""

from __future__ import annotations

from typing import Any

import pytest

from headerware.connect.data import (
    INT32_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    Int32,
    SchemaBuilder,
    Struct,
)
from headerware.connect.errors import ConnectConfigError, ConnectDataError, SchemaBuilderError
from headerware.connect.records import SourceRecord
from headerware.connect.transforms.hoist_field import HoistField


class TestHoistField:
    @pytest.mark.parametrize("value", [1, "text", [1], {"a": 1}, None])
    def test_wraps_a_value_without_a_schema(self, value: Any, mode: Any) -> None:
        made = HoistField.Value({"field": "h"}, mode=mode).apply(SourceRecord(value=value))
        assert (made.value_schema, made.value) == (None, {"h": value})

    def test_wraps_a_value_with_a_schema(self, mode: Any) -> None:
        record = SourceRecord(key_schema=INT32_SCHEMA, key=Int32(5))
        made = HoistField.Key({"field": "h"}, mode=mode).apply(record)
        assert made.key_schema == SchemaBuilder.struct().field("h", INT32_SCHEMA).build()
        assert made.key.values == [5]

    def test_wraps_a_null_that_may_be_one(self, mode: Any) -> None:
        record = SourceRecord(value_schema=OPTIONAL_STRING_SCHEMA)
        assert HoistField.Value({"field": "h"}, mode=mode).apply(record).value.values == [None]

    def test_refuses_a_null_that_may_be_none(self, mode: Any) -> None:
        with pytest.raises(ConnectDataError, match="required field 'h'"):
            HoistField.Value({"field": "h"}, mode=mode).apply(SourceRecord(value_schema=STRING_SCHEMA))

    @pytest.mark.parametrize("value", [5, b"x", Struct(SchemaBuilder.struct().build())])
    def test_refuses_a_value_that_does_not_fit_its_schema(self, value: Any, mode: Any) -> None:
        record = SourceRecord(value_schema=STRING_SCHEMA, value=value)
        with pytest.raises(ConnectDataError):
            HoistField.Value({"field": "h"}, mode=mode).apply(record)

    def test_refuses_a_struct_that_lacks_a_field(self, mode: Any) -> None:
        schema = SchemaBuilder.struct().field("a", STRING_SCHEMA).build()
        with pytest.raises(ConnectDataError, match="field 'a'"):
            HoistField.Value({"field": "h"}, mode=mode).apply(
                SourceRecord(value_schema=schema, value=Struct(schema))
            )

    def test_keeps_a_null_that_has_a_default(self) -> None:
        record = SourceRecord(value_schema=SchemaBuilder.string().default("d").build())
        made = HoistField.Value({"field": "h"}).apply(record)
        assert (made.value.values, made.value["h"]) == ([None], "d")
        with pytest.raises(ConnectDataError):
            HoistField.Value({"field": "h"}, mode="kafka_4_3").apply(record)


class TestStrictMode:
    def test_makes_the_field_optional(self) -> None:
        made = HoistField.Value({"field": "h?"}).apply(SourceRecord(value_schema=STRING_SCHEMA))
        assert made.value_schema.fields[0].schema == OPTIONAL_STRING_SCHEMA
        assert made.value.values == [None]

    def test_makes_the_field_required(self) -> None:
        transform = HoistField.Value({"field": "h!"})
        made = transform.apply(SourceRecord(value_schema=OPTIONAL_STRING_SCHEMA, value="x"))
        assert made.value_schema.fields[0].schema == STRING_SCHEMA
        for schema in (None, OPTIONAL_STRING_SCHEMA):
            with pytest.raises(ConnectDataError, match="required field 'h'"):
                transform.apply(SourceRecord(value_schema=schema))

    def test_names_the_schema(self) -> None:
        transform = HoistField.Value({"field": r"a\.b", "schema.name": "com.${topic}"})
        for topic in ("x", "y", "x"):
            made = transform.apply(SourceRecord(topic=topic, value_schema=STRING_SCHEMA, value="v"))
            assert made.value_schema.name == f"com.{topic}"
            assert made.value.to_dict() == {"a.b": "v"}
        assert transform.apply(SourceRecord(topic="x", value=1)).value == {"a.b": 1}

    def test_keeps_a_placeholder_that_is_escaped(self) -> None:
        transform = HoistField.Value({"field": "h", "schema.name": r"\${topic}.${topic}"})
        made = transform.apply(SourceRecord(topic="x", value_schema=STRING_SCHEMA, value="v"))
        assert made.value_schema.name == "${topic}.x"

    def test_needs_a_topic_for_that(self) -> None:
        with pytest.raises(ConnectDataError, match="topic"):
            HoistField.Value({"field": "h", "schema.name": "${topic}"}).apply(SourceRecord(value=1))

    @pytest.mark.parametrize(
        "config", [{}, {"field": ""}, {"field": "a.b"}, {"field": "a", "schema.name": "${x}"}]
    )
    def test_refuses_ambiguous_input(self, config: dict[str, str]) -> None:
        with pytest.raises(ConnectConfigError):
            HoistField.Value(config)


class TestKafkaMode:
    @pytest.mark.parametrize("name", ["h!", "h?", "a.b", "a\\"])
    def test_takes_the_name_as_it_is(self, name: str) -> None:
        made = HoistField.Value({"field": name}, mode="kafka_4_3").apply(SourceRecord(value=1))
        assert made.value == {name: 1}

    def test_refuses_an_empty_name_of_a_struct_s_field_late(self) -> None:
        transform = HoistField.Value({"field": ""}, mode="kafka_4_3")
        assert transform.apply(SourceRecord(value=1)).value == {"": 1}
        with pytest.raises(SchemaBuilderError):
            transform.apply(SourceRecord(value_schema=STRING_SCHEMA, value="v"))
