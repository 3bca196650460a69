"""A frame's schema, as Spark writes it in JSON and as Arrow has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import to_arrow_schema

from headerware.spark_bridge.frames.schema import struct_of

if TYPE_CHECKING:
    import pyarrow as pa


def arrow_schema(text: str) -> pa.Schema:
    """Return the Arrow schema of a frame.

    Args:
        text: what ``StructType.json()`` gave.
    """
    return to_arrow_schema(struct_of(text))
