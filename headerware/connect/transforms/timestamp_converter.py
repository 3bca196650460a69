"""Convert points in time between text, Unix time and Connect's Date, Time and Timestamp."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from headerware.connect.config import ConfigDef, ConfigKey, one_of
from headerware.connect.errors import ArgumentError, ConnectConfigError, ConnectError, NullValueError
from headerware.connect.fields.paths import parse_path
from headerware.connect.fields.requirements import require_map
from headerware.connect.fields.rewrites import Change, Edits, rewrite_dict
from headerware.connect.fields.schemas import altered
from headerware.connect.java.date_format import DateFormat
from headerware.connect.modes import STRICT, Mode
from headerware.connect.transforms.base import PartTransform, Plan
from headerware.connect.transforms.cast_fields import exact_fields_plan, fields_plan
from headerware.connect.transforms.timestamp_converter_forms import (
    PRECISIONS,
    STRING,
    TARGETS,
    Convert,
    Forms,
    form_of,
    source_form,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headerware.connect.data.schema import Field, Schema

FIELD: Final = "field"
TARGET_TYPE: Final = "target.type"
FORMAT: Final = "format"
UNIX_PRECISION: Final = "unix.precision"
REPLACE_NULL: Final = "replace.null.with.default"
_PURPOSE: Final = "the conversion of a point in time"


class TimestampConverter(PartTransform):
    """Convert a field, or the whole key or value, to another form of a point in time.

    Args:
        config: ``field`` (empty for the whole value), ``target.type`` (string, unix, Date, Time, Timestamp),
            ``format`` for text, ``unix.precision``, ``replace.null.with.default``.
        mode: strict reads text exactly, and refuses a field that a schema does not have, times that do not
            fit, and fractions of milliseconds.

    Raises:
        ConnectConfigError: a key is missing, not known, or has a value that it cannot have.
    """

    CONFIG: ClassVar[ConfigDef] = ConfigDef(
        ConfigKey(
            name=FIELD,
            type="STRING",
            default="",
            importance="HIGH",
            doc="The field to convert; empty for the whole key or value.",
        ),
        ConfigKey(
            name=TARGET_TYPE,
            type="STRING",
            importance="HIGH",
            doc="The form to convert to: string, unix, Date, Time or Timestamp.",
            check=one_of(*TARGETS),
        ),
        ConfigKey(
            name=FORMAT,
            type="STRING",
            default="",
            doc="How text is written and read, as java.text.SimpleDateFormat has it.",
        ),
        ConfigKey(
            name=UNIX_PRECISION,
            type="STRING",
            default="milliseconds",
            importance="LOW",
            doc="The unit of Unix time, read or written. Connect keeps milliseconds.",
            check=one_of(*PRECISIONS),
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
        self._field: str | None = self.options[FIELD]
        target = self.options[TARGET_TYPE]
        dates = _dates(self.options[FORMAT], target, mode)
        self._forms = Forms(target, dates, self.options[UNIX_PRECISION], mode)
        self._edits: Edits[Convert] | None = None
        if mode == STRICT and self._field:
            self._edits = Edits([(parse_path(self._field, mode, FIELD), self._convert)], FIELD)
        self._converters: dict[str, Convert] = {}

    def null(self, record: Any, schema: Schema | None) -> Any:
        """Return a null the new schema, where it has one."""
        made = None if schema is None else self.planned(schema).schema
        return record.with_part(self.part, made, None)

    def schemaless(self, value: Any, record: Any) -> Any:
        """Convert a value without a schema, by its class."""
        del record
        field = self._named_field()
        if not field:
            return self._convert(value)
        fields = require_map(value, _PURPOSE)
        if self._edits is not None:
            return rewrite_dict(fields, self._edits.root, lambda item, convert: convert(item))
        return {**fields, field: self._convert(fields.get(field))}

    def plan(self, schema: Schema) -> Plan:
        """Say what to do to the values of a schema."""
        with_default = self.options[REPLACE_NULL]
        field = self._named_field()
        if not field:
            convert = self._forms.converter(source_form(schema))
            return Plan(self._converted(schema, convert), lambda value, _: convert(value))
        if self._edits is not None:
            return exact_fields_plan(
                schema, self._edits, self._changed, with_default=with_default, purpose=_PURPOSE
            )
        return fields_plan(schema, self._change, with_default=with_default, purpose=_PURPOSE)

    def _named_field(self) -> str:
        if self._field is None:
            raise NullValueError(f"expected a name for {FIELD}, found null")
        return self._field

    def _convert(self, value: Any) -> Any:
        if value is None:
            return None
        form = form_of(value)
        convert = self._converters.get(form)
        if convert is None:
            convert = self._converters[form] = self._forms.converter(form)
        return convert(value)

    def _changed(self, field: Field, _: Convert) -> Change:
        convert = self._forms.converter(source_form(field.schema))
        return Change(field.name, self._converted(field.schema, convert), convert)

    def _converted(self, schema: Schema, convert: Convert) -> Schema:
        """Give what a schema becomes; its default and its description, which Kafka loses, stay in strict."""
        made = self._forms.schema(optional=schema.optional)
        if self.mode != STRICT or (schema.default is None and schema.doc is None):
            return made
        return altered(made, default=convert(schema.default), doc=schema.doc)

    def _change(self, field: Field) -> Change:
        if field.name != self._field:
            return Change(field.name, field.schema)
        schema = self._forms.schema(optional=field.schema.optional)
        try:
            return Change(field.name, schema, self._forms.converter(source_form(field.schema)))
        except ConnectError:
            # That the field is no point in time matters with the first value only, null as it may be.
            return Change(field.name, schema, lambda _: source_form(field.schema))


def _dates(pattern: str | None, target: str, mode: Mode) -> DateFormat | None:
    if not pattern:
        if target == STRING:
            raise ConnectConfigError("target.type=string needs a pattern to write by", path=FORMAT)
        return None
    try:
        return DateFormat(pattern, mode)
    except ArgumentError as error:
        raise ConnectConfigError(str(error), path=FORMAT) from error
