from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from headerware.core.errors import RegistryError
from headerware.core.header_ids import HeaderId
from headerware.registry import (
    Allocate,
    Change,
    Register,
    Registry,
    Retire,
    built_in,
    with_built_in,
)
from headerware.registry.stores.sqlite import SqliteStore
from tests.unit.registry.conftest import DAY, block, entry

if TYPE_CHECKING:
    from collections.abc import Iterator


def full() -> Registry:
    return with_built_in(
        [block("0.1.0.0/16", "a")],
        [
            entry("0.1.0.2", "two"),
            entry("0.1.0.4", "\u00fc'; DROP TABLE entry; --", foreign=True),
            entry("0.1.0.6", "gone", retired=DAY),
        ],
        registrar="platform",
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "registry.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    with SqliteStore.create(path, full()) as store:
        yield store


def by_hand(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


class TestCreate:
    def test_holds_what_it_was_given(self, store: SqliteStore) -> None:
        assert store.load() == full()

    def test_holds_nothing_that_comes_with_headerware(self, store: SqliteStore, path: Path) -> None:
        with closing(sqlite3.connect(path)) as connection:
            found = connection.execute("SELECT id FROM entry ORDER BY id").fetchall()
        assert found == [("0.1.0.2",), ("0.1.0.4",), ("0.1.0.6",)]

    def test_lets_readers_go_on_while_others_write(self, store: SqliteStore, path: Path) -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as writer:
            assert writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
            writer.execute("BEGIN IMMEDIATE")
            assert store.load() == full()
            writer.execute("ROLLBACK")

    def test_overwrites_nothing(self, store: SqliteStore, path: Path) -> None:
        with pytest.raises(RegistryError, match=r"registry\.db: the file exists, and is not overwritten"):
            SqliteStore.create(path, built_in())
        assert store.load() == full()
        assert [each for each in path.parent.iterdir() if each.suffix == ".tmp"] == []

    @pytest.mark.parametrize("wrong", [Registry(), with_built_in(entries=[entry("0.9.0.1", "x")])], ids=str)
    def test_refuses_what_is_no_whole_registry(self, path: Path, wrong: Registry) -> None:
        with pytest.raises(RegistryError):
            SqliteStore.create(path, wrong)
        assert list(path.parent.iterdir()) == []


class TestOpen:
    def test_makes_no_file(self, path: Path) -> None:
        with pytest.raises(RegistryError, match="there is no such file; `headerware header-ids init`"):
            SqliteStore(path)
        assert not path.exists()

    def test_refuses_what_is_no_database(self, path: Path) -> None:
        path.write_bytes(b"no database at all" * 100)
        with pytest.raises(RegistryError, match=r"registry\.db: file is not a database"):
            SqliteStore(path)

    def test_refuses_a_database_of_others(self, path: Path) -> None:
        by_hand(path, "CREATE TABLE entry (id TEXT)")
        with pytest.raises(RegistryError, match="a SQLite file, but no registry of header ids"):
            SqliteStore(path)

    def test_refuses_a_newer_schema(self, store: SqliteStore, path: Path) -> None:
        by_hand(path, "PRAGMA user_version = 2")
        with pytest.raises(RegistryError, match="schema version 2, but this Headerware reads 1"):
            SqliteStore(path)

    def test_takes_names_that_uris_would_not(self, tmp_path: Path) -> None:
        path = tmp_path / "100% ?mode=ro#a.db"
        SqliteStore.create(path, full()).close()
        with SqliteStore(path) as store:
            store.apply(Register(entry("0.1.0.3", "three"), "a"))
        assert path.exists()


class TestApply:
    def test_gives_the_registry_after_it(self, store: SqliteStore) -> None:
        state = full()
        for change in (
            Register(entry("0.1.0.3", "three", foreign=True), "a"),
            Allocate(block("0.1.2.0/24", "b"), "a"),
            Retire(HeaderId("0.1.0.3"), "2027-02-01", "a"),
        ):
            state = state.apply(change)
            assert store.apply(change) == state == store.load()

    def test_is_seen_by_others_and_after_a_restart(self, store: SqliteStore, path: Path) -> None:
        with SqliteStore(path) as other:
            after = store.apply(Register(entry("0.1.0.3", "three"), "a"))
            assert other.load() == after
            store.close()
            assert other.apply(Register(entry("0.1.0.5", "five"), "a")).by_name("three") is not None

    @pytest.mark.parametrize(
        "refused",
        [
            Register(entry("0.1.0.2", "other"), "a"),
            Allocate(block("0.1.0.0/16", "z"), "platform"),
            Retire(HeaderId("0.1.0.6"), DAY, "a"),
        ],
        ids=["register", "allocate", "retire"],
    )
    def test_leaves_the_file_alone_when_refused(self, store: SqliteStore, refused: Change) -> None:
        with pytest.raises(RegistryError):
            store.apply(refused)
        assert store.load() == full()
        store.apply(Register(entry("0.1.0.3", "three"), "a"))

    def test_the_second_of_two_is_told_who_was_first(self, store: SqliteStore, path: Path) -> None:
        with SqliteStore(path) as other:
            other.apply(Register(entry("0.1.0.3", "three"), "a"))
            with pytest.raises(RegistryError, match=r"0\.1\.0\.3: the id is 'three', a's since 2027-01-01"):
                store.apply(Register(entry("0.1.0.3", "drei"), "a"))

    def test_threads_may_share_it(self, store: SqliteStore) -> None:
        threads = [
            Thread(target=store.apply, args=(Register(entry(f"0.1.1.{number}", f"n{number}"), "a"),))
            for number in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(store.load()) == len(full()) + 20

    @pytest.mark.parametrize("how", ["ABORT", "FAIL", "ROLLBACK"])
    def test_goes_on_after_a_failure_to_write(self, store: SqliteStore, path: Path, how: str) -> None:
        by_hand(path, f"CREATE TRIGGER t BEFORE INSERT ON entry BEGIN SELECT RAISE({how}, 'disk full'); END")
        with pytest.raises(RegistryError, match=r"registry\.db: disk full"):
            store.apply(Register(entry("0.1.0.3", "three"), "a"))
        by_hand(path, "DROP TRIGGER t")
        assert store.load() == full()
        store.apply(Register(entry("0.1.0.3", "three"), "a"))

    def test_says_that_it_is_closed(self, store: SqliteStore) -> None:
        store.close()
        store.close()
        with pytest.raises(RegistryError, match="closed"):
            store.load()


class TestOtherTools:
    """What the file itself holds against those who open it without Headerware."""

    @pytest.mark.parametrize(
        "statement",
        [
            "DELETE FROM entry WHERE id = '0.1.0.2'",
            "DELETE FROM block",
            "UPDATE entry SET name = 'x' WHERE id = '0.1.0.2'",
            "UPDATE entry SET encoding = 'json'",
            "UPDATE entry SET retired = NULL WHERE id = '0.1.0.6'",
            "INSERT INTO block SELECT * FROM block",
        ],
    )
    def test_are_refused(self, store: SqliteStore, path: Path, statement: str) -> None:
        with pytest.raises(sqlite3.IntegrityError):
            by_hand(path, statement)
        assert store.load() == full()

    def test_may_find_better_words(self, store: SqliteStore, path: Path) -> None:
        by_hand(path, "UPDATE entry SET description = 'Better.' WHERE id = '0.1.0.2'")
        found = store.load().by_name("two")
        assert found is not None
        assert found.description == "Better."

    @pytest.mark.parametrize(
        ("row", "message"),
        [
            (
                "('0.9.0.1', 'x', 'a', 'bytes', 'd', '2027-01-01', NULL, 0)",
                "0.9.0.1: the id lies in no block",
            ),
            ("('0.1.0.1', 'TWO', 'a', 'bytes', 'd', '2027-01-01', NULL, 0)", "looks like"),
            (
                "('10', 'x', 'a', 'bytes', 'd', '2027-01-01', NULL, 0)",
                "registry.db: table entry: id: Expected an id",
            ),
            ("('0.1.0.1', x'ff', 'a', 'bytes', 'd', '2027-01-01', NULL, 0)", "expected text"),
            (
                "('0.1.0.1', 'x', 'a', 'bits', 'd', '2027-01-01', NULL, 0)",
                "encoding: expected one of 'bytes'",
            ),
            ("('0.1.0.1', 'x', 'a', 'bytes', 'd', 20270101, NULL, 0)", "since is a day"),
        ],
    )
    def test_rows_that_break_rules_are_found(
        self, store: SqliteStore, path: Path, row: str, message: str
    ) -> None:
        by_hand(path, "INSERT INTO entry VALUES " + row)  # noqa: S608 - written above
        for attempt in (store.load, lambda: store.apply(Register(entry("0.1.0.3", "three"), "a"))):
            with pytest.raises(RegistryError) as caught:
                attempt()
            assert message in str(caught.value)

    @pytest.mark.parametrize(
        ("statement", "named"),
        [
            (
                "CREATE TRIGGER t BEFORE INSERT ON entry BEGIN SELECT RAISE(IGNORE); END",
                "trigger t",
            ),
            ("DROP TRIGGER entries_stay", "trigger entries_stay"),
            ("CREATE VIEW v AS SELECT 1", "view v"),
            ("ALTER TABLE entry ADD COLUMN more", "table entry"),
        ],
    )
    def test_that_change_the_tables_are_noticed(
        self, store: SqliteStore, path: Path, statement: str, named: str
    ) -> None:
        by_hand(path, statement)
        with pytest.raises(RegistryError, match=f"registry\\.db: .*{named}"):
            SqliteStore(path)

    def test_that_swallow_a_change_are_noticed(self, store: SqliteStore, path: Path) -> None:
        by_hand(path, "CREATE TRIGGER t BEFORE INSERT ON entry BEGIN SELECT RAISE(IGNORE); END")
        with pytest.raises(RegistryError, match="did not take the change"):
            store.apply(Register(entry("0.1.0.3", "three"), "a"))
        assert store.load() == full()

    def test_problems_are_all_told(self, store: SqliteStore, path: Path) -> None:
        by_hand(
            path,
            "INSERT INTO entry VALUES ('0.9.0.1', 'x', 'a', 'bytes', 'd', '2027-01-01', NULL, 0)",
            "INSERT INTO entry VALUES ('0.9.0.2', 'y', 'a', 'bytes', 'd', '2027-01-01', NULL, 0)",
        )
        assert [problem.about for problem in store.problems()] == ["0.9.0.1", "0.9.0.2"]

    def test_a_file_without_its_registrar_is_refused(self, store: SqliteStore, path: Path) -> None:
        by_hand(path, "DELETE FROM registry")
        with pytest.raises(RegistryError, match=r"registry\.db: the file does not say who its registrar is"):
            store.load()
