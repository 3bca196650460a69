"""What is known of a topic that is compacted: the winner of each key, in a SQLite file.

It is learned from the records, in the order of their offsets, and says of each record what becomes of it.
If a rule judges records alone, no keys are kept, but only the slices of messages that are not whole.
What was learned only grows, and depends on the records alone. So it may be ahead of what was written, or
behind it, and may be lost: whoever learns the topic again knows the same.

Its memory is bounded, however many keys there are: 64 MB of pages, and what one batch has.
"""

from __future__ import annotations

import fcntl
import sqlite3
from array import array
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Self

from headerware.core.errors import ConfigError, HeaderwareError
from headerware.core.sqlite_file import FileKind
from headerware.ops.compaction.rules import Judged, Lost, Rank, Untouched, Why, lost_because

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from io import TextIOWrapper


_SCHEMA: Final = """
CREATE TABLE purpose (digest TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE place (partition INTEGER PRIMARY KEY, learned INTEGER NOT NULL, done INTEGER NOT NULL);
CREATE TABLE winner (
    digest BLOB PRIMARY KEY, version INTEGER NOT NULL, offset INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE untouched (
    partition INTEGER NOT NULL, offset INTEGER NOT NULL, why TEXT NOT NULL, PRIMARY KEY (partition, offset)
) WITHOUT ROWID;
CREATE TABLE message (
    partition INTEGER NOT NULL, id BLOB NOT NULL, stated TEXT NOT NULL, seen INTEGER NOT NULL,
    bytes INTEGER NOT NULL, digest BLOB, version INTEGER NOT NULL, why TEXT, PRIMARY KEY (partition, id)
) WITHOUT ROWID;
CREATE TABLE slice (
    partition INTEGER NOT NULL, id BLOB NOT NULL, number INTEGER NOT NULL, offset INTEGER NOT NULL,
    PRIMARY KEY (partition, id, number)
) WITHOUT ROWID;
CREATE TABLE whole (
    partition INTEGER NOT NULL, offset INTEGER NOT NULL, bytes INTEGER NOT NULL, digest BLOB,
    version INTEGER NOT NULL, why TEXT, slices BLOB NOT NULL, PRIMARY KEY (partition, offset)
) WITHOUT ROWID;
CREATE TABLE sync (
    partition INTEGER NOT NULL, source INTEGER NOT NULL, target INTEGER NOT NULL,
    PRIMARY KEY (partition, source)
) WITHOUT ROWID;
"""
_FILE: Final = FileKind("store of a compaction", 0x68776370, _SCHEMA)  # "hwcp"
_WAIT_S: Final = 5.0
_TABLES: Final = ("place", "winner", "untouched", "message", "slice", "whole", "sync")
_CACHE_KIB: Final = 65_536
_SYNC_EVERY: Final = 1_000
"""So many offsets of the source lie between two that are noted with their place in the target."""
_UNTOUCHED: Final = "SELECT offset, why FROM untouched WHERE partition = ? AND offset BETWEEN ? AND ?"
_MESSAGES: Final = """
SELECT offset, bytes, digest, version, why, slices FROM whole WHERE partition = ? AND offset BETWEEN ? AND ?
"""
_BEST: Final = "SELECT version, offset FROM winner WHERE digest = ?"


class Verdict(NamedTuple):
    """What becomes of a record, or of the message that it makes whole.

    A slice ``waits`` until its message is whole. ``offsets`` are those of the records concerned, in the order
    of the slices, and ``size_bytes`` what they have together.
    """

    outcome: Literal["wins", "untouched", "loses", "waits"]
    why: Untouched | Lost | None
    offsets: Sequence[int]
    size_bytes: int


class Sync(NamedTuple):
    """A place in both topics: what the target has from ``target`` on comes from ``source`` on."""

    source: int
    target: int


