"""Schemas and what builds them."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from headerware.connect.data import (
    INT32_SCHEMA,
    INT64_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    Field,
    Float32,
    Int8,
    Int32,
    Schema,
    SchemaBuilder,
    Type,
)
from headerware.connect.errors import ConnectDataError, SchemaBuilderError

PERSON = (
    SchemaBuilder.struct()
    .name("Person")
    .version(2)
    .doc("who")
    .parameter("owner", "hr")
    .field("id", INT32_SCHEMA)
    .field("name", OPTIONAL_STRING_SCHEMA)
    .build()
)


class TestSchema:
    def test_says_what_its_builder_was_told(self) -> None:
        assert (PERSON.type, PERSON.name, PERSON.version, PERSON.doc) == (Type.STRUCT, "Person", 2, "who")
        assert dict(PERSON.parameters or {}) == {"owner": "hr"}
        assert PERSON.fields == (Field("id", 0, INT32_SCHEMA), Field("name", 1, OPTIONAL_STRING_SCHEMA))

    def test_of_equal_content_is_equal_and_hashes_alike(self) -> None:
        other = SchemaBuilder.like(PERSON, fields=True).build()
        assert other is not PERSON
        assert other == PERSON
        assert hash(other) == hash(PERSON)

    @pytest.mark.parametrize(
        "other",
        [
            SchemaBuilder.like(PERSON, fields=True).optional().build(),
            SchemaBuilder.like(PERSON).build(),
            SchemaBuilder.struct().field("id", INT32_SCHEMA).field("name", OPTIONAL_STRING_SCHEMA).build(),
            INT32_SCHEMA,
            "Person",
        ],
    )
    def test_of_other_content_differs(self, other: object) -> None:
        assert other != PERSON

    def test_tells_defaults_of_other_classes_apart(self) -> None:
        # True == 1 == 1.0 in Python, and a schema of booleans must not stand for one of numbers.
        one, true = SchemaBuilder.int64().default(1).build(), Schema(Type.INT64, default=True)
        assert one != true

    def test_survives_pickling(self) -> None:
        schema = SchemaBuilder.map(STRING_SCHEMA, SchemaBuilder.array(PERSON)).optional().build()
        assert pickle.loads(pickle.dumps(schema)) == schema  # noqa: S301 - our own pickle

    @pytest.mark.parametrize("question", ["fields", "key_schema", "value_schema"])
    def test_refuses_questions_to_another_type(self, question: str) -> None:
        with pytest.raises(ConnectDataError, match=r"int32|INT32"):
            getattr(INT32_SCHEMA, question)

    def test_gives_none_for_a_field_that_is_not_there(self) -> None:
        assert PERSON.field("age") is None


class TestSchemaBuilder:
    @pytest.mark.parametrize("fact", ["name", "doc"])
    def test_sets_a_thing_once(self, fact: str) -> None:
        builder = getattr(SchemaBuilder.string(), fact)("one")
        assert getattr(builder, fact)("one") is builder
        with pytest.raises(SchemaBuilderError, match=fact):
            getattr(builder, fact)("another")

    def test_cannot_be_optional_and_required(self) -> None:
        with pytest.raises(SchemaBuilderError, match="optional"):
            SchemaBuilder.string().optional().required()

    @pytest.mark.parametrize(
        ("builder", "default"),
        [
            (SchemaBuilder.int8(), 1),
            (SchemaBuilder.int64(), Int32(1)),
            (SchemaBuilder.int64(), True),
            (SchemaBuilder.float32(), 1.5),
            (SchemaBuilder.float64(), Float32(1.5)),
            (SchemaBuilder.string(), b"x"),
            (SchemaBuilder.string(), None),
            (SchemaBuilder.array(INT64_SCHEMA), [1, "2"]),
        ],
    )
    def test_refuses_a_default_that_does_not_fit(self, builder: SchemaBuilder, default: Any) -> None:
        with pytest.raises(SchemaBuilderError, match="default"):
            builder.default(default)

    def test_takes_a_default_that_fits(self) -> None:
        assert SchemaBuilder.int8().default(Int8(1)).build().default == 1

    @pytest.mark.parametrize(("name", "schema"), [("", INT32_SCHEMA), ("id", None), ("known", INT32_SCHEMA)])
    def test_refuses_a_field_without_name_or_schema_or_twice(self, name: str, schema: Schema | None) -> None:
        with pytest.raises(SchemaBuilderError):
            SchemaBuilder.struct().field("known", INT32_SCHEMA).field(name, schema)

    def test_refuses_fields_of_no_struct(self) -> None:
        with pytest.raises(SchemaBuilderError, match="int32"):
            SchemaBuilder.int32().field("id", INT32_SCHEMA)

    @pytest.mark.parametrize("made", [lambda: SchemaBuilder(None), lambda: SchemaBuilder.array(None)])
    def test_refuses_no_type(self, made: Any) -> None:
        with pytest.raises(SchemaBuilderError):
            made()

    def test_can_be_used_where_a_schema_is_expected(self) -> None:
        assert SchemaBuilder.array(SchemaBuilder.int32()).build().value_schema == INT32_SCHEMA
