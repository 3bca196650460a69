"""Which objects fit which scalar columns: a table of Arrow's types with Spark's words for them.

An object fits where the column gives the same value back: text is no bytes, true is no number, a datetime
is no date. What is taken beside a column's own class is in the table: a whole number for a double that holds
it, a float without a fraction for an integer (JSON does not tell 1.0 from 1), a UUID for text, a time for
the integer that Avro and Spark have in its place.
"""

from __future__ import annotations

import datetime as dt
import struct
import uuid
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from headerware.spark_bridge.frames.typed_layout import Built, Misfit, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_TIME_DIVISORS: Final = {32: 1000, 64: 1}
"""Avro's time-millis is an int, its time-micros a long; by what microseconds are divided."""


class MisfitError(ValueError):
    """An object that a column does not take; the text says what was expected and what was found."""


class Scalar(NamedTuple):
    """A scalar column.

    Attributes:
        name: Spark's word for its type.
        classes: the classes of which Arrow takes objects as they are.
        convert: makes what Arrow takes of an object, or raises MisfitError; it never gets None.
        is_plain: whether a batch of these classes is right as it is, where the class alone does not say it.
    """

    name: str
    classes: frozenset[type]
    convert: Callable[[Any], Any]
    is_plain: Callable[[Sequence[Any]], bool] | None = None


class ScalarColumn(NamedTuple):
    """A column of scalars.

    Attributes:
        kind: its Arrow type.
        scalar: what fits there.
    """

    kind: pa.DataType
    scalar: Scalar

    def build(self, objects: list[Any]) -> Built:
        """Put objects into an array; None is null."""
        classes, is_plain = self.scalar.classes, self.scalar.is_plain
        if set(map(type, objects)) - classes <= _NULL and (is_plain is None or is_plain(objects)):
            try:
                return whole(pa.array(objects, self.kind)), {}
            except (ValueError, TypeError, OverflowError):  # one by one it shows which
                pass
        return self._one_by_one(objects)

    def _one_by_one(self, objects: list[Any]) -> Built:
        convert, wrong = self.scalar.convert, {}
        fitting: list[Any] = []
        for place, value in enumerate(objects):
            fit = None
            if value is not None:
                try:
                    fit = convert(value)
                except MisfitError as error:
                    wrong[place] = Misfit("", str(error))
            fitting.append(fit)
        return whole(pa.array(fitting, self.kind)), wrong

    def is_own(self, value: Any) -> bool:
        """Return whether an object of a union is of this column's own class, and fits."""
        return value.__class__ in self.scalar.classes and self.may_take(value)

    def may_take(self, value: Any) -> bool:
        """Return whether an object of a union fits."""
        try:
            self.scalar.convert(value)
        except MisfitError:
            return False
        return True


def scalar_of(kind: pa.DataType) -> Scalar | None:
    """Find the scalar column of an Arrow type.

    Returns:
        the column, or None where the type is not among those that Spark's scalars have.
    """
    if pa.types.is_decimal128(kind):
        name = f"decimal({kind.precision},{kind.scale})"
        return Scalar(name, frozenset({Decimal}), partial(_decimal, name, kind.precision, kind.scale))
    if pa.types.is_timestamp(kind) and kind.unit == "us" and kind.tz is not None:
        return _ZONED  # sessions have zones of their own, the instants are the same
    return _SCALARS.get(kind)


def unfit(expected: str, value: Any, but: str = "") -> MisfitError:
    """Say what was expected and of what type the object is."""
    return MisfitError(f"expected {expected}, found {type(value).__name__}{but}")


