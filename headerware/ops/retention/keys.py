"""The keys of a compacted topic while a pass reads it, in a temporary file of SQLite.

Of each key and partition it has the latest record. When all is read, it chooses the keys that may be deleted.
Memory is bounded, however many keys there are and however long: 64 MB of pages, and what waits to be written.
The file is where SQLite makes temporary ones (``TMPDIR``), and is gone with the process.
"""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

from headerware.core.errors import HeaderwareError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from headerware.ops.retention.rules import Fate

_SCHEMA: Final = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -65536;
CREATE TABLE latest (
    digest BLOB NOT NULL, partition INTEGER NOT NULL, key BLOB NOT NULL, offset INTEGER NOT NULL,
    fate TEXT NOT NULL, message BLOB, held INTEGER NOT NULL, last INTEGER NOT NULL, count INTEGER NOT NULL,
    PRIMARY KEY (digest, partition)
) WITHOUT ROWID;
CREATE INDEX unsettled ON latest (partition) WHERE message IS NOT NULL;
CREATE TABLE slice_key (
    digest BLOB NOT NULL, partition INTEGER NOT NULL, number INTEGER NOT NULL, own BLOB NOT NULL,
    key BLOB NOT NULL, PRIMARY KEY (digest, partition, number)
) WITHOUT ROWID;
CREATE TABLE beginning (partition INTEGER PRIMARY KEY, before INTEGER NOT NULL);
CREATE TABLE chosen (
    partition INTEGER NOT NULL, offset INTEGER NOT NULL, number INTEGER NOT NULL, digest BLOB NOT NULL,
    key BLOB NOT NULL, count INTEGER NOT NULL, PRIMARY KEY (partition, offset, number)
) WITHOUT ROWID;
"""
_NOTE: Final = """
INSERT INTO latest VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?4, 1) ON CONFLICT DO UPDATE SET
    key = excluded.key, offset = excluded.offset, fate = excluded.fate, message = excluded.message,
    held = held OR excluded.held, last = excluded.last, count = excluded.count
