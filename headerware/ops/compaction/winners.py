"""Store the winner of each key of a topic that is compacted, in a SQLite file.

The store learns records and complete messages in the order of their offsets, and decides which of them win.
Its contents depend only on the topic, and winners are only replaced by better ones. The store may therefore
be ahead of the target, behind it, or lost: learning the topic again gives the same contents. For the same
reason it needs no transaction with Kafka. Slices of incomplete messages are not stored; they are read again,
from the first such slice on.

The memory is bounded for any number of keys: 64 MB of pages, and one batch.
"""

from __future__ import annotations

import fcntl
import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headerware.core.closing import Closing
from headerware.core.errors import ConfigError, HeaderwareError
from headerware.core.sqlite_file import FileKind
from headerware.ops.compaction.rules import Rank, Verdict, lost_because

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from io import TextIOWrapper

    from headerware.ops.compaction.rules import Judged, Unresolved


_SCHEMA: Final = """
CREATE TABLE purpose (digest TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE position (
    partition INTEGER PRIMARY KEY, learned INTEGER NOT NULL, resume INTEGER NOT NULL, done INTEGER NOT NULL
);
CREATE TABLE winner (
    digest BLOB PRIMARY KEY, version INTEGER NOT NULL, offset INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE unresolved (
    partition INTEGER NOT NULL, offset INTEGER NOT NULL, why TEXT NOT NULL, PRIMARY KEY (partition, offset)
) WITHOUT ROWID;
CREATE TABLE sync (
    partition INTEGER NOT NULL, source INTEGER NOT NULL, target INTEGER NOT NULL,
    PRIMARY KEY (partition, source)
) WITHOUT ROWID;
"""
_FILE: Final = FileKind("store of a compaction", 0x68776370, _SCHEMA)  # "hwcp"
_WAIT_S: Final = 5.0
_TABLES: Final = ("position", "winner", "unresolved", "sync")
_CACHE_KIB: Final = 65_536
_SYNC_EVERY: Final = 1_000
"""A position in both topics is stored about every so many offsets of the source."""
_UNRESOLVED: Final = "SELECT offset, why FROM unresolved WHERE partition = ? AND offset BETWEEN ? AND ?"
_BEST: Final = "SELECT version, offset FROM winner WHERE digest = ?"


class Sync(NamedTuple):
    """A position in both topics: the target's records from ``target`` on are copies from ``source`` on."""

    source: int
    target: int


