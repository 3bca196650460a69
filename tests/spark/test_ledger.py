from __future__ import annotations

import json
import logging
import shutil
import threading
import uuid
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812  the customary name
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from headerware.spark_bridge.batches.ledger import KEPT_BATCHES, Ledger
from headerware.spark_bridge.batches.storage import LedgerError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.one_spark, pytest.mark.usefixtures("interpreted")]

QUERY = str(uuid.UUID(int=7))
NOW_MS = 1_767_225_600_000
STEPS = ("begin", "carried", "leave", "fresh", "commit", "done")


@pytest.fixture
def open_ledger(spark: SparkSession, tmp_path: Path) -> Callable[[], Ledger]:
    """Return a function that opens the ledger like a driver that has just started."""
    return lambda: Ledger.open(spark, tmp_path, QUERY)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "headerware" / QUERY


@pytest.fixture
def rows(spark: SparkSession) -> Callable[..., DataFrame]:
    """Return a function that makes waiting rows: one for each text."""
    schema = pa.schema({"value": pa.string(), "arrived_ms": pa.int64()})

    def frame(*values: str) -> DataFrame:
        table = pa.Table.from_pylist([{"value": value, "arrived_ms": NOW_MS} for value in values], schema)
        # From Arrow there is a local relation, which needs no Python workers.
        return spark.createDataFrame(table).coalesce(1)

    return frame


def identified(spark: SparkSession, batch: int) -> DataFrame:
    source = F.struct(
        F.lit("orders").alias("topic"), F.lit(0).alias("partition"), F.col("id").alias("offset")
    )
    frame = spark.range(batch, batch + 1, numPartitions=1)
    return frame.select(
        F.encode(F.col("id").cast("string"), "utf-8").alias("identity"), source.alias("source")
    )


def values(frame: DataFrame | None) -> list[str] | None:
    return None if frame is None else sorted(row["value"] for row in frame.collect())


def run(ledger: Ledger, batch: int, left: DataFrame, until: str = "done", now_ms: int = NOW_MS) -> Any:
    """Do a batch up to but without a step, and return the attempt."""
    found: dict[str, Any] = {"skip": ledger.is_committed(batch)}
    if found["skip"]:
        return found
    actions: dict[str, Callable[[], Any]] = {
        "begin": lambda: ledger.begin(batch, chain=f"chain-{batch}", now_ms=now_ms + batch),
        "carried": lambda: values(ledger.carried(batch)),
        "leave": lambda: ledger.leave(batch, None if left.isEmpty() else left),
        "fresh": lambda: ledger.identities.fresh(identified(left.sparkSession, batch), batch),
        "commit": lambda: ledger.commit(batch),
    }
    for step in STEPS[: STEPS.index(until)]:
        found[step] = actions[step]()
    return found


