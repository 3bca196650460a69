"""Schemas in JSON, both ways: the one half of the envelope.

{"type": "int32", "optional": false, "name": "", "version": 1, "doc": "", "parameters": {}, "default": 5}

An array's has "items", a map's "keys" and "values", a struct's "fields"; each of those its "field", the name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from headerware.connect.converters.json.defaults import default_of
from headerware.connect.converters.json.reading import Readers
from headerware.connect.converters.json.writing import Writers
from headerware.connect.data.numbers import Int32
from headerware.connect.data.schema import Schema, SchemaBuilder, Type
from headerware.connect.data.struct import Struct
from headerware.connect.errors import ConnectDataError, SchemaBuilderError
from headerware.connect.modes import STRICT, Mode

_NAMES: Final = {**{kind: kind.value for kind in Type}, Type.FLOAT32: "float", Type.FLOAT64: "double"}
_TYPES: Final = {name: kind for kind, name in _NAMES.items()}
_FACTS: Final[dict[str, tuple[type, str]]] = {
    "optional": (bool, "true or false"),
    "name": (str, "text"),
    "version": (int, "an integer"),
    "doc": (str, "text"),
    "parameters": (dict, "an object"),
}
_OWN: Final = {Type.ARRAY: {"items"}, Type.MAP: {"keys", "values"}, Type.STRUCT: {"fields"}}


def schema_text(schema: Schema | None, writers: Writers) -> str:
    """Return a schema as JSON.

    Args:
        schema: the schema.
        writers: write its default.

    Raises:
        ConnectDataError: its default cannot be written.
    """
    if schema is None:
        return "null"
    quoted = writers.quoted
    parts = [f'"type":"{_NAMES[schema.type]}"', *_nested(schema, writers)]
    parts.append(f'"optional":{"true" if schema.optional else "false"}')
    if schema.name is not None:
        parts.append(f'"name":{quoted(schema.name)}')
    if schema.version is not None:
        parts.append(f'"version":{int(schema.version)}')
    if schema.doc is not None:
        parts.append(f'"doc":{quoted(schema.doc)}')
    if schema.parameters is not None:
        entries = ",".join([f"{quoted(key)}:{quoted(value)}" for key, value in schema.parameters.items()])
        parts.append(f'"parameters":{{{entries}}}')
    if schema.default is not None:
        parts.append(f'"default":{writers.writer(schema)(default_of(schema))}')
    return f"{{{','.join(parts)}}}"


def _nested(schema: Schema, writers: Writers) -> list[str]:
    if schema.type is Type.ARRAY:
        return [f'"items":{schema_text(schema.value_schema, writers)}']
    if schema.type is Type.MAP:
        keys, values = schema_text(schema.key_schema, writers), schema_text(schema.value_schema, writers)
        return [f'"keys":{keys}', f'"values":{values}']
    if schema.type is Type.STRUCT:
        fields = [
            f'{schema_text(field.schema, writers)[:-1]},"field":{writers.quoted(field.name)}}}'
            for field in schema.fields
        ]
        return [f'"fields":[{",".join(fields)}]']
    return []


class SchemaReader:
    """Read schemas.

    Args:
        mode: ``strict`` refuses what it does not know, and facts of another type, which Kafka ignores.
        readers: read defaults.
    """

    def __init__(self, mode: Mode, readers: Readers) -> None:
        self._strict: Final = mode == STRICT
        self._readers: Final = readers
        self._builders: Final[dict[Type, Callable[[dict[str, Any]], SchemaBuilder]]] = {
            Type.ARRAY: self._array,
            Type.MAP: self._map,
            Type.STRUCT: self._struct,
        }

    def schema(self, tree: Any, *, in_struct: bool = False) -> Schema | None:
        """Return the schema of JSON that was read, or None for null.

        Args:
            tree: the JSON, with Decimals.
            in_struct: whether it is a struct's field, and has its name.

        Raises:
            ConnectDataError: it is no schema; a SchemaBuilderError where its parts do not fit together.
        """
        if tree is None:
            return None
        name = tree.get("type") if isinstance(tree, dict) else None
        if not isinstance(name, str):
            raise ConnectDataError("expected a schema, an object with the text 'type'")
        kind = _TYPES.get(name)
        if kind is None:
            raise ConnectDataError(f"there is no type {name!r}; there are: {', '.join(_TYPES)}")
        if self._strict:
            _refuse_unknown(tree, kind, in_struct=in_struct)
        builder = self._builders[kind](tree) if kind in self._builders else SchemaBuilder(kind)
        self._add_facts(builder, tree)
        if "default" in tree:
            self._add_default(builder, tree["default"])
        return builder.build()

    def _array(self, tree: dict[str, Any]) -> SchemaBuilder:
        if tree.get("items") is None:
            raise ConnectDataError("expected an array's schema with 'items', the schema of what is in it")
        return SchemaBuilder.array(self.schema(tree["items"]))

    def _map(self, tree: dict[str, Any]) -> SchemaBuilder:
        if "keys" not in tree or "values" not in tree:
            raise ConnectDataError("expected a map's schema with 'keys' and 'values', their schemas")
        return SchemaBuilder.map(self.schema(tree["keys"]), self.schema(tree["values"]))

    def _struct(self, tree: dict[str, Any]) -> SchemaBuilder:
        fields = tree.get("fields")
        if not isinstance(fields, list):
            raise ConnectDataError("expected a struct's schema with 'fields', a list of schemas")
        builder = SchemaBuilder.struct()
        for field in fields:
            name = field.get("field") if isinstance(field, dict) else None
            if not isinstance(name, str):
                raise ConnectDataError("expected a struct's fields each with the text 'field', its name")
            builder.field(name, self.schema(field, in_struct=True))
        return builder

    def _add_facts(self, builder: SchemaBuilder, tree: dict[str, Any]) -> None:
        known = {name: self._fact(tree, name) for name in _FACTS}
        if known["optional"]:
            builder.optional()
        else:
            builder.required()
        if known["name"] is not None:
            builder.name(known["name"])
        if known["version"] is not None:
            builder.version(self._version(known["version"]))
        if known["doc"] is not None:
            builder.doc(known["doc"])
        parameters = known["parameters"] or {}
        for name, value in parameters.items():
            if not isinstance(value, str):
                raise ConnectDataError(f"expected text as a schema's parameter {name!r}")
        builder.parameters(parameters)

    def _fact(self, tree: dict[str, Any], name: str) -> Any:
        kind, expected = _FACTS[name]
        value = tree.get(name)
        if value.__class__ is kind:
            return value
        if self._strict and value is not None:
            raise ConnectDataError(f"expected {expected} as a schema's {name!r}")
        return None

    def _version(self, version: int) -> int:
        if self._strict:
            return int(Int32(version))
        return int(Int32.wrapped(version))

    def _add_default(self, builder: SchemaBuilder, tree: Any) -> None:
        schema = builder.build()
        if tree is None and self._strict:
            return
        value = self._readers.reader(schema)(tree)
        if value is None and schema.optional:
            return
        if isinstance(value, Struct) and not self._strict:
            # Kafka compares the struct's schema with the builder, which never equals it.
            raise SchemaBuilderError("Kafka takes no struct for the default of a struct")
        builder.default(value)


def _refuse_unknown(tree: dict[str, Any], kind: Type, *, in_struct: bool) -> None:
    known = {"type", *_FACTS, "default", *_OWN.get(kind, ())} | ({"field"} if in_struct else set())
    unknown = [name for name in tree if name not in known]
    if unknown:
        raise ConnectDataError(f"a schema of type {_NAMES[kind]} has no {unknown[0]!r}")
