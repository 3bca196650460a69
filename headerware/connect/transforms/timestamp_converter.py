"""TimestampConverter: convert points in time from one form to another (KIP-66).

transforms=time
transforms.time.type=org.apache.kafka.connect.transforms.TimestampConverter$Value
transforms.time.field=created
transforms.time.target.type=Timestamp
transforms.time.format=yyyy-MM-dd HH:mm:ss

The forms are text, Unix time, and Connect's Date, Time and Timestamp. Between two forms a value is a
``datetime`` in UTC, or an ``Instant`` if that cannot hold it, to the millisecond.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final

from headerware.connect.config import ConfigDef, ConfigKey, one_of
from headerware.connect.data.logical import Date, Time, Timestamp
from headerware.connect.data.numbers import wrapped_int64
from headerware.connect.data.schema import (
    DATE,
    INT64_SCHEMA,
    STRING_SCHEMA,
    TIME,
    TIMESTAMP,
    Schema,
    Type,
    is_instance,
)
from headerware.connect.data.times import DAY_MS, Instant, from_epoch_ms, is_time, to_epoch_ms
from headerware.connect.errors import (
    ArgumentError,
    ConnectConfigError,
    ConnectDataError,
    ConnectError,
    NullValueError,
)
from headerware.connect.fields.paths import FieldPath, parse_path
from headerware.connect.fields.rewrites import Change, Edits, Rewrite, kafka_rewrite, rewrite, rewrite_dict
from headerware.connect.fields.structs import altered, require_map
from headerware.connect.java.date_format import DateFormat
from headerware.connect.modes import STRICT, Mode
from headerware.connect.transforms.base import PartTransform, Plan
from headerware.connect.transforms.keys import REPLACE_NULL_WITH_DEFAULT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headerware.connect.data.schema import Field
    from headerware.connect.java.zones import NamedZone

_Convert = Callable[[Any], Any]
_FIELD: Final = "field"
_TARGET_TYPE: Final = "target.type"
_FORMAT: Final = "format"
_UNIX_PRECISION: Final = "unix.precision"
_PURPOSE: Final = "the conversion of a point in time"
_STRING: Final = "string"
_UNIX: Final = "unix"
_TARGETS: Final = {
    _STRING: STRING_SCHEMA,
    _UNIX: INT64_SCHEMA,
    "Date": Date.SCHEMA,
    "Time": Time.SCHEMA,
    "Timestamp": Timestamp.SCHEMA,
}
"""The schemas of the forms, by their names in configuration."""
_UNITS: Final = {
    "nanoseconds": (1, 10**6),
    "microseconds": (1, 1000),
    "milliseconds": (1, 1),
    "seconds": (1000, 1),
}
"""By the precision: milliseconds in a unit, and units in a millisecond."""
_LOGICAL: Final = {DATE: "Date", TIME: "Time", TIMESTAMP: "Timestamp"}
_BY_TYPE: Final = {Type.STRING: _STRING, Type.INT64: _UNIX}
_INT64_MAX: Final = (1 << 63) - 1


class TimestampConverter(PartTransform):
    """Convert a field, or the key or value itself, to another form of a point in time.

    Args:
        config: ``field`` (empty for the key or value itself), ``target.type`` (string, unix, Date, Time,
            Timestamp), ``format`` for text, ``unix.precision``, ``replace.null.with.default``.
        mode: strict reads text exactly, and refuses a field that a schema does not have, times that do not
            fit, and fractions of milliseconds.

    Raises:
        ConnectConfigError: a key is missing or unknown, or its value is not valid.
    """

    CONFIG: ClassVar[ConfigDef] = ConfigDef(
        ConfigKey(
            name=_FIELD,
            type="STRING",
            default="",
            importance="HIGH",
            doc="The field to convert; empty for the key or value itself.",
        ),
        ConfigKey(
            name=_TARGET_TYPE,
            type="STRING",
            importance="HIGH",
            doc="The form to convert to: string, unix, Date, Time or Timestamp.",
            check=one_of(*_TARGETS),
        ),
        ConfigKey(
            name=_FORMAT,
            type="STRING",
            default="",
            doc="The pattern of text, in the syntax of java.text.SimpleDateFormat.",
        ),
        ConfigKey(
            name=_UNIX_PRECISION,
            type="STRING",
            default="milliseconds",
            importance="LOW",
            doc="The unit of Unix time, read or written. Connect keeps milliseconds.",
            check=one_of(*_UNITS),
        ),
        REPLACE_NULL_WITH_DEFAULT,
    )

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = STRICT) -> None:
        super().__init__(config, mode=mode)
        self._field: Final[str | None] = self.options[_FIELD]
        self._mode: Final = (_StrictMode if mode == STRICT else _KafkaMode)(self.options)

    def null(self, record: Any, schema: Schema | None) -> Any:
        """Return the record with a null of the new schema, if the null has a schema."""
        made = None if schema is None else self.planned(schema).schema
        return record.with_part(self.part, made, None)

    def schemaless(self, value: Any, record: Any) -> Any:
        """Convert a value without a schema, by its class."""
        del record
        if not self._named_field():
            return self._mode.convert(value)
        return self._mode.of_dict(require_map(value, _PURPOSE))

    def plan(self, schema: Schema) -> Plan:
        """Return the plan for the values of a schema."""
        if not self._named_field():
            made, convert = self._mode.of_value(schema)
            return Plan(made, lambda value, _: convert(value))
        made, apply = self._mode.of_schema(schema)
        same = self._same
        return Plan(made, lambda value, _: apply(same.struct(value, schema, _PURPOSE)))

    def _named_field(self) -> str:
        if self._field is None:
            raise NullValueError(f"expected a name for {_FIELD}, found null")
        return self._field


class _Converters(ABC):
    """Convert from any form to the configured form; the modes differ if a value overflows or loses digits."""

    _mode: ClassVar[Mode]

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._field: Final[str] = options[_FIELD] or ""
        self._target: Final[str] = options[_TARGET_TYPE]
        self._precision: Final[str] = options[_UNIX_PRECISION]
        self._with_default: Final[bool] = options[REPLACE_NULL_WITH_DEFAULT.name]
        self._format: Final = _date_format(options[_FORMAT], self._target, self._mode)
        self._by_form: Final[dict[str, _Convert]] = {}

    def convert(self, value: Any) -> Any:
        """Convert a value without a schema, by its class; null stays null."""
        if value is None:
            return None
        form = _form_of(value)
        convert = self._by_form.get(form)
        if convert is None:
            convert = self._by_form[form] = self._converter(form)
        return convert(value)

    def of_value(self, schema: Schema) -> tuple[Schema, _Convert]:
        """Return the new schema of a value, and the function that converts it."""
        made = _TARGETS[self._target]
        return altered(made, optional=True) if schema.optional else made, self._converter(_form(schema))

    @abstractmethod
    def of_dict(self, fields: dict[str, Any]) -> dict[str, Any]:
        pass

    @abstractmethod
    def of_schema(self, schema: Schema) -> Rewrite:
        pass

    def _converter(self, source: str) -> _Convert:
        """Return the function that converts from one form; null stays null."""
        read, write = self._reader(source), self._writer()
        return lambda value: None if value is None else write(read(value))

    def _reader(self, source: str) -> _Convert:
        if source == _STRING:
            return self._text_reader()
        return self._from_unix if source == _UNIX else _time

    def _writer(self) -> _Convert:
        if self._target == _STRING:
            return self._dates().format
        if self._target == _UNIX:
            return self._to_unix
        return {"Date": _midnight, "Time": _of_day, "Timestamp": lambda value: value}[self._target]

    @abstractmethod
    def _dates(self) -> DateFormat: ...

    @abstractmethod
    def _text_reader(self) -> _Convert: ...

    @abstractmethod
    def _from_unix(self, value: Any) -> datetime | Instant: ...

    @abstractmethod
    def _to_unix(self, value: datetime | Instant) -> int: ...


class _KafkaMode(_Converters):
    """Convert as Kafka does: find a field by its name, and saturate numbers at the ends of their range."""

    _mode = "kafka_4_3"

    def of_dict(self, fields: dict[str, Any]) -> dict[str, Any]:
        return {**fields, self._field: self.convert(fields.get(self._field))}

    def of_schema(self, schema: Schema) -> Rewrite:
        return kafka_rewrite(schema, self._change, with_default=self._with_default)

    def _change(self, field: Field) -> Change:
        if field.name != self._field:
            return Change(field.name, field.schema)
        try:
            return Change(field.name, *self.of_value(field.schema))
        except ConnectError:
            # A field that is not a point in time is an error at the first value only, even if that is null.
            made = altered(_TARGETS[self._target], optional=field.schema.optional)
            return Change(field.name, made, lambda _: _form(field.schema))

    def _converter(self, source: str) -> _Convert:
        if source == self._target == _STRING:
            # Java's formatter then writes in the zone that it has read.
            return lambda value: None if value is None else self._dates().format(*self._zoned(value))
        return super()._converter(source)

    def _text_reader(self) -> _Convert:
        return lambda value: self._zoned(value)[0]

    def _zoned(self, value: Any) -> tuple[datetime | Instant, NamedZone | None]:
        text = _text(value)
        return self._dates().parse_zoned(text)

    def _dates(self) -> DateFormat:
        if self._format is None:
            raise NullValueError("expected a pattern to read text by, found none")
        return self._format

    def _from_unix(self, value: Any) -> datetime | Instant:
        factor, divisor = _UNITS[self._precision]
        epoch_ms, rest = divmod(_int64(value) * factor, divisor)
        # Kafka's conversion divides towards zero, and saturates at the ends of the range.
        return from_epoch_ms(_saturated(epoch_ms + (rest != 0 and epoch_ms < 0)))

    def _to_unix(self, value: datetime | Instant) -> int:
        factor, divisor = _UNITS[self._precision]
        units, rest = divmod(to_epoch_ms(value) * divisor, factor)
        return _saturated(units + (rest != 0 and units < 0))


class _StrictMode(_Converters):
    """Convert a field by its path, and refuse an overflow or a loss of digits."""

    _mode = STRICT

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        paths = [parse_path(self._field, STRICT, _FIELD)] if self._field else []
        self._edits: Final = Edits([(path, path) for path in paths], _FIELD)

    def of_dict(self, fields: dict[str, Any]) -> dict[str, Any]:
        return rewrite_dict(fields, self._edits.root, lambda value, _: self.convert(value))

    def of_schema(self, schema: Schema) -> Rewrite:
        return rewrite(schema, self._edits, self._change, mode=STRICT, with_default=self._with_default)

    def _change(self, field: Field, _: FieldPath) -> Change:
        return Change(field.name, *self.of_value(field.schema))

    def of_value(self, schema: Schema) -> tuple[Schema, _Convert]:
        """Return the new schema, with the default and doc that Kafka loses, and the function for a value."""
        made, convert = super().of_value(schema)
        if schema.default is not None or schema.doc is not None:
            made = altered(made, default=convert(schema.default), doc=schema.doc)
        return made, convert

    def _converter(self, source: str) -> _Convert:
        if source == self._target == _UNIX:
            return lambda value: None if value is None else _int64(value)
        return super()._converter(source)

    def _text_reader(self) -> _Convert:
        parse = self._dates().parse
        return lambda value: parse(_text(value))

    def _dates(self) -> DateFormat:
        if self._format is None:
            raise ConnectDataError("expected the key 'format', the pattern to read text by, found none")
        return self._format

    def _from_unix(self, value: Any) -> datetime | Instant:
        factor, divisor = _UNITS[self._precision]
        epoch_ms, rest = divmod(_int64(value) * factor, divisor)
        if rest:
            raise ConnectDataError(
                f"expected {self._precision} without a fraction of a millisecond, found a fraction"
            )
        return from_epoch_ms(_fitting(epoch_ms))

    def _to_unix(self, value: datetime | Instant) -> int:
        factor, divisor = _UNITS[self._precision]
        return _fitting(to_epoch_ms(value) * divisor // factor)


def _date_format(pattern: str | None, target: str, mode: Mode) -> DateFormat | None:
    if not pattern:
        if target == _STRING:
            raise ConnectConfigError("expected a pattern for target.type=string, found none", path=_FORMAT)
        return None
    try:
        return DateFormat(pattern, mode)
    except ArgumentError as error:
        raise ConnectConfigError(str(error), path=_FORMAT) from error


def _form(schema: Schema) -> str:
    """Return the form that values of a schema have; raise ConnectError if they are not points in time."""
    form = _LOGICAL.get(schema.name or "") or _BY_TYPE.get(schema.type)
    if form is None:
        raise ConnectError(
            f"expected a string, an int64, or a Date, Time or Timestamp to convert, found {schema}"
        )
    return form


def _form_of(value: Any) -> str:
    """Return the form of a value without a schema."""
    if is_time(value):
        return "Timestamp"
    if isinstance(value, str):
        return _STRING
    if is_instance(value, (int,)):
        return _UNIX
    raise ConnectDataError(
        f"expected a str, an int or a datetime to convert to another form, found {type(value).__name__}"
    )


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