"""
_EXPIRED: Final = """
FROM latest CROSS JOIN beginning USING (partition) WHERE fate = 'expired' AND last >= before
"""
_STAYS: Final = """
held OR EXISTS (
    SELECT 1 FROM latest AS other WHERE other.digest = latest.digest
    AND other.partition <> latest.partition AND other.fate NOT IN ('expired', 'tombstone')
)
"""
"""Readers of a table by key would take a tombstone for the end of what another partition has."""
_CHOOSE: Final = f"""
INSERT INTO chosen SELECT partition, offset, 0, digest, key, count {_EXPIRED} AND NOT ({_STAYS})
ORDER BY partition, offset
"""
_INDEX: Final = "CREATE INDEX chosen_digest ON chosen (partition, digest)"
"""Made at once from all, which takes less than adding to it row by row."""
_CHOOSE_SLICES: Final = """
INSERT INTO chosen SELECT partition, offset, slice_key.number, own, slice_key.key, 0
FROM slice_key JOIN chosen USING (partition, digest) WHERE chosen.number = 0
"""
_CHOSEN: Final = "SELECT partition, count(*), sum(count) FROM chosen GROUP BY partition"
_LEFT: Final = f"SELECT partition, sum(count) {_EXPIRED} AND ({_STAYS}) GROUP BY partition"
_WAITING: Final = 50_000
"""So many keys are sorted before they go into the file, so that fewer of its pages are written."""
_WAITING_BYTES: Final = 16 << 20


class Choice(NamedTuple):
    """The keys of a partition that may be deleted.

    Args:
        tombstones: how many tombstones that takes, those for slices among them.
        replaced: how many records these stand for.
        left: how many expired records stay, for their key has a legal hold, or a record in another partition.
    """

    tombstones: int
    replaced: int
    left: int


class Tombstone(NamedTuple):
    """A key that may be deleted, and how many records its tombstone stands for."""

    key: bytes
    replaced: int


class Keys:
    """Note keys, and choose those that may be deleted; for one caller at a time.

    Raises:
        HeaderwareError: there is no room for the file; also raised by the methods.
    """

    def __init__(self) -> None:
        self._waiting: Final[dict[tuple[bytes, int], tuple[bytes, int, Fate, bytes | None, bool]]] = {}
        self._waiting_bytes = 0
        with _errors():
            # An empty name is a temporary file of SQLite's own.
            self._connection: Final = sqlite3.connect("", isolation_level=None)
            self._connection.executescript(_SCHEMA)

    def note(self, partition: int, key: bytes, offset: int, fate: Fate, message_id: bytes | None) -> None:
        """Note the next record of a partition; ``message_id`` says that it is a slice."""
        of = _digest(key), partition
        before = self._waiting.get(of)
        is_held = fate == "held" or (before is not None and before[4])
        if fate != "expired" and message_id is None:
            key = b""  # it gets no tombstone
        self._waiting[of] = key, offset, fate, message_id, is_held
        self._waiting_bytes += len(key)
        if len(self._waiting) >= _WAITING or self._waiting_bytes >= _WAITING_BYTES:
            self._write()

    def hold(self, partition: int, key: bytes) -> None:
        """Note that a key has a record under a legal hold."""
        self._write()
        with _errors():
            self._connection.execute(
                "UPDATE latest SET held = 1 WHERE digest = ? AND partition = ?", (_digest(key), partition)
            )

    def messages(self, partition: int) -> list[tuple[bytes, bytes]]:
        """Return the digests of the keys whose latest record is a slice, with the ids of the messages."""
        self._write()
        with _errors():
            return self._connection.execute(
                "SELECT digest, message FROM latest WHERE partition = ? AND message IS NOT NULL", (partition,)
            ).fetchall()

    def settle(
        self, partition: int, digest: bytes, fate: Fate, *, last: int, count: int, slice_keys: Iterable[bytes]
    ) -> None:
        """Say what becomes of the message in slices that is the latest record of a key."""
        with _errors():
            self._connection.execute(
                "UPDATE latest SET fate = ?, last = ?, count = ? WHERE digest = ? AND partition = ?",
                (fate, last, count, digest, partition),
            )
            self._connection.executemany(
                "INSERT INTO slice_key VALUES (?, ?, ?, ?, ?)",
                ((digest, partition, number, _digest(key), key) for number, key in enumerate(slice_keys, 1)),
            )

    def choose(self, beginnings: Mapping[int, int]) -> dict[int, Choice]:
        """Choose the keys that may be deleted, once all partitions are settled; to be called once.

        Args:
            beginnings: up to which offset each partition is deleted anyhow.
        """
        self._write()
        with _errors():
            run = self._connection.execute
            self._connection.executemany("INSERT INTO beginning VALUES (?, ?)", beginnings.items())
            left = dict(run(_LEFT).fetchall())
            for statement in (_CHOOSE, _INDEX, _CHOOSE_SLICES):
                run(statement)
            chosen = {partition: (count, replaced) for partition, count, replaced in run(_CHOSEN).fetchall()}
        return {each: Choice(*chosen.get(each, (0, 0)), left.get(each, 0)) for each in beginnings}

    def chosen(self, partition: int, *, most: int, most_bytes: int) -> list[Tombstone]:
        """Return the next of the chosen keys of a partition; those of a message in slices together."""
        found: list[Tombstone] = []
        size = 0
        with _errors():
            rows = self._connection.execute(
                "SELECT key, count, number FROM chosen WHERE partition = ? ORDER BY offset, number",
                (partition,),
            )
            for key, replaced, number in rows:
                size += len(key)
                if found and not number and (len(found) >= most or size > most_bytes):
                    break
                found.append(Tombstone(key, replaced))
            rows.close()
        return found

    def drop(self, partition: int, keys: Iterable[bytes]) -> int:
        """Choose keys no more, for they are deleted or have a newer record; return how many were chosen."""
        digests = [(partition, _digest(key)) for key in keys]
        with _errors():
            self._connection.execute("BEGIN")
            cursor = self._connection.executemany(
                "DELETE FROM chosen WHERE partition = ? AND digest = ?", digests
            )
            self._connection.execute("COMMIT")
        return max(0, cursor.rowcount)  # -1 for none

    def _write(self) -> None:
        rows = ((digest, partition, *noted) for (digest, partition), noted in sorted(self._waiting.items()))
        with _errors():
            self._connection.execute("BEGIN")
            self._connection.executemany(_NOTE, rows)
            self._connection.execute("COMMIT")
        self._waiting.clear()
        self._waiting_bytes = 0

    def close(self) -> None:
        """Close the file, which is gone then."""
        self._connection.close()


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=16).digest()


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise HeaderwareError(
            f"the temporary file for the keys cannot be used: {error}; give it room (TMPDIR)"
        ) from error
