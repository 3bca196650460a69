"""SetSchemaMetadata in both modes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from headerware.connect.data import (
    INT32_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    Date,
    Int32,
    SchemaBuilder,
    Struct,
)
from headerware.connect.errors import ConnectConfigError, ConnectDataError, FieldIndexError
from headerware.connect.records import SourceRecord
from headerware.connect.transforms.set_schema_metadata import SetSchemaMetadata

SCHEMA = (
    SchemaBuilder.struct()
    .name("Old")
    .version(1)
    .doc("doc")
    .parameter("p", "1")
    .field("a", OPTIONAL_STRING_SCHEMA)
    .field("d", SchemaBuilder.string().optional().default("dd").build())
    .optional()
    .build()
)
RECORD = SourceRecord(topic="orders", value_schema=SCHEMA, value=Struct.of(SCHEMA, {"a": "x"}))


def renamed(record: SourceRecord = RECORD, mode: Any = "strict", **config: str) -> SourceRecord:
    """Return a record with another name and version; ``_`` stands for a dot in the keys."""
    keys = {key.replace("_", "."): value for key, value in config.items()}
    made: SourceRecord = SetSchemaMetadata.Value(keys, mode=mode).apply(record)
    return made


class TestSetSchemaMetadata:
    def test_sets_name_and_version_and_keeps_the_rest(self, mode: Any) -> None:
        made = renamed(mode=mode, schema_name="New", schema_version="2")
        builder = SchemaBuilder.struct().name("New").version(2).doc("doc").parameter("p", "1").optional()
        for field in SCHEMA.fields:
            builder.field(field.name, field.schema)
        assert made.value_schema == builder.build()
        assert made.value.schema is made.value_schema
        assert made.value.values == ["x", "dd"]

    def test_sets_one_of_them(self, mode: Any) -> None:
        assert renamed(mode=mode, schema_name="New").value_schema.version == 1  # type: ignore[union-attr]  # it has one
        assert renamed(mode=mode, schema_version="-3").value_schema.name == "Old"  # type: ignore[union-attr]  # it has one

    def test_keeps_nulls_if_asked_to(self, mode: Any) -> None:
        made = renamed(mode=mode, schema_name="New", replace_null_with_default="false")
        assert made.value.values == ["x", None]

    def test_names_the_schema_of_a_null(self, mode: Any) -> None:
        made = renamed(SourceRecord(value_schema=SCHEMA), mode, schema_name="New")
        assert made.value is None
        assert made.value_schema is not None
        assert made.value_schema.name == "New"

    def test_leaves_a_null_without_a_schema_alone(self, mode: Any) -> None:
        record = SourceRecord()
        assert renamed(record, mode, schema_name="New") is record

    def test_refuses_a_value_without_a_schema(self, mode: Any) -> None:
        with pytest.raises(ConnectDataError, match="without"):
            renamed(SourceRecord(value={"a": 1}), mode, schema_name="New")

    @pytest.mark.parametrize("config", [{}, {"schema_version": "x"}, {"schema_version": "99999999999"}])
    def test_refuses_a_configuration_of_nothing(self, config: dict[str, str], mode: Any) -> None:
        with pytest.raises(ConnectConfigError):
            renamed(RECORD, mode, **config)

    def test_works_on_keys(self) -> None:
        record = SourceRecord(key_schema=SCHEMA, key=RECORD.value)
        assert SetSchemaMetadata.Key({"schema.name": "New"}).apply(record).key_schema.name == "New"


class TestStrictMode:
    def test_fills_in_the_topic(self) -> None:
        transform = SetSchemaMetadata.Value({"schema.name": "com.${topic}", "schema.version": "4"})
        for topic in ("a", "b", "a"):
            made = transform.apply(SourceRecord(topic=topic, value_schema=SCHEMA, value=RECORD.value))
            assert (made.value_schema.name, made.value_schema.version) == (f"com.{topic}", 4)
            assert made.value.schema is made.value_schema

    def test_names_schemas_of_any_type(self) -> None:
        made = renamed(SourceRecord(value_schema=INT32_SCHEMA, value=Int32(5)), schema_name="Count")
        assert made.value_schema == SchemaBuilder.int32().name("Count").build()
        array = SchemaBuilder.array(STRING_SCHEMA).build()
        made = renamed(SourceRecord(value_schema=array, value=["x"]), schema_name="Words")
        assert made.value_schema == SchemaBuilder.array(STRING_SCHEMA).name("Words").build()

    def test_refuses_to_make_or_break_logical_types(self) -> None:
        day = datetime(2020, 2, 2, tzinfo=UTC)
        with pytest.raises(ConnectDataError, match="would not fit"):
            renamed(SourceRecord(value_schema=Date.SCHEMA, value=day), schema_name="New")
        with pytest.raises(ConnectDataError, match="would not fit"):
            renamed(SourceRecord(value_schema=INT32_SCHEMA, value=Int32(5)), schema_name=Date.LOGICAL_NAME)
        made = renamed(SourceRecord(value_schema=Date.SCHEMA, value=day), schema_version="2")
        assert made.value_schema == SchemaBuilder.int32().name(Date.LOGICAL_NAME).version(2).build()

    def test_gives_the_default_the_schema_too(self) -> None:
        builder = SchemaBuilder.struct().field("a", STRING_SCHEMA)
        builder.default(Struct.of(builder.build(), {"a": "1"}))
        record = SourceRecord(value_schema=builder.build(), value=Struct.of(builder.build(), {"a": "2"}))
        made = renamed(record, schema_name="New")
        assert made.value_schema is not None
        assert made.value_schema.default.schema.name == "New"
        made = renamed(record, "kafka_4_3", schema_name="New")
        assert made.value_schema is not None
        assert made.value_schema.default.schema.name is None

    @pytest.mark.parametrize("config", [{"schema_name": ""}, {"schema_name": "${t}"}, {"schema_nam": "x"}])
    def test_refuses_ambiguous_input(self, config: dict[str, str]) -> None:
        with pytest.raises(ConnectConfigError):
            renamed(RECORD, "strict", **config)

    @pytest.mark.parametrize("value", ["text", Struct(SchemaBuilder.struct().build())])
    def test_refuses_a_value_that_does_not_fit_its_schema(self, value: Any) -> None:
        with pytest.raises(ConnectDataError):
            renamed(SourceRecord(value_schema=SCHEMA, value=value), schema_name="New")


class TestKafkaMode:
    def test_names_structs_alone(self) -> None:
        with pytest.raises(ConnectDataError):
            renamed(SourceRecord(value_schema=INT32_SCHEMA, value=Int32(5)), "kafka_4_3", schema_name="New")

    def test_takes_placeholders_for_text(self) -> None:
        made = renamed(mode="kafka_4_3", schema_name="${topic}")
        assert made.value_schema is not None
        assert made.value_schema.name == "${topic}"

    def test_keeps_values_that_are_not_structs(self) -> None:
        made = renamed(SourceRecord(value_schema=SCHEMA, value="text"), "kafka_4_3", schema_name="New")
        assert made.value == "text"

    def test_reads_a_struct_of_another_schema_by_position(self) -> None:
        other = SchemaBuilder.struct().field("x", STRING_SCHEMA).field("y", STRING_SCHEMA).build()
        record = SourceRecord(value_schema=SCHEMA, value=Struct.of(other, {"x": "1", "y": "2"}))
        assert renamed(record, "kafka_4_3", schema_name="New").value.values == ["1", "2"]
        short = SourceRecord(value_schema=SCHEMA, value=Struct(SchemaBuilder.struct().build()))
        with pytest.raises(FieldIndexError):
            renamed(short, "kafka_4_3", schema_name="New")
