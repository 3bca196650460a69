"""Avro schemas as Spark types, for the objects that headerware's Avro serde returns.

    Avro                                    Spark          objects
    null, boolean, string, bytes            the same       None, bool, str, bytes
    int, long, float, double                the same       int, int, float, float
    enum, fixed                             string, binary str, bytes
    array, map, record                      the same       list, dict, dict
    date                                    date           date
    timestamp-millis, -micros               timestamp      datetime in UTC
    local-timestamp-millis, -micros         timestamp_ntz  datetime without a zone
    time-millis, time-micros                int, bigint    time; Spark has none
    decimal of up to 38 digits              decimal        Decimal
    uuid                                    string         UUID
    any other logical type                  as without it
    union of null and others                the others', nullable
    union of one type                       that type
    union of int and long                   bigint         int
    union of float and double               double         float
    other unions                            struct of member0, member1, ..., of which one is not null

These are the types of Spark's own ``from_avro`` (its SchemaConverters). What differs:

* Spark reads from the payload to which member of a union a value belongs; an object does not say it. A value
  goes to the first member of its class that it fits: 5 becomes an int, even if it was written as long. Unions
  that would return another value are refused: float with double, a time with anything but null, a record
  whose fields are named member0, member1, ...
* unions of an int and a long of which one is a date or a timestamp are structs; in Spark they are bigint.
* a union of null alone is null; in Spark it is a struct without fields.
* records that contain themselves are refused; Spark can truncate them at a depth.
* schemas that nest more than 128 deep, that define more than 10,000 columns, or that headerware's serde
  refuses are refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from headerware.core.errors import ConfigError
from headerware.serdes.avro.limits import Limits
from headerware.serdes.avro.schema import schema_option
from headerware.spark_bridge.frames.column_limits import MAX_COLUMNS
from headerware.spark_bridge.frames.unions import named_as_union

_SCALARS: Final[dict[str, DataType]] = {
    "null": NullType(),
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "bytes": BinaryType(),
    "string": StringType(),
    "enum": StringType(),
    "fixed": BinaryType(),
}
_LOGICAL: Final[dict[str, DataType]] = {
    "int-date": DateType(),
    "long-timestamp-millis": TimestampType(),
    "long-timestamp-micros": TimestampType(),
    "long-local-timestamp-millis": TimestampNTZType(),
    "long-local-timestamp-micros": TimestampNTZType(),
}
_DECIMALS: Final = frozenset({"bytes-decimal", "fixed-decimal"})
_TIMES: Final = frozenset({"int-time-millis", "long-time-micros"})
_WIDENED: Final[dict[frozenset[str], DataType]] = {
    frozenset({"int", "long"}): LongType(),
    frozenset({"float", "double"}): DoubleType(),
}
_MAX_PRECISION: Final = 38
_FLOATING: Final = frozenset({"float", "double"})
_RECORDS: Final = frozenset({"record", "error"})


def avro_type(schema: str | dict[str, Any] | list[Any] | Path) -> DataType:
    """Return the Spark type of the objects of an Avro schema (Avro 1.12).

    Args:
        schema: JSON text that begins with ``{``, ``[`` or a quote; the path of a file with it, as a Path or
            as any other text; or the decoded JSON.

    Raises:
        ConfigError: there is no such file, no schema in it, or something in it has no Spark type; the
            message names the field.
    """
    parsed = schema_option(str(schema) if isinstance(schema, Path) else schema, Limits(), path="schema")
    if parsed is None:
        raise ConfigError("expected an Avro schema, found None", path="schema")
    return _Types(parsed.named).of(parsed.tree, "")


class _Types:
    """The types of one schema."""

    def __init__(self, named: dict[str, Any]) -> None:
        self._named: Final = named
        self._open: list[str] = []
        self._columns = 0

    def of(self, node: Any, path: str) -> DataType:
        """Return the type of a part of the schema, at a path of fields."""
        if isinstance(node, list):
            return self._union([branch for branch in node if not _is_null(branch)], path)
        node = self._named.get(node, {"type": node}) if isinstance(node, str) else node
        kind = node["type"]
        if kind in _RECORDS:
            return self._record(node, path)
        if kind == "array":
            return ArrayType(self._inner(node["items"], f"{path}[]"), _is_nullable(node["items"]))
        if kind == "map":
            inner = self._inner(node["values"], f"{path}.value[]")
            return MapType(StringType(), inner, _is_nullable(node["values"]))
        return _scalar(node, path)

    def _inner(self, node: Any, path: str) -> DataType:
        """Return the type of a nested schema, and count it."""
        self._columns += 1
        if self._columns > MAX_COLUMNS:
            raise _refused(path, f"more than {MAX_COLUMNS} columns, the limit")
        return self.of(node, path)

    def _record(self, node: Any, path: str) -> DataType:
        name = node["name"]
        if name in self._open:
            raise _refused(path, f"record {name!r} contains itself, which no Spark type can")
        if named_as_union([field["name"] for field in node["fields"]]):
            raise _refused(path, f"the fields of record {name!r} have the names of union members")
        self._open.append(name)
        fields = [self._field(field["name"], field["type"], path) for field in node["fields"]]
        self._open.pop()
        return StructType(fields)

    def _field(self, name: str, node: Any, path: str) -> StructField:
        inner = self._inner(node, f"{path}.{name}")
        return StructField(name, inner, _is_nullable(node))

    def _union(self, branches: list[Any], path: str) -> DataType:
        if not branches:
            return NullType()
        if len(branches) == 1:
            return self.of(branches[0], path)
        widened = _WIDENED.get(frozenset(map(_plainly, branches)))
        if widened is not None:
            return widened
        _require_distinct(branches, path)
        members = (self._inner(branch, f"{path}.member{n}") for n, branch in enumerate(branches))
        return StructType([StructField(f"member{n}", member) for n, member in enumerate(members)])


def _require_distinct(branches: list[Any], path: str) -> None:
    kinds = list(map(_kind, branches))
    if _FLOATING.issubset(kinds):
        raise _refused(path, "a union of float, double and others; Python has one class for both")
    if any(_logical(branch) in _TIMES for branch in branches):
        raise _refused(
            path, "a union of a time and others; Spark has integers for times, and returns integers"
        )


def _kind(node: Any) -> str:
    kind: str = node if isinstance(node, str) else node["type"]
    return kind


def _plainly(node: Any) -> str:
    """Return the name of a type; with its logical type, if it has one, since its objects differ."""
    return _logical(node) if isinstance(node, dict) and "logicalType" in node else _kind(node)


def _is_null(node: Any) -> bool:
    return node == "null" or (isinstance(node, dict) and node["type"] == "null")


def _is_nullable(node: Any) -> bool:
    return any(map(_is_null, node if isinstance(node, list) else [node]))


def _logical(node: Any) -> str:
    """Return the name of a logical type with the type that it annotates."""
    return f"{node['type']}-{node.get('logicalType')}" if isinstance(node, dict) else node


def _scalar(node: Any, path: str) -> DataType:
    logical = _logical(node)
    if logical not in _DECIMALS:
        return _LOGICAL.get(logical) or _SCALARS[node["type"]]
    precision, scale = node.get("precision", 0), node.get("scale", 0)
    if not 0 < precision <= _MAX_PRECISION:
        raise _refused(path, f"a decimal of {precision} digits; Spark has 1 to {_MAX_PRECISION}")
    return DecimalType(precision, scale)


def _refused(path: str, problem: str) -> ConfigError:
    return ConfigError(problem, path=f"schema: {path.removeprefix('.') or 'the root'}")
