"""Copy a topic as the worker does: judge records, then messages in slices, and write what is kept."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from headerware.core.headers import EMPTY
from headerware.core.record import Record, bytes_of
from headerware.interceptors.slice.header import SliceHeader
from headerware.ops.compaction.job import Copied, PartitionCopy
from headerware.ops.compaction.rules import CopyRule, Judged, Why, judged_message
from headerware.ops.verify import Verification
from headerware.spark_bridge.chain_source import ChainSource
from headerware.spark_bridge.executors.open_chain import local_path
from headerware.spark_bridge.frames.records import column, gc_paused, read_records
from headerware.workers.units import Unit, Units

if TYPE_CHECKING:
    from collections.abc import Callable

    Batches = Iterable[pa.RecordBatch]
    Task = Callable[[Batches], Iterator[pa.RecordBatch]]

_REPLACED: Final = "\N{REPLACEMENT CHARACTER}"
"""Java's replacement for bytes of a header's name that are not UTF-8; the original bytes are lost."""
VERDICTS: Final = (
    "partition int, offset bigint, size bigint, tombstone boolean, digest binary, version bigint, "
    "why string, at bigint, number int"
)
"""The schema of verdicts: records, also in messages, before they are compared.

``at`` is the offset at which a record is written. For a slice this is the offset of its message's last slice,
and null while slices are missing. ``number`` is the index of a slice.
"""
JUDGED: Final = f"{VERDICTS}, message binary, slices int, total_bytes bigint, slice_bytes bigint"
"""The schema of records that are judged by themselves; the last four columns are null except for slices."""
REPEATED: Final = "repeated"
"""The reason if a slice has come before."""
WRITTEN: Final = "partition int, written bigint"
"""The schema of the writing tasks' results: the number of records by partition."""
_BATCH: Final = 10_000
_BATCH_BYTES: Final = 32 << 20
"""The size of one transaction; a message in slices is never divided."""


class Judging(msgspec.Struct, frozen=True, kw_only=True):
    """How the records of a topic are judged; their signatures must name this topic."""

    topic: str
    rule: CopyRule
    now_ms: int
    compacts: bool
    chain: ChainSource | None = None
    cluster_id: str | None = None


class Writing(msgspec.Struct, frozen=True, kw_only=True):
    """How kept records are written: the job, and the store of its progress."""

    copied: Copied
    job: str


class Verdict(NamedTuple):
    """A row of :data:`VERDICTS`."""

    partition: int
    offset: int
    size: int
    tombstone: bool
    digest: bytes | None
    version: int
    why: str | None
    at: int | None
    number: int = 0


class JudgedRow(NamedTuple):
    """A row of :data:`JUDGED`."""

    partition: int
    offset: int
    size: int
    tombstone: bool
    digest: bytes | None
    version: int
    why: Why | None
    at: int | None
    number: int = 0
    message: bytes | None = None
    slices: int | None = None
    total_bytes: int | None = None
    slice_bytes: int | None = None

    def part(self) -> SliceHeader:
        """Return the header of a slice."""
        assert None not in self[-4:]  # noqa: S101 - only slices are judged again
        return SliceHeader(self.message, self.number, self.slices, self.total_bytes, self.slice_bytes)  # type: ignore[arg-type]  # as above


def judge_records(pickled: bytes) -> Task:
    """Begin a task that judges records; ``value_bytes`` is the length of a value that is left out."""
    return partial(_judged, pickle.loads(pickled))  # noqa: S301 - Spark's own channel


def judge_messages() -> Task:
    """Begin a task that judges messages in slices, whose slices come in the order of their offsets."""
    return _message_verdicts


def write_records(pickled: bytes) -> Task:
    """Begin a task that writes records, which come partition by partition in the order of ``at``."""
    return partial(_written, pickle.loads(pickled))  # noqa: S301 - Spark's own channel


def _judged(judging: Judging, batches: Batches) -> Iterator[pa.RecordBatch]:
    verification = None
    if judging.chain is not None:
        chain = judging.chain.load(local_path)
        verification = Verification(chain, judging.topic, cluster_id=judging.cluster_id)
    try:
        for batch in batches:
            with gc_paused():
                rows = list(_judged_rows(judging, verification, batch))
            yield _batch(JudgedRow, rows, batch)
    finally:
        if verification is not None:
            verification.close()


def _judged_rows(
    judging: Judging, verification: Verification | None, batch: pa.RecordBatch
) -> Iterator[JudgedRow]:
    verified = None if verification is None else verification.verified
    for record, length in zip(_records(batch), column(batch, "value_bytes"), strict=True):
        if any(_REPLACED in (name or "") for name, _ in record.headers):
            record = record.replace(headers=[])  # noqa: PLW2901 - as a client's that it cannot read
        found = judging.rule.judged(
            record, now_ms=judging.now_ms, verified=verified, compacts=judging.compacts
        )
        size = found.size_bytes - len(record.value or b"") + (length or 0)
        known = (found.partition, found.offset, size, length is None, found.digest, found.version, found.why)
        part = found.part
        if part is None:
            yield JudgedRow(*known, at=found.offset)
        else:
            stated = part.message_id, part.count, part.total_bytes, part.slice_bytes
            yield JudgedRow(*known, None, part.index, *stated)


