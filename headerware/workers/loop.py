"""The loop of a worker: read a topic, gather units, decide about them, write the outcomes, commit.

One transaction has all records that are written for a batch, and the offsets of the batch. So a process that
is killed at any moment loses nothing and writes nothing twice; the process that starts next aborts the open
transaction, and goes on from the last commit. A worker has a :class:`Policy`, which decides; all else is
here.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, Final, Literal

from headerware.core.closing import Closing
from headerware.core.commit_metadata import MAX_OWN_BYTES, decode_metadata
from headerware.core.context import wall_clock_ms
from headerware.core.errors import (
    ConfigError,
    HeaderwareError,
    InterceptorError,
    ReassemblyError,
    WireFormatError,
)
from headerware.core.record import bytes_of
from headerware.core.stop_flag import StopFlag
from headerware.kafka.messages import UnreadHeaders, is_readable, record_of
from headerware.kafka.reader import TopicReader, strict_settings
from headerware.kafka.single_records import SingleRecords
from headerware.workers.done import Commit, Done, topic_partitions
from headerware.workers.outcomes import Disposition, Outcome, transact
from headerware.workers.pace import Pace
from headerware.workers.transactions import TIMEOUT_S, TransactionalSender
from headerware.workers.units import Unit, Units, slice_header_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from confluent_kafka import KafkaError, Message, TopicPartition

    from headerware.core.record import Record
    from headerware.core.services import TopicPartitionKey
    from headerware.interceptors.slice.header import SliceHeader
    from headerware.kafka.reader import Progress

_BATCH: Final = 500
_MAX_TRANSACTION_BYTES: Final = 32 << 20
_WAIT_S: Final = 0.2
_RENEW_S: Final = 60.0
"""How often the offsets of all partitions are committed; the broker would forget those of idle partitions.

