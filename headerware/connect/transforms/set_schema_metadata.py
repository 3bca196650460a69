"""SetSchemaMetadata: name a schema, or set its version (KIP-66).

transforms=name
transforms.name.type=org.apache.kafka.connect.transforms.SetSchemaMetadata$Value
transforms.name.schema.name=com.example.${topic}
transforms.name.schema.version=2
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from headerware.connect.config import ConfigDef, ConfigKey
from headerware.connect.data.schema import LOGICAL_CLASSES, Schema, Type
from headerware.connect.data.struct import Struct
from headerware.connect.errors import ConnectConfigError, ConnectDataError, FieldIndexError
from headerware.connect.fields.structs import altered, another_schema, copier, require_struct
from headerware.connect.modes import STRICT
from headerware.connect.transforms.base import Plan, SchemaNamingTransform
from headerware.connect.transforms.keys import REPLACE_NULL_WITH_DEFAULT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headerware.connect.modes import Mode


class SetSchemaMetadata(SchemaNamingTransform):
    """Set the name or the version of a schema, or both.

    In the strict mode ``${topic}`` in the name is the record's topic, and schemas of any type can be named,
    except logical types, because their values would no longer fit.

    Raises:
        ConnectConfigError: neither a name nor a version is given.
    """

    CONFIG: ClassVar[ConfigDef] = ConfigDef(
        ConfigKey(name="schema.name", type="STRING", default=None, importance="HIGH", doc="The name."),
        ConfigKey(name="schema.version", type="INT", default=None, importance="HIGH", doc="The version."),
        REPLACE_NULL_WITH_DEFAULT,
    )

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = STRICT) -> None:
        super().__init__(config, mode=mode)
        name, version = self.options["schema.name"], self.options["schema.version"]
        if name is None and version is None:
            raise ConnectConfigError("expected schema.name or schema.version, found neither")
        self._version: Final = version
        self._name: Final = self._constant_name(name)
        if mode == STRICT and self._name == "":
            raise ConnectConfigError("expected a name, found an empty text", path="schema.name")

    def null(self, record: Any, schema: Schema | None) -> Any:
        """Return a record whose null has the new schema, or the record itself if the null has no schema."""
        return record if schema is None else record.with_part(self.part, self.planned(schema).schema, None)

    def schemaless(self, value: Any, record: Any) -> Any:
        """Refuse a value without a schema.

        Raises:
            ConnectDataError: always.
        """
        del value, record
        raise ConnectDataError("expected a value with a schema to name, found one without")

    def plan(self, schema: Schema) -> Plan:
        """Return the plan for the values of a schema.

        Raises:
            ConnectDataError: this schema cannot be named.
        """
        name = schema.name if self._name is None else self._name
        if self.mode == STRICT:
            _check_logical(schema, name)
        elif schema.type is not Type.STRUCT:
            raise ConnectDataError(f"only a struct's schema can be named or versioned; this one is {schema}")
        version = schema.version if self._version is None else self._version
        updated = altered(schema, name=name, version=version)
        if schema.type is not Type.STRUCT:
            return Plan(updated, lambda value, _: value)
        return self._of_structs(schema, updated)

    def _of_structs(self, schema: Schema, updated: Schema) -> Plan:
        same, strict = self._same, self.mode == STRICT
        copied = copier(
            schema.fields,
            [field.schema for field in schema.fields],
            mode=self.mode,
            with_default=self.options[REPLACE_NULL_WITH_DEFAULT.name],
        )
        if strict and schema.default is not None:
            updated = altered(updated, default=Struct.trusted(updated, list(schema.default.values)))

        def apply(value: Any, _: Any) -> Any:
            if value.__class__ is not Struct:
                return require_struct(value, "its schema") if strict else value
            if not same(value.schema, schema):
                if strict:
                    raise another_schema(schema)
                return self._of_another(value, updated)
            return Struct.trusted(updated, copied(value.values))

        return Plan(updated, apply)

    def _of_another(self, struct: Struct, updated: Schema) -> Struct:
        made = Struct(updated)
        with_default = self.options[REPLACE_NULL_WITH_DEFAULT.name]
        try:
            for field in updated.fields:
                made.put(field, struct.get(field) if with_default else struct.get_without_default(field.name))
        except IndexError as error:
            raise FieldIndexError("the struct has fewer fields than its record's schema") from error
        return made


def _check_logical(schema: Schema, name: str | None) -> None:
    if name != schema.name and (schema.name in LOGICAL_CLASSES or name in LOGICAL_CLASSES):
        raise ConnectDataError(f"values of {schema} would not fit a schema of the name {name!r}")
