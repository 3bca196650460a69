"""Count the usage of topics in one process, each run from where the last run ended.

A run reads each topic up to the end that the topic has when the run begins. After every 100,000 records, it
stores the sums of incoming traffic together with the offsets up to which records are counted. A run that is
killed therefore loses little work and no count.

Reads are counted by committed offsets. A run takes the committed offsets of groups, and counts the records
between these offsets and the offsets that the last run took. A lagging group reads records that an earlier
run already counted as incoming. This run reads those records again and counts only the group's reads, so it
begins at the offset of the group that lagged most.

Records of aborted and open transactions count too, because the brokers carried them; Spark's connector also
reads them. A different ``isolation.level`` in the settings takes precedence.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from confluent_kafka import KafkaException

from headerware.core.errors import ConfigError, HeaderwareError, WireFormatError, position
from headerware.core.headers import EMPTY
from headerware.core.patterns import fits
from headerware.core.topics import TopicPatterns
from headerware.interceptors.audit import AuditReport, decode_report, united
from headerware.kafka.admin import Admin
from headerware.kafka.messages import is_readable, record_of
from headerware.kafka.reader import TopicReader
from headerware.ops.audit.accounts import Account, account_usage, decode_account
from headerware.ops.audit.reports import audit_usage
from headerware.ops.chargeback.kept import CountedRange, KeptUsage, Moment, Position
from headerware.ops.chargeback.reads import Covered, ReadRange, reads_between
from headerware.ops.chargeback.rules import (
    HOUR_SECONDS,
    Line,
    Sum,
    added,
    hour_number,
    name_of_owner,
    name_of_producer,
    named_reader,
    require_zone,
    slice_header,
)
from headerware.ops.chargeback.sizes import record_bytes
from headerware.registry.names import default_names

if TYPE_CHECKING:
    from confluent_kafka import Message

    from headerware.kafka.reader import Progress
    from headerware.ops.chargeback.usage import Usage

_GROUP: Final = "headerware-chargeback"
_STORE_EVERY_RECORDS: Final = 100_000
_STORE_EVERY_REPORTS: Final = 10_000
_AUDIT: Final = "audit:"
"""The prefix under which the offsets of an audit topic's reports are stored; the topic's own traffic has
separate offsets."""
_INTERNAL: Final = "__"
"""The prefix of the names of Kafka's own topics, which patterns do not match."""


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers that a run has counted.

    Args:
        topics: the topics, in order.
        records: the incoming records since the last run.
        bytes: the size of these records on the wire.
        reports: the new reports of audits and accounts of guards.
        missed: the offsets that were deleted before they were counted, by topic.
    """

    topics: tuple[str, ...]
    records: int = 0
    bytes: int = 0
    reports: int = 0
    missed: Mapping[str, int] = {}


def count_usage(
    conf: Mapping[str, Any],
    topics: Iterable[str],
    kept: KeptUsage,
    *,
    groups: Iterable[str] | None = ("*",),
    audit_topics: Iterable[str] = (),
    timeout_s: float = 60.0,
    on_progress: Callable[[str, Progress], object] | None = None,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Counted:
    """Count the records that topics got, and that groups read, since the last run, and store the sums.

    Args:
        conf: the settings of a client of confluent-kafka.
        topics: names or patterns of topics; patterns do not match Kafka's own topics.
        kept: the file that stores the sums.
        groups: patterns of the consumer groups whose reads are counted by their committed offsets; None
            counts no reads.
        audit_topics: the topics with the reports of consumers' ``audit``, and with the accounts of guards.
        timeout_s: how long the cluster may be without an answer, in seconds.
        on_progress: called with a topic and how far the topic was read.
        clock: returns the current time, with a time zone; the time is stored with the groups' offsets.

    Returns:
        The numbers that are new since the last run.

    Raises:
        ConfigError: a name or pattern matches no topic, a topic was recreated since the last run, the file
            has the usage of another cluster, or the clock's time has no time zone.
        HeaderwareError: another process counts into the same file, or the timeout has passed.
        confluent_kafka.KafkaException: the cluster does not answer, or refuses a request.
    """
    admin = Admin(conf, timeout_s=timeout_s)
    found = admin.metadata()
    kept.require_cluster(found.cluster_id)
    names = _matching(topics, found.topics)
    now: Moment | None = None
    if groups is not None:
        at = clock()
        require_zone(at, "clock")
        now = Moment(at, _group_offsets(admin, TopicPatterns(groups), frozenset(names)))
    settings = {"isolation.level": "read_uncommitted", **conf}
    runs = []
    for name in names:
        run = _TopicRun(kept, name, now)
        with TopicReader(settings, name, group_id=_GROUP, timeout_s=timeout_s) as reader:
            run.read(reader, None if on_progress is None else on_progress)
        runs.append(run)
    missed = {run.topic: run.missed for run in runs if run.missed}
    reports = 0
    for name in dict.fromkeys(audit_topics):
        audit = _AuditRun(kept, name)
        audit.read(conf, timeout_s)
        reports += audit.reports
        if audit.missed:
            missed[name] = missed.get(name, 0) + audit.missed
    return Counted(
        topics=tuple(names),
        records=sum(run.records for run in runs),
        bytes=sum(run.size_bytes for run in runs),
        reports=reports,
        missed=missed,
    )


class _TopicRun:
    """One run over one topic."""

    def __init__(self, kept: KeptUsage, topic: str, now: Moment | None) -> None:
        self.topic: Final = topic
        self.records = self.size_bytes = self.missed = 0
        self._kept: Final = kept
        self._now: Final = now
        self._before: Final = None if now is None else kept.moment(topic)
        self._named: Final = named_reader(default_names())
        self._positions: Final = _positions(kept, topic)

    def read(self, reader: TopicReader, on_progress: Callable[[str, Progress], object] | None) -> None:
        """Count the new records, and store the sums."""
        reader.start(offsets=self._starts(reader.partitions))
        bounds = reader.bounds
        unstored = _start_counts(self.topic, self._positions, bounds)
        self.missed = sum(each.missed for each in unstored.values())
        covered = [Covered(self.topic, partition, *bounds[partition]) for partition in bounds]
        ranges, rows = self._reads(covered)
        incoming, reads = _Sums(self.topic), _Sums(self.topic)
        for batch in reader.to_end(each_batch=True):
            for message in batch:
                self._count(message, unstored, ranges.get(message.partition() or 0, ()), incoming, reads)
            if incoming.records >= _STORE_EVERY_RECORDS:
                self._store(incoming, unstored)
                incoming = _Sums(self.topic)
            if on_progress is not None:
                on_progress(self.topic, reader.progress)
        _skip_to_ends(unstored, bounds)
        self._store(incoming, unstored)
        if self._now is not None:
            sums = _merged(chain(reads.lines(), map(_line_of, rows)))
            self._kept.add_moment(self.topic, self._before, self._now, sums)

    def _starts(self, partitions: Sequence[int]) -> dict[int, int]:
        """Return the offset at which to begin in each partition.

        This is the end of the counted records, or the smaller previous offset of a group that has advanced.
        """
        starts = {partition: counted.end for partition, counted in self._positions.items()}
        for (group, topic, partition), offset in (self._before.offsets if self._before else {}).items():
            advanced = self._now is not None and self._now.offsets.get((group, topic, partition), 0) > offset
            if advanced and partition in starts:
                starts[partition] = min(starts[partition], offset)
        return {partition: starts.get(partition, 0) for partition in partitions}

    def _reads(self, covered: Sequence[Covered]) -> tuple[dict[int, list[ReadRange]], Sequence[Usage]]:
        """Return the ranges to count, by partition, and the rows of reads that need no counting."""
        if self._now is None or self._before is None:
            return {}, ()
        later = {reader: offset for reader, offset in self._now.offsets.items() if reader[1] == self.topic}
        found = reads_between(self._before.at, self._before.offsets, later, covered)
        ranges: defaultdict[int, list[ReadRange]] = defaultdict(list)
        for each in found.ranges:
            ranges[each.partition].append(each)
        return ranges, found.rows

    def _count(
        self,
        message: Message,
        unstored: Mapping[int, _Unstored],
        ranges: Sequence[ReadRange],
        incoming: _Sums,
        reads: _Sums,
    ) -> None:
        record = record_of(message)
        partition, offset = record.partition or 0, record.offset or 0
        is_new = offset >= unstored[partition].end
        readers = [each for each in ranges if each.begin <= offset < each.end]
        if not is_new and not readers:
            return
        # The client cannot read header names that are not UTF-8: such a record counts without its headers.
        headers = record.headers if is_readable(record) else EMPTY
        owner, opening, part, broken = self._named(headers)
        hour = None if record.timestamp_ms is None else hour_number(record.timestamp_ms)
        key = _Key(hour, None, owner, opening, broken, *_message(part, partition))
        size = record_bytes(record.key, record.value, headers)
        if is_new:
            incoming.add(key, size)
            self.records += 1
            self.size_bytes += size
            unstored[partition].end = offset + 1
        for each in readers:
            read_hour = int(each.hour.timestamp()) // HOUR_SECONDS
            reads.add(key._replace(hour=read_hour, group=each.group), size)

    def _store(self, incoming: _Sums, unstored: Mapping[int, _Unstored]) -> None:
        self._kept.add(self.topic, _ranges(unstored), _merged(incoming.lines()))
        _begin_after(unstored)


class _Unstored:
    """The offsets of a partition that are counted but not stored yet, from ``begin`` to ``end``."""

    __slots__ = ("begin", "end", "missed")

    def __init__(self, begin: int, missed: int = 0) -> None:
        self.begin = self.end = begin
        self.missed = missed


def _positions(kept: KeptUsage, name: str) -> dict[int, Position]:
    """Return the offsets up to which the partitions of a topic were counted, by partition."""
    return {partition: counted for (_, partition), counted in kept.positions(name).items()}


def _start_counts(
    topic: str, positions: Mapping[int, Position], bounds: Mapping[int, tuple[int, int]]
) -> dict[int, _Unstored]:
    return {
        partition: _uncounted_from(topic, partition, positions.get(partition), begin, end)
        for partition, (begin, end) in bounds.items()
    }


def _uncounted_from(topic: str, partition: int, counted: Position | None, begin: int, end: int) -> _Unstored:
    """Return where counting of a partition begins, and how many offsets were deleted uncounted."""
    if counted is None:
        return _Unstored(begin)
    if counted.end > end:
        raise ConfigError(
            f"{position(topic, partition, None)} ends at offset {end:,}, but was counted up to "
            f"{counted.end:,}: the topic was recreated or truncated; count it into another file. If its "
            "leader was just elected, try again"
        )
    return _Unstored(max(begin, counted.end), max(0, begin - counted.end))


def _skip_to_ends(unstored: Mapping[int, _Unstored], bounds: Mapping[int, tuple[int, int]]) -> None:
    """Count up to the end of each partition, because its last offsets may have no record."""
    for partition, (_, end) in bounds.items():
        unstored[partition].end = max(unstored[partition].end, end)


def _ranges(unstored: Mapping[int, _Unstored]) -> dict[int, CountedRange]:
    return {
        partition: CountedRange(each.begin, each.end, each.missed) for partition, each in unstored.items()
    }


def _begin_after(unstored: Mapping[int, _Unstored]) -> None:
    """Begin the next range after the stored offsets."""
    for each in unstored.values():
        each.begin, each.missed = each.end, 0


class _Key(NamedTuple):
    """The key by which records are summed; names stay bytes here, because decoding each would cost time."""

    hour: int | None
    group: str | None
    owner: bytes | None
    opening: bytes | None
    broken: bool
    partition: int | None
    message: bytes | None
    first: bool


class _Sums:
    """The numbers of records and bytes by key, and the total number of records."""

    def __init__(self, topic: str) -> None:
        self._topic: Final = topic
        self._sums: Final[dict[_Key, list[int]]] = {}
        self.records = 0

    def add(self, key: _Key, size: int) -> None:
        found = self._sums.get(key)
        if found is None:
            self._sums[key] = [1, size]
        else:
            found[0] += 1
            found[1] += size
        self.records += 1

    def lines(self) -> Iterator[tuple[Line, Sum]]:
        """Yield the sums by decoded names; a line may be yielded several times."""
        for key, (records, size) in self._sums.items():
            producer = name_of_producer(key.opening)
            line = Line(
                hour=key.hour,
                topic=self._topic,
                owner=name_of_owner(key.owner),
                producer=producer.name,
                direction="in" if key.group is None else "out",
                group=key.group,
                source="records" if key.group is None else "offsets",
                partition=key.partition,
                message=key.message,
                first=key.first,
            )
            yield line, Sum(records, size, records if key.broken or producer.malformed else 0)


_NO_MESSAGE: Final = (None, None, False)


def _message(part: bytes | None, partition: int) -> tuple[int | None, bytes | None, bool]:
    """Return the partition and id of a slice's message, and whether the slice is the first."""
    if part is None:
        return _NO_MESSAGE
    header = slice_header(part)
    return _NO_MESSAGE if header is None else (partition, header.message_id, header.index == 0)


