"""Decide about the records of ingress topics, in order within each partition.

The consuming side of the chain decides about each record, and :mod:`headerware.ops.guard.rules` has further
conditions. An admitted record is sent on unchanged. With a second chain, the result of the first chain goes
through the second chain, and its result is sent.

A message in slices is one unit, which is decided when its last slice comes: either all slices are sent on,
one after another, or all become dead letters. Until then the slices are pending, and other records of the
partition are not delayed. The pending offsets are part of the commit (:mod:`headerware.workers.done`), so
that a restart reads the slices again, and no other records.

A record that cannot be judged or sent yet holds its partition back: the keyring cannot be read, a key service
is down, a topic is missing, or a quota is used up. While any partition is being read again to detect copies,
no new record of any partition is decided, because the record may be a copy of one that is still to be read
again.

The chain gets the next records of a partition together, because that is faster, and because only batches go
through native code. What it makes of them counts for a second. After that, as after a longer pause of the
partition, it gets those that are not decided yet once more, and at first one at a time. So a window that
detects copies may by then have records that are behind the one that waits; they are few against its size.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from contextlib import contextmanager, nullcontext
from itertools import islice
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from headerware.clients.deliveries import Deliveries, JointDelivery, QueuedReports, Report
from headerware.clients.processing import tell_received
from headerware.core.backoff import Backoff
from headerware.core.errors import (
    AdmissionError,
    DelayedError,
    HeaderwareError,
    HeldBackError,
    InterceptorError,
    ReassemblyError,
    WireFormatError,
    position,
)
from headerware.core.hooks import DROP, FanOut, Role
from headerware.core.order import role_of
from headerware.core.printable import counted
from headerware.core.record import VERIFIED, Operation, Record, bytes_of
from headerware.core.runner import flat
from headerware.core.step import LoggedReasons, wrapped
from headerware.interceptors.admission.interceptor import AdmissionStep
from headerware.interceptors.dedup.interceptor import Dedup
from headerware.interceptors.sign import Sign
from headerware.kafka.messages import UnreadHeaders
from headerware.ops.guard.rules import (
    Buckets,
    QuotaError,
    Routes,
    require_admitted,
    require_own_partition,
)
from headerware.workers.done import Done
from headerware.workers.outcomes import Outcome
from headerware.workers.units import Unit, slice_header_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from confluent_kafka import Message, TopicPartition

    from headerware.core.runner import Outcome as Result
    from headerware.core.services import TopicPartitionKey
    from headerware.core.session import Session
    from headerware.interceptors.slice.header import SliceHeader
    from headerware.workers.outcomes import Disposition

Verdict = Literal["admitted", "refused", "dropped"]
MAX_HEADERS: Final = 1_000
"""The default limit for a record's headers; librdkafka reads up to 100,000, which take 14 MB of memory."""
_ASK_AGAIN: Final = 1 << 31
"""More partitions than any topic has, so that the cluster is asked for the number again."""
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 10.0
"""Also limits delays with a known end, because a new policy with a larger quota may apply earlier."""
_LOOK_BACK_MS: Final = 100
_MOST_TOGETHER: Final = 256
"""How many records the chain gets at most at once; fewer if a window that detects copies is small."""
_AHEAD_MS: Final = 1_000
"""How long it counts what the chain makes of records; keyrings and policies are read again as often."""
_log: Final = logging.getLogger("headerware.ops.guard")


class Admitted(NamedTuple):
    """An admitted record.

    Args:
        record: the record that came out of the chain; a message in slices is reassembled.
        delivery: takes the delivery report of each record that is sent, for the steps of a second chain.
    """

    record: Record
    delivery: Report | JointDelivery | None = None


def verdict_of(outcome: Outcome) -> Verdict:
    """Return an outcome's verdict, for counters, accounts and metrics."""
    return _VERDICTS[outcome.disposition]


_VERDICTS: Final[dict[Disposition, Verdict]] = {
    "sent": "admitted",
    "dead_letter": "refused",
    "dropped": "dropped",
}


class _Ready(NamedTuple):
    """A unit that the chain has admitted, and that is not sent on yet."""

    unit: Unit
    admitted: Admitted
    sent: tuple[Record, ...] | None = None


