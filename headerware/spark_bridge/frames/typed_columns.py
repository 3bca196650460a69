"""Turn objects into typed columns: the objects that serdes return become Arrow arrays.

Objects are None, bool, int, float, str, bytes, Decimal, date, time, datetime, timedelta and UUID, and dicts
and lists of these; Connect's structs, and its values with a schema, count as what they hold. A type comes
from :func:`~headerware.spark_bridge.frames.avro_types.avro_type`, from
:func:`~headerware.spark_bridge.frames.json_types.json_type` or from the user, by way of
:func:`~headerware.spark_bridge.frames.arrow_types.arrow_type`. No JVM is needed.
:mod:`~headerware.spark_bridge.frames.typed_objects` converts in the other direction.

Arrow itself takes a list of dicts, but it does not report a missing field, takes text for bytes and true for
1, and fails a complete batch for one row. So dicts are taken apart field by field, each field is one call
of Arrow, and only a column with objects of other classes than its own is converted one by one.

An object fits if the column gives the same value back: text is not bytes, true is not a number, a datetime is
not a date. The table of scalars at the end says what is taken besides a column's own class: a whole number
for a double that holds it, a float without a fraction for an integer (JSON does not tell 1.0 from 1), a UUID
for text, a time for the integer that Avro and Spark have in its place. Connect's logical types become:

    Date          date: Spark's date
    Time          time: milliseconds or microseconds since midnight, in an integer
    Timestamp     datetime in UTC: Spark's timestamp

A value beyond the years 1 to 9999 stays an integer, which no column of dates takes.
"""

from __future__ import annotations

import datetime as dt
import struct
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import lru_cache, partial
from itertools import accumulate, chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import pyarrow as pa

from headerware.connect.data.logical import Date, Time
from headerware.connect.data.schema import SchemaAndValue, Type
from headerware.connect.data.struct import Struct, plain
from headerware.core.errors import ConfigError
from headerware.spark_bridge.frames.column_limits import MAX_DEPTH, single_chunk, unsupported_type
from headerware.spark_bridge.frames.mismatches import Built, Mismatch, mismatches_by_row
from headerware.spark_bridge.frames.unions import fields_of, is_union

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headerware.connect.data.schema import Schema


_CONNECT_CLASSES: Final = frozenset({Struct, SchemaAndValue})
"""The classes of values that know their schema."""


class Column(NamedTuple):
    """Objects as a column; null for None, and for an object that does not fit.

    ``failures`` says by row where the object does not fit, such as ``items[3].price: expected double, found
    str``, and never a value.
    """

    array: pa.Array
    failures: dict[int, str]


def column(objects: Sequence[Any], kind: pa.DataType) -> Column:
    """Put objects into a column; one that does not fit affects no other. Timestamps are microseconds.

    Fields of a dict that the type does not have are left out, as Spark's own readers do. A missing field is
    null if the type allows null; else the object does not fit. At the top, None is null for every type,
    because a tombstone has no value. Nothing is rounded, truncated or guessed: an integer beyond a column's
    range, a decimal with more digits, text for bytes, a datetime without a zone for an instant (or with one
    for a local time) do not fit. These objects of other classes are taken: an int for a double that holds it
    exactly, a float without a fraction for an integer, a UUID for text, a time for an int (milliseconds) or a
    long (microseconds) since midnight, a tuple for an array. An object of a union goes to the first member of
    its own class that takes it, or else to the first that takes it at all; a dict, to the struct with just
    its fields.
    """
    node, rows = _node_of(kind), list(objects)
    if not _CONNECT_CLASSES.isdisjoint(map(type, rows)):
        rows = list(map(_from_connect, rows))
    array, mismatches = node.build(rows)
    if mismatches:
        good = [row for row in range(len(rows)) if row not in mismatches]
        array = _scatter(node.build([rows[row] for row in good])[0], good, len(rows))
    return Column(array, {row: str(mismatches[row]) for row in sorted(mismatches)})


def _scatter(array: pa.Array, indexes: Sequence[int], length: int) -> pa.Array:
    """Put an array's items at the given indexes of a longer array; the others are null."""
    sources: list[int | None] = [None] * length
    for source, index in enumerate(indexes):
        sources[index] = source
    return array.take(pa.array(sources, pa.int64()))


class _Node(Protocol):
    """A type of column."""

    def build(self, objects: list[Any]) -> Built:
        """Put objects into an array; None is null."""
        ...

    def is_own(self, value: Any) -> bool:
        """Return whether a union's object looks exactly like one of this type."""
        ...

    def may_take(self, value: Any) -> bool:
        """Return whether this column takes an object of a union, though it looks like another type's."""
        ...


