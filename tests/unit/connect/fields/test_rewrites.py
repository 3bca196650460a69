"""Changes of some fields of structs and dicts."""

from __future__ import annotations

from typing import Any

import pytest

from headerware.connect.data import (
    INT32_SCHEMA,
    INT64_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    Field,
    Int32,
    SchemaBuilder,
    Struct,
)
from headerware.connect.errors import ConnectConfigError, ConnectDataError
from headerware.connect.fields.paths import parse_path
from headerware.connect.fields.rewrites import Change, Edits, rewrite, rewrite_dict

INNER = SchemaBuilder.struct().field("n", INT32_SCHEMA).field("s", STRING_SCHEMA).optional().build()
OUTER = SchemaBuilder.struct().name("O").field("inner", INNER).field("n", INT32_SCHEMA).build()


def edits(*paths: str) -> Edits[str]:
    """Say of each path that it is to be changed."""
    return Edits([(parse_path(path, "strict", "fields"), path) for path in paths], "fields")


def to_int64(field: Field, _: str) -> Change:
    """Widen a field."""
    return Change(field.name, INT64_SCHEMA, int)


def doubled(value: Any, _: str) -> Any:
    """Double a value."""
    return value * 2


class TestRewrite:
    def test_changes_a_nested_field_and_its_schemas(self) -> None:
        updated, apply = rewrite(OUTER, edits("inner.n"), to_int64, mode="strict")
        made = apply(Struct.of(OUTER, {"inner": {"n": 1, "s": "x"}, "n": 2}))
        assert updated.fields[0].schema.fields[0].schema == INT64_SCHEMA
        assert updated.fields[0].schema.optional
        assert updated.name == "O"
        made.validate()
        assert made.to_dict() == {"inner": {"n": 1, "s": "x"}, "n": 2}

    def test_leaves_a_null_on_the_way(self) -> None:
        _, apply = rewrite(OUTER, edits("inner.n"), to_int64, mode="strict")
        assert apply(Struct.of(OUTER, {"n": 2}))["inner"] is None

    def test_keeps_the_schema_where_nothing_in_it_changes(self) -> None:
        same = rewrite(
            OUTER, edits("n"), lambda field, _: Change(field.name, field.schema, lambda n: n), mode="strict"
        )
        assert same.schema is OUTER

    def test_drops_a_field(self) -> None:
        updated, apply = rewrite(OUTER, edits("inner.s"), lambda *_: None, mode="strict")
        made = apply(Struct.of(OUTER, {"inner": {"n": 1, "s": "x"}, "n": 2}))
        assert made.to_dict() == {"inner": {"n": 1}, "n": 2}
        assert [field.name for field in updated.fields[0].schema.fields] == ["n"]

    def test_changes_the_default_of_the_struct_with_it(self) -> None:
        schema = SchemaBuilder.struct().field("n", INT32_SCHEMA).optional()
        schema.default(Struct.of(schema.build(), {"n": 7}))
        updated, _ = rewrite(schema.build(), edits("n"), to_int64, mode="strict")
        assert updated.optional
        assert type(updated.default["n"]) is int

    def test_loses_optional_and_default_in_kafka_4_3(self) -> None:
        schema = SchemaBuilder.struct().field("n", INT32_SCHEMA).optional()
        schema.default(Struct.of(schema.build(), {"n": 7}))
        updated, _ = rewrite(schema.build(), edits("n"), to_int64, mode="kafka_4_3")
        assert not updated.optional
        assert updated.default is None

    def test_refuses_a_null_that_a_change_made(self) -> None:
        _, apply = rewrite(
            OUTER,
            edits("n"),
            lambda field, _: Change(field.name, field.schema, lambda _: None),
            mode="strict",
        )
        with pytest.raises(ConnectDataError, match="required field 'n'"):
            apply(Struct.of(OUTER, {"n": 1}))

    def test_refuses_a_field_that_is_not_there(self) -> None:
        with pytest.raises(ConnectDataError, match="it has: n, s"):
            rewrite(OUTER, edits("inner.x"), to_int64, mode="strict")

    def test_passes_over_a_field_that_is_not_there_in_kafka_4_3(self) -> None:
        assert rewrite(OUTER, edits("x"), to_int64, mode="kafka_4_3").schema is OUTER

    def test_replaces_nulls_by_defaults_if_asked_to(self) -> None:
        schema = SchemaBuilder.struct().field("d", SchemaBuilder.string().default("d").build()).build()
        null = Struct(schema)
        for with_default, stored in ((True, "d"), (False, None)):
            _, apply = rewrite(schema, edits(), to_int64, mode="strict", with_default=with_default)
            assert apply(null).values == [stored]

    def test_refuses_a_null_in_a_required_field_in_kafka_4_3_though_it_has_a_default(self) -> None:
        schema = SchemaBuilder.struct().field("d", SchemaBuilder.string().default("d").build()).build()
        _, apply = rewrite(schema, edits(), to_int64, mode="kafka_4_3", with_default=False)
        with pytest.raises(ConnectDataError):
            apply(Struct(schema))

    def test_does_not_change_the_struct_that_came(self) -> None:
        schema = SchemaBuilder.struct().field("a", OPTIONAL_STRING_SCHEMA).field("n", INT32_SCHEMA).build()
        came = Struct.of(schema, {"n": 1})
        rewrite(schema, edits("n"), to_int64, mode="strict").apply(came)
        assert came.values == [None, Int32(1)]


class TestRewriteDict:
    def test_changes_nested_fields_and_copies_the_way(self) -> None:
        came = {"a": {"b": 1, "c": 2}, "d": 3}
        assert rewrite_dict(came, edits("a.b", "d").root, doubled) == {"a": {"b": 2, "c": 2}, "d": 6}
        assert came == {"a": {"b": 1, "c": 2}, "d": 3}

    @pytest.mark.parametrize("value", [{}, {"a": None}, {"a": {}}, {"x": 1}])
    def test_adds_nothing(self, value: dict[str, Any]) -> None:
        assert rewrite_dict(value, edits("a.b").root, doubled) == value

    @pytest.mark.parametrize("found", [[{"b": 1}], "text", 5, Struct.of(OUTER, {"n": 1})])
    def test_requires_dicts_on_the_path(self, found: Any) -> None:
        with pytest.raises(ConnectDataError, match="needs a dict at 'a'"):
            rewrite_dict({"a": found}, edits("a.b").root, doubled)

    def test_refuses_names_that_are_no_text_where_one_is_missing(self) -> None:
        with pytest.raises(ConnectDataError, match="not text, but of class int"):
            rewrite_dict({1: "secret"}, edits("1").root, doubled)  # type: ignore[dict-item]  # hostile

    def test_refuses_a_name_with_the_dots_of_the_path(self) -> None:
        with pytest.raises(ConnectDataError, match="write"):
            rewrite_dict({"a.b": 1}, edits("a.b").root, doubled)
        with pytest.raises(ConnectDataError, match="write"):
            rewrite_dict({"x": {"a.b": 1}}, edits("x.a.b").root, doubled)

    def test_takes_both_where_both_are_named(self) -> None:
        made = rewrite_dict({"a.b": 1}, edits("a.b", r"a\.b").root, doubled)
        assert made == {"a.b": 2}


class TestEdits:
    @pytest.mark.parametrize("paths", [("a", "a"), ("a", "a.b"), ("a.b", "a"), ("a.b.c", "a.b")])
    def test_refuses_fields_that_overlap(self, paths: tuple[str, ...]) -> None:
        with pytest.raises(ConnectConfigError, match="overlap") as caught:
            edits(*paths)
        assert caught.value.path == "fields"
