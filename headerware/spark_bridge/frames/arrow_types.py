"""The Arrow types of Spark's columns, as ``mapInArrow`` takes them back.

pyspark has such a function, but not in its public API, and it changes from release to release. Timestamps are
in UTC: Spark takes any zone for its instants.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import types as sql

from headerware.core.errors import ConfigError
from headerware.spark_bridge.frames.schema import struct_from_json

if TYPE_CHECKING:
    from collections.abc import Mapping

_PLAIN: Final[Mapping[type[sql.DataType], pa.DataType]] = {
    sql.BinaryType: pa.binary(),
    sql.BooleanType: pa.bool_(),
    sql.ByteType: pa.int8(),
    sql.DateType: pa.date32(),
    sql.DayTimeIntervalType: pa.duration("us"),
    sql.DoubleType: pa.float64(),
    sql.FloatType: pa.float32(),
    sql.IntegerType: pa.int32(),
    sql.LongType: pa.int64(),
    sql.NullType: pa.null(),
    sql.ShortType: pa.int16(),
    sql.StringType: pa.string(),
    sql.TimestampNTZType: pa.timestamp("us"),
    sql.TimestampType: pa.timestamp("us", "UTC"),
}


def arrow_type(kind: sql.DataType) -> pa.DataType:
    """Return the Arrow type of a column.

    Raises:
        ConfigError: the bridge has no Arrow type for it.
    """
    plain = _PLAIN.get(type(kind))
    if plain is not None:
        return plain
    if isinstance(kind, sql.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, sql.ArrayType):
        return pa.list_(_field("element", kind.elementType, nullable=kind.containsNull))
    if isinstance(kind, sql.MapType):
        key = _field("key", kind.keyType, nullable=False)
        return pa.map_(key, _field("value", kind.valueType, nullable=kind.valueContainsNull))
    if isinstance(kind, sql.StructType):
        return pa.struct([_field(each.name, each.dataType, nullable=each.nullable) for each in kind.fields])
    raise ConfigError(
        f"a column of the type {kind.simpleString()} cannot hold objects; use a type that avro_type or "
        "json_type returns"
    )


def require_arrow_type(kind: sql.DataType, path: str) -> None:
    """Raise ConfigError, with the path of the option or column, for a type that cannot hold objects."""
    try:
        arrow_type(kind)
    except ConfigError as error:
        raise error.with_path(path) from None


def arrow_schema(text: str) -> pa.Schema:
    """Return the Arrow schema of what ``StructType.json()`` wrote.

    A column whose type is not known here is only copied, with the type that Spark gave it; here its type is
    null.
    """
    return pa.schema([(field.name, _known(field.dataType)) for field in struct_from_json(text).fields])


def _field(name: str, kind: sql.DataType, *, nullable: bool) -> pa.Field:
    return pa.field(name, arrow_type(kind), nullable=nullable)


def _known(kind: sql.DataType) -> pa.DataType:
    try:
        return arrow_type(kind)
    except ConfigError:
        return pa.null()
