"""Audit: counts of what was sent and read, so that both ends can be compared (spec/audit.md).

Each session counts records by topic, partition, outcome and time bucket, with their offsets. It reports the
counts at intervals to a topic, and as sums to OpenTelemetry. The bucket is chosen by the record's timestamp
in the topic, which the producer knows from the delivery report and the consumer from the record. So both ends
use the same bucket, even if the broker sets the timestamp.
"""

from __future__ import annotations

import logging
import os
import socket
from collections import deque
from functools import partial
from itertools import pairwise
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

import msgspec
from opentelemetry.metrics import get_meter

from headerware.core.dead_letter import PROCESSING
from headerware.core.errors import WireFormatError, cause_of
from headerware.core.hooks import Interceptor, Place, Role
from headerware.core.interrupts import pass_on_interrupt
from headerware.core.printable import without_values
from headerware.core.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headerware.core.context import Context
    from headerware.core.record import Operation, RecordMetadata
    from headerware.core.services import Direction

Outcome = Literal[
    "delivered",
    "aborted",
    "undecided",
    "failed",
    "consumed",
    "dropped",
    "dead_lettered",
    "refused",
    "skipped",
]
"""Producers count delivered, aborted, undecided, failed, dropped; consumers all others, and dropped."""
VERSION: Final = 2
"""The version of reports; reports of version 1 also count the bytes of headers."""
VERSIONS: Final = frozenset({1, VERSION})
"""The versions that can be read."""
_PRODUCER_DROPS: Final = "POLICY_VIOLATION"
"""The code with which a producer acknowledges a record that an interceptor dropped."""
_STOPPED: Final = frozenset({"dropped", "dead_lettered", "refused"})
"""The outcomes after which a record does not come again."""
_GIVEN_UP: Final = frozenset({"skipped", "dead_lettered"})
"""The outcomes of records that ``run`` could not process."""
_ENDS: Final[Mapping[str, Outcome]] = {
    "begin_transaction": "undecided",  # it is unknown how the previous transaction ended
    "commit_transaction": "delivered",
    "abort_transaction": "aborted",
}
"""The outcome of the records of a transaction, by the call that shows it."""
_MAX_RANGES: Final = 10_000
"""The largest number of ranges of one count."""
_MAX_ALL_RANGES: Final = 100_000
"""The largest number of ranges of all counts between two reports."""
_COUNT_WEIGHT, _REPORT_WEIGHT = 8, 20_000
"""The weight of a count without its ranges, and the largest weight of a report, which is then below 1 MB."""
_MAX_WAITING: Final = 1_000
"""The largest number of reports that wait because they could not be published."""
_MAX_TOPICS: Final = 1_000
_OTHER: Final = "_OTHER"
_log: Final = logging.getLogger("headerware")


class AuditCount(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Records of one topic, partition, time bucket and outcome.

    Args:
        topic: the topic on the wire.
        partition: the partition; None if the record never got one.
        bucket: when the bucket begins, in milliseconds since the epoch.
        outcome: the outcome.
        cause: the name of the error, for ``failed``, ``dead_lettered``, ``refused`` and ``skipped``.
        given: whether the application had got the records before; then they are counted as ``consumed``, too.
        records: how many records.
        bytes: the size of their keys and values as this interceptor saw them.
        late: how many of them were consumed later than allowed.
        offsets: their offsets as ascending, disjoint ranges, both ends included; None if they are not known.
            The offset of a record that was read twice is in the ranges once.
    """

    topic: str
    partition: int | None = None
    bucket: int
    outcome: Outcome
    cause: str | None = None
    given: bool = False
    records: Annotated[int, msgspec.Meta(ge=0)]
    bytes: Annotated[int, msgspec.Meta(ge=0)]
    late: Annotated[int, msgspec.Meta(ge=0)] = 0
    offsets: tuple[tuple[int, int], ...] | None = None


class AuditReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The counts of a session since its previous report.

    Args:
        v: the version of the layout.
        session: the session, 16 random hexadecimal digits.
        sequence: the number of the report in its session, from 0 on.
        side: ``producer`` or ``consumer``.
        service: the service that counts.
        group: the consumer group, or None.
        at: when the report was written, in milliseconds since the epoch.
        interval_ms: how long the session waits between reports.
        bucket_ms: the length of a bucket.
        last: whether the session has ended.
        left_out: how many records were not counted, for lack of room.
        counts: the counts.
    """

    v: int
    session: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]
    sequence: Annotated[int, msgspec.Meta(ge=0)]
    side: Literal["producer", "consumer"]
    service: str
    group: str | None = None
    at: int
    interval_ms: Annotated[int, msgspec.Meta(gt=0)]
    bucket_ms: Annotated[int, msgspec.Meta(gt=0)]
    last: bool = False
    left_out: Annotated[int, msgspec.Meta(ge=0)] = 0
    counts: tuple[AuditCount, ...] = ()