class Winners:
    """The winners of a topic's keys; for one caller at a time.

    Args:
        path: the file, which is made if it is not there; None keeps all in a temporary one.
        purpose: a digest of what it is for; a file that is for something else is refused.
        alone: None where of each key one record is kept. Else no keys are compared: a record, or a message,
            that is neither ``kept`` nor left untouched is lost, for this reason.

    Raises:
        ConfigError: the file cannot be used, is another process's, or is for something else.
    """

    def __init__(self, path: str | None, purpose: str, *, alone: Lost | None = None) -> None:
        self._path: Final = path
        self._alone: Final = alone
        self._lock: Final = None if path is None else _locked(Path(path))
        try:
            with self._errors():
                self._connection: Final = _opened(path)
                self._require_purpose(purpose)
                places = self._connection.execute("SELECT partition, learned, done FROM place").fetchall()
                synced = self._connection.execute("SELECT partition, max(source) FROM sync GROUP BY 1")
                self._synced: Final = dict(synced.fetchall())
        except BaseException:
            self.close()
            raise
        self.learned: Final[dict[int, int]] = {partition: learned for partition, learned, _ in places}
        """Up to which offset each partition is known."""
        self.done: Final[dict[int, int]] = {partition: done for partition, _, done in places}
        """Up to which offset each partition was written, as far as was noted here."""

    def learn(self, batch: Iterable[Judged]) -> None:
        """Learn records, in the order of their offsets; what is known already changes nothing."""
        best: dict[bytes, Rank] = {}
        learned = dict(self.learned)
        with self._transaction():
            for each in batch:
                if each.offset < learned.get(each.partition, 0):
                    continue
                learned[each.partition] = each.offset + 1
                if each.part is None and self._alone is not None:
                    continue  # nothing has to be known of it
                if each.part is None and each.why is not None:
                    self._leave_untouched(each)
                    continue
                whole = each if each.part is None else self._whole(each)
                if whole is None or whole.digest is None:
                    continue
                rank = Rank(whole.version, whole.offset)
                if rank > best.get(whole.digest, rank):
                    best[whole.digest] = rank
                best.setdefault(whole.digest, rank)
            self._keep(best)
            self._learned(learned)

    def learn_copy(self, batch: Iterable[Judged]) -> None:
        """Learn what stands in the target: it is older than all that the source has of the same version."""
        best: dict[bytes, Rank] = {}
        for each in batch:
            if each.digest is not None and (each.part is None or each.part.index == 0):
                best[each.digest] = max(best.get(each.digest, (rank := Rank(each.version, -1))), rank)
        with self._transaction():
            self._keep(best)

    def learned_to(self, ends: Mapping[int, int]) -> None:
        """Note that partitions are known up to somewhere at least, though no record may stand there."""
        with self._transaction():
            self._learned({each: max(end, self.learned.get(each, 0)) for each, end in ends.items()})

    def verdicts(self, batch: Sequence[Judged]) -> list[Verdict]:
        """Return what becomes of each record, all of which were learned."""
        with self._errors():
            bounds: dict[int, list[int]] = {}
            for each in batch:
                first_and_last = bounds.setdefault(each.partition, [each.offset, each.offset])
                first_and_last[1] = each.offset
            untouched, messages = {}, {}
            for partition, (first, last) in bounds.items():
                found = self._run(_UNTOUCHED, partition, first, last)
                untouched[partition] = dict(found.fetchall())
                found = self._run(_MESSAGES, partition, first, last)
                messages[partition] = {offset: known for offset, *known in found.fetchall()}
            return [
                self._verdict(each, untouched[each.partition], messages[each.partition]) for each in batch
            ]

    def written(self, done: Mapping[int, int], syncs: Mapping[int, Sync]) -> None:
        """Forget what is not asked for any more once partitions are written up to an offset."""
        with self._transaction():
            for partition, offset in done.items():
                self._run("DELETE FROM untouched WHERE partition = ? AND offset < ?", partition, offset)
                self._run("DELETE FROM whole WHERE partition = ? AND offset < ?", partition, offset)
                self._run("UPDATE place SET done = ? WHERE partition = ?", offset, partition)
                self.done[partition] = offset
            for partition, (source, target) in syncs.items():
                self._synced[partition] = source
                self._run("INSERT OR REPLACE INTO sync VALUES (?, ?, ?)", partition, source, target)

    def needs_sync(self, partition: int, source: int) -> bool:
        """Return whether a place is to be noted: it lies far enough behind the last, and the file stays."""
        return self._path is not None and source >= self._synced.get(partition, -_SYNC_EVERY) + _SYNC_EVERY

    def clear(self) -> None:
        """Forget everything."""
        with self._transaction():
            for table in _TABLES:
                self._run(f"DELETE FROM {table}")  # noqa: S608 - our own names
        for known in (self.learned, self.done, self._synced):
            known.clear()

    def _whole(self, each: Judged) -> Judged | None:
        """Note a slice, and return its message once that is whole, at the place of its last slice."""
        part = each.part
        assert part is not None  # noqa: S101 - it was asked before
        of, stated = (each.partition, part.message_id), part.whole_in_words
        self._run("INSERT OR IGNORE INTO message VALUES (?, ?, ?, 0, 0, NULL, 0, NULL)", *of, stated)
        known = self._run("SELECT stated, seen FROM message WHERE partition = ? AND id = ?", *of).fetchone()
        if known[0] != stated:
            self._leave_untouched(each._replace(why="malformed"))
            return None
        if not self._run(
            "INSERT OR IGNORE INTO slice VALUES (?, ?, ?, ?)", *of, part.index, each.offset
        ).rowcount:
            return None
        self._run(
            "UPDATE message SET seen = seen + 1, bytes = bytes + ?, why = coalesce(why, ?) "
            "WHERE partition = ? AND id = ?",
            *(each.size_bytes, each.why, *of),
        )
        if part.index == 0:
            self._run(
                "UPDATE message SET digest = ?, version = ? WHERE partition = ? AND id = ?",
                *(each.digest, each.version, *of),
            )
        if known[1] + 1 < part.count:
            return None
        (size, digest, version, why) = self._run(
            "SELECT bytes, digest, version, why FROM message WHERE partition = ? AND id = ?", *of
        ).fetchone()
        found = self._run(
            "SELECT offset FROM slice WHERE partition = ? AND id = ? ORDER BY number", *of
        ).fetchall()
        slices = array("q", (offset for (offset,) in found)).tobytes()
        self._run(
            "INSERT OR REPLACE INTO whole VALUES (?, ?, ?, ?, ?, ?, ?)",
            *(each.partition, each.offset, size, digest, version, why, slices),
        )
        # A message with the same id that comes later is another one, as a record that comes twice is.
        for table in ("slice", "message"):
            self._run(f"DELETE FROM {table} WHERE partition = ? AND id = ?", *of)  # noqa: S608 - our own names
        return Judged(each.partition, each.offset, size, None if why else digest, version, why)

    def _verdict(self, each: Judged, untouched: Mapping[int, str], messages: Mapping[int, Any]) -> Verdict:
        """Return what becomes of a record; ``untouched`` and ``messages`` are those of its partition."""
        if each.offset in untouched:
            return Verdict("untouched", untouched[each.offset], (each.offset,), each.size_bytes)  # type: ignore[arg-type]  # as it was written
        if each.part is None:
            if self._alone is not None:
                return self._by_itself(each.why, (each.offset,), each.size_bytes)
            if each.why is not None:
                raise HeaderwareError(
                    f"the record at partition {each.partition}, offset {each.offset} was judged before, and "
                    f"cannot be judged now ({each.why}); a key or the chain has changed. Start again without "
                    f"the store, so that all is judged alike"
                )
            return self._by_rank(each.digest, each.version, each.offset, (each.offset,), each.size_bytes)
        if each.offset not in messages:
            return Verdict("waits", None, (each.offset,), each.size_bytes)
        size, digest, version, why, slices = messages[each.offset]
        offsets = array("q", slices)
        if self._alone is not None:
            return self._by_itself(why, offsets, size)
        if why is not None:
            return Verdict("untouched", why, offsets, size)
        return self._by_rank(digest, version, each.offset, offsets, size)

    def _by_itself(self, why: Why | None, offsets: Sequence[int], size: int) -> Verdict:
        if why is None:
            return Verdict("loses", self._alone, offsets, size)
        if why == "kept":
            return Verdict("wins", None, offsets, size)
        return Verdict("untouched", why, offsets, size)

    def _by_rank(
        self, digest: bytes | None, version: int, offset: int, offsets: Sequence[int], size: int
    ) -> Verdict:
        best, at = self._run(_BEST, digest).fetchone()
        if at == offset:
            return Verdict("wins", None, offsets, size)
        return Verdict("loses", lost_because(version, best), offsets, size)

    def _keep(self, candidates: Mapping[bytes, Rank]) -> None:
        """Keep the candidates that are better than what is known of their keys."""
        known = self._run
        better = [
            (digest, *rank)
            for digest, rank in sorted(candidates.items())  # neighbours share a page
            if (best := known(_BEST, digest).fetchone()) is None or rank > best
        ]
        self._connection.executemany("INSERT OR REPLACE INTO winner VALUES (?, ?, ?)", better)

    def _learned(self, learned: Mapping[int, int]) -> None:
        self._connection.executemany(
            "INSERT INTO place VALUES (?, ?, 0) ON CONFLICT DO UPDATE SET learned = excluded.learned",
            learned.items(),
        )
        self.learned.update(learned)

    def _leave_untouched(self, each: Judged) -> None:
        self._run("INSERT OR REPLACE INTO untouched VALUES (?, ?, ?)", each.partition, each.offset, each.why)

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


def place_in_target(path: str, purpose: str, partition: int, source: int) -> int | None:
    """Return from which offset of the target on all comes from an offset of the source on; None if unknown.

    The file may be in use by another process.

    Raises:
        ConfigError: the file cannot be read, or is for something else; its places are in other topics then.
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
    """Return the open lock file beside a store; the operating system lets it go when the process ends."""
    beside = path.with_name(f"{path.name}.lock")
    try:
        file = beside.open("a")
    except OSError as error:
        raise ConfigError(f"{beside} cannot be opened: {error.strerror}", path="store") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise ConfigError(
            f"another process works with {path}; let it, or stop it first", path="store"
        ) from error
    return file
