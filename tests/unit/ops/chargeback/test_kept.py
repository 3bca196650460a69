from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headerware.core.errors import ConfigError, HeaderwareError
from headerware.ops.chargeback import KeptUsage
from headerware.ops.chargeback.kept import CountedRange, Moment, Position
from headerware.ops.chargeback.rules import Line, Sum

NINE = datetime(2026, 1, 31, 9, tzinfo=UTC)
HOUR = int(NINE.timestamp()) // 3600
SHOP = Line(HOUR, "orders", "shop", "checkout", "in", None, "records")
READ = Line(HOUR, "orders", "shop", "checkout", "out", "billing", "offsets")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "usage.db"


class TestAdd:
    def test_sums_outlive_the_process(self, path: Path) -> None:
        with KeptUsage(path) as kept:
            kept.add("orders", {0: CountedRange(5, 10)}, {SHOP: Sum(4, 40, 1)})
        with KeptUsage(path) as kept:
            kept.add("orders", {0: CountedRange(10, 20), 1: CountedRange(0, 1)}, {SHOP: Sum(2, 20)})
            assert kept.positions("orders") == {
                ("orders", 0): Position(5, 20, 0),
                ("orders", 1): Position(0, 1, 0),
            }
            (row,) = kept.usage()
        assert (row.hour, row.owner, row.records, row.bytes, row.malformed) == (NINE, "shop", 6, 60, 1)

    def test_nothing_counts_twice(self, path: Path) -> None:
        with KeptUsage(path) as first, KeptUsage(path) as second:
            first.add("orders", {0: CountedRange(0, 10)}, {SHOP: Sum(10, 100)})
            said = r"another process has counted up to offset 10 into .* no record was counted twice"
            with pytest.raises(HeaderwareError, match=said):
                second.add("orders", {1: CountedRange(0, 5), 0: CountedRange(0, 7)}, {SHOP: Sum(12, 120)})
            assert second.positions() == {("orders", 0): Position(0, 10, 0)}
            assert [row.records for row in second.usage()] == [10]

    def test_tells_what_was_missed(self, path: Path) -> None:
        with KeptUsage(path) as kept:
            kept.add("orders", {0: CountedRange(0, 10)}, {})
            kept.add("orders", {0: CountedRange(15, 20, missed=5)}, {})
            assert kept.positions() == {("orders", 0): Position(0, 20, 5)}

    def test_what_is_unknown_stays_so(self, path: Path) -> None:
        unknown = READ._replace(source="unknown", owner=None, producer=None)
        with KeptUsage(path) as kept:
            for sums in (Sum(7, None), Sum(None, None), Sum(1, None)):
                kept.add("orders", {}, {unknown: sums})
            (row,) = kept.usage()
        assert (row.records, row.bytes, row.source) == (None, None, "unknown")

    def test_forged_counts_stop_nothing(self, path: Path) -> None:
        audited = READ._replace(source="audit")
        with KeptUsage(path) as kept:
            for _ in range(3):
                kept.add("orders", {}, {audited: Sum((1 << 64) - 1, 1 << 70)})
            (row,) = kept.usage()
        assert (row.records, row.bytes) == ((1 << 62) - 1, (1 << 62) - 1)

    def test_a_first_slice_may_come_in_a_later_run(self, path: Path) -> None:
        rest = SHOP._replace(owner=None, producer=None, partition=2, message=b"m" * 16)
        with KeptUsage(path) as kept:
            kept.add("orders", {2: CountedRange(0, 2)}, {rest: Sum(2, 20)})
            assert [row.owner for row in kept.usage()] == [None]
            kept.add("orders", {2: CountedRange(2, 3)}, {rest._replace(owner="shop", first=True): Sum(1, 10)})
            (row,) = kept.usage()
        assert (row.owner, row.records) == ("shop", 3)


