"""Convert points in time between text, Unix time and Connect's Date, Time and Timestamp."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from headerware.connect.config import ConfigDef
from headerware.connect.config import ConfigKey
from headerware.connect.config import one_of
from headerware.connect.data.logical import Date
from headerware.connect.data.logical import Time
from headerware.connect.data.logical import Timestamp
from headerware.connect.data.numbers import wrapped_int64
from headerware.connect.data.schema import INT64_SCHEMA
from headerware.connect.data.schema import STRING_SCHEMA
from headerware.connect.data.schema import Schema
from headerware.connect.data.schema import Type
from headerware.connect.data.times import DAY_MS
from headerware.connect.data.times import Instant
from headerware.connect.data.times import from_epoch_ms
from headerware.connect.data.times import is_time
from headerware.connect.data.times import to_epoch_ms
from headerware.connect.data.validation import DATE
from headerware.connect.data.validation import TIME
from headerware.connect.data.validation import TIMESTAMP
from headerware.connect.data.validation import is_instance
from headerware.connect.errors import ArgumentError
from headerware.connect.errors import ConnectConfigError
from headerware.connect.errors import ConnectDataError
from headerware.connect.errors import ConnectError
from headerware.connect.errors import NullValueError
from headerware.connect.fields.paths import parse_path
from headerware.connect.fields.requirements import require_map
from headerware.connect.fields.rewrites import Change
from headerware.connect.fields.rewrites import Edits
from headerware.connect.fields.rewrites import rewrite_dict
from headerware.connect.fields.schemas import altered
from headerware.connect.java.dates.date_format import DateFormat
from headerware.connect.modes import Mode
from headerware.connect.modes import STRICT
from headerware.connect.transforms.base import PartTransform
from headerware.connect.transforms.base import Plan
from headerware.connect.transforms.cast_fields import exact_fields_plan
from headerware.connect.transforms.cast_fields import fields_plan
from typing import Any
from typing import ClassVar
from typing import Final
from typing import NamedTuple
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from headerware.connect.data.schema import Field
    from headerware.connect.java.dates.zones import NamedZone

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


STRING: Final = "string"
UNIX: Final = "unix"
Convert = Callable[[Any], Any]
_UNITS: Final = {
    "seconds": (1000, 1),
    "milliseconds": (1, 1),
    "microseconds": (1, 1000),
    "nanoseconds": (1, 10**6),
}
"""By the precision: milliseconds in a unit, and units in a millisecond."""
PRECISIONS: Final = ("nanoseconds", "microseconds", "milliseconds", "seconds")
TARGETS: Final = {
    STRING: STRING_SCHEMA,
    UNIX: INT64_SCHEMA,
    "Date": Date.SCHEMA,
    "Time": Time.SCHEMA,
    "Timestamp": Timestamp.SCHEMA,
}
"""The schemas of the forms, by their names in configuration."""
_LOGICAL: Final = {DATE: "Date", TIME: "Time", TIMESTAMP: "Timestamp"}
_BY_TYPE: Final = {Type.STRING: STRING, Type.INT64: UNIX}
_INT64_MAX: Final = (1 << 63) - 1


def source_form(schema: Schema) -> str:
    """Name the form that values of a schema have.

    Raises:
        ConnectError: they are no points in time.
    """
    form = _LOGICAL.get(schema.name or "") or _BY_TYPE.get(schema.type)
    if form is None:
        raise ConnectError(
            f"expected a string, an int64, or a Date, Time or Timestamp to convert, found {schema}"
        )
    return form


def form_of(value: Any) -> str:
    """Name the form of a value without a schema.

    Raises:
        ConnectDataError: it is no point in time.
    """
    if is_time(value):
        return "Timestamp"
    if isinstance(value, str):
        return STRING
    if is_instance(value, (int,)):
        return UNIX
    raise ConnectDataError(
        f"expected a str, an int or a datetime to convert to another form, found {type(value).__name__}"
    )


class Forms(NamedTuple):
    """Convert from any form to one of them.

    Args:
        target: the form to give.
        dates: how text is read and written; None where no pattern is configured.
        precision: the unit of Unix time.
        mode: strict refuses what overflows and digits that would be lost.
    """

    target: str
    dates: DateFormat | None
    precision: str
    mode: Mode

    def schema(self, *, optional: bool) -> Schema:
        """Return the schema of what comes out."""
        schema = TARGETS[self.target]
        return altered(schema, optional=True) if optional else schema

    def converter(self, source: str) -> Convert:
        """Return a function that converts from one form; null stays null.

        Raises:
            ConnectDataError: text is to be read, and there is no pattern, in the strict mode.
        """
        read, write = self._reader(source), self._writer()
        if self.mode == STRICT and source == self.target == UNIX:
            return lambda value: None if value is None else _int64(value)
        if source == self.target == STRING and self.mode != STRICT:
            # What Java's formatter reads of a zone, it goes on to write in.
            return lambda value: None if value is None else self._dates().format(*self._zoned(value))
        return lambda value: None if value is None else write(read(value))

    def _reader(self, source: str) -> Convert:
        if source == STRING:
            if self.mode == STRICT:
                parse = self._dates().parse
                return lambda value: parse(_text(value))
            return lambda value: self._zoned(value)[0]
        return self._from_unix if source == UNIX else _time

    def _zoned(self, value: Any) -> tuple[datetime | Instant, NamedZone | None]:
        text = _text(value)
        return self._dates().parse_zoned(text)

    def _writer(self) -> Convert:
        if self.target == STRING:
            return self._dates().format
        if self.target == UNIX:
            return self._to_unix
        return {"Date": _midnight, "Time": _of_day, "Timestamp": lambda value: value}[self.target]

    def _dates(self) -> DateFormat:
        if self.dates is None:
            if self.mode == STRICT:
                raise ConnectDataError(
                    "expected the key 'format', which says how to read text; there is none"
                )
            raise NullValueError("expected a pattern to read text by, found none")
        return self.dates

    def _from_unix(self, value: Any) -> datetime | Instant:
        factor, divisor = _UNITS[self.precision]
        epoch_ms, rest = divmod(_int64(value) * factor, divisor)
        if self.mode == STRICT:
            if rest:
                raise ConnectDataError(
                    f"expected {self.precision} that are whole milliseconds, as Connect keeps, found others"
                )
            return from_epoch_ms(_fitting(epoch_ms))
        # Java's division is towards zero, and its multiplication stops at the ends of the range.
        return from_epoch_ms(_saturated(epoch_ms + (rest != 0 and epoch_ms < 0)))

    def _to_unix(self, value: datetime | Instant) -> int:
        factor, divisor = _UNITS[self.precision]
        units, rest = divmod(to_epoch_ms(value) * divisor, factor)
        if self.mode == STRICT:
            return _fitting(units)
        return _saturated(units + (rest != 0 and units < 0))


def _int64(value: Any) -> int:
    if not is_instance(value, (int,)):
        raise ConnectDataError(f"expected an int64 for a Unix time, found {type(value).__name__}")
    number: int = value
    return number


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ConnectDataError(f"expected a str for the text of a time, found {type(value).__name__}")
    return value


def _time(value: Any) -> datetime | Instant:
    if not is_time(value):
        raise ConnectDataError(f"expected a datetime for a point in time, found {type(value).__name__}")
    found: datetime | Instant = value
    return found


def _midnight(value: datetime | Instant) -> datetime | Instant:
    epoch_ms = to_epoch_ms(value)
    return from_epoch_ms(wrapped_int64(epoch_ms - epoch_ms % DAY_MS))


def _of_day(value: datetime | Instant) -> datetime | Instant:
    return from_epoch_ms(to_epoch_ms(value) % DAY_MS)


def _saturated(number: int) -> int:
    return max(-_INT64_MAX - 1, min(_INT64_MAX, number))


def _fitting(number: int) -> int:
    if number != _saturated(number):
        raise ConnectDataError("expected a time that fits into 64 bits, found a larger one")
    return number
