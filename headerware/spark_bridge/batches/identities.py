"""What came before: identities of records, over the batches of a query.

Windows on the executors cannot see each other; this one is a table beside the checkpoint. Each batch adds a
segment of its identities and their places, ten segments of one size become one of ten times that size while
that is at most a quarter of the window, and what is older than the window is no longer referred to. So a
window of a hundred batches is in some twenty folders, each identity is rewritten about once, and the window
reaches at most a quarter further back than it was told to.

What a batch costs: its own identities are counted, grouped and written, and those of the window are read
through once, as columns, without a shuffle while the batch has at most `BROADCAST_ROWS` of them. So the cost
grows with the identities of the window: after 100 batches of a million each, every batch looks through
10**8. A window of fewer batches, or of less time, is the remedy.
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
"""Up to so many identities go whole to every executor; beyond that both sides are shuffled."""

ROWS_PER_FILE: Final = 1_000_000
ROWS_PER_TASK: Final = 250_000

_MERGED: Final = 10
_PLACE: Final = {"topic": "string", "partition": "int", "offset": "bigint"}
_IDENTITY: Final = "__headerware_identity"
_WINNER: Final = "__headerware_winner"


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """How far back a batch looks.

    Args:
        batches: this many batches, at least.
        time_ms: where given, no further back than that, in milliseconds between the times of batches.

    Raises:
        LedgerError: where one of them is below 0.
    """

    batches: int = 100
    time_ms: int | None = None

    def __post_init__(self) -> None:
        if self.batches < 0 or (self.time_ms or 0) < 0:
            raise LedgerError(f"expected a window of 0 batches and milliseconds or more, found {self}")

    def kept(self, segments: tuple[Segment, ...], begun: BatchAttempt) -> tuple[Segment, ...]:
        """Return the segments that a batch is compared with."""
        oldest = begun.batch - self.batches
        since_ms = None if self.time_ms is None else begun.now_ms - self.time_ms
        return tuple(
            segment
            for segment in segments
            if segment.last_batch >= oldest and (since_ms is None or segment.newest_ms >= since_ms)
        )

    def is_due(self, segments: tuple[Segment, ...]) -> bool:
        """Tell whether the last ten segments are to become one."""
        last = segments[-_MERGED:]
        alike = len(last) == _MERGED and len({segment.batches for segment in last}) == 1
        return alike and last[0].batches * _MERGED * 4 <= self.batches


class IdentityHistory:
    """Tell which rows of a batch came before, and remember those of this one.

    `fresh` and `record` read narrow columns of their frame several times: persist it before. One thread at a
    time; `Ledger.begin` says which batch it is.
    """

    def __init__(self, tables: Tables, window: Window) -> None:
        self._tables = tables
        self._window = window
        self._begun: BatchAttempt | None = None
        self._earlier: tuple[Segment, ...] = ()
        self._segments: tuple[Segment, ...] = ()
        self._persisted: list[DataFrame] = []

    def fresh(self, frame: DataFrame, batch: int, column: str = "identity") -> DataFrame:
        """Drop the rows whose identity came earlier, at another place.

        Of several in the batch, the one with the smallest topic, partition and offset stays. What an earlier
        batch within the window recorded at another place goes; at the same place it is the same record, read
        again, and stays. So do rows without an identity or a place, and all rows of one place. Which rows
        stay depends on the batch's rows and on committed batches alone, so that a replay gives the same.

        Args:
            frame: with a struct column ``source`` of topic, partition and offset.
            batch: the batch that was begun.
            column: the identity's column, binary.

        Raises:
            LedgerError: where the batch is not the one that was begun, or a column is not as it must be.
        """
        self._checked(batch)
        narrow = _identities(frame, column)
        count = narrow.count()
        if not count:
            return frame
        contested = self._contested(narrow, count).persist()
        self._persisted.append(contested)
        losing = contested.count()
        # Most batches have none, and their wide rows need no join.
        return _without_losers(frame, _small(contested, losing), column) if losing else frame

    def record(self, batch: int, frame: DataFrame, column: str = "identity") -> None:
        """Write down the identities of a batch, with their places; they count once it is committed.

        Raises:
            LedgerError: where the batch is not the one that was begun, or a column is not as it must be.
        """
        begun = self._checked(batch)
        narrow = _identities(frame, column)
        count = narrow.count()
        self._segments = self._earlier
        if not count:
            return
        spread = narrow.repartition(_parts(count, ROWS_PER_FILE), "identity")
        rows = self._tables.write(spread, f"{batch:012d}-{begun.attempt}-seen")
        self._segments += (
            Segment(rows=rows, count=count, batches=1, last_batch=batch, newest_ms=begun.now_ms),
        )
        while self._window.is_due(self._segments):
            self._segments = self._merged(begun)

    def turn_to(self, begun: BatchAttempt, earlier: tuple[Segment, ...]) -> None:
        """Take up an attempt at a batch, and forget what an earlier attempt did; `Ledger.begin` calls it."""
        self.release()
        self._begun = begun
        self._earlier = self._segments = self._window.kept(earlier, begun)

    def segments(self) -> tuple[Segment, ...]:
        """Return the segments that the next batch is to be compared with."""
        return self._segments

    def release(self) -> None:
        """Give back what `fresh` keeps in the executors' memory.

        `Ledger.commit` does it, and the next attempt; who gives an attempt up calls this.
        """
        while self._persisted:
            self._persisted.pop().unpersist()

    def _checked(self, batch: int) -> BatchAttempt:
        if self._begun is None or self._begun.batch != batch:
            found = "none" if self._begun is None else f"batch {self._begun.batch}"
            raise LedgerError(f"expected batch {batch} to be begun, found {found}: call begin before")
        return self._begun

    def _contested(self, narrow: DataFrame, count: int) -> DataFrame:
        """Return each identity that has more than one place, and the place that wins."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415  the customary name

        rows = narrow.withColumn("turn", F.lit(1))
        if self._earlier:
            known = self._tables.read(*(segment.rows for segment in self._earlier))
            wanted = _small(narrow.select("identity"), count)
            rows = rows.union(known.join(wanted, "identity", "left_semi").withColumn("turn", F.lit(0)))
        place = F.struct(*_PLACE)
        return (
            # Streams run without adaptive execution: left alone, a hundred rows would make 200 tasks.
            rows.repartition(_parts(count, ROWS_PER_TASK), "identity")
            .groupBy("identity")
            .agg(
                F.min(F.struct("turn", *_PLACE)).alias("first"),
                (F.min(place) != F.max(place)).alias("contested"),
            )
            .where("contested")
            .select(
                F.col("identity").alias(_IDENTITY),
                F.struct(*(F.col(f"first.{name}") for name in _PLACE)).alias(_WINNER),
            )
        )

    def _merged(self, begun: BatchAttempt) -> tuple[Segment, ...]:
        """Write the last ten segments as one."""
        before, last = self._segments[:-_MERGED], self._segments[-_MERGED:]
        count = sum(segment.count for segment in last)
        batches = sum(segment.batches for segment in last)
        together = self._tables.read(*(segment.rows for segment in last))
        rows = self._tables.write(
            together.coalesce(_parts(count, ROWS_PER_FILE)),
            f"{begun.batch:012d}-{begun.attempt}-merged{len(str(batches))}",
        )
        one = Segment(rows=rows, count=count, batches=batches, last_batch=begun.batch, newest_ms=begun.now_ms)
        return (*before, one)


