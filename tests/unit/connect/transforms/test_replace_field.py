"""ReplaceField in both modes."""

from __future__ import annotations

from typing import Any

import pytest

from headerware.connect.data import (
    INT32_SCHEMA,
    INT64_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    SchemaBuilder,
    Struct,
)
from headerware.connect.errors import (
    ConnectConfigError,
    ConnectDataError,
    NullValueError,
    SchemaBuilderError,
    ValueClassError,
)
from headerware.connect.records import SourceRecord
from headerware.connect.transforms.replace_field import ReplaceField, in_hash_order

INNER = SchemaBuilder.struct().field("x", INT32_SCHEMA).field("y", OPTIONAL_STRING_SCHEMA).optional().build()
SCHEMA = (
    SchemaBuilder.struct()
    .name("N")
    .version(2)
    .field("a", INT64_SCHEMA)
    .field("b", OPTIONAL_STRING_SCHEMA)
    .field("in", INNER)
    .build()
)
PLAIN: dict[str, Any] = {"a": 1, "b": "t", "in": {"x": 2, "y": "u"}}


def both(config: dict[str, Any], mode: Any = "strict", plain: dict[str, Any] = PLAIN) -> dict[str, Any]:
    """Return what is left of a struct, having looked that as much is left of a dict."""
    transform = ReplaceField.Value(config, mode=mode)
    value = Struct.of(SCHEMA, plain)
    made = transform.apply(SourceRecord(topic="t", value_schema=SCHEMA, value=value))
    made.value.validate()
    assert made.value.schema is made.value_schema
    left: dict[str, Any] = made.value.to_dict()
    assert transform.apply(SourceRecord(topic="t", value=plain)).value == left
    return left


class TestReplaceField:
    def test_drops_keeps_and_renames(self, mode: Any) -> None:
        assert both({"exclude": "a,in"}, mode) == {"b": "t"}
        assert both({"include": "a,b"}, mode) == {"a": 1, "b": "t"}
        assert both({"include": "a", "renames": "a:z"}, mode) == {"z": 1}
        assert both({"renames": "a:b,b:a", "exclude": "in"}, mode) == {"b": 1, "a": "t"}

    def test_leaves_a_null_alone(self, mode: Any) -> None:
        record = SourceRecord(topic="t", value_schema=SCHEMA)
        assert ReplaceField.Value({"exclude": "a"}, mode=mode).apply(record) is record

    def test_keeps_name_and_version_of_the_schema(self) -> None:
        record = SourceRecord(topic="t", key_schema=SCHEMA, key=Struct.of(SCHEMA, PLAIN))
        made = ReplaceField.Key({"include": "a"}).apply(record)
        assert made.key_schema == SchemaBuilder.struct().name("N").version(2).field("a", INT64_SCHEMA).build()


