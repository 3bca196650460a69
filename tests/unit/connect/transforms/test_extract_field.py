"""ExtractField in both modes, and with both of Kafka's syntaxes."""

from __future__ import annotations

from typing import Any

import pytest

from headerware.connect.data import (
    INT64_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    Schema,
    SchemaBuilder,
    Struct,
    Type,
)
from headerware.connect.errors import ArgumentError, ConnectConfigError, ConnectDataError, NullValueError
from headerware.connect.records import SourceRecord
from headerware.connect.transforms.extract_field import ExtractField

INNER = SchemaBuilder.struct().field("b", INT64_SCHEMA).build()
MAYBE = SchemaBuilder.struct().field("z", INT64_SCHEMA).optional().build()
SCHEMA = (
    SchemaBuilder.struct()
    .field("a", INNER)
    .field("maybe", MAYBE)
    .field("a.b", OPTIONAL_STRING_SCHEMA)
    .field("d", SchemaBuilder.string().optional().default("dd").build())
    .build()
)
RECORD = SourceRecord(value_schema=SCHEMA, value=Struct.of(SCHEMA, {"a": {"b": 1}, "a.b": "flat"}))


def extracted(config: dict[str, Any], record: SourceRecord = RECORD, mode: Any = "strict") -> tuple[Any, Any]:
    """Return the schema and the value of what is extracted."""
    made = ExtractField.Value(config, mode=mode).apply(record)
    return made.value_schema, made.value


class TestExtractField:
    def test_gives_one_field(self, mode: Any) -> None:
        assert extracted({"field": "a"}, mode=mode) == (INNER, RECORD.value["a"])
        assert extracted({"field": "a"}, SourceRecord(value={"a": 5}), mode) == (None, 5)

    def test_works_on_keys(self, mode: Any) -> None:
        made = ExtractField.Key({"field": "a"}, mode=mode).apply(SourceRecord(key={"a": 5}))
        assert made.key == 5

    def test_reads_both_of_kafkas_syntaxes(self, mode: Any) -> None:
        assert extracted({"field": "a.b", "field.syntax.version": "v1"}, mode=mode)[1] == "flat"
        assert extracted({"field": "a.b", "field.syntax.version": "V2"}, mode=mode)[1] == 1
        assert extracted({"field": "`a.b`", "field.syntax.version": "V2"}, mode=mode)[1] == "flat"

    def test_leaves_a_null(self, mode: Any) -> None:
        assert extracted({"field": "a"}, SourceRecord(), mode) == (None, None)
        assert extracted({"field": "a"}, SourceRecord(value_schema=SCHEMA), mode) == (INNER, None)

    def test_takes_the_default_if_asked_to(self, mode: Any) -> None:
        for word, value in (("true", "dd"), ("false", None)):
            config = {"field": "d", "replace.null.with.default": word}
            assert extracted(config, mode=mode)[1] == value

    @pytest.mark.parametrize("value", ["text", [1]])
    @pytest.mark.parametrize("schema", [None, SCHEMA])
    def test_requires_a_struct_or_dict(self, schema: Any, value: Any, mode: Any) -> None:
        with pytest.raises(ConnectDataError):
            extracted({"field": "a"}, SourceRecord(value_schema=schema, value=value), mode)