def _identities(frame: DataFrame, column: str) -> DataFrame:
    """Return identity and place of the rows that have both, and refuse a frame that cannot have them."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  the customary name

    kinds = {field.name: field.dataType for field in frame.schema}
    source = getattr(kinds.get("source"), "names", ())
    if not set(_PLACE) <= set(source):
        raise LedgerError(f"expected a struct column source of {', '.join(_PLACE)}, found {', '.join(kinds)}")
    if column not in kinds or kinds[column].typeName() != "binary":
        found = kinds[column].simpleString() if column in kinds else f"columns {', '.join(kinds)}"
        raise LedgerError(f"expected a binary column {column}, found {found}")
    return frame.where(F.col(quoted(column)).isNotNull() & F.col("source").isNotNull()).select(
        F.col(quoted(column)).alias("identity"), *_place()
    )


def _place() -> list[Column]:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  the customary name

    return [F.col(f"source.{name}").cast(kind).alias(name) for name, kind in _PLACE.items()]


def _without_losers(frame: DataFrame, contested: DataFrame, column: str) -> DataFrame:
    """Keep the rows that nobody contests, and the winners."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  the customary name

    wins = F.col(_WINNER).isNull() | F.col("source").isNull() | (F.struct(*_place()) == F.col(_WINNER))
    joined = frame.join(contested, F.col(quoted(column)) == F.col(_IDENTITY), "left")
    return joined.where(wins).drop(_IDENTITY, _WINNER)


def _small(frame: DataFrame, count: int) -> DataFrame:
    """Have a frame sent whole to every executor, where that is cheaper than moving the other side."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415  the customary name

    return F.broadcast(frame) if count <= BROADCAST_ROWS else frame


def _parts(count: int, each: int) -> int:
    return max(1, -(-count // each))
