"""Store the keys of a compacted topic while a pass reads it, in a temporary SQLite file.

The file has the latest record of each key and partition. When the topic is read, the keys that may be deleted
are chosen from it. Memory is bounded for any number and length of keys: 64 MB of pages, as much for sorting,
and the rows that are not written yet. SQLite makes the file in its temporary folder (``TMPDIR``), and it is
deleted when the process ends.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import contextmanager
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

from headerware.core.errors import HeaderwareError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from headerware.ops.retention.rules import RetentionDisposition

_SCHEMA: Final = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -65536;
CREATE TABLE latest (
    digest BLOB NOT NULL, partition INTEGER NOT NULL, key BLOB NOT NULL, offset INTEGER NOT NULL,
    disposition INTEGER NOT NULL, message BLOB, held INTEGER NOT NULL, last INTEGER NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (digest, partition)
) WITHOUT ROWID;
CREATE INDEX unsettled ON latest (partition) WHERE message IS NOT NULL;
CREATE TABLE beginning (partition INTEGER PRIMARY KEY, before INTEGER NOT NULL);
CREATE TABLE chosen (
    partition INTEGER NOT NULL, offset INTEGER NOT NULL, digest BLOB NOT NULL, key BLOB NOT NULL,
    count INTEGER NOT NULL, PRIMARY KEY (partition, offset)
) WITHOUT ROWID;
"""
_NOTE: Final = """
INSERT INTO latest VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?4, 1) ON CONFLICT DO UPDATE SET
    key = excluded.key, offset = excluded.offset, disposition = excluded.disposition,
    message = excluded.message, held = held OR excluded.held, last = excluded.last, count = excluded.count
"""
_DISPOSITIONS: Final[dict[RetentionDisposition, int]] = {"expired": 1, "tombstone": 2}
"""The numbers of dispositions in the file; all others are 0, because they mean the same for a key."""
_EXPIRED: Final = (
    "FROM latest CROSS JOIN beginning USING (partition) WHERE disposition = 1 AND last >= before"
)
_STAYS: Final = """
(held OR EXISTS (
    SELECT 1 FROM latest AS other WHERE other.digest = latest.digest
    AND other.partition <> latest.partition AND (other.held OR other.disposition = 0)
))
"""
"""A key keeps its records if it has a legal hold, or a record in another partition that stays.

A client that reads the topic as a table by key would take the tombstone for the deletion of the key, also of
its record in the other partition. A legal hold keeps the key in all partitions, even if a later record of the
key has expired.
"""
_COUNT: Final = f"SELECT partition, {_STAYS}, count {_EXPIRED}"
_CHOOSE: Final = f"""
INSERT INTO chosen SELECT partition, offset, digest, key, count {_EXPIRED} AND NOT {_STAYS}
ORDER BY partition, offset
"""
_INDEX: Final = "CREATE INDEX chosen_digest ON chosen (partition, digest)"
"""Made when the table is complete, which is faster than adding to the index row by row."""
_WAITING: Final = 50_000
"""This many keys are sorted before they are written, so that fewer pages of the file are written."""
_WAITING_BYTES: Final = 16 << 20


class Choice(NamedTuple):
    """The keys of a partition that may be deleted.

    Args:
        tombstones: how many tombstones are needed.
        replaced: how many records the tombstones replace.
        left: how many expired records stay because their key has a legal hold, or a record in another
            partition.
    """

    tombstones: int
    replaced: int
    left: int


class Tombstone(NamedTuple):
    """A key that may be deleted, and how many records its tombstone replaces."""

    key: bytes
    replaced: int


_Row = tuple[bytes, int, bytes, int, int, bytes | None, bool]
"""The parameters of ``_NOTE``."""


