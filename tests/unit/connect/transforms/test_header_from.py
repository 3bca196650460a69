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
)
from headerware.connect.errors import ConnectConfigError, ConnectDataError, ConnectError, NullValueError
from headerware.connect.headers import ConnectHeader
from headerware.connect.modes import Mode
from headerware.connect.records import SinkRecord, SourceRecord
from headerware.connect.transforms.header_from import HeaderFrom

INNER = SchemaBuilder.struct().field("city", STRING_SCHEMA).field("zip", INT32_SCHEMA).build()
PERSON = (
    SchemaBuilder.struct()
    .name("Person")
    .version(2)
    .doc("who")
    .field("id", INT64_SCHEMA)
    .field("name", OPTIONAL_STRING_SCHEMA)
    .field("home", SchemaBuilder.like(INNER, fields=True).optional().build())
    .field("a.b", SchemaBuilder.string().optional().default("dflt").build())
    .build()
)
ADA: dict[str, Any] = {"id": 7, "name": "Ada", "home": {"city": "London", "zip": 1}, "a.b": "x"}


def transform(fields: str, headers: str, operation: str = "move", mode: Mode = "strict", **more: str) -> Any:
    config = {"fields": fields, "headers": headers, "operation": operation}
    return HeaderFrom.Value(
        {**config, **{key.replace("_", "."): text for key, text in more.items()}}, mode=mode
    )


def with_schema(values: dict[str, Any] | None = None, schema: Schema = PERSON) -> SourceRecord:
    given = Struct.of(schema, ADA if values is None else values)
    made = SourceRecord(topic="t", value_schema=schema, value=given)
    made.headers.add_string("h", "old")
    return made


def without_schema(value: Any = None) -> SourceRecord:
    made = SourceRecord(topic="t", value=dict(ADA) if value is None else value)
    made.headers.add_string("h", "old")
    return made


def added(record: Any) -> list[ConnectHeader]:
    first, *rest = record.headers
    assert first == ConnectHeader("h", STRING_SCHEMA, "old")
    assert all(isinstance(header, ConnectHeader) for header in rest)
    return list(rest)