@lru_cache(maxsize=64)
def _node_of(kind: pa.DataType) -> _Node:
    """Return the kind of column for an Arrow type."""
    return _node(kind, 0)


class _Compound(ABC):
    """Structs, arrays and maps: columns for objects of one class, among which nulls and others may be."""

    name: str
    own: type

    def __init__(self, kind: pa.DataType) -> None:
        self.kind: Final = kind

    def build(self, objects: list[Any]) -> Built:
        if set(map(type, objects)) <= {self.own}:
            return self.assemble(objects)
        places: list[int] = []
        present: list[Any] = []
        wrong: dict[int, Mismatch] = {}
        for place, value in enumerate(objects):
            if value is None:
                continue
            try:
                present.append(self.taken(value))
            except _MismatchError as error:
                wrong[place] = Mismatch("", str(error))
            else:
                places.append(place)
        array, inner = self.assemble(present)
        wrong.update((places[place], mismatch) for place, mismatch in inner.items())
        return _scatter(array, places, len(objects)), wrong

    @abstractmethod
    def assemble(self, objects: list[Any]) -> Built:
        """Put objects into an array; all are of the column's own class and none is None."""

    def taken(self, value: Any) -> Any:
        """Return an object as one of the column's own class, or raise _MismatchError."""
        if isinstance(value, self.own):
            return value
        raise _mismatch_error(self.name, value)

    def is_own(self, value: Any) -> bool:
        return isinstance(value, self.own)

    def may_take(self, value: Any) -> bool:  # noqa: ARG002 - nothing but the own class is taken
        return False

    def nothing(self, objects: list[Any]) -> pa.Array:
        """Return a placeholder for a batch that is built again without its mismatches."""
        return pa.nulls(len(objects), self.kind)


class _Field(NamedTuple):
    """A field of a struct, or the items of an array or a map."""

    name: str
    node: _Node
    nullable: bool

    def build(self, objects: list[Any]) -> Built:
        array, wrong = self.node.build(objects)
        if not self.nullable and array.null_count > len(wrong):
            for place, value in enumerate(objects):
                if value is None:
                    wrong.setdefault(place, Mismatch("", "found nothing or null, which is not allowed here"))
        return array, wrong


class _Struct(_Compound):
    name, own = "struct", dict

    def __init__(self, kind: pa.DataType, fields: list[_Field]) -> None:
        super().__init__(kind)
        self.fields: Final = fields
        self.names: Final = frozenset(field.name for field in fields)
        self._required: Final = frozenset(field.name for field in fields if not field.nullable)
        self._arrow_fields: Final = fields_of(kind)

    def assemble(self, objects: list[Any]) -> Built:
        arrays: list[pa.Array] = []
        wrong: dict[int, Mismatch] = {}
        for field in self.fields:
            array, inner = field.build(_field_values(objects, field.name))
            arrays.append(array)
            for place, mismatch in inner.items():
                wrong.setdefault(place, mismatch.at(f".{field.name}"))
        if wrong:
            return self.nothing(objects), wrong
        if not arrays:
            return pa.array([{}] * len(objects), self.kind), wrong
        return pa.StructArray.from_arrays(arrays, fields=self._arrow_fields), wrong

    def taken(self, value: Any) -> Any:
        return _as_dict(self.name, value)

    def is_own(self, value: Any) -> bool:
        return isinstance(value, dict) and value.keys() == self.names

    def may_take(self, value: Any) -> bool:
        return isinstance(value, Mapping) and value.keys() >= self._required


class _Union(_Struct):
    """A union, as Spark has it: a struct of ``member0``, ``member1``, ... of which one is not null."""

    name, own = "union", type(NotImplemented)  # no object is taken directly

    def __init__(self, kind: pa.DataType, fields: list[_Field]) -> None:
        super().__init__(kind, fields)
        # A map takes any dict, so structs come first.
        self._members: Final = sorted(fields, key=lambda field: isinstance(field.node, _Map))

    def taken(self, value: Any) -> Any:
        if isinstance(value, dict) and value and value.keys() <= self.names:
            return value
        member = self._member(value)
        if member is None:
            raise _mismatch_error(f"one of the union's {len(self.fields)} types", value)
        return {member.name: value}

    def _member(self, value: Any) -> _Field | None:
        """Choose the member that looks right; of several, the first that takes all of the value."""
        looks_right = [field for field in self._members if field.node.is_own(value)] or [
            field for field in self._members if field.node.may_take(value)
        ]
        if not looks_right or len(looks_right) == 1 or isinstance(looks_right[0].node, _ScalarColumn):
            return looks_right[0] if looks_right else None
        return next((field for field in looks_right if not field.build([value])[1]), looks_right[0])