class TestLedger:
    def test_nothing_is_committed_at_first(self, open_ledger: Callable[[], Ledger], root: Path) -> None:
        assert not open_ledger().is_committed(0)
        assert not root.exists()

    def test_a_committed_batch_is_known_after_a_restart(
        self, open_ledger: Callable[[], Ledger], rows: Callable[..., DataFrame]
    ) -> None:
        run(open_ledger(), 0, rows())
        again = open_ledger()
        assert (again.is_committed(0), again.is_committed(1)) == (True, False)

    def test_carries_what_the_batch_before_left(
        self, open_ledger: Callable[[], Ledger], rows: Callable[..., DataFrame]
    ) -> None:
        run(open_ledger(), 0, rows("a", "b"))
        assert run(open_ledger(), 1, rows("c"))["carried"] == ["a", "b"]
        assert run(open_ledger(), 2, rows())["carried"] == ["c"]
        assert run(open_ledger(), 3, rows())["carried"] is None

    def test_carried_rows_may_be_left_again(
        self, open_ledger: Callable[[], Ledger], rows: Callable[..., DataFrame]
    ) -> None:
        ledger = open_ledger()
        run(ledger, 0, rows("a"))
        ledger.begin(1, chain="x", now_ms=NOW_MS)
        carried = ledger.carried(1)
        assert carried is not None
        ledger.leave(1, carried.union(rows("b")))
        ledger.commit(1)
        ledger.begin(2, chain="x", now_ms=NOW_MS)
        assert values(ledger.carried(2)) == ["a", "b"]

    def test_a_first_batch_that_is_not_0_carries_nothing(
        self, open_ledger: Callable[[], Ledger], rows: Callable[..., DataFrame]
    ) -> None:
        found = run(open_ledger(), 41, rows("a"))
        assert found["carried"] is None
        assert found["begin"].previous_chain is None

    def test_rows_wait_over_batches_without_the_ledger(
        self, open_ledger: Callable[[], Ledger], rows: Callable[..., DataFrame]
    ) -> None:
        run(open_ledger(), 0, rows("a"))
        found = run(open_ledger(), 40, rows())
        assert found["carried"] == ["a"]
        assert found["begin"].previous_chain == "chain-0"

    def test_ledgers_of_two_queries_do_not_meet(
        self, spark: SparkSession, tmp_path: Path, rows: Callable[..., DataFrame]
    ) -> None:
        run(Ledger.open(spark, tmp_path, QUERY), 0, rows("a"))
        other = Ledger.open(spark, tmp_path, str(uuid.uuid4()))
        assert not other.is_committed(0)
        assert run(other, 1, rows())["carried"] is None

    def test_works_in_folders_of_any_name(
        self, spark: SparkSession, tmp_path: Path, rows: Callable[..., DataFrame]
    ) -> None:
        folder = tmp_path / "dé pôt" / "a%20b" / "[x]{y}*?" / "k=v"
        (tmp_path / "dé pôt" / "a%20b" / "xy").mkdir(parents=True)
        run(Ledger.open(spark, folder, QUERY), 0, rows("a"))
        assert run(Ledger.open(spark, folder, QUERY), 1, rows())["carried"] == ["a"]

    @pytest.mark.parametrize("query_id", ["", "../../up", "query", QUERY[:-1]])
    def test_refuses_what_is_no_query_id(self, spark: SparkSession, tmp_path: Path, query_id: str) -> None:
        with pytest.raises(LedgerError, match="expected a query's id"):
            Ledger.open(spark, tmp_path, query_id)

    def test_refuses_no_folder(self, spark: SparkSession) -> None:
        with pytest.raises(LedgerError, match="expected a folder"):
            Ledger.open(spark, "", QUERY)

    def test_refuses_a_batch_that_was_not_begun(
        self, open_ledger: Callable[[], Ledger], rows: Callable[..., DataFrame]
    ) -> None:
        ledger = open_ledger()
        run(ledger, 0, rows())
        for step in (ledger.carried, ledger.commit):
            with pytest.raises(LedgerError, match="expected batch 0 to be begun, found none"):
                step(0)
        ledger.begin(1, chain="x", now_ms=NOW_MS)
        with pytest.raises(LedgerError, match="expected batch 2 to be begun, found batch 1"):
            ledger.leave(2, rows())

    def test_refuses_to_begin_what_is_committed(
        self, open_ledger: Callable[[], Ledger], rows: Callable[..., DataFrame]
    ) -> None:
        run(open_ledger(), 0, rows())
        with pytest.raises(LedgerError, match="batch 0 is committed: skip it"):
            open_ledger().begin(0, chain="x", now_ms=NOW_MS)

    def test_refuses_a_commit_that_would_lose_waiting_rows(
        self, open_ledger: Callable[[], Ledger], rows: Callable[..., DataFrame]
    ) -> None:
        ledger = open_ledger()
        run(ledger, 0, rows("a"))
        ledger.begin(1, chain="x", now_ms=NOW_MS)
        with pytest.raises(LedgerError, match="expected leave before commit"):
            ledger.commit(1)

    def test_refuses_a_checkpoint_older_than_the_ledger(
        self, open_ledger: Callable[[], Ledger], rows: Callable[..., DataFrame]
    ) -> None:
        for batch in (30, 31):
            run(open_ledger(), batch, rows())
        assert open_ledger().is_committed(31)
        for older in (12, 30):
            with pytest.raises(LedgerError, match="the checkpoint is older than its ledger"):
                open_ledger().is_committed(older)

    def test_tells_a_batch_of_other_records_from_a_replay(self, open_ledger: Callable[[], Ledger]) -> None:
        ledger = open_ledger()
        ledger.begin(0, chain="x", now_ms=NOW_MS, offsets="a" * 16)
        ledger.commit(0)
        assert open_ledger().is_committed(0, "a" * 16)
        assert open_ledger().is_committed(0)
        with pytest.raises(LedgerError, match="found 0 again, with other records: the checkpoint is older"):
            open_ledger().is_committed(0, "b" * 16)


