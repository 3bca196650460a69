"""JsonConverter: values as JSON, in an envelope with their schemas if ``schemas.enable`` is true.

with schemas      {"schema": {"type": "int32", "optional": false}, "payload": 42}
without           42

A schema in JSON. An array also has "items"; a map "keys" and "values"; a struct "fields", a list of schemas.
The schema of a field also has "field", the field's name.

    {"type": "int32", "optional": false, "name": "", "version": 1, "doc": "", "parameters": {}, "default": 5}

Both modes write the same bytes as Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, NamedTuple

import msgspec

from headerware.connect.config import ConfigDef, ConfigKey, one_of_any_case
from headerware.connect.converters.base import TYPE, DualConverter
from headerware.connect.converters.json.parsing import (
    PARSE_ERRORS,
    JsonParser,
    KafkaParser,
    StrictParser,
    check_names,
    count_names,
    is_deeper,
    may_exceed_digit_limit,
)
from headerware.connect.converters.json.reading import (
    DigitsNeededError,
    Read,
    Readers,
    default_of,
    refuse_too_many,
    widest_struct,
)
from headerware.connect.converters.json.writing import Write, Writers
from headerware.connect.data.numbers import Int32
from headerware.connect.data.schema import NULL, Schema, SchemaAndValue, SchemaBuilder, Type
from headerware.connect.data.struct import Struct
from headerware.connect.errors import ConnectConfigError, ConnectDataError, NullValueError, SchemaBuilderError
from headerware.connect.modes import STRICT, Mode
from headerware.core.bounded_cache import BoundedCache

_SCHEMAS_ENABLE: Final = "schemas.enable"
_SCHEMAS_CACHE_SIZE: Final = "schemas.cache.size"
_SCHEMA_CONTENT: Final = "schema.content"
_DECIMAL_FORMAT: Final = "decimal.format"
_REPLACE_NULL: Final = "replace.null.with.default"
_JSON_CONFIG: Final = ConfigDef(
    TYPE,
    ConfigKey(
        name=_SCHEMAS_ENABLE,
        type="BOOLEAN",
        default=True,
        importance="HIGH",
        doc="Whether each value is in an envelope with its schema.",
    ),
    ConfigKey(
        name=_SCHEMAS_CACHE_SIZE,
        type="INT",
        default=1000,
        importance="HIGH",
        doc="How many schemas are remembered in each direction.",
    ),
    ConfigKey(
        name=_SCHEMA_CONTENT,
        type="STRING",
        default=None,
        importance="HIGH",
        doc="The schema of all values that are read, as JSON; these values have no envelope.",
    ),
    ConfigKey(
        name=_DECIMAL_FORMAT,
        type="STRING",
        default="BASE64",
        importance="LOW",
        doc="How decimals are written: BASE64, or NUMERIC for JSON numbers.",
        check=one_of_any_case("BASE64", "NUMERIC"),
    ),
    ConfigKey(
        name=_REPLACE_NULL,
        type="BOOLEAN",
        default=True,
        importance="LOW",
        doc="Whether null is replaced by the default, if there is one.",
    ),
)
_MAX_TEXT_BYTES: Final = 65_536
"""The largest schema that is cached by its text; larger ones are parsed each time."""
_ENVELOPE_NAMES: Final = 2
"""The names in an envelope itself: "schema" and "payload"."""
_TOO_DEEP: Final = "expected a value within Python's recursion limit, found one that is nested deeper"


def _cost_of_text(text: bytes, _parsed: object) -> int:
    """Return 0 for a text that is cached, and 1 for a longer one: the cache has a budget of 0."""
    return 0 if len(text) <= _MAX_TEXT_BYTES else 1


class _Envelope(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """An envelope whose schema has not been read."""

    schema: msgspec.Raw
    payload: Any


class _ReadPlan(NamedTuple):
    """How to read values of a schema; ``widest`` is the number of fields of its largest struct."""

    schema: Schema
    read: Read
    widest: int

    def value(self, node: Any, size_bytes: int) -> SchemaAndValue:
        """Return the value of a parsed payload; ``size_bytes`` is the size of all its JSON."""
        refuse_too_many(self.schema, node, size_bytes, self.widest)
        return SchemaAndValue(self.schema, self.read(node))


class _ParsedSchema(NamedTuple):
    """A schema's JSON, parsed: the plan, or None if the JSON is null, and how many names its objects have."""

    plan: _ReadPlan | None
    name_count: int


