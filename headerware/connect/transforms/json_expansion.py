"""Make values with schemas from JSON texts, as Debezium's outbox router does.

    string, boolean       the same type, optional
    integer               int32 or int64, optional; larger ones are refused
    other number          float64, optional
    object                an optional struct, named by its path: ``payload``, ``payload.customer``
    array                 an optional array of its elements' common schema; an empty array has no schema
    null                  no schema, or optional bytes

A field without a schema is left out of its struct. If any part cannot be expanded, the text is refused.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from headerware.connect.data.numbers import Int32
from headerware.connect.data.schema import (
    OPTIONAL_BOOLEAN_SCHEMA,
    OPTIONAL_BYTES_SCHEMA,
    OPTIONAL_FLOAT64_SCHEMA,
    OPTIONAL_INT32_SCHEMA,
    OPTIONAL_INT64_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    Schema,
    SchemaAndValue,
    SchemaBuilder,
    Type,
    validate_value,
)
from headerware.connect.data.struct import Struct
from headerware.connect.errors import ConnectDataError
from headerware.connect.fields.structs import altered

if TYPE_CHECKING:
    from collections.abc import Callable

_INT32: Final = range(-(1 << 31), 1 << 31)
_INT64: Final = range(-(1 << 63), 1 << 63)
_DEPTH: Final = 64


class NotExpandableError(ValueError):
    """The text is not JSON, or is JSON that no schema describes."""


def parsed(text: str) -> Any:
    """Return the object or array of a JSON text."""
    if not text.startswith(("{", "[")):
        raise NotExpandableError("expected a JSON object or array")
    try:
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        raise NotExpandableError("expected a JSON object or array") from error


def expanded(text: str, name: str, *, keeps_nulls: bool) -> SchemaAndValue:
    """Return the value of a JSON text, with a schema; nulls become optional bytes or are left out."""
    node = parsed(text)
    try:
        schema = _Schemas(OPTIONAL_BYTES_SCHEMA if keeps_nulls else None).of(name, node, _DEPTH)
        if schema is None:
            raise NotExpandableError("an empty array has no schema")
        value = _value(node, schema)
        validate_value(schema, value)
    except ConnectDataError as error:
        raise NotExpandableError("its parts do not fit together") from error
    return SchemaAndValue(schema, value)


def _refuse_constant(_text: str) -> Any:
    raise NotExpandableError("JSON has no such number")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise NotExpandableError("an object has a name twice")
    return made


class _Schemas:
    """Infer schemas; the schema of null is given."""

    def __init__(self, null: Schema | None) -> None:
        self._null = null

    def of(self, name: str | None, node: Any, depth: int) -> Schema | None:
        if depth <= 0:
            raise NotExpandableError(f"it nests deeper than {_DEPTH}")
        if node is None:
            return self._null
        if isinstance(node, dict):
            return self._struct(name, node, depth - 1)
        if isinstance(node, list):
            return self._array(name, node, depth - 1)
        if type(node) is int:
            return _integer(node)
        return _SCALARS[type(node)]

    def _struct(self, name: str | None, node: dict[str, Any], depth: int) -> Schema:
        builder = SchemaBuilder.struct().name(name).optional()
        for field, value in node.items():
            schema = self.of(f"{name}.{field}", value, depth)
            if schema is not None:
                builder.field(field, schema)
        return builder.build()

    def _array(self, name: str | None, nodes: list[Any], depth: int) -> Schema | None:
        if not nodes:
            return None
        present = [node for node in nodes if node is not None]
        if len({type(node) for node in present}) > 1:
            raise NotExpandableError("an array holds values of different types")
        if present and isinstance(present[0], dict):
            element: Schema | None = self._merged([self._struct(name, node, depth) for node in present])
        else:
            found = {self.of(None, node, depth) for node in present[:1] or [None]}
            if present and type(present[0]) is int:
                found = {_integer(node) for node in present}
            if len(found) > 1:
                raise NotExpandableError("an array holds integers of different widths")
            element = found.pop()
        if element is None:
            raise NotExpandableError("an array holds a value without a schema")
        return SchemaBuilder.array(element).optional().build()

    def _merged(self, schemas: list[Schema]) -> Schema:
        """Return the schema with all fields; a field that was only null before takes the other schema."""
        fields: dict[str, Schema] = {}
        for schema in schemas:
            for field in schema.fields:
                old = fields.get(field.name)
                if old is None or (old.type is Type.BYTES and field.schema.type is not Type.BYTES):
                    fields[field.name] = field.schema
        builder = SchemaBuilder.like(schemas[0])
        for name, own in fields.items():
            builder.field(name, own)
        return altered(builder.build(), optional=True)


_SCALARS: Final[dict[type, Schema]] = {
    str: OPTIONAL_STRING_SCHEMA,
    bool: OPTIONAL_BOOLEAN_SCHEMA,
    float: OPTIONAL_FLOAT64_SCHEMA,
}


def _integer(number: int) -> Schema:
    if number in _INT32:
        return OPTIONAL_INT32_SCHEMA
    if number in _INT64:
        return OPTIONAL_INT64_SCHEMA
    raise NotExpandableError("an integer does not fit into 64 bits")


def _value(node: Any, schema: Schema) -> Any:
    convert = _VALUES.get((type(node), schema.type))
    return node if convert is None else convert(node, schema)


def _struct_of(node: dict[str, Any], schema: Schema) -> Struct:
    # A field that only other elements of an array have is null.
    values = [_value(node.get(field.name), field.schema) for field in schema.fields]
    return Struct.trusted(schema, values)


def _list_of(nodes: list[Any], schema: Schema) -> list[Any]:
    element = schema.value_schema
    assert element is not None  # noqa: S101 - arrays are inferred with one
    return [_value(node, element) for node in nodes]


_VALUES: Final[dict[tuple[type, Type], Callable[[Any, Schema], Any]]] = {
    (dict, Type.STRUCT): _struct_of,
    (list, Type.ARRAY): _list_of,
    (int, Type.INT32): lambda node, _: Int32(node),
}
