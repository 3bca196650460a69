"""Store usage in a SQLite file, with the offsets up to which each partition was counted.

One SQLite transaction changes the sums and these offsets together. A process that is killed at any moment has
therefore stored both or neither. If two processes count the same records, the second is refused.

    position       for each partition, the offsets from which and up to which it was counted
    usage          the sums; the slices of each message separately, because the first slice may come later
    moment         for each topic, the time at which the groups' offsets were last taken
    group_offset   the offsets of the groups at that time
    report         the audit reports that were counted, as ranges of sequences

Incoming traffic is stored as it is counted. The reads of groups are stored together with the next moment: a
run that is killed stores no moment, so the next run counts reads from the same moment.

Empty text, the hour -1 and the partition -1 stand for None, because a primary key cannot have nulls.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headerware.core.closing import Closing
from headerware.core.errors import ConfigError, HeaderwareError, position
from headerware.core.sqlite_file import FileKind
from headerware.ops.chargeback.reads import unread
from headerware.ops.chargeback.rules import HOUR_SECONDS, Line, Sum, require_zone, usage_of

if TYPE_CHECKING:
    from headerware.ops.chargeback.usage import Usage

_WAIT_S: Final = 30.0
_LAST_US: Final = 253_402_300_799_999_999
_SCHEMA: Final = """
CREATE TABLE cluster (id TEXT NOT NULL);
CREATE TABLE position (
    topic TEXT NOT NULL, partition INTEGER NOT NULL, begin INTEGER NOT NULL, end INTEGER NOT NULL,
    missed INTEGER NOT NULL, PRIMARY KEY (topic, partition)
) WITHOUT ROWID;
CREATE TABLE usage (
    topic TEXT NOT NULL, hour INTEGER NOT NULL, owner TEXT NOT NULL, producer TEXT NOT NULL,
    direction TEXT NOT NULL, consumer_group TEXT NOT NULL, source TEXT NOT NULL, partition INTEGER NOT NULL,
    message BLOB NOT NULL, first INTEGER NOT NULL, records INTEGER, bytes INTEGER, malformed INTEGER NOT NULL,
    PRIMARY KEY (
        topic, hour, owner, producer, direction, consumer_group, source, partition, message, first
    )
) WITHOUT ROWID;
CREATE TABLE moment (
    topic TEXT NOT NULL PRIMARY KEY, at_us INTEGER NOT NULL, taken INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE group_offset (
    topic TEXT NOT NULL, consumer_group TEXT NOT NULL, partition INTEGER NOT NULL, offset INTEGER NOT NULL,
    PRIMARY KEY (topic, consumer_group, partition)
) WITHOUT ROWID;
CREATE TABLE report (session TEXT NOT NULL PRIMARY KEY, sequences TEXT NOT NULL) WITHOUT ROWID;
"""
_FILE: Final = FileKind("file of kept usage", 0x68776367, _SCHEMA, version=1)  # "hwcg"
_MOST: Final = (1 << 62) - 1
"""The limit of a sum: two sums fit SQLite's integers, even if somebody forges the numbers in a report."""
_ADD: Final = f"""
INSERT INTO usage VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
    records = min(records + excluded.records, {_MOST}), bytes = min(bytes + excluded.bytes, {_MOST}),
    malformed = malformed + excluded.malformed
"""  # noqa: S608 - a number of our own
"""A null stays a null: if one part of a sum is not known, the sum is not known."""
_MOVE: Final = """
INSERT INTO position VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
    end = excluded.end, missed = missed + excluded.missed
"""


_ROWS: Final = "SELECT * FROM usage WHERE hour BETWEEN ? AND ? OR message <> x'' ORDER BY topic, hour"
"""The first slice of a message may have another hour than the other slices."""
_READ: Final = "SELECT DISTINCT topic FROM usage WHERE source IN ('offsets', 'unknown')"
_AUDITED: Final = "SELECT DISTINCT consumer_group, topic FROM usage WHERE source = 'audit'"
_COMPARED: Final = "SELECT topic FROM moment WHERE taken > 1 ORDER BY topic"
_LAST_HOUR: Final = 1 << 40


class Position(NamedTuple):
    """The offsets up to which a partition was counted.

    Args:
        begin: the first offset that was counted.
        end: the offset after the last that was counted.
        missed: how many offsets between them were deleted before they were counted.
    """

    begin: int
    end: int
    missed: int


class Moment(NamedTuple):
    """The offsets that groups had committed at a time.

    Args:
        at: the time, in UTC.
        offsets: by group, topic and partition.
    """

    at: datetime
    offsets: Mapping[tuple[str, str, int], int]


class CountedRange(NamedTuple):
    """The counted offsets of a partition, from ``begin`` to ``end``; ``missed`` deleted ones come before."""

    begin: int
    end: int
    missed: int = 0


class KeptUsage(Closing):
    """Store usage in a file, which is created if it does not exist; for one thread.

    Several processes may use the file at once; a process cannot add records that another has counted.

    Args:
        path: the file.

    Raises:
        ConfigError: another application wrote or changed the file, or the file cannot be opened.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path: Final = Path(path)
        with self._errors():
            self._connection: Final = _FILE.open(self._path, wait_s=_WAIT_S)

    def usage(self, *, since: datetime | None = None, until: datetime | None = None) -> list[Usage]:
        """Return the stored usage, as rows for :func:`headerware.ops.chargeback.charge`.

        The reads of a group and topic come from the audit if the audit has any, else from committed offsets.

        Args:
            since: the first hour, with a time zone. If it is given, records without a timestamp are left out.
            until: the hour after the last, with a time zone. If it is given, records without a timestamp are
                left out.

        Raises:
            ConfigError: the file cannot be read, or an hour has no time zone.
        """
        require_zone(since, "since")
        require_zone(until, "until")
        with self._errors(), self._transaction("BEGIN") as connection:
            rows = connection.execute(_ROWS, _hours(since, until)).fetchall()
            read = {topic for (topic,) in connection.execute(_READ)}
            audited = set(connection.execute(_AUDITED))
            compared = [topic for (topic,) in connection.execute(_COMPARED)]
        kept = [
            row
            for row in usage_of(map(_line, rows))
            if row.source in ("records", "audit") or (row.group, row.topic) not in audited
        ]
        if since is not None:
            kept = [row for row in kept if row.hour is not None and row.hour >= since]
        if until is not None:
            kept = [row for row in kept if row.hour is not None and row.hour < until]
        return [*kept, *(unread(topic) for topic in compared if topic not in read)]

    def positions(self, topic: str | None = None) -> dict[tuple[str, int], Position]:
        """Return the offsets up to which partitions were counted, by topic and partition.

        Args:
            topic: return only this topic's partitions; None returns all.
        """
        with self._errors():
            rows = self._connection.execute(
                "SELECT * FROM position WHERE ? IN (topic, '') ORDER BY topic, partition", (topic or "",)
            ).fetchall()
        return {(name, partition): Position(*rest) for name, partition, *rest in rows}

    def require_cluster(self, cluster_id: str | None) -> None:
        """Store the cluster's id in a new file; raise ConfigError if the file has another cluster's usage."""
        with self._errors(), self._transaction("BEGIN IMMEDIATE") as connection:
            found = connection.execute("SELECT id FROM cluster").fetchone()
            if found is None:
                connection.execute("INSERT INTO cluster VALUES (?)", (cluster_id or "",))
            elif found[0] != (cluster_id or ""):
                raise ConfigError(
                    f"expected the usage of cluster {cluster_id!r}, found the usage of cluster {found[0]!r}; "
                    "use a separate file for each cluster",
                    path=str(self._path),
                )

    def add(
        self,
        topic: str,
        counted: Mapping[int, CountedRange],
        sums: Mapping[Line, Sum],
        *,
        sequences: Mapping[str, tuple[tuple[int, int], ...]] | None = None,
    ) -> None:
        """Add the counts of a topic's partitions in one transaction.

        Args:
            topic: the topic.
            counted: the counted offsets of each partition.
            sums: the sums.
            sequences: for an audit topic, the sequences of all reports that are counted now, by session.

        Raises:
            HeaderwareError: another process has counted one of these partitions in the meantime.
            ConfigError: the file cannot be written.
        """
        with self._errors(), self._transaction("BEGIN IMMEDIATE") as connection:
            for partition, each in counted.items():
                found = connection.execute(
                    "SELECT end FROM position WHERE topic = ? AND partition = ?", (topic, partition)
                ).fetchone()
                if found is not None and found[0] != each.begin - each.missed:
                    raise HeaderwareError(
                        f"{position(topic, partition, None)}: expected to count from offset "
                        f"{each.begin - each.missed}, but another process has counted up to offset "
                        f"{found[0]} into {self._path}; no record was counted twice; run one process at a "
                        "time"
                    )
                connection.execute(_MOVE, (topic, partition, each.begin, each.end, each.missed))
            connection.executemany(_ADD, map(_row, sums.items()))
            connection.executemany(
                "INSERT OR REPLACE INTO report VALUES (?, ?)",
                ((session, json.dumps(ranges)) for session, ranges in (sequences or {}).items()),
            )

    def moment(self, topic: str) -> Moment | None:
        """Return the offsets of groups that were last taken; None if they were never taken."""
        with self._errors(), self._transaction("BEGIN") as connection:
            found = connection.execute("SELECT at_us FROM moment WHERE topic = ?", (topic,)).fetchone()
            rows = connection.execute(
                "SELECT consumer_group, topic, partition, offset FROM group_offset WHERE topic = ?", (topic,)
            ).fetchall()
        if found is None:
            return None
        return Moment(_at(found[0]), {(group, name, number): offset for group, name, number, offset in rows})

    def add_moment(self, topic: str, before: Moment | None, now: Moment, sums: Mapping[Line, Sum]) -> None:
        """Replace a topic's moment by a later one, and add the reads of groups between the two.

        Args:
            topic: the topic.
            before: the moment that :meth:`moment` returned.
            now: the later moment; its offsets of other topics are left out.
            sums: the reads between the two moments.

        Raises:
            HeaderwareError: another process has replaced the moment in the meantime.
            ConfigError: the file cannot be written.
        """
        with self._errors(), self._transaction("BEGIN IMMEDIATE") as connection:
            found = connection.execute("SELECT at_us FROM moment WHERE topic = ?", (topic,)).fetchone()
            if (None if found is None else _at(found[0])) != (None if before is None else before.at):
                raise HeaderwareError(
                    f"{topic}: another process has counted reads into {self._path}; run one process at a time"
                )
            connection.execute(
                "INSERT INTO moment VALUES (?, ?, 1) "
                "ON CONFLICT DO UPDATE SET at_us = excluded.at_us, taken = taken + 1",
                (topic, _microseconds(now.at)),
            )
            connection.execute("DELETE FROM group_offset WHERE topic = ?", (topic,))
            connection.executemany(
                "INSERT INTO group_offset VALUES (?, ?, ?, ?)",
                (
                    (name, group, partition, offset)
                    for (group, name, partition), offset in now.offsets.items()
                    if name == topic
                ),
            )
            connection.executemany(_ADD, map(_row, sums.items()))

    def sequences(self, session: str) -> tuple[tuple[int, int], ...]:
        """Return the sequences of a session's counted reports, as ranges that include both ends."""
        with self._errors():
            found = self._connection.execute(
                "SELECT sequences FROM report WHERE session = ?", (session,)
            ).fetchone()
        return () if found is None else tuple((first, last) for first, last in json.loads(found[0]))

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        self._connection.close()

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        with self._connection:
            self._connection.execute(begin)
            yield self._connection

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise ConfigError(f"the stored usage cannot be used: {error}", path=str(self._path)) from error


def _row(item: tuple[Line, Sum]) -> tuple[Any, ...]:
    line, own = item
    return (
        line.topic,
        -1 if line.hour is None else line.hour,
        line.owner or "",
        line.producer or "",
        line.direction,
        line.group or "",
        line.source,
        -1 if line.partition is None else line.partition,
        line.message or b"",
        int(line.first),
        None if own.records is None else min(own.records, _MOST),
        None if own.bytes is None else min(own.bytes, _MOST),
        own.malformed,
    )


def _line(row: tuple[Any, ...]) -> tuple[Line, Sum]:
    topic, hour, owner, producer, direction, group, source, partition, message, first, *sums = row
    line = Line(
        hour=None if hour < 0 else hour,
        topic=topic,
        owner=owner or None,
        producer=producer or None,
        direction=direction,
        group=group or None,
        source=source,
        partition=None if partition < 0 else partition,
        message=message or None,
        first=bool(first),
    )
    return line, Sum(*sums)


def _hours(since: datetime | None, until: datetime | None) -> tuple[int, int]:
    """Return the numbers of the first and the last hour; with neither bound, include -1, which is no hour."""
    first = -1 if since is None and until is None else 0
    if since is not None:
        first = max(first, int(since.timestamp()) // HOUR_SECONDS)
    return first, _LAST_HOUR if until is None else int(until.timestamp()) // HOUR_SECONDS


def _microseconds(moment: datetime) -> int:
    whole = int(moment.replace(microsecond=0).timestamp())
    return whole * 1_000_000 + moment.microsecond


def _at(microseconds: int) -> datetime:
    whole, rest = divmod(min(max(microseconds, 0), _LAST_US), 1_000_000)
    return datetime.fromtimestamp(whole, UTC).replace(microsecond=rest)
