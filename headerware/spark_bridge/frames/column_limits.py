"""Limits of typed columns: how deep and how many, how large in a batch, and of which Arrow types."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from headerware.core.errors import ConfigError

MAX_DEPTH: Final = 128
"""The deepest nesting of a column's type; the same as the default ``max_depth`` of Avro schemas."""
MAX_COLUMNS: Final = 10_000
"""How many columns a schema may define, nested ones included."""
MAX_RECORDS_OPTION: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
"""Spark's option for the number of records in an Arrow batch."""


def single_chunk(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return an array. Raise ConfigError for a chunked one: Arrow splits arrays of more than 2 GiB."""
    if isinstance(array, pa.ChunkedArray):
        raise ConfigError(
            "expected at most 2 GiB in one column of a batch, found more; set a smaller number of records",
            path=MAX_RECORDS_OPTION,
        )
    return array


def unsupported_type(kind: pa.DataType) -> ConfigError:
    """Return the error for a type that columns do not have."""
    return ConfigError(f"expected a type that avro_type or json_type returns, found the Arrow type {kind}")
