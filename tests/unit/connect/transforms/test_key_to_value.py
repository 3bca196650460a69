from __future__ import annotations

from typing import Any

import pytest

from headerware.connect.data import (
    INT64_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    Int32,
    SchemaBuilder,
    Struct,
)
from headerware.connect.errors import ConnectConfigError, ConnectDataError
from headerware.connect.records import SinkRecord
from headerware.connect.transforms.key_to_value import KeyToValue

PLACE = SchemaBuilder.struct().field("city", STRING_SCHEMA).optional().build()
KEY = SchemaBuilder.struct().field("id", INT64_SCHEMA).field("place", PLACE).build()
VALUE = SchemaBuilder.struct().name("V").field("name", OPTIONAL_STRING_SCHEMA).build()


def schemad(key: dict[str, Any], value: dict[str, Any]) -> SinkRecord:
    return SinkRecord("t", 0, KEY, Struct.of(KEY, key), VALUE, Struct.of(VALUE, value))


class TestKeyToValue:
    def test_copies_fields_of_structs(self) -> None:
        transform = KeyToValue({"key.fields": "id,place.city"})
        made = transform.apply(schemad({"id": 1, "place": {"city": "ulm"}}, {"name": "a"}))
        assert made.value.to_dict() == {"name": "a", "id": 1, "city": "ulm"}
        assert made.value_schema.name == "V"
        assert made.value.schema is made.value_schema
        made.value.validate()

    def test_makes_a_field_optional_whose_parent_is(self) -> None:
        made = KeyToValue({"key.fields": "place.city"}).apply(
            schemad({"id": 1, "place": {"city": "ulm"}}, {})
        )
        assert made.value_schema.by_name["city"].schema.optional

    def test_copies_fields_of_dicts_under_other_names(self) -> None:
        transform = KeyToValue({"key.fields": "id,*", "value.fields": "customer,whole"})
        made = transform.apply(SinkRecord("t", key={"id": 1}, value={"a": 2}))
        assert made.value == {"a": 2, "customer": 1, "whole": {"id": 1}}

    def test_gives_the_key_itself_a_name_of_its_own(self) -> None:
        made = KeyToValue({"key.fields": "*"}).apply(SinkRecord("t", key="k", value={}))
        assert made.value == {"_key": "k"}

    def test_infers_the_schema_of_a_key_that_has_none(self) -> None:
        record = SinkRecord("t", key=Int32(7), value_schema=VALUE, value=Struct.of(VALUE, {}))
        made = KeyToValue({"key.fields": "*"}).apply(record)
        assert made.value["_key"] == Int32(7)
        made.value.validate()

    def test_puts_a_struct_into_a_dict_as_a_dict(self) -> None:
        record = SinkRecord("t", 0, KEY, Struct.of(KEY, {"id": 1}), None, {})
        assert KeyToValue({"key.fields": "*"}).apply(record).value == {"_key": {"id": 1, "place": None}}

    def test_leaves_the_record_as_it_was(self) -> None:
        record = SinkRecord("t", key={"id": 1}, value={"a": 2})
        KeyToValue({"key.fields": "id"}).apply(record)
        assert record.value == {"a": 2}

    def test_leaves_a_tombstone(self) -> None:
        record = SinkRecord("t", key={"id": 1})
        assert KeyToValue({"key.fields": "id"}).apply(record) is record

    @pytest.mark.parametrize(
        "record",
        [
            SinkRecord("t", key={"id": 1}, value={"id": 2}),
            SinkRecord("t", 0, KEY, Struct.of(KEY, {"id": 1}), KEY, Struct.of(KEY, {"id": 2})),
        ],
    )
    def test_refuses_to_replace_a_field_unless_told_to(self, record: SinkRecord) -> None:
        with pytest.raises(ConnectDataError, match="has a field 'id' already"):
            KeyToValue({"key.fields": "id"}).apply(record)
        made = KeyToValue({"key.fields": "id", "replace.existing": "true"}).apply(record)
        assert made.value["id"] == 1

    def test_refuses_a_field_that_the_key_lacks(self) -> None:
        with pytest.raises(ConnectDataError, match="no field 'nope'"):
            KeyToValue({"key.fields": "nope"}).apply(schemad({"id": 1}, {}))
        with pytest.raises(ConnectDataError, match="'nope' is missing"):
            KeyToValue({"key.fields": "nope"}).apply(SinkRecord("t", key={}, value={}))

    def test_refuses_a_null_key(self) -> None:
        for schema, value in ((None, {}), (VALUE, Struct.of(VALUE, {}))):
            with pytest.raises(ConnectDataError, match="missing or null"):
                KeyToValue({"key.fields": "id"}).apply(SinkRecord("t", value_schema=schema, value=value))

    def test_skips_missing_parts_if_configured(self) -> None:
        transform = KeyToValue({"key.fields": "nope,id", "skip.missing.or.null": "true"})
        assert transform.apply(SinkRecord("t", key={"id": 1}, value={})).value == {"id": 1}
        made = transform.apply(schemad({"id": 1}, {}))
        assert made.value.to_dict() == {"name": None, "id": 1}
        made = transform.apply(SinkRecord("t", 0, KEY, None, VALUE, Struct.of(VALUE, {})))
        assert made.value["id"] is None
        made.value.validate()

    def test_refuses_a_dict_where_a_schema_is_needed(self) -> None:
        with pytest.raises(ConnectDataError, match="expected a key with a schema"):
            KeyToValue({"key.fields": "*"}).apply(
                SinkRecord("t", key={"a": 1}, value_schema=VALUE, value=Struct.of(VALUE, {}))
            )

    def test_refuses_a_key_that_is_not_what_its_schema_says(self) -> None:
        record = SinkRecord("t", 0, KEY, {"id": 1}, VALUE, Struct.of(VALUE, {}))
        with pytest.raises(ConnectDataError, match="expected a struct"):
            KeyToValue({"key.fields": "id"}).apply(record)

    @pytest.mark.parametrize("key", ["text", Int32(3)])
    def test_refuses_fields_of_a_key_that_has_none(self, key: Any) -> None:
        with pytest.raises(ConnectDataError):
            KeyToValue({"key.fields": "id"}).apply(SinkRecord("t", key=key, value={}))

    @pytest.mark.parametrize(
        "config",
        [
            {},
            {"key.fields": ""},
            {"key.fields": "a,b", "value.fields": "x"},
            {"key.fields": "a.x,b.x"},
            {"key.fields": "a,b", "value.fields": "x,x"},
        ],
    )
    def test_refuses_names_that_do_not_fit(self, config: dict[str, str]) -> None:
        with pytest.raises(ConnectConfigError):
            KeyToValue(config)
