"""Values that are nested as deep as a record can be: each is refused in clear words, or passes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, Final

import pytest

from headerware import Context, Headers, Record
from headerware.connect.converters.json.converter import JsonConverter
from headerware.connect.converters.simple import SimpleHeaderConverter
from headerware.connect.converters.string import StringConverter
from headerware.connect.data import (
    STRING_SCHEMA,
    Schema,
    SchemaAndValue,
    SchemaBuilder,
    conformed,
    plain,
)
from headerware.connect.data.equality import alike
from headerware.connect.errors import ConnectDataError
from headerware.connect.values import convert_to_string, infer_schema, java_text, parse_string
from headerware.core.errors import SerdeError, TransformError
from headerware.interceptors.transforms import Transforms
from headerware.serdes.connect import Connect
from headerware.serdes.serde import SerdeContext

LEVELS: Final = 50_000
SHAPES: Final[dict[str, Callable[[Any], Any]]] = {
    "dicts": lambda inner: {"f": inner},
    "lists": lambda inner: [inner],
    "both": lambda inner: {"f": [inner]},
    "beside schemas": lambda inner: SchemaAndValue(None, inner),
}


@cache
def nested(shape: Callable[[Any], Any], levels: int = LEVELS) -> Any:
    """Return a deep value, made once; ``nested.__wrapped__`` makes another one."""
    value: Any = "x"
    for _ in range(levels):
        value = shape(value)
    return value


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
class TestDeepValues:
    @pytest.mark.parametrize(
        "function",
        [
            plain,
            lambda value: convert_to_string(None, value),
            java_text,
            lambda value: JsonConverter({"schemas.enable": False}).from_connect_data("t", None, value),
            lambda value: StringConverter(mode="kafka_4_3").from_connect_data("t", None, value),
            lambda value: SimpleHeaderConverter().from_connect_header("t", "h", None, value),
        ],
    )
    def test_are_refused_by_what_goes_through_them(
        self, shape: Callable[[Any], Any], function: Callable[[Any], Any]
    ) -> None:
        with pytest.raises(ConnectDataError):
            function(nested(shape))

    def test_are_refused_where_they_are_compared(self, shape: Callable[[Any], Any]) -> None:
        with pytest.raises(ConnectDataError, match="too deeply"):
            alike(nested(shape), nested.__wrapped__(shape))

    @pytest.mark.parametrize(
        "keys",
        [
            {"type": "Flatten$Value"},
            {"type": "MaskField$Value", "fields": "f"},
            {"type": "MaskField$Value", "randomize.fields": "f"},
            {"type": "HeaderFrom$Value", "fields": "f", "headers": "h", "operation": "move"},
            {"type": "SetField$Value", "field": "g", "expression": "string(size(value.f))"},
            {"type": "ChangeCase$Value", "from": "LOWER_CAMEL", "to": "UPPER_CAMEL", "nested": "true"},
            {"type": "HoistField$Value", "field": "g"},
            {"type": "KeyToValue", "key.fields": "*"},
        ],
        ids=lambda keys: keys["type"],
    )
    def test_pass_through_transforms_or_are_refused(
        self, shape: Callable[[Any], Any], keys: dict[str, str]
    ) -> None:
        lines = {"transforms": "x", **{f"transforms.x.{key}": value for key, value in keys.items()}}
        for plainly in (False, True):
            hooks = Transforms(config=lines, plain=plainly).open(Context())
            # Anything else than a refusal fails the test.
            with suppress(TransformError):
                hooks.on_send(Record("t", nested(shape), key="k"))


def deep_schema(levels: int) -> Schema:
    schema = STRING_SCHEMA
    for _ in range(levels):
        schema = SchemaBuilder.struct().field("f", schema).build()
    return schema


@pytest.mark.parametrize("name", ["dicts", "lists", "both"])
def test_no_schema_is_told_from_deep_values(name: str) -> None:
    with pytest.raises(ConnectDataError, match="too deeply"):
        infer_schema(nested(SHAPES[name]))


class TestDeepSchemas:
    def test_are_refused_by_what_makes_values_fit(self) -> None:
        with pytest.raises(ConnectDataError, match="too deeply"):
            conformed(deep_schema(700), nested(SHAPES["dicts"], 700))

    def test_are_refused_in_json(self, mode: Any) -> None:
        schema = '{"type":"array","items":' * 2000 + '{"type":"string"}' + "}" * 2000
        with pytest.raises(ConnectDataError):
            JsonConverter(mode=mode).to_connect_data("t", f'{{"schema":{schema},"payload":null}}'.encode())


class TestDeepTexts:
    @pytest.mark.parametrize("text", ["[" * LEVELS, "{a:" * LEVELS, "[" * LEVELS + "1" + "]" * LEVELS])
    def test_stay_text(self, text: str, mode: Any) -> None:
        found = parse_string(text, mode=mode)
        assert found is not None
        assert (found.schema, found.value) == (STRING_SCHEMA, text)

    @pytest.mark.parametrize("levels", [500, 900, LEVELS])
    @pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"f":', "}")])
    def test_are_refused_as_json_that_is_to_be_plain(self, levels: int, opening: str, closing: str) -> None:
        text = opening * levels + "1" + closing * levels
        functions = Connect(options={"schemas.enable": False}, plain=True).open(SerdeContext(part="value"))
        with suppress(SerdeError):
            functions.deserialize("t", Headers(), text.encode())
