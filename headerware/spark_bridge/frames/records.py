"""Convert Arrow columns to records and back, a column at a time, never row by row."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, chain, pairwise, repeat
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headerware.core.headers import EMPTY, Headers
from headerware.core.record import Record
from headerware.spark_bridge.frames.schema import RAW

if TYPE_CHECKING:
    from collections.abc import Iterable

_BYTES: Final = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_string,
    pa.types.is_large_string,
)
HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pause the garbage collector while a batch is processed.

    None of the batch's objects is garbage, and examining them costs more than making them. The collector must
    stay off as long as they exist, since it would examine all of them at once.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def read_records(batch: pa.RecordBatch) -> list[Record]:
    """Return the rows of a frame that was read from Kafka, as records."""
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
            _timestamp_types(batch),
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
    """Return a column's values, or ``otherwise`` for ever if there is no such column."""
    index = batch.schema.get_field_index(name)
    if index < 0:
        return repeat(otherwise)
    return _listed(batch.column(index))


def _listed(array: pa.Array) -> list[Any]:
    """Return the values of a column; None for text that is not UTF-8, which Spark allows."""
    try:
        values: list[Any] = array.to_pylist()
    except UnicodeDecodeError:
        as_bytes = pa.large_binary() if pa.types.is_large_string(array.type) else pa.binary()
        return [_text(value) for value in array.cast(as_bytes).to_pylist()]
    return values


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def milliseconds(batch: pa.RecordBatch) -> Iterable[int | None]:
    """Return the timestamps in milliseconds since the epoch."""
    index = batch.schema.get_field_index("timestamp")
    if index < 0:
        return repeat(None)
    stamps = batch.column(index)
    micros = stamps.cast(pa.timestamp("us", stamps.type.tz)).cast(pa.int64())
    millis = pc.divide(micros, 1000)
    # Arrow rounds towards zero, which is wrong before 1970.
    late = pc.less(micros, pc.multiply(millis, 1000))
    values: list[int | None] = pc.subtract(millis, late.cast(pa.int64())).to_pylist()
    return values


def _timestamp_types(batch: pa.RecordBatch) -> Iterable[int]:
    """Return timestamp types as records number them; Kafka's own numbers begin at -1."""
    index = batch.schema.get_field_index("timestampType")
    if index < 0:
        return repeat(0)
    numbers: list[int] = pc.fill_null(pc.add(batch.column(index), 1), 0).to_pylist()
    return numbers


def payload_bytes(batch: pa.RecordBatch) -> int:
    """Return the total size of the values."""
    values = batch.column(batch.schema.get_field_index("value"))
    return (pc.sum(pc.binary_length(values)).as_py() or 0) if _is_bytes(values.type) else 0


def last_offsets(batch: pa.RecordBatch) -> list[tuple[tuple[str, int], int]]:
    """Return the last offset of each partition."""
    columns = ["topic", "partition", "offset"]
    known = pa.Table.from_batches([batch.select(columns)]).drop_null()
    found = known.group_by(columns[:2], use_threads=False).aggregate([("offset", "max")]).to_pylist()
    return [((row["topic"], row["partition"]), row["offset_max"]) for row in found]


def _is_bytes(kind: pa.DataType) -> bool:
    return any(is_kind(kind) for is_kind in _BYTES)


def header_lists(array: pa.Array) -> list[Any]:
    """Return each row's headers; as a list, which the chain refuses, if a name is null."""
    if not len(array):
        return []
    offsets = array.offsets.to_pylist()
    first = offsets[0]
    names, values = array.values.slice(first, offsets[-1] - first).flatten()
    listed = _listed(names)
    pairs = list(zip(listed, values.to_pylist(), strict=True))
    new = tuple.__new__
    headers: list[Any] = [
        new(Headers, pairs[begin - first : end - first]) if begin != end else EMPTY
        for begin, end in pairwise(offsets)
    ]
    if array.null_count:
        there = array.is_valid().to_pylist()
        headers = [own if is_there else EMPTY for own, is_there in zip(headers, there, strict=True)]
    if names.null_count or None in listed:
        headers = [list(own) if any(name is None for name, _ in own) else own for own in headers]
    return headers


def header_column(headers: Sequence[Sequence[tuple[str, bytes | None]]]) -> pa.Array:
    """Put headers into a column."""
    offsets = pa.array([0, *accumulate(map(len, headers))], pa.int32())
    pairs = list(chain.from_iterable(headers))
    names = pa.array([name for name, _ in pairs], pa.string())
    values = pa.array([value for _, value in pairs], pa.binary())
    return pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays([names, values], ["key", "value"]))
