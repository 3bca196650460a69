"""Casts of fields, in both modes."""

from __future__ import annotations

from typing import Any

import pytest

from headerware.connect.data import (
    INT64_SCHEMA,
    STRING_SCHEMA,
    Int8,
    Int32,
    Schema,
    SchemaBuilder,
    Struct,
    Type,
    alike,
)
from headerware.connect.errors import (
    ConnectDataError,
)
from headerware.connect.modes import KAFKA_4_3, STRICT, Mode
from headerware.connect.records import SourceRecord
from headerware.connect.transforms.cast import Cast

MODES = pytest.mark.parametrize("mode", [STRICT, KAFKA_4_3])
NESTED = SchemaBuilder.struct().field("n", INT64_SCHEMA).field("s", STRING_SCHEMA).build()
WIDE = (
    SchemaBuilder.struct()
    .name("Wide")
    .field("id", INT64_SCHEMA)
    .field("count", SchemaBuilder.int32().optional().doc("how many").default(Int32(7)))
    .field("nested", NESTED)
    .field("a.b", STRING_SCHEMA)
    .build()
)


def record(schema: Schema | None, value: Any) -> SourceRecord:
    """Return a record of a value."""
    return SourceRecord(topic="t", value_schema=schema, value=value)


def wide() -> Struct:
    """Return a struct with all kinds of fields."""
    return Struct.of(WIDE, {"id": 5, "nested": {"n": 6, "s": "8"}, "a.b": "9"})


class TestFields:
    @MODES
    def test_are_cast_and_the_rest_stays(self, mode: Mode) -> None:
        made = Cast.Value({"spec": "id:int8,count:string"}, mode=mode).apply(record(WIDE, wide()))
        assert made.value_schema.name == "Wide"
        assert [field.schema.type for field in made.value_schema.fields[:2]] == [Type.INT8, Type.STRING]
        assert made.value_schema.field("count").schema.default == "7"
        assert made.value_schema.field("count").schema.optional
        assert alike(made.value.values[:2], [Int8(5), "7"])
        assert made.value["nested"] == wide()["nested"]

    @MODES
    def test_null_stays_where_defaults_are_not_put_in(self, mode: Mode) -> None:
        config = {"spec": "count:string", "replace.null.with.default": "false"}
        made = Cast.Value(config, mode=mode).apply(record(WIDE, wide()))
        assert made.value.get_without_default("count") is None

    def test_kafka_refuses_null_in_a_required_field_with_a_default(self) -> None:
        schema = SchemaBuilder.struct().field("x", SchemaBuilder.int32().default(Int32(1))).build()
        config = {"spec": "x:string", "replace.null.with.default": False}
        with pytest.raises(ConnectDataError, match="x"):
            Cast.Value(config, mode=KAFKA_4_3).apply(record(schema, Struct(schema)))
        assert Cast.Value(config).apply(record(schema, Struct(schema))).value["x"] == "1"

    @MODES
    def test_one_schema_comes_out_of_equal_ones(self, mode: Mode) -> None:
        cast = Cast.Value({"spec": "id:int8"}, mode=mode)
        again = SchemaBuilder.like(WIDE, fields=True).build()
        one, other = cast.apply(record(WIDE, wide())), cast.apply(record(again, wide()))
        assert one.value_schema is other.value_schema
        assert one.value == other.value

    @MODES
    def test_a_null_key_or_value_passes(self, mode: Mode) -> None:
        for given in (record(None, None), record(WIDE, None)):
            assert Cast.Value({"spec": "id:int8"}, mode=mode).apply(given) is given

    @MODES
    @pytest.mark.parametrize(
        ("schema", "value"),
        [(INT64_SCHEMA, 5), (None, 5), (None, [1]), (WIDE, 5), (WIDE, Struct(NESTED))],
    )
    def test_need_a_struct_or_dict(self, schema: Schema | None, value: Any, mode: Mode) -> None:
        with pytest.raises(ConnectDataError):
            Cast.Value({"spec": "id:int8"}, mode=mode).apply(record(schema, value))

    def test_kafka_passes_over_a_field_that_is_not_there(self) -> None:
        cast = Cast.Value({"spec": "nested.n:int8,zz:int8"}, mode=KAFKA_4_3)
        assert cast.apply(record(WIDE, wide())).value["nested"]["n"] == 6
        assert cast.apply(record(None, {"b": 1})).value == {"b": 1, "nested.n": None, "zz": None}

    def test_strict_refuses_a_field_that_is_not_there(self) -> None:
        with pytest.raises(ConnectDataError, match="it has: id, count"):
            Cast.Value({"spec": "zz:int8"}).apply(record(WIDE, wide()))

    def test_strict_leaves_an_absent_field_absent(self) -> None:
        given = {"b": 1}
        made = Cast.Value({"spec": "zz:int8,a.b:int8"}).apply(record(None, given)).value
        assert made == {"b": 1}
        assert made is not given

    def test_strict_goes_into_structs_and_dicts(self) -> None:
        cast = Cast.Value({"spec": r"nested.n:string,nested.s:int8,a\.b:int8"})
        made = cast.apply(record(WIDE, wide())).value
        assert alike((made["nested"]["n"], made["nested"]["s"], made["a.b"]), ("6", Int8(8), Int8(9)))
        given = {"nested": {"n": 6, "s": "8", "x": 1}, "a.b": "9"}
        assert cast.apply(record(None, given)).value == {"nested": {"n": "6", "s": 8, "x": 1}, "a.b": 9}
        assert given["nested"] == {"n": 6, "s": "8", "x": 1}

    def test_strict_knows_escaped_colons_and_commas(self) -> None:
        cast = Cast.Value({"spec": r"a\:b:int8,c\,d:string"})
        assert cast.apply(record(None, {"a:b": "1", "c,d": 2})).value == {"a:b": 1, "c,d": "2"}

    def test_strict_keeps_what_a_field_says_of_itself(self) -> None:
        made = Cast.Value({"spec": "count:int64"}).apply(record(WIDE, wide()))
        assert made.value_schema.field("count").schema == Schema(
            Type.INT64, optional=True, doc="how many", default=7
        )

    def test_strict_casts_the_default_of_a_struct(self) -> None:
        plain = SchemaBuilder.struct().field("id", INT64_SCHEMA).build()
        schema = (
            SchemaBuilder.like(plain, fields=True).default(Struct.of(plain, {"id": 1})).optional().build()
        )
        made = Cast.Value({"spec": "id:int8"}).apply(record(schema, Struct.of(schema, {"id": 2})))
        assert made.value_schema.optional
        assert alike(made.value_schema.default["id"], Int8(1))
