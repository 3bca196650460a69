"""A frame's schema, as Spark writes it in JSON and as Arrow has it."""

from __future__ import annotations

import json

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType


def arrow_schema(text: str) -> pa.Schema:
    """Give the Arrow schema of a frame.

    Args:
        text: what ``StructType.json()`` gave.
    """
    return to_arrow_schema(StructType.fromJson(json.loads(text)))
