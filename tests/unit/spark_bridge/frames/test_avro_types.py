from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from headerware.core.errors import ConfigError
from headerware.spark_bridge.frames.avro_types import avro_type

if TYPE_CHECKING:
    from pathlib import Path


def logical(kind: str, name: str, /, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def record(name: str, /, **fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": key, "type": kind} for key, kind in fields.items()],
    }


def struct(**fields: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields.items()])


# What Spark 4.0's SchemaConverters gives for the same schemas.
AS_SPARK = [
    ("null", NullType()),
    ("boolean", BooleanType()),
    ("int", IntegerType()),
    ("long", LongType()),
    ("float", FloatType()),
    ("double", DoubleType()),
    ("bytes", BinaryType()),
    ("string", StringType()),
    (logical("int", "date"), DateType()),
    (logical("long", "timestamp-millis"), TimestampType()),
    (logical("long", "timestamp-micros"), TimestampType()),
    (logical("long", "timestamp-nanos"), LongType()),
    (logical("long", "local-timestamp-millis"), TimestampNTZType()),
    (logical("long", "local-timestamp-micros"), TimestampNTZType()),
    (logical("int", "time-millis"), IntegerType()),
    (logical("long", "time-micros"), LongType()),
    (logical("string", "uuid"), StringType()),
    (logical("string", "date"), StringType()),
    (logical("bytes", "decimal", precision=10, scale=2), DecimalType(10, 2)),
    (logical("fixed", "decimal", name="D", size=8, precision=10), DecimalType(10, 0)),
    (logical("fixed", "duration", name="P", size=12), BinaryType()),
    ({"type": "enum", "name": "E", "symbols": ["A"]}, StringType()),
    ({"type": "array", "items": "int"}, ArrayType(IntegerType(), containsNull=False)),
    ({"type": "array", "items": ["null", "int"]}, ArrayType(IntegerType(), containsNull=True)),
    ({"type": "map", "values": ["string", "null"]}, MapType(StringType(), StringType())),
    ({"type": "map", "values": "int"}, MapType(StringType(), IntegerType(), valueContainsNull=False)),
    (["null", "int"], IntegerType()),
    (["string"], StringType()),
    (["null", "int", "long"], LongType()),
    (["double", "float"], DoubleType()),
    (["null", "int", "string"], struct(member0=IntegerType(), member1=StringType())),
    (record("Empty"), StructType([])),
    (
        record("R", a=["null", "string"], b="long", c="null"),
        StructType([
            StructField("a", StringType(), nullable=True),
            StructField("b", LongType(), nullable=False),
            StructField("c", NullType(), nullable=True),
        ]),
    ),
]  # fmt: skip


class TestAvroType:
    @pytest.mark.parametrize(("schema", "expected"), AS_SPARK)
    def test_gives_what_spark_gives(self, schema: Any, expected: DataType) -> None:
        assert avro_type(json.dumps(schema)) == expected

    def test_takes_a_dict_a_file_and_its_name(self, tmp_path: Path) -> None:
        schema = record("R", a="int")
        file = tmp_path / "r.avsc"
        file.write_text(json.dumps(schema))
        assert avro_type(schema) == avro_type(file) == avro_type(str(file))

    def test_a_named_type_may_be_used_again(self) -> None:
        inner = record("Inner", x="int")
        kind = avro_type(record("Outer", a=inner, b="Inner", c=["null", "Inner"]))
        assert isinstance(kind, StructType)
        assert kind["a"].dataType == kind["b"].dataType == kind["c"].dataType == avro_type(inner)
        assert [field.nullable for field in kind] == [False, False, True]

    @pytest.mark.parametrize(
        ("schema", "expected"),
        [
            ([logical("int", "date"), "long"], struct(member0=DateType(), member1=LongType())),
            (
                ["int", logical("long", "timestamp-millis")],
                struct(member0=IntegerType(), member1=TimestampType()),
            ),
            (["null"], NullType()),
            ([{"type": "null"}, "int"], IntegerType()),
        ],
    )
    def test_keeps_apart_what_its_objects_keep_apart(self, schema: Any, expected: DataType) -> None:
        assert avro_type(schema) == expected

    @pytest.mark.parametrize(
        ("schema", "message"),
        [
            (record("R", next=["null", "R"]), "schema: next: record 'R' contains itself"),
            (record("R", a={"type": "array", "items": ["null", "R"]}), r"schema: a\[\]: record 'R' contains"),
            (record("R", m={"type": "map", "values": ["null", "R"]}), r"schema: m\.value\[\]: record"),
            (logical("bytes", "decimal", precision=39), "the root: a decimal of 39 digits"),
            (record("R", d=logical("bytes", "decimal")), "d: a decimal of 0 digits"),
            (record("R", u=["float", "double", "string"]), "u: a union of float, double and others"),
            ([logical("int", "time-millis"), "long"], "a union of a time and others"),
            (["double", logical("long", "time-micros"), "null"], "a union of a time and others"),
            (record("R", member0="int", member1="int"), "have the names of union members"),
            ("no/such/file.avsc", "cannot read no/such/file.avsc"),
            ('{"type": "nonsense"}', "it uses a type that it does not define"),
            ("{", "the schema's text is not JSON"),
            (None, "found None"),
        ],
    )
    def test_says_where_there_is_no_type(self, schema: Any, message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            avro_type(schema)

    def test_refuses_a_schema_that_nests_without_measure(self) -> None:
        schema: Any = "int"
        for _ in range(200):
            schema = {"type": "array", "items": schema}
        with pytest.raises(ConfigError, match="nests more than 128 deep"):
            avro_type(schema)
        for _ in range(2000):
            schema = {"type": "array", "items": schema}
        with pytest.raises(ConfigError, match="RecursionError"):
            avro_type(schema)

    def test_refuses_few_records_that_stand_for_very_many_columns(self) -> None:
        schema = record("R0", a="int", b="int")
        for level in range(1, 14):
            schema = record(f"R{level}", a=schema, b=f"R{level - 1}")
        with pytest.raises(ConfigError, match="more than 10000 columns"):
            avro_type(schema)

    def test_takes_a_wide_record(self) -> None:
        kind = avro_type(record("Wide", **{f"f{n}": "int" for n in range(9_000)}))
        assert isinstance(kind, StructType)
        assert len(kind) == 9_000