_decoder: Final = msgspec.json.Decoder(AuditReport)


def decode_report(value: bytes | None) -> AuditReport:
    """Read a report.

    Raises:
        WireFormatError: the value is not a report, or has another version.
    """
    try:
        report = _decoder.decode(value or b"")
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        problem = without_values(error)
        raise WireFormatError(f"expected a report of an audit, found something else: {problem}") from None
    if report.v not in VERSIONS:
        raise WireFormatError(
            f"expected a report of an audit of version {VERSION} or lower, found version {report.v}"
        )
    for count in report.counts:
        ranges = count.offsets or ()
        ordered = all(0 <= first <= last for first, last in ranges)
        if not ordered or any(last >= first for (_, last), (first, _) in pairwise(ranges)):
            raise WireFormatError("expected ascending, disjoint ranges of offsets in a report of an audit")
    return report


class Audit(Interceptor, frozen=True, kw_only=True):
    """Count what is sent and read, by topic, partition, time bucket and outcome.

    Both ends count the application's records: a message in slices is one record, and its size is that of key
    and value before compression. Reports are published in addition to the application's own records, and no
    call waits for them. Reports that cannot be published are kept and tried again, and given up over a limit;
    ``headerware audit compare`` distinguishes unknown records from lost ones. A crash loses the counts since
    the last report.

    Records of a transaction count as ``delivered`` once it is committed, or as ``aborted``. Until then, and
    if the end of the transaction never becomes known, they count as ``undecided``.

    On send a record without a timestamp gets the current time, so that all slices of a message have the same.

    Args:
        audit_topic: the topic for reports; None publishes none. Records of this topic are not counted.
            Everybody who may write to the topic can forge counts, so limit that by its ACLs.
        service: the name of the service that counts; None means the client's id, or the host's name.
        bucket_s: the length of a time bucket in seconds. It must be the same on both ends.
        interval_s: how often counts are reported, in seconds.
        late_after_s: how many seconds after its timestamp a consumed record counts as late.
        max_counts: how many counts a session keeps between two reports; further records are counted in
            ``left_out`` only.

    Safe for use by several threads at once.
    """

    type: ClassVar[str] = "audit"
    role: ClassVar[Role] = Role.OBSERVE
    place: ClassVar[Place | None] = Place.AUDIT

    audit_topic: Annotated[str, msgspec.Meta(min_length=1)] | None = "headerware-audit"
    service: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    bucket_s: Annotated[int, msgspec.Meta(ge=1, le=86_400)] = 60
    interval_s: Annotated[int, msgspec.Meta(ge=1, le=86_400)] = 30
    late_after_s: Annotated[int, msgspec.Meta(ge=1)] = 300
    max_counts: Annotated[int, msgspec.Meta(ge=1)] = 10_000

    def open(self, context: Context) -> _AuditStep:
        """Return the hooks for one session."""
        return _AuditStep(self, context)


class _Passing(msgspec.Struct, gc=False):
    """The facts of a consumed record, kept until the application gets the record; it is counted once."""

    topic: str
    partition: int | None
    offset: int | None
    timestamp_ms: int | None
    size: int
    counted: bool = False


