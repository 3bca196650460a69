"""Few bytes that stand for very much: refused before the memory or the time is taken."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headerware.connect.converters.json.converter import JsonConverter
from headerware.connect.data import SchemaBuilder, Struct
from headerware.connect.errors import ConnectDataError
from headerware.connect.transforms.flatten import Flatten
from tests.unit.connect.conftest import record


def struct(fields: int) -> dict[str, Any]:
    made = [{"field": f"f{index}", "type": "int32", "optional": True} for index in range(fields)]
    return {"type": "struct", "fields": made}


def envelope(schema: Any, payload: Any) -> bytes:
    return json.dumps({"schema": schema, "payload": payload}).encode()


class TestStructsOfManyFields:
    @pytest.mark.parametrize(
        ("schema", "payload"),
        [
            ({"type": "array", "items": struct(5000)}, [{}] * 5000),
            (
                {"type": "map", "keys": {"type": "string"}, "values": struct(5000)},
                {str(index): {} for index in range(5000)},
            ),
            (
                {"type": "array", "items": {"type": "array", "items": struct(5000)}},
                [[{}]] * 5000,
            ),
            (
                {"type": "map", "keys": {"type": "int32"}, "values": struct(5000)},
                [[index, {}] for index in range(5000)],
            ),
        ],
    )
    def test_that_are_not_there_are_refused(self, schema: Any, payload: Any, mode: Any) -> None:
        with pytest.raises(ConnectDataError, match="stands for more than"):
            JsonConverter(mode=mode).to_connect_data("t", envelope(schema, payload))

    def test_are_taken_where_they_are_few(self, mode: Any) -> None:
        schema = {"type": "array", "items": struct(5000)}
        found = JsonConverter(mode=mode).to_connect_data("t", envelope(schema, [{}] * 100))
        assert len(found.value) == 100

    def test_are_taken_where_they_are_there(self, mode: Any) -> None:
        schema = {"type": "array", "items": struct(200)}
        payload = [{f"f{index}": index for index in range(200)}] * 1000
        found = JsonConverter(mode=mode).to_connect_data("t", envelope(schema, payload))
        assert len(found.value) == 1000


class TestFlattenedNames:
    LONG = "x" * 100_000

    def test_that_repeat_a_long_one_are_refused(self, mode: Any) -> None:
        value = {self.LONG: {str(index): index for index in range(10_000)}}
        with pytest.raises(ConnectDataError, match="more than 16777216 characters"):
            Flatten.Value(mode=mode).apply(record(None, value))

    def test_that_repeat_a_long_one_of_a_schema_are_refused(self, mode: Any) -> None:
        inner = SchemaBuilder.struct()
        for index in range(200):
            inner.field(str(index), SchemaBuilder.int32().optional().build())
        schema = SchemaBuilder.struct().field(self.LONG, inner.build()).build()
        value = Struct(schema).put(self.LONG, Struct(schema.fields[0].schema))
        with pytest.raises(ConnectDataError, match="more than 16777216 characters"):
            Flatten.Value(mode=mode).apply(record(schema, value))
