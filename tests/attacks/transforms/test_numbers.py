"""Numbers that are small as text and huge as integers: each is refused or written at once."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import pytest

from headerware.connect.converters.json.converter import JsonConverter
from headerware.connect.converters.simple import SimpleHeaderConverter
from headerware.connect.converters.string import StringConverter
from headerware.connect.data import (
    BigInteger,
    Instant,
    SchemaBuilder,
    Struct,
)
from headerware.connect.data import Decimal as DecimalType
from headerware.connect.errors import ConnectError
from headerware.connect.modes import KAFKA_4_3, Mode
from headerware.connect.pipeline import Pipeline
from headerware.connect.records import SourceRecord
from headerware.connect.values import (
    convert_to_boolean,
    convert_to_date,
    convert_to_decimal,
    convert_to_double,
    convert_to_float,
    convert_to_long,
    convert_to_string,
    convert_to_time,
    convert_to_timestamp,
)
from tests.work import cpu_within

_SEEN_S: Final = 0.1
"""What the slowest of it takes; an integer of so many digits takes hours."""
NUMBERS: Final[list[Any]] = [
    Decimal("5E+2000000000"),
    Decimal("-5E-2000000000"),
    Decimal("0E+2000000000"),
    Decimal("0E-2000000000"),
    Decimal("sNaN"),
    Decimal("-Infinity"),
    Decimal("1." + "1" * 5000),
    BigInteger(-(10**6000)),
    Instant(1 << 80),
    float("inf"),
    "5E+2000000000",
    "5e-2147483647",
    "0x1p999999999",
    "1" * 20_000,
    "[" + "9" * 9999 + "," + "9" * 9998 + "]",
]
CONVERSIONS: Final = [
    convert_to_boolean,
    convert_to_long,
    convert_to_float,
    convert_to_double,
    convert_to_date,
    convert_to_time,
    convert_to_timestamp,
    convert_to_string,
]
TRANSFORMS: Final[list[dict[str, str]]] = [
    *({"type": "Cast$Value", "spec": kind} for kind in ("int8", "int64", "float32", "float64", "boolean")),
    *({"type": "Cast$Value", "spec": f"f:{kind}"} for kind in ("int8", "float64", "string")),
    *(
        {"type": "TimestampConverter$Value", "target.type": kind, "format": "yyyy-MM-dd"}
        for kind in ("string", "unix", "Date", "Time", "Timestamp")
    ),
    {"type": "MaskField$Value", "fields": "f"},
    {"type": "Flatten$Value"},
    {"type": "HeaderFrom$Value", "fields": "f", "headers": "h", "operation": "move"},
]
ONLY_STRICT: Final[list[dict[str, str]]] = [
    {"type": "MaskField$Value", "randomize.fields": "f"},
    {"type": "MaskField$Value", "clobber.fields": "f:1"},
    {"type": "Hash$Value", "field.name": "f", "function": "sha256"},
    {"type": "SetField$Value", "field": "g", "expression": "value.f"},
    {"type": "FilterByField$Value", "field.name": "f", "field.value": "1E+1000000000"},
    {"type": "FilterByField$Value", "field.name": "f", "field.value.above": "1E-999999999"},
    {"type": "ContentRouter", "topic.field": "f"},
]


@pytest.fixture(autouse=True)
def soon() -> Any:
    with cpu_within(_SEEN_S):
        yield


def refusable(function: Any, *arguments: Any, **options: Any) -> Any:
    try:
        return function(*arguments, **options)
    except ConnectError as error:
        return error


def named(number: Any) -> str:
    return f"{type(number).__name__}-{number!s:.12}" if not isinstance(number, int) else type(number).__name__


@pytest.mark.parametrize("number", NUMBERS, ids=named)
class TestFarNumbers:
    def test_are_converted_or_refused(self, number: Any, mode: Mode) -> None:
        for convert in CONVERSIONS:
            refusable(convert, None, number, mode=mode)
        for scale in (0, 2, (1 << 31) - 1, -(1 << 31)):
            refusable(convert_to_decimal, None, number, scale, mode=mode)

    def test_are_written_or_refused(self, number: Any, mode: Mode) -> None:
        for options in ({"schemas.enable": False}, {"decimal.format": "NUMERIC"}):
            converter = JsonConverter(options, mode=mode)
            refusable(converter.from_connect_data, "t", None, number)
            refusable(converter.from_connect_data, "t", DecimalType.schema(2), number)
        refusable(StringConverter(mode=mode).from_connect_data, "t", None, number)
        refusable(SimpleHeaderConverter(mode=mode).from_connect_header, "t", "h", None, number)

    def test_are_transformed_or_refused(self, number: Any, mode: Mode) -> None:
        for lines in TRANSFORMS if mode == KAFKA_4_3 else TRANSFORMS + ONLY_STRICT:
            config = {f"transforms.x.{key}": value for key, value in lines.items()}
            pipeline = Pipeline.from_config({"transforms": "x", **config}, mode=mode)
            for value in (number, {"f": number}):
                refusable(pipeline.apply, SourceRecord(topic="t", value=value))

    def test_are_read_from_json_or_refused(self, number: Any, mode: Mode) -> None:
        number = "9" * 6000 if isinstance(number, int) else number
        scale = '"name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"2"}'
        for kind in ("bytes", "int64", "double", "float"):
            facts = f'"type":"{kind}",{scale}' if kind == "bytes" else f'"type":"{kind}"'
            for text in (f"{number}", f'"{number}"'):
                data = f'{{"schema":{{{facts}}},"payload":{text}}}'.encode()
                refusable(JsonConverter(mode=mode).to_connect_data, "t", data)
                refusable(JsonConverter({"schemas.enable": False}, mode=mode).to_connect_data, "t", data)


class TestLargeScales:
    def test_are_no_reason_to_make_so_many_zeros(self) -> None:
        schema = SchemaBuilder.struct().field("f", DecimalType.schema((1 << 31) - 1)).build()
        config = {
            "transforms": "x",
            "transforms.x.type": "MaskField$Value",
            "transforms.x.clobber.fields": "f:1",
        }
        record = SourceRecord(topic="t", value_schema=schema, value=Struct.trusted(schema, [Decimal(1)]))
        with pytest.raises(ConnectError, match="too many digits"):
            Pipeline.from_config(config).apply(record)


class TestLargeIntegers:
    def test_are_written_as_json(self) -> None:
        data = JsonConverter({"schemas.enable": False}).from_connect_data("t", None, BigInteger(10**6000))
        assert data == b"1" + b"0" * 6000

    def test_are_true_only_where_they_are_whole(self) -> None:
        assert convert_to_boolean(None, Decimal("5E+2000000000")) is True
        with pytest.raises(ConnectError, match="fraction"):
            convert_to_boolean(None, Decimal("1234567890123456789012.5"))
