"""Cast fields, or the whole key or value, to other types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from headerware.connect.config import Check, ConfigDef, ConfigKey
from headerware.connect.data.schema import SchemaBuilder, Type
from headerware.connect.fields.requirements import require_map
from headerware.connect.fields.rewrites import Change, rewrite_dict
from headerware.connect.modes import STRICT, Mode
from headerware.connect.transforms.base import PartTransform, Plan
from headerware.connect.transforms.cast_exact import LOGICAL_NAMES, exact_cast
from headerware.connect.transforms.cast_fields import exact_fields_plan, fields_plan
from headerware.connect.transforms.cast_kafka import TARGETS, kafka_cast
from headerware.connect.transforms.cast_spec import SPEC, FieldCasts, parse_spec, refuse_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headerware.connect.data.schema import Field, Schema

REPLACE_NULL: Final = "replace.null.with.default"
_PURPOSE: Final = "casts"


class Cast(PartTransform):
    """Cast fields, or the whole key or value, to other types.

    Args:
        config: ``spec``, as ``field:type,other:type``, or a type alone for the whole key or value; and
            ``replace.null.with.default``. Types are int8, int16, int32, int64, float32, float64, boolean and
            string; bytes are cast to string only, in base64.
        mode: strict refuses numbers that do not fit or would lose digits, texts that are written otherwise,
            and fields that a schema does not have.

    Raises:
        ConnectConfigError: a key is missing, not known, or has a value that it cannot have.
    """

    CONFIG: ClassVar[ConfigDef] = ConfigDef(
        ConfigKey(
            name=SPEC,
            type="LIST",
            importance="HIGH",
            doc="The fields and the types to cast them to: field:type,other:type; or a type alone.",
            check=Check(
                "list of colon-delimited pairs, e.g. <code>foo:bar,abc:xyz</code>",
                refuse_spec,
            ),
        ),
        ConfigKey(
            name=REPLACE_NULL,
            type="BOOLEAN",
            default=True,
            doc="Whether a null becomes its field's default.",
        ),
    )

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = STRICT) -> None:
        super().__init__(config, mode=mode)
        spec = parse_spec(self.options[SPEC], mode)
        self._whole = spec.whole
        self._fields: FieldCasts = spec.fields
        self._compile: Callable[[Schema | None, Type], Callable[[Any], Any]] = (
            exact_cast if mode == STRICT else kafka_cast
        )
        self._schemaless = {kind: self._compile(None, kind) for kind in TARGETS}

    def schemaless(self, value: Any, record: Any) -> Any:
        """Cast a value without a schema, by its class."""
        del record
        if self._whole is not None:
            return self._schemaless[self._whole](value)
        fields = require_map(value, _PURPOSE)
        if self._fields.edits is not None:
            return rewrite_dict(
                fields, self._fields.edits.root, lambda item, kind: self._schemaless[kind](item)
            )
        made = dict(fields)
        for name, kind in self._fields.by_name.items():
            made[name] = self._schemaless[kind](fields.get(name))
        return made

    def plan(self, schema: Schema) -> Plan:
        """Say what to do to the values of a schema."""
        if self._whole is not None:
            cast = self._compile(schema, self._whole)
            return Plan(self._whole_schema(schema, self._whole), lambda value, _: cast(value))
        with_default = self.options[REPLACE_NULL]
        if self._fields.edits is not None:
            return exact_fields_plan(
                schema, self._fields.edits, self._exactly, with_default=with_default, purpose=_PURPOSE
            )
        return fields_plan(
            schema,
            self._change,
            with_default=with_default,
            purpose=_PURPOSE,
            # Kafka tries to cast the whole default, which is a struct, and so is refused.
            of_default=kafka_cast(schema, Type.STRING),
        )

    def _whole_schema(self, schema: Schema, kind: Type) -> Schema:
        """Return what a whole value's schema becomes; Kafka keeps even names that are no longer true."""
        cast = self._compile(schema, kind)
        builder = SchemaBuilder(kind)
        _describe(builder, schema, logical=self.mode != STRICT)
        if schema.optional:
            builder.optional()
        if schema.default is not None:
            builder.default(cast(schema.default))
        return builder.build()

    def _change(self, field: Field) -> Change:
        kind = self._fields.by_name.get(field.name)
        if kind is None:
            return Change(field.name, field.schema)
        return self._changed(field, SchemaBuilder(kind), kafka_cast(field.schema, kind))

    def _exactly(self, field: Field, kind: Type) -> Change:
        builder = SchemaBuilder(kind)
        _describe(builder, field.schema, logical=False)
        return self._changed(field, builder, exact_cast(field.schema, kind))

    @staticmethod
    def _changed(field: Field, builder: SchemaBuilder, cast: Callable[[Any], Any]) -> Change:
        if field.schema.optional:
            builder.optional()
        if field.schema.default is not None:
            builder.default(cast(field.schema.default))
        return Change(field.name, builder.build(), cast)


def _describe(builder: SchemaBuilder, schema: Schema, *, logical: bool) -> None:
    """Copy what a schema says of its values beyond their type; a logical type's name only where asked for."""
    builder.doc(schema.doc)
    if logical or schema.name not in LOGICAL_NAMES:
        builder.name(schema.name).version(schema.version).parameters(schema.parameters or {})
