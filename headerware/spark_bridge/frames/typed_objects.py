"""Turn typed columns into the objects that serdes take, a column at a time."""

from __future__ import annotations

import datetime as dt
from itertools import pairwise, repeat
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headerware.core.errors import SerdeError
from headerware.spark_bridge.frames.column_limits import unsupported_type
from headerware.spark_bridge.frames.mismatches import Mismatch, mismatches_by_row
from headerware.spark_bridge.frames.unions import fields_of, is_union

if TYPE_CHECKING:
    from collections.abc import Callable

Read = tuple[list[Any], dict[int, Mismatch]]
"""The objects of an array, and the mismatches by index."""
_NO_DATE: Final = Mismatch("", "expected a date in the years 1 to 9999, which Python has, found another")
_BAD_TEXT: Final = Mismatch("", "expected text, found bytes that are no UTF-8")
_TWICE: Final = Mismatch("", "expected a map, found one that has a key twice")


def objects(array: pa.Array) -> list[Any]:
    """Return a column's objects, as serializers take them.

    Structs and maps become dicts, arrays lists, decimals ``Decimal`` of the column's scale, timestamps
    datetimes in UTC, local ones datetimes without a zone, and Spark's unions the one member that is not null.
    In place of an object that cannot be made there is a SerdeError: for a date outside of the years 1 to
    9999, text that is not UTF-8, a map with a key twice.
    """
    found, mismatches = _read(array)
    for row, mismatch in mismatches.items():
        found[row] = SerdeError(str(mismatch))
    return found


def _read(array: pa.Array) -> Read:
    """Return an array's objects and mismatches."""
    kind = array.type
    step = _STEPS.get(kind.id)
    if step is None:
        raise unsupported_type(kind)
    return step(array)


def _plain(array: pa.Array) -> Read:
    return array.to_pylist(), {}


def _by_numpy(array: pa.Array) -> Read:
    return array.to_numpy(zero_copy_only=False).tolist(), {}


def _strings(array: pa.Array) -> Read:
    try:
        return array.to_pylist(), {}
    except UnicodeDecodeError:  # Spark casts any bytes to text
        return _decoded(array.cast(_BYTES_OF[array.type]).to_pylist())


def _decoded(values: list[Any]) -> Read:
    wrong: dict[int, Mismatch] = {}
    for place, value in enumerate(values):
        try:
            values[place] = value if value is None else value.decode()
        except UnicodeDecodeError:
            values[place], wrong[place] = None, _BAD_TEXT
    return values, wrong


def _dates(array: pa.Array) -> Read:
    """Return dates; numpy returns integers for those that Python does not have."""
    values, wrong = array.to_numpy(zero_copy_only=False).tolist(), {}
    if not set(map(type, values)) <= _DATES:
        wrong = {place: _NO_DATE for place, value in enumerate(values) if value.__class__ is int}
        values = [None if place in wrong else value for place, value in enumerate(values)]
    return values, wrong


def _datetimes(array: pa.Array) -> Read:
    """Return datetimes, as an epoch plus intervals, which costs a fifth of replacing a zone."""
    if array.type.unit != "us":
        raise unsupported_type(array.type)
    epoch = _LOCAL_EPOCH if array.type.tz is None else _EPOCH
    since = array.to_numpy(zero_copy_only=False).view("timedelta64[us]").tolist()
    missing = since.count(None)
    try:
        if not missing:
            return list(map(epoch.__add__, since)), {}
        if missing == array.null_count:
            return [None if each is None else epoch + each for each in since], {}
    except OverflowError:
        pass
    return _datetimes_one_by_one(epoch, array.cast(pa.int64()).to_pylist())


def _datetimes_one_by_one(epoch: dt.datetime, since_us: list[int | None]) -> Read:
    values: list[Any] = [None] * len(since_us)
    wrong: dict[int, Mismatch] = {}
    for place, microseconds in enumerate(since_us):
        if microseconds is not None:
            try:
                values[place] = epoch + dt.timedelta(microseconds=microseconds)
            except OverflowError:
                wrong[place] = _NO_DATE
    return values, wrong


