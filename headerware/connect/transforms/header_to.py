"""HeaderTo: copy or move headers to fields of the key or value (KIP-145; Apache Kafka never shipped it).

transforms=fromHeaders
transforms.fromHeaders.type=org.apache.kafka.connect.transforms.HeaderTo$Value
transforms.fromHeaders.headers=tenant.id,trace.id
transforms.fromHeaders.fields=tenant,trace
transforms.fromHeaders.operation=copy
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, ClassVar, Final, NamedTuple

from msgspec.structs import replace

from headerware.connect.config import NOT_EMPTY_LIST, ConfigKey, one_of
from headerware.connect.data.schema import Schema, SchemaBuilder, validate_value
from headerware.connect.data.struct import Struct
from headerware.connect.errors import ConnectConfigError, ConnectDataError
from headerware.connect.fields.lists import items, paired
from headerware.connect.fields.paths import NewField, new_field
from headerware.connect.fields.structs import (
    altered,
    another_schema,
    null_in_required,
    require_map,
    require_struct,
)
from headerware.connect.headers import ConnectHeader, ConnectHeaders
from headerware.connect.modes import STRICT, Mode
from headerware.connect.transforms.base import PartTransform
from headerware.connect.transforms.keys import KeysByMode
from headerware.connect.values import infer_schema
from headerware.core.bounded_cache import BoundedCache

_PURPOSE: Final = "headers that become fields"
_MAX_SHAPES: Final = 128
"""The number of cached schemas with added fields; a flood of headers' schemas must not fill the memory."""
_MANY: Final = ConfigKey(
    name="many",
    type="STRING",
    default="last",
    check=one_of("one", "last", "first", "all"),
    doc="Which of several headers with one name to take: one refuses them, all makes an array.",
)
_MISSING: Final = ConfigKey(
    name="missing",
    type="STRING",
    default="skip",
    check=one_of("fail", "skip"),
    doc="What to do if there is no header of this name: skip adds no field.",
)
_EXISTING: Final = ConfigKey(
    name="existing",
    type="STRING",
    default="replace",
    check=one_of("fail", "replace"),
    doc="What to do with a field that exists already.",
)


class _Added(NamedTuple):
    """A field that is set, its schema and its value."""

    name: str
    schema: Schema
    value: Any


