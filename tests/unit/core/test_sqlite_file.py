"""A SQLite file of ours: made, opened again, and refused if it is not as we made it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from headerware.core.sqlite_file import FileKind

KIND = FileKind("file of names", 0x68770001, "CREATE TABLE name (it TEXT); CREATE TABLE more (it TEXT);", 3)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "names.db"


def opened(path: Path | str, kind: FileKind = KIND) -> closing[sqlite3.Connection]:
    return closing(kind.open(path, wait_s=1.0))


def by_hand(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


class TestOpen:
    def test_makes_a_file_and_opens_it_again(self, path: Path) -> None:
        with opened(path) as connection:
            connection.execute("INSERT INTO name VALUES ('one')")
        with opened(path) as connection:
            assert connection.execute("SELECT * FROM name").fetchall() == [("one",)]

    def test_makes_a_temporary_file(self) -> None:
        with opened("") as connection:
            assert connection.execute("SELECT count(*) FROM more").fetchone() == (0,)

    def test_trusts_no_function_in_the_file(self, path: Path) -> None:
        with opened(path) as connection:
            assert connection.execute("PRAGMA trusted_schema").fetchone() == (0,)

    @pytest.mark.parametrize("statement", ["CREATE TABLE name (it TEXT)", "PRAGMA application_id = 5"])
    def test_leaves_a_file_of_others_alone(self, path: Path, statement: str) -> None:
        by_hand(path, statement)
        before = path.read_bytes()
        with pytest.raises(sqlite3.Error, match="it is a SQLite file, but not a file of names"):
            KIND.open(path, wait_s=1.0)
        assert path.read_bytes() == before

    def test_refuses_another_version(self, path: Path) -> None:
        KIND.open(path, wait_s=1.0).close()
        with pytest.raises(sqlite3.Error, match="it has version 3, but this Headerware reads 4"):
            KIND._replace(version=4).open(path, wait_s=1.0)

    @pytest.mark.parametrize(
        ("statement", "named"),
        [
            ("CREATE TRIGGER t AFTER INSERT ON name BEGIN DELETE FROM name; END", "trigger t"),
            ("CREATE VIEW v AS SELECT 1", "view v"),
            ("CREATE INDEX i ON name (it)", "index i"),
            ("ALTER TABLE name ADD COLUMN more", "table name"),
            ("DROP TABLE more", "table more"),
        ],
    )
    def test_names_what_others_changed(self, path: Path, statement: str, named: str) -> None:
        KIND.open(path, wait_s=1.0).close()
        by_hand(path, statement)
        with pytest.raises(sqlite3.Error, match=rf"somebody changed .* \({named}\); restore it"):
            KIND.open(path, wait_s=1.0)

    def test_makes_a_file_whole_or_not_at_all(self, path: Path) -> None:
        broken = KIND._replace(schema="CREATE TABLE name (it TEXT); CREATE NONSENSE;")
        with pytest.raises(sqlite3.Error, match="syntax error"):
            broken.open(path, wait_s=1.0)
        KIND.open(path, wait_s=1.0).close()
