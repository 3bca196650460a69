"""The stateful streaming form: packs of rows in, grouped by partition; slices wait in the query's state.

Three stages, one after the other. ``pack`` decodes the rows that stand alone, where they were read, and packs
them; slices go on as they came, a pack each. :class:`Reassembly` lets finished packs pass, and puts slices
together: those that wait are in the state of their topic and partition, by offset, with the time of the batch
that brought them. ``unpack`` gives the rows back as columns.

Spark fixes a batch's time with its offsets, and versions the state with the batch, so that a replay has the
same slices, the same clock and the same outcome. A worker process keeps nothing of them.
"""

from __future__ import annotations

import pickle
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from headerware.core.record import Record
from headerware.spark_bridge.executors.decoding import Decoding
from headerware.spark_bridge.executors.gluing import Gluing, Terms
from headerware.spark_bridge.executors.opened import opened
from headerware.spark_bridge.executors.packs import alike, joined, packed, pieces
from headerware.spark_bridge.executors.progress import Tally
from headerware.spark_bridge.executors.shipping import spare_next_task
from headerware.spark_bridge.frames.arrow_schema import arrow_schema
from headerware.spark_bridge.frames.output import FLUSH_BYTES, bare_rows
from headerware.spark_bridge.frames.records import column
from headerware.spark_bridge.frames.schema import ARRIVED, RAW, STATUS, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql.streaming.stateful_processor import (
        ExpiredTimerInfo,
        MapState,
        StatefulProcessorHandle,
        TimerValues,
    )

    Batches = Iterable[pa.RecordBatch]
    Row = tuple[str, int, int, int, bytes | None]

PACKS: Final = StructType([StructField("rows", BinaryType())])
"""What the operator gives: finished rows, packed."""
PLACED_PACKS: Final = StructType([
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("status", IntegerType()),
    StructField("rows", BinaryType()),
])  # fmt: skip
"""What it takes: packs of finished rows, slices (one a pack), and positions, which have no rows."""

_OFFSET: Final = StructType([StructField("offset", LongType())])
_PLACED: Final = pa.schema([
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("status", pa.int32()),
    ("rows", pa.binary()),
])  # fmt: skip
_INNER: Final = frozenset({STATUS, ARRIVED, RAW})


def pack(work: bytes, limit_bytes: bytes) -> Callable[[Batches], Iterator[Any]]:
    """Begin a task that decodes rows and packs them.

    Args:
        work: a pickled :class:`Work`.
        limit_bytes: a pickled int: about how large a pack of finished rows is.

    Raises:
        ModuleNotFoundError: a package is not here that Spark's operator needs.
    """
    _require_protobuf()
    ready = opened(work)
    decoding = Decoding(ready, Tally(ready.session, None), gathers=True)
    limit: int = pickle.loads(limit_bytes)  # noqa: S301 - Spark's own channel
    return lambda batches: (_packs(batch, limit) for batch in decoding(batches))


def unpack() -> Callable[[Batches], Iterator[Any]]:
    """Begin a task that gives rows back as columns."""
    return _unpacked


