"""From records of ingress topics to outcomes, partition by partition, in order.

Each record goes through the consuming side of the chain, which decides; :mod:`headerware.ops.guard.rules`
says what else must hold. What comes out is the record as it came, or, with a second chain, what that makes of
the record behind the first one.

A message in slices is one unit, decided about when its last slice comes: all of its slices go on then, next
to one another, or all go to the dead letters. Until then they are pending, and the others of the partition go
on. What is pending is part of the commit (:mod:`headerware.workers.done`), so that a restart reads the slices
again, and nothing else.

A record that cannot be judged yet, or not sent on yet, holds its partition: a keyring that cannot be read, a
key service that is down, a topic that is missing, a quota. And as long as a partition is read again to know
copies, nothing new of any partition is decided, for it may be a copy of what comes there.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from contextlib import contextmanager, nullcontext
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
from headerware.core.hooks import DROP, FanOut
from headerware.core.record import VERIFIED, Operation, Record, bytes_of
from headerware.core.runner import flat
from headerware.core.step import LoggedReasons, wrapped
from headerware.interceptors.admission.interceptor import AdmissionStep
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
"""How many headers a record may have, unless stated; librdkafka reads 100,000, in 14 MB of memory."""
_ASK_AGAIN: Final = 1 << 31
"""More partitions than any topic has."""
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 10.0
"""Also of what says until when it waits: a policy with a larger quota counts by then."""
_LOOK_BACK_MS: Final = 100
_log: Final = logging.getLogger("headerware.ops.guard")


class Admitted(NamedTuple):
    """What an outcome is about that the chain has admitted.

    Args:
        record: the record that came out of the chain, a message in slices put together.
        delivery: takes the report of each record that is sent, for the steps of a second chain.
    """

    record: Record
    delivery: Report | JointDelivery | None = None


def verdict_of(outcome: Outcome) -> Verdict:
    """Return the verdict for counters, accounts and metrics."""
    return _VERDICTS[outcome.disposition]


_VERDICTS: Final[dict[Disposition, Verdict]] = {
    "sent": "admitted",
    "dead_letter": "refused",
    "dropped": "dropped",
}


class _Ready(NamedTuple):
    """A unit that the chain has admitted, and that waits for what else must hold."""

    unit: Unit
    admitted: Admitted
    sent: tuple[Record, ...] | None = None


class _Partition:
    """One partition: what was read, and what waits."""

    def __init__(self, key: TopicPartitionKey, done: Done, begin: int, start: int) -> None:
        self.key: Final = key
        self.done: Final = done
        self.begin: Final = begin
        """Below this all is done that is not pending; it is read again only to know copies of it."""
        self.looks_back = start < begin
        """Whether some of that is still to come."""
        self.is_at_end = False
        """Whether there was nothing after what was read."""
        self.next = 0
        """The first offset that was not read."""
        self.slices: dict[int, tuple[SliceHeader, Record]] = {}
        """The slices of messages that are not complete."""
        self.places: set[tuple[bytes, int]] = set()
        """The messages and indexes of these, and of some that have gone since the last look."""
        self.backlog: deque[Record] = deque()
        self.ready: _Ready | None = None
        self.until = 0.0
        """When it goes on, by the monotonic clock; 0 if nothing holds it."""
        self.backoff: Final = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        self.why: HeldBackError | None = None

    def give_up_ready_slices(self) -> None:
        """Put a complete message that waits back among the slices."""
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
        """Put slices back, so that the chain, which has forgotten them, sees them again."""
        ready = () if self.ready is None else self.ready.unit.records
        again = {record.offset or 0: record for record in ready}
        again |= {offset: record for offset, (_, record) in self.slices.items()}
        pending = self.done.pending(self.key)
        self.done.read_again(self.key, [offset for offset in again if offset in pending])
        self.slices, self.places, self.ready = {}, set(), None
        self.backlog.extendleft(again[offset] for offset in sorted(again, reverse=True))


class _Hold(Exception):  # noqa: N818 - it is no failure
    """The next record of the partition cannot be decided yet."""

    def __init__(self, error: HeldBackError) -> None:
        super().__init__(str(error))
        self.error = error


class Judge:
    """Decide about records; for one caller at a time.

    Args:
        session: the chain of a consumer of the ingress topics.
        routes: where records go.
        second: the chain of a producer that what is admitted goes through; None sends records as they came.
        count_partitions: returns how many partitions a topic has, 0 if it does not exist; and asks again if
            there are fewer than the second argument.
        partitioner: refuse records that stand in another partition than their key decides by this
            partitioner of librdkafka's; None lets them stand anywhere.
        max_headers: refuse records with more headers.
        waits: whether quotas and failures hold partitions; a dry run counts them and goes on.
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
        """What is done of each partition, by what was decided."""
        self._partitions: dict[TopicPartitionKey, _Partition] = {}
        self._buckets: Final = Buckets()
        self._looks_back = False
        """Whether any partition may still be read again."""
        self._kept: set[str] = set()
        """The topics of which all can be kept, as was found in the present look."""
        self.is_blind = False
        """Whether a partition should be read again that cannot be read now."""
        self._logged: Final = LoggedReasons()
        self.held_back: Final[Counter[str]] = Counter()
        """How often something held a partition back, by what."""
        self._bind(session)

    @property
    def _ticking(self) -> list[Session]:
        return [each for each in (self._session, self._second) if each is not None and each.ticks]

    @property
    def is_heard(self) -> bool:
        """Whether any step of the chains hears of what is committed."""
        second = self._second is not None and self._second.hears_operations
        return self._observes or second or self._deliveries is not None or self._session.hears_commits

    def close(self) -> None:
        """Close the chains."""
        self._session.close()
        if self._second is not None:
            self._second.close()

    def _bind(self, session: Session) -> None:
        self._session = session
        self._consume = session.consume_outcome
        self._admissions = [step.opened for step in session.steps if isinstance(step.opened, AdmissionStep)]
        self._observes = self._waits and (session.hears_operations or session.hears_processing)

    def use(self, session: Session) -> None:
        """Take another session in place of the present one, between two records."""
        keeps = session.keeps_waiting(self._session)
        self._bind(session)
        if not keeps:
            for partition in self._partitions.values():
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
        """Begin with a partition, and return from which offset on to read it.

        If it is to be read again from an earlier offset on, nothing new is decided before it was read up to
        what is done, or to its end.

        Args:
            key: the partition.
            low: its first offset.
            high: where it ends.
            committed: what the group has committed, or None.
            earliest: the offset from which on it is to be read again, to know copies; None for none.

        Raises:
            HeaderwareError: the group has done something else, or more was done than there is.
        """
        start = self.done.begin(key, low, high, committed)
        if committed is not None and earliest is not None:
            start = max(low, min(start, earliest))
        partition = _Partition(key, self.done, self.done.position(key), start)
        self._partitions[key] = partition
        self._looks_back = self._looks_back or partition.looks_back
        return start

    def ended(self, topic_partition: TopicPartitionKey) -> None:
        """Note that a partition was read to its end, as it is now."""
        if topic_partition in self._partitions:
            self._partitions[topic_partition].is_at_end = True

    def revoke(self, topic_partitions: Iterable[TopicPartitionKey]) -> None:
        """Forget partitions: what is not committed of them comes again, here or elsewhere."""
        gone = list(topic_partitions)
        self.done.forget(gone)
        for topic_partition in gone:
            partition = self._partitions.pop(topic_partition, None)
            if partition is not None and partition.ready is not None:
                self._failed(
                    partition.ready.admitted, HeldBackError("its partition has gone to another process")
                )
        self._session.revoke(gone)

    @property
    def assigned(self) -> list[TopicPartitionKey]:
        """The partitions."""
        return list(self._partitions)

    def held(self) -> dict[TopicPartitionKey, HeldBackError]:
        """Return the partitions that something holds back now, and what."""
        # A copy, for others may ask while partitions come and go.
        return {key: why for key, each in [*self._partitions.items()] if (why := each.why) is not None}

    # Records

    def add(self, record: Record) -> bool:
        """Take a record that was read; return False if a later one of its partition has come before it.

        Those of other partitions are passed over: a rebalance may leave some in a batch.
        """
        partition = self._partitions.get((record.topic, record.partition or 0))
        if partition is None:
            return True
        if _at(record) < partition.next:
            return False
        partition.next = _at(record) + 1
        partition.is_at_end = False
        if len(record.headers) > self._max_headers:
            # Here, so that none of what is read keeps them: each takes some hundred bytes.
            where = position(record.topic, record.partition, record.offset)
            why = f"it has {len(record.headers):,} headers, and max_headers is {self._max_headers:,}"
            record = record.replace(headers=UnreadHeaders(where, why))
        partition.backlog.append(record)
        return True

    def decide(self) -> list[Outcome]:
        """Decide about what was added, as far as it can be decided now."""
        for session in self._ticking:
            session.tick()
        outcomes: list[Outcome] = []
        try:
            self._decide(outcomes)
        except BaseException as failure:
            # None of them is committed, so what the second chain has sent comes again.
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
                self._let_go(partition)
        self._give_up(outcomes)
        self._refuse_useless_slices(outcomes)

    def _next(self, partition: _Partition, outcomes: list[Outcome]) -> None:
        if partition.ready is None:
            record = partition.backlog[0]
            if _at(record) >= partition.begin:
                partition.looks_back = False
                self._require_whole_window()
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
        """Return what the chain makes of a record; None if it waits for others, or was decided before."""
        offset = record.offset or 0
        is_known = self.done.was_done(partition.key, offset)
        try:
            # Before the chain, which would remember it, and then take the genuine record for the copy.
            self._require_fit(record)
        except InterceptorError as refusal:
            self.done.read(partition.key, offset)
            refusal.at("guard", record)
            return None if is_known else self._decided(self._refused(_unit(record), refusal))
        outcome = self._consume(record)
        # A message comes out of its slices in a list.
        header = None if outcome.__class__ is Record else slice_header_of(record)
        if isinstance(outcome, HeldBackError):
            if header is not None and self._waits:
                # Whoever puts slices together may count it as seen.
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
            place = header.message_id, header.index
            if place in partition.places:
                # One of the two is no part of the message, and it would not fit with the others.
                key = record.topic, record.partition or 0
                self._refuse_late_slices(partition, self._session.waiting_offsets().get(key, ()), outcomes)
            partition.places.add(place)
            return None
        # What it has pushed out belongs to other messages.
        self._give_up(outcomes)
        group = self._message_of(partition, header, record)
        headers = [*(partition.slices[_at(each)][0] for each in group), header]
        return self._verdict(_unit(*group, record), outcome, headers)

    def _message_of(self, partition: _Partition, header: SliceHeader, record: Record) -> tuple[Record, ...]:
        """Return the slices that went with a slice: they wait no longer."""
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
                raise InterceptorError("the chain makes several records of it, and only one can be judged")
            require_admitted(
                result,
                slices,
                by_certificate=bool(self._admissions),
            )
        except HeaderwareError as error:
            return self._decided(self._refused(unit, _at_guard(error, unit.records[0])))
        return _Ready(unit, Admitted(result))

    def _refused(self, unit: Unit, error: InterceptorError) -> Outcome:
        """Return the outcome of a unit that goes to the dead letters."""
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
        """Raise an InterceptorError for a record that nobody needs to verify."""
        headers: object = record.headers
        if isinstance(headers, UnreadHeaders):
            raise InterceptorError(headers.why)
        if self._partitioner is None:
            return
        # Before the chain, which would remember the record, and take the genuine one for the copy.
        try:
            require_own_partition(record, self._partitioner, self._partitions_of(record.topic, 1))
        except AdmissionError:
            # The topic may have more partitions by now than when it was asked.
            count = self._partitions_of(record.topic, _ASK_AGAIN)
            require_own_partition(record, self._partitioner, count)

    def _partitions_of(self, topic: str, at_least: int) -> int:
        """Return how many partitions an ingress topic has; wait if nobody knows it any more."""
        count = self.count_partitions(topic, at_least)
        if not count:
            raise _Hold(HeldBackError(f"nobody knows how many partitions {topic} has"))
        return count

    def _require_topics(self, topic: str) -> None:
        """Hold a partition of which something could not be kept: one record would stop all partitions."""
        if topic in self._kept:
            return
        for what, name in self._routes.kept_in(topic):
            if not self.count_partitions(name, 1):
                self._hold_for(HeldBackError(f"there is no {what} {name}; create it"))
                return
        self._kept.add(topic)

    def _require_whole_window(self) -> None:
        """Hold what is new as long as any partition is read again: it may be a copy of what comes there."""
        if self._looks_back:
            self._looks_back = any(each.looks_back for each in self._partitions.values())
        if self._waits and (self._looks_back or self.is_blind):
            until_ms = self._session.context.now_ms() + _LOOK_BACK_MS
            text = "what was decided before is read again first, in all partitions, to know copies of it"
            raise _Hold(DelayedError(text, until_ms=until_ms))

    def _hold_for(self, error: HeldBackError) -> None:
        if self._waits:
            raise _Hold(error)
        self.held_back[_kind(error)] += 1
        if self._logged.is_new_error(error):
            _log.warning("%s", error)

    def _passed_on(self, partition: _Partition, ready: _Ready) -> Outcome:
        """Return the outcome of an admitted unit, once nothing holds it."""
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
                # It is judged anew when it goes on: its key may be revoked by then, its rule gone.
                partition.backlog.appendleft(original)
                partition.ready = None
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
        """Return the outcome of an admitted unit that goes to the dead letters, and tell the chains.

        It may come back from there.
        """
        self._session.stopped(_first(unit.records), "dead_lettered", error)
        self._failed(admitted, error)
        return self._refused(unit, error)

    # What the steps of the chains hear beside their own hooks

    @contextmanager
    def _processing(self, whole: Record) -> Iterator[None]:
        """Tell the chain that a record is received, and be around what is done with it."""
        now_ns = time.time_ns()
        tell_received(self._session, [whole], now_ns, now_ns)
        with self._session.processing([whole]) as told:
            told.clear()  # it is done when it is committed
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
        """Tell the chains that outcomes are committed, with the reports of the records that were sent."""
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
        """Tell the second chain that outcomes could not be committed; what it sent is sent again."""
        for outcome in outcomes:
            self._failed(outcome.about, error)
        if self._second is not None and self._second.hears_operations:
            self._second.operation(
                Operation(name="abort_transaction", began_ns=began_ns, ended_ns=time.time_ns())
            )

    def _decided(self, outcome: Outcome) -> Outcome:
        """Note an outcome in its partition."""
        key = outcome.unit.topic_partition
        partition = self._partitions[key]
        for offset in outcome.unit.offsets:
            partition.slices.pop(offset, None)
            self.done.note(key, offset)
        partition.ready = None
        return outcome

    def _sent(self, ready: _Ready) -> _Ready:
        """Return an admitted record with what goes on, or raise why nothing does."""
        original = ready.unit.records[0]
        egress = self._routes.egress(original.topic)
        if egress is None:
            raise HeldBackError(f"no route says where records of {original.topic} go")
        count = self.count_partitions(egress, (original.partition or 0) + 1)
        if (original.partition or 0) >= count:
            raise HeldBackError(
                f"the egress topic {egress} has {count} partitions, and records of partition "
                f"{original.partition} keep theirs; create it, or add partitions"
                if count
                else f"there is no egress topic {egress}; create it"
            )
        if self._second is None:
            sent = [
                Record(egress, each.value, each.key, each.headers, each.partition, each.timestamp_ms)
                for each in ready.unit.records
            ]
            return ready._replace(sent=tuple(sent))
        # Its steps may ask who wrote it.
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
        # Who sends it elsewhere leaves the partition to the key.
        routed = tuple(
            each
            if each.topic == egress or each.partition != original.partition
            else each.replace(partition=None)
            for each in records
        )
        return _Ready(ready.unit, Admitted(admitted, delivery), routed)

    def _require_topics_of(self, sent: Iterable[Record] | None) -> None:
        for each in sent or ():
            if not self.count_partitions(each.topic, 1):
                raise HeldBackError(f"there is no topic {each.topic}, where the second chain sends it")

    def _count(self, ready: _Ready) -> None:
        """Raise if a record is above a quota of whoever wrote it."""
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
        # Neither is a value of a header: the certificate was verified.
        text = f"above the quota of {verified.subject!r}, certified by {verified.issuer!r}"
        if over == "refuse":
            raise QuotaError(text, step="quota")
        error = DelayedError(text, until_ms=until_ms)
        error.step = "quota"
        raise error

    # What waits

    def _give_up(self, outcomes: list[Outcome]) -> None:
        """Refuse messages that the chain has given up, with all slices that had come."""
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
        """Refuse slices that nothing waits for."""
        kept = {*waiting, *(partition.ready.unit.offsets if partition.ready else ())}
        late = [offset for offset in sorted(partition.slices) if offset not in kept]
        error = ReassemblyError(
            "a slice that nothing waits for: it or its message has come already, or its message was given up "
            "or had no first slice",
            step="slice",
        )
        self._refuse_slices(partition, late, error, outcomes)

    def _refuse_useless_slices(self, outcomes: list[Outcome]) -> None:
        """Refuse slices that nothing waits for, and those that a commit cannot note."""
        some = {key: each for key, each in self._partitions.items() if each.places or self.done.pending(key)}
        waiting = self._session.waiting_offsets() if some else {}
        for key, partition in some.items():
            self._refuse_late_slices(partition, waiting.get(key, ()), outcomes)
            partition.places = {(own.message_id, own.index) for own, _ in partition.slices.values()}
            try:
                self.done.commit_of(key)
            except WireFormatError as too_many:
                self._session.revoke([key])
                error = ReassemblyError(f"its message is not sent yet, and {too_many}", step="slice")
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
            partition.ready = ready  # another message may wait to go on

    def _hold(self, partition: _Partition, error: HeldBackError) -> None:
        if isinstance(error, DelayedError):
            pause_s = max(0.001, (error.until_ms - self._session.context.now_ms()) / 1_000)
            pause_s = min(pause_s, _LONGEST_PAUSE_S)
        else:
            pause_s = partition.backoff.next_s()
            if self._logged.is_new_error(error):
                _log.warning("%s; nothing of the partition goes on until then", error)
        if partition.why is None or _kind(partition.why) != _kind(error):
            self.held_back[_kind(error)] += 1
        partition.until, partition.why = time.monotonic() + pause_s, error

    @staticmethod
    def _let_go(partition: _Partition) -> None:
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
    """Return the record that has the message's own key."""
    for each in records:
        header = slice_header_of(each)
        if header is not None and not header.index:
            return each
    return records[0]


def _kind(error: HeldBackError) -> str:
    return f"{error.step or 'guard'}: {type(error).__name__}"


def _at_guard(error: HeaderwareError, record: Record) -> InterceptorError:
    refusal = error if isinstance(error, InterceptorError) else wrapped(error)
    if refusal.topic is None:
        refusal.topic, refusal.partition, refusal.offset = record.topic, record.partition, record.offset
    refusal.step = refusal.step or "guard"
    return refusal
