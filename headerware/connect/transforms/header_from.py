"""HeaderFrom: copy or move fields of the key or value to headers (KIP-145).

transforms=toHeaders
transforms.toHeaders.type=org.apache.kafka.connect.transforms.HeaderFrom$Value
transforms.toHeaders.fields=tenant,trace
transforms.toHeaders.headers=tenant.id,trace.id
transforms.toHeaders.operation=move
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from headerware.connect.config import NOT_EMPTY_LIST, ConfigDef, ConfigKey, one_of
from headerware.connect.data.schema import Field, Schema, SchemaBuilder
from headerware.connect.data.struct import Struct
from headerware.connect.errors import NullValueError
from headerware.connect.fields.lists import items, paired
from headerware.connect.fields.paths import ABSENT, FieldPath, parse_path
from headerware.connect.fields.rewrites import Edits, Node, check_absent, rewrite
from headerware.connect.fields.structs import another_schema, null_in_required, require_map, require_struct
from headerware.connect.headers import ConnectHeader, ConnectHeaders
from headerware.connect.modes import STRICT, Mode
from headerware.connect.transforms.base import PartTransform, Plan
from headerware.connect.transforms.keys import REPLACE_NULL_WITH_DEFAULT

_Take = Callable[[Struct], ConnectHeader]
"""Returns a header made from a struct's field."""
_PURPOSE: Final = "fields that become headers"


class HeaderFrom(PartTransform):
    """Add a header for each of some fields, after the existing headers.

    The field of a dict becomes a header without a schema. In the strict mode ``a.b`` is the field b in a; a
    field that a schema lacks is refused, and a field that a dict lacks becomes no header. In ``kafka_4_3`` it
    becomes a null header.
    """

    CONFIG: ClassVar[ConfigDef] = ConfigDef(
        ConfigKey(
            name="fields",
            type="LIST",
            importance="HIGH",
            check=NOT_EMPTY_LIST,
            doc="The fields to copy or move.",
        ),
        ConfigKey(
            name="headers",
            type="LIST",
            importance="HIGH",
            check=NOT_EMPTY_LIST,
            doc="The names of the headers, in the order of the fields.",
        ),
        ConfigKey(
            name="operation",
            type="STRING",
            importance="HIGH",
            check=one_of("move", "copy"),
            doc="move removes the fields from the key or value, copy keeps them.",
        ),
        REPLACE_NULL_WITH_DEFAULT,
    )

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = STRICT) -> None:
        super().__init__(config, mode=mode)
        names = items(self.options["headers"], mode, "headers")
        paths = [parse_path(text, mode, "fields") for text in self.options["fields"]]
        self._pairs: Final = paired(paths, names, "fields", "headers")
        self._moves: Final = self.options["operation"] == "move"
        self._default: Final[bool] = self.options[REPLACE_NULL_WITH_DEFAULT.name]
        moved = dict.fromkeys(paths if self._moves else ())
        self._edits: Final = Edits([(path, True) for path in moved], "fields")

    def apply(self, record: Any) -> Any:
        """Return the record with the headers, and without the fields if they move.

        Raises:
            ConnectDataError: the key or value is null or has no fields, or a required field is null; in the
                strict mode, there is no such field.
            NullValueError: in ``kafka_4_3``, the schema has no such field.
        """
        schema = record.value_schema if self.part == "value" else record.key_schema
        value = record.value if self.part == "value" else record.key
        if schema is None:
            return self._of_dict(record, require_map(value, _PURPOSE))
        struct = require_struct(value, _PURPOSE)
        own = struct.schema
        if own is not schema and not self._same(own, schema):
            return self._of_other(record, schema, struct)
        plan = self.planned(schema)
        return self._with(record, plan.schema, *plan.apply(struct, record))

    def plan(self, schema: Schema) -> Plan:
        """Return the plan for the values of a schema; its function returns the struct and the headers.

        Raises:
            ConnectDataError: in the strict mode, there is no such field.
        """
        updated = rewrite(schema, self._edits, _drop, mode=self.mode, with_default=self._default)
        takes = [self._take(schema, path, name) for path, name in self._pairs]
        if not self._moves:
            return Plan(schema, lambda struct, _: (struct, [take(struct) for take in takes]))
        return Plan(
            updated.schema, lambda struct, _: (updated.apply(struct), [take(struct) for take in takes])
        )

    def _with(self, record: Any, schema: Schema | None, value: Any, added: list[ConnectHeader]) -> Any:
        made = record.with_headers(ConnectHeaders([*record.headers, *added]))
        if self.part == "value":
            made.value_schema, made.value = schema, value
        else:
            made.key_schema, made.key = schema, value
        return made

    def _take(self, schema: Schema, path: FieldPath, name: str) -> _Take:
        if self.mode != STRICT and path.find(schema) is None:
            return _raising(path.text)
        own = path.schema(schema)
        get = path.getter(schema, with_default=self._default)

        def take(struct: Struct) -> ConnectHeader:
            value = get(struct)
            if value is None and not own.optional:
                raise null_in_required(path.text)
            return ConnectHeader(name, own, value)

        return take

    def _of_dict(self, record: Any, value: dict[str, Any]) -> Any:
        added = []
        for path, name in self._pairs:
            if self.mode == STRICT:
                found = path.from_dict(value, ABSENT)
                if found is ABSENT or found is None:
                    check_absent(value, path)
                if found is ABSENT:
                    continue
            else:
                found = value.get(path.text)
            added.append(ConnectHeader(name, None, found))
        return self._with(record, None, _without(value, self._edits.root), added)

    def _of_other(self, record: Any, schema: Schema, struct: Struct) -> Any:
        """Read a struct whose schema differs from its record's schema by the fields' names, as Kafka does."""
        if self.mode == STRICT:
            raise another_schema(schema)
        get = struct.get if self._default else struct.get_without_default
        value = struct
        if self._moves:
            value = Struct(_moved_schema(schema, {path.text for path, _ in self._pairs}))
            for field in value.schema.fields:
                value.put(field, get(field.name))
        added = ConnectHeaders()
        for path, name in self._pairs:
            found = get(path.text) if path.text in struct else None
            if path.find(schema) is None:
                raise _no_field(path.text)
            added.add(name, found, path.field(schema).schema)
        return self._with(record, value.schema if self._moves else schema, value, list(added))


def _drop(_field: Field, _edit: bool) -> None:  # noqa: FBT001 - the type of edits here
    """Drop a field that moves."""


def _raising(name: str) -> _Take:
    def take(_struct: Struct) -> ConnectHeader:
        raise _no_field(name)

    return take


def _no_field(name: str) -> NullValueError:
    return NullValueError(f"the schema has no field {name!r}")


def _moved_schema(schema: Schema, moved: set[str]) -> Schema:
    builder = SchemaBuilder.like(schema)
    for field in schema.fields:
        if field.name not in moved:
            builder.field(field.name, field.schema)
    return builder.build()


def _without(value: dict[str, Any], node: Node[bool]) -> dict[str, Any]:
    """Return a copy of a dict without the fields that move, which may be nested."""
    made = dict(value)
    for name, child in node.children.items():
        if child.edit is not None:
            made.pop(name, None)
        elif isinstance(made.get(name), dict):
            made[name] = _without(made[name], child)
    return made
