"""The stages of a micro-batch's decoding: rows that stand alone, slices with those that waited, repeats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from headerware.core.errors import ConfigError
from headerware.spark_bridge.batches.span import batch_span, is_traced
from headerware.spark_bridge.executors.gluing import Terms
from headerware.spark_bridge.frames.checks import check_read
from headerware.spark_bridge.frames.schema import (
    IDENTITY,
    SOURCE,
    STATUS,
    Status,
    struct_of,
    with_columns,
    with_status,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from pyspark.sql import DataFrame

    from headerware.spark_bridge.batches.batch import Batch
    from headerware.spark_bridge.batches.ledger import Ledger
    from headerware.spark_bridge.decoding import Decoded, DecodePlan
    from headerware.spark_bridge.executors.work import Work


class Found(NamedTuple):
    """A decoded batch: all its rows but those that wait, and what is known of it."""

    frame: DataFrame
    records: int = 0
    waiting: int = 0
    refused: int | None = None
    """None where nobody has counted yet."""
    topics: tuple[str, ...] = ()
    uncomputed: Decoded | None = None
    """What the frame is decoded from, if that is left to whoever writes it."""


class _Counts(NamedTuple):
    """What is known of decoded rows."""

    by_status: Mapping[Status | None, int]
    topics: tuple[str, ...]
    places: int
    """The number of Kafka partitions that have slices."""
    is_split: bool
    """Whether the rows of a Kafka partition are in several tasks."""


class Stages:
    """The stages of one batch's decoding, each called once, in the order in which they stand here.

    Args:
        plan: what the batch's frame and the chain come to.
        work: what the executors are told.
        batch: the batch.
        ledger: what earlier batches left; the batch was begun there.
        now_ms: the batch's time, the same in a replay, in milliseconds since 1970.
    """

    def __init__(self, plan: DecodePlan, work: Work, batch: Batch, ledger: Ledger, now_ms: int) -> None:
        self._plan = plan
        self._batch = batch
        self._ledger = ledger
        self._now_ms = now_ms
        self.counter: Final = batch.decoded
        self.is_traced: Final[bool] = is_traced()
        schema = with_status(with_columns(plan.schema, source=SOURCE), typed=bool(plan.typed))
        self._work = work.replace(schema=schema.json())

    def decoded(self, frame: DataFrame, *, discard_waiting: bool) -> Found:
        """Decode a batch; slices of messages that are not whole yet are left in the ledger.

        Args:
            frame: the rows, as the connector gives them.
            discard_waiting: whether slices that wait are forgotten where the chain has no ``slice`` now.

        Raises:
            ConfigError: columns are missing, or slices wait and are not to be forgotten.
        """
        check_read(frame, needs_position=True)
        read = frame.withColumn("source", F.struct("topic", "partition", "offset"))
        gathers = self._plan.gathers
        lazily = self._plan.lazily_alone(read, self._work, self.counter.pickled, gathers=gathers)
        alone = lazily.frame
        carried = self._carried(discard_waiting=discard_waiting)
        if not self._reads_twice:
            return Found(alone, uncomputed=None if self._plan.typed else lazily)
        counts = self._counted(self._batch.cache(alone))
        found = Found(
            alone.where(_is(None, Status.FAILED)),
            records=sum(counts.by_status.values()) - counts.by_status[Status.POSITION],
            refused=counts.by_status[Status.FAILED],
            topics=counts.topics,
        )
        if carried is None and not counts.by_status[Status.SLICE]:
            return found
        parts = alone.where(_is(Status.SLICE, Status.POSITION))
        if carried is None:
            return self._glued(parts, counts.places if counts.is_split else 0, found)
        parts = parts.unionByName(carried)
        return self._glued(parts, self._counted(parts).places, found)

    def span(self, found: Found) -> AbstractContextManager[dict[str, str]]:
        """Make the batch's span, with links to the traces of its records; it gives the trace context."""
        attributes = {"messaging.batch.message_count": found.records, "spark.batch.id": self._batch.id}
        return batch_span(found.topics, self.counter.counts.get("traces", ()), attributes)

    def unrepeated(self, frame: DataFrame) -> DataFrame:
        """Leave out what this batch or an earlier one has had already."""
        if not self._plan.dedups:
            return frame
        fresh = self._ledger.seen.fresh(frame, self._batch.id, IDENTITY)
        self._ledger.seen.record(self._batch.id, fresh, IDENTITY)
        return fresh

    @property
    def _reads_twice(self) -> bool:
        plan = self._plan
        return plan.gathers or plan.dedups or self.is_traced or self._batch.dead_letters is not None

    def _counted(self, rows: DataFrame) -> _Counts:
        """Count rows, which also computes and keeps them where they are cached.

        It has no groups, for those are shuffled into ``spark.sql.shuffle.partitions`` tasks in a stream.
        """
        statuses = (None, *Status)
        place = F.struct("topic", "partition")
        found = rows.agg(
            *(F.count(F.when(_is(status), 1)) for status in statuses),
            F.collect_set("topic"),
            F.collect_set(F.when(_is(Status.SLICE), place)),
            F.collect_set(F.when(_is(Status.POSITION), place)),
        )
        ((*numbers, topics, with_slices, read),) = found.collect()
        by_status = dict(zip(statuses, numbers, strict=True))
        is_split = len(read) < by_status[Status.POSITION]  # each task says which places it has read
        return _Counts(by_status, tuple(topics), len(with_slices), is_split)

    def _carried(self, *, discard_waiting: bool) -> DataFrame | None:
        schema = struct_of(self._work.schema)
        if self._plan.gathers:
            return self._ledger.carried(self._batch.id, like=schema)
        if self._ledger.carried(self._batch.id) is None:
            return None
        if not discard_waiting:
            raise ConfigError(
                "slices wait in the ledger, and the chain has no 'slice' now; put it back until they are "
                "through, or pass discard_waiting=True to forget them",
                path="chain",
            )
        self._ledger.leave(self._batch.id, None)
        return None

    def _glued(self, parts: DataFrame, tasks: int, found: Found) -> Found:
        terms = Terms(batch_ms=self._now_ms, incomplete="carry")
        glued = self._batch.cache(
            self._plan.glued(parts, self._work, terms, self.counter.pickled, tasks=tasks)
        )
        counts = self._counted(glued).by_status
        waiting = counts[Status.SLICE]
        self._ledger.leave(self._batch.id, glued.where(_is(Status.SLICE)) if waiting else None)
        return found._replace(
            frame=found.frame.unionByName(glued.where(_is(None, Status.FAILED))),
            waiting=waiting,
            refused=(found.refused or 0) + counts[Status.FAILED],
        )


def _is(*statuses: Status | None) -> Any:
    column = F.col(STATUS)
    condition = column.isin([int(status) for status in statuses if status is not None])
    return column.isNull() | condition if None in statuses else condition
