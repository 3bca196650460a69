"""ValueToKey in both modes."""

from __future__ import annotations

from typing import Any

import pytest

from headerware.connect.data import (
    INT64_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    SchemaBuilder,
    Struct,
)
from headerware.connect.errors import ConnectConfigError, ConnectDataError
from headerware.connect.records import SourceRecord
from headerware.connect.transforms.value_to_key import ValueToKey

INNER = SchemaBuilder.struct().field("x", INT64_SCHEMA).optional().build()
SCHEMA = (
    SchemaBuilder.struct()
    .field("id", INT64_SCHEMA)
    .field("name", OPTIONAL_STRING_SCHEMA)
    .field("in", INNER)
    .field("d", SchemaBuilder.string().default("dd").build())
    .build()
)


def record(**values: Any) -> SourceRecord:
    """Return a record of a struct."""
    struct = Struct.of(SCHEMA, {"id": 7, "name": "n", "in": {"x": 1}} | values)
    return SourceRecord(topic="t", key="old", value_schema=SCHEMA, value=struct)


class TestValueToKey:
    def test_makes_a_struct_of_the_key(self, mode: Any) -> None:
        made = ValueToKey({"fields": "name,id,d"}, mode=mode).apply(record())
        schemas = {field.name: field.schema for field in SCHEMA.fields}
        names = ("name", "id", "d")
        assert made.key.to_dict() == {"name": "n", "id": 7, "d": "dd"}
        assert [(field.name, field.schema) for field in made.key_schema.fields] == [
            (name, schemas[name]) for name in names
        ]
        assert made.value.to_dict() == record().value.to_dict()

    def test_makes_a_dict_of_the_key(self, mode: Any) -> None:
        made = ValueToKey({"fields": "id"}, mode=mode).apply(SourceRecord(value={"id": 7, "x": 1}))
        assert (made.key_schema, made.key) == (None, {"id": 7})

    @pytest.mark.parametrize("schema", [None, SCHEMA])
    def test_refuses_a_tombstone(self, schema: Any, mode: Any) -> None:
        with pytest.raises(ConnectDataError):
            ValueToKey({"fields": "id"}, mode=mode).apply(SourceRecord(value_schema=schema))

    def test_refuses_a_field_that_a_schema_does_not_have(self, mode: Any) -> None:
        with pytest.raises(ConnectDataError, match="no field 'nope'"):
            ValueToKey({"fields": "id,nope"}, mode=mode).apply(record())

    def test_refuses_a_null_in_a_required_field(self, mode: Any) -> None:
        empty = SourceRecord(value_schema=SCHEMA, value=Struct(SCHEMA))
        with pytest.raises(ConnectDataError, match="required field 'id'"):
            ValueToKey({"fields": "id"}, mode=mode).apply(empty)

    @pytest.mark.parametrize("fields", ["", ",", None])
    def test_requires_fields(self, fields: Any, mode: Any) -> None:
        with pytest.raises(ConnectConfigError):
            ValueToKey({"fields": fields}, mode=mode)

    def test_keeps_a_null_that_has_a_default_if_asked_to(self) -> None:
        config = {"fields": "d", "replace.null.with.default": "false"}
        assert ValueToKey(config).apply(record()).key.values == [None]
        with pytest.raises(ConnectDataError):
            ValueToKey(config, mode="kafka_4_3").apply(record())


class TestStrictMode:
    def test_takes_nested_fields(self) -> None:
        transform = ValueToKey({"fields": "in.x,id"})
        made = transform.apply(record())
        assert made.key.to_dict() == {"x": 1, "id": 7}
        assert made.key_schema.fields[0].schema.optional
        assert transform.apply(record(**{"in": None})).key.to_dict() == {"x": None, "id": 7}
        assert transform.apply(SourceRecord(value={"in": {"x": 1}})).key == {"x": 1}

    def test_makes_fields_required_or_optional(self) -> None:
        transform = ValueToKey({"fields": "id?,name!"})
        assert [field.schema.optional for field in transform.apply(record()).key_schema.fields] == [
            True,
            False,
        ]
        with pytest.raises(ConnectDataError, match="required field 'name'"):
            transform.apply(record(name=None))
        for value in ({"id": 1, "name": None}, {"id": 1}):
            with pytest.raises(ConnectDataError, match="'name'"):
                transform.apply(SourceRecord(value=value))

    def test_hoists_a_single_field_as_it_is(self) -> None:
        transform = ValueToKey({"fields": "id", "force.struct": "false"})
        made = transform.apply(record())
        assert (made.key_schema, made.key) == (INT64_SCHEMA, 7)
        assert transform.apply(SourceRecord(value={"id": 7})).key == 7
        with pytest.raises(ConnectDataError, match="no field 'id'"):
            transform.apply(SourceRecord(value={"x": 7}))

    def test_makes_a_struct_of_several_fields_all_the_same(self) -> None:
        made = ValueToKey({"fields": "id,name", "force.struct": "false"}).apply(record())
        assert made.key.to_dict() == {"id": 7, "name": "n"}

    def test_leaves_out_fields_that_a_dict_lacks(self) -> None:
        assert ValueToKey({"fields": "id,x"}).apply(SourceRecord(value={"id": 7})).key == {"id": 7}

    @pytest.mark.parametrize("value", [{}, {"x": 1}, {"in.x": 1}, {1: 1}, {"in": "text"}])
    def test_refuses_a_dict_without_any_of_the_fields(self, value: dict[Any, Any]) -> None:
        with pytest.raises(ConnectDataError):
            ValueToKey({"fields": "in.x"}).apply(SourceRecord(value=value))

    @pytest.mark.parametrize("fields", ["in.x,x", "in.x,out.x", "a!,a?"])
    def test_refuses_two_fields_of_one_name(self, fields: str) -> None:
        with pytest.raises(ConnectConfigError, match="one name"):
            ValueToKey({"fields": fields})

    def test_refuses_a_struct_of_another_schema_than_the_record_says(self) -> None:
        other = SchemaBuilder.struct().field("id", STRING_SCHEMA).build()
        wrong = SourceRecord(value_schema=SCHEMA, value=Struct.of(other, {"id": "x"}))
        with pytest.raises(ConnectDataError, match="another schema"):
            ValueToKey({"fields": "id"}).apply(wrong)
        assert ValueToKey({"fields": "id"}, mode="kafka_4_3").apply(wrong).value_schema == other


class TestKafkaMode:
    def test_adds_nulls_for_fields_that_a_dict_lacks(self) -> None:
        made = ValueToKey({"fields": "id,in.x"}, mode="kafka_4_3").apply(SourceRecord(value={"in": {"x": 1}}))
        assert made.key == {"id": None, "in.x": None}

    def test_knows_no_force_struct(self) -> None:
        made = ValueToKey({"fields": "id", "force.struct": "false"}, mode="kafka_4_3").apply(record())
        assert made.key.to_dict() == {"id": 7}
