"""What each operation of a case asks for, in the ``kafka_4_3`` mode throughout."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal as DecimalNumber
from typing import Any, Final

from headerware.connect import values
from headerware.connect.converters.base import HeaderConverter
from headerware.connect.converters.simple import SimpleHeaderConverter
from headerware.connect.data import (
    NULL,
    Date,
    Decimal,
    Instant,
    Int32,
    Time,
    Timestamp,
    project,
    validate_value,
)
from headerware.connect.errors import ArgumentError, NullValueError, ValueClassError
from headerware.connect.modes import KAFKA_4_3
from headerware.connect.records import ConnectRecord
from headerware.connect.transforms.base import Transform
from headerware.connect.transforms.flatten import Flatten
from tests.vectors.connect.classes import (
    converter_of,
    described,
    header_converter_of,
    predicate_of,
    transform_of,
)
from tests.vectors.connect.codec import (
    Linked,
    cast,
    out,
    out_bytes,
    out_linked,
    out_pair,
    out_schema,
    schema_of,
    value_of,
)
from tests.vectors.connect.facts import keys_of, version
from tests.vectors.connect.header_programs import Program
from tests.vectors.connect.nodes import as_boolean, as_int, as_text, bytes_of, member
from tests.vectors.connect.records import out_error, out_record, record_of

Case = dict[str, Any]


class Stage:
    """Where in an operation we are; errors tell it."""

    __slots__ = ("name",)

    def __init__(self) -> None:
        self.name: str | None = None


def answer(case: Case) -> Any:
    """Return the answer to a case; an error is one, too."""
    stage = Stage()
    try:
        return OPERATIONS.get(as_text(member(case, "op")), _unknown)(case, stage)
    except Exception as error:  # noqa: BLE001 - whatever is raised is the answer
        return out_error(error, stage.name)


def _unknown(_case: Case, _stage: Stage) -> Any:
    raise ArgumentError("there is no such operation")


def _parse_string(case: Case, _stage: Stage) -> Any:
    text = member(case, "s")
    return out_pair(values.parse_string(None if text is None else as_text(text), mode=KAFKA_4_3), out_linked)


def _infer_schema(case: Case, _stage: Stage) -> Any:
    return out_schema(values.infer_schema(value_of(case.get("value"))))


_CONVERSIONS: Final[dict[str, Callable[..., Any]]] = {
    "Boolean": values.convert_to_boolean,
    "Byte": values.convert_to_byte,
    "Short": values.convert_to_short,
    "Integer": values.convert_to_integer,
    "Long": values.convert_to_long,
    "Float": values.convert_to_float,
    "Double": values.convert_to_double,
    "String": values.convert_to_string,
    "Time": values.convert_to_time,
    "Date": values.convert_to_date,
    "Timestamp": values.convert_to_timestamp,
    "List": values.convert_to_list,
    "Map": values.convert_to_map,
    "Struct": values.convert_to_struct,
}


def _convert(case: Case, stage: Stage) -> Any:
    stage.name = "build"
    schema = schema_of(case.get("schema"))
    value = value_of(case.get("value"), schema)
    stage.name = "convert"
    to = as_text(member(case, "to"))
    if to == "Decimal":
        return out(values.convert_to_decimal(schema, value, as_int(case.get("scale", 0)), mode=KAFKA_4_3))
    if to not in _CONVERSIONS:
        raise ArgumentError("there is no such conversion")
    return out_linked(_CONVERSIONS[to](schema, value, mode=KAFKA_4_3))


def _from_json(case: Case) -> Callable[[Any], Any]:
    """Say how to write maps that a converter made: JSON's are HashMaps."""
    return (
        out
        if case.get("converter") == "Json" or str(case.get("converter")).endswith(".JsonConverter")
        else out_linked
    )


def _header_to(case: Case, _stage: Stage) -> Any:
    return _read_header(case, header_converter_of(case), bytes_of(case))


def _read_header(case: Case, converter: HeaderConverter, data: bytes | None) -> Any:
    pair = converter.to_connect_header("t", "h", data)
    if data is not None and pair is NULL and isinstance(converter, SimpleHeaderConverter):
        return None  # The text of a null: Java's parser gives no SchemaAndValue at all.
    return out_pair(pair, _from_json(case))


def _header_from(case: Case, stage: Stage) -> Any:
    stage.name = "build"
    schema = schema_of(case.get("schema"))
    value = value_of(case.get("value"), schema)
    stage.name = "from"
    return out_bytes(header_converter_of(case).from_connect_header("t", "h", schema, value))


def _header_roundtrip(case: Case, stage: Stage) -> Any:
    stage.name = "build"
    schema = schema_of(case.get("schema"))
    value = value_of(case.get("value"), schema)
    converter = header_converter_of(case)
    stage.name = "from"
    data = converter.from_connect_header("t", "h", schema, value)
    stage.name = "to"
    return {"bytes": out_bytes(data), "back": _read_header(case, converter, data)}


