"""ExtractField: replace a struct or dict by one of its fields (KIP-66, KIP-821).

transforms=id
transforms.id.type=org.apache.kafka.connect.transforms.ExtractField$Key
transforms.id.field=customer.id
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from headerware.connect.config import ConfigKey, one_of_any_case
from headerware.connect.errors import ArgumentError, ConnectConfigError, ConnectDataError, NullValueError
from headerware.connect.fields.paths import ABSENT, FieldPath, parse_path, parse_versioned_path
from headerware.connect.fields.structs import (
    altered,
    another_schema,
    require_map,
    require_struct,
)
from headerware.connect.modes import STRICT
from headerware.connect.transforms.base import PartTransform, Plan
from headerware.connect.transforms.keys import REPLACE_NULL_WITH_DEFAULT, KeysByMode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headerware.connect.data.schema import Schema
    from headerware.connect.modes import Mode

_SYNTAX: Final = "field.syntax.version"
_PURPOSE: Final = "the extraction of a field"


def _syntax(default: str | None) -> ConfigKey:
    versions = one_of_any_case("V1", "V2")
    return ConfigKey(
        name=_SYNTAX,
        type="STRING",
        default=default,
        importance="HIGH",
        check=versions if default is not None else None,
        doc="V1: the field is one name; V2: dots lead into structs, and names with dots are in backticks. By "
        "default, in the strict mode, dots lead into structs unless a backslash precedes them.",
    )


class ExtractField(PartTransform):
    r"""Replace a struct or dict by one of its fields; null stays null.

    In the strict mode ``a.b`` is the field b in a, ``a\.b`` the field named "a.b", and a dict without the
    field is refused, because a null value would be a tombstone.
    """

    CONFIG: ClassVar[KeysByMode] = KeysByMode(
        ConfigKey(name="field", type="STRING", doc="The field."),
        REPLACE_NULL_WITH_DEFAULT,
        _syntax("V1"),
        strict=[_syntax(None)],
    )

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = STRICT) -> None:
        super().__init__(config, mode=mode)
        self._path: Final = self._parsed()
        self._with_default: Final = self.options[REPLACE_NULL_WITH_DEFAULT.name]

    def _parsed(self) -> FieldPath:
        text, version = self.options["field"], self.options[_SYNTAX]
        if text is None:
            raise NullValueError("expected the name of a field, found null")
        if version is None:
            return parse_path(text, self.mode, "field")
        path = parse_versioned_path(text, version, "field")
        if self.mode == STRICT and (not path.steps or "" in path.steps):
            raise ConnectConfigError(f"found an empty name in the path {text!r}", path="field")
        return path

    def null(self, record: Any, schema: Schema | None) -> Any:
        """Return a record with a null of the field's schema.

        Raises:
            ConnectError: the schema has no such field.
        """
        if schema is None:
            return record.with_part(self.part, None, None)
        plan = self.planned(schema)
        return record.with_part(self.part, plan.schema, plan.apply(None, record))

    def schemaless(self, value: Any, record: Any) -> Any:
        """Return a field of a dict.

        Raises:
            ConnectDataError: the value is not a dict; in the strict mode, it has no such field.
        """
        del record
        found = self._path.from_dict(require_map(value, _PURPOSE), ABSENT if self.mode == STRICT else None)
        if found is ABSENT:
            self._path.refuse_dotted(value)
            raise ConnectDataError(f"there is no field {self._path.text!r}")
        return found

    def plan(self, schema: Schema) -> Plan:
        """Return the plan for the values of a schema.

        Raises:
            ArgumentError: there is no such field, in ``kafka_4_3``.
            ConnectDataError: there is no such field, or a step of the path is not a struct.
        """
        path, with_default, same, strict = self._path, self._with_default, self._same, self.mode == STRICT
        if strict:
            field_schema = path.schema(schema)
            if schema.optional and not field_schema.optional:
                field_schema = altered(field_schema, optional=True)
        else:
            field = path.find(schema) if path.steps else None
            if field is None:
                return Plan(None, lambda value, _: _refuse(value, schema, path))
            field_schema = field.schema
        get = path.getter(schema, with_default=with_default)

        def apply(value: Any, _: Any) -> Any:
            if value is None:
                return None
            struct = require_struct(value, _PURPOSE)
            if same(struct.schema, schema):
                return get(struct)
            if strict:
                raise another_schema(schema)
            return path.from_struct(struct, with_default=with_default)

        return Plan(field_schema, apply)


def _refuse(value: Any, schema: Schema, path: FieldPath) -> Any:
    # Kafka looks for the field when it has a struct.
    if value is not None:
        require_struct(value, _PURPOSE)
    raise ArgumentError(f"{schema} has no field {path.text!r}")
