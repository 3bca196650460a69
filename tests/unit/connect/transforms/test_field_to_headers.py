from __future__ import annotations

from typing import Any, ClassVar

import pytest

from headerware.connect.data import (
    INT32_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    Int8,
    SchemaBuilder,
    Struct,
)
from headerware.connect.errors import ConnectConfigError, ConnectDataError
from headerware.connect.headers import ConnectHeader
from headerware.connect.records import SinkRecord
from headerware.connect.transforms.field_to_headers import FieldToHeaders
from headerware.connect.transforms.headers_to_field import HeadersToField
from tests.unit.connect.conftest import header_names

SCHEMA = SchemaBuilder.struct().field("name", STRING_SCHEMA).build()


TAGS = SchemaBuilder.array(OPTIONAL_STRING_SCHEMA).optional().build()


INNER = SchemaBuilder.struct().field("tags", TAGS).optional().build()


TAGGED = SchemaBuilder.struct().field("name", STRING_SCHEMA).field("inner", INNER).build()


class TestFieldToHeaders:
    CONFIG: ClassVar[dict[str, str]] = {"fields": "name,inner.tags", "headers": "n,tag", "operation": "copy"}

    @staticmethod
    def record(inner: Any) -> SinkRecord:
        return SinkRecord("t", value_schema=TAGGED, value=Struct.of(TAGGED, {"name": "x", "inner": inner}))

    def test_makes_a_header_of_each_element(self) -> None:
        record = self.record({"tags": ["a", None]})
        made = FieldToHeaders.Value(self.CONFIG).apply(record)
        assert list(made.headers) == [
            ConnectHeader("n", STRING_SCHEMA, "x"),
            ConnectHeader("tag", OPTIONAL_STRING_SCHEMA, "a"),
            ConnectHeader("tag", OPTIONAL_STRING_SCHEMA, None),
        ]
        assert made.value == record.value
        assert len(record.headers) == 0

    def test_moves_out_of_a_struct(self) -> None:
        made = FieldToHeaders.Value(self.CONFIG | {"operation": "move"}).apply(self.record({"tags": ["a"]}))
        assert made.value.to_dict() == {"inner": {}}
        assert header_names(made) == ["n", "tag"]
        made.value.validate()

    def test_moves_out_of_a_dict(self) -> None:
        record = SinkRecord("t", value={"name": Int8(1), "inner": {"tags": ("a",), "b": 2}})
        made = FieldToHeaders.Value(self.CONFIG | {"operation": "move"}).apply(record)
        assert made.value == {"inner": {"b": 2}}
        assert [(header.key, header.value) for header in made.headers] == [("n", Int8(1)), ("tag", "a")]
        assert record.value["inner"] == {"tags": ("a",), "b": 2}

    @pytest.mark.parametrize("inner", [None, {"tags": None}])
    def test_refuses_or_skips_null(self, inner: Any) -> None:
        for record in (self.record(inner), SinkRecord("t", value={"name": "x", "inner": inner})):
            with pytest.raises(ConnectDataError, match=r"'inner\.tags' is missing or null"):
                FieldToHeaders.Value(self.CONFIG).apply(record)
            made = FieldToHeaders.Value(self.CONFIG | {"skip.missing.or.null": "true"}).apply(record)
            assert header_names(made) == ["n"]

    @pytest.mark.parametrize("operation", ["copy", "move"])
    def test_refuses_or_skips_fields_that_a_schema_lacks(self, operation: str) -> None:
        config = {"fields": "name,nope", "headers": "n,m", "operation": operation}
        record = SinkRecord("t", value_schema=SCHEMA, value=Struct.of(SCHEMA, {"name": "x"}))
        with pytest.raises(ConnectDataError, match="nope"):
            FieldToHeaders.Value(config).apply(record)
        made = FieldToHeaders.Value(config | {"skip.missing.or.null": "true"}).apply(record)
        assert header_names(made) == ["n"]

    def test_leaves_a_tombstone(self) -> None:
        record = SinkRecord("t")
        assert FieldToHeaders.Value(self.CONFIG).apply(record) is record

    def test_refuses_a_value_without_fields(self) -> None:
        with pytest.raises(ConnectDataError):
            FieldToHeaders.Key(self.CONFIG).apply(SinkRecord("t", 0, INT32_SCHEMA, 1))
        with pytest.raises(ConnectDataError):
            FieldToHeaders.Key(self.CONFIG).apply(SinkRecord("t", key=[1]))

    @pytest.mark.parametrize("change", [{"headers": "a"}, {"fields": "a,a.b"}, {"fields": "a..b,c"}])
    def test_refuses_a_value_that_does_not_fit(self, change: dict[str, str]) -> None:
        with pytest.raises(ConnectConfigError):
            FieldToHeaders.Value(self.CONFIG | change)

    def test_comes_back_by_the_other_way(self) -> None:
        there = FieldToHeaders.Value({"fields": "tags", "headers": "tag", "operation": "move"})
        back = HeadersToField.Value({"fields": "tags", "headers": "tag", "operation": "move"})
        record = SinkRecord("t", value={"a": 1, "tags": ["x", "y"]})
        assert back.apply(there.apply(record)) == record