def _headers(case: Case, _stage: Stage) -> Any:
    return Program(case.get("init")).run(case["ops"])


def _smt(case: Case, stage: Stage) -> Any:
    stage.name = "build"
    record = record_of(case.get("record"))
    stage.name = "configure"
    transform = transform_of(case)
    stage.name = "apply"
    return out_record(_transformed(transform, record), record)


def _transformed(transform: Transform, record: ConnectRecord) -> ConnectRecord | None:
    """Apply a transform; maps that it makes are Java's HashMaps, but Flatten's keep their order."""
    found: ConnectRecord | None = transform.apply(record)
    if found is not None and found is not record and isinstance(transform, Flatten):
        part = "key" if transform.part == "key" else "value"
        value = getattr(found, part)
        setattr(found, part, Linked(value) if isinstance(value, dict) else value)
    return found


def _predicate(case: Case, stage: Stage) -> Any:
    stage.name = "build"
    record = record_of(case.get("record"))
    stage.name = "configure"
    predicate = predicate_of(case)
    stage.name = "test"
    return predicate.test(record)


def _chain(case: Case, stage: Stage) -> Any:
    stage.name = "build"
    record = given = record_of(case.get("record"))
    for index, link in enumerate(member(case, "stages")):
        stage.name = f"configure#{index}"
        transform = transform_of(link)
        predicate = predicate_of(link["predicate"]) if link.get("predicate") is not None else None
        stage.name = f"apply#{index}"
        if predicate is None or as_boolean(link.get("negate", False)) ^ predicate.test(record):
            found = _transformed(transform, record)
            if found is None:
                return None
            record = found
    return out_record(record, given)


_POINT: Final = (datetime, Instant)
_LOGICAL: Final[dict[str, tuple[Any, Any, Any]]] = {
    "Date": (Date, Int32, _POINT),
    "Time": (Time, Int32, _POINT),
    "Timestamp": (Timestamp, int, _POINT),
    "Decimal": (Decimal, bytes, DecimalNumber),
}


def _logical(case: Case, stage: Stage) -> Any:
    stage.name = "build"
    schema = schema_of(case.get("schema"))
    value = value_of(case.get("value"), schema)
    stage.name = "apply"
    logical, low, high = _LOGICAL.get(as_text(member(case, "type")), _LOGICAL["Decimal"])
    to = as_text(member(case, "dir")) == "to"
    value = cast(value, low if to else high)
    if low is int and to and type(value) not in (int, type(None)):
        raise ValueClassError("expected an int64")
    if schema is None or (
        value is None and (to or logical is Decimal or schema.name == logical.LOGICAL_NAME)
    ):
        raise NullValueError("the case lacks a schema or a value")
    return out(logical.to_logical(schema, value) if to else logical.from_logical(schema, value))


def _validate(case: Case, stage: Stage) -> Any:
    stage.name = "build"
    schema = schema_of(case.get("schema"))
    value = value_of(case.get("value"), schema)
    stage.name = "validate"
    if schema is None:
        raise NullValueError("the case lacks a schema")
    validate_value(schema, value)
    return True


def _project(case: Case, stage: Stage) -> Any:
    stage.name = "build"
    source, target = schema_of(case.get("source")), schema_of(case.get("target"))
    value = value_of(case.get("value"), source)
    stage.name = "project"
    if source is None or target is None:
        raise NullValueError("the case lacks a schema")
    return out(project(source, value, target))


def _converter_from(case: Case, stage: Stage) -> Any:
    stage.name = "build"
    converter = converter_of(case)
    schema = schema_of(case.get("schema"))
    value = value_of(case.get("value"), schema)
    stage.name = "from"
    return out_bytes(converter.from_connect_data("t", schema, value))


def _converter_to(case: Case, stage: Stage) -> Any:
    stage.name = "build"
    converter = converter_of(case)
    stage.name = "to"
    return out_pair(converter.to_connect_data("t", bytes_of(case)))


OPERATIONS: Final[dict[str, Callable[[Case, Stage], Any]]] = {
    "version": lambda _case, _stage: version(),
    "parseString": _parse_string,
    "inferSchema": _infer_schema,
    "convert": _convert,
    "header.to": _header_to,
    "header.from": _header_from,
    "header.roundtrip": _header_roundtrip,
    "headers": _headers,
    "smt": _smt,
    "predicate": _predicate,
    "chain": _chain,
    "logical": _logical,
    "validate": _validate,
    "project": _project,
    "converter.from": _converter_from,
    "converter.to": _converter_to,
    "configdef": lambda case, _stage: keys_of(described(case)),
}
"""What answers each operation."""
