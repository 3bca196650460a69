from __future__ import annotations

from typing import Any

import pytest

from headerware.connect.data import (
    INT32_SCHEMA,
    INT64_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    Int32,
    Schema,
    SchemaBuilder,
    Struct,
    Type,
)
from headerware.connect.errors import ConnectConfigError, ConnectDataError
from headerware.connect.modes import Mode
from headerware.connect.records import SinkRecord, SourceRecord
from headerware.connect.transforms.header_to import HeaderTo

PERSON = SchemaBuilder.struct().name("Person").field("id", INT64_SCHEMA).optional().build()
ADA = Struct(PERSON).put("id", 7)


def transform(headers: str, fields: str, operation: str = "copy", mode: Mode = "strict", **more: str) -> Any:
    config = {"headers": headers, "fields": fields, "operation": operation, **more}
    return HeaderTo.Value(config, mode=mode)


def record(value: Any = ADA, *, many: bool = False) -> SourceRecord:
    schema = value.schema if isinstance(value, Struct) else None
    made = SourceRecord(topic="t", value_schema=schema, value=value)
    made.headers.add_int("n", 1).add_string("s", "first").add("bare", 5)
    if many:
        made.headers.add_string("s", "last")
    return made


def keys(made: Any) -> list[str]:
    return [header.key for header in made.headers]


class TestStructs:
    def test_get_fields_of_the_headers_schemas(self, mode: Mode) -> None:
        made = transform("n,s", "number,text", mode=mode).apply(record())
        assert made.value.to_dict() == {"id": 7, "number": 1, "text": "first"}
        assert [field.schema for field in made.value_schema.fields] == [
            INT64_SCHEMA,
            INT32_SCHEMA,
            STRING_SCHEMA,
        ]
        assert (made.value_schema.name, made.value_schema.optional) == ("Person", True)
        assert made.value.schema is made.value_schema
        assert keys(made) == ["n", "s", "bare"]
        assert ADA.to_dict() == {"id": 7}

    def test_move_takes_the_headers_away(self) -> None:
        before = record(many=True)
        made = transform("s,n", "text,number", "move", many="all").apply(before)
        assert keys(made) == ["bare"]
        assert made.value["text"] == ["first", "last"]
        assert before == record(many=True)

    def test_a_header_without_a_schema_gets_one_by_its_value(self) -> None:
        assert transform("bare", "b").apply(record()).value_schema.field("b").schema == INT64_SCHEMA

    @pytest.mark.parametrize("value", [None, object()])
    def test_a_header_whose_schema_nobody_can_tell_is_refused(self, value: Any) -> None:
        given = record()
        given.headers.add("unknown", value)
        with pytest.raises(ConnectDataError, match="header 'unknown' has no schema"):
            transform("unknown", "u").apply(given)

    def test_marks_make_fields_required_or_optional(self) -> None:
        made = transform("s,n", "text?,number!").apply(record())
        assert made.value_schema.field("text").schema == OPTIONAL_STRING_SCHEMA
        assert made.value_schema.field("number").schema == INT32_SCHEMA
        given = record()
        given.headers.add("null", None, OPTIONAL_STRING_SCHEMA)
        with pytest.raises(ConnectDataError, match="required field 'x'"):
            transform("null", "x!").apply(given)

    def test_one_shape_has_one_schema(self) -> None:
        stage = transform("n,s", "number,text", missing="skip")
        assert stage.apply(record()).value_schema is stage.apply(record()).value_schema

    def test_shapes_are_told_apart_by_names_and_forgotten_in_a_flood(self) -> None:
        stage = transform("a,b", "a,b", missing="skip")
        for name in ("a", "b"):
            given = SourceRecord(value_schema=PERSON, value=ADA)
            given.headers.add_string(name, "x")
            assert stage.apply(given).value.to_dict() == {"id": 7, name: "x"}
        for number in range(200):
            given = SourceRecord(value_schema=PERSON, value=ADA)
            given.headers.add("a", "x", SchemaBuilder.string().name(f"N{number}").build())
            stage.apply(given)
        assert len(stage._shapes) <= 64

    def test_a_header_that_lies_about_its_value_is_refused(self) -> None:
        given = record()
        given.headers.add("list", ["secret"], SchemaBuilder.array(INT64_SCHEMA).build())
        with pytest.raises(ConnectDataError) as caught:
            transform("list", "l").apply(given)
        assert "secret" not in str(caught.value)

    def test_of_another_schema_than_the_record_says_are_refused_in_strict(self) -> None:
        given = record()
        given.value_schema = SchemaBuilder.struct().build()
        with pytest.raises(ConnectDataError, match="a struct of another schema"):
            transform("s", "text").apply(given)
        made = transform("s", "text", mode="kafka_4_3").apply(given)
        assert made.value_schema is made.value.schema

    def test_of_keys_are_worked_on_by_its_other_class(self) -> None:
        given = SinkRecord("t", 0, PERSON, ADA, None, "v")
        given.headers.add_string("s", "x")
        made = HeaderTo.Key({"headers": "s", "fields": "text", "operation": "move"}).apply(given)
        assert (made.key["text"], made.value, len(made.headers)) == ("x", "v", 0)


