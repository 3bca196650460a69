"""The identities of earlier records of a query, by which ``dedup`` finds repeats over its batches.

A window in an executor does not see the records of other executors, so this window is a table in the ledger.
Each batch adds a segment of its identities and their positions. Ten segments of equal size are merged into
one, as long as the merged segment is at most a quarter of the window; the ledger drops segments that are
older than the window. So a window of a hundred batches takes some twenty folders, each identity is rewritten
about once, and the window reaches back at most a quarter further than its option says.

In each batch, the identities of the batch are counted, grouped and written, and the identities of the window
are read once, as columns, without a shuffle if the batch has at most `BROADCAST_ROWS` identities. So the cost
grows with the window: after 100 batches of a million each, every batch reads 10**8 identities. The remedy is
a window of fewer batches or of less time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from headerware.spark_bridge.batches.documents import BatchAttempt, Segment, quoted
from headerware.spark_bridge.batches.storage import LedgerError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from headerware.spark_bridge.batches.documents import Tables


BROADCAST_ROWS: Final = 2_000_000
"""Up to this number all identities are sent to every executor; beyond it both sides are shuffled."""

_ROWS_PER_FILE: Final = 1_000_000
_ROWS_PER_TASK: Final = 250_000

_MERGE_COUNT: Final = 10
_POSITION: Final = {"topic": "string", "partition": "int", "offset": "bigint"}
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

    `fresh` and `record` read narrow columns of their frame several times: persist the frame first. One thread
    at a time; `Ledger.begin` sets the batch.
    """

    def __init__(self, tables: Tables, window: Window) -> None:
        self._tables = tables
        self._window = window
        self._attempt: BatchAttempt | None = None
        self._earlier: tuple[Segment, ...] = ()
        self._segments: tuple[Segment, ...] = ()
        self._persisted: list[DataFrame] = []

    def fresh(
        self, frame: DataFrame, batch: int, column: str = "identity", *, count: int | None = None
    ) -> DataFrame:
        """Drop the rows whose identity came earlier, at another position.

        Of several rows in the batch with one identity, the row with the smallest topic, partition and offset
        is kept. A row whose identity an earlier batch within the window recorded at another position is
        dropped; at the same position it is the same record, read again, and is kept. Rows without an identity
        or a position are kept, and so are all rows of one position. The result depends only on the batch's
        rows and on committed batches, so it is the same in a replay. The frame has a struct column ``source``
        of topic, partition and offset. ``count`` is the number of rows with an identity and a position, if
        it is known. If no row is dropped, the frame itself is returned.
        """
        self._require_begun(batch)
        narrow = _identities(frame, column)
        if count is None:
            count = narrow.count()
        if not count:
            return frame
        contested = self._contested(narrow, count).persist()
        self._persisted.append(contested)
        losing = contested.count()
        # Most batches have none, and their wide rows need no join.
        return _drop_losers(frame, _broadcast_if_small(contested, losing), column) if losing else frame

    def record(
        self, batch: int, frame: DataFrame, column: str = "identity", *, count: int | None = None
    ) -> None:
        """Record the identities of a batch, with their positions; they count once the batch is committed.

        ``count`` is their number, if it is known.
        """
        attempt = self._require_begun(batch)
        narrow = _identities(frame, column)
        if count is None:
            count = narrow.count()
        self._segments = self._earlier
        if not count:
            return
        spread = narrow.repartition(_partition_count(count, _ROWS_PER_FILE), "identity")
        rows = self._tables.write(spread, f"{batch:012d}-{attempt.token}-seen")
        self._segments += (
            Segment(rows=rows, count=count, batches=1, last_batch=batch, newest_ms=attempt.now_ms),
        )
        while self._window.is_due(self._segments):
            self._segments = self._merged(attempt)

    def start(self, attempt: BatchAttempt, earlier: tuple[Segment, ...]) -> None:
        """Start an attempt at a batch, and forget an earlier attempt; `Ledger.begin` calls it."""
        self.release()
        self._attempt = attempt
        self._earlier = self._segments = self._window.kept(earlier, attempt)

    def segments(self) -> tuple[Segment, ...]:
        """Return the segments that the next batch is compared with."""
        return self._segments

    def release(self) -> None:
        """Release what `fresh` keeps in the executors' memory.

        `Ledger.commit` and the next attempt call it; call it to abandon an attempt.
        """
        while self._persisted:
            self._persisted.pop().unpersist()

    def _require_begun(self, batch: int) -> BatchAttempt:
        if self._attempt is None or self._attempt.batch != batch:
            found = "none" if self._attempt is None else f"batch {self._attempt.batch}"
            raise LedgerError(f"expected batch {batch} to be begun, found {found}: call begin first")
        return self._attempt

    def _contested(self, narrow: DataFrame, count: int) -> DataFrame:
        """Return each identity that has more than one position, and the position that wins."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415  the customary name

        rows = narrow.withColumn("turn", F.lit(1))
        if self._earlier:
            known = self._tables.read(*(segment.rows for segment in self._earlier))
            wanted = _broadcast_if_small(narrow.select("identity"), count)
            rows = rows.union(known.join(wanted, "identity", "left_semi").withColumn("turn", F.lit(0)))
        position = F.struct(*_POSITION)
        return (
            # Streams run without adaptive execution: without this, a hundred rows would make 200 tasks.
            rows.repartition(_partition_count(count, _ROWS_PER_TASK), "identity")
            .groupBy("identity")
            .agg(
                F.min(F.struct("turn", *_POSITION)).alias("first"),
                (F.min(position) != F.max(position)).alias("contested"),
            )
            .where("contested")
            .select(
                F.col("identity").alias(_IDENTITY),
                F.struct(*(F.col(f"first.{name}") for name in _POSITION)).alias(_WINNER),
            )
        )

    def _merged(self, attempt: BatchAttempt) -> tuple[Segment, ...]:
        """Merge the last ten segments into one."""
        before, last = self._segments[:-_MERGE_COUNT], self._segments[-_MERGE_COUNT:]
        count = sum(segment.count for segment in last)
        batches = sum(segment.batches for segment in last)
        together = self._tables.read(*(segment.rows for segment in last))
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
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  the customary name

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
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  the customary name

    return [F.col(f"source.{name}").cast(kind).alias(name) for name, kind in _POSITION.items()]


def _drop_losers(frame: DataFrame, contested: DataFrame, column: str) -> DataFrame:
    """Keep the rows whose identity is not contested, and the winners."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  the customary name

    wins = (
        F.col(_WINNER).isNull()
        | F.col("source").isNull()
        | (F.struct(*_position_columns()) == F.col(_WINNER))
    )
    joined = frame.join(contested, F.col(quoted(column)) == F.col(_IDENTITY), "left")
    return joined.where(wins).drop(_IDENTITY, _WINNER)


def _broadcast_if_small(frame: DataFrame, count: int) -> DataFrame:
    """Send a small frame to every executor, which is cheaper than shuffling the other side."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  the customary name

    return F.broadcast(frame) if count <= BROADCAST_ROWS else frame


def _partition_count(count: int, each: int) -> int:
    return max(1, -(-count // each))
