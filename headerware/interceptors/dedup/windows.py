"""Remember identities with the position at which each was first seen: in memory, or in a SQLite file.

The same identity at the same position (topic, partition and offset) is a record read again, as after a seek
or a restart; at any other position it is a copy. A record without an offset is never a record read again.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections import OrderedDict
from hashlib import blake2b, sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headerware.core.dead_letter import GivenUp
from headerware.core.errors import ConfigError
from headerware.core.sqlite_file import FileKind
from headerware.interceptors.dedup.identity import MARK_AT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headerware.core.record import Record

MAX_PRODUCERS: Final = 10_000

_Generations = list[dict[bytes, int]]
"""Two dicts from marks to positions: the recent ones, and the earlier ones."""


class MemoryWindows:
    """Remember identities in memory: a bounded number for each source, and in total.

    A source is a producer, or the scope of digests. Each source has a window of its own, so that no source
    pushes out another's identities. If there are too many identities in total, the window of the source that
    was silent for longest is dropped. A copy of a record that has left its window passes. Not safe for use by
    several threads at once.

    A window holds at least ``window`` identities, and at most twice as many.
    """

    __slots__ = ("_generations", "_held", "_latest", "_max_identities", "_sources", "_window", "given_up")

    def __init__(self, window: int, max_identities: int) -> None:
        self._window = window
        self._max_identities = max_identities
        self._sources: OrderedDict[bytes, _Generations] = OrderedDict()
        self._held = 0
        self._latest = b""
        self.given_up: Final = GivenUp(_position_hash)
        """The records that the application gave up; each may come back once, from a dead-letter topic."""
        self._generations: _Generations = [{}, {}]

    def __len__(self) -> int:
        """Return the number of remembered identities."""
        return self._held

    def is_duplicate(self, identity: bytes, record: Record) -> bool:
        """Remember a record, or return True if its identity was seen at another position."""
        source = identity[:MARK_AT]
        recent, earlier = self._generations if source == self._latest else self._switch_to(source)
        mark = identity[MARK_AT:]
        offset = record.offset
        # A position is kept as its hash: if two positions have one hash, a copy passes; no record is lost.
        position = _position_hash(record)
        seen = recent.get(mark)
        if seen is None:
            seen = earlier.get(mark)
            if seen is None:
                recent[mark] = position
                self._held += 1
                if len(recent) >= self._window or self._held > self._max_identities:
                    self._make_room()
                return False
        if seen != position and seen in self.given_up:
            self.given_up.discard(seen)
            recent[mark] = position
            self._held += mark in earlier
            return False
        return seen != position or offset is None

    def _switch_to(self, source: bytes) -> _Generations:
        sources = self._sources
        generations = sources.get(source)
        if generations is None:
            generations = sources[source] = [{}, {}]
            if len(sources) > MAX_PRODUCERS:
                self._forget_oldest()
        else:
            sources.move_to_end(source)
        self._latest, self._generations = source, generations
        return generations

    def _make_room(self) -> None:
        # Generations rather than one queue: dropping the oldest items of a dict one by one takes ever longer.
        recent, earlier = self._generations
        if len(recent) >= self._window:
            self._held -= len(earlier)
            self._generations[:] = {}, recent
        while self._held > self._max_identities and len(self._sources) > 1:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        _, forgotten = self._sources.popitem(last=False)
        self._held -= sum(map(len, forgotten))


def _position_hash(record: Record) -> int:
    return hash((record.topic, record.partition, record.offset))


_log: Final = logging.getLogger("headerware.interceptors.dedup")

_WAIT_S: Final = 5.0
"""The time to wait for other writers; each holds the file for milliseconds."""
_BUSY_TIMEOUT_S: Final = 0.02
"""The time that SQLite waits by itself: it tries ever less often, and would starve among busy writers."""
_PAUSE_MS: Final = 1_000
"""The time for which a failed store is not asked again, so that not every record waits for it."""
_PRUNE_EVERY: Final = 64
_POSITION_BYTES: Final = 8
_KEY_BYTES: Final = 16

_SCHEMA: Final = """
CREATE TABLE seen (
    number INTEGER PRIMARY KEY, identity BLOB NOT NULL UNIQUE, place BLOB NOT NULL, seen_ms INTEGER NOT NULL
);
"""
_FILE: Final = FileKind("store of identities", 0x68776474, _SCHEMA, version=1)  # "hwdt"
_REMEMBER: Final = "INSERT OR IGNORE INTO seen (identity, place, seen_ms) VALUES (?, ?, ?)"
_REPLACE: Final = "UPDATE seen SET place = ? WHERE identity = ?"
_RECALL: Final = """
SELECT CASE WHEN typeof(place) = 'blob' AND length(place) = ? THEN place END FROM seen WHERE identity = ?
"""
# Only the oldest rows are ever deleted, so the newest number bounds the number of rows. If clocks disagree,
# it is too high, and a few more identities are forgotten.
_PRUNE: Final = """
DELETE FROM seen WHERE number IN (SELECT number FROM seen ORDER BY number LIMIT ?)
AND (seen_ms < ? OR number <= (SELECT max(number) FROM seen) - ?)
"""


class SqliteWindow:
    """Remember identities in a SQLite file, which the processes of a machine share and a restart keeps.

    A record is remembered and committed before it is delivered. A process that is killed in between reads the
    record again at the same position, so the record is not a copy, and no kill loses a record. While the file
    cannot be read or written, records are delivered, and the failures are counted. Not safe for use by
    several threads at once, nor across a fork.

    Each consumer ``group`` has identities of its own, but ``max_identities`` counts the identities of all
    groups together.
    """

    __slots__ = (
        "_connection",
        "_group",
        "_max_identities",
        "_now_ms",
        "_path",
        "_resume_ms",
        "_retain_ms",
        "_schema_version",
        "_unpruned",
        "_warned",
        "failures",
        "given_up",
    )

    def __init__(
        self, path: str, *, group: str, retain_ms: int, max_identities: int, now_ms: Callable[[], int]
    ) -> None:
        self._path = path
        self._group = sha256(group.encode()).digest()
        self._retain_ms = retain_ms
        self._max_identities = max_identities
        self._now_ms = now_ms
        self._unpruned = self._resume_ms = 0
        self._warned = False
        self.failures: int = 0
        self._connection = _open(path)
        self._schema_version = -1
        self.given_up: Final = GivenUp(_position_digest)
        """As in :class:`MemoryWindows`; the file does not have it, so a restart loses it."""

    def is_duplicate(self, identity: bytes, record: Record) -> bool:
        """Remember a record, or return True if its identity was seen at another position."""
        return self.are_duplicates([(identity, record)])[0]

    def are_duplicates(self, wanted: Sequence[tuple[bytes, Record]]) -> list[bool]:
        """Remember several records, in order and in one transaction; return a result for each."""
        now = self._now_ms()
        if not wanted or now < self._resume_ms <= now + _PAUSE_MS:
            return [False] * len(wanted)
        try:
            return self._recall(wanted, now)
        except sqlite3.Error as error:
            self._failed(error, now)
            return [False] * len(wanted)

    def close(self) -> None:
        """Close the file; calling it again does nothing."""
        self._connection.close()

    def _recall(self, wanted: Sequence[tuple[bytes, Record]], now: int) -> list[bool]:
        connection, group = self._connection, self._group
        with connection:
            _begin(connection)
            self._require_own_schema()
            found = []
            for identity, record in wanted:
                key = sha256(group + identity).digest()[:_KEY_BYTES]
                position = _position_digest(record)
                if connection.execute(_REMEMBER, (key, position, now)).rowcount:
                    found.append(False)
                    self._unpruned += 1
                else:
                    [before] = connection.execute(_RECALL, (_POSITION_BYTES, key)).fetchone() or [None]
                    if before is None:  # Headerware did not write this row; no record is dropped for it
                        raise sqlite3.DatabaseError("found rows that Headerware did not write")
                    if before != position and before in self.given_up:
                        self.given_up.discard(before)
                        connection.execute(_REPLACE, (position, key))
                        before = position
                    found.append(before != position or record.offset is None)
            self._prune(now)
        return found

    def _require_own_schema(self) -> None:
        """Refuse tables that were changed by others since the last check."""
        (version,) = self._connection.execute("PRAGMA schema_version").fetchone()
        if version != self._schema_version:
            _FILE.require_schema(self._connection)
            self._schema_version = version

    def _prune(self, now: int) -> None:
        """Forget the oldest identities, at most twice as many as have come, so that no call takes long."""
        if self._unpruned >= _PRUNE_EVERY:
            bounds = (2 * self._unpruned, now - self._retain_ms, self._max_identities)
            self._connection.execute(_PRUNE, bounds)
            self._unpruned = 0

    def _failed(self, error: sqlite3.Error, now: int) -> None:
        self.failures += 1
        self._resume_ms = now + _PAUSE_MS
        if not self._warned:
            self._warned = True
            _log.warning(
                "dedup store %s: %s; until the store works again, copies are delivered, too (further "
                "failures are only counted)",
                self._path,
                error,
            )


def _position_digest(record: Record) -> bytes:
    where = f"{record.partition}@{record.offset} {record.topic}".encode()
    return blake2b(where, digest_size=_POSITION_BYTES).digest()


def _open(path: str) -> sqlite3.Connection:
    deadline = time.monotonic() + _WAIT_S
    while True:
        try:
            return _connect(path)
        except sqlite3.Error as error:
            # SQLite does not wait if several processes make the same file.
            if _is_busy(error) and time.monotonic() < deadline:
                time.sleep(0.01)
                continue
            folder = Path(path).absolute().parent
            reason = str(error) if folder.is_dir() else f"there is no folder {str(folder)!r}; make it first"
            raise ConfigError(f"cannot open {path!r}: {reason}", path="store") from error


def _begin(connection: sqlite3.Connection) -> None:
    """Take the write lock, so that rows do not change between reading and writing."""
    deadline = time.monotonic() + _WAIT_S
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if not _is_busy(error) or time.monotonic() >= deadline:
                raise
        else:
            return


def _is_busy(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY


def _connect(path: str) -> sqlite3.Connection:
    connection = _FILE.open(path, wait_s=_BUSY_TIMEOUT_S)
    try:
        # It is set already: only writing shows whether the file can be written.
        connection.execute(f"PRAGMA user_version = {_FILE.version}")
        connection.execute("PRAGMA journal_mode = WAL")
        # A kill loses nothing that was committed; after a power cut copies may pass.
        connection.execute("PRAGMA synchronous = NORMAL")
        _require_undamaged(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _require_undamaged(connection: sqlite3.Connection, path: str) -> None:
    found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise ConfigError(f"{path!r} is damaged: {found}; move it away, and a new one is made", path="store")
