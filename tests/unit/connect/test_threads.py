"""One transform or converter, many threads, and more schemas than plans are kept of."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest

from headerware import Context, Headers, Record
from headerware.connect.converters.json.converter import JsonConverter
from headerware.connect.data import INT64_SCHEMA, STRING_SCHEMA, Schema, SchemaBuilder, Struct
from headerware.interceptors.transforms import Transforms

THREADS: Final = 8
ROUNDS: Final = 300
SCHEMAS: Final = 90
"""More than the plans that a transform keeps."""
KEYS: Final[dict[str, dict[str, str]]] = {
    "MaskField": {"type": "MaskField$Value", "fields": "secret"},
    "ReplaceField": {"type": "ReplaceField$Value", "exclude": "secret"},
    "Hash": {"type": "Hash$Value", "field.name": "secret", "function": "sha256"},
    "HeaderFrom": {"type": "HeaderFrom$Value", "fields": "secret", "headers": "h", "operation": "move"},
    "FieldToHeaders": {
        "type": "FieldToHeaders$Value",
        "fields": "secret",
        "headers": "h",
        "operation": "move",
    },
    "Flatten": {"type": "Flatten$Value"},
    "Cast": {"type": "Cast$Value", "spec": "number:string"},
    "InsertField": {"type": "InsertField$Value", "topic.field": "topic"},
    "HoistField": {"type": "HoistField$Value", "field": "all", "schema.name": "${topic}"},
    "ExtractField": {"type": "ExtractField$Value", "field": "number"},
    "ValueToKey": {"type": "ValueToKey", "fields": "number"},
    "HeaderTo": {"type": "HeaderTo$Value", "headers": "own", "fields": "own", "operation": "copy"},
    "SetField": {"type": "SetField$Value", "field": "twice", "expression": "value.number * 2"},
    "RegexRouter": {"type": "RegexRouter", "regex": "(.*)-(.*)", "replacement": "$2-$1"},
    "ContentRouter": {"type": "ContentRouter", "topic.field": "number"},
    "ChangeCase": {"type": "ChangeCase$Value", "from": "LOWER_CAMEL", "to": "UPPER_CAMEL"},
}


@pytest.fixture(autouse=True)
def impatient() -> Iterator[None]:
    """Let threads change places as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def schema_of(number: int) -> Schema:
    """Return a schema, always a new object, with its fields in an order of its own."""
    fields = [("secret", STRING_SCHEMA), ("number", INT64_SCHEMA), (f"other{number}", STRING_SCHEMA)]
    builder = SchemaBuilder.struct()
    for name, schema in fields[number % 3 :] + fields[: number % 3]:
        builder.field(name, schema)
    return builder.build()


def struct_of(number: int) -> Struct:
    made = Struct(schema_of(number))
    return made.put("secret", f"s{number}").put("number", number).put(f"other{number}", "o")


def together(work: Callable[[int], Any]) -> list[Any]:
    """Do each number's work in several threads at once, in different orders."""
    with ThreadPoolExecutor(THREADS) as pool:
        numbers = [(turn * 7 + at * 13) % SCHEMAS for turn in range(THREADS) for at in range(ROUNDS)]
        return [(number, made) for number, made in zip(numbers, pool.map(work, numbers), strict=True)]


class TestTransforms:
    @pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
    def test_give_each_record_what_they_give_it_alone(self, keys: dict[str, str]) -> None:
        lines = {"transforms": "x", **{f"transforms.x.{key}": value for key, value in keys.items()}}
        hooks = Transforms(config=lines).open(Context())

        def work(number: int) -> Any:
            headers = Headers([("own", str(number).encode())])
            return hooks.on_send(Record(f"t-{number}", struct_of(number), headers=headers))

        alone = {number: work(number) for number in range(SCHEMAS)}
        assert all(made == alone[number] for number, made in together(work))


class TestJsonConverter:
    @pytest.mark.parametrize("size", [0, 7, 1000])
    def test_writes_and_reads_each_value_as_alone(self, size: int) -> None:
        converter = JsonConverter({"schemas.cache.size": size})

        def work(number: int) -> Any:
            value = struct_of(number)
            data = converter.from_connect_data("t", value.schema, value)
            return data, converter.to_connect_data("t", data)

        alone = {number: work(number) for number in range(SCHEMAS)}
        assert all(made == alone[number] for number, made in together(work))
