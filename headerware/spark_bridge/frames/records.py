"""Arrow to records and back: columns are taken apart and put together whole, never row by row."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain, pairwise, repeat
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from headerware.core.headers import EMPTY, Headers
from headerware.core.record import Record
from headerware.spark_bridge.frames.schema import RAW

if TYPE_CHECKING:
    from collections.abc import Iterable

HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def read_records(batch: pa.RecordBatch) -> list[Record]:
    """Give the rows of a frame that was read from Kafka, as records."""
    length = batch.num_rows
    records = [
        Record(topic, value, key, headers, partition, timestamp, kind, offset)
        for topic, value, key, headers, partition, timestamp, kind, offset in zip(
            column(batch, "topic"),
            column(batch, "value"),
            column(batch, "key"),
            header_lists(batch.column("headers")),
            column(batch, "partition"),
            milliseconds(batch),
            column(batch, "timestampType", 0),
            column(batch, "offset"),
            strict=False,
        )
    ][:length]
    if batch.schema.get_field_index(RAW) < 0:
        return records
    return [
        record if raw is None else record.replace(key=raw["key"], value=raw["value"])
        for record, raw in zip(records, column(batch, RAW), strict=True)
    ]


def column(batch: pa.RecordBatch, name: str, otherwise: Any = None) -> Iterable[Any]:
    """Give a column's values, or the same one for ever where there is no such column."""
    index = batch.schema.get_field_index(name)
    if index < 0:
        return repeat(otherwise)
    values: list[Any] = batch.column(index).to_pylist()
    return values


def milliseconds(batch: pa.RecordBatch) -> Iterable[int | None]:
    """Give the timestamps in milliseconds since the epoch."""
    index = batch.schema.get_field_index("timestamp")
    if index < 0:
        return repeat(None)
    stamps = batch.column(index)
    plain = stamps.cast(pa.timestamp("ms", stamps.type.tz), safe=False)
    values: list[int | None] = plain.cast(pa.int64()).to_pylist()
    return values


def header_lists(array: pa.Array) -> list[Any]:
    """Give each row's headers; with a null name among them they are a list, which the chain refuses."""
    offsets = array.offsets.to_pylist()
    first = offsets[0]
    names, values = array.values.slice(first, offsets[-1] - first).flatten()
    pairs = list(zip(names.to_pylist(), values.to_pylist(), strict=True))
    new = tuple.__new__
    headers: list[Any] = [
        new(Headers, pairs[begin - first : end - first]) if begin != end else EMPTY
        for begin, end in pairwise(offsets)
    ]
    if array.null_count:
        there = array.is_valid().to_pylist()
        headers = [own if is_there else EMPTY for own, is_there in zip(headers, there, strict=True)]
    if names.null_count:
        headers = [list(own) if any(name is None for name, _ in own) else own for own in headers]
    return headers


def header_column(headers: Sequence[Sequence[tuple[str, bytes | None]]]) -> pa.Array:
    """Put headers into a column."""
    offsets = pa.array([0, *accumulate(map(len, headers))], pa.int32())
    pairs = list(chain.from_iterable(headers))
    names = pa.array([name for name, _ in pairs], pa.string())
    values = pa.array([value for _, value in pairs], pa.binary())
    return pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays([names, values], ["key", "value"]))