class _List(_Compound):
    name, own = "array", list

    def __init__(self, kind: pa.DataType, element: _Field) -> None:
        super().__init__(kind)
        self._element: Final = element

    def assemble(self, objects: list[Any]) -> Built:
        bounds = [0, *accumulate(map(len, objects))]
        items, inner = self._element.build(list(chain.from_iterable(objects)))
        if inner:
            return self.nothing(objects), mismatches_by_row(inner, bounds, "")
        arrays, offsets = _LISTS[self.kind.id]
        return arrays.from_arrays(pa.array(bounds, offsets), items, type=self.kind), {}

    def taken(self, value: Any) -> Any:
        return list(value) if isinstance(value, tuple) else super().taken(value)

    def may_take(self, value: Any) -> bool:
        return isinstance(value, tuple)


class _Map(_Compound):
    name, own = "map", dict

    def __init__(self, kind: pa.DataType, key: _Field, item: _Field) -> None:
        super().__init__(kind)
        self._key: Final = key
        self._item: Final = item

    def assemble(self, objects: list[Any]) -> Built:
        bounds = [0, *accumulate(map(len, objects))]
        keys, wrong_keys = self._key.build(list(chain.from_iterable(objects)))
        values = chain.from_iterable(pairs.values() for pairs in objects)
        items, wrong_items = self._item.build(list(values))
        if wrong_keys or wrong_items:
            wrong = mismatches_by_row(wrong_items, bounds, ".value")
            wrong |= mismatches_by_row(wrong_keys, bounds, ".key")
            return self.nothing(objects), wrong
        return pa.MapArray.from_arrays(pa.array(bounds, pa.int32()), keys, items, type=self.kind), {}

    def taken(self, value: Any) -> Any:
        return _as_dict(self.name, value)


_LISTS: Final = {
    pa.list_(pa.null()).id: (pa.ListArray, pa.int32()),
    pa.large_list(pa.null()).id: (pa.LargeListArray, pa.int64()),
}


def _node(kind: pa.DataType, depth: int) -> _Node:
    if depth > MAX_DEPTH:
        raise ConfigError(f"the column's type nests more than {MAX_DEPTH} deep, the limit")
    scalar = _scalar_of(kind)
    if scalar is not None:
        return _ScalarColumn(kind, scalar)
    if pa.types.is_struct(kind):
        fields = [_field(field, depth) for field in fields_of(kind)]
        return (_Union if is_union(kind) else _Struct)(kind, fields)
    if pa.types.is_map(kind):
        return _Map(kind, _field(kind.key_field, depth), _field(kind.item_field, depth))
    if kind.id in _LISTS:
        return _List(kind, _field(kind.value_field, depth))
    raise unsupported_type(kind)


def _field(field: pa.Field, depth: int) -> _Field:
    return _Field(field.name, _node(field.type, depth + 1), field.nullable)


def _as_dict(name: str, value: Any) -> dict[Any, Any]:
    if value.__class__ is dict:
        found: dict[Any, Any] = value
        return found
    if isinstance(value, Mapping):
        return dict(value)
    raise _mismatch_error(name, value)


def _field_values(objects: list[Any], name: str) -> list[Any]:
    """Return one field of each object, None where it is missing."""
    try:
        return list(map(itemgetter(name), objects))
    except KeyError:
        return [each.get(name) for each in objects]


_TIME_DIVISORS: Final = {32: 1000, 64: 1}
"""Divisors of microseconds: Avro's time-millis is an int, its time-micros a long."""


class _MismatchError(ValueError):
    """An object that a column does not take: what was expected, and what was found."""


class _Scalar(NamedTuple):
    """A type of scalars: Spark's name, the classes that Arrow takes directly, and a conversion.

    ``convert`` takes any object but None, and raises _MismatchError if it does not fit. ``is_plain`` tells
    whether Arrow takes a batch of these classes directly, if the classes alone do not tell.
    """

    name: str
    classes: frozenset[type]
    convert: Callable[[Any], Any]
    is_plain: Callable[[Sequence[Any]], bool] | None = None


