"""What Spark itself works out of a record: its hour, its size, and the few bytes that names are read from.

All of it is SQL in the JVM, so that keys, values and headers never travel to Python. Headers are looked for
by their names and by their compact keys; only where a packed block of header ids is there do the record's
headers go to Python, as text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headerware.interceptors.slice.header import HEADER as SLICE_HEADER
from headerware.interceptors.slice.header import HEADER_BYTES as SLICE_HEADER_BYTES
from headerware.interceptors.trail_entries import TRAIL_HEADER
from headerware.ops.chargeback.names import MAX_OWNER_BYTES, OPENING, OWNER_HEADER, TIMELESS
from headerware.ops.chargeback.sizes import HEADER_BYTES, RECORD_BYTES
from headerware.registry.names import default_names
from headerware.registry.wire.compact_keys import compact_key
from headerware.registry.wire.packed_block import HEADER as PACKED_HEADER

if TYPE_CHECKING:
    from pyspark.sql import Column

HOUR_SECONDS: Final = 3600
_BEYOND_CALENDARS: Final = 253_370_764_800  # the year 9999
_SIZE: Final = f"""
    {RECORD_BYTES} + coalesce(octet_length(key), 0) + coalesce(octet_length(value), 0)
    + coalesce(aggregate(headers, 0, (sum, header) -> sum + {HEADER_BYTES}
        + octet_length(header.key) + coalesce(octet_length(header.value), 0)), 0)
"""
_PACKED: Final = f"""
    CASE WHEN exists(headers, header -> header.key = '{PACKED_HEADER}')
    THEN array_join(transform(headers, header ->
        concat(hex(header.key), ':', coalesce(hex(header.value), '-'))), ',') END
"""


def hour_number() -> Column:
    """Return hours since the epoch of ``timestamp``; null for a time that no calendar reaches."""
    from pyspark.sql import functions as sql  # noqa: PLC0415

    seconds = sql.unix_seconds(sql.col("timestamp"))
    usable = (seconds >= 0) & (seconds < _BEYOND_CALENDARS)
    return sql.when(usable, sql.floor(seconds / HOUR_SECONDS))


def size_bytes() -> Column:
    """Return a record's size, as :func:`~headerware.ops.chargeback.record_bytes` has it."""
    from pyspark.sql import functions as sql  # noqa: PLC0415

    return sql.expr(_SIZE).cast("bigint")


def owner_value() -> Column:
    """Return the value of the last owner's header, cut; null where there is none."""
    from pyspark.sql import functions as sql  # noqa: PLC0415

    return sql.expr(f"substring({_last(OWNER_HEADER)}, 1, {MAX_OWNER_BYTES})")


def trail_value() -> Column:
    """Return the value of the last trail; null where there is none."""
    from pyspark.sql import functions as sql  # noqa: PLC0415

    return sql.expr(_last(TRAIL_HEADER))


def slice_value() -> Column:
    """Return the value of a slice's header, cut to one byte more than it has; null for what is no slice."""
    from pyspark.sql import functions as sql  # noqa: PLC0415

    return sql.expr(f"substring({_last(SLICE_HEADER)}, 1, {SLICE_HEADER_BYTES + 1})")


def opening_of(trail: str) -> Column:
    """Return what names the producer in a column of trails, as ``names.trail_opening`` has it."""
    from pyspark.sql import functions as sql  # noqa: PLC0415

    text = sql.col(trail).cast("string")
    opening = sql.concat(sql.lit(TIMELESS), sql.regexp_extract(text, OPENING, 1))
    return sql.when(text.rlike(OPENING), opening).when(text.isNotNull(), "").cast("binary")


def packed_headers() -> Column:
    """Return all headers of a record that has a packed block among them, as text; null for all other records.

    The text is ``name:value,name:value``, both in hex, and ``-`` for a null value. As an array of structs the
    column would cost five times what all others do together, even where all of it is null.
    """
    from pyspark.sql import functions as sql  # noqa: PLC0415

    return sql.expr(_PACKED)


def _last(name: str) -> str:
    """Write SQL for the value of the last header of a name, whichever way the name is written."""
    header_id = default_names().id_of(name)
    names = f"'{name}'" if header_id is None else f"'{name}', '{compact_key(header_id)}'"
    return f"try_element_at(filter(headers, header -> header.key IN ({names})), -1).value"
