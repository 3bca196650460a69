"""Headerware's own SQLite files: made if they are new, and refused if others have changed their tables.

Others may be able to write to such a file. A trigger, a view or another constraint in it changes the effect
of our statements: it can swallow rows, or run for ever.

Every problem with a file is a ``sqlite3.Error``, as a full disk is, so that callers handle one class of
errors.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

_Parts = frozenset[tuple[str, str, str | None]]
_PARTS: Final = """
SELECT type, name, sql FROM sqlite_schema WHERE type <> 'table' OR name NOT LIKE 'sqlite!_%' ESCAPE '!'
"""
"""The parts of a file, without SQLite's own tables, such as the tables of ANALYZE."""


class FileKind(NamedTuple):
    """A kind of SQLite file: ``what`` names it in errors; it has an application id and tables."""

    what: str
    application_id: int
    schema: str
    """The statements that make the tables; each statement ends with a semicolon."""
    version: int = 0
    """The version of the tables, which the file has as ``user_version``."""

    def open(self, path: str | Path, *, wait_s: float) -> sqlite3.Connection:
        """Open a file, and make its tables if it is new or empty.

        The connection is in autocommit mode, and any thread may use it, one at a time.

        Args:
            path: the file; an empty path is a temporary file of SQLite's own, which is gone after closing.
            wait_s: how long a statement waits for others that write to the file, in seconds.

        Raises:
            sqlite3.Error: it cannot be read or written, or is of another kind or version; or its tables are
                not as they were made.
        """
        connection = sqlite3.connect(path, timeout=wait_s, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA trusted_schema = OFF")
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                self._make_if_empty(connection)
                self._require_kind(connection)
                self.require_schema(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def require_schema(self, connection: sqlite3.Connection) -> None:
        """Refuse a file in which a part was added, changed or removed.

        Raises:
            sqlite3.Error: a part differs; the error names it.
        """
        differing = _parts(connection) ^ _expected(self.schema)
        if differing:
            names = ", ".join(sorted({f"{kind} {name}" for kind, name, _ in differing}))
            raise sqlite3.DatabaseError(
                f"somebody changed its tables, triggers or views ({names}); restore it, or move it away so "
                f"that a new one is made"
            )

    def _make_if_empty(self, connection: sqlite3.Connection) -> None:
        if _mark(connection, "application_id") or _parts(connection):
            return
        for statement in self.schema.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {self.application_id}")
        connection.execute(f"PRAGMA user_version = {self.version}")

    def _require_kind(self, connection: sqlite3.Connection) -> None:
        if _mark(connection, "application_id") != self.application_id:
            raise sqlite3.DatabaseError(f"it is a SQLite file, but not a {self.what}")
        found = _mark(connection, "user_version")
        if found != self.version:
            raise sqlite3.DatabaseError(f"it has version {found}, but this Headerware reads {self.version}")


def _mark(connection: sqlite3.Connection, name: str) -> int:
    mark: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return mark


@cache
def _expected(schema: str) -> _Parts:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.executescript(schema)
        return _parts(connection)


def _parts(connection: sqlite3.Connection) -> _Parts:
    return frozenset(connection.execute(_PARTS))