class _Partition:
    """The state of one partition: the records that were read and are not decided."""

    def __init__(self, key: TopicPartitionKey, done: Done, begin: int, start: int) -> None:
        self.key: Final = key
        self.done: Final = done
        self.begin: Final = begin
        """All earlier offsets are done or pending; they are read again only to detect copies of them."""
        self.looks_back = start < begin
        """Whether some of these offsets are still to be read again."""
        self.is_at_end = False
        """Whether the partition was read to its end."""
        self.next = 0
        """The next offset to read."""
        self.slices: dict[int, tuple[SliceHeader, Record]] = {}
        """The slices of incomplete messages, by offset."""
        self.indexes: set[tuple[bytes, int]] = set()
        """The message ids and indexes of these slices, and of some that were removed since the last pass."""
        self.backlog: deque[Record] = deque()
        self.ahead: dict[int, Result] = {}
        """What the chain has made of the next records of the backlog, by offset."""
        self.ahead_until_ms = 0
        """How long that counts, by the session's clock."""
        self.together = _MOST_TOGETHER
        """How many records the chain gets at once; fewer after the partition was held back."""
        self.ready: _Ready | None = None
        self.until = 0.0
        """When the partition continues, by the monotonic clock; 0 if nothing holds it back."""
        self.backoff: Final = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        self.why: HeldBackError | None = None

    def give_up_ready_slices(self) -> None:
        """Put the last slice of a complete message that is not sent yet back among the slices."""
        if self.ready is None or len(self.ready.unit.records) == 1:
            return
        last, self.ready = self.ready.unit.records[-1], None
        header = slice_header_of(last)
        assert header is not None  # noqa: S101 - it has made the message complete
        self.slices[last.offset or 0] = header, last

    def give_up_read_slices(self) -> None:
        """Put slices that were read again, but not judged again yet, back among the slices."""
        left = deque[Record]()
        for record in self.backlog:
            is_pending = _at(record) in self.done.pending(self.key)
            header = slice_header_of(record) if is_pending else None
            if header is None:
                left.append(record)
            else:
                self.slices[_at(record)] = header, record
        self.backlog = left

    def read_slices_again(self) -> None:
        """Put slices back into the backlog, because the chain has forgotten them."""
        ready = () if self.ready is None else self.ready.unit.records
        again = {record.offset or 0: record for record in ready}
        again |= {offset: record for offset, (_, record) in self.slices.items()}
        pending = self.done.pending(self.key)
        self.done.read_again(self.key, [offset for offset in again if offset in pending])
        self.slices, self.indexes, self.ready = {}, set(), None
        self.backlog.extendleft(again[offset] for offset in sorted(again, reverse=True))


class _Hold(Exception):  # noqa: N818 - not a failure
    """The next record of the partition cannot be decided yet."""

    def __init__(self, error: HeldBackError) -> None:
        super().__init__(str(error))
        self.error = error


