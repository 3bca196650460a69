"""The rows of subjects' keys in a SQLite file, so that ten million subjects need little memory.

The last record of a row's key counts. While the topic is read from its beginning, its records are appended to
a temporary table, and sorted by subject when all are read, because this is much faster than to insert each of
them at its place. Meanwhile the former rows are served.

A file that is given by its path is kept: its next process reads on where this one stopped. If nothing was
written to the file for half a day, the topic is read anew: the brokers may have forgotten by now that a key
was removed, and it would stay in the file. The keys in it are sealed as they are in the topic. It also
remembers the number of erasures of each subject, so that a process does not use erased keys again if the
topic goes back to an earlier state.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple

from headerware.core.bounded_cache import BoundedCache
from headerware.core.context import wall_clock_ms
from headerware.core.errors import RegistryError, WireFormatError
from headerware.core.sqlite_file import FileKind
from headerware.keyring.subjects.rows import (
    ERASURE,
    OWN_OFFSET,
    SECRET,
    SUBJECT_KEY,
    ErasureRow,
    Row,
    SecretRow,
    SubjectKeyRow,
    decode_row,
    pseudonym_in,
)
from headerware.topic_table.rows import OtherTopicError, Rows, TableRecord
from headerware.topic_table.table import READ_ANEW_MS

_SCHEMA: Final = (
    "CREATE TABLE state (topic TEXT NOT NULL, position INTEGER NOT NULL, last INTEGER NOT NULL, "
    "digest BLOB NOT NULL);"
    "CREATE TABLE erased (pseudonym BLOB PRIMARY KEY, generation INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE row (subject INTEGER, offset INTEGER, key BLOB NOT NULL, value BLOB, "
    "PRIMARY KEY (subject, offset)) WITHOUT ROWID;"
)
_COMING: Final = "CREATE TEMPORARY TABLE coming (subject INTEGER, offset INTEGER, key BLOB, value BLOB)"
_FILE: Final = FileKind("file of subjects' keys", 0x6877736B, _SCHEMA)  # "hwsk"
_PRAGMAS: Final = (
    "locking_mode = EXCLUSIVE",
    "journal_mode = WAL",
    "synchronous = NORMAL",
    "cache_size = -16384",
    "secure_delete = ON",
)
_WAIT_S: Final = 2.0
_MAX_KEPT: Final = 16_384
"""How many subjects' decoded rows are kept in memory."""
_log: Final = logging.getLogger("headerware.keyring")


class FileInUseError(RegistryError):
    """A file that another process uses."""


class Subject(NamedTuple):
    """What the topic says about a subject."""

    generation: int
    """How many erasures there were; keys of earlier generations are not valid."""
    is_erased: bool
    """Whether the subject was erased, and not readmitted."""
    erasure: ErasureRow | None
    """The last erasure; None if there was none, or the topic lost it."""
    keys: dict[bytes, SubjectKeyRow]
    """The valid keys by their ids; the first one encrypts."""
    others: tuple[bytes, ...]
    """The ids of keys that are not valid, but still have a row."""
    unreadable: str
    """Why the subject's erasure cannot be read, or empty; nothing may be decrypted then."""


