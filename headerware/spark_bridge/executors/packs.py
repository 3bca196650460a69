"""Rows on their way through an operator that knows only pandas: packed, so that nothing of them is converted.

A pack is an Arrow IPC stream with its schema. It waits in a checkpoint as it is, and so is to be read by
later versions of the code, over frames that may have got other columns since.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def packed(batch: pa.RecordBatch) -> bytes:
    """Return rows as a pack."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    pack: bytes = sink.getvalue().to_pybytes()
    return pack


def unpacked(pack: bytes | pa.Buffer) -> Iterator[pa.RecordBatch]:
    """Return the rows of a pack."""
    with pa.ipc.open_stream(pack) as reader:
        yield from reader


def joined(packs: Iterable[bytes | pa.Buffer], limit_bytes: int) -> Iterator[pa.RecordBatch]:
    """Return the rows of packs in few batches, of about a size; packs of other schemas begin others.

    Args:
        packs: the packs, taken one at a time.
        limit_bytes: the size, in bytes.
    """
    group: list[pa.RecordBatch] = []
    size_bytes = 0
    for batch in chain.from_iterable(map(unpacked, packs)):
        if group and (size_bytes > limit_bytes or not batch.schema.equals(group[0].schema)):
            yield from _one(group)
            group, size_bytes = [], 0
        group.append(batch)
        size_bytes += batch.nbytes
    if group:
        yield from _one(group)


def pieces(batch: pa.RecordBatch, limit_bytes: int) -> Iterator[pa.RecordBatch]:
    """Cut a batch into pieces of about a size; a row is never cut.

    Args:
        batch: the rows.
        limit_bytes: the size, in bytes.
    """
    rows = batch.num_rows
    step = max(1, rows * limit_bytes // max(1, batch.nbytes))
    for begin in range(0, rows, step):
        yield batch.slice(begin, step)


def alike(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows with just the types of a schema, such as lists whose items may be null."""
    if batch.schema.equals(schema):
        return batch
    columns = [batch.column(field.name).cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _one(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    joint: list[pa.RecordBatch] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joint