def _boolean(value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    raise unfit("boolean", value)


def _integer(name: str, bits: int, value: Any) -> int:
    if isinstance(value, dt.time) and bits in _TIME_DIVISORS:
        return _time(name, _TIME_DIVISORS[bits], value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise unfit(name, value)
    if value < -(1 << bits - 1) or value >= 1 << bits - 1:
        raise unfit(name, value, " beyond its range")
    return int(value)


def _time(name: str, divisor: int, value: dt.time) -> int:
    if value.tzinfo is not None:
        raise unfit(name, value, " with a zone")
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    units, rest = divmod(seconds * 1_000_000 + value.microsecond, divisor)
    if rest:
        raise unfit(f"{name} of milliseconds", value, " with microseconds")
    return units


def _double(name: str, value: Any) -> float:
    if isinstance(value, float):
        return value
    if not isinstance(value, int) or isinstance(value, bool):
        raise unfit(name, value)
    try:
        number = float(value)
    except OverflowError:
        raise unfit(name, value, " beyond its range") from None
    if number != value:
        raise unfit(name, value, " that no double holds exactly")
    return number


def _float(value: Any) -> float:
    number = _double("float", value)
    try:
        struct.pack("<f", number)  # in this form it says so
    except OverflowError:
        raise unfit("float", value, " beyond its range") from None
    return number


def _stays_finite(values: Sequence[Any]) -> bool:
    """Return whether no number would become infinite, where Arrow would not say so."""
    return all(value is None or -_MAX_FLOAT <= value <= _MAX_FLOAT for value in values)


def _string(value: Any) -> str:
    if isinstance(value, uuid.UUID):
        return str(value)
    if not isinstance(value, str):
        raise unfit("string", value)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise unfit("string", value, " that is no Unicode text (a lone surrogate)") from None
    return value


def _binary(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise unfit("binary", value)
    return bytes(value)


def _decimal(name: str, precision: int, scale: int, value: Any) -> Decimal:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _MAX_DECIMAL:
        value = Decimal(value)
    if not isinstance(value, Decimal):
        raise unfit(name, value)
    if not value.is_finite():
        raise unfit(name, value, " that is no finite number")
    exact = Context(prec=precision, traps=[Inexact, InvalidOperation])
    try:
        return value.quantize(Decimal((0, (1,), -scale)), context=exact)
    except (Inexact, InvalidOperation):
        raise unfit(name, value, " with more digits") from None


def _date(value: Any) -> dt.date:
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value
    raise unfit("date", value)


def _instant(value: Any) -> dt.datetime:
    if not isinstance(value, dt.datetime):
        raise unfit("timestamp", value)
    if value.utcoffset() is None:
        raise unfit("timestamp", value, " without a zone, so no instant (its column is timestamp_ntz)")
    try:
        return value.astimezone(dt.UTC)
    except OverflowError:
        raise unfit("timestamp", value, " outside of the years 1 to 9999 in UTC") from None


def _local(value: Any) -> dt.datetime:
    if not isinstance(value, dt.datetime):
        raise unfit("timestamp_ntz", value)
    if value.tzinfo is not None:
        raise unfit("timestamp_ntz", value, " with a zone (its column is timestamp)")
    return value


def _interval(value: Any) -> dt.timedelta:
    if not isinstance(value, dt.timedelta):
        raise unfit("interval", value)
    if not -_MAX_INTERVAL <= value <= _MAX_INTERVAL:
        raise unfit("interval", value, " beyond its range")
    return value


def _null(value: Any) -> None:
    raise unfit("null", value)


def _has_zone(zone: dt.tzinfo | None, values: Sequence[Any]) -> bool:
    return not [value for value in values if value is not None and value.tzinfo is not zone]


_NULL: Final = {type(None)}
_MAX_FLOAT: Final[float] = struct.unpack(">f", b"\x7f\x7f\xff\xff")[0]
_MAX_DECIMAL: Final = 10**38
"""More digits no column has, and to make a decimal of an integer takes time with the square of them."""
_MAX_INTERVAL: Final = dt.timedelta(microseconds=(1 << 63) - 1)


def _integers(kind: pa.DataType, name: str) -> tuple[pa.DataType, Scalar]:
    return kind, Scalar(name, frozenset({int}), partial(_integer, name, kind.bit_width))


_TEXT: Final = Scalar("string", frozenset({str}), _string)
_BYTES: Final = Scalar("binary", frozenset({bytes}), _binary)
_ZONED: Final = Scalar("timestamp", frozenset({dt.datetime}), _instant, partial(_has_zone, dt.UTC))
_SCALARS: Final[dict[pa.DataType, Scalar]] = {
    pa.null(): Scalar("null", frozenset(), _null),
    pa.bool_(): Scalar("boolean", frozenset({bool}), _boolean),
    **dict([
        _integers(pa.int8(), "tinyint"),
        _integers(pa.int16(), "smallint"),
        _integers(pa.int32(), "int"),
        _integers(pa.int64(), "bigint"),
    ]),
    pa.float32(): Scalar("float", frozenset({float}), _float, _stays_finite),
    pa.float64(): Scalar("double", frozenset({float}), partial(_double, "double")),
    pa.string(): _TEXT,
    pa.large_string(): _TEXT,
    pa.binary(): _BYTES,
    pa.large_binary(): _BYTES,
    pa.date32(): Scalar("date", frozenset({dt.date}), _date),
    pa.timestamp("us"): Scalar("timestamp_ntz", frozenset({dt.datetime}), _local, partial(_has_zone, None)),
    pa.duration("us"): Scalar("interval", frozenset({dt.timedelta}), _interval),
}  # fmt: skip