class _Count:
    """One count, to which records are added."""

    __slots__ = ("late", "ranges", "records", "size")

    def __init__(self) -> None:
        self.records = self.size = self.late = 0
        self.ranges: list[list[int]] | None = []
        """Ranges of offsets, in the order of arrival; None if they are not known."""


_Key = tuple[str, int | None, int, Outcome, str | None, bool]


class _Counts:
    """The counts since the last report; the caller has the lock."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._ranges = 0
        self.left_out = 0
        self._by_key: dict[_Key, _Count] = {}

    def add(self, key: _Key, size: int, offset: int | None, *, late: bool = False) -> None:
        if offset is not None and offset < 0:
            offset = None
        count = self._by_key.get(key)
        if count is None:
            if len(self._by_key) >= self._most:
                self.left_out += 1
                return
            count = self._by_key[key] = _Count()
        count.records += 1
        count.size += size
        count.late += late
        ranges = count.ranges
        if ranges is None:
            return
        if offset is None:
            count.ranges = None
        elif ranges and ranges[-1][1] + 1 == offset:
            ranges[-1][1] = offset
        else:
            ranges.append([offset, offset])
            self._ranges += 1
            self._bound(count, ranges)

    def take(self, others: _Counts, outcome: Outcome) -> None:
        """Add held counts, whose outcome is known now."""
        self.left_out += others.left_out
        for (topic, partition, bucket, _, cause, given), held in others._by_key.items():
            self._add_up((topic, partition, bucket, outcome, cause, given), held)

    def _add_up(self, key: _Key, held: _Count) -> None:
        count = self._by_key.get(key)
        if count is None:
            if len(self._by_key) >= self._most:
                self.left_out += held.records
                return
            count = self._by_key[key] = _Count()
        count.records += held.records
        count.size += held.size
        count.late += held.late
        if count.ranges is None or held.ranges is None:
            self._ranges -= len(count.ranges or ())
            count.ranges = None
        else:
            count.ranges += held.ranges
            self._ranges += len(held.ranges)
            self._bound(count, count.ranges)

    def add_row(self, row: AuditCount) -> None:
        """Add a count that was made elsewhere."""
        held = _Count()
        held.records, held.size, held.late = row.records, row.bytes, row.late
        held.ranges = None if row.offsets is None else [list(each) for each in row.offsets]
        self._add_up((row.topic, row.partition, row.bucket, row.outcome, row.cause, row.given), held)

    def _bound(self, count: _Count, ranges: list[list[int]]) -> None:
        """Merge the ranges of a count if there are too many, and drop them if there still are too many."""
        if len(ranges) <= _MAX_RANGES and self._ranges <= _MAX_ALL_RANGES:
            return
        merged = [[first, last] for first, last in united(ranges)]
        self._ranges -= len(ranges) - len(merged)
        # Half of the limits, because otherwise each further range would cause another merge.
        fits = len(merged) <= _MAX_RANGES // 2 and self._ranges <= _MAX_ALL_RANGES // 2
        count.ranges = merged if fits else None
        self._ranges -= 0 if fits else len(merged)

    def rows(self, held: Outcome | None = None) -> Iterator[AuditCount]:
        """Yield the counts; ``held`` is the outcome of counts whose outcome is not known yet."""
        for (topic, partition, bucket, outcome, cause, given), count in self._by_key.items():
            known = count.ranges is not None and partition is not None
            yield AuditCount(
                topic=topic,
                partition=partition,
                bucket=bucket,
                outcome=held or outcome,
                cause=cause,
                given=given,
                records=count.records,
                bytes=count.size,
                late=count.late,
                offsets=united(count.ranges or ()) if known else None,
            )


class _AuditStep:
    """The hooks of one session."""

    def __init__(self, options: Audit, context: Context) -> None:
        self._options = options
        self._context = context
        self._local_name = options.name or options.type
        self._session = os.urandom(8).hex()
        self._service = options.service or context.client_id or socket.gethostname() or "?"
        self._bucket_ms, self._late_ms = options.bucket_s * 1000, options.late_after_s * 1000
        self._post = context.post if options.audit_topic is not None else None
        self._lock = Lock()
        self._counts = _Counts(options.max_counts)
        self._held = _Counts(options.max_counts)
        """The records of the open transaction that were delivered; used by transactional clients only."""
        self._holds = context.transactional
        self._next_report_ms = 0
        self._sequence = self._published = self._failures = self._given_up = self._left_out = 0
        self._waiting: deque[Record] = deque()
        self._topics: set[str] = set()
        meter = get_meter("headerware")
        self._records = meter.create_counter("headerware.audit.records", "{record}", "Records by outcome.")
        self._bytes = meter.create_counter("headerware.audit.size", "By", "Bytes of records by outcome.")

    # Counting

    def on_send(self, record: Record) -> Record:
        """Remember the record's size at this step, and give the record a timestamp."""
        if record.topic == self._options.audit_topic:
            return record
        state = {self._local_name: _size_of(record)}
        return Record(  # not by replace(), which costs as much as the rest of this hook
            record.topic,
            record.value,
            record.key,
            record.headers,
            record.partition,
            self._context.now_ms() if record.timestamp_ms is None else record.timestamp_ms,
            record.timestamp_type,
            record.offset,
            record.leader_epoch,
            state if record.local is None else {**record.local, **state},
        )

    def on_acknowledgement(
        self, record: Record, metadata: RecordMetadata | None, error: BaseException | None
    ) -> None:
        """Count a record by its outcome."""
        if record.topic == self._options.audit_topic:
            return
        size = None if record.local is None else record.local.get(self._local_name)
        if size is None:
            size = _size_of(record)
        partition, offset, timestamp = record.partition, record.offset, record.timestamp_ms
        if metadata is not None:
            partition, offset = metadata.partition, metadata.offset if error is None else None
            if metadata.timestamp_ms is not None:
                timestamp = metadata.timestamp_ms
        outcome: Outcome = "delivered"
        cause = None
        if error is not None:
            cause = cause_of(error)
            if partition is not None and partition < 0:
                partition = None
            outcome = "dropped" if cause == _PRODUCER_DROPS else "failed"
            cause = None if outcome == "dropped" else cause
        if timestamp is None:
            timestamp = self._context.now_ms()
        with self._lock:
            counts = self._held if self._holds and error is None else self._counts
            bucket = timestamp - timestamp % self._bucket_ms
            counts.add((record.topic, partition, bucket, outcome, cause, False), size, offset)

    def on_consume(self, record: Record) -> Record:
        """Remember topic, time and size at this step, until the application gets the record."""
        if record.topic == self._options.audit_topic:
            return record
        passing = _Passing(
            record.topic, record.partition, record.offset, record.timestamp_ms, _size_of(record)
        )
        return record.with_local(self._local_name, passing)

    def on_operation(self, operation: Operation) -> None:
        """Count the records that the application gets, or those of a transaction that ends."""
        if operation.name != "receive":
            outcome = _ENDS.get(operation.name)
            if outcome is not None and operation.error is None:  # a failed call is tried again, or given up
                with self._lock:
                    self._count_held(outcome)
            return
        now = self._context.now_ms()
        with self._lock:
            for record in operation.records:
                passing = self._passing_of(record)
                if passing is not None and not passing.counted:  # a step may have made several records of one
                    passing.counted = True
                    self._count(passing, "consumed", None, now)

    def _count_held(self, outcome: Outcome) -> None:
        """Count the held records with their outcome; the caller has the lock."""
        held, self._held = self._held, _Counts(self._options.max_counts)
        self._counts.take(held, outcome)

    def on_stopped(
        self,
        direction: Direction,
        record: Record,
        step: str,
        outcome: str,
        error: BaseException | None,
    ) -> None:
        """Count a consumed record that another step, or ``run``, stopped; sent ones are acknowledged."""
        given = step == PROCESSING and outcome in _GIVEN_UP
        if direction != "consume" or not (given or outcome in _STOPPED):
            return
        passing = self._passing_of(record)
        if passing is not None:
            stopped: Any = outcome
            cause = None if error is None else cause_of(error)
            with self._lock:
                self._count(passing, stopped, cause, self._context.now_ms(), given=given)

    def _passing_of(self, record: Record) -> _Passing | None:
        """Return the facts of a consumed record at this step; None if the record is not counted."""
        passing = None if record.local is None else record.local.get(self._local_name)
        if passing is not None:
            return passing  # type: ignore[no-any-return]  # nobody else has this name
        if record.topic == self._options.audit_topic:
            return None
        return _Passing(record.topic, record.partition, record.offset, record.timestamp_ms, _size_of(record))

    def _count(
        self, passing: _Passing, outcome: Outcome, cause: str | None, now_ms: int, *, given: bool = False
    ) -> None:
        """Count a consumed record; the caller has the lock."""
        timestamp = now_ms if passing.timestamp_ms is None else passing.timestamp_ms
        late = outcome == "consumed" and now_ms - timestamp > self._late_ms
        bucket = timestamp - timestamp % self._bucket_ms
        key = (passing.topic, passing.partition, bucket, outcome, cause, given)
        self._counts.add(key, passing.size, passing.offset, late=late)

    # In the tasks of a batch job, whose driver reports

    def take_counts(self, *, dead_letters: bool) -> dict[str, Any]:
        """Return the counts since the last call, for ``batch_reports`` and ``count_batch`` in the driver.

        ``dead_letters`` says whether refused records become dead letters.
        """
        with self._lock:
            taken, self._counts = self._counts, _Counts(self._options.max_counts)
        rows: Iterator[AuditCount] = taken.rows()
        if dead_letters:
            rows = (
                msgspec.structs.replace(row, outcome="dead_lettered") if row.outcome == "refused" else row
                for row in rows
            )
        return {"counts": tuple(rows), "left_out": taken.left_out}

    def batch_reports(
        self, counts: Sequence[AuditCount] = (), left_out: int = 0, *, session: str, now_ms: int
    ) -> list[Record]:
        """Return the reports of a batch, which is a session of its own; none if nothing was counted."""
        if self._options.audit_topic is None or not (counts or left_out):
            return []
        self._session, self._sequence = session, 0
        parts = list(_parts(self._added_up(counts)))
        ends = [index == len(parts) - 1 for index in range(len(parts))]
        return [
            self._record(part, now_ms, last=is_end, left_out=left_out if is_end else 0)
            for part, is_end in zip(parts, ends, strict=True)
        ]

    def count_batch(self, counts: Sequence[AuditCount] = (), left_out: int = 0) -> None:
        """Add the counts of a batch to the metrics."""
        self._left_out += left_out
        for row in self._added_up(counts):
            self._add_to_metrics(row)

    def _added_up(self, counts: Sequence[AuditCount]) -> list[AuditCount]:
        sums = _Counts(len(counts))
        for count in counts:
            sums.add_row(count)
        return list(sums.rows())

    # Reporting

    def tick(self, now_ms: int) -> None:
        """Report the counts if a report is due."""
        if now_ms >= self._next_report_ms:
            self._report(now_ms)

    def close(self) -> None:
        """Report the remaining counts."""
        self._report(self._context.now_ms(), last=True)

    def stats(self) -> dict[str, int]:
        """Return the counts of reports that were published, failed, were given up, and wait."""
        return {
            "reports_published": self._published,
            "reports_failed": self._failures,
            "reports_given_up": self._given_up,
            "left_out": self._left_out,
            "pending_reports": len(self._waiting),
        }

    def _report(self, now_ms: int, *, last: bool = False) -> None:
        with self._lock:
            self._next_report_ms = now_ms + self._options.interval_s * 1000
            if last:
                self._count_held("undecided")
            counts, self._counts = self._counts, _Counts(self._options.max_counts)
            self._left_out += counts.left_out
            rows = tuple(counts.rows())
            # Each report has all undecided records; their outcome in a later report replaces them.
            undecided = tuple(self._held.rows("undecided"))
            if self._post is not None:
                parts = list(_parts((*rows, *undecided)))
                for index, part in enumerate(parts):
                    is_end = index == len(parts) - 1
                    left_out = counts.left_out if is_end else 0
                    self._waiting.append(self._record(part, now_ms, last=last and is_end, left_out=left_out))
        for row in rows:
            self._add_to_metrics(row)
        self._publish()

    def _record(self, counts: tuple[AuditCount, ...], now_ms: int, *, last: bool, left_out: int) -> Record:
        report = AuditReport(
            v=VERSION,
            session=self._session,
            sequence=self._sequence,
            side=self._context.side or "consumer",
            service=self._service,
            group=self._context.group_id,
            at=now_ms,
            interval_ms=self._options.interval_s * 1000,
            bucket_ms=self._bucket_ms,
            last=last,
            left_out=left_out,
            counts=counts,
        )
        self._sequence += 1
        topic = self._options.audit_topic or ""
        return Record(topic, msgspec.json.encode(report), self._session.encode(), timestamp_ms=now_ms)

    def _publish(self) -> None:
        """Queue the waiting reports while there is room, without blocking."""
        post = self._post
        while post is not None and self._waiting:
            try:
                record = self._waiting.popleft()
            except IndexError:  # another thread took it
                return
            try:
                post(record, partial(self._done, record))
            except Exception as error:  # noqa: BLE001 - no failure of ours reaches the application
                pass_on_interrupt(error)
                self._done(record, error)
                return

    def _done(self, record: Record, error: BaseException | None) -> None:
        if error is None:
            self._published += 1
            return
        self._failures += 1
        if self._failures == 1:
            _log.warning(
                "audit: a report was not published to %s (%s); it is tried again, and further failures are "
                "only counted",
                record.topic,
                cause_of(error),
            )
        self._waiting.appendleft(record)
        while len(self._waiting) > _MAX_WAITING:
            self._waiting.popleft()
            self._given_up += 1

    def _add_to_metrics(self, row: AuditCount) -> None:
        if row.topic not in self._topics and len(self._topics) < _MAX_TOPICS:
            self._topics.add(row.topic)
        attributes = {
            "messaging.destination.name": row.topic if row.topic in self._topics else _OTHER,
            "headerware.service": self._service,
            "headerware.outcome": row.outcome,
        }
        if self._context.group_id is not None:
            attributes["messaging.consumer.group.name"] = self._context.group_id
        if row.cause is not None:
            attributes["error.type"] = row.cause
        self._records.add(row.records, attributes)
        self._bytes.add(row.bytes, attributes)