class _ScalarColumn(NamedTuple):
    """A column of scalars."""

    kind: pa.DataType
    scalar: _Scalar

    def build(self, objects: list[Any]) -> Built:
        """Put objects into an array; None is null."""
        classes, is_plain = self.scalar.classes, self.scalar.is_plain
        if set(map(type, objects)) - classes <= _NULL and (is_plain is None or is_plain(objects)):
            try:
                return single_chunk(pa.array(objects, self.kind)), {}
            except (ValueError, TypeError, OverflowError):  # one by one, to find which
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
                except _MismatchError as error:
                    wrong[place] = Mismatch("", str(error))
            fitting.append(fit)
        return single_chunk(pa.array(fitting, self.kind)), wrong

    def is_own(self, value: Any) -> bool:
        """Return whether a union's object is of this column's own class and fits."""
        return value.__class__ in self.scalar.classes and self.may_take(value)

    def may_take(self, value: Any) -> bool:
        """Return whether a union's object fits."""
        try:
            self.scalar.convert(value)
        except _MismatchError:
            return False
        return True


def _scalar_of(kind: pa.DataType) -> _Scalar | None:
    """Return the scalar column of an Arrow type, or None if it is no type of Spark's scalars."""
    if pa.types.is_decimal128(kind):
        name = f"decimal({kind.precision},{kind.scale})"
        return _Scalar(name, frozenset({Decimal}), partial(_decimal, name, kind.precision, kind.scale))
    if pa.types.is_timestamp(kind) and kind.unit == "us" and kind.tz is not None:
        return _ZONED  # sessions have their own zones; the instants are the same
    return _SCALARS.get(kind)


def _mismatch_error(expected: str, value: Any, but: str = "") -> _MismatchError:
    """Return the error that names the expected type and the object's class."""
    return _MismatchError(f"expected {expected}, found {type(value).__name__}{but}")