class Winners(Closing):
    """The winners of a topic's keys; for one caller at a time.

    Args:
        path: the file, which is created if it does not exist; None uses a temporary file.
        purpose: a digest that identifies the copy; the file of another copy is refused.

    Raises:
        ConfigError: the file cannot be used, another process uses it, or it belongs to another copy.
    """

    def __init__(self, path: str | None, purpose: str) -> None:
        self._path: Final = path
        self._lock: Final = None if path is None else _locked(Path(path))
        try:
            with self._errors():
                self._connection: Final = _opened(path)
                self._require_purpose(purpose)
                found = self._connection.execute("SELECT partition, learned, resume, done FROM position")
                positions = found.fetchall()
                synced = self._connection.execute("SELECT partition, max(source) FROM sync GROUP BY 1")
                self._synced: Final = dict(synced.fetchall())
        except BaseException:
            self.close()
            raise
        self.learned: Final[dict[int, int]] = {partition: learned for partition, learned, _, _ in positions}
        """The offset up to which each partition was learned."""
        self.resume: Final[dict[int, int]] = {partition: resume for partition, _, resume, _ in positions}
        """The offset to learn each partition from; before ``learned`` if slices are pending."""
        self.done: Final[dict[int, int]] = {partition: done for partition, _, _, done in positions}
        """The offset up to which each partition was written, as far as it was stored here."""

    def learn(self, batch: Iterable[Judged]) -> None:
        """Learn records and messages, in the order of their offsets; skip those that were learned before."""
        best: dict[bytes, Rank] = {}
        learned = dict(self.learned)
        with self._transaction():
            for each in batch:
                if each.offset < learned.get(each.partition, 0):
                    continue
                learned[each.partition] = each.offset + 1
                if each.digest is None:
                    self._run(
                        "INSERT OR REPLACE INTO unresolved VALUES (?, ?, ?)",
                        *(each.partition, each.offset, each.why),
                    )
                    continue
                rank = Rank(each.version, each.offset)
                best[each.digest] = max(best.get(each.digest, rank), rank)
            self._keep(best)
            self._note(learned=learned)

    def learn_copy(self, batch: Iterable[Judged]) -> None:
        """Learn the target's records; for equal versions, a record of the source wins over them."""
        best: dict[bytes, Rank] = {}
        for each in batch:
            if each.digest is not None and (each.part is None or each.part.index == 0):
                best[each.digest] = max(best.get(each.digest, (rank := Rank(each.version, -1))), rank)
        with self._transaction():
            self._keep(best)

    def learned_to(self, ends: Mapping[int, int], incomplete: Mapping[int, int]) -> None:
        """Store that partitions were learned up to an offset, which may have no record.

        Args:
            ends: the offset, by partition.
            incomplete: the offset of the first slice of an incomplete message, by partition.
        """
        with self._transaction():
            self._note(
                learned=ends, resume={each: min(end, incomplete.get(each, end)) for each, end in ends.items()}
            )

    def verdicts(self, batch: Sequence[Judged]) -> list[Verdict]:
        """Return the decision about each record or message; all of them must have been learned.

        Raises:
            HeaderwareError: a record was judged before, and cannot be judged now.
        """
        with self._errors():
            bounds: dict[int, tuple[int, int]] = {}
            for each in batch:
                first, last = bounds.get(each.partition, (each.offset, each.offset))
                bounds[each.partition] = min(first, each.offset), max(last, each.offset)
            unresolved = {
                partition: dict(self._run(_UNRESOLVED, partition, *found).fetchall())
                for partition, found in bounds.items()
            }
            return [self._verdict(each, unresolved[each.partition].get(each.offset)) for each in batch]

    def written(self, done: Mapping[int, int], resume: Mapping[int, int], syncs: Mapping[int, Sync]) -> None:
        """Store that partitions are written, and forget what is not needed any more.

        Args:
            done: the offset up to which each partition is written.
            resume: the offset up to which each partition is written and has no pending slices.
            syncs: the positions in both topics.
        """
        with self._transaction():
            for partition, offset in done.items():
                self._run("DELETE FROM unresolved WHERE partition = ? AND offset < ?", partition, offset)
            self._note(resume=resume, done=done)
            for partition, (source, target) in syncs.items():
                self._synced[partition] = source
                self._run("INSERT OR REPLACE INTO sync VALUES (?, ?, ?)", partition, source, target)

    def needs_sync(self, partition: int, source: int) -> bool:
        """Return whether to store a position: it is far enough after the last, and the file is permanent."""
        return self._path is not None and source >= self._synced.get(partition, -_SYNC_EVERY) + _SYNC_EVERY

    def clear(self) -> None:
        """Forget everything."""
        with self._transaction():
            for table in _TABLES:
                self._run(f"DELETE FROM {table}")  # noqa: S608 - our own names
        for known in (self.learned, self.resume, self.done, self._synced):
            known.clear()

    def _verdict(self, each: Judged, unresolved: Unresolved | None) -> Verdict:
        """Return the decision about a record or a message; ``unresolved`` is the reason that was learned."""
        if unresolved is not None:
            return Verdict("unresolved", unresolved)
        if each.digest is None:
            raise HeaderwareError(
                f"the record at partition {each.partition}, offset {each.offset} was judged before, and "
                f"cannot be judged now ({each.why}), because a key or the chain has changed; start again "
                f"without the store, so that all records are judged alike"
            )
        rank = Rank(each.version, each.offset)
        best = Rank._make(self._run(_BEST, each.digest).fetchone() or rank)
        if rank < best:
            return Verdict("loses", lost_because(rank.version, best.version))
        self._keep({each.digest: rank})  # the message may have been dropped as incomplete when it was learned
        return Verdict("wins")

    def _keep(self, candidates: Mapping[bytes, Rank]) -> None:
        """Store the candidates that are better than the stored winners of their keys."""
        known = self._run
        better = [
            (digest, *rank)
            for digest, rank in sorted(candidates.items())  # neighbours share a page
            if (best := known(_BEST, digest).fetchone()) is None or rank > best
        ]
        self._connection.executemany("INSERT OR REPLACE INTO winner VALUES (?, ?, ?)", better)

    def _note(self, **positions: Mapping[int, int]) -> None:
        """Store positions; only ``done`` may go back."""
        for name, offsets in positions.items():
            known: dict[int, int] = getattr(self, name)
            for partition, offset in offsets.items():
                known[partition] = offset if name == "done" else max(offset, known.get(partition, 0))
        changed = {partition for offsets in positions.values() for partition in offsets}
        self._connection.executemany(
            "INSERT OR REPLACE INTO position VALUES (?, ?, ?, ?)",
            [
                (each, *(known.get(each, 0) for known in (self.learned, self.resume, self.done)))
                for each in changed
            ],
        )

    def _run(self, statement: str, *values: Any) -> sqlite3.Cursor:
        return self._connection.execute(statement, values)

    def _require_purpose(self, purpose: str) -> None:
        self._run("INSERT INTO purpose SELECT ? WHERE NOT EXISTS (SELECT 1 FROM purpose)", purpose)
        if self._run("SELECT digest FROM purpose").fetchall() != [(purpose,)]:
            raise _another_purpose(self._path)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._errors(), self._connection:
            self._connection.execute("BEGIN")
            yield

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise ConfigError(
                f"{self._path or 'a temporary file'} cannot be used: {error}", path="store"
            ) from error

    def close(self) -> None:
        """Close the file, and release its lock; a second call does nothing."""
        if hasattr(self, "_connection"):
            self._connection.close()
        if self._lock is not None:
            self._lock.close()