class Judge:
    """Decide about records; for one caller at a time.

    Args:
        session: the session of the chain that consumes the ingress topics.
        routes: the egress topic of each ingress topic.
        second: the session of a producer's chain for admitted records; None sends records unchanged.
        count_partitions: returns the number of a topic's partitions, or 0 if the topic does not exist; asks
            the cluster again if the known number is less than the second argument.
        partitioner: a partitioner of librdkafka; refuse records that are in another partition than it chooses
            for their key. None permits any partition.
        max_headers: refuse records with more headers.
        waits: whether quotas and failures hold partitions back; a dry run only counts them.
    """

    def __init__(
        self,
        session: Session,
        routes: Routes,
        *,
        second: Session | None = None,
        count_partitions: Callable[[str, int], int],
        partitioner: str | None = None,
        max_headers: int = MAX_HEADERS,
        waits: bool = True,
    ) -> None:
        self._routes: Final = routes
        self._second: Final = second
        self.count_partitions = count_partitions
        self._partitioner: Final = partitioner
        self._max_headers: Final = max_headers
        self._waits: Final = waits
        self._reports: Final = QueuedReports()
        self._deliveries: Final = (
            Deliveries(second, self._reports, only_errors=False)
            if second is not None and second.acknowledges and waits
            else None
        )
        self.done: Final = Done(str(session.context.group_id))
        """The offsets of each partition that are decided."""
        self._partitions: dict[TopicPartitionKey, _Partition] = {}
        self._buckets: Final = Buckets()
        self._looks_back = False
        """Whether a partition may still have offsets to read again."""
        self._kept: set[str] = set()
        """The ingress topics whose dead-letter and audit topics were found to exist in the current pass."""
        self.is_blind = False
        """Whether a partition that should be read again cannot be read now."""
        self._logged: Final = LoggedReasons()
        self.held_back: Final[Counter[str]] = Counter()
        """How often a partition was held back, by the cause."""
        self._bind(session)

    @property
    def _ticking(self) -> list[Session]:
        return [each for each in (self._session, self._second) if each is not None and each.ticks]

    @property
    def is_heard(self) -> bool:
        """Whether any step of the chains is told about commits."""
        second = self._second is not None and self._second.hears_operations
        return self._observes or second or self._deliveries is not None or self._session.hears_commits

    def close(self) -> None:
        """Close the chains."""
        self._session.close()
        if self._second is not None:
            self._second.close()

    def _bind(self, session: Session) -> None:
        self._session = session
        # A step that takes no batches may wait for a service, which is down for the records behind, too.
        takes_batches = all(
            step.hook("on_consume") is None
            or step.hook("on_consume_batch") is not None
            or role_of(step.interceptor) is Role.OBSERVE
            for step in session.steps
        )
        windows = [
            step.interceptor.replay_window if isinstance(step.interceptor, Sign) else step.interceptor.window
            for step in session.steps
            if isinstance(step.interceptor, Sign | Dedup)
        ]
        spared = min(filter(None, windows), default=_MOST_TOGETHER**2) // _MOST_TOGETHER
        self._most_together = min(_MOST_TOGETHER, spared) if takes_batches else 1
        self._admissions = [step.opened for step in session.steps if isinstance(step.opened, AdmissionStep)]
        self._observes = self._waits and (session.hears_operations or session.hears_processing)

    def use(self, session: Session) -> None:
        """Replace the session by another one, between two records."""
        keeps = session.keeps_waiting(self._session)
        self._bind(session)
        for partition in self._partitions.values():
            partition.ahead.clear()
            if not keeps:
                partition.read_slices_again()

    # Partitions

    def begin(
        self,
        key: TopicPartitionKey,
        low: int = 0,
        high: int = 0,
        committed: tuple[int, str] | None = None,
        *,
        earliest: int | None = None,
    ) -> int:
        """Add a partition, and return the offset from which to read it.

        If the partition is read again from an earlier offset, no new record is decided before it was read up
        to the offsets that are not done, or to its end.

        Args:
            key: the partition.
            low: its first offset.
            high: its end.
            committed: the group's committed offset and metadata, or None.
            earliest: the offset from which to read again, to detect copies; None reads nothing again.

        Raises:
            HeaderwareError: the group's offsets belong to another command, or are after the partition's end.
        """
        start = self.done.begin(key, low, high, committed)
        if committed is not None and earliest is not None:
            start = max(low, min(start, earliest))
        partition = _Partition(key, self.done, self.done.position(key), start)
        self._partitions[key] = partition
        self._looks_back = self._looks_back or partition.looks_back
        return start

    def ended(self, topic_partition: TopicPartitionKey) -> None:
        """Mark a partition as read to its current end."""
        if topic_partition in self._partitions:
            self._partitions[topic_partition].is_at_end = True

    def revoke(self, topic_partitions: Iterable[TopicPartitionKey]) -> None:
        """Remove partitions; their uncommitted records are read again, in this process or another."""
        gone = list(topic_partitions)
        self.done.forget(gone)
        for topic_partition in gone:
            partition = self._partitions.pop(topic_partition, None)
            if partition is not None and partition.ready is not None:
                self._failed(
                    partition.ready.admitted, HeldBackError("the partition was assigned to another process")
                )
        self._session.revoke(gone)

    @property
    def assigned(self) -> list[TopicPartitionKey]:
        """The assigned partitions."""
        return list(self._partitions)

    def held(self) -> dict[TopicPartitionKey, HeldBackError]:
        """Return the partitions that are held back now, with the causes."""
        # Iterate over a copy, because other threads may call this while partitions are added or removed.
        return {key: why for key, each in [*self._partitions.items()] if (why := each.why) is not None}

    # Records

    def add(self, record: Record) -> bool:
        """Add a record that was read; return False if a later record of its partition was added before.

        Ignore records of partitions that are not assigned: a batch may have some after a rebalance.
        """
        partition = self._partitions.get((record.topic, record.partition or 0))
        if partition is None:
            return True
        if _at(record) < partition.next:
            return False
        partition.next = _at(record) + 1
        partition.is_at_end = False
        if len(record.headers) > self._max_headers:
            # Drop the headers before the record waits in the backlog: each takes about a hundred bytes.
            where = position(record.topic, record.partition, record.offset)
            why = f"the record has {len(record.headers):,} headers, and max_headers is {self._max_headers:,}"
            record = record.replace(headers=UnreadHeaders(where, why))
        partition.backlog.append(record)
        return True

    def decide(self) -> list[Outcome]:
        """Decide about the added records, as far as possible now."""
        for session in self._ticking:
            session.tick()
        outcomes: list[Outcome] = []
        try:
            self._decide(outcomes)
        except BaseException as failure:
            # No outcome will be committed, so the second chain gets these records again.
            for partition in self._partitions.values():
                partition.ahead.clear()
            for outcome in outcomes:
                self._failed(outcome.about, failure)
            raise
        return outcomes

    def _decide(self, outcomes: list[Outcome]) -> None:
        self._kept.clear()
        self._give_up(outcomes)
        for partition in self._partitions.values():
            if partition.until > time.monotonic():
                continue
            try:
                while partition.ready is not None or partition.backlog:
                    self._next(partition, outcomes)
            except _Hold as hold:
                self._hold(partition, hold.error)
            else:
                self._release(partition)
        self._give_up(outcomes)
        self._refuse_useless_slices(outcomes)

    def _next(self, partition: _Partition, outcomes: list[Outcome]) -> None:
        if partition.ready is None:
            record = partition.backlog[0]
            if _at(record) >= partition.begin:
                partition.looks_back = False
                self._require_copies_known()
                self._require_topics(record.topic)
            found = self._judged(partition, record, outcomes)
            partition.backlog.popleft()
            if not isinstance(found, _Ready):
                self.done.reached(partition.key, _at(record) + 1)
                if found is not None:
                    outcomes.append(found)
                return
            partition.ready = found
        outcomes.append(self._passed_on(partition, partition.ready))

    def _judged(
        self, partition: _Partition, record: Record, outcomes: list[Outcome]
    ) -> Outcome | _Ready | None:
        """Return the chain's decision about a record; None if it is a pending slice or was decided before."""
        offset = record.offset or 0
        is_known = self.done.was_done(partition.key, offset)
        try:
            # Refuse it before the chain, which would remember it and then take the genuine record for a copy.
            self._require_fit(record)
        except InterceptorError as refusal:
            self.done.read(partition.key, offset)
            refusal.at("guard", record)
            return None if is_known else self._decided(self._refused(_unit(record), refusal))
        outcome = self._consumed(partition, record)
        # A reassembled message comes in a list; a single record is not a slice.
        header = None if outcome.__class__ is Record else slice_header_of(record)
        if isinstance(outcome, HeldBackError):
            if header is not None and self._waits:
                # The step that reassembles slices may have counted this slice as seen.
                self._session.revoke([(record.topic, record.partition or 0)])
                partition.read_slices_again()
            self._hold_for(outcome)
            return None
        self.done.read(partition.key, offset)
        if is_known:
            return None
        if header is None:
            return self._verdict(_unit(record), outcome, ())
        if isinstance(outcome, list) and not outcome:
            partition.slices[offset] = header, record
            self.done.note(partition.key, offset, is_pending=True)
            index = header.message_id, header.index
            if index in partition.indexes:
                # One of the two slices is not part of the message.
                key = record.topic, record.partition or 0
                self._refuse_late_slices(partition, self._session.waiting_offsets().get(key, ()), outcomes)
            partition.indexes.add(index)
            return None
        # The chain may have given up other messages to make room for this one.
        self._give_up(outcomes)
        group = self._message_of(partition, header, record)
        headers = [*(partition.slices[_at(each)][0] for each in group), header]
        return self._verdict(_unit(*group, record), outcome, headers)

    def _consumed(self, partition: _Partition, record: Record) -> Result:
        """Return what the chain makes of the first record of the backlog; it may get the next ones, too."""
        now_ms = self._session.context.now_ms()
        if not 0 < partition.ahead_until_ms - now_ms <= _AHEAD_MS:
            partition.ahead.clear()
        if _at(record) in partition.ahead:
            return partition.ahead.pop(_at(record))
        records = self._together(partition)
        partition.together = min(2 * partition.together, _MOST_TOGETHER)
        if len(records) < 2:
            return self._session.consume_outcome(record)
        outcomes = self._session.consume_outcomes(records)
        partition.ahead = dict(zip(map(_at, records), outcomes, strict=True))
        partition.ahead_until_ms = now_ms + _AHEAD_MS
        return partition.ahead.pop(_at(record))

    def _together(self, partition: _Partition) -> list[Record]:
        """Return the first records of the backlog, up to one that is decided otherwise than the first.

        That is a slice, a record that is refused before the chain, or the first one that is not read again.
        """
        backlog, begin = partition.backlog, partition.begin
        is_read_again = _at(backlog[0]) < begin
        records: list[Record] = []
        for record in islice(backlog, min(partition.together, self._most_together)):
            if (is_read_again and _at(record) >= begin) or slice_header_of(record) is not None:
                break
            if records and (_at(record) in partition.ahead or not self._fits(record)):
                break
            records.append(record)
        return records

    def _fits(self, record: Record) -> bool:
        """Return whether a record is known not to be refused before the chain."""
        headers: object = record.headers
        if isinstance(headers, UnreadHeaders):
            return False
        if self._partitioner is None:
            return True
        count = self.count_partitions(record.topic, 1)
        if not count:
            return False
        try:
            require_own_partition(record, self._partitioner, count)
        except AdmissionError:
            return False
        return True

    def _message_of(self, partition: _Partition, header: SliceHeader, record: Record) -> tuple[Record, ...]:
        """Return the other slices of a slice's message, which the chain does not wait for any more."""
        key = (record.topic, record.partition or 0)
        waiting = set(self._session.waiting_offsets().get(key, ()))
        return tuple(
            other
            for offset, (own, other) in sorted(partition.slices.items())
            if own.message_id == header.message_id and own.index != header.index and offset not in waiting
        )

    def _verdict(
        self,
        unit: Unit,
        result: Result,
        slices: Sequence[SliceHeader],
    ) -> Outcome | _Ready:
        if result is DROP or (isinstance(result, list) and not result):
            return self._decided(Outcome(unit, "dropped"))
        if isinstance(result, list) and len(result) == 1:
            (result,) = result
        try:
            if isinstance(result, HeaderwareError):
                raise result
            if not isinstance(result, Record):
                raise InterceptorError("the chain makes several records of it; expected one")
            require_admitted(
                result,
                slices,
                by_certificate=bool(self._admissions),
            )
        except HeaderwareError as error:
            return self._decided(self._refused(unit, _at_guard(error, unit.records[0])))
        return _Ready(unit, Admitted(result))

    def _refused(self, unit: Unit, error: InterceptorError) -> Outcome:
        """Return the dead-letter outcome of a unit."""
        context = self._session.context
        return Outcome.dead_lettered(
            unit,
            error,
            self._routes.dead_letters(unit.topic_partition[0]),
            group_id=str(context.group_id),
            cluster=context.cluster_id(),
            now_ms=context.now_ms(),
            why=f"{error.step or 'guard'}: {type(error).__name__}",
        )

    def _require_fit(self, record: Record) -> None:
        """Raise an InterceptorError for a record that is refused before any verification."""
        headers: object = record.headers
        if isinstance(headers, UnreadHeaders):
            raise InterceptorError(headers.why)
        if self._partitioner is None:
            return
        try:
            require_own_partition(record, self._partitioner, self._partitions_of(record.topic, 1))
        except AdmissionError:
            # The topic may have got more partitions since its number was asked.
            count = self._partitions_of(record.topic, _ASK_AGAIN)
            require_own_partition(record, self._partitioner, count)

    def _partitions_of(self, topic: str, at_least: int) -> int:
        """Return the number of an ingress topic's partitions; hold the partition if it is not known."""
        count = self.count_partitions(topic, at_least)
        if not count:
            raise _Hold(HeldBackError(f"the cluster does not tell how many partitions {topic} has"))
        return count

    def _require_topics(self, topic: str) -> None:
        """Hold the partition while its dead-letter or audit topic is missing; a write would stop all."""
        if topic in self._kept:
            return
        for what, name in self._routes.kept_in(topic):
            if not self.count_partitions(name, 1):
                self._hold_for(HeldBackError(f"the {what} {name} does not exist; create it"))
                return
        self._kept.add(topic)

    def _require_copies_known(self) -> None:
        """Hold new records while any partition is read again: they may be copies of records there."""
        if self._looks_back:
            self._looks_back = any(each.looks_back for each in self._partitions.values())
        if self._waits and (self._looks_back or self.is_blind):
            until_ms = self._session.context.now_ms() + _LOOK_BACK_MS
            text = (
                "records that were decided before are read again first, in all partitions, to detect copies"
            )
            raise _Hold(DelayedError(text, until_ms=until_ms))

    def _hold_for(self, error: HeldBackError) -> None:
        if self._waits:
            raise _Hold(error)
        self.held_back[_kind(error)] += 1
        if self._logged.is_new_error(error):
            _log.warning("%s", error)

    def _passed_on(self, partition: _Partition, ready: _Ready) -> Outcome:
        """Return the outcome of an admitted unit, or hold its partition."""
        unit = ready.unit
        original = unit.records[0]
        try:
            if ready.sent is None:
                ready = partition.ready = self._sent(ready)
            if self._second is not None:
                self._require_topics_of(ready.sent)
            self._count(ready)
        except HeldBackError as error:
            if self._waits and self._second is None and len(unit.records) == 1:
                # Judge it again later: its key may be revoked by then, or its rule removed.
                partition.backlog.appendleft(original)
                partition.ready = None
                if _at(original) in self.done.pending(partition.key):
                    self.done.read_again(partition.key, [_at(original)])
            self._hold_for(error)
        except HeaderwareError as error:
            return self._decided(self.refuse(unit, ready.admitted, _at_guard(error, original)))
        sent = ready.sent or ()
        if self._second is None and self._observes:
            with self._processing(ready.admitted.record):
                pass
        is_dropped = self._second is not None and not sent
        return self._decided(Outcome(unit, "dropped" if is_dropped else "sent", sent, about=ready.admitted))

    def refuse(self, unit: Unit, admitted: Admitted, error: InterceptorError) -> Outcome:
        """Return the dead-letter outcome of an admitted unit, and tell the chains."""
        self._session.stopped(_first(unit.records), "dead_lettered", error)
        self._failed(admitted, error)
        return self._refused(unit, error)

    # Notifications of the chains' steps

    @contextmanager
    def _processing(self, record: Record) -> Iterator[None]:
        """Tell the chain that a record was received, and apply its processing context."""
        now_ns = time.time_ns()
        tell_received(self._session, [record], now_ns, now_ns)
        with self._session.processing([record]) as told:
            told.clear()  # the record is processed when it is committed
            yield

    def _failed(self, admitted: Admitted | None, error: BaseException) -> None:
        if self._deliveries is not None and admitted is not None and admitted.delivery is not None:
            self._deliveries.acknowledge_failure(admitted.delivery.sent, error)

    def committed(
        self,
        outcomes: Iterable[tuple[Outcome, Sequence[Message]]],
        offsets: Sequence[TopicPartition],
        *,
        began_ns: int,
    ) -> None:
        """Tell the chains that outcomes are committed, with the delivery reports of the sent records."""
        for outcome, messages in outcomes:
            admitted: Admitted | None = outcome.about
            if admitted is None:
                continue
            if admitted.delivery is not None:
                for message in messages:
                    admitted.delivery(None, message)
            if self._session.hears_processing:
                self._session.processed(admitted.record)
        ended_ns = time.time_ns()
        if self._second is not None and self._second.hears_operations:
            self._second.operation(Operation(name="commit_transaction", began_ns=began_ns, ended_ns=ended_ns))
        if self._session.hears_commits and offsets:
            self._session.committed(offsets)
            self._session.operation(
                Operation(name="commit", began_ns=began_ns, ended_ns=ended_ns, offsets=offsets)
            )

    def undone(self, outcomes: Iterable[Outcome], error: BaseException, *, began_ns: int) -> None:
        """Tell the second chain that outcomes could not be committed; their records will be sent again."""
        for outcome in outcomes:
            self._failed(outcome.about, error)
        if self._second is not None and self._second.hears_operations:
            self._second.operation(
                Operation(name="abort_transaction", began_ns=began_ns, ended_ns=time.time_ns())
            )

    def _decided(self, outcome: Outcome) -> Outcome:
        """Mark the offsets of an outcome as done."""
        key = outcome.unit.topic_partition
        partition = self._partitions[key]
        for offset in outcome.unit.offsets:
            partition.slices.pop(offset, None)
            self.done.note(key, offset)
        partition.ready = None
        return outcome

    def _sent(self, ready: _Ready) -> _Ready:
        """Return an admitted unit with the records to send; raise an error if they cannot be sent."""
        original = ready.unit.records[0]
        egress = self._routes.egress(original.topic)
        if egress is None:
            raise HeldBackError(f"no route fits the topic {original.topic}")
        count = self.count_partitions(egress, (original.partition or 0) + 1)
        if (original.partition or 0) >= count:
            raise HeldBackError(
                f"the egress topic {egress} has {count} partitions, but records of partition "
                f"{original.partition} need one with the same number; add partitions"
                if count
                else f"the egress topic {egress} does not exist; create it"
            )
        if self._second is None:
            sent = [
                Record(egress, each.value, each.key, each.headers, each.partition, each.timestamp_ms)
                for each in ready.unit.records
            ]
            return _Ready(ready.unit, ready.admitted, tuple(sent))
        # Steps of the second chain may read the verified signer.
        admitted = ready.admitted.record
        local = None if admitted.verified is None else {VERIFIED: admitted.verified}
        sending = Record(
            egress,
            admitted.value,
            admitted.key,
            admitted.headers,
            original.partition,
            admitted.timestamp_ms,
            admitted.timestamp_type,
            local=local,
        )
        with self._processing(admitted) if self._observes else nullcontext():
            result = self._second.send_outcome(sending)
            if isinstance(result, HeaderwareError):
                if self._deliveries is not None and not isinstance(result, HeldBackError):
                    last = getattr(result, "last_record", None)
                    self._deliveries.acknowledge_failure(last or sending, result)
                raise result
        records = list(result) if isinstance(result, FanOut) else list(flat(result))
        if self._deliveries is not None and not records:
            self._deliveries.queue_dropped(sending, None)
            self._reports.serve()
        delivery: Report | JointDelivery | None = None
        if self._deliveries is not None and len(records) == 1:
            delivery = Report(self._deliveries, records[0], records[0], None)
        elif self._deliveries is not None and records:
            delivery = JointDelivery(self._deliveries, sending, None)
            delivery.note_first(records[0])
            delivery.expected = len(records)
        # In another topic, the key decides the partition, unless the step has chosen one.
        routed = tuple(
            each
            if each.topic == egress or each.partition != original.partition
            else each.replace(partition=None)
            for each in records
        )
        return _Ready(ready.unit, Admitted(admitted, delivery), routed)

    def _require_topics_of(self, sent: Iterable[Record] | None) -> None:
        for each in sent or ():
            wanted = (each.partition or 0) + 1
            if (count := self.count_partitions(each.topic, wanted)) < wanted:
                raise HeldBackError(
                    f"the topic {each.topic}, to which the second chain sends the record, "
                    + (
                        f"has {counted(count, 'partition')}, but the record is for partition "
                        f"{each.partition}; add partitions"
                        if count
                        else "does not exist; create it"
                    )
                )

    def _count(self, ready: _Ready) -> None:
        """Count a record; raise an error if it exceeds a quota of the certificate's holder."""
        verified = ready.admitted.record.verified
        if verified is None:
            return
        quotas = [quota for step in self._admissions for quota in step.quotas(ready.admitted.record)]
        if not quotas:
            return
        now_ms = self._session.context.now_ms()
        until_ms, over = self._buckets.take(
            quotas,
            (verified.issuer, verified.subject),
            records=len(ready.unit.records),
            size_bytes=sum(map(bytes_of, ready.unit.records)),
            now_ms=now_ms,
        )
        if not until_ms:
            return
        # The message may have these names: they come from the verified certificate, not from a header.
        text = f"above the quota of {verified.subject!r}, certified by {verified.issuer!r}"
        if over == "refuse":
            raise QuotaError(text, step="quota")
        error = DelayedError(text, until_ms=until_ms)
        error.step = "quota"
        raise error

    # Pending slices and held partitions

    def _give_up(self, outcomes: list[Outcome]) -> None:
        """Refuse all slices of messages that the chain has given up."""
        if not self._session.polls:
            return
        for outcome in self._session.poll():
            if not isinstance(outcome, ReassemblyError) or outcome.topic is None:
                continue
            partition = self._partitions.get((outcome.topic, outcome.partition or 0))
            if partition is not None:
                offsets = [offset for offset in sorted(outcome.offsets) if offset in partition.slices]
                self._refuse_slices(partition, offsets, outcome, outcomes)

    def _refuse_late_slices(
        self, partition: _Partition, waiting: Iterable[int], outcomes: list[Outcome]
    ) -> None:
        """Refuse slices that the chain does not wait for."""
        kept = {*waiting, *(partition.ready.unit.offsets if partition.ready else ())}
        late = [offset for offset in sorted(partition.slices) if offset not in kept]
        error = ReassemblyError(
            "expected a slice of a pending message, found one whose message was complete or given up, has no "
            "first slice, or has the same slice already",
            step="slice",
        )
        self._refuse_slices(partition, late, error, outcomes)

    def _refuse_useless_slices(self, outcomes: list[Outcome]) -> None:
        """Refuse slices that the chain does not wait for, and slices that do not fit into a commit."""
        some = {key: each for key, each in self._partitions.items() if each.indexes or self.done.pending(key)}
        waiting = self._session.waiting_offsets() if some else {}
        for key, partition in some.items():
            self._refuse_late_slices(partition, waiting.get(key, ()), outcomes)
            partition.indexes = {(own.message_id, own.index) for own, _ in partition.slices.values()}
            try:
                self.done.commit_of(key)
            except WireFormatError as too_many:
                self._session.revoke([key])
                error = ReassemblyError(f"the message of the slice is pending, and {too_many}", step="slice")
                partition.give_up_ready_slices()
                partition.give_up_read_slices()
                self._refuse_slices(partition, sorted(partition.slices), error, outcomes)

    def _refuse_slices(
        self,
        partition: _Partition,
        offsets: Iterable[int],
        error: InterceptorError,
        outcomes: list[Outcome],
    ) -> None:
        records = [partition.slices[offset][1] for offset in offsets]
        if records:
            ready = partition.ready
            outcomes.append(self._decided(self._refused(_unit(*records), error)))
            partition.ready = ready  # another message may be ready to be sent

    def _hold(self, partition: _Partition, error: HeldBackError) -> None:
        if isinstance(error, DelayedError):
            pause_s = max(0.001, (error.until_ms - self._session.context.now_ms()) / 1_000)
            pause_s = min(pause_s, _LONGEST_PAUSE_S)
        else:
            pause_s = partition.backoff.next_s()
            if self._logged.is_new_error(error):
                _log.warning("%s; the partition is held back until then", error)
        if partition.why is None or _kind(partition.why) != _kind(error):
            self.held_back[_kind(error)] += 1
        partition.together = 1
        partition.until, partition.why = time.monotonic() + pause_s, error

    @staticmethod
    def _release(partition: _Partition) -> None:
        partition.until = 0.0
        partition.backoff.reset()
        partition.why = None
        if partition.is_at_end:
            partition.looks_back = False


def _unit(*records: Record) -> Unit:
    return Unit(records, tuple(map(_at, records)))


def _at(record: Record) -> int:
    return record.offset or 0


def _first(records: Sequence[Record]) -> Record:
    """Return the first slice, which has the message's key; else the first record."""
    for each in records:
        header = slice_header_of(each)
        if header is not None and not header.index:
            return each
    return records[0]


def _kind(error: HeldBackError) -> str:
    return f"{error.step}: {type(error).__name__}" if error.step else f"guard: {error.message}"


def _at_guard(error: HeaderwareError, record: Record) -> InterceptorError:
    refusal = error if isinstance(error, InterceptorError) else wrapped(error)
    if refusal.topic is None:
        refusal.topic, refusal.partition, refusal.offset = record.topic, record.partition, record.offset
    refusal.step = refusal.step or "guard"
    return refusal
