"""Sum each Arrow batch in the Python workers, with names from headers.

Batches are summed by the bytes that name an owner and a producer before these bytes are decoded, so that each
name is decoded once a batch, whatever the number of records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from headerware.ops.chargeback.rules import (
    name_of_owner,
    name_of_producer,
    slice_header,
    unpacked,
)
from headerware.registry.names import default_names
from headerware.registry.wire.codec import HeaderIdCodec

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa


COUNTED: Final = (
    "hour bigint, topic string, owner string, producer string, direction string, group string, "
    "records bigint, bytes bigint, malformed bigint, partition int, message binary, first boolean"
)
"""The schema of the result of :func:`count`; hours are numbers since the epoch.

``partition`` and ``message``, its id, are null except for slices; ``first`` marks the slice of index 0.
"""

_ORDER: Final = [field.split()[0] for field in COUNTED.split(", ")]
_AS_IT_IS: Final = ("hour", "topic", "direction", "group", "partition", "message", "first")
_BY: Final = (*_AS_IT_IS, "owner", "opening", "broken")
_NAMED: Final = ("owner", "opening", "slice")


def count() -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Begin a task that counts records."""
    return _counted


def _counted(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Sum batches with ``hour, topic, partition, direction, group, bytes, owner, opening, slice, packed``."""
    for batch in batches:
        if batch.num_rows:
            yield from _summed(batch)


def _summed(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa  # noqa: PLC0415

    columns = {name: batch.column(name) for name in batch.schema.names}
    text = columns["topic"].type  # Spark has two kinds of strings, depending on a setting of the session
    packed = columns.pop("packed")
    columns["broken"] = pa.array([False] * batch.num_rows)
    if packed.null_count < len(packed):
        columns.update(_unpacked(packed, columns))
    columns.update(_messages(columns.pop("slice"), columns["partition"]))
    grouped = pa.table(columns).group_by(list(_BY), use_threads=False)
    sums = grouped.aggregate([("bytes", "sum"), ([], "count_all")])
    owners = [name_of_owner(value) for value in sums.column("owner").to_pylist()]
    producers = [name_of_producer(value) for value in sums.column("opening").to_pylist()]
    counts = sums.column("count_all").to_pylist()
    broken = sums.column("broken").to_pylist()
    malformed = [
        count if bad or producer.malformed else 0
        for count, bad, producer in zip(counts, broken, producers, strict=True)
    ]
    table = pa.table(
        {
            "owner": pa.array(owners, text),
            "producer": pa.array([producer.name for producer in producers], text),
            "records": sums.column("count_all"),
            "bytes": sums.column("bytes_sum"),
            "malformed": pa.array(malformed, pa.int64()),
            **{name: sums.column(name) for name in _AS_IT_IS},
        }
    )
    yield from table.select(_ORDER).to_batches()  # Spark matches columns by position


def _messages(slices: pa.Array, partitions: pa.Array) -> dict[str, pa.Array]:
    """Return the message of each slice, and whether the slice is the first; nulls for other records."""
    import pyarrow as pa  # noqa: PLC0415

    if slices.null_count == len(slices):
        none = pa.array([False] * len(slices))
        return {"partition": pa.nulls(len(slices), partitions.type), "message": slices, "first": none}
    found = [slice_header(value) for value in slices.to_pylist()]
    message_partitions = [
        None if header is None else partition
        for header, partition in zip(found, partitions.to_pylist(), strict=True)
    ]
    return {
        "partition": pa.array(message_partitions, partitions.type),
        "message": pa.array([header and header.message_id for header in found], slices.type),
        "first": pa.array([header is not None and header.index == 0 for header in found], pa.bool_()),
    }


def _unpacked(packed: pa.Array, columns: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
    """Return columns with the values from packed blocks filled in."""
    import pyarrow as pa  # noqa: PLC0415

    names = default_names()
    codec = HeaderIdCodec(names.id_of, names.name_of)
    kept = (columns[name].to_pylist() for name in _NAMED)
    rows = [
        (*values, False) if headers is None else unpacked(codec, _pairs(headers))
        for headers, *values in zip(packed.to_pylist(), *kept, strict=True)
    ]
    *named, broken = zip(*rows, strict=True)
    arrays = {name: pa.array(values, columns[name].type) for name, values in zip(_NAMED, named, strict=True)}
    return {**arrays, "broken": pa.array(broken, pa.bool_())}


def _pairs(found: str) -> list[tuple[str, bytes | None]]:
    """Read headers as ``counting._packed_headers`` writes them."""
    return [_pair(*header.split(":")) for header in found.split(",")]


def _pair(name: str, value: str) -> tuple[str, bytes | None]:
    return bytes.fromhex(name).decode("utf-8", "replace"), None if value == "-" else bytes.fromhex(value)