class Reassembly(StatefulProcessor):
    """What Spark calls with the packs of each topic and partition, and when a message has waited too long.

    Args:
        work: a pickled :class:`Work`; what is given has its schema, without the columns for statuses.
        expire_ms: how long an incomplete message waits for its next slice, in milliseconds; None where the
            chain does not say, and then only a later batch with rows of the partition looks for it.
    """

    def __init__(self, work: bytes, expire_ms: int | None) -> None:
        self._work: Final = work
        self._expire_ms: Final = expire_ms

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Take the state, which also happens on the driver; the chain is not opened for it."""
        self._handle = handle
        self._waiting: MapState = handle.getMapState("waiting", _OFFSET, PACKS)

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: TimerValues,  # noqa: N803 - Spark's name
    ) -> Iterator[pd.DataFrame]:
        """Pass finished packs on, and put slices together with those that wait."""
        arrived: dict[int, bytes] = {}
        reached = -1
        for frame in rows:
            finished = frame.loc[frame["status"] == Status.DONE, ["rows"]]
            if len(finished):
                yield finished.reset_index(drop=True)
            slices = frame.loc[frame["status"] == Status.SLICE]
            # All of them, for the rows of a group come in no order.
            arrived.update(zip(slices["offset"].tolist(), slices["rows"], strict=True))
            positions = frame.loc[frame["status"] == Status.POSITION, "offset"].tolist()
            reached = max(reached, *positions)
        now_ms = timerValues.getCurrentProcessingTimeInMs()
        yield from self._glued(key, arrived, reached, now_ms)

    def handleExpiredTimer(  # noqa: N802 - Spark's name
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803 - Spark's name
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803 - Spark's name
    ) -> Iterator[pd.DataFrame]:
        """Give up what has waited too long in a partition from which nothing came."""
        fired_ms = expiredTimerInfo.getExpiryTimeInMs()
        yield from self._glued(key, {}, -1, timerValues.getCurrentProcessingTimeInMs(), fired_ms)

    def close(self) -> None:
        """End the task; the chain stays open for the tasks that follow."""
        spare_next_task()

    def _glued(
        self, key: Any, arrived: dict[int, bytes], reached: int, now_ms: int, fired_ms: int = -1
    ) -> Iterator[pd.DataFrame]:
        waiting = {offset: bytes(rows) for (offset,), (rows,) in self._waiting.iterator()}
        if not waiting and not arrived:
            return
        ready = opened(self._work)
        terms = Terms(batch_ms=now_ms, incomplete="carry")
        gluing = Gluing(ready, Tally(ready.session, None), terms)
        position = Record(str(key[0]), partition=int(key[1]), offset=reached)
        before = waiting.keys() - arrived.keys()  # a topic that was made anew begins at 0 again
        gone = set(waiting)
        due = []
        for batch in gluing(_in_order({**waiting, **arrived}, position, ready.work.schema)):
            offsets = _kept(batch)
            for row, offset in offsets.items():
                gone.discard(offset)
                due.append(next(iter(column(batch.slice(row, 1), ARRIVED))))
                if offset not in before:
                    self._waiting.updateValue((offset,), (packed(batch.slice(row, 1)),))
            finished = _finished(batch, [row for row in range(batch.num_rows) if row not in offsets])
            if finished.num_rows:
                yield pd.DataFrame({"rows": [packed(finished)]})
        for offset in gone:
            self._waiting.removeKey((offset,))
        self._set_timer(due, now_ms, fired_ms)

    def _set_timer(self, arrived_ms: list[int], now_ms: int, fired_ms: int) -> None:
        """Have one timer, for the first slice that may have waited too long; none where none waits.

        It may ring early, when a later slice of the same message has come since; the next one is set then.
        """
        if self._expire_ms is None:
            return
        due = [at for at in (arrived + self._expire_ms for arrived in arrived_ms) if at > now_ms]
        wanted = {min(due)} if due else set()
        found = set(self._handle.listTimers())
        for timer_ms in found - wanted - {fired_ms}:  # Spark deletes the one that it called for
            self._handle.deleteTimer(timer_ms)
        for timer_ms in wanted - found:
            self._handle.registerTimer(timer_ms)


def _require_protobuf() -> None:
    try:
        import_module("google.protobuf")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("Spark's stateful operator needs it", name="protobuf") from error


def _packs(batch: pa.RecordBatch, limit_bytes: int) -> pa.RecordBatch:
    """Pack a batch of decoded rows, slices and positions."""
    placed: list[Row] = []
    finished: list[int] = []
    places = [column(batch, name) for name in ("topic", "partition", "offset", STATUS)]
    for row, (topic, partition, offset, status) in enumerate(zip(*places, strict=True)):
        if status not in {Status.SLICE, Status.POSITION}:
            finished.append(row)
            continue
        rows = packed(batch.slice(row, 1)) if status == Status.SLICE else None
        placed.append((topic, partition, offset, status, rows))
    placed += (_placed(piece) for piece in pieces(_finished(batch, finished), limit_bytes))
    columns = list(zip(*placed, strict=True))
    arrays = [pa.array(values, field.type) for values, field in zip(columns, _PLACED, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_PLACED)


def _placed(batch: pa.RecordBatch) -> Row:
    """Pack finished rows. They pass the operator untouched, so that its key may be that of any of them."""
    (topic,) = column(batch.slice(0, 1), "topic")
    (partition,) = column(batch.slice(0, 1), "partition")
    return (topic or "", -1 if partition is None else partition, -1, int(Status.DONE), packed(batch))


def _finished(batch: pa.RecordBatch, rows: list[int]) -> pa.RecordBatch:
    """Return those rows of a batch that go on, without the columns for statuses."""
    chosen = batch.select([name for name in batch.schema.names if name not in _INNER])
    return chosen if len(rows) == batch.num_rows else chosen.take(pa.array(rows, pa.int64()))


def _kept(batch: pa.RecordBatch) -> dict[int, int]:
    """Return the offsets of the rows that are to wait, by row."""
    states = zip(column(batch, STATUS), column(batch, "offset"), strict=True)
    return {row: offset for row, (status, offset) in enumerate(states) if status == Status.SLICE}


def _in_order(packs: dict[int, bytes], position: Record, schema: str) -> Iterator[pa.RecordBatch]:
    """Return slices by offset, and then how far their partition was read, unless nothing was."""
    yield from joined((packs.pop(offset) for offset in sorted(packs)), FLUSH_BYTES)
    if position.offset is not None and position.offset >= 0:
        yield bare_rows(arrow_schema(schema), [position], {STATUS: Status.POSITION})


def _unpacked(batches: Batches) -> Iterator[pa.RecordBatch]:
    schema = None
    for batch in batches:
        for found in joined((rows.as_buffer() for rows in batch.column("rows")), FLUSH_BYTES):
            # Spark writes a task's batches as one stream, whose schema is that of the first.
            schema = found.schema if schema is None else schema
            yield alike(found, schema)
