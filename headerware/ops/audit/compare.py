"""Compare what producers sent with what consumer groups read, bucket by bucket.

A record is identified by its partition and offset: the producer has them from the delivery report, the
consumer from the record. A record that was delivered but not counted by any consumer of a group is

- pending, if the group has not read up to its offset;
- unknown, if a session of the group may have read the record without reporting it, because the session
  crashed or one of its reports is missing;
- lost otherwise.

No group needs to read a record of an aborted transaction: a group that reads only committed records never
gets the record, and a group that reads all records may get it. The same holds as long as no report tells how
the transaction ended.

If the producer or the consumer does not know offsets (too many ranges, ``acks=0``), only the numbers of
records in the bucket and partition are compared. A loss and a duplicate in the same bucket then cancel each
other out, and the row is not ``exact``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from math import inf
from typing import Final

import msgspec

from headerware.interceptors.audit import AuditCount, AuditReport, united

_CRASHED_AFTER: Final = 3
"""A session counts as crashed after this many intervals without a report."""
Ranges = tuple[tuple[int, int], ...]
_Partition = tuple[str, int | None]


class Reconciled(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of records of a topic, consumer group and time bucket, by what happened to them.

    Args:
        topic: the topic.
        group: the consumer group; None if no group has read the topic.
        bucket: the start of the bucket, in milliseconds since the epoch.
        bucket_ms: the length of the bucket, in milliseconds.
        produced: records that were delivered to the topic.
        produced_bytes: the size of the produced records.
        aborted: records that were delivered in a transaction that was aborted.
        undecided: records that were delivered in a transaction whose end no report tells.
        failed: records that producers could not deliver, or dropped.
        consumed: records that applications of the group got, repeated deliveries included.
        consumed_bytes: the size of the consumed records.
        stopped: records that interceptors of the group refused, dropped or dead-lettered.
        given_up: consumed records that could not be processed and that ``run`` skipped or dead-lettered.
        uncommitted: consumed records of aborted transactions, read by a group that reads uncommitted records.
        lost: records before the group's latest offset that no session of the group counted.
        pending: records that the group has not reached.
        unknown: records that no session counted, but that a session may have read that crashed or whose
            report is missing.
        duplicated: deliveries beyond the first of each record.
        unreported: consumed records that no producer reported: second copies from a producer without
            idempotence, records of clients without an audit, or records of a producer that crashed.
        late: records that were consumed later than the consumers allow.
        exact: True if offsets were compared, False if only numbers were.
        open: whether the bucket may still change: it has not ended, or a producer's report is due.
    """

    topic: str
    group: str | None
    bucket: int
    bucket_ms: int
    produced: int = 0
    produced_bytes: int = 0
    aborted: int = 0
    undecided: int = 0
    failed: int = 0
    consumed: int = 0
    consumed_bytes: int = 0
    stopped: int = 0
    given_up: int = 0
    uncommitted: int = 0
    lost: int = 0
    pending: int = 0
    unknown: int = 0
    duplicated: int = 0
    unreported: int = 0
    late: int = 0
    exact: bool = True
    open: bool = False


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The result of comparing reports.

    Args:
        rows: the numbers by topic, group and bucket.
        reports: how many reports were compared.
        sessions: how many sessions wrote the reports.
        incomplete: the sessions whose counts are incomplete, each with the reason: the session crashed, or
            one of its reports is missing or leaves records out.
    """

    rows: tuple[Reconciled, ...]
    reports: int
    sessions: int
    incomplete: dict[str, str]


def compare(
    reports: Iterable[AuditReport],
    *,
    now_ms: int,
    topics: Iterable[str] = (),
    from_ms: int | None = None,
    to_ms: int | None = None,
) -> Comparison:
    """Compare the reports of producers and consumers.

    Args:
        reports: the reports, in any order; a repeated report counts once.
        now_ms: the time at which the last report was read, in milliseconds since the epoch.
        topics: the topics to compare; an empty sequence compares all topics.
        from_ms: leave out the buckets that end at this time or before.
        to_ms: leave out the buckets that begin at this time or later.
    """
    by_session: defaultdict[str, dict[int, AuditReport]] = defaultdict(dict)
    for report in reports:
        by_session[report.session].setdefault(report.sequence, report)
    sessions = [_Session(found, now_ms) for found in by_session.values()]
    wanted = set(topics)
    rows = [
        row
        for topic in sorted({count.topic for session in sessions for count in session.counts()})
        if not wanted or topic in wanted
        for row in _of_topic(topic, sessions, now_ms)
        if (from_ms is None or row.bucket + row.bucket_ms > from_ms) and (to_ms is None or row.bucket < to_ms)
    ]
    return Comparison(
        rows=tuple(rows),
        reports=sum(map(len, by_session.values())),
        sessions=len(sessions),
        incomplete={session.name: reason for session in sessions if (reason := session.incomplete)},
    )


class _Doubt:
    """A time for which a session's counts are missing, which ends at ``until``.

    A session reads in order, so the offsets that it read in this time lie between the offsets in its reports
    before and after.
    """

    def __init__(self, until: float, before: Sequence[AuditReport], after: Sequence[AuditReport]) -> None:
        self._until = until
        self._floor = _extremes(before, max)
        self._ceiling = _extremes(after, min)

    def covers(self, partition: _Partition, bucket: int) -> tuple[float, float] | None:
        """Return the smallest and the largest offset that the session may have read then; else None."""
        if bucket > self._until:
            return None
        return self._floor.get(partition, -1) + 1, self._ceiling.get(partition, inf) - 1


class _Session:
    """The reports of one session, and the times for which reports are missing."""

    def __init__(self, reports: dict[int, AuditReport], now_ms: int) -> None:
        self._reports = [reports[sequence] for sequence in sorted(reports)]
        first, latest = self._reports[0], self._reports[-1]
        self.name = first.session
        self.side, self.group = first.side, first.group
        self.latest_ms = latest.at
        self.interval_ms, self.bucket_ms = latest.interval_ms, latest.bucket_ms
        self.ended = any(report.last for report in self._reports)
        self.doubts: list[_Doubt] = []
        self.incomplete = ""
        if first.sequence:
            self._doubt(f"report {first.sequence} is the first", first.at, [], self._reports)
        for at, (one, other) in enumerate(pairwise(self._reports), start=1):
            if other.sequence != one.sequence + 1:
                reason = f"no report between {one.sequence} and {other.sequence}"
                self._doubt(reason, other.at, self._reports[:at], self._reports[at:])
        for report in self._reports:
            if report.left_out:
                self._doubt(f"report {report.sequence} left records out", report.at, [], [])
        silent_ms = now_ms - latest.at
        if not self.ended and silent_ms > _CRASHED_AFTER * latest.interval_ms:
            reason = f"no report since {latest.sequence}, and no end"
            self._doubt(reason, latest.at + latest.interval_ms, self._reports, [])

    def _doubt(
        self, reason: str, until: float, before: Sequence[AuditReport], after: Sequence[AuditReport]
    ) -> None:
        self.incomplete = self.incomplete or reason
        self.doubts.append(_Doubt(until, before, after))

    @property
    def is_live(self) -> bool:
        """Whether more reports may come."""
        return not self.ended and not self.incomplete

    def counts(self) -> Iterator[AuditCount]:
        for report in self._reports:
            yield from report.counts


_Counts = defaultdict[_Partition, list[AuditCount]]


class _Side:
    """The counts of one side in one bucket."""

    def __init__(self) -> None:
        self.records = self.bytes = self.other = self.late = self.given_up = self.aborted = 0
        self.by_partition: _Counts = defaultdict(list)
        """The counts of records with an offset, which are compared with the other side."""
        self.aborted_by_partition: _Counts = defaultdict(list)
        self.undecided_by_partition: _Counts = defaultdict(list)

    def add(self, count: AuditCount, *, main: str) -> None:
        partition = count.topic, count.partition
        if count.given:  # these records were counted as consumed too
            self.given_up += count.records
        elif count.outcome == main:
            self.records += count.records
            self.bytes += count.bytes
            self.late += count.late
            self.by_partition[partition].append(count)
        elif count.outcome == "aborted":
            self.aborted += count.records
            self.aborted_by_partition[partition].append(count)
        elif count.outcome == "undecided":
            self.undecided_by_partition[partition].append(count)
        else:
            self.other += count.records
            if main != "delivered":  # records that were not delivered have no offset
                self.by_partition[partition].append(count)


def _of_topic(topic: str, sessions: Sequence[_Session], now_ms: int) -> Iterator[Reconciled]:
    producers = [session for session in sessions if session.side == "producer"]
    consumers: defaultdict[str | None, list[_Session]] = defaultdict(list)
    for session in sessions:
        if session.side == "consumer" and any(count.topic == topic for count in session.counts()):
            consumers[session.group].append(session)
    for session in sessions:
        # A session that crashed before its first report may have read any topic.
        of_group = consumers.get(session.group, []) if session.side == "consumer" else []
        if of_group and session.doubts and session not in of_group:
            of_group.append(session)
    produced = _by_bucket(topic, producers, "delivered")
    groups: list[str | None] = sorted(consumers, key=lambda name: name or "") or [None]
    for group in groups:
        yield from _of_group(topic, group, produced, producers, consumers.get(group, []), now_ms)


def _of_group(
    topic: str,
    group: str | None,
    produced: dict[int, _Side],
    producers: Sequence[_Session],
    consumers: Sequence[_Session],
    now_ms: int,
) -> Iterator[Reconciled]:
    read = _by_bucket(topic, consumers, "consumed")
    all_got = _offsets_of_all(side.by_partition for side in read.values())
    all_sent = _offsets_of_all(side.by_partition for side in produced.values())
    all_aborted = _offsets_of_all(side.aborted_by_partition for side in produced.values())
    all_undecided = _offsets_of_all(side.undecided_by_partition for side in produced.values())
    bucket_ms = max(session.bucket_ms for session in (*producers, *consumers))
    latest_ms = max((session.latest_ms for session in consumers), default=0)
    due_ms = max((session.interval_ms for session in producers if session.is_live), default=0)
    doubts = [doubt for session in consumers for doubt in session.doubts]
    for bucket in sorted({*produced, *read}):
        end = bucket + bucket_ms
        sent, got = produced.get(bucket, _Side()), read.get(bucket, _Side())
        found = _Found()
        undecided = 0
        for partition, counts in sent.undecided_by_partition.items():
            left = _without(_offsets(counts), all_sent.get(partition, ()))
            undecided += _length(_without(left, all_aborted.get(partition, ())))
        for partition in {*sent.by_partition, *got.by_partition}:
            here, there = sent.by_partition[partition], got.by_partition[partition]
            aborted, unsure = all_aborted.get(partition, ()), all_undecided.get(partition, ())
            in_doubt = [covered for each in doubts if (covered := each.covers(partition, bucket)) is not None]
            elsewhere = sent.aborted_by_partition.get(partition, ())
            if any(count.offsets is None for count in (*here, *there, *elsewhere)):
                found.add_numbers(here, there, in_doubt=bool(in_doubt), is_read=latest_ms >= end)
            else:
                # Compare with all buckets, because producers' and consumers' buckets may differ in length.
                found.add_repeated(there, all_sent.get(partition, ()), aborted, unsure)
                found.add_missing(_offsets(here), all_got.get(partition, ()), in_doubt)
        yield Reconciled(
            topic=topic,
            group=group,
            bucket=bucket,
            bucket_ms=bucket_ms,
            produced=sent.records,
            produced_bytes=sent.bytes,
            aborted=sent.aborted,
            undecided=undecided,
            failed=sent.other,
            consumed=got.records,
            consumed_bytes=got.bytes,
            stopped=got.other,
            given_up=got.given_up,
            uncommitted=found.uncommitted,
            late=got.late,
            open=now_ms < end + due_ms or (undecided > 0 and any(each.is_live for each in producers)),
            lost=found.lost,
            pending=found.pending,
            unknown=found.unknown,
            duplicated=found.duplicated,
            unreported=found.unreported,
            exact=found.exact,
        )


class _Found:
    """The result of comparing the partitions of one bucket."""

    def __init__(self) -> None:
        self.lost = self.pending = self.unknown = self.duplicated = self.unreported = 0
        self.uncommitted = 0
        self.exact = True

    def add_numbers(
        self, sent: Sequence[AuditCount], got: Sequence[AuditCount], *, in_doubt: bool, is_read: bool
    ) -> None:
        """Compare the numbers of records in a partition whose offsets are not known."""
        self.exact = False
        missing = sum(count.records for count in sent) - sum(count.records for count in got)
        self.duplicated += max(0, -missing)
        if missing > 0:
            self.pending += 0 if is_read else missing
            self.unknown += missing if is_read and in_doubt else 0
            self.lost += missing if is_read and not in_doubt else 0

    def add_repeated(
        self, got: Sequence[AuditCount], all_sent: Ranges, aborted: Ranges, undecided: Ranges
    ) -> None:
        """Add the records that were repeated, of aborted transactions, or not reported by a producer."""
        read = _offsets(got)
        self.duplicated += max(0, sum(count.records for count in got) - _length(read))
        committed = _without(read, aborted)
        self.uncommitted += _length(read) - _length(committed)
        self.unreported += _length(_without(_without(committed, all_sent), undecided))

    def add_missing(self, sent: Ranges, all_got: Ranges, in_doubt: Sequence[tuple[float, float]]) -> None:
        """Add the records that were delivered and not read."""
        reached = all_got[-1][1] if all_got else -1
        for first, last in _without(sent, all_got):
            # Each range lies between two records that were read, or after the last of them.
            if first > reached:
                self.pending += last - first + 1
                continue
            doubtful = [
                (int(max(first, low)), int(min(last, high)))
                for low, high in in_doubt
                if max(first, low) <= min(last, high)
            ]
            unknown = _length(united(doubtful))
            self.unknown += unknown
            self.lost += last - first + 1 - unknown


def _by_bucket(topic: str, sessions: Iterable[_Session], main: str) -> dict[int, _Side]:
    found: dict[int, _Side] = {}
    for session in sessions:
        for count in session.counts():
            if count.topic == topic:
                found.setdefault(count.bucket, _Side()).add(count, main=main)
    return found


def _offsets_of_all(buckets: Iterable[_Counts]) -> dict[_Partition, Ranges]:
    """Return the offsets of all buckets, by partition."""
    found: _Counts = defaultdict(list)
    for bucket in buckets:
        for partition, counts in bucket.items():
            found[partition].extend(counts)
    return {partition: _offsets(counts) for partition, counts in found.items()}


def _offsets(counts: Iterable[AuditCount]) -> Ranges:
    return united([each for count in counts for each in count.offsets or ()])


def _extremes(reports: Sequence[AuditReport], which: Callable[..., int]) -> dict[_Partition, int]:
    found: dict[_Partition, int] = {}
    for report in reports:
        for count in report.counts:
            for each in count.offsets or ():
                partition = count.topic, count.partition
                found[partition] = which(found.get(partition, each[0]), *each)
    return found


def _length(ranges: Ranges) -> int:
    return sum(last - first + 1 for first, last in ranges)


def _without(ranges: Ranges, others: Ranges) -> Ranges:
    """Return the offsets in ``ranges`` that are not in ``others``; both are ascending and disjoint."""
    left: list[tuple[int, int]] = []
    index = 0
    for first, last in ranges:
        at = first
        while index < len(others) and others[index][1] < at:
            index += 1
        further = index
        while further < len(others) and others[further][0] <= last:
            if others[further][0] > at:
                left.append((at, others[further][0] - 1))
            at = others[further][1] + 1
            further += 1
        if at <= last:
            left.append((at, last))
    return tuple(left)
