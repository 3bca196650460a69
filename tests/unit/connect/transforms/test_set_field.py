from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from headerware.connect.data import (
    FLOAT64_SCHEMA,
    INT32_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    Int16,
    SchemaBuilder,
    Struct,
    Type,
)
from headerware.connect.errors import ConnectConfigError, ConnectDataError
from headerware.connect.records import SinkRecord
from headerware.connect.transforms.set_field import SetField

SCHEMA = SchemaBuilder.struct().field("price", INT32_SCHEMA).field("name", OPTIONAL_STRING_SCHEMA).build()


def schemad(**fields: Any) -> SinkRecord:
    return SinkRecord("t", value_schema=SCHEMA, value=Struct.of(SCHEMA, {"price": 3} | fields))


class TestSetField:
    def test_adds_a_field_to_a_struct(self) -> None:
        transform = SetField.Value({"field": "total", "expression": "value.price * 2", "field.type": "int16"})
        made = transform.apply(schemad())
        assert made.value["total"] == Int16(6)
        assert [field.name for field in made.value_schema.fields] == ["price", "name", "total"]
        made.value.validate()

    def test_replaces_a_field_where_it_stands(self) -> None:
        transform = SetField.Value({"field": "price", "expression": 'topic + "-x"'})
        made = transform.apply(schemad())
        assert made.value.to_dict() == {"price": "t-x", "name": None}
        assert [field.index for field in made.value_schema.fields] == [0, 1]
        made.value.validate()

    def test_adds_a_field_to_a_dict(self) -> None:
        transform = SetField.Value({"field": "all", "expression": "value.a.map(x, x + 1)"})
        record = SinkRecord("t", value={"a": [1, 2]})
        assert transform.apply(record).value == {"a": [1, 2], "all": [2, 3]}
        assert record.value == {"a": [1, 2]}

    @pytest.mark.parametrize(
        ("expression", "kind", "expected"),
        [
            ("1 + 1", Type.INT64, 2),
            ("1.5", Type.FLOAT64, 1.5),
            ("true", Type.BOOLEAN, True),
            ('b"x"', Type.BYTES, b"x"),
            ('timestamp("2024-01-01T00:00:00Z")', Type.INT64, datetime(2024, 1, 1, tzinfo=UTC)),
        ],
    )
    def test_takes_the_type_that_the_expression_gives(
        self, expression: str, kind: Type, expected: Any
    ) -> None:
        made = SetField.Value({"field": "x", "expression": expression}).apply(schemad())
        assert made.value_schema.by_name["x"].schema.type is kind
        assert made.value["x"] == expected
        made.value.validate()

    def test_may_be_null_unless_marked(self) -> None:
        config = {"field": "x", "expression": "value.name", "field.type": "string"}
        assert SetField.Value(config).apply(schemad()).value["x"] is None
        with pytest.raises(ConnectDataError, match="required"):
            SetField.Value(config | {"field": "x!"}).apply(schemad())
        with pytest.raises(ConnectDataError, match="required"):
            SetField.Value({"field": "x!", "expression": "value.name"}).apply(
                SinkRecord("t", value={"name": None})
            )

    def test_needs_a_type_for_a_struct_where_the_expression_gives_any(self) -> None:
        with pytest.raises(ConnectDataError, match=r"set field\.type"):
            SetField.Value({"field": "x", "expression": "value.name"}).apply(schemad())

    @pytest.mark.parametrize(
        ("expression", "kind"),
        [
            ("value.price * 100000", "int16"),
            ("value.price", "string"),
            ("9007199254740993", "float64"),
            ('timestamp("2024-01-01T00:00:00.0001Z")', "timestamp"),
        ],
    )
    def test_refuses_a_value_that_does_not_fit_the_type(self, expression: str, kind: str) -> None:
        transform = SetField.Value({"field": "x", "expression": expression, "field.type": kind})
        with pytest.raises(ConnectDataError):
            transform.apply(schemad())

    def test_takes_an_integer_for_a_floating_point_field(self) -> None:
        transform = SetField.Value({"field": "x", "expression": "value.price", "field.type": "float64"})
        made = transform.apply(schemad())
        assert made.value_schema.by_name["x"].schema.type is FLOAT64_SCHEMA.type
        assert made.value["x"] == 3.0

    def test_leaves_a_tombstone(self) -> None:
        record = SinkRecord("t")
        assert SetField.Value({"field": "x", "expression": "1"}).apply(record) is record

    @pytest.mark.parametrize("value", ["text", [1]])
    def test_refuses_a_value_without_fields(self, value: Any) -> None:
        with pytest.raises(ConnectDataError):
            SetField.Key({"field": "x", "expression": "1"}).apply(SinkRecord("t", key=value))

    @pytest.mark.parametrize(
        "config",
        [
            {"field": "x"},
            {"field": "a.b", "expression": "1"},
            {"field": "x", "expression": "1", "field.type": "struct"},
            {"field": "x", "expression": "nope"},
        ],
    )
    def test_refuses_a_configuration_that_cannot_work(self, config: dict[str, str]) -> None:
        with pytest.raises(ConnectConfigError):
            SetField.Value(config)