class Keys:
    """Store keys, and choose the keys that may be deleted; for one caller at a time.

    Raises:
        HeaderwareError: the file has no space; the methods raise this too.
    """

    def __init__(self) -> None:
        self._waiting: Final[dict[bytes, _Row]] = {}
        self._waiting_bytes = 0
        self._has_chosen = False
        with _errors():
            # An empty name is a temporary file of SQLite's own.
            self._connection: Final = sqlite3.connect("", isolation_level=None)
            self._connection.executescript(_SCHEMA)

    def note(
        self,
        partition: int,
        key: bytes,
        offset: int,
        disposition: RetentionDisposition,
        message_id: bytes | None,
    ) -> None:
        """Store the next record of a partition; ``message_id`` is not None if the record is a slice."""
        digest = digest_of(key)
        row = digest + partition.to_bytes(4)
        is_held = disposition == "held"
        if not is_held and (before := self._waiting.get(row)) is not None:
            is_held = before[-1]
        if disposition != "expired" and message_id is None:
            key = b""  # no tombstone will need the key
        self._waiting[row] = (
            digest,
            partition,
            key,
            offset,
            _DISPOSITIONS.get(disposition, 0),
            message_id,
            is_held,
        )
        self._waiting_bytes += len(key)
        if len(self._waiting) >= _WAITING or self._waiting_bytes >= _WAITING_BYTES:
            self._write()

    def hold(self, partition: int, digest: bytes) -> None:
        """Mark a key as having a record under a legal hold."""
        self._write()
        with _errors():
            self._connection.execute(
                "UPDATE latest SET held = 1 WHERE digest = ? AND partition = ?", (digest, partition)
            )

    def messages(self, partition: int) -> list[tuple[bytes, bytes]]:
        """Return the digests of the keys whose latest record is a slice, with the ids of the messages."""
        self._write()
        with _errors():
            return self._connection.execute(
                "SELECT digest, message FROM latest WHERE partition = ? AND message IS NOT NULL", (partition,)
            ).fetchall()

    def settle(
        self, partition: int, digest: bytes, disposition: RetentionDisposition, *, last: int, count: int
    ) -> None:
        """Set the disposition of a message in slices that is the latest record of a key."""
        with _errors():
            self._connection.execute(
                "UPDATE latest SET disposition = ?, last = ?, count = ? WHERE digest = ? AND partition = ?",
                (_DISPOSITIONS.get(disposition, 0), last, count, digest, partition),
            )

    def choose(self, beginnings: Mapping[int, int]) -> dict[int, Choice]:
        """Count the keys that may be deleted; call this once, after :meth:`settle` for all partitions.

        Args:
            beginnings: the offset before which each partition is deleted anyway.
        """
        self._write()
        tombstones, replaced, left = Counter[int](), Counter[int](), Counter[int]()
        with _errors():
            run = self._connection.execute
            self._connection.executemany("INSERT INTO beginning VALUES (?, ?)", beginnings.items())
            for partition, stays, count in run(_COUNT):
                if stays:
                    left[partition] += count
                else:
                    tombstones[partition] += 1
                    replaced[partition] += count
        return {each: Choice(tombstones[each], replaced[each], left[each]) for each in beginnings}

    def chosen(self, partition: int, *, most: int, most_bytes: int) -> list[Tombstone]:
        """Return the next chosen keys of a partition."""
        found: list[Tombstone] = []
        size = 0
        self._write_chosen()
        with _errors():
            rows = self._connection.execute(
                "SELECT key, count FROM chosen WHERE partition = ? ORDER BY offset", (partition,)
            )
            for key, replaced in rows:
                size += len(key)
                if found and (len(found) >= most or size > most_bytes):
                    break
                found.append(Tombstone(key, replaced))
            rows.close()
        return found

    def drop(self, partition: int, keys: Iterable[bytes]) -> int:
        """Remove keys that are deleted or have a newer record; return how many of them were chosen."""
        self._write_chosen()
        digests = [(partition, digest_of(key)) for key in keys]
        with _errors():
            self._connection.execute("BEGIN")
            cursor = self._connection.executemany(
                "DELETE FROM chosen WHERE partition = ? AND digest = ?", digests
            )
            self._connection.execute("COMMIT")
        return max(0, cursor.rowcount)  # -1 for none

    def _write_chosen(self) -> None:
        """Copy the keys that may be deleted into their own table, once; a preview does not need the table."""
        if self._has_chosen:
            return
        self._has_chosen = True
        with _errors():
            for statement in (_CHOOSE, _INDEX):
                self._connection.execute(statement)

    def _write(self) -> None:
        rows = map(self._waiting.__getitem__, sorted(self._waiting))
        with _errors():
            self._connection.execute("BEGIN")
            self._connection.executemany(_NOTE, rows)
            self._connection.execute("COMMIT")
        self._waiting.clear()
        self._waiting_bytes = 0

    def close(self) -> None:
        """Close the file, which deletes it."""
        self._connection.close()


def digest_of(key: bytes) -> bytes:
    """Return the digest that identifies a key."""
    return blake2b(key, digest_size=16).digest()


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise HeaderwareError(
            f"the temporary file for the keys cannot be used: {error}; choose a folder with more space "
            "(TMPDIR)"
        ) from error
