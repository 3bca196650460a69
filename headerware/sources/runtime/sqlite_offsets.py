"""Offsets in a SQLite file, for a source on one machine with ``at_least_once``."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

from headerware.core.errors import SourceError
from headerware.core.options import PATH
from headerware.core.sqlite_file import FileKind
from headerware.sources.offsets import OffsetEntry, OffsetKey
from headerware.sources.runtime.stores import OffsetStore, OtherWriterError, Sign, of_objects, signs_in

if TYPE_CHECKING:
    from io import TextIOWrapper

_SCHEMA: Final = (
    "CREATE TABLE offset (source TEXT NOT NULL, key BLOB NOT NULL, entry BLOB NOT NULL, "
    "PRIMARY KEY (source, key)) WITHOUT ROWID;"
)
_FILE: Final = FileKind("file of offsets", 0x6877736F, _SCHEMA)  # "hwso"
_WAIT_S: Final = 30.0


class SqliteOffsets(OffsetStore, frozen=True, kw_only=True):
    """Store offsets in a SQLite file.

    Args:
        path: the file; it is created if it does not exist.
    """

    type: ClassVar[str] = "sqlite"

    path: Annotated[str, PATH]

    def open(
        self,
        kafka: Mapping[str, Any],  # noqa: ARG002 - this store does not use Kafka
        *,
        source: str,
        writers: Sequence[str] = (),
        settled: bool = False,  # noqa: ARG002 - this store has no open transactions
    ) -> _Sqlite:
        """Open the file; each writer locks its own lock file until it is closed or killed."""
        return _Sqlite(Path(self.path), source, writers)


class _Sqlite:
    """An open file. Threads may share it; a forked process must open the file again."""

    def __init__(self, path: Path, source: str, writers: Sequence[str]) -> None:
        self._path: Final = path
        self._source: Final = source
        self._lock = Lock()
        with ExitStack() as locked:
            for writer in writers:
                locked.enter_context(_locked(path, writer))
            with self._errors():
                self._connection = _FILE.open(path, wait_s=_WAIT_S)
            self._locked: Final = locked.pop_all()

    def get(self, key: OffsetKey) -> OffsetEntry | None:
        """Return the entry of a key, or None."""
        with self._errors(), self._lock:
            found = self._connection.execute(
                "SELECT entry FROM offset WHERE source = ? AND key = ?", (self._source, key.encoded)
            ).fetchone()
        return None if found is None else OffsetEntry.from_bytes(found[0])

    def put(
        self,
        entries: Mapping[OffsetKey, OffsetEntry | None],
        writer: str | None = None,  # noqa: ARG002 - the locks are held
    ) -> None:
        """Store entries in one transaction of SQLite; None removes an entry."""
        kept = [(self._source, key.encoded, entry.to_bytes()) for key, entry in entries.items() if entry]
        gone = [(self._source, key.encoded) for key, entry in entries.items() if entry is None]
        with self._errors(), self._lock, self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany("INSERT OR REPLACE INTO offset VALUES (?, ?, ?)", kept)
            self._connection.executemany("DELETE FROM offset WHERE source = ? AND key = ?", gone)

    def items(self) -> list[tuple[OffsetKey, OffsetEntry]]:
        """Return the entries of all objects of the source."""
        return of_objects(self._stored())

    def signs(self) -> list[Sign]:
        """Return when each task was at work last."""
        return signs_in(self._stored())

    def _stored(self) -> list[tuple[bytes, bytes]]:
        with self._errors(), self._lock:
            return self._connection.execute(
                "SELECT key, entry FROM offset WHERE source = ? ORDER BY key", (self._source,)
            ).fetchall()

    def close(self) -> None:
        """Close the file, and release the locks; a second call does nothing."""
        with self._lock:
            self._connection.close()
            self._locked.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise SourceError(f"the offsets in {self._path} cannot be used: {error}") from error


def _locked(path: Path, writer: str) -> TextIOWrapper:
    """Return the open lock file of a task; the operating system releases the lock when the process ends."""
    lock_path = path.with_name(f"{path.name}.{writer}.lock")
    try:
        file = lock_path.open("a")
    except OSError as error:
        raise SourceError(f"{lock_path} cannot be opened: {error.strerror}") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise OtherWriterError(
            writer,
            f"another process (this is {os.getpid()}) writes offsets as {writer!r} to {path}; stop it, or "
            "give this source another name",
        ) from error
    return file
