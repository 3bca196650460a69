"""Connect's values as the objects that columns take: dicts for structs, dates for Date, times for Time.

Date                        date: Spark's date
Time                        time: milliseconds or microseconds since midnight, in an integer
Timestamp                   datetime in UTC: Spark's timestamp
what lies beyond the years 1 to 9999   an integer, which no column of dates takes
anything else               as plain Python has it
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from headerware.connect.data.logical import Date, Time
from headerware.connect.data.schema import SchemaAndValue, Type
from headerware.connect.data.struct import Struct, plain

if TYPE_CHECKING:
    from headerware.connect.data.schema import Schema

CLASSES: Final = frozenset({Struct, SchemaAndValue})
"""The classes of what knows its schema."""
_LOGICAL: Final[dict[str | None, Callable[[datetime], Any]]] = {
    Date.SCHEMA.name: datetime.date,
    Time.SCHEMA.name: datetime.time,
}


def connect_object(value: Any) -> Any:
    """Give the object that a column takes for a value of Connect's; other values as plain Python has them."""
    if isinstance(value, SchemaAndValue):
        return _of(value.schema, value.value)
    return _of(None, value)


def _of(schema: Schema | None, value: Any) -> Any:
    if isinstance(value, Struct):
        return {field.name: _of(field.schema, value[field.name]) for field in value.schema.fields}
    if schema is None or value is None:
        return plain(value)
    if schema.name in _LOGICAL and isinstance(value, datetime):
        return _LOGICAL[schema.name](value)
    if schema.type is Type.ARRAY:
        return [_of(schema.value_schema, item) for item in value]
    if schema.type is Type.MAP:
        keys = plain(dict.fromkeys(value))
        return {key: _of(schema.value_schema, item) for key, item in zip(keys, value.values(), strict=True)}
    return plain(value)
