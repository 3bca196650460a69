"""Decode rows and encode them again in one pass, for micro-batches that nothing is done to in between."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headerware.spark_bridge.executors.decoding import decode_alone
from headerware.spark_bridge.executors.encoding import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Batches = Iterable[pa.RecordBatch]


def decode_and_encode(*arguments: bytes) -> Callable[[Batches], Iterator[Any]]:
    """Begin a task that decodes rows, and encodes what comes of them.

    Args:
        arguments: those of :func:`decode_alone`, those of :func:`encode`, and pickled: the columns that are
            written, and the topic of all rows, or None.
    """
    *decoding, work, accumulator, carrier, counts, between = arguments
    decoded = decode_alone(*decoding)
    encoded = encode(work, accumulator, carrier, counts)
    columns, topic = pickle.loads(between)  # noqa: S301 - Spark's own channel
    return lambda batches: encoded(_to_write(batch, columns, topic) for batch in decoded(batches))


def _to_write(batch: pa.RecordBatch, columns: list[str], topic: str | None) -> pa.RecordBatch:
    """Return decoded rows as a sink takes them: without the bridge's own columns, and not where they were."""
    made = {"partition": pa.nulls(batch.num_rows, pa.int32())}
    if topic is not None:
        made["topic"] = pa.repeat(pa.scalar(topic), batch.num_rows)
    arrays = [made[name] if name in made else batch.column(name) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, names=columns)
