"""Usage that is kept in a SQLite file, with how far each partition was counted.

Sums and the offsets behind them change in one transaction of SQLite. So a process that is killed at any
moment has counted a record and knows it, or neither; and of two that count the same records one is refused.

    position       partition by partition: from where to where it was counted
    usage          the sums, with the slices of each message apart, for its first one may come later
    moment         when the offsets of groups were last taken, topic by topic
    group_offset   these offsets
    report         the audit's reports that were counted, as ranges of sequences

What came into topics is kept as it is counted. What groups read is kept with the moment that ends it: a run
that is cut off leaves no moment, so the next run counts from the same one.

Empty text, the hour -1 and the partition -1 stand for none, for a primary key has no nulls.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from headerware.core.errors import ConfigError, HeaderwareError
from headerware.core.sqlite_file import FileKind
from headerware.ops.chargeback.reads import unread
from headerware.ops.chargeback.rules import HOUR_SECONDS, Line, Sum, usage_of

if TYPE_CHECKING:
    from types import TracebackType

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
"""The most of a sum: two of them fit SQLite's integers, whatever somebody has forged in a report."""
_ADD: Final = f"""
INSERT INTO usage VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
    records = min(records + excluded.records, {_MOST}), bytes = min(bytes + excluded.bytes, {_MOST}),
    malformed = malformed + excluded.malformed
"""  # noqa: S608 - a number of our own
"""A null stays a null: what is not known of one part is not known of the sum."""
_MOVE: Final = """
INSERT INTO position VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
    end = excluded.end, missed = missed + excluded.missed
"""


_ROWS: Final = "SELECT * FROM usage WHERE hour BETWEEN ? AND ? OR message <> x'' ORDER BY topic, hour"
"""A message's first slice may be of another hour than the rest."""
_READ: Final = "SELECT DISTINCT topic FROM usage WHERE source IN ('offsets', 'unknown')"
_AUDITED: Final = "SELECT DISTINCT consumer_group, topic FROM usage WHERE source = 'audit'"
_COMPARED: Final = "SELECT topic FROM moment WHERE taken > 1 ORDER BY topic"
_LAST_HOUR: Final = 1 << 40


