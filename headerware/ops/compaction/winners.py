"""What is known of a topic that is compacted: the winner of each key, in a SQLite file.

It is learned from records and complete messages in the order of their offsets, and says of each what becomes
of it. What was learned only grows, and depends on the topic alone. So it may be ahead of what was written, or
late, and may be lost: whoever learns the topic again knows the same. Slices of messages that are not complete
are not noted: they are read again, from the first of them on.

Its memory is bounded, however many keys there are: 64 MB of pages, and what one batch has.

So the store needs no transaction with Kafka: a record that wins by all that is known then wins or loses in
the same way for whoever learns the topic again.
"""

from __future__ import annotations

import fcntl
import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

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
"""So many offsets of the source lie between two that are noted with their place in the target."""
_UNRESOLVED: Final = "SELECT offset, why FROM unresolved WHERE partition = ? AND offset BETWEEN ? AND ?"
_BEST: Final = "SELECT version, offset FROM winner WHERE digest = ?"


class Sync(NamedTuple):
    """A position in both topics: what the target has from ``target`` on comes from ``source`` on."""

    source: int
    target: int


class Winners:
    """The winners of a topic's keys; for one caller at a time.

    Args:
        path: the file, which is made if it is not there; None keeps all in a temporary one.
        purpose: a digest of what it is for; a file that is for something else is refused.

    Raises:
        ConfigError: the file cannot be used, is another process's, or is for something else.
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
        """Up to which offset each partition is known."""
        self.resume: Final[dict[int, int]] = {partition: resume for partition, _, resume, _ in positions}
        """From which offset on each partition is read to learn more: slices may stand before ``learned``."""
        self.done: Final[dict[int, int]] = {partition: done for partition, _, _, done in positions}
        """Up to which offset each partition was written, as far as was noted here."""

    def learn(self, batch: Iterable[Judged]) -> None:
        """Learn records and messages, in the order of their offsets; what is known changes nothing."""
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
        """Learn what stands in the target: it is older than all that the source has of the same version."""
        best: dict[bytes, Rank] = {}
        for each in batch:
            if each.digest is not None and (each.part is None or each.part.index == 0):
                best[each.digest] = max(best.get(each.digest, (rank := Rank(each.version, -1))), rank)
        with self._transaction():
            self._keep(best)

    def learned_to(self, ends: Mapping[int, int], incomplete: Mapping[int, int]) -> None:
        """Note that partitions are known up to somewhere at least, though no record may stand there.

        Args:
            ends: up to where.
            incomplete: where the first slice of a message stands that is not complete.
        """
        with self._transaction():
            self._note(
                learned=ends, resume={each: min(end, incomplete.get(each, end)) for each, end in ends.items()}
            )

    def verdicts(self, batch: Sequence[Judged]) -> list[Verdict]:
        """Return what becomes of each record or message, all of which were learned.

        Raises:
            HeaderwareError: one was judged before, and cannot be judged now.
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
        """Forget what is not asked for any more once partitions are written.

        Args:
            done: up to which offset.
            resume: up to which offset no slices wait either.
            syncs: positions in both topics.
        """
        with self._transaction():
            for partition, offset in done.items():
                self._run("DELETE FROM unresolved WHERE partition = ? AND offset < ?", partition, offset)
            self._note(resume=resume, done=done)
            for partition, (source, target) in syncs.items():
                self._synced[partition] = source
                self._run("INSERT OR REPLACE INTO sync VALUES (?, ?, ?)", partition, source, target)

    def needs_sync(self, partition: int, source: int) -> bool:
        """Return whether a position is to be noted: it is far enough after the last, and the file stays."""
        return self._path is not None and source >= self._synced.get(partition, -_SYNC_EVERY) + _SYNC_EVERY

    def clear(self) -> None:
        """Forget everything."""
        with self._transaction():
            for table in _TABLES:
                self._run(f"DELETE FROM {table}")  # noqa: S608 - our own names
        for known in (self.learned, self.resume, self.done, self._synced):
            known.clear()

    def _verdict(self, each: Judged, unresolved: Unresolved | None) -> Verdict:
        """Return what becomes of a record or a message; ``unresolved`` is what was learned of it."""
        if unresolved is not None:
            return Verdict("unresolved", unresolved)
        if each.digest is None:
            raise HeaderwareError(
                f"the record at partition {each.partition}, offset {each.offset} was judged before, and "
                f"cannot be judged now ({each.why}); a key or the chain has changed. Start again without "
                f"the store, so that all is judged alike"
            )
        rank = Rank(each.version, each.offset)
        best = Rank._make(self._run(_BEST, each.digest).fetchone() or rank)
        if rank < best:
            return Verdict("loses", lost_because(rank.version, best.version))
        self._keep({each.digest: rank})  # who learned it may have had no room for all slices of a message
        return Verdict("wins")

    def _keep(self, candidates: Mapping[bytes, Rank]) -> None:
        """Keep the candidates that are better than what is known of their keys."""
        known = self._run
        better = [
            (digest, *rank)
            for digest, rank in sorted(candidates.items())  # neighbours share a page
            if (best := known(_BEST, digest).fetchone()) is None or rank > best
        ]
        self._connection.executemany("INSERT OR REPLACE INTO winner VALUES (?, ?, ?)", better)

    def _note(self, **positions: Mapping[int, int]) -> None:
        """Note positions, none of which goes back but ``done``."""
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
        """Close the file, and let others use it; a second call does nothing."""
        if hasattr(self, "_connection"):
            self._connection.close()
        if self._lock is not None:
            self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def offset_in_target(path: str, purpose: str, partition: int, source: int) -> int | None:
    """Return from which offset of the target on all comes from an offset of the source on; None if unknown.

    The file may be in use by another process.

    Raises:
        ConfigError: the file cannot be read, or is for something else: other topics, or another rule.
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
        f"{path} is of other topics, or of another rule; name another file, or remove it", path="store"
    )


def _opened(path: str | None) -> sqlite3.Connection:
    connection = _FILE.open(path or "", wait_s=_WAIT_S)
    try:
        # A kill loses nothing that was committed; after a power cut the last is learned again.
        for setting in ("journal_mode = WAL", "synchronous = NORMAL", f"cache_size = -{_CACHE_KIB}"):
            connection.execute(f"PRAGMA {setting}")
    except BaseException:
        connection.close()
        raise
    return connection


def _locked(path: Path) -> TextIOWrapper:
    """Return the open lock file of a store; the operating system lets it go when the process ends."""
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
            f"another process works with {path}; let it, or stop it first", path="store"
        ) from error
    return file