class TestStrictMode:
    def test_drops_a_nested_field(self) -> None:
        assert both({"exclude": "in.y"}) == {"a": 1, "b": "t", "in": {"x": 2}}

    def test_keeps_nested_fields_alone(self) -> None:
        assert both({"include": "in.x,a"}) == {"a": 1, "in": {"x": 2}}

    def test_drops_a_field_in_one_that_is_kept(self) -> None:
        assert both({"include": "in", "exclude": "in.x"}) == {"in": {"y": "u"}}

    def test_renames_a_nested_field_and_what_holds_it(self) -> None:
        assert both({"renames": "in:out,in.x:z", "include": "in"}) == {"out": {"z": 2, "y": "u"}}

    def test_leaves_a_null_on_the_way(self) -> None:
        assert both({"exclude": "in.y"}, plain={"a": 1, "b": None, "in": None}) == {
            "a": 1,
            "b": None,
            "in": None,
        }

    def test_takes_names_with_dots_commas_and_colons(self) -> None:
        transform = ReplaceField.Value({"renames": r"a\.b:c\,d,e\:f:g"})
        record = SourceRecord(topic="t", value={"a.b": 1, "e:f": 2})
        assert transform.apply(record).value == {"c,d": 1, "g": 2}

    def test_makes_a_renamed_field_required_or_optional(self) -> None:
        transform = ReplaceField.Value({"include": "a,b", "renames": "a:z?,b:y!"})
        made = transform.apply(SourceRecord(value_schema=SCHEMA, value=Struct.of(SCHEMA, PLAIN)))
        assert [field.schema.optional for field in made.value_schema.fields] == [True, False]
        with pytest.raises(ConnectDataError, match="required field 'b'"):
            transform.apply(SourceRecord(value_schema=SCHEMA, value=Struct.of(SCHEMA, {"a": 1})))
        with pytest.raises(ConnectDataError, match="required field 'y'"):
            transform.apply(SourceRecord(value={"b": None}))

    @pytest.mark.parametrize(
        "config", [{"exclude": "c"}, {"include": "c"}, {"renames": "c:d"}, {"exclude": "in.c"}]
    )
    def test_refuses_a_field_that_a_schema_does_not_have(self, config: dict[str, str]) -> None:
        record = SourceRecord(value_schema=SCHEMA, value=Struct.of(SCHEMA, PLAIN))
        with pytest.raises(ConnectDataError, match="no field 'c'"):
            ReplaceField.Value(config).apply(record)

    def test_adds_nothing_to_a_dict(self) -> None:
        transform = ReplaceField.Value({"include": "a,c.d,e", "renames": "e:f"})
        assert transform.apply(SourceRecord(value={"a": 1})).value == {"a": 1}

    @pytest.mark.parametrize(
        "value", [{"in": "secret"}, {"in": [{"y": "secret"}]}, {"in.y": "secret"}, {1: "secret", "in": {}}]
    )
    def test_refuses_a_dict_in_which_the_field_may_hide(self, value: dict[Any, Any]) -> None:
        with pytest.raises(ConnectDataError) as caught:
            ReplaceField.Value({"exclude": "in.y,1"}).apply(SourceRecord(value=value))
        assert "secret" not in str(caught.value)

    def test_refuses_two_fields_of_one_name(self) -> None:
        transform = ReplaceField.Value({"renames": "a:b"})
        with pytest.raises(ConnectDataError, match="two fields would be called 'b'"):
            transform.apply(SourceRecord(value={"a": 1, "b": 2}))
        with pytest.raises(SchemaBuilderError):
            transform.apply(SourceRecord(value_schema=SCHEMA, value=Struct.of(SCHEMA, PLAIN)))

    @pytest.mark.parametrize(
        "config",
        [
            {"include": "a", "exclude": "a"},
            {"include": "a,a.b"},
            {"exclude": "a.b,a"},
            {"exclude": "a", "include": "a.b"},
            {"exclude": "a", "renames": "a:b"},
            {"include": "a", "renames": "b:c"},
            {"include": "a.x", "renames": "a.y:c"},
            {"renames": "a:c,b:c"},
            {"renames": "a:b,a:c"},
            {"renames": "a:b.c"},
            {"renames": "a"},
        ],
    )
    def test_refuses_ambiguous_input(self, config: dict[str, str]) -> None:
        with pytest.raises(ConnectConfigError):
            ReplaceField.Value(config)

    @pytest.mark.parametrize(("old", "now"), [("whitelist", "include"), ("blacklist", "exclude")])
    def test_tells_the_new_names_of_old_keys(self, old: str, now: str) -> None:
        with pytest.raises(ConnectConfigError, match=f"{old}: this is called '{now}' now"):
            ReplaceField.Value({old: "a"})

    def test_keeps_whether_the_struct_is_optional_and_its_default(self) -> None:
        builder = SchemaBuilder.struct().field("a", STRING_SCHEMA).field("b", STRING_SCHEMA).optional()
        builder.default(Struct.of(builder.build(), {"a": "1", "b": "2"}))
        schema = builder.build()
        record = SourceRecord(value_schema=schema, value=Struct.of(schema, {"a": "3", "b": "4"}))
        made = ReplaceField.Value({"exclude": "a"}).apply(record)
        assert made.value_schema.optional
        assert made.value_schema.default.to_dict() == {"b": "2"}


class TestKafkaMode:
    def test_skips_missing_fields(self) -> None:
        assert both({"exclude": "c,in.y", "renames": "d:e"}, "kafka_4_3") == PLAIN

    def test_takes_the_value_of_the_old_name_for_a_field_of_the_new_one(self) -> None:
        schema = SchemaBuilder.struct().field("a", INT32_SCHEMA).field("b", INT32_SCHEMA).build()
        transform = ReplaceField.Value({"exclude": "a", "renames": "a:b"}, mode="kafka_4_3")
        made = transform.apply(SourceRecord(value_schema=schema, value=Struct.of(schema, {"a": 1, "b": 2})))
        assert made.value.to_dict() == {"b": 1}

    def test_stumbles_where_the_old_name_is_no_field(self) -> None:
        schema = SchemaBuilder.struct().field("b", INT32_SCHEMA).build()
        transform = ReplaceField.Value({"renames": "a:b"}, mode="kafka_4_3")
        with pytest.raises(ConnectDataError):
            transform.apply(SourceRecord(value_schema=schema, value=Struct.of(schema, {"b": 2})))

    def test_refuses_a_value_that_does_not_fit_the_field_it_comes_to(self) -> None:
        transform = ReplaceField.Value({"exclude": "a", "renames": "a:b"}, mode="kafka_4_3")
        with pytest.raises(ConnectDataError):
            transform.apply(SourceRecord(value_schema=SCHEMA, value=Struct.of(SCHEMA, PLAIN)))

    def test_lets_the_last_field_of_a_name_win(self) -> None:
        transform = ReplaceField.Value({"renames": "a:b"}, mode="kafka_4_3")
        assert transform.apply(SourceRecord(value={"a": 1, "b": 2})).value == {"b": 2}

    def test_refuses_names_that_are_no_text_but_null(self) -> None:
        transform = ReplaceField.Value({"renames": "a:b"}, mode="kafka_4_3")
        assert transform.apply(SourceRecord(value={None: 1})).value == {None: 1}
        with pytest.raises(ValueClassError):
            transform.apply(SourceRecord(value={1: 1}))

    def test_ignores_old_keys(self) -> None:
        assert both({"blacklist": "a"}, "kafka_4_3") == PLAIN

    def test_stumbles_over_null_renames(self) -> None:
        with pytest.raises(NullValueError):
            ReplaceField.Value({"renames": None}, mode="kafka_4_3")

    def test_knows_the_order_of_javas_hash_maps(self) -> None:
        # As java.util.HashMap printed it.
        names = ["zz9", "Aa", "BB", "customer", "a", "id"]
        assert in_hash_order(dict.fromkeys(names)) == ["Aa", "BB", "a", "zz9", "id", "customer"]
