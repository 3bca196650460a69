"""Paths to fields: dots and escapes, Kafka's backticks, structs and dicts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headerware.connect.data import (
    INT32_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    Int32,
    SchemaBuilder,
    Struct,
)
from headerware.connect.errors import ArgumentError, ConnectConfigError, ConnectDataError
from headerware.connect.fields.paths import ABSENT, NewField, new_field, parse_path, parse_versioned_path

INNER = SchemaBuilder.struct().field("b", INT32_SCHEMA).field("d", OPTIONAL_STRING_SCHEMA).build()


MAYBE = SchemaBuilder.struct().field("z", INT32_SCHEMA).optional().build()


OUTER = (
    SchemaBuilder.struct()
    .field("a", INNER)
    .field("maybe", MAYBE)
    .field("a.b", STRING_SCHEMA)
    .field("list", SchemaBuilder.array(INNER).build())
    .field("word", SchemaBuilder.string().optional().default("w").build())
    .build()
)


VALUE = Struct.of(OUTER, {"a": {"b": 1}, "a.b": "flat", "list": []})


class TestStrictPath:
    def test_leads_into_a_struct(self) -> None:
        assert parse_path("a.b", "strict", "field").getter(OUTER)(VALUE) == Int32(1)

    def test_finds_a_name_with_a_dot_after_a_backslash(self) -> None:
        assert parse_path(r"a\.b", "strict", "field").getter(OUTER)(VALUE) == "flat"

    @pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", "a\\"])
    def test_refuses_empty_names(self, text: str) -> None:
        with pytest.raises(ConnectConfigError):
            parse_path(text, "strict", "field")

    @pytest.mark.parametrize("text", ['"a"', "'a.b'", 'a."b"', "'a'.b", '"a\\.b"', "''"])
    def test_refuses_names_in_quotes(self, text: str) -> None:
        with pytest.raises(ConnectConfigError, match="quotes would be part of the name") as caught:
            parse_path(text, "strict", "field")
        assert caught.value.path == "field"
        assert parse_path(text, "kafka_4_3", "field").steps == (text,)

    @pytest.mark.parametrize("name", ['"a"', "'", '"', "it's", "'a\""])
    def test_takes_quotes_that_belong_to_a_name(self, name: str) -> None:
        written = name if len(name) != 3 or name[0] != name[-1] else name.replace('"', '\\"')
        assert parse_path(written, "strict", "field").steps == (name,)

    def test_names_the_fields_that_there_are(self) -> None:
        with pytest.raises(ConnectDataError, match=r"no field 'x' \(in 'a\.x'\); it has: b, d"):
            parse_path("a.x", "strict", "field").field(OUTER)

    def test_says_how_to_write_a_dot(self) -> None:
        schema = SchemaBuilder.struct().field("a.b", INT32_SCHEMA).build()
        with pytest.raises(ConnectDataError, match=r"write 'a\\\\\.b'"):
            parse_path("a.b", "strict", "field").field(schema)

    @pytest.mark.parametrize("text", ["list.b", "word.b", "a.b.c"])
    def test_refuses_a_step_into_a_value_without_fields(self, text: str) -> None:
        with pytest.raises(ConnectDataError, match="needs a struct"):
            parse_path(text, "strict", "field").field(OUTER)

    def test_gives_null_for_a_field_in_a_null(self) -> None:
        assert parse_path("maybe.z", "strict", "field").getter(OUTER)(VALUE) is None

    def test_says_that_a_field_in_a_null_is_optional(self) -> None:
        assert parse_path("maybe.z", "strict", "field").schema(OUTER).optional

    def test_takes_the_default_if_asked_to(self) -> None:
        path = parse_path("word", "strict", "field")
        assert path.getter(OUTER)(VALUE) == "w"
        assert path.getter(OUTER, with_default=False)(VALUE) is None

    def test_tells_null_from_absent_in_dicts(self) -> None:
        path = parse_path("a.b", "strict", "field")
        assert path.from_dict({"a": {"b": 1}}) == 1
        assert path.from_dict({"a": {"b": None}}, ABSENT) is None
        assert path.from_dict({"a": None}, ABSENT) is None
        assert path.from_dict({"a": {}}, ABSENT) is ABSENT
        assert path.from_dict({}, ABSENT) is ABSENT

    def test_refuses_a_dict_path_through_a_list(self) -> None:
        with pytest.raises(ConnectDataError):
            parse_path("a.b", "strict", "field").from_dict({"a": [{"b": 1}]})

    def test_refuses_a_dict_that_has_the_dots_in_a_name(self) -> None:
        path = parse_path("a.b", "strict", "field")
        path.refuse_dotted({"a": {"b": 1}, "a.b": 2})
        with pytest.raises(ConnectDataError, match="write"):
            path.refuse_dotted({"a.b": 2})

    @given(st.lists(st.text(st.sampled_from("ab.\\`é "), min_size=1), min_size=1))
    def test_leads_to_any_name_that_is_escaped(self, names: list[str]) -> None:
        text = ".".join(name.replace("\\", "\\\\").replace(".", "\\.") for name in names)
        assert parse_path(text, "strict", "field").steps == tuple(names)


class TestKafkaPath:
    def test_is_one_name(self) -> None:
        assert parse_path("a.b", "kafka_4_3", "field").steps == ("a.b",)
        assert parse_versioned_path("a.b", "v1", "field").steps == ("a.b",)

    @pytest.mark.parametrize(
        ("text", "steps"),
        [
            ("a.b", ("a", "b")),
            ("`a.b`.c", ("a.b", "c")),
            ("a.`b.c`", ("a", "b.c")),
            ("a`b.c", ("a`b", "c")),
            ("`a`b`.c", ("a`b", "c")),
            ("`a\\`.b`", ("a`.b",)),
            ("``", ("",)),
            ("a.", ("a", "")),
            (".", ("", "")),
            ("`a`.", ("a", "")),
            ("", ()),
        ],
    )
    def test_has_dots_and_backticks_in_version_2(self, text: str, steps: tuple[str, ...]) -> None:
        assert parse_versioned_path(text, "V2", "field").steps == steps

    @pytest.mark.parametrize("text", ["`", "`a", "`a`b", "a.`b", "`a\\`", "`a`.`"])
    def test_refuses_a_backtick_that_is_not_closed(self, text: str) -> None:
        with pytest.raises(ConnectConfigError, match="not closed"):
            parse_versioned_path(text, "V2", "field")

    def test_finds_nothing_or_raises_as_kafka_does(self) -> None:
        assert parse_versioned_path("a.x", "V2", "field").find(OUTER) is None
        with pytest.raises(ConnectDataError):
            parse_versioned_path("word.x", "V2", "field").find(OUTER)
        with pytest.raises(ArgumentError):
            parse_versioned_path("", "V2", "field").find(OUTER)

    @pytest.mark.parametrize(("text", "found"), [("a.b", 1), ("x.b", None), ("maybe.z", None), ("a.x", None)])
    def test_reads_structs_by_name(self, text: str, found: Any) -> None:
        assert parse_versioned_path(text, "V2", "field").from_struct(VALUE) == found


class TestNewField:
    @pytest.mark.parametrize(
        ("text", "field"),
        [
            ("id", NewField("id", None)),
            ("id!", NewField("id", optional=False)),
            ("id?", NewField("id", optional=True)),
            (r"id\!", NewField("id!", None)),
            (r"id\\!", NewField("id\\", optional=False)),
            (r"id\!?", NewField("id!", optional=True)),
            (r"a\.b", NewField("a.b", None)),
        ],
    )
    def test_reads_name_and_mark(self, text: str, field: NewField) -> None:
        assert new_field(text, "strict", "field") == field

    @pytest.mark.parametrize(("text", "behind"), [("!id", "'id!'"), ("?id", "'id\\?'"), ("!a.b", "'a.b!'")])
    def test_tells_a_mark_that_stands_before_the_name(self, text: str, behind: str) -> None:
        with pytest.raises(ConnectConfigError, match=f"write the mark after the name: {behind}"):
            new_field(text, "strict", "field")

    def test_takes_a_mark_before_the_name_for_a_part_of_it_where_that_is_said(self) -> None:
        assert new_field(r"\!id", "strict", "field") == NewField("!id", None)
        assert new_field("!id", "kafka_4_3", "field") == NewField("!id", None)

    @pytest.mark.parametrize("text", ["", "!", "?", "a.b", "a\\"])
    def test_requires_the_name_of_a_field(self, text: str) -> None:
        with pytest.raises(ConnectConfigError) as caught:
            new_field(text, "strict", "topic.field")
        assert caught.value.path == "topic.field"

    @pytest.mark.parametrize(
        ("text", "field"),
        [
            ("a.b!", NewField("a.b", optional=False)),
            ("a\\!", NewField("a\\", optional=False)),
            ("!!", NewField("!", optional=False)),
            ("?", NewField("", optional=True)),
            ("", NewField("", None)),
        ],
    )
    def test_takes_the_last_character_in_kafka_4_3(self, text: str, field: NewField) -> None:
        assert new_field(text, "kafka_4_3", "field") == field

    def test_makes_a_schema_optional_and_keeps_the_rest(self) -> None:
        builder = SchemaBuilder.array(INT32_SCHEMA).name("N").version(2).doc("d").parameter("p", "1")
        schema = builder.build()
        assert NewField("a", optional=True).marked(schema) == builder.optional().build()

    def test_leaves_a_schema_alone_without_a_mark(self) -> None:
        assert NewField("a", None).marked(INT32_SCHEMA) is INT32_SCHEMA
