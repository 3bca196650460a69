from __future__ import annotations

import random
import uuid
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pytest

from headerware.spark_bridge.batches import identities as identities_module
from headerware.spark_bridge.batches.ledger import Ledger
from headerware.spark_bridge.batches.storage import LedgerError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.one_spark, pytest.mark.usefixtures("interpreted")]

QUERY = str(uuid.UUID(int=9))
PLACE = {"topic": pa.string(), "partition": pa.int32(), "offset": pa.int64(), "more": pa.string()}
SCHEMA = pa.schema({"identity": pa.binary(), "value": pa.string(), "source": pa.struct(PLACE)})


class Row(NamedTuple):
    """A row of a batch: its identity and its position."""

    identity: str | None
    offset: int | None
    partition: int = 0
    topic: str = "orders"


class Query:
    """A query that drops duplicates, with a driver that may end at any time."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.ledger: Ledger = Ledger.open(spark, folder, QUERY)

    def restart(self, window_batches: int = 100, window_ms: int | None = None) -> None:
        self.ledger = Ledger.open(
            self.spark, self.folder, QUERY, window_batches=window_batches, window_ms=window_ms
        )

    def frame(self, rows: list[Row]) -> DataFrame:
        table = [
            {
                "identity": None if row.identity is None else row.identity.encode(),
                "value": str(number),
                "source": None if row.offset is None else {**row._asdict(), "more": "x"},
            }
            for number, row in enumerate(rows)
        ]
        # From Arrow there is a local relation, which needs no Python workers.
        return self.spark.createDataFrame(pa.Table.from_pylist(table, SCHEMA))

    def batch(self, number: int, *rows: Row, commit: bool = True, now_ms: int = 0) -> list[Row]:
        """Do a batch, and return the remaining rows."""
        self.ledger.begin(number, chain="x", now_ms=now_ms)
        frame = self.frame(list(rows))
        fresh = self.ledger.identities.fresh(frame, number)
        assert fresh.schema == frame.schema
        kept = [rows[int(row.value)] for row in fresh.collect()]
        if commit:
            self.ledger.commit(number)
        return kept


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path) -> Query:
    return Query(spark, tmp_path)


@pytest.fixture
def segments(tmp_path: Path) -> Callable[[], list[str]]:
    """Return a function that lists the kinds of the folders of identities, oldest first."""
    rows = tmp_path / "headerware" / QUERY / "rows"
    return lambda: [
        name.rpartition("-")[2]
        for name in sorted(path.name for path in rows.iterdir())
        if "-left" not in name
    ]


class TestSeenInOneBatch:
    def test_keeps_what_is_alone(self, query: Query) -> None:
        rows = [Row("a", 1), Row("b", 2), Row("c", 1, 1)]
        assert sorted(query.batch(0, *rows)) == sorted(rows)

    def test_keeps_the_smallest_place(self, query: Query) -> None:
        rows = [Row("a", 12), Row("a", 7), Row("a", 100), Row("b", 9)]
        assert sorted(query.batch(0, *rows)) == [Row("a", 7), Row("b", 9)]

    def test_orders_places_by_topic_then_partition_then_offset(self, query: Query) -> None:
        rows = [Row("a", 1, 2), Row("a", 5, 1), Row("a", 0, 0, "z"), Row("b", 1, 10), Row("b", 1, 9)]
        assert sorted(query.batch(0, *rows)) == [Row("a", 5, 1), Row("b", 1, 9)]

    def test_keeps_all_rows_without_identity_or_place(self, query: Query) -> None:
        rows = [Row(None, 1), Row(None, 1), Row("a", None), Row("a", None), Row("a", 3), Row("a", 4)]
        assert query.batch(0, *rows).count(Row(None, 1)) == 2
        kept = query.batch(1, *rows)
        assert (kept.count(Row("a", None)), kept.count(Row("a", 3)), kept.count(Row("a", 4))) == (2, 1, 0)

    def test_keeps_all_rows_of_one_place(self, query: Query) -> None:
        assert query.batch(0, Row("a", 1), Row("a", 1), Row("a", 2)) == [Row("a", 1), Row("a", 1)]

    def test_an_empty_identity_is_one(self, query: Query) -> None:
        assert query.batch(0, Row("", 1), Row("", 2)) == [Row("", 1)]

    def test_an_empty_batch_is_fine(self, query: Query) -> None:
        assert query.batch(0) == []
        assert query.batch(1, Row("a", 1)) == [Row("a", 1)]


class TestSeenOverBatches:
    def test_drops_what_came_at_another_place(self, query: Query) -> None:
        query.batch(0, Row("a", 1), Row("b", 2))
        assert query.batch(1, Row("a", 3), Row("c", 4)) == [Row("c", 4)]

    def test_an_earlier_batch_beats_a_smaller_place(self, query: Query) -> None:
        query.batch(0, Row("a", 5))
        assert query.batch(1, Row("a", 1)) == []

    def test_keeps_what_came_at_the_same_place(self, query: Query) -> None:
        query.batch(0, Row("a", 5))
        assert query.batch(1, Row("a", 5), Row("a", 1)) == [Row("a", 5)]

    def test_remembers_over_restarts(self, query: Query) -> None:
        query.batch(0, Row("a", 1))
        query.restart()
        assert query.batch(1, Row("a", 2)) == []

    def test_dropped_rows_do_not_count_as_places(self, query: Query) -> None:
        query.batch(0, Row("a", 1))
        query.batch(1, Row("a", 2))
        assert query.batch(2, Row("a", 1), Row("a", 2)) == [Row("a", 1)]

    def test_remembers_over_batches_that_record_nothing(self, query: Query) -> None:
        query.batch(0, Row("a", 1))
        query.ledger.begin(1, chain="x", now_ms=0)
        query.ledger.commit(1)
        query.batch(2)
        assert query.batch(3, Row("a", 2)) == []

    def test_a_replay_does_not_see_what_a_failed_attempt_recorded(self, query: Query) -> None:
        query.batch(0, Row("a", 1))
        rows = [Row("a", 2), Row("b", 3), Row("b", 4)]
        assert query.batch(1, *rows, commit=False) == [Row("b", 3)]
        # The same offsets may have other rows if records were deleted in between.
        query.restart()
        assert query.batch(1, Row("b", 4), commit=False) == [Row("b", 4)]
        query.restart()
        assert query.batch(1, *rows) == [Row("b", 3)]
        assert query.batch(2, Row("b", 4)) == []

    def test_a_replay_in_the_same_driver_does_not_either(self, query: Query) -> None:
        query.batch(0, Row("a", 1), commit=False)
        assert query.batch(0, Row("a", 2)) == [Row("a", 2)]

    def test_agrees_with_a_model(self, query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
        choose = random.Random(4)
        known: dict[str, tuple[str, int, int]] = {}
        for number in range(13):
            if number == 4:  # from here on, as for a window that is reduced to the identities of the batch
                monkeypatch.setattr(identities_module, "_UNFILTERED_ROWS", 0)
            if number == 8:  # from here on, as for batches too large to be sent to every executor
                monkeypatch.setattr(identities_module, "BROADCAST_ROWS", 0)
            rows = [
                Row(f"id-{choose.randrange(60)}", choose.randrange(40), choose.randrange(2))
                for _ in range(30)
            ]
            best = dict(known)
            for row in rows:
                place = (row.topic, row.partition, row.offset or 0)
                name = str(row.identity)
                if name not in known and (name not in best or place < best[name]):
                    best[name] = place
            expected = [
                row for row in rows if best[str(row.identity)] == (row.topic, row.partition, row.offset)
            ]
            assert sorted(query.batch(number, *rows)) == sorted(expected), number
            known = best


class TestSeenWindow:
    def test_forgets_what_is_older_than_its_batches(self, query: Query) -> None:
        query.restart(window_batches=2)
        query.batch(0, Row("a", 1), Row("b", 2))
        query.batch(1)
        assert query.batch(2, Row("a", 3)) == []
        assert query.batch(3, Row("b", 4)) == [Row("b", 4)]

    def test_forgets_what_is_older_than_its_time(self, query: Query) -> None:
        query.restart(window_ms=1_000)
        query.batch(0, Row("a", 1), now_ms=5_000)
        assert query.batch(1, Row("a", 2), now_ms=6_000) == []
        assert query.batch(2, Row("a", 3), now_ms=6_001) == [Row("a", 3)]

    def test_of_nothing_looks_into_the_batch_alone(self, query: Query) -> None:
        query.restart(window_batches=0)
        query.batch(0, Row("a", 1))
        assert query.batch(1, Row("a", 2), Row("a", 3)) == [Row("a", 2)]

    @pytest.mark.parametrize("wrong", [(-1, None), (1, -1)])
    def test_below_0_is_refused(self, query: Query, wrong: tuple[int, int | None]) -> None:
        with pytest.raises(LedgerError, match="expected a window of 0 batches"):
            query.restart(*wrong)

    def test_becomes_few_folders_that_remember_all(
        self, query: Query, segments: Callable[[], list[str]]
    ) -> None:
        for number in range(12):
            query.batch(number, Row(f"id-{number}", number))
        assert segments() == ["merged2", "seen", "seen"]
        assert query.batch(12, *(Row(f"id-{number}", 100) for number in range(13))) == [Row("id-12", 100)]

    def test_deletes_what_it_forgot(self, query: Query, segments: Callable[[], list[str]]) -> None:
        query.restart(window_batches=3)
        for number in range(9):
            query.batch(number, Row(f"id-{number}", number))
        # Three of the window, the batch's own, and one that the batch before still referred to.
        assert segments() == ["seen"] * 5


class TestSeenRefusals:
    def test_an_identity_that_is_no_binary(self, query: Query) -> None:
        query.ledger.begin(0, chain="x", now_ms=0)
        for frame in (query.frame([]), query.frame([]).withColumnRenamed("identity", "who")):
            column = "value" if "identity" in frame.columns else "identity"
            with pytest.raises(LedgerError, match=f"expected a binary column {column}, found"):
                query.ledger.identities.fresh(frame, 0, column)

    @pytest.mark.parametrize("drop", ["source", "source.offset"])
    def test_a_frame_without_places(self, query: Query, drop: str) -> None:
        frame = query.frame([Row("a", 1)])
        if drop == "source":
            frame = frame.drop("source")
        else:
            frame = frame.withColumn("source", frame["source"].dropFields("offset"))
        query.ledger.begin(0, chain="x", now_ms=0)
        with pytest.raises(LedgerError, match="expected a struct column source of topic, partition, offset"):
            query.ledger.identities.fresh(frame, 0)

    def test_a_batch_that_was_not_begun(self, query: Query) -> None:
        with pytest.raises(LedgerError, match="expected batch 0 to be begun, found none"):
            query.ledger.identities.fresh(query.frame([]), 0)
        query.ledger.begin(0, chain="x", now_ms=0)
        with pytest.raises(LedgerError, match="expected batch 1 to be begun, found batch 0"):
            query.ledger.identities.fresh(query.frame([]), 1)

    def test_takes_a_column_of_any_name(self, query: Query) -> None:
        query.ledger.begin(0, chain="x", now_ms=0)
        frame = query.frame([Row("a", 1), Row("a", 2)]).withColumnRenamed("identity", "my`odd.id")
        assert query.ledger.identities.fresh(frame, 0, "my`odd.id").count() == 1