class TestDicts:
    def test_get_the_values(self, mode: Mode) -> None:
        before = record({"id": 7})
        made = transform("n,bare", "number,b", "move", mode).apply(before)
        assert made.value == {"id": 7, "number": Int32(1), "b": 5}
        assert keys(made) == ["s"]
        assert before == record({"id": 7})

    def test_marks_refuse_a_null_or_let_it_be(self) -> None:
        given = record({})
        given.headers.add("null", None)
        assert transform("null", "x").apply(given).value == {"x": None}
        assert transform("null", "x?").apply(given).value == {"x": None}
        with pytest.raises(ConnectDataError, match="required field 'x'"):
            transform("null", "x!").apply(given)


@pytest.mark.parametrize("value", [ADA, {"id": 7}])
class TestSeveralHeaders:
    def test_of_a_name_are_refused_in_strict_and_the_last_one_counts_in_kafka(self, value: Any) -> None:
        with pytest.raises(ConnectDataError, match="expected one header 's', found 2"):
            transform("s", "text").apply(record(value, many=True))
        made = transform("s", "text", mode="kafka_4_3").apply(record(value, many=True))
        assert made.value["text"] == "last"

    @pytest.mark.parametrize(
        ("many", "expected"), [("first", "first"), ("last", "last"), ("all", ["first", "last"])]
    )
    def test_may_be_chosen_from(self, value: Any, many: str, expected: Any, mode: Mode) -> None:
        made = transform("s", "text", mode=mode, many=many).apply(record(value, many=True))
        assert made.value["text"] == expected

    def test_one_is_an_array_too_where_all_are_wanted(self, value: Any) -> None:
        assert transform("s", "text", many="all").apply(record(value)).value["text"] == ["first"]


class TestArrays:
    def test_have_the_schema_of_their_headers(self) -> None:
        given = record(many=True)
        given.headers.add_string("s", None)
        schema = transform("s", "text", many="all").apply(given).value_schema.field("text").schema
        assert (schema.type, schema.value_schema) == (Type.ARRAY, OPTIONAL_STRING_SCHEMA)

    def test_of_headers_of_different_schemas_are_refused(self) -> None:
        given = record()
        given.headers.add_int("s", 1)
        with pytest.raises(ConnectDataError, match="of one schema, found several"):
            transform("s", "text", many="all").apply(given)
        given = record({})
        given.headers.add_int("s", 1)
        assert transform("s", "text", many="all").apply(given).value == {"text": ["first", 1]}


@pytest.mark.parametrize("value", [ADA, {"id": 7}])
class TestMissingAndExisting:
    def test_a_missing_header_is_refused_in_strict_and_skipped_in_kafka(self, value: Any) -> None:
        with pytest.raises(ConnectDataError, match="there is no header 'nope'"):
            transform("nope", "x").apply(record(value))
        for stage in (transform("nope", "x", mode="kafka_4_3"), transform("nope", "x", missing="skip")):
            assert "x" not in stage.apply(record(value)).value

    def test_a_field_that_is_there_is_refused_in_strict_and_replaced_in_kafka(self, value: Any) -> None:
        with pytest.raises(ConnectDataError, match="field 'id' exists already"):
            transform("s", "id").apply(record(value))
        for stage in (transform("s", "id", mode="kafka_4_3"), transform("s", "id", existing="replace")):
            made = stage.apply(record(value))
            assert (len(made.value), made.value["id"]) == (1, "first")


class TestOtherValues:
    @pytest.mark.parametrize(
        ("schema", "value"), [(None, None), (None, "secret"), (STRING_SCHEMA, "secret"), (PERSON, None)]
    )
    def test_are_refused_and_not_quoted(self, schema: Schema | None, value: Any, mode: Mode) -> None:
        given = SourceRecord(value_schema=schema, value=value)
        given.headers.add_string("s", "x")
        with pytest.raises(ConnectDataError) as caught:
            transform("s", "text", mode=mode).apply(given)
        assert "secret" not in str(caught.value)


class TestConfiguration:
    @pytest.mark.parametrize(
        ("change", "path"),
        [
            ({"headers": ""}, "headers"),
            ({"fields": "a,b"}, "fields"),
            ({"headers": "h,i", "fields": "a,a?"}, "fields"),
            ({"operation": "steal"}, "operation"),
            ({"many": "some"}, "many"),
            ({"missing": "null"}, "missing"),
            ({"existing": "keep"}, "existing"),
        ],
    )
    def test_that_cannot_work_is_refused(self, change: dict[str, str], path: str, mode: Mode) -> None:
        with pytest.raises(ConnectConfigError) as caught:
            HeaderTo.Value({"headers": "h", "fields": "a", "operation": "move", **change}, mode=mode)
        assert caught.value.path == path

    def test_nested_fields_cannot_be_made(self) -> None:
        with pytest.raises(ConnectConfigError):
            transform("s", "a.b")
        assert transform("s", "a\\.b").apply(record({})).value == {"a.b": "first"}
