"""Convert plain Python values for a Connect schema, without repeating the checks of the file's own schema.

Connect has no type for times finer than a millisecond. Such times become integers with the schema names of
Debezium, which other connectors know too:

    io.debezium.time.MicroTimestamp, MicroTime    microseconds since the epoch, since midnight
    io.debezium.time.NanoTimestamp, NanoTime      nanoseconds
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from headerware.connect.data.logical import of_unscaled
from headerware.connect.data.numbers import Float32
from headerware.connect.data.schema import (
    DATE,
    DECIMAL,
    NUMBER_CLASSES,
    TIME,
    TIMESTAMP,
    Schema,
    SchemaBuilder,
    Type,
)
from headerware.connect.data.struct import Struct
from headerware.connect.data.times import from_epoch_ms, to_epoch_ms

Convert = Callable[[Any], Any]

MICRO_TIMESTAMP: Final = "io.debezium.time.MicroTimestamp"
MICRO_TIME: Final = "io.debezium.time.MicroTime"
NANO_TIMESTAMP: Final = "io.debezium.time.NanoTimestamp"
NANO_TIME: Final = "io.debezium.time.NanoTime"


def optional(schema: Schema) -> Schema:
    """Return a schema that also permits null."""
    if schema.optional:
        return schema
    return Schema(
        schema.type,
        optional=True,
        name=schema.name,
        version=schema.version,
        doc=schema.doc,
        parameters=schema.parameters,
        fields=schema.fields if schema.type is Type.STRUCT else (),
        key_schema=schema.key_schema if schema.type is Type.MAP else None,
        value_schema=schema.value_schema if schema.type in {Type.MAP, Type.ARRAY} else None,
    )


def finer_time(name: str) -> Schema:
    """Return the schema of a time finer than a millisecond."""
    return SchemaBuilder.int64().name(name).version(1).build()


def converter(schema: Schema) -> Convert | None:
    """Return a function that converts plain values other than null; None if values need no conversion."""
    if schema.name in {DATE, TIME, TIMESTAMP}:
        return _time
    if schema.name == DECIMAL:
        return _decimal
    made = _BY_TYPE.get(schema.type)
    return None if made is None else made(schema)


def nullable(convert: Convert | None) -> Convert:
    """Return a function that converts a value, and returns null unchanged."""
    if convert is None:
        return lambda value: value
    return lambda value: None if value is None else convert(value)


def size_of(value: Any) -> int:
    """Return the approximate size of a value when it is sent."""
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, dict):
        return sum(size_of(item) for pair in value.items() for item in pair)
    if isinstance(value, Struct):
        return sum(map(size_of, value.values))
    if isinstance(value, list | tuple):
        return sum(map(size_of, value))
    return 8


def _time(value: Any) -> Any:
    return from_epoch_ms(to_epoch_ms(value))


def _decimal(value: Any) -> Any:
    return of_unscaled(value, 0) if isinstance(value, int) else value


def _array(schema: Schema) -> Convert | None:
    element = None if schema.value_schema is None else converter(schema.value_schema)
    if element is None:
        return None
    each = nullable(element)
    return lambda values: [each(value) for value in values]


def _map(schema: Schema) -> Convert | None:
    of_key = nullable(None if schema.key_schema is None else converter(schema.key_schema))
    of_value = nullable(None if schema.value_schema is None else converter(schema.value_schema))
    return lambda values: {of_key(key): of_value(value) for key, value in dict(values).items()}


def _struct(schema: Schema) -> Convert:
    names = [field.name for field in schema.fields]
    found = [converter(field.schema) for field in schema.fields]
    changed = [(at, convert) for at, convert in enumerate(found) if convert is not None]

    def made(value: Any) -> Struct:
        values = [value[name] for name in names]
        for at, convert in changed:
            if values[at] is not None:
                values[at] = convert(values[at])
        return Struct.trusted(schema, values)

    return made


def _integer(schema: Schema) -> Convert:
    return partial(int.__new__, NUMBER_CLASSES[schema.type])  # the file's own type limits the value


_BY_TYPE: Final[dict[Type, Callable[[Schema], Convert | None]]] = {
    Type.INT8: _integer,
    Type.INT16: _integer,
    Type.INT32: _integer,
    Type.FLOAT32: lambda _: partial(float.__new__, Float32),
    Type.ARRAY: _array,
    Type.MAP: _map,
    Type.STRUCT: _struct,
}
