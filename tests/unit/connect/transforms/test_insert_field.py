"""InsertField in both modes."""

from __future__ import annotations

from typing import Any

import pytest

from headerware.connect.data import (
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    Int32,
    Schema,
    SchemaBuilder,
    Struct,
    Timestamp,
)
from headerware.connect.data.times import from_epoch_ms
from headerware.connect.errors import ConnectConfigError, ConnectDataError, SchemaBuilderError
from headerware.connect.modes import Mode
from headerware.connect.records import SinkRecord, SourceRecord
from headerware.connect.transforms.insert_field import InsertField

SCHEMA = SchemaBuilder.struct().name("N").field("a", OPTIONAL_STRING_SCHEMA).build()
ALL = {
    "topic.field": "t!",
    "partition.field": "p",
    "offset.field": "o?",
    "timestamp.field": "ts",
    "static.field": "s",
    "static.value": "x",
}


def sink(value: Any = None, *, schema: Schema | None = None) -> SinkRecord:
    """Return a sink's record of a struct, or of another value."""
    if value is None:
        schema, value = SCHEMA, Struct.of(SCHEMA, {"a": "v"})
    return SinkRecord("orders", 3, value_schema=schema, value=value, kafka_offset=42, timestamp=5)


class TestInsertField:
    def test_puts_the_facts_of_a_record_into_a_struct(self, mode: Any) -> None:
        made = InsertField.Value(ALL, mode=mode).apply(sink())
        made.value.validate()
        assert made.value.values == ["v", "orders", Int32(3), 42, from_epoch_ms(5), "x"]
        schemas = {field.name: field.schema for field in made.value_schema.fields}
        assert schemas["t"] == STRING_SCHEMA
        assert schemas["ts"] == Timestamp.builder().optional().build()
        assert all(schemas[name].optional for name in ("p", "o", "ts", "s"))
        assert made.value_schema.name == "N"

    def test_puts_them_into_a_dict(self, mode: Any) -> None:
        made = InsertField.Value(ALL, mode=mode).apply(sink({"a": 1}))
        assert made.value == {"a": 1, "t": "orders", "p": 3, "o": 42, "ts": 5, "s": "x"}
        assert type(made.value["p"]) is Int32

    def test_works_on_keys(self) -> None:
        made = InsertField.Key({"topic.field": "t"}).apply(SourceRecord(topic="orders", key={"k": 1}))
        assert made.key == {"k": 1, "t": "orders"}

    def test_leaves_a_null_alone(self, mode: Any) -> None:
        record = SinkRecord(topic="orders", value_schema=SCHEMA)
        assert InsertField.Value(ALL, mode=mode).apply(record) is record

    def test_leaves_out_nulls(self) -> None:
        made = InsertField.Value({"partition.field": "p", "timestamp.field": "ts"}).apply(
            SourceRecord(topic="orders", value={})
        )
        assert made.value == {}

    def test_refuses_a_null_in_a_required_field(self) -> None:
        transform = InsertField.Value({"partition.field": "p!"})
        with pytest.raises(ConnectDataError, match="required field 'p'"):
            transform.apply(SourceRecord(topic="orders", value={}))
        with pytest.raises(ConnectDataError, match="required field 'p'"):
            transform.apply(SourceRecord(topic="orders", value_schema=SCHEMA, value=Struct(SCHEMA)))

    def test_leaves_a_required_field_null_in_kafka_4_3(self) -> None:
        record = SourceRecord(topic="orders", value_schema=SCHEMA, value=Struct(SCHEMA))
        made = InsertField.Value({"partition.field": "p!"}, mode="kafka_4_3").apply(record)
        assert made.value.values == [None, None]

    def test_refuses_a_field_of_a_dict_that_is_there(self) -> None:
        with pytest.raises(ConnectDataError, match="'t' exists already"):
            InsertField.Value({"topic.field": "t"}).apply(sink({"t": None}))

    def test_overwrites_it_in_kafka_4_3(self) -> None:
        made = InsertField.Value({"topic.field": "t"}, mode="kafka_4_3").apply(sink({"t": "old"}))
        assert made.value == {"t": "orders"}

    def test_refuses_a_field_of_a_struct_that_is_there(self, mode: Any) -> None:
        with pytest.raises(SchemaBuilderError):
            InsertField.Value({"topic.field": "a"}, mode=mode).apply(sink())

    def test_refuses_the_offset_of_a_source_record(self, mode: Any) -> None:
        with pytest.raises(ConnectDataError, match="sink record"):
            InsertField.Value({"offset.field": "o"}, mode=mode).apply(SourceRecord(topic="t", value={}))

    @pytest.mark.parametrize("config", [{}, {"static.field": "s"}])
    def test_refuses_a_configuration_of_nothing(self, config: dict[str, str], mode: Any) -> None:
        with pytest.raises(ConnectConfigError):
            InsertField.Value(config, mode=mode)

    @pytest.mark.parametrize(
        "config",
        [
            {"topic.field": "a", "partition.field": "a!"},
            {"topic.field": "a.b"},
            {"topic.field": "!"},
            {"topic.field": "t", "static.value": "x"},
            {"static.field": "s", "static.value": "${env:SECRET}"},
            {"topic.feild": "t"},
        ],
    )
    def test_refuses_ambiguous_input(self, config: dict[str, str]) -> None:
        with pytest.raises(ConnectConfigError):
            InsertField.Value(config)
        if "topic.feild" not in config:
            InsertField.Value(config, mode="kafka_4_3")

    def test_fills_in_the_topic(self) -> None:
        config = {"static.field": "s", "static.value": "from ${topic}"}
        assert InsertField.Value(config).apply(sink({})).value == {"s": "from orders"}
        assert InsertField.Value(config, mode="kafka_4_3").apply(sink({})).value == {"s": "from ${topic}"}

    def test_keeps_whether_the_struct_is_optional(self) -> None:
        schema = SchemaBuilder.struct().field("a", STRING_SCHEMA).optional().build()
        modes: list[tuple[Mode, bool]] = [("strict", True), ("kafka_4_3", False)]
        for mode, optional in modes:
            transform = InsertField.Value({"topic.field": "t"}, mode=mode)
            made = transform.apply(sink(Struct.of(schema, {"a": "v"}), schema=schema))
            assert made.value_schema.optional is optional

    def test_keeps_the_default_of_the_struct_if_possible(self) -> None:
        builder = SchemaBuilder.struct().field("a", STRING_SCHEMA)
        builder.default(Struct.of(builder.build(), {"a": "v"}))
        schema = builder.build()
        record = sink(Struct.of(schema, {"a": "x"}), schema=schema)
        made = InsertField.Value({"topic.field": "t"}).apply(record)
        assert made.value_schema.default.to_dict() == {"a": "v", "t": None}
        assert InsertField.Value({"topic.field": "t!"}).apply(record).value_schema.default is None

    def test_replaces_nulls_by_defaults_if_asked_to(self) -> None:
        schema = (
            SchemaBuilder.struct().field("d", SchemaBuilder.string().optional().default("d").build()).build()
        )
        for word, stored in (("true", "d"), ("false", None)):
            transform = InsertField.Value({"topic.field": "t", "replace.null.with.default": word})
            assert transform.apply(sink(Struct(schema), schema=schema)).value.values == [stored, "orders"]

    @pytest.mark.parametrize("value", ["text", 1, [], Struct(SCHEMA)])
    def test_requires_a_dict(self, value: Any) -> None:
        with pytest.raises(ConnectDataError):
            InsertField.Value({"topic.field": "t"}).apply(sink(value))

    def test_refuses_a_struct_of_another_schema_than_the_record_says(self) -> None:
        other = SchemaBuilder.struct().field("b", STRING_SCHEMA).build()
        record = sink(Struct.of(other, {"b": "v"}), schema=SCHEMA)
        with pytest.raises(ConnectDataError, match="another schema"):
            InsertField.Value({"topic.field": "t"}).apply(record)
        made = InsertField.Value({"topic.field": "t"}, mode="kafka_4_3").apply(record)
        assert made.value.values == ["v", "orders"]