class TestUsage:
    def test_has_the_hours_that_were_asked_for(self, path: Path) -> None:
        lines = {SHOP._replace(hour=None if n is None else HOUR + n): Sum(1, 1) for n in (None, 0, 1, 2)}
        with KeptUsage(path) as kept:
            kept.add("orders", {}, lines)
            assert len(kept.usage()) == 4
            asked = kept.usage(since=NINE + timedelta(hours=1), until=NINE + timedelta(hours=2))
        assert [row.hour for row in asked] == [NINE + timedelta(hours=1)]

    @pytest.mark.parametrize("bound", ["since", "until"])
    def test_refuses_an_hour_without_a_time_zone(self, path: Path, bound: str) -> None:
        hours = {bound: NINE.replace(tzinfo=None)}
        with KeptUsage(path) as kept, pytest.raises(ConfigError, match=f"^{bound}: .* with a time zone"):
            kept.usage(**hours)

    def test_a_first_slice_of_another_hour_names_the_rest(self, path: Path) -> None:
        first = SHOP._replace(partition=0, message=b"m" * 16, first=True)
        rest = first._replace(owner=None, producer=None, first=False, hour=HOUR + 1)
        with KeptUsage(path) as kept:
            kept.add("orders", {}, {first: Sum(1, 10), rest: Sum(4, 40)})
            (row,) = kept.usage(since=NINE + timedelta(hours=1))
            assert (row.owner, row.records) == ("shop", 4)
            (row,) = kept.usage(until=NINE + timedelta(minutes=1))
            assert (row.owner, row.records) == ("shop", 1)

    def test_reads_are_the_audits_where_it_has_any(self, path: Path) -> None:
        audit = READ._replace(source="audit", owner=None, producer=None)
        with KeptUsage(path) as kept:
            kept.add("orders", {}, {READ: Sum(5, 50), audit: Sum(4, 30), READ._replace(group="x"): Sum(1, 1)})
            found = {(row.group, row.source, row.records) for row in kept.usage()}
        assert found == {("billing", "audit", 4), ("x", "offsets", 1)}


class TestMoments:
    def test_are_replaced_with_what_was_read_between(self, path: Path) -> None:
        first = Moment(NINE, {("billing", "orders", 0): 5, ("billing", "other", 0): 7})
        second = Moment(NINE + timedelta(minutes=30, microseconds=3), {("billing", "orders", 0): 9})
        with KeptUsage(path) as kept:
            assert kept.moment("orders") is None
            kept.add_moment("orders", None, first, {})
            assert kept.usage() == []
            before = kept.moment("orders")
            assert before == Moment(NINE, {("billing", "orders", 0): 5})
            kept.add_moment("orders", before, second, {READ: Sum(4, 40)})
            assert kept.moment("orders") == second
            assert [row.records for row in kept.usage()] == [4]
            with pytest.raises(HeaderwareError, match="another process has counted reads"):
                kept.add_moment("orders", before, second, {READ: Sum(4, 40)})
            assert [row.records for row in kept.usage()] == [4]

    def test_two_without_reads_say_that_nobody_read(self, path: Path) -> None:
        with KeptUsage(path) as kept:
            for number in range(2):
                kept.add_moment(
                    "orders", kept.moment("orders"), Moment(NINE + timedelta(hours=number), {}), {}
                )
            (row,) = kept.usage()
        assert (row.topic, row.direction, row.records, row.source) == ("orders", "out", 0, "offsets")


class TestFile:
    def test_is_of_one_cluster(self, path: Path) -> None:
        with KeptUsage(path) as kept:
            kept.require_cluster("one")
            kept.require_cluster("one")
            with pytest.raises(
                ConfigError, match="the usage of cluster 'two', found the usage of cluster 'one'"
            ):
                kept.require_cluster("two")

    def test_of_another_application_is_refused(self, path: Path) -> None:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE usage (x)")
        with pytest.raises(ConfigError, match="a SQLite file, but not a file of kept usage"):
            KeptUsage(path)

    def test_that_others_changed_is_refused(self, path: Path) -> None:
        KeptUsage(path).close()
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TRIGGER t AFTER INSERT ON usage BEGIN DELETE FROM usage; END")
        with pytest.raises(ConfigError, match="trigger t"):
            KeptUsage(path)

    def test_of_a_later_layout_is_refused(self, path: Path) -> None:
        KeptUsage(path).close()
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA user_version = 9")
        with pytest.raises(ConfigError, match="has version 9, but this Headerware reads 1"):
            KeptUsage(path)

    def test_that_is_none_is_refused(self, path: Path) -> None:
        path.write_bytes(b"no database at all" * 100)
        with pytest.raises(ConfigError, match="cannot be used"):
            KeptUsage(path)