def _boolean(value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    raise _mismatch_error("boolean", value)


def _integer(name: str, bits: int, value: Any) -> int:
    if isinstance(value, dt.time) and bits in _TIME_DIVISORS:
        return _time(name, _TIME_DIVISORS[bits], value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise _mismatch_error(name, value)
    if value < -(1 << bits - 1) or value >= 1 << bits - 1:
        raise _mismatch_error(name, value, " beyond its range")
    return int(value)


def _time(name: str, divisor: int, value: dt.time) -> int:
    if value.tzinfo is not None:
        raise _mismatch_error(name, value, " with a zone")
    seconds = (value.hour * 60 + value.minute) * 60 + value.second
    units, rest = divmod(seconds * 1_000_000 + value.microsecond, divisor)
    if rest:
        raise _mismatch_error(f"{name} of milliseconds", value, " with microseconds")
    return units


def _double(name: str, value: Any) -> float:
    if isinstance(value, float):
        return value
    if not isinstance(value, int) or isinstance(value, bool):
        raise _mismatch_error(name, value)
    try:
        number = float(value)
    except OverflowError:
        raise _mismatch_error(name, value, " beyond its range") from None
    if number != value:
        raise _mismatch_error(name, value, " that no double holds exactly")
    return number


def _float(value: Any) -> float:
    number = _double("float", value)
    try:
        struct.pack("<f", number)  # this format checks the range
    except OverflowError:
        raise _mismatch_error("float", value, " beyond its range") from None
    return number


def _stays_finite(values: Sequence[Any]) -> bool:
    """Return whether no number becomes infinite, which Arrow would not report."""
    return all(value is None or -_MAX_FLOAT <= value <= _MAX_FLOAT for value in values)


def _string(value: Any) -> str:
    if isinstance(value, uuid.UUID):
        return str(value)
    if not isinstance(value, str):
        raise _mismatch_error("string", value)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _mismatch_error("string", value, " that is no Unicode text (a lone surrogate)") from None
    return value


def _binary(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise _mismatch_error("binary", value)
    return bytes(value)


def _decimal(name: str, precision: int, scale: int, value: Any) -> Decimal:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _MAX_DECIMAL:
        value = Decimal(value)
    if not isinstance(value, Decimal):
        raise _mismatch_error(name, value)
    if not value.is_finite():
        raise _mismatch_error(name, value, " that is no finite number")
    exact = Context(prec=precision, traps=[Inexact, InvalidOperation])
    try:
        return value.quantize(Decimal((0, (1,), -scale)), context=exact)
    except (Inexact, InvalidOperation):
        raise _mismatch_error(name, value, " with more digits") from None


def _date(value: Any) -> dt.date:
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value
    raise _mismatch_error("date", value)


def _instant(value: Any) -> dt.datetime:
    if not isinstance(value, dt.datetime):
        raise _mismatch_error("timestamp", value)
    if value.utcoffset() is None:
        raise _mismatch_error(
            "timestamp", value, " without a zone, so no instant (its column is timestamp_ntz)"
        )
    try:
        return value.astimezone(dt.UTC)
    except OverflowError:
        raise _mismatch_error("timestamp", value, " outside of the years 1 to 9999 in UTC") from None


def _local(value: Any) -> dt.datetime:
    if not isinstance(value, dt.datetime):
        raise _mismatch_error("timestamp_ntz", value)
    if value.tzinfo is not None:
        raise _mismatch_error("timestamp_ntz", value, " with a zone (its column is timestamp)")
    return value


def _interval(value: Any) -> dt.timedelta:
    if not isinstance(value, dt.timedelta):
        raise _mismatch_error("interval", value)
    if not -_MAX_INTERVAL <= value <= _MAX_INTERVAL:
        raise _mismatch_error("interval", value, " beyond its range")
    return value


def _null(value: Any) -> None:
    raise _mismatch_error("null", value)


def _has_zone(zone: dt.tzinfo | None, values: Sequence[Any]) -> bool:
    return not [value for value in values if value is not None and value.tzinfo is not zone]


_NULL: Final = {type(None)}
_MAX_FLOAT: Final[float] = struct.unpack(">f", b"\x7f\x7f\xff\xff")[0]
_MAX_DECIMAL: Final = 10**38
"""No column has more digits, and converting an integer takes time with the square of their number."""
_MAX_INTERVAL: Final = dt.timedelta(microseconds=(1 << 63) - 1)


def _integers(kind: pa.DataType, name: str) -> tuple[pa.DataType, _Scalar]:
    return kind, _Scalar(name, frozenset({int}), partial(_integer, name, kind.bit_width))


_TEXT: Final = _Scalar("string", frozenset({str}), _string)
_BYTES: Final = _Scalar("binary", frozenset({bytes}), _binary)
_ZONED: Final = _Scalar("timestamp", frozenset({dt.datetime}), _instant, partial(_has_zone, dt.UTC))
_SCALARS: Final[dict[pa.DataType, _Scalar]] = {
    pa.null(): _Scalar("null", frozenset(), _null),
    pa.bool_(): _Scalar("boolean", frozenset({bool}), _boolean),
    **dict([
        _integers(pa.int8(), "tinyint"),
        _integers(pa.int16(), "smallint"),
        _integers(pa.int32(), "int"),
        _integers(pa.int64(), "bigint"),
    ]),
    pa.float32(): _Scalar("float", frozenset({float}), _float, _stays_finite),
    pa.float64(): _Scalar("double", frozenset({float}), partial(_double, "double")),
    pa.string(): _TEXT,
    pa.large_string(): _TEXT,
    pa.binary(): _BYTES,
    pa.large_binary(): _BYTES,
    pa.date32(): _Scalar("date", frozenset({dt.date}), _date),
    pa.timestamp("us"): _Scalar("timestamp_ntz", frozenset({dt.datetime}), _local, partial(_has_zone, None)),
    pa.duration("us"): _Scalar("interval", frozenset({dt.timedelta}), _interval),
}  # fmt: skip
_LOGICAL: Final[dict[str | None, Callable[[datetime], Any]]] = {
    Date.SCHEMA.name: datetime.date,
    Time.SCHEMA.name: datetime.time,
}


def _from_connect(value: Any) -> Any:
    """Return the object that a column takes for a value of Connect's."""
    if isinstance(value, SchemaAndValue):
        return _value_of(value.schema, value.value)
    return _value_of(None, value)


def _value_of(schema: Schema | None, value: Any) -> Any:
    if isinstance(value, Struct):
        return {field.name: _value_of(field.schema, value[field.name]) for field in value.schema.fields}
    if schema is None or value is None:
        return plain(value)
    if schema.name in _LOGICAL and isinstance(value, datetime):
        return _LOGICAL[schema.name](value)
    if schema.type is Type.ARRAY:
        return [_value_of(schema.value_schema, item) for item in value]
    if schema.type is Type.MAP:
        keys = plain(dict.fromkeys(value))
        return {
            key: _value_of(schema.value_schema, item) for key, item in zip(keys, value.values(), strict=True)
        }
    return plain(value)
