"""Between the oracle's JSON and schemas.

A schema is a word (``int32``, ``int32?`` for an optional one, ``Date``, ``Time``, ``Timestamp``,
``Decimal(2)``) or an object: type, optional, name, version, doc, parameters, default, fields, keySchema,
valueSchema.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import msgspec

from headerware.connect.data import Date, Decimal, Schema, SchemaBuilder, Time, Timestamp, Type
from headerware.connect.errors import ArgumentError, NumberTextError, SchemaBuilderError
from tests.vectors.connect.nodes import as_boolean, as_int, as_text, member, read_json

ReadValue = Callable[[Any, Schema | None], Any]
WriteValue = Callable[[Any], Any]

TYPES: Final = {kind.value: kind for kind in Type}
_TIMES: Final[dict[str, type[Date | Time | Timestamp]]] = {"Date": Date, "Time": Time, "Timestamp": Timestamp}
_DECIMAL: Final = re.compile(r"Decimal\((.*).", re.DOTALL)
_KEPT: Final = 256
_text_of: Final = msgspec.json.Encoder(decimal_format="number").encode


def read_schema(node: Any, read_value: ReadValue) -> Schema | None:
    """Return the schema of a node; ``read_value`` reads its default."""
    if node is None:
        return None
    if isinstance(node, str):
        return _of_word(node)
    try:
        text = _text_of(node)
    except UnicodeEncodeError:  # half a surrogate pair
        return _of_object(node, read_value)
    return _of_text(text, read_value)


@lru_cache(maxsize=_KEPT)
def _of_text(text: bytes, read_value: ReadValue) -> Schema:
    """Return the schema of an object's text: reading it costs a tenth of making the schema again."""
    return _of_object(read_json(text), read_value)


@lru_cache(maxsize=_KEPT)
def _of_word(word: str) -> Schema:
    optional = word.endswith("?")
    name = word.removesuffix("?")
    if name in _TIMES:
        builder = _TIMES[name].builder()
    elif name.startswith("Decimal("):
        builder = Decimal.builder(_scale(name))
    elif name in TYPES:
        builder = SchemaBuilder(TYPES[name])
    else:
        raise ArgumentError("the case has a schema that there is not")
    return (builder.optional() if optional else builder).build()


def _scale(name: str) -> int:
    found = _DECIMAL.fullmatch(name)
    if found is None or not re.fullmatch(r"[+-]?\d{1,9}", found[1]):
        raise NumberTextError("expected a scale")
    return int(found[1])


def _of_object(node: dict[str, Any], read_value: ReadValue) -> Schema:
    builder = _opened(node, read_value)
    for fact, read in (("name", as_text), ("version", as_int), ("doc", as_text)):
        if node.get(fact) is not None:
            getattr(builder, fact)(read(node[fact]))
    for name, value in (node.get("parameters") or {}).items():
        builder.parameter(name, as_text(value))
    for field in node.get("fields") or ():
        name, schema = field if isinstance(field, list) else (field["name"], field["schema"])
        builder.field(as_text(name), read_schema(schema, read_value))
    if as_boolean(node.get("optional", False)):
        builder.optional()
    if node.get("default") is not None:
        _set_default(builder, node["default"], read_value)
    return builder.build()


def _opened(node: dict[str, Any], read_value: ReadValue) -> SchemaBuilder:
    kind = as_text(member(node, "type"))
    if kind == "array":
        return SchemaBuilder.array(read_schema(node.get("valueSchema"), read_value))
    if kind == "map":
        key_schema = read_schema(node.get("keySchema"), read_value)
        return SchemaBuilder.map(key_schema, read_schema(node.get("valueSchema"), read_value))
    return SchemaBuilder(TYPES.get(kind))


def _set_default(builder: SchemaBuilder, node: Any, read_value: ReadValue) -> None:
    if isinstance(node, dict) and node.get("t") == "struct" and "schema" in node:
        # Kafka's builder compares a struct's schema with itself, a builder, and finds them different.
        raise SchemaBuilderError("Kafka's builder takes no struct for a default")
    builder.default(read_value(node, builder.build()))


@lru_cache(maxsize=_KEPT)
def write_schema(schema: Schema | None, write_value: WriteValue) -> Any:
    """Return the node of a schema, the same for equal ones; ``write_value`` writes its default."""
    if schema is None:
        return None
    node: dict[str, Any] = {"type": schema.type.value}
    if schema.optional:
        node["optional"] = True
    for fact in ("name", "version", "doc"):
        if getattr(schema, fact) is not None:
            node[fact] = getattr(schema, fact)
    if schema.parameters:
        node["parameters"] = dict(sorted(schema.parameters.items()))
    if schema.default is not None:
        node["default"] = write_value(schema.default)
    if schema.type is Type.STRUCT:
        node["fields"] = [[field.name, write_schema(field.schema, write_value)] for field in schema.fields]
    if schema.type is Type.MAP:
        node["keySchema"] = write_schema(schema.key_schema, write_value)
    if schema.type is Type.MAP or schema.type is Type.ARRAY:
        node["valueSchema"] = write_schema(schema.value_schema, write_value)
    return node
