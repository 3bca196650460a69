"""The values of an array or map that is read from text, as the schema of all of them has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from headerware.connect.data.logical import TIME_TYPES
from headerware.connect.data.numbers import Float32, Int8, Int16, Int32
from headerware.connect.data.schema import TIMESTAMP, Schema, Type
from headerware.connect.data.times import is_time
from headerware.connect.errors import ConnectDataError

_NUMBERS: Final[dict[Type, Callable[[Any], Any]]] = {
    Type.INT8: Int8.wrapped,
    Type.INT16: Int16.wrapped,
    Type.INT32: Int32.wrapped,
    Type.INT64: int,
    Type.FLOAT32: Float32,
    Type.FLOAT64: float,
}


def aligned(schema: Schema, value: Any) -> Any:
    """Return a value that was read the width of a schema that Kafka widened it to.

    Raises:
        ConnectDataError: it has none there: null, or a point in time among numbers.
    """
    if value is None:
        raise ConnectDataError("expected a value, found null among those that are not")
    number = _NUMBERS.get(schema.type)
    if number is None:
        return value
    logical = TIME_TYPES.get(schema.name or "")
    if logical is not None:
        if is_time(value):
            return value
        return logical.to_logical(schema, value if schema.name == TIMESTAMP else Int32.wrapped(value))
    if is_time(value):
        raise ConnectDataError("expected a number, found a point in time")
    return number(value)