class Position(NamedTuple):
    """How far a partition was counted.

    Args:
        begin: the first offset that was counted.
        end: the offset behind the last.
        missed: the offsets between that were deleted before they were counted.
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


class Step(NamedTuple):
    """What was counted of a partition: offsets from ``begin`` to ``end``, after ``missed`` deleted ones."""

    begin: int
    end: int
    missed: int = 0


class KeptUsage:
    """Keep usage in a file, which is made if it is not there; for one thread.

    Several processes may use the file at once. What one has counted, another refuses to count again.

    Args:
        path: the file.

    Raises:
        ConfigError: the file is of another application, was changed by one, or cannot be opened.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path: Final = Path(path)
        with self._errors():
            self._connection: Final = _FILE.open(self._path, wait_s=_WAIT_S)

    def usage(self, *, since: datetime | None = None, until: datetime | None = None) -> list[Usage]:
        """Return what was counted, as rows for :func:`headerware.ops.chargeback.charge`.

        Reads of a group and topic are the audit's, if it has any, else those by committed offsets.

        Args:
            since: the first hour, with a time zone; records without a time are left out then.
            until: the hour behind the last one, likewise.

        Raises:
            ConfigError: the file cannot be read.
        """
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
        """Return how far partitions were counted, by topic and partition.

        Args:
            topic: of this topic only, or None for all.
        """
        with self._errors():
            rows = self._connection.execute(
                "SELECT * FROM position WHERE ? IN (topic, '') ORDER BY topic, partition", (topic or "",)
            ).fetchall()
        return {(name, partition): Position(*rest) for name, partition, *rest in rows}

    def require_cluster(self, cluster_id: str | None) -> None:
        """Note of which cluster the usage is; ConfigError if the file has that of another one."""
        with self._errors(), self._transaction("BEGIN IMMEDIATE") as connection:
            found = connection.execute("SELECT id FROM cluster").fetchone()
            if found is None:
                connection.execute("INSERT INTO cluster VALUES (?)", (cluster_id or "",))
            elif found[0] != (cluster_id or ""):
                raise ConfigError(
                    f"the file has the usage of cluster {found[0]!r}, and this is {cluster_id!r}; keep each "
                    "cluster's usage in a file of its own",
                    path=str(self._path),
                )

    def add(
        self,
        topic: str,
        steps: Mapping[int, Step],
        sums: Mapping[Line, Sum],
        *,
        sequences: Mapping[str, tuple[tuple[int, int], ...]] | None = None,
    ) -> None:
        """Add what was counted of a topic's partitions, all of it or nothing.

        Args:
            topic: the topic.
            steps: what was counted of each partition.
            sums: the sums.
            sequences: for reports of an audit, those of each session that are counted now.

        Raises:
            HeaderwareError: another process has counted one of these partitions meanwhile.
            ConfigError: the file cannot be written.
        """
        with self._errors(), self._transaction("BEGIN IMMEDIATE") as connection:
            for partition, step in steps.items():
                found = connection.execute(
                    "SELECT end FROM position WHERE topic = ? AND partition = ?", (topic, partition)
                ).fetchone()
                if found is not None and found[0] != step.begin - step.missed:
                    raise HeaderwareError(
                        f"{topic} [{partition}]: another process counts into {self._path}: it was at offset "
                        f"{step.begin - step.missed} and is now at {found[0]}; nothing counts twice; let "
                        "one of them work at a time"
                    )
                connection.execute(_MOVE, (topic, partition, step.begin, step.end, step.missed))
            connection.executemany(_ADD, map(_row, sums.items()))
            connection.executemany(
                "INSERT OR REPLACE INTO report VALUES (?, ?)",
                ((session, json.dumps(ranges)) for session, ranges in (sequences or {}).items()),
            )

    def moment(self, topic: str) -> Moment | None:
        """Return the offsets of groups as they were last taken, or None if they never were."""
        with self._errors(), self._transaction("BEGIN") as connection:
            found = connection.execute("SELECT at_us FROM moment WHERE topic = ?", (topic,)).fetchone()
            rows = connection.execute(
                "SELECT consumer_group, topic, partition, offset FROM group_offset WHERE topic = ?", (topic,)
            ).fetchall()
        if found is None:
            return None
        return Moment(_at(found[0]), {(group, name, number): offset for group, name, number, offset in rows})

    def add_moment(self, topic: str, before: Moment | None, now: Moment, sums: Mapping[Line, Sum]) -> None:
        """Replace a topic's moment by a later one, and add what groups read between the two.

        Args:
            topic: the topic.
            before: the moment that :meth:`moment` returned.
            now: the later one; its offsets of other topics are left out.
            sums: what was read between the two.

        Raises:
            HeaderwareError: another process has replaced the moment meanwhile.
            ConfigError: the file cannot be written.
        """
        with self._errors(), self._transaction("BEGIN IMMEDIATE") as connection:
            found = connection.execute("SELECT at_us FROM moment WHERE topic = ?", (topic,)).fetchone()
            if (None if found is None else _at(found[0])) != (None if before is None else before.at):
                raise HeaderwareError(
                    f"{topic}: another process counts reads into {self._path}; let one of them work at a time"
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
        """Return which reports of a session were counted, as ranges with both ends included."""
        with self._errors():
            found = self._connection.execute(
                "SELECT sequences FROM report WHERE session = ?", (session,)
            ).fetchone()
        return () if found is None else tuple((first, last) for first, last in json.loads(found[0]))

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

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
            raise ConfigError(f"kept usage cannot be used: {error}", path=str(self._path)) from error


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
    """Return the first and the last hour's number; without either, rows without an hour are among them."""
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