def _records(batch: pa.RecordBatch) -> Iterator[Record]:
    for record in read_records(batch):
        # Spark gives a record without a time a time before 1970.
        yield record if record.timestamp_type else record.replace(timestamp_ms=None)


def _message_verdicts(batches: Batches) -> Iterator[pa.RecordBatch]:
    """Judge messages by the workers' Units; a message that comes again later is another message."""
    units = Units(lambda *_: None, part_of=lambda record: _row_of(record).part())
    of: tuple[int, bytes | None] | None = None
    for batch in batches:
        rows: list[Verdict] = []
        for row in map(JudgedRow._make, zip(*(each.to_pylist() for each in batch.columns), strict=True)):
            if of != (row.partition, row.message):
                rows += _waiting(units)
                of = row.partition, row.message
            unit = units.add(
                Record("", None, None, EMPTY, row.partition, offset=row.offset, local={"row": row})
            )
            rows += () if unit is None else _unit_verdicts(unit)
        yield _batch(Verdict, rows, batch)
    if of is not None:
        yield _batch(Verdict, list(_waiting(units)), batch)  # the last message


def _waiting(units: Units) -> Iterator[Verdict]:
    """Yield verdicts on the slices of incomplete messages."""
    return (_verdict(_row_of(record)) for unit in units.give_up() for record in unit.records)


def _row_of(record: Record) -> JudgedRow:
    row: JudgedRow = (record.local or {})["row"]
    return row


def _unit_verdicts(unit: Unit) -> Iterator[Verdict]:
    rows = [_row_of(record) for record in unit.records]
    if unit.problem is not None:
        (row,) = rows
        is_repeated = unit.problem == "repeated"
        yield _verdict(row, why=REPEATED if is_repeated else "malformed", at=row.offset)
        return
    found = judged_message(
        [
            Judged(row.partition, row.offset, row.size, row.digest, row.version, row.why, row.part())
            for row in rows
        ]
    )
    for row in rows:
        yield _verdict(row, digest=found.digest, version=found.version, why=found.why, at=found.offset)


def _written(writing: Writing, batches: Batches) -> Iterator[pa.RecordBatch]:
    """Write partition by partition, and yield the numbers of records."""
    rows = (row for batch in batches for row in zip(_records(batch), column(batch, "at"), strict=True))
    written = {}
    for number, own in groupby(rows, key=lambda row: row[0].partition or 0):
        with writing.copied.partition(writing.job, number) as copy:
            written[number] = _copied(copy, own)
    columns = [pa.array(list(written), pa.int32()), pa.array(list(written.values()), pa.int64())]
    yield pa.RecordBatch.from_arrays(columns, ["partition", "written"])


def _copied(copy: PartitionCopy, rows: Iterable[tuple[Record, int]]) -> int:
    """Write the records of a partition that no earlier attempt has written; return how many."""
    waiting: list[Record] = []
    size_bytes = written = last = 0
    for record, at in rows:
        if at < copy.done:
            continue
        # All slices of a message have the same ``at``.
        if at != last and (len(waiting) >= _BATCH or size_bytes >= _BATCH_BYTES):
            copy.send(waiting, last + 1)
            waiting, size_bytes = [], 0
        waiting.append(record)
        size_bytes += bytes_of(record)
        written, last = written + 1, at
    if waiting:
        copy.send(waiting, last + 1)
    return written


def _verdict(
    row: JudgedRow,
    *,
    digest: bytes | None = None,
    version: int = 0,
    why: str | None = None,
    at: int | None = None,
) -> Verdict:
    return Verdict(row.partition, row.offset, row.size, row.tombstone, digest, version, why, at, row.number)


def _batch(kind: Any, rows: list[Any], like: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows as a batch, with the kinds of text and bytes that another batch has, by a Spark setting."""
    is_large = any(pa.types.is_large_binary(field.type) for field in like.schema)
    text, binary = (pa.large_string(), pa.large_binary()) if is_large else (pa.string(), pa.binary())
    types = {
        "partition": pa.int32(),
        "tombstone": pa.bool_(),
        "digest": binary,
        "why": text,
        "number": pa.int32(),
        "message": binary,
        "slices": pa.int32(),
    }
    columns = zip(*rows, strict=True) if rows else ((),) * len(kind._fields)
    arrays = [
        pa.array(values, types.get(name, pa.int64()))
        for name, values in zip(kind._fields, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, list(kind._fields))