class TestReplay:
    @pytest.mark.parametrize("until", STEPS[1:])
    def test_after_an_end_at_any_step_gives_the_same(
        self, open_ledger: Callable[[], Ledger], rows: Callable[..., DataFrame], until: str
    ) -> None:
        run(open_ledger(), 0, rows("a"))
        run(open_ledger(), 1, rows("lost"), until=until, now_ms=NOW_MS)
        found = run(open_ledger(), 1, rows("b", "c"), now_ms=NOW_MS + 60_000)
        after = run(open_ledger(), 2, rows())
        if until == "done":
            assert found == {"skip": True}
            assert after["carried"] == ["lost"]
        else:
            assert (found["begin"].replay, found["begin"].now_ms) == (True, NOW_MS + 1)
            assert found["carried"] == ["a"]
            assert after["carried"] == ["b", "c"]
        assert not after["begin"].replay

    def test_gives_the_chain_of_the_first_attempt_and_of_the_batch_before(
        self, open_ledger: Callable[[], Ledger], rows: Callable[..., DataFrame]
    ) -> None:
        run(open_ledger(), 0, rows())
        open_ledger().begin(1, chain="first", now_ms=5)
        begun = open_ledger().begin(1, chain="second", now_ms=6)
        assert (begun.chain, begun.previous_chain, begun.now_ms) == ("first", "chain-0", 5)

    def test_commits_the_chain_that_did_it(
        self, open_ledger: Callable[[], Ledger], rows: Callable[..., DataFrame]
    ) -> None:
        open_ledger().begin(0, chain="first", now_ms=5)
        ledger = open_ledger()
        ledger.begin(0, chain="second", now_ms=6)
        ledger.commit(0)
        assert ledger.begin(1, chain="second", now_ms=7).previous_chain == "second"

    def test_of_many_in_one_driver_gives_the_last_one_s_rows(
        self, open_ledger: Callable[[], Ledger], rows: Callable[..., DataFrame]
    ) -> None:
        ledger = open_ledger()
        for attempt in range(12):
            run(ledger, 0, rows(f"attempt {attempt}"), until="commit")
        run(ledger, 0, rows("good"))
        assert run(ledger, 1, rows())["carried"] == ["good"]

    def test_after_a_leave_that_broke_off(
        self, open_ledger: Callable[[], Ledger], rows: Callable[..., DataFrame], root: Path
    ) -> None:
        ledger = open_ledger()
        ledger.begin(0, chain="x", now_ms=5)
        bad = rows("a", "b").select(F.raise_error(F.lit("broken")).cast("string").alias("value"))
        with pytest.raises(Exception, match="broken"):
            ledger.leave(0, bad)
        ledger.leave(0, rows("good"))
        ledger.commit(0)
        assert run(open_ledger(), 1, rows())["carried"] == ["good"]