class _WritePlan(NamedTuple):
    """How to write values of a schema; the schema is kept alive, because plans are found by its identity."""

    schema: Schema
    opening: str
    write: Write


_ENVELOPE: Final = msgspec.json.Decoder(_Envelope)


class JsonConverter(DualConverter):
    """Convert values to JSON and back.

    Equal schemas in envelopes become one object, so that transforms find their plans by identity.

    Args:
        config: ``schemas.enable``, ``schemas.cache.size``, ``schema.content``, ``decimal.format`` and
            ``replace.null.with.default``.
        mode: ``strict`` or ``kafka_4_3``.

    Raises:
        ConnectConfigError: a key is unknown, or its value is not valid.
        ConnectDataError: ``schema.content`` is not a schema, in the ``kafka_4_3`` mode.
    """

    CONFIG: ClassVar[ConfigDef] = _JSON_CONFIG

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = STRICT) -> None:
        super().__init__(config, mode=mode)
        options = self.options
        _check_options(options, mode)
        size, replace_null = options[_SCHEMAS_CACHE_SIZE], options[_REPLACE_NULL]
        self._enveloped: Final[bool] = options[_SCHEMAS_ENABLE]
        self._parser: Final[JsonParser] = StrictParser() if mode == STRICT else KafkaParser()
        self._readers: Final = Readers(mode, replace_null=replace_null)
        self._schemas: Final = _SchemaReader(mode, self._readers)
        numeric = options[_DECIMAL_FORMAT].upper() == "NUMERIC"
        self._writers: Final = Writers(mode, replace_null=replace_null, numeric=numeric)
        self._read_plans_by_text: Final[BoundedCache[bytes, _ParsedSchema]] = BoundedCache(
            size, self._parsed_schema, cost=_cost_of_text
        )
        self._read_plans: Final[BoundedCache[Schema, _ReadPlan]] = BoundedCache(size, self._new_read_plan)
        self._write_plans_by_id: Final[BoundedCache[int, _WritePlan]] = BoundedCache(size)
        self._write_plans: Final[BoundedCache[Schema, _WritePlan]] = BoundedCache(size, self._new_write_plan)
        self._configured: Final = self._configured_plan(options[_SCHEMA_CONTENT])

    def from_connect_data(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:  # noqa: ARG002 - the same for all topics
        """Return the JSON of a value.

        Raises:
            ConnectDataError: the value does not fit its schema, or its class has no form in JSON.
            NullValueError: the schema of a decimal has no scale, or the schema of a map has no schema of its
                keys, in the ``kafka_4_3`` mode.
        """
        try:
            if schema is None:
                if value is None:
                    return None
                text = self._writers.schemaless(value)
                return (f'{{"schema":null,"payload":{text}}}' if self._enveloped else text).encode()
            try:
                _, opening, write = self._write_plans_by_id[id(schema)]
            except KeyError:
                _, opening, write = self._write_plan(schema)
            return f"{opening}{write(value)}{'}' if opening else ''}".encode()
        except RecursionError:
            raise ConnectDataError(_TOO_DEEP) from None
        except NullValueError as error:
            if self.mode == STRICT:
                raise ConnectDataError(str(error)) from None
            raise

    def to_connect_data(self, topic: str, data: bytes | None) -> SchemaAndValue:  # noqa: ARG002 - the same for all topics
        """Return the value of JSON, with its schema if there is one.

        Raises:
            ConnectDataError: the data is not JSON or not an envelope, or does not fit its schema.
        """
        if data is None:
            return NULL
        try:
            if not self._enveloped:
                return SchemaAndValue(None, self._parser.parse_schemaless(data))
            if self._configured is not None:
                return self._with_schema(self._configured, data)
            return self._from_envelope(data)
        except RecursionError:
            raise ConnectDataError(_TOO_DEEP) from None

    def _from_envelope(self, data: bytes) -> SchemaAndValue:
        if may_exceed_digit_limit(data):
            return self._from_any_envelope(data)
        try:
            envelope = _ENVELOPE.decode(data)
        except PARSE_ERRORS:
            return self._from_any_envelope(data)
        text, payload = bytes(envelope.schema), envelope.payload
        plan, name_count = self._read_plans_by_text[text]
        if plan is None or is_deeper(data, payload, self._parser.max_depth - 1):
            return self._from_any_envelope(data)
        if self.mode == STRICT:
            check_names(data, name_count + _ENVELOPE_NAMES + count_names(payload))
        try:
            return plan.value(payload, len(data))
        except DigitsNeededError:
            return self._from_any_envelope(data)

    def _from_any_envelope(self, data: bytes) -> SchemaAndValue:
        """Read an envelope and its schema together, which is slower; needed for unusual JSON."""
        tree = self._parser.parse_exact(data)
        if not isinstance(tree, dict) or tree.keys() != {"schema", "payload"}:
            raise ConnectDataError(
                "expected an object of 'schema' and 'payload', because schemas.enable is true; "
                "set schemas.enable=false to read plain JSON"
            )
        plan, payload = self._read_plan(tree["schema"]), tree["payload"]
        if plan is None:
            return SchemaAndValue(None, self._parser.without_decimals(payload))
        return plan.value(payload, len(data))

    def _with_schema(self, plan: _ReadPlan, data: bytes) -> SchemaAndValue:
        tree = self._parser.parse_fast(data)
        try:
            return plan.value(tree, len(data))
        except DigitsNeededError:
            return plan.value(self._parser.parse_exact(data), len(data))

    def _parsed_schema(self, text: bytes) -> _ParsedSchema:
        tree = self._parser.parse_exact(text)
        return _ParsedSchema(self._read_plan(tree), count_names(tree))

    def _read_plan(self, tree: Any) -> _ReadPlan | None:
        schema = self._schemas.schema(tree)
        return None if schema is None else self._read_plans[schema]

    def _new_read_plan(self, schema: Schema) -> _ReadPlan:
        return _ReadPlan(schema, self._readers.reader(schema), widest_struct(schema))

    def _write_plan(self, schema: Schema) -> _WritePlan:
        plan = self._write_plans[schema]._replace(schema=schema)
        self._write_plans_by_id[id(schema)] = plan
        return plan

    def _new_write_plan(self, schema: Schema) -> _WritePlan:
        opening = f'{{"schema":{_schema_text(schema, self._writers)},"payload":' if self._enveloped else ""
        return _WritePlan(schema, opening, self._writers.writer(schema))

    def _configured_plan(self, text: str | None) -> _ReadPlan | None:
        if not text:
            return None
        try:
            return self._read_plan(self._parser.parse_exact(text.encode()))
        except ConnectDataError as error:
            if self.mode != STRICT:
                raise
            raise ConnectConfigError(str(error), path=_SCHEMA_CONTENT) from None


def _check_options(options: Mapping[str, Any], mode: Mode) -> None:
    """Refuse a negative size in the ``strict`` mode, and options that are null, as Kafka does."""
    for name in (_SCHEMAS_ENABLE, _SCHEMAS_CACHE_SIZE, _REPLACE_NULL):
        if options[name] is None:
            raise NullValueError(f"expected a value for {name}, found null")
    if mode == STRICT and options[_SCHEMAS_CACHE_SIZE] < 0:
        raise ConnectConfigError(
            f"expected a size of 0 or more, found {options[_SCHEMAS_CACHE_SIZE]}", path=_SCHEMAS_CACHE_SIZE
        )


_NAMES: Final = {**{kind: kind.value for kind in Type}, Type.FLOAT32: "float", Type.FLOAT64: "double"}
_TYPES: Final = {name: kind for kind, name in _NAMES.items()}
_COMMON_KEYS: Final[dict[str, tuple[type, str]]] = {
    "optional": (bool, "true or false"),
    "name": (str, "text"),
    "version": (int, "an integer"),
    "doc": (str, "text"),
    "parameters": (dict, "an object"),
}
_KEYS_BY_TYPE: Final = {Type.ARRAY: {"items"}, Type.MAP: {"keys", "values"}, Type.STRUCT: {"fields"}}
_MAX_SHOWN: Final = 40
"""How many characters of an unknown type's name an error shows."""


def _schema_text(schema: Schema | None, writers: Writers) -> str:
    """Return a schema as JSON; the writers write its default."""
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
        return [f'"items":{_schema_text(schema.value_schema, writers)}']
    if schema.type is Type.MAP:
        keys, values = _schema_text(schema.key_schema, writers), _schema_text(schema.value_schema, writers)
        return [f'"keys":{keys}', f'"values":{values}']
    if schema.type is Type.STRUCT:
        fields = [
            f'{_schema_text(field.schema, writers)[:-1]},"field":{writers.quoted(field.name)}}}'
            for field in schema.fields
        ]
        return [f'"fields":[{",".join(fields)}]']
    return []


class _SchemaReader:
    """Read schemas; the readers read their defaults.

    The ``strict`` mode refuses unknown names and values of another type, which Kafka ignores.
    """

    def __init__(self, mode: Mode, readers: Readers) -> None:
        self._strict: Final = mode == STRICT
        self._readers: Final = readers
        self._builders: Final[dict[Type, Callable[[dict[str, Any], str], SchemaBuilder]]] = {
            Type.ARRAY: self._array,
            Type.MAP: self._map,
            Type.STRUCT: self._struct,
        }

    def schema(self, tree: Any, path: str = "schema", *, in_struct: bool = False) -> Schema | None:
        """Return the schema that parsed JSON describes, or None for null.

        ``path`` says where it is in errors. With ``in_struct``, 'field' is a known name.
        """
        if tree is None:
            return None
        name = tree.get("type") if isinstance(tree, dict) else None
        if not isinstance(name, str):
            raise ConnectDataError(f"{path}: expected a schema, which is an object with text in 'type'")
        kind = _TYPES.get(name)
        if kind is None:
            raise ConnectDataError(
                f"{path}: expected 'type' as one of {', '.join(_TYPES)}; found {name[:_MAX_SHOWN]!r}"
            )
        if self._strict:
            _refuse_unknown(tree, kind, path, in_struct=in_struct)
        builder = self._builders[kind](tree, path) if kind in self._builders else SchemaBuilder(kind)
        self._add_common(builder, tree, path)
        if "default" in tree:
            self._add_default(builder, tree["default"])
        return builder.build()

    def _array(self, tree: dict[str, Any], path: str) -> SchemaBuilder:
        if tree.get("items") is None:
            raise ConnectDataError(
                f"{path}: expected 'items', the schema of the array's elements, found none"
            )
        return SchemaBuilder.array(self.schema(tree["items"], f"{path}.items"))

    def _map(self, tree: dict[str, Any], path: str) -> SchemaBuilder:
        if "keys" not in tree or "values" not in tree:
            raise ConnectDataError(
                f"{path}: expected the schemas 'keys' and 'values' of a map, found one or none"
            )
        keys = self.schema(tree["keys"], f"{path}.keys")
        return SchemaBuilder.map(keys, self.schema(tree["values"], f"{path}.values"))

    def _struct(self, tree: dict[str, Any], path: str) -> SchemaBuilder:
        fields = tree.get("fields")
        if not isinstance(fields, list):
            raise ConnectDataError(f"{path}: expected 'fields' of a struct, a list of schemas, found no list")
        builder = SchemaBuilder.struct()
        for index, field in enumerate(fields):
            field_path = f"{path}.fields[{index}]"
            name = field.get("field") if isinstance(field, dict) else None
            if not isinstance(name, str):
                raise ConnectDataError(
                    f"{field_path}: expected a field with its name as text in 'field', found no text"
                )
            builder.field(name, self.schema(field, field_path, in_struct=True))
        return builder

    def _add_common(self, builder: SchemaBuilder, tree: dict[str, Any], path: str) -> None:
        known = {name: self._common(tree, name, path) for name in _COMMON_KEYS}
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
                raise ConnectDataError(
                    f"{path}.parameters: expected text as parameter {name!r}, found another type"
                )
        builder.parameters(parameters)

    def _common(self, tree: dict[str, Any], name: str, path: str) -> Any:
        kind, expected = _COMMON_KEYS[name]
        value = tree.get(name)
        if value.__class__ is kind:
            return value
        if self._strict and value is not None:
            raise ConnectDataError(f"{path}: expected {expected} as {name!r}, found another type")
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
            raise SchemaBuilderError("Kafka refuses a struct as the default of a struct's schema")
        builder.default(value)


def _refuse_unknown(tree: dict[str, Any], kind: Type, path: str, *, in_struct: bool) -> None:
    known = {"type", *_COMMON_KEYS, "default", *_KEYS_BY_TYPE.get(kind, ())} | (
        {"field"} if in_struct else set()
    )
    unknown = [name for name in tree if name not in known]
    if unknown:
        raise ConnectDataError(f"{path}: a schema of type {_NAMES[kind]} has no {unknown[0]!r}")
