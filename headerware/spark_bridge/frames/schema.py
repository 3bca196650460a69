"""The columns of frames: the connector's columns, the bridge's own columns, and checks of both.

A frame with offsets was read, and ``partition`` is the partition from which a row came. A frame without
offsets is to be written, and ``partition`` is the partition to which a row goes.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DecimalType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headerware.core.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


HEADERS: Final = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
FAILURE: Final = StructType([
    StructField("step", StringType()),
    StructField("error", StringType()),
    StructField("reason", StringType()),
    StructField("topic", StringType()),
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("headers", HEADERS),
])  # fmt: skip
"""Why a row failed, and its dead letter: the original row, with the reason in its headers."""
VERIFIED: Final = StructType([
    StructField("key_id", StringType()),
    StructField("key_version", IntegerType()),
    StructField("signed_at", TimestampType()),
    StructField("cluster", StringType()),
    StructField("topic", StringType()),
    StructField("producer", BinaryType()),
    StructField("sequence", DecimalType(20, 0)),
    StructField("uncovered", ArrayType(StringType())),
    StructField("thumbprint", StringType()),
    StructField("subject", StringType()),
    StructField("issuer", StringType()),
])  # fmt: skip
"""What a signature says of a row that was verified; see :class:`headerware.Verified`."""
_RAW_PARTS: Final = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])
"""Key and value as they came."""
SOURCE: Final = StructType([
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
])  # fmt: skip
"""Where a row was read from."""
CARRIED_FROM: Final = "carried_from"
"""The column with the headers of the record that a row was made of, from which ``encode`` carries on."""
_TEXT: Final = (BinaryType(), StringType())
_READ: Final[Mapping[str, tuple[DataType, ...]]] = {
    "topic": (StringType(),),
    "key": (BinaryType(),),
    "value": (BinaryType(),),
    "headers": (HEADERS,),
    "partition": (IntegerType(),),
    "offset": (LongType(),),
    "timestamp": (TimestampType(),),
    "timestampType": (IntegerType(),),
}
_OPTIONAL: Final = frozenset({"key", "partition", "offset", "timestamp", "timestampType"})
_WRITTEN: Final[Mapping[str, tuple[DataType, ...]]] = {
    "topic": (StringType(),),
    "key": _TEXT,
    "value": _TEXT,
    "headers": (HEADERS,),
    "partition": (IntegerType(),),
    "timestamp": (TimestampType(),),
    CARRIED_FROM: (HEADERS,),
}
_OPTIONAL_TO_WRITE: Final = frozenset({"key", "headers", "partition", "timestamp", CARRIED_FROM})
_HINTS: Final = {
    "headers": 'read the topic with .option("includeHeaders", "true"), or with kafka_source()',
    "partition": "slices and repeats are found by their positions, so keep partition and offset",
    "offset": "slices and repeats are found by their positions, so keep partition and offset",
}
STATUS: Final = "_hw_status"
"""The column with the status of a row; see :class:`Status`."""
ARRIVED: Final = "_hw_arrived_ms"
"""The arrival of a waiting slice: the time of its batch."""


class Status(IntEnum):
    """The status of a row."""

    DONE = 0
    FAILED = 1
    SLICE = 2
    """A slice, as it came; its message is reassembled by partition."""
    POSITION = 3
    """No record: the row says how far a partition was read."""
    COUNTS = 4
    """No record: the row has the counts of a task."""


RAW: Final = "_hw_raw"
"""The key and value of a slice as they came, if the columns of these names are typed."""
IDENTITY: Final = "_hw_identity"
"""The identity that ``dedup`` read, by which repeats are found."""
DIGEST: Final = "_hw_digest"
"""The digest of the columns that identify a row to be written."""
COUNTS: Final = "_hw_counts"
"""The counts of a task as text, in the last row that the task returns where there are no accumulators."""
SPARSE_COLUMNS: Final = frozenset({"failure", RAW, IDENTITY, STATUS, ARRIVED, COUNTS})
"""Columns that the executors fill for some rows only."""
OWN: Final = frozenset({"failure", RAW, IDENTITY, STATUS, ARRIVED, COUNTS})
"""Columns that the bridge adds; a user's columns may not have these names. ``foreach_batch`` also adds
``source``."""


def same_type(found: DataType, expected: DataType) -> bool:
    """Return whether two types are the same, ignoring nullability."""
    if isinstance(expected, ArrayType):
        return isinstance(found, ArrayType) and same_type(found.elementType, expected.elementType)
    if isinstance(expected, StructType):
        return (
            isinstance(found, StructType)
            and found.names == expected.names
            and all(same_type(a.dataType, b.dataType) for a, b in zip(found, expected, strict=True))
        )
    return type(found) is type(expected)


def struct_from_json(text: str) -> StructType:
    """Return the schema that ``StructType.json()`` wrote."""
    return StructType.fromJson(json.loads(text))


def with_columns(schema: StructType, **columns: DataType) -> StructType:
    """Return a schema with columns replaced in place, and new ones at the end.

    All columns become nullable: a row with only a position has none of the user's values.
    """
    fields = [
        StructField(field.name, columns.pop(field.name))
        if field.name in columns
        else StructField(field.name, field.dataType, metadata=field.metadata)
        for field in schema.fields
    ]
    return StructType([*fields, *(StructField(name, kind) for name, kind in columns.items())])


def with_status(schema: StructType, *, typed: bool) -> StructType:
    """Return a schema with the columns for statuses; with typed parts also one for the bytes of slices."""
    raw = {RAW: _RAW_PARTS} if typed else {}
    return with_columns(schema, **{STATUS: IntegerType(), ARRIVED: LongType()}, **raw)


def with_counts(schema: StructType) -> StructType:
    """Return a schema with the column for the counts of tasks."""
    return with_columns(schema, **{COUNTS: StringType()})


def check_read(frame: DataFrame, *, needs_position: bool) -> None:
    """Raise ConfigError for a frame that cannot be decoded; some chains need partition and offset."""
    needed = {"partition", "offset"} if needs_position else set()
    _check(frame, _READ, _OPTIONAL - needed)


def check_written(frame: DataFrame, *, typed: frozenset[str]) -> None:
    """Raise ConfigError for a frame that cannot be encoded; ``typed`` columns may have any type."""
    _check(frame, {name: types for name, types in _WRITTEN.items() if name not in typed}, _OPTIONAL_TO_WRITE)
    _require_columns(frame, typed - _OPTIONAL_TO_WRITE)


def _check(frame: DataFrame, expected: Mapping[str, tuple[DataType, ...]], optional: frozenset[str]) -> None:
    _require_columns(frame, expected.keys() - optional)
    for field in frame.schema.fields:
        types = expected.get(field.name)
        if types is not None and not any(same_type(field.dataType, each) for each in types):
            wanted = " or ".join(each.simpleString() for each in types)
            raise ConfigError(
                f"expected {wanted}, found {field.dataType.simpleString()}", path=f"column {field.name}"
            )


def _require_columns(frame: DataFrame, names: frozenset[str] | set[str]) -> None:
    found = frame.columns
    for name in sorted(names):
        if name not in found:
            hint = _HINTS.get(name, "the bridge takes frames as Spark's Kafka connector returns them")
            raise ConfigError(f"there is none; {hint}. Found: {', '.join(found)}", path=f"column {name}")
    alike = [name.lower() for name in found]
    doubled = sorted(name for name in found if alike.count(name.lower()) > 1)
    if doubled:
        raise ConfigError(
            "there are several of this name, whatever its case; rename all but one",
            path=f"column {doubled[0]}",
        )


def require_free(frame: DataFrame, names: Collection[str]) -> None:
    """Raise ConfigError for a column of one of these names in any case; Spark ignores case."""
    ours = {name.lower() for name in names}
    taken = sorted(name for name in frame.columns if name.lower() in ours)
    if taken:
        raise ConfigError("the bridge has a column of this name; rename yours", path=f"column {taken[0]}")


def require_mappable(frame: DataFrame) -> None:
    """Raise ConfigError for a column that pyspark's ``mapInArrow`` takes for a field of another column."""
    dotted = [name for name in frame.columns if "." in name or "`" in name]
    if dotted:
        raise ConfigError(
            "pyspark cannot hand a column to Python that has a dot or a backtick in its name; rename it",
            path=f"column {dotted[0]}",
        )