def _intervals(array: pa.Array) -> Read:
    if array.type.unit != "us":
        raise unsupported_type(array.type)
    return _by_numpy(array)


def _structs(array: pa.Array) -> Read:
    fields, columns = fields_of(array.type), []
    wrong: dict[int, Mismatch] = {}
    for index, field in enumerate(fields):
        values, inner = _read(array.field(index))
        columns.append(values)
        for place, mismatch in inner.items():
            wrong.setdefault(place, mismatch.at(f".{field.name}"))
    names = [field.name for field in fields]
    rows: list[Any] = list(map(dict, map(zip, repeat(names), zip(*columns, strict=True))))
    if not columns:
        rows = [{} for _ in range(len(array))]
    elif is_union(array.type):
        rows = list(map(_member, rows))
    return _with_nulls(array, rows, wrong)


def _member(row: dict[str, Any]) -> Any:
    """Return the member of a union that is not null; a record that only looks like a union is unchanged."""
    present = [value for value in row.values() if value is not None]
    return row if len(present) > 1 else present[0] if present else None


def _lists(array: pa.Array) -> Read:
    bounds = _bounds(array)
    items, inner = _read(array.values.slice(bounds[0], bounds[-1] - bounds[0]))
    first = bounds[0]
    rows: list[Any] = [items[begin - first : end - first] for begin, end in pairwise(bounds)]
    return _with_nulls(array, rows, mismatches_by_row(inner, bounds, ""))


def _maps(array: pa.Array) -> Read:
    if pa.types.is_nested(array.type.key_type):
        raise unsupported_type(array.type)
    bounds = _bounds(array)
    first, length = bounds[0], bounds[-1] - bounds[0]
    keys, wrong_keys = _read(array.keys.slice(first, length))
    items, wrong_items = _read(array.items.slice(first, length))
    rows: list[Any] = [
        dict(zip(keys[begin - first : end - first], items[begin - first : end - first], strict=True))
        for begin, end in pairwise(bounds)
    ]
    wrong = mismatches_by_row(wrong_items, bounds, ".value") | mismatches_by_row(wrong_keys, bounds, ".key")
    if sum(map(len, rows)) != length:
        for place, (begin, end) in enumerate(pairwise(bounds)):
            if len(rows[place]) != end - begin:
                wrong.setdefault(place, _TWICE)
    return _with_nulls(array, rows, wrong)


def _bounds(array: pa.Array) -> list[int]:
    bounds: list[int] = array.offsets.to_pylist()
    return bounds or [0]


def _with_nulls(array: pa.Array, rows: list[Any], wrong: dict[int, Mismatch]) -> Read:
    """Put None where the array is null; its buffers may hold other values there."""
    if array.null_count:
        for place, is_there in enumerate(array.is_valid().to_pylist()):
            if not is_there:
                rows[place] = None
                wrong.pop(place, None)
    return rows, wrong


_BYTES_OF: Final = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_LOCAL_EPOCH: Final = _EPOCH.replace(tzinfo=None)
_DATES: Final = {dt.date, type(None)}
_PLAIN: Final = (
    pa.null(),
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.binary(),
    pa.large_binary(),
)
_STEPS: Final[dict[int, Callable[[pa.Array], Read]]] = {
    **{kind.id: _plain for kind in _PLAIN},
    pa.date32().id: _dates,
    pa.timestamp("us").id: _datetimes,
    pa.duration("us").id: _intervals,
    pa.string().id: _strings,
    pa.large_string().id: _strings,
    pa.decimal128(1).id: _by_numpy,
    pa.struct([]).id: _structs,
    pa.list_(pa.null()).id: _lists,
    pa.large_list(pa.null()).id: _lists,
    pa.map_(pa.string(), pa.null()).id: _maps,
}
