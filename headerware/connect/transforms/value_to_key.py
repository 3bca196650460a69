"""ValueToKey: make the key from fields of the value (KIP-66).

transforms=key
transforms.key.type=org.apache.kafka.connect.transforms.ValueToKey
transforms.key.fields=id
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from headerware.connect.config import DISTINCT_SOME, ConfigDef, ConfigKey
from headerware.connect.data.schema import SchemaBuilder
from headerware.connect.data.struct import Struct
from headerware.connect.errors import ConnectConfigError, ConnectDataError
from headerware.connect.fields.paths import ABSENT, FieldPath, NewField, missing_field, parse_path, split_mark
from headerware.connect.fields.rewrites import check_absent
from headerware.connect.fields.structs import (
    another_schema,
    may_be_null,
    null_in_required,
    require_map,
    require_struct,
)
from headerware.connect.modes import STRICT
from headerware.connect.transforms.base import PartTransform, Plan
from headerware.connect.transforms.keys import REPLACE_NULL_WITH_DEFAULT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headerware.connect.data.schema import Schema
    from headerware.connect.modes import Mode
    from headerware.connect.records import Part


class _Copied(NamedTuple):
    """A field of the value, and the field that it becomes in the key."""

    path: FieldPath
    field: NewField


class ValueToKey(PartTransform):
    """Replace the key by a struct or dict of fields of the value.

    In the strict mode ``a.b`` is the field b in a, called b in the key; with ``force.struct=false``, the
    value of a single field is the key itself; a dict without any of the fields is refused.
    """

    part: ClassVar[Part | None] = "value"
    CONFIG: ClassVar[ConfigDef] = ConfigDef(
        ConfigKey(
            name="fields",
            type="LIST",
            importance="HIGH",
            check=DISTINCT_SOME,
            doc="The fields of the value that form the key.",
        ),
        REPLACE_NULL_WITH_DEFAULT,
        ConfigKey(
            name="force.struct",
            type="BOOLEAN",
            default=True,
            strict_only=True,
            doc="Whether the key is a struct or dict even if it has only one field.",
        ),
    )

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = STRICT) -> None:
        super().__init__(config, mode=mode)
        self._copied: Final = [_copied(text, mode) for text in self.options["fields"]]
        self._bare: Final = not self.options.get("force.struct", True) and len(self._copied) == 1
        names = [copied.field.name for copied in self._copied]
        if len(set(names)) < len(names):
            raise ConnectConfigError("two fields would have one name in the key", path="fields")

    def apply(self, record: Any) -> Any:
        """Return the record with its new key.

        Raises:
            ConnectDataError: the value is null, or has no such field.
        """
        value, schema = record.value, record.value_schema
        if schema is None:
            key = self.schemaless(require_map(value, "the key's fields"), record)
            return record.with_part("key", None, key)
        struct = require_struct(value, "the key's fields")
        if self.mode == STRICT and not self._same(struct.schema, schema):
            raise another_schema(schema)
        try:
            plan = self._plans[id(struct.schema)][1]
        except KeyError:
            plan = None
        if plan is None:
            plan = self.planned(struct.schema)
        made = record.with_part("key", plan.schema, plan.apply(struct, record))
        made.value_schema = struct.schema
        return made

    def schemaless(self, value: Any, record: Any) -> Any:
        """Return the key for a dict.

        Raises:
            ConnectDataError: in the strict mode, the value has none of the fields.
        """
        del record
        if self.mode != STRICT:
            return {path.steps[0]: value.get(path.steps[0]) for path, _ in self._copied}
        key = {}
        for path, field in self._copied:
            found = path.from_dict(value, ABSENT)
            if found is None and field.optional is False:
                raise null_in_required(path.text)
            if found is not ABSENT:
                key[field.name] = found
            elif field.optional is False or self._bare:
                raise ConnectDataError(f"the value has no field {path.text!r}, which the key needs")
            else:
                check_absent(value, path)
        if not key:
            named = ", ".join(path.text for path, _ in self._copied)
            raise ConnectDataError(f"the value has none of the key's fields: {named}")
        return next(iter(key.values())) if self._bare else key

    def plan(self, schema: Schema) -> Plan:
        """Return the plan for the values of a schema.

        Raises:
            ConnectDataError: there is no such field.
        """
        with_default = self.options[REPLACE_NULL_WITH_DEFAULT.name]
        builder, work = SchemaBuilder.struct(), []
        for path, field in self._copied:
            if self.mode != STRICT and path.find(schema) is None:
                raise missing_field(schema, path.text, path.text)
            own = field.marked(path.schema(schema) if self.mode == STRICT else path.field(schema).schema)
            builder.field(field.name, own)
            get = path.getter(schema, with_default=with_default)
            work.append((get, None if may_be_null(own, self.mode) else path.text))

        def values(struct: Struct) -> list[Any]:
            made = []
            for get, required in work:
                found = get(struct)
                if found is None and required is not None:
                    raise null_in_required(required)
                made.append(found)
            return made

        key_schema = builder.build()
        if self._bare:
            return Plan(key_schema.fields[0].schema, lambda struct, _: values(struct)[0])
        return Plan(key_schema, lambda struct, _: Struct.trusted(key_schema, values(struct)))


def _copied(text: str, mode: Mode) -> _Copied:
    bare, optional = split_mark(text, "fields") if mode == STRICT else (text, None)
    path = parse_path(bare, mode, "fields")
    return _Copied(path, NewField(path.steps[-1], optional))
