"""A registry in a SQLite file: for services on one machine that change it as they run."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headerware.core.atomic_files import created_file
from headerware.core.errors import RegistryError
from headerware.core.sqlite_schema import foreign_parts
from headerware.registry.registry import Problem, problems, with_built_in
from headerware.registry.stores.store import Store, no_such_file, own_part, require_sound
from headerware.registry.values import Allocate, Block, Change, Entry, Register, Retire, from_plain, to_plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headerware.registry.registry import Registry

SCHEMA_VERSION: Final = 1
_APPLICATION_ID: Final = 0x68776964  # "hwid"
_MARKS: Final = {"application_id": _APPLICATION_ID, "user_version": SCHEMA_VERSION}
_Value = TypeVar("_Value", Block, Entry)
_WAIT_S: Final = 30.0
"""How long a writer waits for others; each holds the file for milliseconds."""

_SCHEMA: Final = f"""
BEGIN IMMEDIATE;
CREATE TABLE registry (registrar TEXT NOT NULL);
CREATE TABLE block (
    network TEXT NOT NULL PRIMARY KEY, owner TEXT NOT NULL, description TEXT NOT NULL, since TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE entry (
    id TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, encoding TEXT NOT NULL,
    description TEXT NOT NULL, since TEXT NOT NULL, retired TEXT, "foreign" INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TRIGGER blocks_stay BEFORE DELETE ON block
    BEGIN SELECT RAISE(ABORT, 'blocks are never removed'); END;
CREATE TRIGGER entries_stay BEFORE DELETE ON entry
    BEGIN SELECT RAISE(ABORT, 'ids are retired, never removed'); END;
CREATE TRIGGER entries_keep_their_meaning
    BEFORE UPDATE OF id, name, owner, encoding, since, "foreign" ON entry
    BEGIN SELECT RAISE(ABORT, 'an id never changes its meaning'); END;
CREATE TRIGGER entries_stay_retired BEFORE UPDATE OF retired ON entry WHEN OLD.retired IS NOT NULL
    BEGIN SELECT RAISE(ABORT, 'ids are retired for good'); END;
PRAGMA application_id = {_APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
COMMIT;
"""
"""The triggers keep other tools from breaking the registry's promise."""


class SqliteStore(Store):
    """A registry in a SQLite file.

    A change takes the file's write lock before it reads, so that nothing changes between its check and its
    write. Safe for use by several threads and processes; a forked child opens its own.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        self._lock = RLock()
        with _sqlite_errors(self._path):
            self._connection = _connected(self._path)
            try:
                self._connection.execute("PRAGMA trusted_schema = OFF")  # the file may come from anybody
                self._check_kind()
            except BaseException:
                self._connection.close()
                raise

    @classmethod
    def create(cls, path: str | os.PathLike[str], registry: Registry) -> SqliteStore:
        own = own_part(registry)
        with _sqlite_errors(os.fspath(path)), created_file(Path(path)) as temporary:
            _write(temporary, own)
        return cls(path)

    def load(self) -> Registry:
        registry = self._read()
        require_sound(problems(registry))
        return registry

    def problems(self) -> list[Problem]:
        return problems(self._read())

    def apply(self, change: Change) -> Registry:
        with self._transaction("BEGIN IMMEDIATE") as connection:
            before = self._registry(connection)
            require_sound(problems(before))
            after = before.apply(change)
            _write_change(connection, change)
            if self._registry(connection) != after:
                raise RegistryError(f"{self._path}: the file did not take the change; it was tampered with")
        return after

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _read(self) -> Registry:
        with self._transaction("BEGIN") as connection:
            return self._registry(connection)

    def _registry(self, connection: sqlite3.Connection) -> Registry:
        try:
            return _registry(connection)
        except RegistryError as error:
            raise RegistryError(f"{self._path}: {error}") from None

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        """Yield the connection in a transaction; commit it, or roll it back on an error."""
        with self._lock, _sqlite_errors(self._path):
            self._connection.execute(begin)
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # some failures have ended it already
                    self._connection.execute("ROLLBACK")
                raise

    def _check_kind(self) -> None:
        found = [self._connection.execute(f"PRAGMA {name}").fetchone()[0] for name in _MARKS]
        if found[0] != _MARKS["application_id"]:
            raise RegistryError(f"{self._path}: a SQLite file, but no registry of header ids")
        if found[1] != SCHEMA_VERSION:
            raise RegistryError(
                f"{self._path}: schema version {found[1]}, but this Headerware reads {SCHEMA_VERSION}"
            )
        if parts := foreign_parts(self._connection, _SCHEMA):
            raise RegistryError(
                f"{self._path}: it has other tables, triggers or views than a registry ({', '.join(parts)}); "
                f"somebody changed it: restore it, or export it with other tools and create it anew"
            )


def _connected(path: str) -> sqlite3.Connection:
    uri = f"{Path(path).absolute().as_uri()}?mode=rw"  # rw does not create a missing file
    return sqlite3.connect(uri, uri=True, timeout=_WAIT_S, isolation_level=None, check_same_thread=False)


def _write(path: Path, own: Registry) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(_SCHEMA)
        connection.execute("BEGIN")
        connection.execute("INSERT INTO registry VALUES (?)", (own.registrar,))
        for block in own.blocks:
            _insert(connection, block)
        for entry in own.entries:
            _insert(connection, entry)
        connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode = WAL")  # readers go on while others write; the file keeps it


def _write_change(connection: sqlite3.Connection, change: Change) -> None:
    match change:
        case Allocate(block):
            _insert(connection, block)
        case Register(entry):
            _insert(connection, entry)
        case Retire(header_id, retired):
            connection.execute("UPDATE entry SET retired = ? WHERE id = ?", (retired, str(header_id)))


def _insert(connection: sqlite3.Connection, value: Block | Entry) -> None:
    table = "entry" if isinstance(value, Entry) else "block"
    values = to_plain(value)
    columns = ", ".join(f'"{column}"' for column in values)
    marks = ", ".join("?" * len(values))
    connection.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", tuple(values.values()))  # noqa: S608


def _registry(connection: sqlite3.Connection) -> Registry:
    registrar = connection.execute("SELECT registrar FROM registry").fetchone()
    if registrar is None or not isinstance(registrar[0], str):
        raise RegistryError("the file does not say who its registrar is")
    blocks, entries = _read(connection, "block", Block), _read(connection, "entry", Entry)
    return with_built_in(blocks, entries, registrar=registrar[0])


def _read(connection: sqlite3.Connection, table: str, kind: type[_Value]) -> list[_Value]:
    try:
        return [from_plain(row, kind) for row in _rows(connection, table)]
    except RegistryError as error:
        raise RegistryError(f"table {table}: {error}") from None


def _rows(connection: sqlite3.Connection, table: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table as plain values: nulls are left out, and 0 and 1 become booleans."""
    cursor = connection.execute(f"SELECT * FROM {table}")  # noqa: S608 - one of our two tables
    columns = [column[0] for column in cursor.description]
    for row in cursor:
        values = {column: value for column, value in zip(columns, row, strict=True) if value is not None}
        yield {**values, "foreign": bool(values["foreign"])} if "foreign" in values else values


@contextmanager
def _sqlite_errors(path: str) -> Iterator[None]:
    try:
        yield
    except FileExistsError:
        raise RegistryError(f"{path}: the file exists, and is not overwritten") from None
    except (sqlite3.Error, OSError) as error:
        if not Path(path).exists():
            raise no_such_file(path) from error
        raise RegistryError(f"{path}: {error}") from error