class HeaderTo(PartTransform):
    """Set a field for each of some headers.

    A struct's new field has the header's schema; a mark after its name, ``tenant!`` or ``tenant?``, makes it
    required or optional. By default, the strict mode refuses several headers with one name, a missing header,
    and a field that exists already; ``kafka_4_3`` takes the last header, skips a missing one, and replaces
    fields. The keys ``many``, ``missing`` and ``existing``, which the KIP does not have, change this.
    """

    CONFIG: ClassVar[KeysByMode] = KeysByMode(
        ConfigKey(
            name="headers",
            type="LIST",
            importance="HIGH",
            check=NOT_EMPTY_LIST,
            doc="The names of the headers to copy or move.",
        ),
        ConfigKey(
            name="fields",
            type="LIST",
            importance="HIGH",
            check=NOT_EMPTY_LIST,
            doc="The fields to set, in the order of the headers.",
        ),
        ConfigKey(
            name="operation",
            type="STRING",
            importance="HIGH",
            check=one_of("move", "copy"),
            doc="move removes the headers from the record, copy keeps them.",
        ),
        _MANY,
        _MISSING,
        _EXISTING,
        strict=(
            replace(_MANY, default="one"),
            replace(_MISSING, default="fail"),
            replace(_EXISTING, default="fail"),
        ),
    )

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = STRICT) -> None:
        super().__init__(config, mode=mode)
        names = items(self.options["headers"], mode, "headers")
        fields = [new_field(text, mode, "fields") for text in self.options["fields"]]
        self._pairs: Final = paired(names, fields, "headers", "fields")
        if len({field.name for field in fields}) < len(fields):
            raise ConnectConfigError("a field is named twice", path="fields")
        self._moved: Final = frozenset(names if self.options["operation"] == "move" else ())
        self._many: Final[str] = self.options["many"]
        self._skips: Final = self.options["missing"] == "skip"
        self._replaces: Final = self.options["existing"] == "replace"
        self._shapes: Final[BoundedCache[tuple[Any, ...], Schema]] = BoundedCache(_MAX_SHAPES)

    def apply(self, record: Any) -> Any:
        """Return the record with the fields, and without the headers if they move.

        Raises:
            ConnectDataError: the key or value is null or has no fields, a header is missing or occurs several
                times, a field exists already, or a header's value has no schema for a struct's field.
        """
        part = self.part or "value"
        schema = record.value_schema if part == "value" else record.key_schema
        value = record.value if part == "value" else record.key
        taken = self._taken(record.headers)
        if schema is None:
            made = record.with_part(part, None, self._dict(require_map(value, _PURPOSE), taken))
        else:
            given = require_struct(value, _PURPOSE)
            if self.mode == STRICT and not self._same(given.schema, schema):
                raise another_schema(schema)
            struct = self._struct(given, taken)
            made = record.with_part(part, struct.schema, struct)
        if not self._moved:
            return made
        return made.with_headers(ConnectHeaders(h for h in made.headers if h.key not in self._moved))

    def _taken(self, headers: ConnectHeaders) -> list[tuple[NewField, list[ConnectHeader]]]:
        """Return the headers for each field: one, or all of a name."""
        taken = []
        for name, field in self._pairs:
            found = [header for header in headers if header.key == name]
            if found:
                taken.append((field, self._chosen(name, found)))
            elif not self._skips:
                raise ConnectDataError(f"there is no header {name!r}; set missing=skip to skip it")
        return taken

    def _chosen(self, name: str, found: list[ConnectHeader]) -> list[ConnectHeader]:
        if self._many == "one" and len(found) > 1:
            raise ConnectDataError(
                f"expected one header {name!r}, found {len(found)}; set many to last, first or all"
            )
        if self._many == "all":
            return found
        return found[:1] if self._many == "first" else found[-1:]

    def _dict(
        self, value: dict[str, Any], taken: list[tuple[NewField, list[ConnectHeader]]]
    ) -> dict[str, Any]:
        made = dict(value)
        for field, headers in taken:
            self._check_free(field.name, made)
            values = [header.value for header in headers]
            found = made[field.name] = values if self._many == "all" else values[0]
            if found is None and field.optional is False:
                raise null_in_required(field.name)
        return made

    def _struct(self, struct: Struct, taken: list[tuple[NewField, list[ConnectHeader]]]) -> Struct:
        added = []
        for field, headers in taken:
            self._check_free(field.name, struct.schema.by_name)
            schema, value = _listed(headers) if self._many == "all" else _described(headers[0])
            schema = field.marked(schema)
            validate_value(schema, value, f"field {field.name!r}")
            added.append(_Added(field.name, schema, value))
        updated = self._shape(struct.schema, added)
        values = struct.values + [None] * (len(updated.fields) - len(struct.values))
        for name, _, value in added:
            values[updated.by_name[name].index] = value
        return Struct.trusted(updated, values)

    def _check_free(self, name: str, fields: Container[str]) -> None:
        if name in fields and not self._replaces:
            raise ConnectDataError(f"field {name!r} exists already; set existing=replace to replace it")

    def _shape(self, schema: Schema, added: list[_Added]) -> Schema:
        """Return the schema with the fields, one object for the same fields, so that plans are found."""
        key = (schema, *((name, own) for name, own, _ in added))
        found = self._shapes.get(key)
        if found is None:
            found = self._shapes[key] = _with_fields(schema, {name: own for name, own, _ in added})
        return found


def _with_fields(schema: Schema, added: dict[str, Schema]) -> Schema:
    builder = SchemaBuilder.like(schema)
    for field in schema.fields:
        builder.field(field.name, added.get(field.name, field.schema))
    for name, own in added.items():
        if name not in schema.by_name:
            builder.field(name, own)
    # The schema's default would lack the fields. It is not needed, because null values are refused earlier.
    return altered(builder.build(), optional=schema.optional)


def _described(header: ConnectHeader) -> tuple[Schema, Any]:
    """Return the schema of a header's value, and the value."""
    schema = header.schema if header.schema is not None else infer_schema(header.value)
    if schema is None:
        raise ConnectDataError(
            f"header {header.key!r} has no schema, and none can be inferred from a value of class "
            f"{type(header.value).__name__}; a struct's field needs a schema"
        )
    return schema, header.value


def _listed(headers: list[ConnectHeader]) -> tuple[Schema, list[Any]]:
    """Return the values of headers of one name as an array; their schemas must be the same."""
    schemas = [schema for schema, _ in map(_described, headers)]
    element = max(schemas, key=lambda schema: schema.optional)
    if any(altered(schema, optional=element.optional) != element for schema in schemas):
        raise ConnectDataError(f"expected headers {headers[0].key!r} of one schema, found several")
    return SchemaBuilder.array(element).build(), [header.value for header in headers]