class TestStrictMode:
    def test_goes_into_structs_and_dicts(self) -> None:
        assert extracted({"field": "a.b"}) == (INT64_SCHEMA, 1)
        assert extracted({"field": r"a\.b"}) == (OPTIONAL_STRING_SCHEMA, "flat")
        assert extracted({"field": "a.b"}, SourceRecord(value={"a": {"b": 2}})) == (None, 2)

    def test_says_that_a_field_in_a_null_is_optional(self) -> None:
        assert extracted({"field": "maybe.z"}) == (Schema(Type.INT64, optional=True), None)
        optional = SchemaBuilder.struct().field("a", INT64_SCHEMA).optional().build()
        record = SourceRecord(value_schema=optional)
        assert extracted({"field": "a"}, record) == (Schema(Type.INT64, optional=True), None)

    @pytest.mark.parametrize("value", [Struct.of(SCHEMA, {"a": {"b": 1}}), None])
    def test_refuses_a_field_that_a_schema_does_not_have(self, value: Any) -> None:
        with pytest.raises(ConnectDataError, match=r"no field 'x'.*it has: a, maybe"):
            extracted({"field": "x"}, SourceRecord(value_schema=SCHEMA, value=value))

    @pytest.mark.parametrize("value", [{}, {"a": {}}, {"a.b": 1}, {"x": 1}])
    def test_refuses_to_make_a_tombstone_of_a_dict_without_the_field(self, value: Any) -> None:
        with pytest.raises(ConnectDataError, match="there is no field"):
            extracted({"field": "a.b"}, SourceRecord(value=value))

    def test_gives_a_null_that_is_there(self) -> None:
        assert extracted({"field": "a.b"}, SourceRecord(value={"a": None})) == (None, None)

    @pytest.mark.parametrize(
        "config",
        [
            {"field": None},
            {"field": ""},
            {"field": "a..b"},
            {"field": "", "field.syntax.version": "V2"},
            {"field": "a.", "field.syntax.version": "V2"},
            {"field": "`a", "field.syntax.version": "V2"},
        ],
    )
    def test_requires_a_path(self, config: dict[str, Any]) -> None:
        with pytest.raises(ConnectConfigError):
            ExtractField.Value(config)

    def test_refuses_a_struct_of_another_schema_than_the_record_says(self) -> None:
        other = SchemaBuilder.struct().field("a", STRING_SCHEMA).build()
        with pytest.raises(ConnectDataError, match="not the same"):
            extracted({"field": "a"}, SourceRecord(value_schema=SCHEMA, value=Struct.of(other, {"a": "x"})))


class TestKafkaMode:
    @pytest.mark.parametrize("value", [Struct.of(SCHEMA, {"a": {"b": 1}}), None])
    def test_refuses_a_field_that_a_schema_does_not_have_by_its_own_error(self, value: Any) -> None:
        with pytest.raises(ArgumentError):
            extracted({"field": "x"}, SourceRecord(value_schema=SCHEMA, value=value), "kafka_4_3")

    @pytest.mark.parametrize("value", [{}, {"a": None}])
    def test_makes_a_tombstone_of_a_dict_without_the_field(self, value: Any) -> None:
        config = {"field": "a.b", "field.syntax.version": "V2"}
        assert extracted(config, SourceRecord(value=value), "kafka_4_3") == (None, None)

    def test_says_that_a_null_is_required(self) -> None:
        config = {"field": "maybe.z", "field.syntax.version": "V2"}
        assert extracted(config, mode="kafka_4_3") == (INT64_SCHEMA, None)

    def test_stumbles_over_an_empty_path(self) -> None:
        config = {"field": "", "field.syntax.version": "V2"}
        for record in (RECORD, SourceRecord(value={"a": 1})):
            with pytest.raises(ArgumentError):
                extracted(config, record, "kafka_4_3")

    def test_stumbles_over_a_null_path(self) -> None:
        with pytest.raises(NullValueError):
            ExtractField.Value({"field": None}, mode="kafka_4_3")

    @pytest.mark.parametrize("version", ["V3", "", "2"])
    def test_refuses_other_versions(self, version: str) -> None:
        with pytest.raises(ConnectConfigError):
            ExtractField.Value({"field": "a", "field.syntax.version": version}, mode="kafka_4_3")

    def test_reads_a_struct_of_another_schema_by_name(self) -> None:
        other = SchemaBuilder.struct().field("z", STRING_SCHEMA).field("a", STRING_SCHEMA).build()
        record = SourceRecord(value_schema=SCHEMA, value=Struct.of(other, {"a": "x", "z": "y"}))
        assert extracted({"field": "a"}, record, "kafka_4_3") == (INNER, "x")