class SubjectFile:
    """The SQLite file of one topic; for one table of one process at a time, under the table's lock.

    Args:
        path: the file, or None for a temporary file that nobody else sees.
        topic: the topic; a file of another topic is refused.

    Raises:
        FileInUseError: another process uses the file.
        RegistryError: the file cannot be used.
    """

    def __init__(self, path: str | os.PathLike[str] | None, topic: str) -> None:
        self._shown: Final = "the temporary file of subjects' keys" if path is None else os.fspath(path)
        self.failed: str = ""
        self.epoch: int = 0
        """A number that changes when keys become invalid, or secrets change."""
        self._writing = False
        self.must_read_anew: bool = False
        """Whether the brokers may have forgotten by now that a key in the file was removed."""
        if path is not None:
            self._require_private(Path(path))
            self.must_read_anew = wall_clock_ms() - _written_ms(Path(path)) > READ_ANEW_MS
        try:
            self._db: Final = _FILE.open("" if path is None else os.fspath(path), wait_s=_WAIT_S)
        except sqlite3.Error as error:
            raise self._error(error) from error
        try:
            for pragma in _PRAGMAS:
                self._db.execute(f"PRAGMA {pragma}")
            if not self._db.execute("SELECT count(*) FROM state").fetchone()[0]:
                self._db.execute("INSERT INTO state VALUES (?, -1, -1, x'')", (topic,))
            of_topic, position, last, digest = self._db.execute("SELECT * FROM state").fetchone()
        except sqlite3.Error as error:
            self._db.close()
            raise self._error(error) from error
        if of_topic != topic:
            self._db.close()
            raise RegistryError(
                f"{self._shown} has the keys of topic {of_topic!r}, expected {topic!r}: give each topic a "
                "file of its own"
            )
        self.position: int = position
        self.last: tuple[int, bytes] = (last, digest)
        """The offset of the last record that was read, and its digest."""
        self._begun = False

    def rows(self) -> SubjectRows:
        """Return the rows that were saved, at the first call; at later calls, empty rows."""
        is_first, self._begun = not self._begun, True
        if not is_first:
            self.execute("DROP TABLE IF EXISTS temp.coming")
            self.execute(_COMING)
        return SubjectRows(self, resumes=is_first)

    def moved_to(self, position: int, last: tuple[int, bytes]) -> None:
        """Note, in the open transaction, how far the topic was read, and the last record that was read."""
        self.write("UPDATE state SET position = ?, last = ?, digest = ?", [(position, *last)])
        self.position, self.last = position, last

    def execute(self, statement: str, *given: Any) -> list[Any]:
        """Return the rows of a statement; after an error, the file is not used any more."""
        if self.failed:
            raise RegistryError(self.failed)
        try:
            return self._db.execute(statement, given).fetchall()
        except sqlite3.Error as error:
            raise self._fail(error) from error

    def write(self, statement: str, records: Iterable[tuple[Any, ...]]) -> None:
        """Execute a statement for each of several records, in the open transaction."""
        if self.failed:
            raise RegistryError(self.failed)
        try:
            if not self._writing:
                self._db.execute("BEGIN")
                self._writing = True
            self._db.executemany(statement, records)
        except sqlite3.Error as error:
            raise self._fail(error) from error

    def commit(self) -> None:
        if self._writing:
            self._writing = False
            self.execute("COMMIT")

    def close(self) -> None:
        """Close the file; what was not committed is read again by the next process."""
        self._db.close()

    def _fail(self, error: sqlite3.Error) -> RegistryError:
        # Records that were not written would be missing without a word: an erasure might be one of them.
        failure = self._error(error)
        self.failed = f"{failure}; this process cannot use it any more: restart it"
        return failure

    def _error(self, error: sqlite3.Error) -> RegistryError:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
            return FileInUseError(
                f"{self._shown} is used by another process: give each process a file of its own"
            )
        return RegistryError(f"{self._shown} cannot be used: {error}")

    def _require_private(self, path: Path) -> None:
        """Make the file, readable by its owner only; refuse one that others can write."""
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not os.path.lexists(path):
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            # An existing file is not opened here: to close it would release the locks of this process on it.
            status = path.lstat()
        except OSError as error:
            raise RegistryError(f"{self._shown} cannot be used: {error.strerror or error}") from error
        if not stat.S_ISREG(status.st_mode):
            raise RegistryError(f"{self._shown} cannot be used: expected a regular file")
        if status.st_uid not in {0, os.geteuid()} or status.st_mode & 0o022:
            raise RegistryError(f"{self._shown} can be written by others than this process's user and root")


def _written_ms(path: Path) -> int:
    """Return when a file, or what SQLite keeps beside it, was last written, in ms since the epoch."""
    written_s = path.lstat().st_mtime
    with suppress(FileNotFoundError):
        written_s = max(written_s, Path(f"{path}-wal").lstat().st_mtime)
    return int(written_s * 1000)


