"""SetField: set a field to an expression's value.

transforms=total
transforms.total.type=SetField$Value
transforms.total.field=total
transforms.total.expression=value.price * value.quantity
transforms.total.field.type=int64
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final

from headerware.connect.config import NOT_EMPTY_TEXT, Check, ConfigDef, ConfigKey, StrictConfig
from headerware.connect.data.logical import Timestamp
from headerware.connect.data.schema import Field, Schema, Type
from headerware.connect.data.struct import Struct, conformed
from headerware.connect.errors import ConnectDataError
from headerware.connect.expressions import CompiledExpression
from headerware.connect.fields.paths import new_field
from headerware.connect.fields.structs import altered, require_map
from headerware.connect.modes import STRICT
from headerware.connect.transforms.base import PartTransform, Plan
from headerware.connect.transforms.keys import PRIMITIVES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headerware.connect.modes import Mode

_TIMESTAMP: Final = "timestamp"
_TYPES: Final = {
    "BOOL": "boolean",
    "INT": "int64",
    "DOUBLE": "float64",
    "STRING": "string",
    "BYTES": "bytes",
    "TIMESTAMP": _TIMESTAMP,
}
"""The types of fields, by the types of expressions."""


_KINDS: Final = (*PRIMITIVES, _TIMESTAMP)


def _refuse_kind(value: str | None) -> str | None:
    return None if value is None or value in _KINDS else f"expected one of {', '.join(_KINDS)}"


class SetField(PartTransform):
    """Add or replace a field, with the value of an expression over the record.

    In a value with a schema the field's type is ``field.type``, or the expression's type if it is known
    beforehand. The field may be null unless its name ends with ``!``. A tombstone stays a tombstone.
    """

    CONFIG: ClassVar[ConfigDef] = StrictConfig(
        ConfigKey(
            name="field", type="STRING", importance="HIGH", check=NOT_EMPTY_TEXT, doc="The field's name."
        ),
        ConfigKey(
            name="expression",
            type="STRING",
            importance="HIGH",
            check=NOT_EMPTY_TEXT,
            doc="The expression that computes the field's value.",
        ),
        ConfigKey(
            name="field.type",
            type="STRING",
            default=None,
            check=Check(f"[{', '.join(_KINDS)}]", _refuse_kind),
            doc="The field's type, in a value with a schema.",
        ),
    )

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = STRICT) -> None:
        super().__init__(config, mode=mode)
        self._field: Final = new_field(self.options["field"], STRICT, "field")
        self._expression: Final = CompiledExpression(self.options["expression"])
        kind = self.options["field.type"] or _TYPES.get(self._expression.result_type)
        self._schema: Final = None if kind is None else self._field.marked(_schema(kind))

    def schemaless(self, value: Any, record: Any) -> Any:
        """Return the dict with the field.

        Raises:
            ConnectDataError: the value is not a dict, or the expression cannot be evaluated.
        """
        fields = require_map(value, "the field")
        found = self._expression.evaluate(record)
        if found is None and self._field.optional is False:
            raise ConnectDataError(
                f"expected a value for the required field {self._field.name!r}, found null"
            )
        return {**fields, self._field.name: found if self._schema is None else _fitting(self._schema, found)}

    def plan(self, schema: Schema) -> Plan:
        """Return the plan for the values of a schema.

        Raises:
            ConnectDataError: the schema is not a struct's, or the field's type is not known.
        """
        own, name = self._schema, self._field.name
        if schema.type is not Type.STRUCT:
            raise ConnectDataError(f"expected a struct for the field, found {schema.type.value}")
        if own is None:
            raise ConnectDataError(
                f"the type of {name!r} depends on the record; set field.type for values with a schema"
            )
        old = schema.by_name.get(name)
        at = len(schema.fields) if old is None else old.index
        fields = [*schema.fields]
        fields[at : at + 1] = [Field(name, at, own)]
        made = altered(schema, fields=tuple(fields), default=None)

        def apply(value: Any, record: Any) -> Struct:
            values = [*self._same.struct(value, schema, "the field").values]
            values[at : at + 1] = [_fitting(own, self._expression.evaluate(record))]
            return Struct.trusted(made, values)

        return Plan(made, apply)


def _schema(kind: str) -> Schema:
    if kind == _TIMESTAMP:
        return altered(Timestamp.SCHEMA, optional=True)
    return Schema(PRIMITIVES[kind], optional=True)


def _fitting(schema: Schema, value: Any) -> Any:
    """Return the result of an expression as a field's value, or raise ConnectDataError."""
    if isinstance(value, datetime) and value.microsecond % 1000:
        raise ConnectDataError("the expression returns a point in time that is finer than a millisecond")
    if schema.type in _FLOATS and type(value) is int and int(float(value)) != value:
        raise ConnectDataError("the expression returns an integer that a floating-point number cannot hold")
    return conformed(schema, value, "the expression's value")


_FLOATS: Final = frozenset({Type.FLOAT32, Type.FLOAT64})