class TestTwoDrivers:
    def test_the_later_takes_over_and_the_earlier_cannot_commit(
        self, open_ledger: Callable[[], Ledger], rows: Callable[..., DataFrame]
    ) -> None:
        zombie, driver = open_ledger(), open_ledger()
        run(zombie, 0, rows("zombie"), until="commit")
        run(driver, 0, rows("driver"), until="commit")
        with pytest.raises(LedgerError, match="batch 0 was begun later by another driver"):
            zombie.commit(0)
        driver.commit(0)
        assert run(open_ledger(), 1, rows())["carried"] == ["driver"]

    def test_the_earlier_cannot_commit_what_the_later_committed(
        self, open_ledger: Callable[[], Ledger], rows: Callable[..., DataFrame]
    ) -> None:
        zombie = open_ledger()
        run(zombie, 0, rows("zombie"), until="commit")
        run(open_ledger(), 0, rows("driver"))
        with pytest.raises(LedgerError, match="another driver"):
            zombie.commit(0)

    def test_the_earlier_cannot_commit_a_batch_that_was_pruned(
        self, open_ledger: Callable[[], Ledger], rows: Callable[..., DataFrame]
    ) -> None:
        zombie, driver = open_ledger(), open_ledger()
        zombie.begin(0, chain="x", now_ms=5)
        for batch in range(KEPT_BATCHES + 1):
            driver.begin(batch, chain="x", now_ms=5)
            driver.commit(batch)
        with pytest.raises(LedgerError, match="another driver"):
            zombie.commit(0)

    def test_of_many_that_begin_at_once_one_commits(self, open_ledger: Callable[[], Ledger]) -> None:
        committed: list[int] = []
        refused: list[int] = []

        def drive(number: int) -> None:
            ledger = open_ledger()
            ledger.begin(0, chain="x", now_ms=number)
            met.wait()
            try:
                ledger.commit(0)
                committed.append(number)
            except LedgerError:
                refused.append(number)

        met = threading.Barrier(4)
        threads = [threading.Thread(target=drive, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(committed), len(refused)) == (1, 3)


class TestChangedColumns:
    def test_those_that_came_are_null_and_those_that_went_are_dropped(
        self, spark: SparkSession, open_ledger: Callable[[], Ledger]
    ) -> None:
        old = spark.createDataFrame([("a", 1)], "`odd.name` string, gone int")
        run(open_ledger(), 0, old)
        ledger = open_ledger()
        ledger.begin(1, chain="x", now_ms=5)
        now = spark.createDataFrame([], "new array<int>, `odd.name` string not null").schema
        carried = ledger.carried(1, like=now)
        assert carried is not None
        assert carried.columns == ["new", "odd.name"]
        assert [tuple(row) for row in carried.collect()] == [(None, "a")]

    def test_another_type_is_refused(
        self, open_ledger: Callable[[], Ledger], rows: Callable[..., DataFrame]
    ) -> None:
        run(open_ledger(), 0, rows("a"))
        ledger = open_ledger()
        ledger.begin(1, chain="x", now_ms=5)
        like = StructType([StructField("value", StringType()), StructField("arrived_ms", IntegerType())])
        with pytest.raises(LedgerError, match=r"column arrived_ms: expected bigint.*found int: give"):
            ledger.carried(1, like=like)

    def test_whether_something_may_be_null_is_no_other_type(
        self, open_ledger: Callable[[], Ledger], rows: Callable[..., DataFrame]
    ) -> None:
        run(open_ledger(), 0, rows("a"))
        ledger = open_ledger()
        ledger.begin(1, chain="x", now_ms=5)
        like = StructType([StructField("arrived_ms", LongType(), nullable=False, metadata={"a": 1})])
        carried = ledger.carried(1, like=like)
        assert carried is not None
        assert carried.collect()[0].arrived_ms == NOW_MS

    def test_frames_of_the_connector_come_back_as_they_were(
        self, spark: SparkSession, open_ledger: Callable[[], Ledger]
    ) -> None:
        schema = (
            "key binary, value binary, headers array<struct<key string, value binary>>, topic string, "
            "partition int, offset bigint, timestamp timestamp, timestampType int, user struct<a: int>"
        )
        row = (None, bytearray(b"\0\xff"), [("h", None), ("h", bytearray(b""))], "t", 1, 2**40, None, 0, (1,))
        frame = spark.createDataFrame([row], schema)
        run(open_ledger(), 0, frame)
        ledger = open_ledger()
        ledger.begin(1, chain="x", now_ms=5)
        carried = ledger.carried(1, like=frame.schema)
        assert carried is not None
        assert carried.collect() == frame.collect()


class TestPruning:
    def test_keeps_what_is_there_bounded(
        self, open_ledger: Callable[[], Ledger], rows: Callable[..., DataFrame], root: Path
    ) -> None:
        ledger = open_ledger()
        for batch in range(KEPT_BATCHES + 4):
            ledger.begin(batch, chain="x", now_ms=batch)
            ledger.begin(batch, chain="x", now_ms=batch)
            ledger.leave(batch, rows(str(batch)))
            ledger.commit(batch)
        batches = [f"{batch:012d}.json" for batch in range(4, KEPT_BATCHES + 4)]
        assert sorted(path.name for path in (root / "committed").iterdir()) == batches
        assert len(list((root / "begun").iterdir())) == 2 * KEPT_BATCHES
        assert len(list((root / "rows").iterdir())) == 2
        assert not (root / "tmp").exists()

    def test_takes_away_what_failed_attempts_left(
        self, open_ledger: Callable[[], Ledger], rows: Callable[..., DataFrame], root: Path
    ) -> None:
        for _ in range(3):
            run(open_ledger(), 0, rows("failed"), until="commit")
        (root / "tmp").mkdir(exist_ok=True)
        (root / "tmp" / "stray").write_bytes(b"x")
        run(open_ledger(), 0, rows("good"))
        assert len(list((root / "rows").iterdir())) == 2  # left and seen
        assert not (root / "tmp").exists()

    def test_rows_of_the_batch_before_can_still_be_read(
        self, open_ledger: Callable[[], Ledger], rows: Callable[..., DataFrame]
    ) -> None:
        ledger = open_ledger()
        run(ledger, 0, rows("a"))
        ledger.begin(1, chain="x", now_ms=5)
        carried = ledger.carried(1)
        ledger.leave(1, rows())
        ledger.commit(1)
        assert values(carried) == ["a"]

    def test_leaves_files_of_others_alone(
        self, open_ledger: Callable[[], Ledger], rows: Callable[..., DataFrame], root: Path
    ) -> None:
        run(open_ledger(), 0, rows())
        for name in ("rows/notes", "committed/notes.txt", "begun/1.json"):
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_text("x")
        run(open_ledger(), 1, rows())
        run(open_ledger(), 40, rows())
        assert all((root / name).exists() for name in ("rows/notes", "committed/notes.txt", "begun/1.json"))

    def test_that_fails_is_logged_and_the_batch_is_done(
        self,
        open_ledger: Callable[[], Ledger],
        rows: Callable[..., DataFrame],
        root: Path,
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        ledger = open_ledger()
        run(ledger, 0, rows("a"), until="commit")

        def refuse() -> None:
            raise LedgerError("not permitted")

        monkeypatch.setattr(ledger._storage, "delete_temporary", refuse)
        with caplog.at_level(logging.WARNING):
            ledger.commit(0)
        assert "are kept for now: not permitted" in caplog.text
        assert open_ledger().is_committed(0)


class TestDamage:
    @pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 1}', '{"version": "1"}', "null", "\0" * 99])
    def test_of_a_commit_is_named_with_what_to_do(
        self, open_ledger: Callable[[], Ledger], rows: Callable[..., DataFrame], root: Path, text: str
    ) -> None:
        run(open_ledger(), 0, rows("a"))
        (root / "committed" / f"{0:012d}.json").write_text(text)
        with pytest.raises(LedgerError, match=r"committed/000000000000\.json is damaged .*: restore it, or"):
            open_ledger().begin(1, chain="x", now_ms=5)

    def test_of_the_first_attempt_is_named_with_what_to_do(
        self, open_ledger: Callable[[], Ledger], root: Path
    ) -> None:
        open_ledger().begin(0, chain="x", now_ms=5)
        next((root / "begun").iterdir()).write_text("{}")
        with pytest.raises(LedgerError, match=r"begun/.*\.json is damaged .*: delete that file while"):
            open_ledger().begin(0, chain="x", now_ms=5)

    def test_a_later_version_is_not_guessed_at(
        self, open_ledger: Callable[[], Ledger], rows: Callable[..., DataFrame], root: Path
    ) -> None:
        run(open_ledger(), 0, rows())
        path = root / "committed" / f"{0:012d}.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "version": 2}))
        with pytest.raises(LedgerError, match=r"expected version 1 of the ledger, found 2: run the release"):
            open_ledger().begin(1, chain="x", now_ms=5)

    @pytest.mark.parametrize("name", ["../../../up", "/etc", "000000000000-" + "0" * 32 + "-left/.."])
    def test_a_commit_cannot_point_elsewhere(
        self, open_ledger: Callable[[], Ledger], rows: Callable[..., DataFrame], root: Path, name: str
    ) -> None:
        run(open_ledger(), 0, rows("a"))
        path = root / "committed" / f"{0:012d}.json"
        document = json.loads(path.read_text())
        document["left"]["name"] = name
        path.write_text(json.dumps(document))
        with pytest.raises(LedgerError, match="is damaged"):
            open_ledger().begin(1, chain="x", now_ms=5)

    @pytest.mark.parametrize("whole", [True, False])
    def test_lost_rows_are_noticed(
        self, open_ledger: Callable[[], Ledger], rows: Callable[..., DataFrame], root: Path, *, whole: bool
    ) -> None:
        run(open_ledger(), 0, rows("a"))
        left = next((root / "rows").glob("*-left"))
        if whole:
            shutil.rmtree(left)
        else:
            next(left.glob("part-*")).unlink()
        ledger = open_ledger()
        ledger.begin(1, chain="x", now_ms=5)
        with pytest.raises(LedgerError, match=r"-left: expected 1 files .* found 0: restore the folder"):
            ledger.carried(1)

    def test_a_session_that_skips_lost_files_does_not_lose_rows(
        self,
        spark: SparkSession,
        open_ledger: Callable[[], Ledger],
        rows: Callable[..., DataFrame],
        root: Path,
    ) -> None:
        run(open_ledger(), 0, rows("a"))
        ledger = open_ledger()
        ledger.begin(1, chain="x", now_ms=5)
        carried = ledger.carried(1)
        assert carried is not None
        next(next((root / "rows").glob("*-left")).glob("part-*")).unlink()
        spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
        try:
            with pytest.raises(Exception, match=r"does not exist|FILE_NOT_EXIST"):
                carried.collect()
        finally:
            spark.conf.unset("spark.sql.files.ignoreMissingFiles")
