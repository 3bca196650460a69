"""Projection: a value of one schema, read as another asks."""

from __future__ import annotations

from typing import Any

import pytest

from headerware.connect.data import (
    FLOAT64_SCHEMA,
    INT8_SCHEMA,
    INT32_SCHEMA,
    INT64_SCHEMA,
    OPTIONAL_INT32_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    Int8,
    Int32,
    Schema,
    SchemaBuilder,
    Struct,
    project,
)
from headerware.connect.errors import SchemaProjectorError

OLD = SchemaBuilder.struct().name("V").field("id", INT32_SCHEMA).field("gone", STRING_SCHEMA).build()


def new(**fields: Schema) -> Schema:
    builder = SchemaBuilder.struct().name("V").field("id", INT64_SCHEMA)
    for name, schema in fields.items():
        builder.field(name, schema)
    return builder.build()


RECORD = Struct(OLD).put("id", Int32(5)).put("gone", "x")


class TestProject:
    @pytest.mark.parametrize(
        ("source", "target", "value"),
        [
            (INT8_SCHEMA, INT32_SCHEMA, Int8(5)),
            (INT32_SCHEMA, FLOAT64_SCHEMA, Int32(5)),
            (INT32_SCHEMA, INT64_SCHEMA, Int32(5)),
        ],
    )
    def test_widens_numbers(self, source: Schema, target: Schema, value: Any) -> None:
        projected = project(source, value, target)
        assert projected == 5
        assert type(projected) in {Int32, float, int}

    def test_never_narrows(self) -> None:
        with pytest.raises(SchemaProjectorError, match=r"int64.*int32"):
            project(INT64_SCHEMA, 5, INT32_SCHEMA)

    def test_leaves_out_fields_that_the_reader_does_not_know(self) -> None:
        projected = project(OLD, RECORD, new())
        assert projected.to_dict() == {"id": 5}

    def test_fills_in_a_new_fields_default_or_null(self) -> None:
        target = new(kind=SchemaBuilder.string().default("a").build(), note=OPTIONAL_STRING_SCHEMA)
        assert project(OLD, RECORD, target).to_dict() == {"id": 5, "kind": "a", "note": None}

    def test_refuses_a_required_field_that_the_writer_did_not_have(self) -> None:
        with pytest.raises(SchemaProjectorError, match="'kind'"):
            project(OLD, RECORD, new(kind=STRING_SCHEMA))

    def test_says_in_which_field_it_failed(self) -> None:
        target = SchemaBuilder.struct().name("V").field("id", INT8_SCHEMA).build()
        with pytest.raises(SchemaProjectorError, match=r"'id'.*int32.*int8"):
            project(OLD, RECORD, target)

    def test_needs_a_default_where_only_the_writer_allowed_null(self) -> None:
        with pytest.raises(SchemaProjectorError, match="default"):
            project(OPTIONAL_INT32_SCHEMA, None, INT32_SCHEMA)
        assert project(OPTIONAL_INT32_SCHEMA, None, SchemaBuilder.int32().default(Int32(7)).build()) == 7

    def test_goes_into_arrays_and_maps(self) -> None:
        source = SchemaBuilder.map(STRING_SCHEMA, SchemaBuilder.array(INT8_SCHEMA)).build()
        target = SchemaBuilder.map(STRING_SCHEMA, SchemaBuilder.array(INT32_SCHEMA)).build()
        (item,) = project(source, {"a": [Int8(1)]}, target)["a"]
        assert type(item) is Int32

    @pytest.mark.parametrize("change", [{"name": "W"}, {"parameter": ("a", "b")}])
    def test_refuses_another_name_or_other_parameters(self, change: dict[str, Any]) -> None:
        target = SchemaBuilder.int32()
        for fact, value in change.items():
            getattr(target, fact)(*value if isinstance(value, tuple) else (value,))
        with pytest.raises(SchemaProjectorError):
            project(INT32_SCHEMA, Int32(1), target.build())