class TestStructs:
    def test_move_takes_the_fields_out(self, mode: Mode) -> None:
        before = with_schema()
        made = transform("id,name", "i,n", mode=mode).apply(before)
        assert added(made) == [
            ConnectHeader("i", INT64_SCHEMA, 7),
            ConnectHeader("n", OPTIONAL_STRING_SCHEMA, "Ada"),
        ]
        assert [field.name for field in made.value_schema.fields] == ["home", "a.b"]
        assert (made.value_schema.name, made.value_schema.version, made.value_schema.doc) == (
            "Person",
            2,
            "who",
        )
        assert made.value.schema is made.value_schema
        assert made.value["home"]["city"] == "London"
        assert before == with_schema()

    def test_copy_leaves_them(self, mode: Mode) -> None:
        before = with_schema()
        made = transform("id,id", "i,h", "copy", mode).apply(before)
        assert added(made) == [ConnectHeader("i", INT64_SCHEMA, 7), ConnectHeader("h", INT64_SCHEMA, 7)]
        assert made.value is before.value

    def test_a_null_has_its_fields_default_where_that_is_wanted(self, mode: Mode) -> None:
        record = with_schema({"id": 1})
        name = "a\\.b" if mode == "strict" else "a.b"
        (found,) = added(transform(name, "x", mode=mode).apply(record))
        assert found.value == "dflt"
        (found,) = added(transform(name, "x", mode=mode, replace_null_with_default="false").apply(record))
        assert found.value is None

    @pytest.mark.parametrize("operation", ["move", "copy"])
    def test_a_null_in_a_required_field_is_refused(self, mode: Mode, operation: str) -> None:
        record = SourceRecord(value_schema=PERSON, value=Struct(PERSON))
        with pytest.raises(ConnectDataError):
            transform("id", "i", operation, mode).apply(record)

    def test_a_null_that_stays_in_a_required_field_is_refused(self, mode: Mode) -> None:
        record = SourceRecord(value_schema=PERSON, value=Struct(PERSON))
        with pytest.raises(ConnectDataError):
            transform("name", "n", "move", mode).apply(record)

    def test_a_missing_field_is_refused_each_in_its_way(self) -> None:
        with pytest.raises(ConnectDataError, match="has no field 'nope'; it has: id, name"):
            transform("nope", "n").apply(with_schema())
        with pytest.raises(NullValueError):
            transform("nope", "n", mode="kafka_4_3").apply(with_schema())

    def test_kafka_complains_about_what_comes_first(self) -> None:
        bad = SourceRecord(value_schema=PERSON, value=Struct(PERSON))
        with pytest.raises(ConnectDataError):
            transform("nope", "n", mode="kafka_4_3").apply(bad)

    def test_strict_keeps_the_schema_optional_and_kafka_does_not(self) -> None:
        schema = SchemaBuilder.like(PERSON, fields=True).optional().build()
        record = with_schema(schema=schema)
        assert transform("id", "i").apply(record).value_schema.optional
        assert not transform("id", "i", mode="kafka_4_3").apply(record).value_schema.optional

    def test_strict_knows_nested_fields_and_escaped_dots(self) -> None:
        made = transform("home.city,a\\.b", "c,d").apply(with_schema())
        assert [(header.key, header.value) for header in added(made)] == [("c", "London"), ("d", "x")]
        assert added(made)[0].schema == OPTIONAL_STRING_SCHEMA  # the home may be null
        assert made.value["home"].to_dict() == {"zip": 1}
        assert "a.b" not in made.value
        made = transform("a.b", "d", mode="kafka_4_3").apply(with_schema())
        assert [header.value for header in added(made)] == ["x"]

    def test_a_null_on_the_way_is_a_null(self) -> None:
        (found,) = added(transform("home.city", "c").apply(with_schema({"id": 1})))
        assert found == ConnectHeader("c", OPTIONAL_STRING_SCHEMA, None)

    def test_of_keys_are_worked_on_by_its_other_class(self) -> None:
        record = SinkRecord("t", 0, PERSON, Struct.of(PERSON, ADA), None, "v")
        config = {"fields": "id", "headers": "i", "operation": "move"}
        made = HeaderFrom.Key(config).apply(record)
        assert (made.value, made.headers.last_with_name("i").value, "id" in made.key) == ("v", 7, False)

    def test_schemas_that_are_made_anew_share_what_comes_out(self) -> None:
        stage = transform("id", "i")
        schemas = [SchemaBuilder.like(PERSON, fields=True).build() for _ in range(200)]
        made = [stage.apply(with_schema(schema=schema)).value_schema for schema in schemas]
        assert len({id(schema) for schema in made[:50]}) == 1
        assert len(stage._plans) <= 64

    def test_equal_schemas_are_compared_once(self) -> None:
        twin = SchemaBuilder.like(PERSON, fields=True).build()
        stage = transform("id", "i")
        for _ in range(2):
            record = SourceRecord(value_schema=twin, value=Struct.of(PERSON, ADA))
            assert stage.apply(record).headers.last_with_name("i").value == 7
        assert stage._same._equal.total() == 1


class TestStructsOfAnotherSchema:
    OTHER = SchemaBuilder.struct().field("id", INT64_SCHEMA).field("name", OPTIONAL_STRING_SCHEMA).build()
    NARROW = SchemaBuilder.struct().field("id", INT64_SCHEMA).field("x", OPTIONAL_STRING_SCHEMA).build()

    def record(self, schema: Schema) -> SourceRecord:
        made = without_schema(Struct.of(self.OTHER, {"id": 7, "name": "Ada"}))
        made.value_schema = schema
        return made

    def test_are_refused_by_strict(self) -> None:
        with pytest.raises(ConnectDataError, match="another schema"):
            transform("id", "i").apply(self.record(self.NARROW))

    def test_are_gone_through_by_name_in_kafka(self) -> None:
        schema = (
            SchemaBuilder.struct().field("name", OPTIONAL_STRING_SCHEMA).field("id", INT64_SCHEMA).build()
        )
        made = transform("id", "i", mode="kafka_4_3").apply(self.record(schema))
        assert added(made) == [ConnectHeader("i", INT64_SCHEMA, 7)]
        assert made.value.to_dict() == {"name": "Ada"}
        copied = transform("id", "i", "copy", "kafka_4_3").apply(self.record(schema))
        assert (copied.value.schema, copied.value_schema) == (self.OTHER, schema)

    @pytest.mark.parametrize(
        ("fields", "operation", "kind"),
        [
            ("id", "move", ConnectDataError),
            ("x", "copy", None),
            ("name", "copy", NullValueError),
            ("id", "copy", None),
        ],
    )
    def test_fail_in_kafka_where_a_field_is_lacking(
        self, fields: str, operation: str, kind: type[ConnectError] | None
    ) -> None:
        stage = transform(fields, "h1", operation, "kafka_4_3")
        if kind is None:
            assert len(added(stage.apply(self.record(self.NARROW)))) == 1
        else:
            with pytest.raises(kind):
                stage.apply(self.record(self.NARROW))