By these commits an idle worker also learns whether another process has taken over.
"""


class _TooManyPendingError(HeaderwareError):
    """There are more pending offsets than a commit can note."""


class Policy:
    """Decide the outcomes of units; a worker calls its policy from one thread.

    ``worker`` is set when the worker is made.
    """

    worker: Worker
    dead_letter_topic: str = "{topic}.dead-letter"
    """The topic to which :meth:`dead_letter` sends records; ``{topic}`` is the topic that is read."""
    takes_incomplete: bool = False
    """Whether :meth:`decide` gets messages with missing slices at the end of the topic.

    If not, these messages are pending, and may be complete the next time; :meth:`give_up` gets the first of
    them if there are too many.
    """
    paces: Literal["read", "written"] = "read"
    """Which records the ``rate`` of the worker counts."""
    too_many_pending: str = ""
    """The advice at the end of the error that there are more pending offsets than a commit can note."""

    def dead_letter(self, unit: Unit, error: InterceptorError, *, why: str = "") -> Outcome:
        """Return the outcome of a unit whose records become dead letters with a reason."""
        return Outcome.dead_lettered(
            unit,
            error,
            self.dead_letter_topic.replace("{topic}", unit.topic_partition[0]),
            group_id=self.worker.group_id,
            cluster=self.worker.reader.cluster_id,
            now_ms=wall_clock_ms(),
            why=why,
        )

    def begin(self, committed: Mapping[int, tuple[int, str]]) -> Mapping[int, tuple[int, str]]:
        """Prepare for the loop, and return the committed offsets to begin with, with their metadata.

        This may take long, and then checks :attr:`Worker.is_stopped` meanwhile.

        Args:
            committed: the offsets that the group has committed, with their metadata.
        """
        return committed

    def part_of(self, record: Record) -> SliceHeader | None:
        """Return the slice header of a record as it is read; None if the record is not a slice."""
        return slice_header_of(record)

    def decide(self, units: Sequence[Unit]) -> Iterable[Outcome]:
        """Return an outcome for each unit, in order.

        Args:
            units: the units of a batch, in the order in which they became complete. A unit with a ``problem``
                is not what its headers say.
        """
        raise NotImplementedError

    def give_up(self, unit: Unit) -> Outcome:
        """Return the outcome of an incomplete message, of which a commit can note no more slices.

        By default the slices become dead letters.

        Args:
            unit: the slices that have come; its problem is ``incomplete``.
        """
        error = ReassemblyError("its message lacks slices, and more slices wait than a commit can note")
        return self.dead_letter(unit, error.at("slice", unit.records[0]))

    def decide_again(self, outcome: Outcome, refusals: Mapping[int, KafkaError]) -> Outcome:
        """Return another outcome after a topic has refused records of this one.

        By default the unit is pending. Another policy must return fewer or other records, and sooner or
        later records that are accepted, or none: it is asked until no record is refused.

        Args:
            outcome: the outcome.
            refusals: the errors, by the indexes of the refused records.
        """
        error = next(iter(refusals.values()))
        return Outcome(outcome.unit, "pending", why=error.name())

    def account(self, outcomes: Sequence[Outcome], offsets: Sequence[TopicPartition]) -> Record | None:  # noqa: ARG002
        """Return a record that describes a transaction and is written in it, or None."""
        return None

    def renew(self) -> None:
        """Raise an error if the work cannot go on; called every minute, before all offsets are committed."""

    def committed(self, outcomes: Sequence[Outcome]) -> None:
        """Note that outcomes are committed; in a preview, that they would be committed."""


class Worker(Closing):
    """Let a policy decide about the records of a topic; only :meth:`stop` may be called by any thread.

    Args:
        conf: the settings of a client of confluent-kafka, for all clients that the worker makes.
        topic: the topic that is read.
        policy: decides.
        name: the task in a word, for messages and the group, such as ``mask``.
        group_id: the group whose offsets are the worker's progress, and the transactional id: of two
            processes with one group, the later one ends the earlier one. None makes an id of name and topic.
        own: own metadata of the commits, of 1,000 bytes at most, such as a digest of the rules: a group with
            other metadata has another task.
        writes: the topics that the worker writes, as far as they are known.
        rate: the most records to read in a second, or to write if the policy says so; None for no limit.
        batch: how many records are read and decided about together.
        timeout_s: how long the cluster may take to answer, in seconds.

    Raises:
        ConfigError: there is no such topic, or the own metadata is too long.
        confluent_kafka.KafkaException: the settings are wrong, or the cluster does not answer.
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        topic: str,
        policy: Policy,
        *,
        name: str,
        group_id: str | None = None,
        own: str | None = None,
        writes: Iterable[str] = (),
        rate: float | None = None,
        batch: int = _BATCH,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        if (size_bytes := len((own or "").encode())) > MAX_OWN_BYTES:
            raise ConfigError(
                f"expected {MAX_OWN_BYTES:,} bytes at most, such as a digest; found {size_bytes:,}",
                path="own",
            )
        self._conf: Final = {"log_level": 0, **conf}
        self._topic: Final = topic
        self._policy: Final = policy
        self._name: Final = name
        self._group: Final = group_id or f"headerware-{name}-{topic}"
        self._own: Final = own
        self._writes: Final = tuple(writes)
        self._timeout_s: Final = timeout_s
        self._stop: Final = StopFlag()
        self.pace: Final = Pace(rate, self._stop)
        """The limit on the records of a second."""
        self._batch: Final = self.pace.batch(batch)
        self._finishes = False
        settings = strict_settings(self._conf)
        self.reader: Final = TopicReader(settings, topic, group_id=self._group, timeout_s=timeout_s)
        """The reader of the topic."""
        self._fetched: Final = SingleRecords(settings, self._group, timeout_s)
        self._units: Final = Units(self._fetch, part_of=policy.part_of)
        self._done: Done
        self._read: Final[deque[tuple[TopicPartitionKey, int]]] = deque()
        """The records of a batch that are not noted yet."""
        policy.worker = self
        self._renewed = float("-inf")
        self.records: int = 0
        """How many records were read for the first time since the worker began."""
        self.size_bytes: int = 0
        """The bytes of these records, keys and headers included."""
        self.counts: Final[Counter[tuple[Disposition, str]]] = Counter()
        """How many records there were since the worker began, by disposition and reason."""

    def _fetch(self, topic: str, partition: int, offset: int) -> Record | None:
        return self._fetched.get(topic, partition, offset, seen=True)

    def stop(self) -> None:
        """Stop after the transaction that is under way; for signal handlers and other threads."""
        self._stop.set()

    @property
    def is_stopped(self) -> bool:
        """Whether :meth:`stop` was called."""
        return self._stop.is_set()

    def finish(self) -> None:
        """Read nothing after the present batch; for the policy."""
        self._finishes = True

    @property
    def deleted(self) -> int:
        """How many offsets the topic has lost before they were done."""
        return self._done.deleted

    @property
    def progress(self) -> Progress:
        """The progress to the end that the topic had when the worker began, in offsets."""
        return self.reader.progress

    @property
    def positions(self) -> dict[int, int]:
        """The offset of each partition below which all records except pending ones are done."""
        return {number: self._done.position((topic, number)) for topic, number in self._done.partitions}

    @property
    def commits(self) -> dict[int, int]:
        """The offset of each partition at which the next process begins to read."""
        return {key[1]: self._done.commit_of(key).offset for key in self._done.partitions}

    @property
    def group_id(self) -> str:
        """The group whose offsets are the worker's progress."""
        return self._group

    def preview(self, tell: Callable[[], object] = lambda: None) -> None:
        """Decide about the records that the topic has now; write and commit nothing."""
        if self._begin():
            self._go_on(None, follow=False, tell=tell)

    def run(self, *, follow: bool = False, tell: Callable[[], object] = lambda: None) -> None:
        """Decide about the records that the topic has now, and write and commit the outcomes.

        Args:
            follow: whether to go on at the end of the topic, until :meth:`stop`.
            tell: is called after each transaction.

        Raises:
            TakenOverError: another process has taken over.
            HeaderwareError: the group has another task, or a topic refuses even a stub of a dead letter.
            confluent_kafka.KafkaException: the cluster refuses a request, or does not answer.
        """
        sender = TransactionalSender(
            self._conf,
            self._group,
            what=f"{self._name} of {self._topic}",
            topics=self._writes,
            timeout_s=self._timeout_s,
        )
        try:
            # The offsets are read after the sender is made, because this ends a transaction that was open.
            if self._begin():
                self._go_on(sender, follow=follow, tell=tell)
        finally:
            sender.close()

    def _begin(self) -> bool:
        """Go to the committed positions of the group; return False if the worker was stopped before."""
        self._finishes, self._renewed = False, float("-inf")
        self.records = self.size_bytes = 0
        self.counts.clear()
        self._read.clear()
        self._units.forget([self._key(number) for number in self.reader.partitions])
        committed = self._policy.begin(self.reader.committed())
        self._done = Done(self._group, own=self._own)
        if not self._start(committed):
            return False
        begins = {
            number: self._done.begin(self._key(number), low, high, committed.get(number))
            for number, (low, high) in self.reader.bounds.items()
        }
        self.reader.start(offsets=begins)
        return True

    def _start(self, committed: Mapping[int, tuple[int, str]]) -> bool:
        """Start the reader, once the leaders of the partitions know the ends; return False if stopped before.

        A leader that has just been elected may not know the end yet.
        """
        deadline = time.monotonic() + self._timeout_s
        done = {number: decode_metadata(*each).position or each[0] for number, each in committed.items()}
        while True:
            self.reader.start()
            is_short = any(done.get(number, 0) > high for number, (_, high) in self.reader.bounds.items())
            if not is_short or time.monotonic() > deadline:
                return True
            if self._stop.wait(_WAIT_S):
                return False

    def _key(self, number: int | None) -> TopicPartitionKey:
        return self._topic, number or 0

    def _go_on(self, sender: TransactionalSender | None, *, follow: bool, tell: Callable[[], object]) -> None:
        self._write(sender, [])  # else the broker forgets the offsets of idle partitions
        for batch in self._batches(follow=follow):
            self.pace.begin()
            written = 0
            units = [unit for message in batch if (unit := self._taken(record_of(message))) is not None]
            for outcomes in self._by_size(self._decided(units)):
                became = self._write(sender, outcomes)
                written += sum(len(each.records) for each in became)
            tell()
            self.pace.keep(written if self._policy.paces == "written" else len(batch))
        if not (self._stop.is_set() or self._finishes):
            if self._policy.takes_incomplete:
                for outcomes in self._by_size(self._decided([*self._units.give_up(lost=self._done.note)])):
                    self._write(sender, outcomes)
            for number, (_, end) in self.reader.bounds.items():
                self._done.reached(self._key(number), end)
            self._write(sender, [])
            tell()

    def _batches(self, *, follow: bool) -> Iterator[list[Message]]:
        if not follow:
            for batch in self.reader.to_end(max_records=self._batch, each_batch=True):
                if self._stop.is_set():
                    return
                yield batch
                if self._finishes:
                    return
            return
        while not (self._stop.is_set() or self._finishes):
            batch = self.reader.read(max_records=self._batch, timeout_s=_WAIT_S)
            if batch or time.monotonic() > self._renewed + _RENEW_S:
                yield batch

    def _taken(self, record: Record) -> Unit | None:
        """Return the unit that a record makes complete, or None."""
        key, offset = self._key(record.partition), record.offset or 0
        was_done = self._done.was_done(key, offset)
        self._done.read(key, offset)
        if was_done:
            return None  # it lies between pending records
        if offset >= self._done.position(key):
            self.records += 1
            self.size_bytes += bytes_of(record) if is_readable(record) else 0
        self._read.append((key, offset))
        return self._units.add(record)

    def _by_size(self, outcomes: Sequence[Outcome]) -> Iterator[list[Outcome]]:
        """Yield outcomes in parts that are no larger than a transaction should be.

        What was read after the last unit of a part stays unnoted, as if it were not read yet: so the position
        says how far the parts are that were written.
        """
        part, size_bytes = list[Outcome](), 0
        for outcome in outcomes:
            part.append(outcome)
            size_bytes += sum(map(bytes_of, outcome.records))
            if size_bytes > _MAX_TRANSACTION_BYTES:
                self._note_read(outcome.unit)
                yield part
                part, size_bytes = [], 0
        self._note_read()
        yield part

    def _note_read(self, last: Unit | None = None) -> None:
        """Note records as pending, until their outcomes are committed: all, or those up to a unit."""
        end = None if last is None else (last.topic_partition, max(last.offsets))
        while self._read:
            key, offset = at = self._read.popleft()
            self._done.note(key, offset, is_pending=True)
            if at == end:
                return

    def _decided(self, units: Sequence[Unit]) -> list[Outcome]:
        """Return the outcomes of units; a record whose headers cannot be written becomes a dead letter."""
        outcomes = [*self._policy.decide(units)]
        if [_place(each.unit) for each in outcomes] != [_place(unit) for unit in units]:
            raise HeaderwareError(
                f"expected of {type(self._policy).__name__}.decide one outcome for each unit, in order; "
                f"found {len(outcomes)} outcomes for {len(units)} units"
            )
        return [self._writable(each) for each in outcomes]

    def _writable(self, outcome: Outcome) -> Outcome:
        for record in outcome.records:
            headers: object = record.headers
            if isinstance(headers, UnreadHeaders):
                error = InterceptorError(f"{headers.why}, so the record cannot be written")
                return self._policy.dead_letter(outcome.unit, error.at(self._name, outcome.unit.records[0]))
        return outcome

    def _write(self, sender: TransactionalSender | None, outcomes: Sequence[Outcome]) -> Sequence[Outcome]:
        """Write records of outcomes and commit the progress in one transaction; return the final outcomes."""
        if sender is None:
            for outcome in outcomes:
                self._note(outcome)
            self._policy.committed(outcomes)
            self._count(outcomes)
            return outcomes
        is_due = time.monotonic() > self._renewed + _RENEW_S
        if is_due:
            self._policy.renew()

        def offsets_of(current: Sequence[Outcome]) -> list[TopicPartition]:
            for outcome in current:
                self._note(outcome)
            return topic_partitions(self._commits(everything=is_due))

        def account_of(current: Sequence[Outcome], offsets: Sequence[TopicPartition]) -> Record | None:
            return self._policy.account(current, offsets) if current else None

        try:
            became = transact(
                sender,
                outcomes,
                offsets_of,
                self.reader.group_metadata(),
                decide_again=self._policy.decide_again,
                account_of=account_of,
            )
        except _TooManyPendingError:
            # Only slices that wait for other slices of their message can be given up. The messages that came
            # first are the most likely to wait in vain.
            self._note_read()
            waiting = len(self._units)
            incomplete = [*self._units.give_up((waiting + 1) // 2, lost=self._done.note)]
            if not waiting:
                raise
            given_up = [self._writable(self._policy.give_up(unit)) for unit in incomplete]
            return self._write(sender, [*outcomes, *given_up])
        self._done.committed(self._commits(everything=is_due))
        if is_due:
            self._renewed = time.monotonic()
        self._policy.committed(became)
        self._count(became)
        return became

    def _commits(self, *, everything: bool) -> dict[TopicPartitionKey, Commit]:
        try:
            return self._done.commits(everything=everything)
        except WireFormatError as error:
            advice = f". {self._policy.too_many_pending}" if self._policy.too_many_pending else ""
            raise _TooManyPendingError(
                f"{self._topic}: {error}; what was written before is committed{advice}"
            ) from error

    def _note(self, outcome: Outcome) -> None:
        key = outcome.unit.topic_partition
        for offset in outcome.unit.offsets:
            self._done.note(key, offset, is_pending=outcome.disposition == "pending")

    def _count(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            self.counts[outcome.disposition, outcome.why] += len(outcome.unit.offsets)

    def close(self) -> None:
        """Close its clients."""
        self._fetched.close()
        self.reader.close()


def _place(unit: Unit) -> tuple[TopicPartitionKey, tuple[int, ...]]:
    return unit.topic_partition, unit.offsets