def _merged(lines: Iterable[tuple[Line, Sum]]) -> dict[Line, Sum]:
    sums: dict[Line, Sum] = {}
    for line, own in lines:
        before = sums.get(line)
        sums[line] = own if before is None else added(before, own)
    return sums


def _line_of(row: Usage) -> tuple[Line, Sum]:
    line = Line(
        hour=None if row.hour is None else int(row.hour.timestamp()) // HOUR_SECONDS,
        topic=row.topic,
        owner=row.owner,
        producer=row.producer,
        direction=row.direction,
        group=row.group,
        source=row.source,
    )
    return line, Sum(row.records, row.bytes)


def _matching(topics: Iterable[str], existing: Mapping[str, Any]) -> list[str]:
    """Return the topics that names or patterns match, in order; raise ConfigError if one matches no topic."""
    found: set[str] = set()
    for each in dict.fromkeys(topics):
        if each in existing:
            found.add(each)
            continue
        matched = {name for name in existing if fits(each, name) and not name.startswith(_INTERNAL)}
        if not matched:
            raise ConfigError(f"the cluster has no topic with the name or pattern {each!r}")
        found |= matched
    return sorted(found)


def _group_offsets(
    admin: Admin, groups: TopicPatterns, topics: frozenset[str]
) -> dict[tuple[str, str, int], int]:
    """Return the committed offsets of groups, by group, topic and partition."""
    found = admin.committed(group for group in admin.groups() if groups.matches(group))
    return {key: offset for key, offset in found.items() if key[1] in topics}