def united(ranges: Sequence[Sequence[int]]) -> tuple[tuple[int, int], ...]:
    """Return ranges in ascending order, with touching ranges merged."""
    found: list[tuple[int, int]] = []
    for first, last in sorted((each[0], each[1]) for each in ranges):
        if found and first <= found[-1][1] + 1:
            if last > found[-1][1]:
                found[-1] = (found[-1][0], last)
        else:
            found.append((first, last))
    return tuple(found)


def _parts(rows: Sequence[AuditCount]) -> Iterator[tuple[AuditCount, ...]]:
    """Yield the counts of each report: at least one, because an empty report shows a live session."""
    part: list[AuditCount] = []
    weight = 0
    for row in rows:
        own = _COUNT_WEIGHT + len(row.offsets or ())
        if part and weight + own > _REPORT_WEIGHT:
            yield tuple(part)
            part, weight = [], 0
        part.append(row)
        weight += own
    yield tuple(part)


def _size_of(record: Record) -> int:
    """Return the length of a record's key and value, where an object counts as 0.

    Headers do not count, because later interceptors add headers on send that the consumer's side sees.
    """
    key, value = record.key, record.value
    size = len(value) if value.__class__ is bytes or value.__class__ is str else 0
    return size + len(key) if key.__class__ is bytes or key.__class__ is str else size
