"""What runs in the Python workers: names from headers, and sums of each Arrow batch.

Batches are summed by the bytes that name an owner and a producer before these are read as text, so that each
is read once a batch, whatever the number of records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from headerware.core.errors import WireFormatError
from headerware.core.headers import Headers
from headerware.interceptors.trail_entries import TRAIL_HEADER
from headerware.ops.chargeback.names import (
    MAX_OWNER_BYTES,
    OWNER_HEADER,
    owner_name,
    producer_name,
    trail_opening,
)
from headerware.registry.names import default_names
from headerware.registry.wire.codec import HeaderIdCodec

if TYPE_CHECKING:
    import pyarrow as pa

COUNTED: Final = (
    "hour bigint, topic string, owner string, producer string, direction string, group string, "
    "records bigint, bytes bigint, malformed bigint"
)
"""The schema of what :func:`counted` gives; hours are numbers since the epoch."""

_BY: Final = ("hour", "topic", "direction", "group", "owner", "opening", "broken")
_REMEMBERED: Final = 10_000

_owner_name = lru_cache(_REMEMBERED)(owner_name)
_producer_name = lru_cache(_REMEMBERED)(producer_name)


def counted(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Sum batches by what they are to be counted by.

    Args:
        batches: columns ``hour, topic, direction, group, bytes, owner, opening, packed``.
    """
    for batch in batches:
        if batch.num_rows:
            yield from _summed(batch)


def _summed(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa  # noqa: PLC0415

    columns = {name: batch.column(name) for name in batch.schema.names}
    text = columns["topic"].type  # Spark has two kinds of strings, by a setting of the session's
    packed = columns.pop("packed")
    columns["broken"] = pa.array([False] * batch.num_rows)
    if packed.null_count < len(packed):
        columns.update(_unpacked(packed, columns["owner"], columns["opening"]))
    grouped = pa.table(columns).group_by(list(_BY), use_threads=False)
    sums = grouped.aggregate([("bytes", "sum"), ([], "count_all")])
    owners = [_owner_name(value) for value in sums.column("owner").to_pylist()]
    producers = [_producer_name(value) for value in sums.column("opening").to_pylist()]
    counts = sums.column("count_all").to_pylist()
    broken = sums.column("broken").to_pylist()
    malformed = [
        count if bad or producer.malformed else 0
        for count, bad, producer in zip(counts, broken, producers, strict=True)
    ]
    table = pa.table(
        {
            "hour": sums.column("hour"),
            "topic": sums.column("topic"),
            "owner": pa.array(owners, text),
            "producer": pa.array([producer.name for producer in producers], text),
            "direction": sums.column("direction"),
            "group": sums.column("group"),
            "records": sums.column("count_all"),
            "bytes": sums.column("bytes_sum"),
            "malformed": pa.array(malformed, pa.int64()),
        }
    )
    yield from table.to_batches()


def _unpacked(packed: pa.Array, owners: pa.Array, openings: pa.Array) -> dict[str, pa.Array]:
    """Give the columns again with what packed blocks hold."""
    import pyarrow as pa  # noqa: PLC0415

    names = default_names()
    codec = HeaderIdCodec(names.id_of, names.name_of)
    rows = [
        (owner, opening, False) if headers is None else _named(codec, headers)
        for headers, owner, opening in zip(
            packed.to_pylist(), owners.to_pylist(), openings.to_pylist(), strict=True
        )
    ]
    own, opened, broken = zip(*rows, strict=True)
    return {
        "owner": pa.array(own, pa.binary()),
        "opening": pa.array(opened, pa.binary()),
        "broken": pa.array(broken, pa.bool_()),
    }


def _named(codec: HeaderIdCodec, found: str) -> tuple[bytes | None, bytes | None, bool]:
    """Read owner and trail from headers with ids; and whether these cannot be read."""
    try:
        headers = codec.decode(Headers([_pair(*header.split(":")) for header in found.split(",")]))
    except WireFormatError:
        return None, None, True
    owner, trail = headers.last(OWNER_HEADER), headers.last(TRAIL_HEADER)
    return (owner or b"")[:MAX_OWNER_BYTES], None if trail is None else trail_opening(trail), False


def _pair(name: str, value: str) -> tuple[str, bytes | None]:
    """Read a header as ``expressions.packed_headers`` writes it."""
    return bytes.fromhex(name).decode("utf-8", "replace"), None if value == "-" else bytes.fromhex(value)
