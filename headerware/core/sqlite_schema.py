"""Check that a SQLite file has the tables that we made, and nothing else.

A trigger, a view or another constraint in a file that others can write to changes what our statements do: it
can swallow rows, or run for ever.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import cache
from typing import Final

_Parts = frozenset[tuple[str, str, str | None]]
_PARTS: Final = """
SELECT type, name, sql FROM sqlite_schema WHERE type <> 'table' OR name NOT LIKE 'sqlite!_%' ESCAPE '!'
"""
"""SQLite's own tables, such as those of ANALYZE, say nothing about ours."""


def foreign_parts(connection: sqlite3.Connection, schema: str) -> list[str]:
    """Return what differs between a file and a schema (more, other or missing parts), as ``type name``."""
    found = _parts(connection)
    return sorted({f"{kind} {name}" for kind, name, _ in found ^ _expected(schema)})


@cache
def _expected(schema: str) -> _Parts:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.executescript(schema)
        return _parts(connection)


def _parts(connection: sqlite3.Connection) -> _Parts:
    return frozenset(connection.execute(_PARTS))
