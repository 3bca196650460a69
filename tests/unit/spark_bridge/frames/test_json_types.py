from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
)

from headerware.core.errors import ConfigError
from headerware.spark_bridge.frames.json_types import json_type

if TYPE_CHECKING:
    from pathlib import Path


STRING = {"type": "string"}
INTEGER = {"type": "integer"}
NULL = {"type": "null"}


def with_properties(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def only(kind: DataType, *, nullable: bool = True) -> StructType:
    return StructType([StructField("a", kind, nullable)])


class TestJsonType:
    @pytest.mark.parametrize(
        ("schema", "expected"),
        [
            (STRING, StringType()),
            ({"type": "string", "format": "date-time"}, StringType()),
            (INTEGER, LongType()),
            ({"type": "number"}, DoubleType()),
            ({"type": ["integer", "number"]}, DoubleType()),
            ({"type": "boolean"}, BooleanType()),
            (NULL, NullType()),
            ({"enum": ["a", "b", None]}, StringType()),
            ({"enum": [1, 2.5]}, DoubleType()),
            ({"type": "number", "enum": [1, 2]}, LongType()),
            ({"const": True}, BooleanType()),
            (
                {"type": "object", "additionalProperties": INTEGER},
                MapType(StringType(), LongType(), valueContainsNull=False),
            ),
            (
                {"additionalProperties": {"type": ["string", "null"]}},
                MapType(StringType(), StringType(), valueContainsNull=True),
            ),
            ({"type": "array", "items": INTEGER}, ArrayType(LongType(), containsNull=False)),
            ({"items": {"anyOf": [INTEGER, NULL]}}, ArrayType(LongType(), containsNull=True)),
            ({"oneOf": [{"type": "string", "format": "date"}, STRING]}, StringType()),
            ({"anyOf": [INTEGER, {"type": "number"}]}, DoubleType()),
            ({"anyOf": [NULL, NULL]}, NullType()),
        ],
    )
    def test_gives_the_type_of_what_json_holds(self, schema: Any, expected: DataType) -> None:
        assert json_type(json.dumps(schema)) == expected

    def test_what_is_required_may_not_be_null(self) -> None:
        schema = with_properties(a=STRING, b=STRING, c={"type": ["string", "null"]})
        kind = json_type({**schema, "required": ["a", "c", "elsewhere"]})
        assert [(field.name, field.nullable) for field in kind] == [("a", False), ("b", True), ("c", True)]  # type: ignore[attr-defined]

    @pytest.mark.parametrize(
        "schema",
        [
            {**with_properties(a={"$ref": "#/$defs/n"}), "$defs": {"n": INTEGER}},
            {**with_properties(a={"$ref": "#/definitions/x~1y%20z"}), "definitions": {"x/y z": INTEGER}},
            {**with_properties(a={"$ref": "#/$defs/n", "minimum": 1}), "$defs": {"n": INTEGER}},
            with_properties(a={"$ref": "#/properties/b/anyOf/1"}, b={"anyOf": [NULL, INTEGER]}),
            {"$ref": "#/$defs/o", "$defs": {"o": with_properties(a=INTEGER)}},
        ],
    )
    def test_follows_references(self, schema: Any) -> None:
        assert json_type(schema)["a"].dataType == LongType()  # type: ignore[index]

    def test_all_of_says_together_what_there_is(self) -> None:
        base = with_properties(id=STRING)
        schema = {
            "allOf": [{"$ref": "#/$defs/base"}, {"required": ["id", "n"]}],
            **with_properties(n=INTEGER),
        }
        assert json_type({**schema, "$defs": {"base": base}}) == StructType([
            StructField("n", LongType(), nullable=False),
            StructField("id", StringType(), nullable=False),
        ])  # fmt: skip

    def test_a_property_told_twice_is_what_both_say(self) -> None:
        schema = {"allOf": [with_properties(a={"type": ["number", "null"]}), with_properties(a=INTEGER)]}
        assert json_type(schema) == only(LongType())
        assert json_type({**schema, "required": ["a"]}) == only(LongType(), nullable=False)

    def test_what_only_narrows_changes_nothing(self) -> None:
        schema = {**with_properties(a=STRING), "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}
        assert json_type(schema) == only(StringType())

    def test_takes_a_file_and_its_name(self, tmp_path: Path) -> None:
        file = tmp_path / "a.json"
        file.write_text(json.dumps(with_properties(a=STRING)))
        assert json_type(file) == json_type(str(file)) == only(StringType())

    @pytest.mark.parametrize(
        ("schema", "message"),
        [
            ({"type": "object"}, "schema: #: an object with neither"),
            (with_properties(a=with_properties()), "schema: #/properties/a: an object with neither"),
            (with_properties(**{"x/y~": {}}), "#/properties/x~1y~0: a schema that names no type"),
            (with_properties(a=True), "#/properties/a: a schema that names no type"),
            (with_properties(a=False), "#/properties/a: a schema that is false"),
            (with_properties(a={"oneOf": [STRING, INTEGER]}), "#/properties/a: a value of several types"),
            ({"type": ["string", "integer"]}, "a value that may be integer or string"),
            ({"allOf": [STRING, INTEGER]}, "a value that may be nothing at all"),
            ({"enum": [1, "a"]}, "a value that may be integer or string"),
            ({"type": "array"}, "an array without one schema"),
            ({"type": "array", "items": [STRING]}, "an array without one schema"),
            ({"type": "array", "prefixItems": [STRING], "items": STRING}, "an array without one schema"),
            (with_properties(a={"$ref": "#"}), "#/properties/a: a schema that contains itself"),
            (with_properties(b=with_properties(c={"$ref": "#/properties/b"})), "a schema that contains"),
            ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, "contains itself"),
            ({"$ref": "other.json#/a"}, "within the document"),
            ({"$ref": "#/$defs/gone"}, "a reference to a missing part of the document"),
            ({"$ref": 5}, "within the document"),
            (with_properties(member0=STRING, member1=STRING), "have the names of union members"),
            ({"type": "text"}, "#/type: a name that is no type"),
            ({"type": [["string"]]}, "#/type: a name that is no type"),
            ({"properties": 5}, "#/properties: a keyword whose value is not an object"),
            ({"anyOf": {}}, "#/anyOf: a keyword whose value is not a list"),
            ({"required": [{}], **with_properties(a=STRING)}, "#/required: a required property"),
            ("{", "schema: is not JSON"),
            ("no/such.json", "cannot read no/such.json"),
            ({"a": {1, 2}, "b": object()}, "schema: is not JSON"),
            (False, "a schema that is false, or no object"),
        ],
    )  # fmt: skip
    def test_says_where_there_is_no_type(self, schema: Any, message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            json_type(schema)

    def test_refuses_a_schema_that_nests_without_measure(self) -> None:
        with pytest.raises(ConfigError, match=r"nests|RecursionError"):
            json_type('{"items":' * 150 + '{"type":"string"}' + "}" * 150)
        with pytest.raises(ConfigError, match=r"nests|RecursionError"):
            json_type('{"items":' * 50_000 + "{}" + "}" * 50_000)

    @pytest.mark.parametrize("keyword", ["anyOf", "allOf"])
    def test_few_references_do_not_stand_for_endless_work(self, keyword: str) -> None:
        parts = {f"p{n}": {keyword: [{"$ref": f"#/$defs/p{n + 1}"}] * 2} for n in range(60)}
        schema = {"$ref": "#/$defs/p0", "$defs": {**parts, "p60": STRING}}
        try:
            assert json_type(schema) == StringType()
        except ConfigError as error:
            assert "10000 columns" in str(error)  # noqa: PT017 - either is right, and soon
