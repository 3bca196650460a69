"""Leave out what cannot be imported here."""

from __future__ import annotations

from importlib.util import find_spec

# Where Spark is not installed, as with the oldest clients, there is nothing of its bridge to try.
collect_ignore = (
    []
    if find_spec("pyspark") and find_spec("pyarrow")
    else ["test_reassembly_batches.py", "test_typed_columns.py"]
)