class SubjectRows(Rows):
    """The rows of one reading of the topic: those that are served, or those that will replace them."""

    def __init__(self, file: SubjectFile, *, resumes: bool) -> None:
        super().__init__()
        self._file: Final = file
        self._is_serving = resumes
        self._last = file.last if resumes else (-1, b"")
        self._expected: tuple[int, bytes] | None = file.last if resumes and file.last[0] >= 0 else None
        """The record that comes first after a resumption, unless compaction has removed it."""
        if resumes and not file.must_read_anew:
            self.resume_at: int = file.position if self._expected is None else self._expected[0]
        self._arrived: list[tuple[int, int, bytes, bytes | None]] = []
        self._erased: list[tuple[bytes, int]] = []
        self._removed: list[tuple[int, bytes, int]] = []
        self._subjects: Final[BoundedCache[bytes, Subject | None]] = BoundedCache(_MAX_KEPT)
        self._secrets: list[SecretRow] | None = None

    def apply(self, record: TableRecord) -> bool:
        """Take a record, which is written when the table notes its position.

        Raises:
            OtherTopicError: at the position of the last record, the topic has another one.
        """
        offset, key, value = record
        if self._expected is not None:
            expected, self._expected = self._expected, None
            if offset == expected[0] and _digest(record) != expected[1]:
                raise OtherTopicError(f"it has another record at offset {offset} than before")
        if not key:
            return False
        pseudonym = pseudonym_in(key)
        number = _number(pseudonym)
        self._arrived.append((number, offset, key, value))
        if value is None:
            self._removed.append((number, key, offset))
        elif key[0] == ERASURE and pseudonym is not None:
            found = _decoded(offset, key, value)
            if isinstance(found, ErasureRow):
                self._erased.append((pseudonym, found.generation))
        return True

    def moved_to(self, position: int) -> None:
        """Write the records that were applied, and the position after them."""
        file = self._file
        if self._arrived:
            _, offset, key, value = self._arrived[-1]
            self._last = offset, _digest(TableRecord(offset, key, value))
            into = "main.row" if self._is_serving else "temp.coming"
            file.write(f"INSERT OR REPLACE INTO {into} VALUES (?, ?, ?, ?)", self._arrived)  # noqa: S608 - ours
            if self._erased:
                file.write(_REMEMBER, self._erased)
                self._erased.clear()
            if self._is_serving:
                if any(key[0] != SUBJECT_KEY or value is None for _, _, key, value in self._arrived):
                    file.epoch += 1
                self._forget_removed()
                for _, _, key, _ in self._arrived:
                    pseudonym = pseudonym_in(key)
                    if pseudonym is None:
                        self._secrets = None
                    elif self._subjects.get(pseudonym) is not None:
                        self._subjects[pseudonym] = None
            self._arrived.clear()
        if self._is_serving and position > file.position:
            file.moved_to(position, self._last)
        file.commit()

    def begin_serving(self, position: int) -> None:
        """Let these rows replace the file's rows."""
        if self._is_serving:
            return
        file = self._file
        file.write("DELETE FROM row", [()])
        file.write("INSERT INTO row SELECT * FROM temp.coming ORDER BY subject, offset", [()])
        self._forget_removed()
        file.moved_to(position, self._last)
        file.commit()
        file.execute("DROP TABLE temp.coming")
        self._is_serving = True
        file.epoch += 1

    def get(self, key: bytes) -> bytes | None:
        """Return a row's value, or None if there is no such row."""
        return self._latest(pseudonym_in(key)).get(key, (0, None))[1]

    def records(self) -> list[TableRecord]:
        """Return the record of each row, in the order of offsets; of ten million subjects, this is much."""
        found = {key: (offset, value) for offset, key, value in self._select("ORDER BY offset")}
        kept = (
            TableRecord(offset, key, value) for key, (offset, value) in found.items() if value is not None
        )
        return sorted(kept, key=lambda record: record.offset)

    def changes_since(self, earlier: Rows) -> Iterator[tuple[bytes, bytes | None]]:  # noqa: ARG002 - nobody listens to these rows
        """Yield nothing: who uses these rows asks them each time."""
        return iter(())

    def secrets(self, purpose: int) -> list[SecretRow]:
        """Return the secrets of a purpose, in the order in which they were first written."""
        if self._secrets is None or self._file.failed:
            self._secrets = self._read_secrets()
        return [row for row in self._secrets if row.purpose == purpose]

    def subject(self, pseudonym: bytes) -> Subject:
        """Return what the topic says about a subject."""
        found = None if self._file.failed else self._subjects.get(pseudonym)
        if found is None:
            found = self._subjects[pseudonym] = self._read(pseudonym)
        return found

    def _read_secrets(self) -> list[SecretRow]:
        found = []
        for key, (offset, value) in self._latest(None).items():
            row = None if value is None or key[0] != SECRET else _decoded(offset, key, value)
            if isinstance(row, SecretRow):
                found.append(row._replace(since=offset if row.since == OWN_OFFSET else row.since))
        return sorted(found, key=lambda row: row.since)

    def _read(self, pseudonym: bytes) -> Subject:
        remembered = self._file.execute("SELECT generation FROM erased WHERE pseudonym = ?", pseudonym)
        highest = remembered[0][0] if remembered else 0
        erasure: ErasureRow | None = None
        unreadable = ""
        rows: list[SubjectKeyRow] = []
        latest = self._latest(pseudonym)
        for key, (offset, value) in sorted(latest.items(), key=lambda item: item[1][0]):
            if value is None or pseudonym_in(key) != pseudonym:
                continue
            row = _decoded(offset, key, value)
            if isinstance(row, ErasureRow):
                erasure = row
            elif isinstance(row, SubjectKeyRow):
                rows.append(row)
            elif key[0] == ERASURE:
                unreadable = f"the record at offset {offset}, an erasure, cannot be read by this version"
        generation = max(highest, 0 if erasure is None else erasure.generation)
        in_topic = 0 if erasure is None else erasure.generation
        is_erased = in_topic < generation or (erasure is not None and not erasure.readmitted)
        valid = {row.id: row for row in rows if row.generation == generation and not is_erased}
        others = tuple(row.id for row in rows if row.id not in valid)
        return Subject(generation, is_erased, erasure, valid, others, unreadable)

    def _latest(self, pseudonym: bytes | None) -> dict[bytes, tuple[int, bytes | None]]:
        """Return the last record of each row of a subject, or of all rows that are of no subject."""
        found = self._select("WHERE subject = ? ORDER BY offset", _number(pseudonym))
        return {key: (offset, value) for offset, key, value in found}

    def _select(self, where: str, *given: Any) -> list[Any]:
        return self._file.execute(f"SELECT offset, key, value FROM row {where}", *given)  # noqa: S608 - ours

    def _forget_removed(self) -> None:
        """Delete the records of rows that were removed, so that erased keys do not stay in the file."""
        if self._removed:
            self._file.write("DELETE FROM row WHERE subject = ? AND key = ? AND offset < ?", self._removed)
            self._removed.clear()


_REMEMBER: Final = (
    "INSERT INTO erased VALUES (?, ?) ON CONFLICT (pseudonym) DO UPDATE "
    "SET generation = max(generation, excluded.generation)"
)


def _number(pseudonym: bytes | None) -> int:
    """Return the number under which a subject's rows are found; pseudonyms may share one."""
    return 0 if pseudonym is None else int.from_bytes(pseudonym[:8], "big", signed=True)


def _digest(record: TableRecord) -> bytes:
    key = record.key or b""
    return sha256(b"%d %d " % (len(key), record.value is None) + key + (record.value or b"")).digest()


def _decoded(offset: int, key: bytes, value: bytes) -> Row | None:
    try:
        return decode_row(key, value)
    except WireFormatError as error:
        _log.warning("a record at offset %d of the topic of subjects' keys is no row: %s", offset, error)
        return None
