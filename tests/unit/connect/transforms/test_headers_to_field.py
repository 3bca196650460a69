from __future__ import annotations

from typing import ClassVar

import pytest

from headerware.connect.data import (
    STRING_SCHEMA,
    SchemaBuilder,
    Struct,
)
from headerware.connect.errors import ConnectConfigError, ConnectDataError
from headerware.connect.records import SinkRecord
from headerware.connect.transforms.headers_to_field import HeadersToField
from tests.unit.connect.conftest import header_names

SCHEMA = SchemaBuilder.struct().field("name", STRING_SCHEMA).build()


def with_tags(record: SinkRecord) -> SinkRecord:
    record.headers.add_string("tag", "a").add_string("other", "x").add_string("tag", "b")
    return record


class TestHeadersToField:
    CONFIG: ClassVar[dict[str, str]] = {"headers": "tag", "fields": "tags", "operation": "copy"}

    def test_puts_all_values_into_an_array_of_a_struct(self) -> None:
        record = with_tags(SinkRecord("t", value_schema=SCHEMA, value=Struct.of(SCHEMA, {"name": "n"})))
        made = HeadersToField.Value(self.CONFIG).apply(record)
        assert made.value.to_dict() == {"name": "n", "tags": ["a", "b"]}
        assert header_names(made) == ["tag", "other", "tag"]
        made.value.validate()

    def test_puts_all_values_into_a_list_of_a_dict(self) -> None:
        made = HeadersToField.Value(self.CONFIG).apply(with_tags(SinkRecord("t", value={})))
        assert made.value == {"tags": ["a", "b"]}

    def test_moves(self) -> None:
        record = with_tags(SinkRecord("t", value={}))
        made = HeadersToField.Value(self.CONFIG | {"operation": "move"}).apply(record)
        assert header_names(made) == ["other"]
        assert header_names(record) == ["tag", "other", "tag"]

    def test_makes_an_empty_array_where_there_is_no_header(self) -> None:
        assert HeadersToField.Key(self.CONFIG).apply(SinkRecord("t", key={})).key == {"tags": []}

    def test_widens_numbers(self) -> None:
        record = SinkRecord("t", value_schema=SCHEMA, value=Struct.of(SCHEMA, {"name": "n"}))
        record.headers.add_byte("tag", 7).add("tag", None)
        made = HeadersToField.Value(self.CONFIG | {"type": "int64"}).apply(record)
        assert made.value["tags"] == [7, None]
        assert type(made.value["tags"][0]) is int

    def test_refuses_a_header_of_another_type(self) -> None:
        record = SinkRecord("t", value_schema=SCHEMA, value=Struct.of(SCHEMA, {"name": "n"}))
        record.headers.add_byte("tag", 7)
        with pytest.raises(ConnectDataError, match="header 'tag'"):
            HeadersToField.Value(self.CONFIG).apply(record)

    def test_keeps_the_headers_of_a_tombstone(self) -> None:
        record = with_tags(SinkRecord("t"))
        made = HeadersToField.Value(self.CONFIG | {"operation": "move"}).apply(record)
        assert made is record
        assert len(record.headers) == 3

    def test_refuses_to_replace_a_field(self) -> None:
        with pytest.raises(ConnectDataError, match="already"):
            HeadersToField.Value(self.CONFIG).apply(SinkRecord("t", value={"tags": 1}))
        with pytest.raises(ConnectDataError, match="already"):
            HeadersToField.Value(self.CONFIG | {"fields": "name"}).plan(SCHEMA)

    @pytest.mark.parametrize("change", [{"fields": "a,b"}, {"operation": "steal"}, {"type": "struct"}])
    def test_refuses_a_value_that_does_not_fit(self, change: dict[str, str]) -> None:
        with pytest.raises(ConnectConfigError):
            HeadersToField.Value(self.CONFIG | change)