def offset_in_target(path: str, purpose: str, partition: int, source: int) -> int | None:
    """Return an offset of the target after which all records are copies from an offset of the source on.

    Return None if the file has no such offset. Another process may use the file.

    Raises:
        ConfigError: the file cannot be read, or belongs to another copy.
    """
    try:
        with closing(sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True)) as connection:
            if connection.execute("SELECT digest FROM purpose").fetchall() != [(purpose,)]:
                raise _another_purpose(path)
            found = connection.execute(
                "SELECT target FROM sync WHERE partition = ? AND source <= ? ORDER BY source DESC LIMIT 1",
                (partition, source),
            ).fetchone()
    except sqlite3.Error as error:
        raise ConfigError(f"{path} cannot be used: {error}", path="store") from error
    return None if found is None else int(found[0])


def _another_purpose(path: str | None) -> ConfigError:
    return ConfigError(
        f"{path} belongs to the copy of other topics, or by another rule; name another file, or remove it",
        path="store",
    )


def _opened(path: str | None) -> sqlite3.Connection:
    connection = _FILE.open(path or "", wait_s=_WAIT_S)
    try:
        # A killed process loses no commit; after a power failure, the last commits are learned again.
        for setting in ("journal_mode = WAL", "synchronous = NORMAL", f"cache_size = -{_CACHE_KIB}"):
            connection.execute(f"PRAGMA {setting}")
    except BaseException:
        connection.close()
        raise
    return connection


def _locked(path: Path) -> TextIOWrapper:
    """Return the open lock file of a store; the operating system releases the lock when the process ends."""
    lock = path.with_name(f"{path.name}.lock")
    try:
        file = lock.open("a")
    except OSError as error:
        raise ConfigError(f"{lock} cannot be opened: {error.strerror}", path="store") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise ConfigError(
            f"another process uses {path}; wait for its end, or stop it first", path="store"
        ) from error
    return file