class TestDicts:
    def test_give_headers_without_a_schema(self, mode: Mode) -> None:
        before = without_schema()
        made = transform("id,name,id", "i,n,again", mode=mode).apply(before)
        assert added(made) == [
            ConnectHeader("i", None, 7),
            ConnectHeader("n", None, "Ada"),
            ConnectHeader("again", None, 7),
        ]
        assert set(made.value) == {"home", "a.b"}
        assert before == without_schema()

    def test_copy_leaves_them(self, mode: Mode) -> None:
        assert transform("id", "i", "copy", mode).apply(without_schema()).value == ADA

    def test_an_absent_field_gives_nothing_in_strict_and_a_null_in_kafka(self) -> None:
        assert added(transform("nope", "n").apply(without_schema())) == []
        found = added(transform("nope", "n", mode="kafka_4_3").apply(without_schema()))
        assert found == [ConnectHeader("n", None, None)]

    def test_a_null_gives_a_null(self, mode: Mode) -> None:
        found = added(transform("id", "n", mode=mode).apply(without_schema({"id": None})))
        assert found == [ConnectHeader("n", None, None)]

    def test_strict_knows_nested_fields(self) -> None:
        before = without_schema()
        made = transform("home.city", "c").apply(before)
        assert (added(made)[0].value, made.value["home"]) == ("London", {"zip": 1})
        assert before == without_schema()
        assert transform("home.city", "c").apply(without_schema({"home": None})).value == {"home": None}

    def test_strict_refuses_a_text_on_the_way(self) -> None:
        with pytest.raises(ConnectDataError) as caught:
            transform("name.first", "c").apply(without_schema())
        assert "Ada" not in str(caught.value)


class TestOtherValues:
    @pytest.mark.parametrize(
        ("schema", "value"),
        [(None, None), (None, "secret"), (None, ["secret"]), (STRING_SCHEMA, "secret"), (PERSON, None)],
    )
    def test_are_refused_and_not_quoted(self, schema: Schema | None, value: Any, mode: Mode) -> None:
        with pytest.raises(ConnectDataError) as caught:
            transform("id", "i", mode=mode).apply(SourceRecord(value_schema=schema, value=value))
        assert "secret" not in str(caught.value)


class TestConfiguration:
    @pytest.mark.parametrize(
        ("config", "path"),
        [
            ({"headers": "h", "operation": "move"}, "fields"),
            ({"fields": "a", "operation": "move"}, "headers"),
            ({"fields": "a", "headers": "h"}, "operation"),
            ({"fields": "a", "headers": "h", "operation": "Move"}, "operation"),
            ({"fields": "a", "headers": "", "operation": "move"}, "headers"),
            ({"fields": "a", "headers": "h,i", "operation": "move"}, "headers"),
            (
                {"fields": "a", "headers": "h", "operation": "move", "replace.null.with.default": "?"},
                "replace.null.with.default",
            ),
        ],
    )
    def test_that_cannot_work_is_refused(self, config: dict[str, str], path: str, mode: Mode) -> None:
        with pytest.raises(ConnectConfigError) as caught:
            HeaderFrom.Value(config, mode=mode)
        assert caught.value.path == path

    @pytest.mark.parametrize("fields", ["a..b,c", "a,a.b", ".,c", "a\\x,c"])
    def test_strict_refuses_bad_paths(self, fields: str) -> None:
        with pytest.raises(ConnectConfigError) as caught:
            transform(fields, "h,i")
        assert caught.value.path == "fields"

    def test_strict_knows_escaped_commas(self) -> None:
        made = transform("a\\,b", "h\\,i").apply(without_schema({"a,b": 1}))
        assert added(made) == [ConnectHeader("h,i", None, 1)]

    def test_is_of_keys_or_of_values(self) -> None:
        with pytest.raises(TypeError, match=r"use HeaderFrom\.Key or HeaderFrom\.Value"):
            HeaderFrom({"fields": "a", "headers": "h", "operation": "move"})

    def test_int32_stays_what_it_is(self) -> None:
        (found,) = added(transform("home.zip", "z", "copy").apply(with_schema()))
        assert type(found.value) is Int32
