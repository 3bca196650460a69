"""Which rows are slices, in the same words for Python and for SQL.

A packed block of header ids may hold the slice's header; to know, it would have to be read. So rows with
one go the way of slices, where the chain reads it; they come to no harm there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column

NAMES: Final = frozenset({"hw.slice", "~E", "hw.ids"})
WAITING: Final = "a step holds the record back; in Spark only slice may, and only on consume"
NO_POSITION: Final = "a slice without its partition and offset; keep these columns"


def is_slice(headers: Iterable[tuple[str, bytes | None]]) -> bool:
    """Return whether a row may be a slice."""
    return any(name in NAMES for name, _ in headers)


def slice_condition() -> Column:
    """Say the same of the column ``headers`` in SQL; never null."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - Spark's custom; executors need no SQL

    found = F.exists("headers", lambda header: header["key"].isin(sorted(NAMES)))
    return F.coalesce(found, F.lit(False))  # noqa: FBT003 - Spark takes it so