class _AuditRun:
    """One run over an audit topic."""

    def __init__(self, kept: KeptUsage, topic: str) -> None:
        self.reports = self.missed = 0
        self._kept: Final = kept
        self._topic: Final = topic
        self._name: Final = _AUDIT + topic
        self._positions: Final = _positions(kept, self._name)

    def read(self, conf: Mapping[str, Any], timeout_s: float) -> None:
        """Count each new report once, and store the sums."""
        committed = {**conf, "isolation.level": "read_committed"}
        try:
            with TopicReader(committed, self._topic, group_id=_GROUP, timeout_s=timeout_s) as reader:
                reader.start(offsets={partition: each.end for partition, each in self._positions.items()})
                self._read(reader)
        except KafkaException as error:
            raise HeaderwareError(
                f"the audit topic {self._topic!r} cannot be read: {error.args[0].str()}"
            ) from error

    def _read(self, reader: TopicReader) -> None:
        unstored = _start_counts(self._topic, self._positions, reader.bounds)
        self.missed = sum(each.missed for each in unstored.values())
        reports: list[AuditReport | Account] = []
        for batch in reader.to_end(each_batch=True):
            for message in batch:
                unstored[message.partition() or 0].end = (message.offset() or 0) + 1
            reports += _reports(batch)
            if len(reports) >= _STORE_EVERY_REPORTS:
                self._store(reports, unstored)
                reports = []
        _skip_to_ends(unstored, reader.bounds)
        self._store(reports, unstored)

    def _store(self, reports: Sequence[AuditReport | Account], unstored: Mapping[int, _Unstored]) -> None:
        new: list[AuditReport] = []
        # An account is committed exactly once; a report may be repeated.
        accounts = [each for each in reports if isinstance(each, Account)]
        sequences: dict[str, tuple[tuple[int, int], ...]] = {}
        for report in reports:
            if isinstance(report, Account):
                continue
            if report.session not in sequences:
                sequences[report.session] = self._kept.sequences(report.session)
            counted = sequences[report.session]
            if not any(first <= report.sequence <= last for first, last in counted):
                sequences[report.session] = united([*counted, (report.sequence, report.sequence)])
                new.append(report)
        sums = _merged(map(_line_of, chain(audit_usage(new), account_usage(accounts))))
        self._kept.add(self._name, _ranges(unstored), sums, sequences=sequences)
        _begin_after(unstored)
        self.reports += len(new) + len(accounts)


def _reports(messages: Iterable[Message]) -> Iterator[AuditReport | Account]:
    """Yield the reports of consumers and the accounts of guards; skip other records."""
    return (found for message in messages if (found := _report_of(message)) is not None)


def _report_of(message: Message) -> AuditReport | Account | None:
    """Return the report of a consumer or the account of a guard; None for another record."""
    try:
        return decode_account(message.value())
    except WireFormatError:
        pass  # it may be a report
    try:
        report = decode_report(message.value())
    except WireFormatError:
        return None
    return report if report.side == "consumer" else None
