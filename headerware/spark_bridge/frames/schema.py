"""The frames of Spark's Kafka connector: which columns there are, of which types, and what may be missing."""

from __future__ import annotations

import json
from enum import IntEnum
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

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
"""Why a row failed, and its dead letter: the untouched original, with the reason in its headers."""
PARTS: Final = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])
"""Key and value as they came."""
SOURCE: Final = StructType([
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
])  # fmt: skip
"""Where a row was read from."""
STATUS: Final = "_hw_status"
"""The column in which the executors say what became of a row; see :class:`Status`."""
ARRIVED: Final = "_hw_arrived_ms"
"""When a slice that waits for others came: the time of the batch that brought it."""


class Status(IntEnum):
    """What became of a row."""

    DONE = 0
    FAILED = 1
    SLICE = 2
    """It is a slice, as it came; its message is put together by partition."""
    POSITION = 3
    """It is no record: it says how far a partition was read."""


RAW: Final = "_hw_raw"
"""Key and value of a slice as they came, where the columns of these names are typed."""
IDENTITY: Final = "_hw_identity"
"""The identity that ``dedup`` read, by which repeats are told."""
DIGEST: Final = "_hw_digest"
"""The digest of the columns that identify a row that is to be written."""
WITH_STATUS: Final = frozenset({"failure", RAW, IDENTITY, STATUS, ARRIVED})
"""Columns that the executors fill in for the rows that have any."""
OWN: Final = frozenset({"failure", "source", RAW, IDENTITY, STATUS, ARRIVED})
"""Columns that the bridge adds; a user's may not be called so."""


def same_type(found: DataType, expected: DataType) -> bool:
    """Return whether two types are the same, whatever may be null."""
    if isinstance(expected, ArrayType):
        return isinstance(found, ArrayType) and same_type(found.elementType, expected.elementType)
    if isinstance(expected, StructType):
        return (
            isinstance(found, StructType)
            and found.names == expected.names
            and all(same_type(a.dataType, b.dataType) for a, b in zip(found, expected, strict=True))
        )
    return type(found) is type(expected)


def struct_of(text: str) -> StructType:
    """Return the schema that ``StructType.json()`` wrote."""
    return StructType.fromJson(json.loads(text))


def with_columns(schema: StructType, **columns: DataType) -> StructType:
    """Return a schema with columns replaced in their places, and new ones behind.

    Any column may be null in it: a row that only says how far a partition was read has nothing of the user's.
    """
    fields = [
        StructField(field.name, columns.pop(field.name))
        if field.name in columns
        else StructField(field.name, field.dataType, metadata=field.metadata)
        for field in schema.fields
    ]
    return StructType([*fields, *(StructField(name, kind) for name, kind in columns.items())])


def with_status(schema: StructType, *, typed: bool) -> StructType:
    """Return a schema with the columns in which the executors say what became of rows.

    Args:
        schema: that of the rows.
        typed: whether key or value are, so that slices need another place for what they are.
    """
    raw = {RAW: PARTS} if typed else {}
    return with_columns(schema, **{STATUS: IntegerType(), ARRIVED: LongType()}, **raw)
