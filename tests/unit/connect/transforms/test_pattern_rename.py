from __future__ import annotations

from typing import Any

import pytest

from headerware.connect.data import INT8_SCHEMA, STRING_SCHEMA, SchemaBuilder, Struct
from headerware.connect.errors import ConnectConfigError, ConnectDataError
from headerware.connect.records import SinkRecord
from headerware.connect.transforms.pattern_rename import PatternRename


def renamed(value: dict[str, Any], **config: Any) -> Any:
    options = {name.replace("_", "."): text for name, text in config.items()}
    return PatternRename.Value(options).apply(SinkRecord("t", value=value)).value


class TestPatternRename:
    def test_replaces_every_match_with_groups(self) -> None:
        made = renamed({"a_b_c": 1, "d": 2}, field_pattern=r"_(\w)", field_replacement="-$1")
        assert made == {"a-b-c": 1, "d": 2}

    def test_takes_either_case_unless_told_otherwise(self) -> None:
        config: dict[str, Any] = {"field_pattern": "^old", "field_replacement": "new"}
        assert renamed({"OLDa": 1}, **config) == {"newa": 1}
        assert renamed({"OLDa": 1}, **config, field_pattern_flags="") == {"OLDa": 1}

    def test_takes_a_literal(self) -> None:
        config: dict[str, Any] = {"field_replacement": "x", "field_pattern_flags": "LITERAL"}
        assert renamed({"a.b": 1, "acb": 2}, field_pattern="a.b", **config) == {"x": 1, "acb": 2}
        assert renamed({"a\\Eb": 1}, field_pattern="\\E", **config) == {"axb": 1}

    def test_renames_fields_of_structs(self) -> None:
        schema = SchemaBuilder.struct().name("S").version(2).field("old_a", STRING_SCHEMA).optional().build()
        transform = PatternRename.Value({"field.pattern": "^old_", "field.replacement": ""})
        made = transform.apply(SinkRecord("t", value_schema=schema, value=Struct.of(schema, {"old_a": "x"})))
        assert made.value.to_dict() == {"a": "x"}
        assert (made.value_schema.name, made.value_schema.version, made.value_schema.optional) == (
            "S",
            2,
            True,
        )

    def test_renames_nested_fields_only_where_asked(self) -> None:
        value = {"x1": {"x2": [{"x3": 1}, None]}}
        config: dict[str, Any] = {"field_pattern": "x", "field_replacement": "y"}
        assert renamed(value, **config) == {"y1": {"x2": [{"x3": 1}, None]}}
        assert renamed(value, **config, nested="true") == {"y1": {"y2": [{"y3": 1}, None]}}

    def test_renames_in_arrays_and_maps_of_structs(self) -> None:
        inner = SchemaBuilder.struct().field("x", INT8_SCHEMA).optional().build()
        schema = (
            SchemaBuilder.struct()
            .field("xs", SchemaBuilder.array(inner).build())
            .field("xm", SchemaBuilder.map(STRING_SCHEMA, inner).build())
            .build()
        )
        value = Struct.of(schema, {"xs": [{"x": 1}, None], "xm": {"x": {"x": 2}}})
        config = {"field.pattern": "x", "field.replacement": "y", "nested": "true"}
        made = PatternRename.Value(config).apply(SinkRecord("t", value_schema=schema, value=value))
        assert made.value.to_dict() == {"ys": [{"y": 1}, None], "ym": {"x": {"y": 2}}}
        made.value.validate()

    def test_keeps_a_default(self) -> None:
        plain = SchemaBuilder.struct().field("x", STRING_SCHEMA)
        default = Struct.of(plain.build(), {"x": "d"})
        schema = SchemaBuilder.struct().field("x", STRING_SCHEMA).default(default).build()
        made = PatternRename.Value({"field.pattern": "x", "field.replacement": "y"}).plan(schema)
        assert made.schema is not None
        assert made.schema.default.to_dict() == {"y": "d"}

    def test_refuses_to_lose_a_field(self) -> None:
        schema = SchemaBuilder.struct().field("a1", STRING_SCHEMA).field("a2", STRING_SCHEMA).build()
        config = {"field.pattern": r"\d", "field.replacement": ""}
        with pytest.raises(ConnectDataError, match="two fields would have one name"):
            PatternRename.Value(config).apply(SinkRecord("t", value={"a1": 1, "a2": 2}))
        with pytest.raises(ConnectDataError, match="two fields would have one name"):
            PatternRename.Value(config).plan(schema)

    def test_refuses_a_field_without_a_name(self) -> None:
        with pytest.raises(ConnectDataError, match="no name"):
            renamed({"a": 1}, field_pattern="a", field_replacement="")

    def test_refuses_to_follow_a_value_without_end(self) -> None:
        endless: dict[str, Any] = {}
        endless["x"] = [endless]
        with pytest.raises(ConnectDataError, match="deeper"):
            renamed(endless, field_pattern="x", field_replacement="y", nested="true")

    def test_leaves_nulls(self) -> None:
        record = SinkRecord("t")
        assert PatternRename.Key({"field.pattern": "a", "field.replacement": "b"}).apply(record) is record

    @pytest.mark.parametrize("value", ["text", [1]])
    def test_refuses_a_value_without_fields(self, value: Any) -> None:
        with pytest.raises(ConnectDataError, match="renaming fields"):
            PatternRename.Value({"field.pattern": "a", "field.replacement": "b"}).apply(
                SinkRecord("t", value=value)
            )

    @pytest.mark.parametrize(
        "config",
        [
            {"field.pattern": "(", "field.replacement": ""},
            {"field.pattern": "a", "field.replacement": "$1"},
            {"field.pattern": "a", "field.replacement": "", "field.pattern.flags": "CANON_EQ"},
            {"field.pattern": "", "field.replacement": ""},
        ],
    )
    def test_requires_an_expression(self, config: dict[str, str]) -> None:
        with pytest.raises(ConnectConfigError):
            PatternRename.Value(config)
