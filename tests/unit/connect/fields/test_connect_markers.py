"""Names of fields to create, and their marks."""

from __future__ import annotations

import pytest

from headerware.connect.data import INT32_SCHEMA, SchemaBuilder
from headerware.connect.errors import ConnectConfigError
from headerware.connect.fields.paths import NewField, new_field


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
        with pytest.raises(ConnectConfigError, match=f"stands behind the name: {behind}"):
            new_field(text, "strict", "field")

    def test_takes_a_mark_before_the_name_for_a_part_of_it_where_that_is_said(self) -> None:
        assert new_field(r"\!id", "strict", "field") == NewField("!id", None)
        assert new_field("!id", "kafka_4_3", "field") == NewField("!id", None)

    @pytest.mark.parametrize("text", ["", "!", "?", "a.b", "a\\"])
    def test_refuses_what_names_no_field(self, text: str) -> None:
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
