"""The identities of earlier records of a query, by which ``dedup`` finds repeats over its batches.

A window in an executor does not see the records of other executors, so this window is a table in the ledger.
Each batch adds a segment of its identities and their positions. Ten segments of equal size are merged into
one, as long as the merged segment is at most a quarter of the window; the ledger drops segments that are
older than the window. So a window of a hundred batches takes some twenty folders, each identity is rewritten
about once, and the window reaches back at most a quarter further than its option says.

In each batch, one job groups the identities of the batch with those of the window, and writes the new ones. A
large window is first reduced to the identities that the batch has, without a shuffle if the batch has at most
`BROADCAST_ROWS`. So the cost
grows with the window: after 100 batches of a million each, every batch reads 10**8 identities. The remedy is
a window of fewer batches or of less time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from headerware.spark_bridge.batches.documents import BatchAttempt, Segment, quoted
from headerware.spark_bridge.batches.storage import LedgerError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from headerware.spark_bridge.batches.documents import Tables


BROADCAST_ROWS: Final = 2_000_000
"""Up to this number all identities are sent to every executor; beyond it both sides are shuffled."""

_ROWS_PER_FILE: Final = 1_000_000
_ROWS_PER_TASK: Final = 250_000

_UNFILTERED_ROWS: Final = 1_000_000
"""Up to this number all recorded identities are shuffled with those of the batch. Of more, only those that
the batch has are, which takes a further job."""

_MERGE_COUNT: Final = 10
_POSITION: Final = {"topic": "string", "partition": "int", "offset": "bigint"}
_KNOWN: Final = "known"
_CONTESTED: Final = "contested"
_IDENTITY: Final = "__headerware_identity"
_WINNER: Final = "__headerware_winner"


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """How far back a batch looks for repeats, in batches and in the time between them."""

    batches: int = 100
    time_ms: int | None = None

    def __post_init__(self) -> None:
        if self.batches < 0 or (self.time_ms or 0) < 0:
            raise LedgerError(f"expected a window of 0 batches and milliseconds or more, found {self}")

    def kept(self, segments: tuple[Segment, ...], attempt: BatchAttempt) -> tuple[Segment, ...]:
        """Return the segments that a batch is compared with."""
        oldest = attempt.batch - self.batches
        since_ms = None if self.time_ms is None else attempt.now_ms - self.time_ms
        return tuple(
            segment
            for segment in segments
            if segment.last_batch >= oldest and (since_ms is None or segment.newest_ms >= since_ms)
        )

    def is_due(self, segments: tuple[Segment, ...]) -> bool:
        """Return whether to merge the last ten segments."""
        last = segments[-_MERGE_COUNT:]
        alike = len(last) == _MERGE_COUNT and len({segment.batches for segment in last}) == 1
        return alike and last[0].batches * _MERGE_COUNT * 4 <= self.batches


class IdentityHistory:
    """Find the rows of a batch whose identities came before, and record the identities of the batch.

    `fresh` reads narrow columns of its frame, and then the frame: persist it first. One thread at a time;
    `Ledger.begin` sets the batch.
    """

    def __init__(self, tables: Tables, window: Window) -> None:
        self._tables = tables
        self._window = window
        self._attempt: BatchAttempt | None = None
        self._earlier: tuple[Segment, ...] = ()
        self._segments: tuple[Segment, ...] = ()

    def fresh(
        self, frame: DataFrame, batch: int, column: str = "identity", *, count: int | None = None
    ) -> DataFrame:
        """Record the identities of a batch, and drop the rows whose identity came earlier elsewhere.

        Of several rows in the batch with one identity, the row with the smallest topic, partition and offset
        is kept. A row whose identity an earlier batch within the window recorded at another position is
        dropped; at the same position it is the same record, read again, and is kept. Rows without an identity
        or a position are kept, and so are all rows of one position. The result depends only on the batch's
        rows and on committed batches, so it is the same in a replay. The frame has a struct column ``source``
        of topic, partition and offset. ``count`` is the number of rows with an identity and a position, if
        it is known. If no row is dropped, the frame itself is returned. What is recorded counts once the
        batch is committed.
        """
        attempt = self._require_begun(batch)
        narrow = _identities(frame, column)
        if count is None:
            count = narrow.count()
        self._segments = self._earlier
        if not count:
            return frame
        found = Observation()
        winners = self._winners(narrow, count).observe(found, F.count_if(_CONTESTED).alias(_CONTESTED))
        rows = self._tables.write(winners, f"{batch:012d}-{attempt.token}-seen")
        self._segments += (
            Segment(rows=rows, count=count, batches=1, last_batch=batch, newest_ms=attempt.now_ms),
        )
        while self._window.is_due(self._segments):
            self._segments = self._merged(attempt)
        losing = found.get[_CONTESTED]
        if not losing:  # as in most batches, whose wide rows then need no join
            return frame
        contested = self._tables.read(rows).where(_CONTESTED)
        return _drop_losers(frame, _broadcast_if_small(contested, losing), column)

    def start(self, attempt: BatchAttempt, earlier: tuple[Segment, ...]) -> None:
        """Start an attempt at a batch, and forget an earlier attempt; `Ledger.begin` calls it."""
        self._attempt = attempt
        self._earlier = self._segments = self._window.kept(earlier, attempt)

    def segments(self) -> tuple[Segment, ...]:
        """Return the segments that the next batch is compared with."""
        return self._segments

    def _require_begun(self, batch: int) -> BatchAttempt:
        if self._attempt is None or self._attempt.batch != batch:
            found = "none" if self._attempt is None else f"batch {self._attempt.batch}"
            raise LedgerError(f"expected batch {batch} to be begun, found {found}: call begin first")
        return self._attempt

    def _winners(self, narrow: DataFrame, count: int) -> DataFrame:
        """Return each identity of the batch that is new or contested, with the position that wins.

        An identity is contested if it has more than one position; it is known if an earlier batch recorded
        the position that wins.
        """
        rows = narrow.withColumn(_KNOWN, F.lit(False))  # noqa: FBT003 - Spark's signature
        total = count
        if self._earlier:
            earlier = self._recorded(self._earlier)
            known = sum(segment.count for segment in self._earlier)
            if known > _UNFILTERED_ROWS:
                earlier = earlier.join(
                    _broadcast_if_small(narrow.select("identity"), count), "identity", "left_semi"
                )
            else:
                total += known
            rows = rows.union(earlier.withColumn(_KNOWN, F.lit(True)))  # noqa: FBT003 - as above
        position = F.struct(*_POSITION)
        return (
            # Streams run without adaptive execution: without this, a hundred rows would make 200 tasks.
            rows.repartition(_partition_count(total, _ROWS_PER_TASK), "identity")
            .groupBy("identity")
            .agg(
                F.min(F.struct(F.expr(f"not {_KNOWN}"), *_POSITION)).alias("first"),
                F.bool_and(_KNOWN).alias("earlier"),
                F.bool_or(_KNOWN).alias(_KNOWN),
                (F.min(position) != F.max(position)).alias(_CONTESTED),
            )
            .where(f"not earlier and ({_CONTESTED} or not {_KNOWN})")
            .select("identity", *(F.col(f"first.{name}") for name in _POSITION), _KNOWN, _CONTESTED)
        )

    def _recorded(self, segments: tuple[Segment, ...]) -> DataFrame:
        """Return the identities that earlier batches recorded, with their positions."""
        rows = self._tables.read(*(segment.rows for segment in segments))
        return rows.where(f"not {_KNOWN}").select("identity", *_POSITION)

    def _merged(self, attempt: BatchAttempt) -> tuple[Segment, ...]:
        """Merge the last ten segments into one."""
        before, last = self._segments[:-_MERGE_COUNT], self._segments[-_MERGE_COUNT:]
        count = sum(segment.count for segment in last)
        batches = sum(segment.batches for segment in last)
        together = self._recorded(last).withColumns({_KNOWN: F.lit(False), _CONTESTED: F.lit(False)})  # noqa: FBT003 - Spark's signature
        rows = self._tables.write(
            together.coalesce(_partition_count(count, _ROWS_PER_FILE)),
            f"{attempt.batch:012d}-{attempt.token}-merged{len(str(batches))}",
        )
        one = Segment(
            rows=rows, count=count, batches=batches, last_batch=attempt.batch, newest_ms=attempt.now_ms
        )
        return (*before, one)


def _identities(frame: DataFrame, column: str) -> DataFrame:
    """Return identity and position of the rows that have both; raise if the frame lacks the columns."""
    kinds = {field.name: field.dataType for field in frame.schema}
    source = getattr(kinds.get("source"), "names", ())
    if not set(_POSITION) <= set(source):
        raise LedgerError(
            f"expected a struct column source of {', '.join(_POSITION)}, found {', '.join(kinds)}"
        )
    if column not in kinds or kinds[column].typeName() != "binary":
        found = kinds[column].simpleString() if column in kinds else f"columns {', '.join(kinds)}"
        raise LedgerError(f"expected a binary column {column}, found {found}")
    return frame.where(F.col(quoted(column)).isNotNull() & F.col("source").isNotNull()).select(
        F.col(quoted(column)).alias("identity"), *_position_columns()
    )


def _position_columns() -> list[Column]:
    return [F.col(f"source.{name}").cast(kind).alias(name) for name, kind in _POSITION.items()]


def _drop_losers(frame: DataFrame, contested: DataFrame, column: str) -> DataFrame:
    """Keep the rows whose identity is not contested, and the winners."""
    winners = contested.select(F.col("identity").alias(_IDENTITY), F.struct(*_POSITION).alias(_WINNER))
    wins = (
        F.col(_WINNER).isNull()
        | F.col("source").isNull()
        | (F.struct(*_position_columns()) == F.col(_WINNER))
    )
    joined = frame.join(winners, F.col(quoted(column)) == F.col(_IDENTITY), "left")
    return joined.where(wins).drop(_IDENTITY, _WINNER)


def _broadcast_if_small(frame: DataFrame, count: int) -> DataFrame:
    """Send a small frame to every executor, which is cheaper than shuffling the other side."""
    return F.broadcast(frame) if count <= BROADCAST_ROWS else frame


def _partition_count(count: int, each: int) -> int:
    return max(1, -(-count // each))
