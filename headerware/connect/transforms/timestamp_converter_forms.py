"""The forms that a point in time has: text, Unix time, Date, Time, Timestamp; from each of them to each.

Between two forms a value is a ``datetime`` in UTC, or an ``Instant`` where that cannot hold it, to the
millisecond.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

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
from headerware.connect.errors import ConnectDataError, ConnectError, NullValueError
from headerware.connect.fields.schemas import altered
from headerware.connect.modes import STRICT, Mode

if TYPE_CHECKING:
    from headerware.connect.java.date_format import DateFormat
    from headerware.connect.java.zones import NamedZone

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
