"""Flatten in both modes."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal as DecimalNumber
from typing import Any

import pytest

from headerware.connect.data import (
    INT32_SCHEMA,
    STRING_SCHEMA,
    BigInteger,
    Decimal,
    SchemaBuilder,
    Struct,
)
from headerware.connect.errors import ConnectDataError, SchemaBuilderError, ValueClassError
from headerware.connect.records import SourceRecord
from headerware.connect.transforms.flatten import Flatten

DEEP = SchemaBuilder.struct().field("c", INT32_SCHEMA).build()
INNER = (
    SchemaBuilder.struct()
    .field("b", DEEP)
    .field("s", SchemaBuilder.string().default("d").build())
    .optional()
    .build()
)
SCHEMA = (
    SchemaBuilder.struct()
    .name("F")
    .version(3)
    .field("a", INNER)
    .field("n", INT32_SCHEMA)
    .field("tags", SchemaBuilder.array(DEEP).build())
    .field("price", Decimal.schema(2))
    .build()
)
MAPPED = SchemaBuilder.struct().field("m", SchemaBuilder.map(STRING_SCHEMA, INT32_SCHEMA).build()).build()
VALUES: dict[str, Any] = {"a": {"b": {"c": 1}}, "n": 2, "tags": [{"c": 3}], "price": DecimalNumber("1.25")}


def flat(value: Any, mode: Any = "strict", schema: Any = None, **config: Any) -> Any:
    """Return a value that is flat."""
    return Flatten.Value(config, mode=mode).apply(SourceRecord(value_schema=schema, value=value)).value


class TestFlatten:
    def test_lifts_the_fields_of_structs(self, mode: Any) -> None:
        record = SourceRecord(key_schema=SCHEMA, key=Struct.of(SCHEMA, VALUES))
        made = Flatten.Key({"delimiter": "_"}, mode=mode).apply(record)
        made.key.validate()
        assert made.key.to_dict() == {
            "a_b_c": 1,
            "a_s": "d",
            "n": 2,
            "tags": [{"c": 3}],
            "price": DecimalNumber("1.25"),
        }
        fields = made.key_schema.by_name
        assert (made.key_schema.name, made.key_schema.version) == ("F", 3)
        assert fields["a_b_c"].schema.optional
        assert fields["a_s"].schema.default == "d"
        assert fields["price"].schema == Decimal.schema(2)

    def test_gives_nulls_for_a_struct_that_is_null(self, mode: Any) -> None:
        made = flat(Struct.of(SCHEMA, VALUES | {"a": None}), mode, SCHEMA)
        assert made.values[:2] == [None, None]

    def test_lifts_the_fields_of_dicts(self, mode: Any) -> None:
        value = {"a": {"b": {"c": 1}, "s": None}, "n": 2, "tags": [{"k": 1}]}
        assert flat(value, mode) == {"a.b.c": 1, "a.s": None, "n": 2, "tags": [{"k": 1}]}

    def test_leaves_a_null_alone(self, mode: Any) -> None:
        for schema in (None, SCHEMA):
            record = SourceRecord(value_schema=schema)
            assert Flatten.Value({}, mode=mode).apply(record) is record

    def test_spreads_the_default_of_a_struct(self, mode: Any) -> None:
        inner = SchemaBuilder.struct().field("x", INT32_SCHEMA)
        inner.default(Struct.of(inner.build(), {"x": 7}))
        schema = SchemaBuilder.struct().field("in", inner.build()).build()
        made = flat(Struct(schema), mode, schema)
        assert (made.values, made["in.x"]) == ([None], 7)

    def test_refuses_a_map_with_a_schema(self, mode: Any) -> None:
        schema = (
            SchemaBuilder.struct().field("m", SchemaBuilder.map(STRING_SCHEMA, INT32_SCHEMA).build()).build()
        )
        with pytest.raises(ConnectDataError, match="'m' is a map"):
            flat(Struct.of(schema, {"m": {}}), mode, schema)

    def test_refuses_two_fields_of_one_name(self, mode: Any) -> None:
        schema = SchemaBuilder.struct().field("a", DEEP).field("a.c", INT32_SCHEMA).build()
        with pytest.raises(SchemaBuilderError):
            flat(Struct.of(schema, {"a": {"c": 1}, "a.c": 2}), mode, schema)

    @pytest.mark.parametrize("value", [object(), {1}, Struct(SCHEMA)])
    def test_refuses_values_of_unknown_classes(self, value: Any, mode: Any) -> None:
        with pytest.raises(ConnectDataError):
            flat({"a": value}, mode)

    def test_refuses_endless_nesting(self, mode: Any) -> None:
        value: dict[str, Any] = {}
        value["a"] = value
        with pytest.raises(ConnectDataError, match="levels"):
            flat(value, mode)

    def test_refuses_a_null_in_a_required_field(self, mode: Any) -> None:
        schema = SchemaBuilder.struct().field("n", INT32_SCHEMA).build()
        with pytest.raises(ConnectDataError, match="required field 'n'"):
            flat(Struct(schema), mode, schema)


class TestStrictMode:
    def test_refuses_to_lose_one_of_two_fields(self) -> None:
        for value in ({"a": {"s": 1}, "a.s": 2}, {"a.s": 2, "a": {"s": 1}}):
            with pytest.raises(ConnectDataError, match="two fields would be called"):
                flat(value)

    def test_keeps_an_empty_dict(self) -> None:
        assert flat({"a": {"e": {}}, "b": 1}) == {"a.e": {}, "b": 1}

    @pytest.mark.parametrize("value", [DecimalNumber(1), BigInteger(1), datetime(2020, 1, 1, tzinfo=UTC)])
    def test_keeps_values_that_kafka_does_not_know(self, value: Any) -> None:
        assert flat({"a": {"b": value}}) == {"a.b": value}

    @pytest.mark.parametrize("name", [1, None, True])
    def test_refuses_names_that_are_no_text(self, name: Any) -> None:
        with pytest.raises(ConnectDataError, match="names that are text"):
            flat({"a": {name: 1}})

    def test_keeps_whether_the_struct_is_optional(self) -> None:
        schema = SchemaBuilder.struct().field("n", INT32_SCHEMA).optional().build()
        for mode, optional in (("strict", True), ("kafka_4_3", False)):
            assert flat(Struct.of(schema, {"n": 1}), mode, schema).schema.optional is optional

    def test_keeps_the_default_of_the_struct(self) -> None:
        builder = SchemaBuilder.struct().field("a", DEEP)
        builder.default(Struct.of(builder.build(), {"a": {"c": 7}}))
        schema = builder.build()
        made = flat(Struct.of(schema, {"a": {"c": 1}}), schema=schema)
        assert made.schema.default.to_dict() == {"a.c": 7}
        assert made.schema.fields[0].schema.default == 7

    def test_refuses_a_struct_that_is_missing(self) -> None:
        schema = SchemaBuilder.struct().field("a", DEEP).build()
        with pytest.raises(ConnectDataError, match=r"required field 'a\.c'"):
            flat(Struct(schema), schema=schema)
        assert flat(Struct(schema), "kafka_4_3", schema).values == [None]

    def test_refuses_a_struct_of_another_schema_than_the_record_says(self) -> None:
        with pytest.raises(ConnectDataError, match="not the same"):
            flat(Struct.of(DEEP, {"c": 1}), schema=SCHEMA)


class TestKafkaMode:
    def test_lets_the_last_of_two_fields_win(self) -> None:
        assert flat({"a": {"s": 1}, "a.s": 2, "e": {}}, "kafka_4_3") == {"a.s": 2}

    @pytest.mark.parametrize("value", [DecimalNumber(1), BigInteger(1), datetime(2020, 1, 1, tzinfo=UTC)])
    def test_refuses_values_that_it_does_not_know(self, value: Any) -> None:
        with pytest.raises(ConnectDataError):
            flat({"a": value}, "kafka_4_3")

    def test_writes_null_names_and_delimiters_as_java_does(self) -> None:
        assert flat({"a": {None: 1}, None: 2}, "kafka_4_3") == {"a.null": 1, None: 2}
        assert flat({"a": {"b": 1}}, "kafka_4_3", delimiter=None) == {"anullb": 1}

    def test_refuses_other_names_that_are_no_text(self) -> None:
        with pytest.raises(ValueClassError):
            flat({"a": {1: 1}}, "kafka_4_3")

    def test_reads_a_struct_of_another_schema_by_name(self) -> None:
        other = SchemaBuilder.struct().field("n", INT32_SCHEMA).field("a", INNER).build()
        made = flat(Struct.of(other, {"n": 5, "a": {"b": {"c": 1}}}), "kafka_4_3", SCHEMA)
        assert made.values == [1, "d", 5, None, None]
        bad = (
            SchemaBuilder.struct().field("m", SchemaBuilder.map(STRING_SCHEMA, INT32_SCHEMA).build()).build()
        )
        with pytest.raises(ConnectDataError):
            flat(Struct.of(bad, {"m": {}}), "kafka_4_3", SCHEMA)
