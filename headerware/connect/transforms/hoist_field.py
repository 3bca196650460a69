"""HoistField: wrap a key or value as the one field of a struct or dict (KIP-66).

transforms=wrap
transforms.wrap.type=org.apache.kafka.connect.transforms.HoistField$Value
transforms.wrap.field=line
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from headerware.connect.config import ConfigDef, ConfigKey
from headerware.connect.data.schema import SchemaBuilder, validate_value
from headerware.connect.data.struct import Struct
from headerware.connect.fields.paths import NewField, new_field
from headerware.connect.fields.structs import may_be_null, null_in_required
from headerware.connect.modes import STRICT
from headerware.connect.transforms.base import Plan, SchemaNamingTransform

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headerware.connect.data.schema import Schema
    from headerware.connect.modes import Mode


class HoistField(SchemaNamingTransform):
    """Wrap the key or value, also a null, as a field.

    In the strict mode ``name!`` makes the field required and ``name?`` optional, and ``schema.name``, which
    may contain ``${topic}``, names the struct.
    """

    CONFIG: ClassVar[ConfigDef] = ConfigDef(
        ConfigKey(name="field", type="STRING", doc="The field."),
        ConfigKey(
            name="schema.name",
            type="STRING",
            default=None,
            strict_only=True,
            doc="The name of the struct's schema; ${topic} is the record's topic.",
        ),
    )

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = STRICT) -> None:
        super().__init__(config, mode=mode)
        text = self.options["field"]
        self._field: Final = new_field(text, mode, "field") if mode == STRICT else NewField(text, None)
        self._schema_name: Final = self._constant_name(self.options.get("schema.name"))

    def null(self, record: Any, schema: Schema | None) -> Any:
        """Return a record with a struct or dict whose field is null.

        Raises:
            ConnectDataError: the field may not be null.
        """
        if schema is None:
            return record.with_part(self.part, None, self.schemaless(None, record))
        plan = self.planned(schema)
        return record.with_part(self.part, plan.schema, plan.apply(None, record))

    def schemaless(self, value: Any, record: Any) -> dict[str, Any]:
        """Return a dict of one field.

        Raises:
            ConnectDataError: the value is null, and the field required.
        """
        del record
        if value is None and self._field.optional is False:
            raise null_in_required(self._field.name)
        return {self._field.name: value}

    def plan(self, schema: Schema) -> Plan:
        """Return the plan for the values of a schema.

        Raises:
            SchemaBuilderError: the field has no name, in ``kafka_4_3``.
        """
        name = self._field.name
        updated = (
            SchemaBuilder.struct().name(self._schema_name).field(name, self._field.marked(schema)).build()
        )
        nullable = may_be_null(updated.fields[0].schema, self.mode)
        where, same = f"field {name!r}", self._same

        def apply(value: Any, _: Any) -> Struct:
            if value.__class__ is Struct and same(value.schema, schema):
                # Values were checked when they were set; only fields that were never set may be wrong.
                if None in value.values:
                    value.validate()
            elif value is not None:
                validate_value(schema, value, where)
            elif not nullable:
                raise null_in_required(name)
            return Struct.trusted(updated, [value])

        return Plan(updated, apply)
