"""Convert Arrow columns to records and back, a column at a time, never row by row."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, chain, pairwise, repeat
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headerware.core.batch import ArrowColumn, ArrowKind, Batch
from headerware.core.headers import EMPTY, Headers
from headerware.core.record import Record
from headerware.spark_bridge.frames.schema import RAW

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

_BYTES: Final = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_string,
    pa.types.is_large_string,
)
PART_BYTES: Final = 1 << 20
"""The size of the values that go through the chain together."""
_SHORT_RUN: Final = 16
"""If topics change after fewer rows on average, batches of one topic do not pay."""
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
            _types_of_timestamps(batch),
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


def read_parts(
    batch: pa.RecordBatch, plain: pa.RecordBatch | None, read: Callable[[pa.RecordBatch], list[Record]]
) -> Iterator[tuple[pa.RecordBatch, Sequence[Record]]]:
    """Return the rows in parts of one topic and some size, each as a batch whose columns are the arrays.

    Args:
        batch: the rows.
        plain: the same rows with the columns of records only, and parts as bytes; None if there are none.
        read: makes records of rows that cannot be such a batch; then the part may have any topics and size.
    """
    ends = None if plain is None else _ends(plain)
    if plain is None or ends is None:
        yield batch, read(batch)
        return
    begin = 0
    for end, topic in ends:
        part = batch.slice(begin, end - begin)
        columns = _columns(plain.slice(begin, end - begin))
        yield part, read(part) if columns is None else Batch(topic, **columns)
        begin = end


def _ends(plain: pa.RecordBatch) -> list[tuple[int, str]] | None:
    """Return the end and the topic of each part; None if most parts would be short or a topic is not text."""
    values = _column_or_nulls(plain, "value")
    if not plain.num_rows or not _is_binary(values.type) or plain.schema.get_field_index(RAW) >= 0:
        return None
    runs = pc.run_end_encode(plain.column("topic"))
    topics = _listed(runs.values)
    if len(topics) * _SHORT_RUN > plain.num_rows or not {str}.issuperset(map(type, topics)):
        return None
    sizes = pc.fill_null(pc.binary_length(values), 0).cast(pa.int64())
    numbers = pc.divide(pc.cumulative_sum(sizes), PART_BYTES)
    topic_ends = runs.run_ends.to_pylist()
    ends = sorted({*topic_ends, *pc.run_end_encode(numbers).run_ends.to_pylist()})
    topic_of = dict(zip(topic_ends, topics, strict=True))
    found, topic = [], ""
    for end in reversed(ends):
        topic = topic_of.get(end, topic)
        found.append((end, topic))
    return found[::-1]


def _columns(plain: pa.RecordBatch) -> dict[str, ArrowColumn[Any]] | None:
    """Return the columns of a batch; None if a key is not bytes, or a header's name is null or not UTF-8."""
    columns: dict[str, ArrowColumn[Any]] = {
        argument: ArrowColumn(_column_or_nulls(plain, name), kind)
        for name, (argument, kind) in _WIRE_KINDS.items()
    }
    try:
        names: Collection[Any] = columns["headers"].names()
    except UnicodeDecodeError:
        return None
    if None in names or not _is_binary(columns["keys"].array.type):
        return None
    for name, (argument, kind) in _KINDS.items():
        index = plain.schema.get_field_index(name)
        if index >= 0:
            columns[argument] = ArrowColumn(plain.column(index), kind)
    return columns


def _column_or_nulls(batch: pa.RecordBatch, name: str) -> pa.Array:
    index = batch.schema.get_field_index(name)
    kind = HEADERS if name == "headers" else pa.binary()
    return pa.nulls(batch.num_rows, kind) if index < 0 else batch.column(index)


def _is_binary(kind: pa.DataType) -> bool:
    return kind in {pa.binary(), pa.large_binary()}


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
    return repeat(None) if index < 0 else _milliseconds(batch.column(index))


def _milliseconds(stamps: pa.Array) -> list[int | None]:
    micros = stamps.cast(pa.timestamp("us", stamps.type.tz)).cast(pa.int64())
    millis = pc.divide(micros, 1000)
    # Arrow rounds towards zero, which is wrong before 1970.
    late = pc.less(micros, pc.multiply(millis, 1000))
    values: list[int | None] = pc.subtract(millis, late.cast(pa.int64())).to_pylist()
    return values


def _types_of_timestamps(batch: pa.RecordBatch) -> Iterable[int]:
    """Return timestamp types as records number them; Kafka's own numbers begin at -1."""
    index = batch.schema.get_field_index("timestampType")
    return repeat(0) if index < 0 else _timestamp_types(batch.column(index))


def _timestamp_types(array: pa.Array) -> list[int]:
    numbers: list[int] = pc.fill_null(pc.add(array, 1), 0).to_pylist()
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
    names, values = _pairs(array)
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


def _pairs(array: pa.Array) -> list[pa.Array]:
    """Return the names and the values of all headers; those of rows that are null are not used."""
    if not len(array):
        return [array.values.field(0)[:0], array.values.field(1)[:0]]
    first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
    arrays: list[pa.Array] = array.values.slice(first, last - first).flatten()
    return arrays


def _names(array: pa.Array) -> list[Any]:
    names: list[Any] = pc.unique(_pairs(array)[0]).to_pylist()
    return names


def header_column(headers: Sequence[Sequence[tuple[str, bytes | None]]]) -> pa.Array:
    """Put headers into a column."""
    if isinstance(headers, ArrowColumn) and headers.array.type == HEADERS and not headers.array.null_count:
        return headers.array
    offsets = pa.array([0, *accumulate(map(len, headers))], pa.int32())
    pairs = list(chain.from_iterable(headers))
    names = pa.array([name for name, _ in pairs], pa.string())
    values = pa.array([value for _, value in pairs], pa.binary())
    return pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays([names, values], ["key", "value"]))


def topics_of(records: Sequence[Record]) -> Iterable[str]:
    """Return the topic of each record."""
    if isinstance(records, Batch):
        return repeat(records.topic, len(records))
    return (record.topic for record in records)


def entries_of(records: Sequence[Record], field: str) -> Sequence[Any]:
    """Return the entries of one field of some records."""
    if isinstance(records, Batch):
        return records.column(field)
    return [getattr(record, field) for record in records]


def array_of(entries: Sequence[Any], kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Put entries into a column; it is the same array if they come from one."""
    if isinstance(entries, ArrowColumn):
        return entries.array if entries.array.type == kind else entries.array.cast(kind)
    return pa.array(entries if isinstance(entries, list) else list(entries), kind)


_BYTES_KIND: Final = ArrowKind(_listed, frozenset({bytes, type(None)}))
_WIRE_KINDS: Final = {
    "value": ("values", _BYTES_KIND),
    "key": ("keys", _BYTES_KIND),
    "headers": ("headers", ArrowKind(header_lists, frozenset({Headers}), _names)),
}
"""The columns that native steps take, by field."""
_NUMBERS: Final = frozenset({int, type(None)})
_KINDS: Final = {
    "partition": ("partitions", ArrowKind(_listed, _NUMBERS)),
    "timestamp": ("timestamps_ms", ArrowKind(_milliseconds, _NUMBERS)),
    "timestampType": ("timestamp_types", ArrowKind(_timestamp_types, _NUMBERS)),
    "offset": ("offsets", ArrowKind(_listed, _NUMBERS)),
}
