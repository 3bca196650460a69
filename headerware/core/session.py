"""A session: one opened chain of one client, without I/O of its own. It takes and returns records.

``send`` may be called from several threads at once; ``consume``, ``poll``, ``revoke`` and ``seek`` have
one caller at a time. A session starts no threads and reads no clock but the context's.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec

from headerware.core import services
from headerware.core.batch import Batch
from headerware.core.boundary import (
    WIRE_TYPES,
    admit,
    admit_bytes,
    admits,
    admits_bytes,
    is_normalised,
    normalised,
    refuse_compacted,
    refuse_compacted_batch,
    refuse_encodings,
    refuse_encodings_batch,
    require_plain_names,
    require_plain_names_batch,
    require_wire_names,
    require_wire_names_batch,
    to_wire,
    to_wire_batch,
)
from headerware.core.carry import AtWork, Carrying
from headerware.core.counters import Counters
from headerware.core.dead_letter import (
    PROCESSING,
    PROCESSING_STAGE,
    dead_letter,
    dead_letters,
    is_dead_letter_topic,
)
from headerware.core.errors import DeadLetterError, HeaderwareError, InterceptorError, position, raised_at
from headerware.core.headers import Headers
from headerware.core.hooks import DROP
from headerware.core.interrupts import pass_on_interrupt
from headerware.core.order import precedes_bytes
from headerware.core.record import Operation, Record, RecordMetadata
from headerware.core.runner import Outcome, Runner
from headerware.core.services import Direction, Service, TopicPartitionKey, offered
from headerware.core.step import BOUNDARY, Overhead, Step, known_outcome, not_stored
from headerware.core.topics import Elsewhere

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType

    from headerware.core.carry import Carry
    from headerware.core.context import Context, Publication
    from headerware.core.topics import TopicPatterns

_log: Final = logging.getLogger("headerware")


class Session:
    """An opened chain; :meth:`headerware.Chain.open` makes it."""

    def __init__(
        self,
        steps: Sequence[Callable[[Context], Step]],
        context: Context,
        previous: Session | None = None,
        *,
        carry: Carry = (),
        check: Callable[[Session], object] | None = None,
    ) -> None:
        self.context: Final = context
        self._steps: list[Step] = []
        self._closed = False
        self._owned: list[Step] = []
        self._previous: Session | None = None
        self._successor: Session | None = None
        self._going_on: frozenset[str] = frozenset()
        self._carried: dict[str, tuple[int, int]] = {}
        self._counters: Counters = Counters() if previous is None else previous._counters  # noqa: SLF001 - a session
        try:
            for opened in steps:
                overhead = Overhead()
                step = opened(msgspec.structs.replace(context, overhead_bytes=overhead, stats=self._counters))
                self._steps.append(step)
                if step.earlier is None:
                    step.overhead = overhead
                    self._owned.append(step)
        except BaseException:
            self.close()
            raise
        self._rights: Final = [self._steps[index + 1 :] for index in range(len(self._steps))]
        self._objects: Final = sum(precedes_bytes(step.interceptor) for step in self._steps)
        sending, consuming = self._with_checks()
        self._stopping = self._offering(services.HearsStopped)
        wrappings = self._offering(services.WrapsHooks)
        continuing = self._offering(services.CarriesOn)
        self.carrying: Final = Carrying(
            carry,
            self._steps,
            [
                (step.topics, partial(_guarded, step, "carried_on", own.carried_on))
                for step, own in continuing
            ],
        )
        """Carries on headers of the record that is processed to records that are sent meanwhile."""
        self._send: Final = Runner(
            "send",
            sending,
            self.carrying.after(admit if self._objects else admit_bytes),
            self.carrying.unless_at_work(admits if self._objects else admits_bytes),
            partial(self._publish_dead_letter, "ON_SEND"),
            partial(self._tell_stopped, "send"),
            wrappings,
        )
        self.is_empty: Final = not (self._steps or self.carrying)
        """Whether records pass as they are."""
        self._consume: Final = Runner(
            "consume",
            consuming,
            normalised,
            is_normalised,
            partial(self._publish_dead_letter, "ON_CONSUME"),
            partial(self._tell_stopped, "consume"),
            wrappings,
        )
        self.send_outcome: Final[Callable[[Record], Outcome]] = (
            _unchanged if self.is_empty else self._send.one
        )
        """Return the outcome of one record that is sent; return errors rather than raise them."""
        self.consume_outcome: Final[Callable[[Record], Outcome]] = (
            _unless_unreadable if self.is_empty else self._consume.one
        )
        """Return the outcome of one consumed record; return errors rather than raise them."""
        for step in self._steps:
            if step.states("splits") and step.on_error == "dead_letter":
                # Slices may never become a message, so their originals are kept for dead letters. If names
                # are compact, a slice cannot be recognised here, so all originals are kept.
                writes_ids = any(each.states("writes_ids") for each in self._steps)
                names = frozenset[str](getattr(step.interceptor, "decodes", ()))
                self._consume.keep_originals(None if writes_ids else names)
        self._acknowledging = self._offering(services.HearsAcknowledgements)
        self._processing = self._offering(services.HearsProcessed)
        self._surrounding = self._offering(services.SurroundsProcessing)
        self._operating = self._offering(services.HearsOperations)
        self._idling = [offered(interceptor, services.Idles) for _, interceptor in self._operating]
        self._committing = self._offering(services.HearsCommits)
        self._beginning = self._offering(services.Begins)
        self._polling = self._offering(services.Polls)
        self._ticking = self._offering(services.Ticks)
        self._hearing_statistics = self._offering(services.HearsStatistics)
        self._flushing = self._offering(services.Flushes)
        self._revoking = self._offering(services.Revokes)
        self._reassembling = self._offering(services.Reassembles)
        self.acknowledges: Final = bool(self._acknowledging)
        """Whether any interceptor hears the outcome of sent records."""
        self.acknowledges_all: Final = not all(
            step.states("acknowledges_own") for step, _ in self._acknowledging
        )
        """Whether any of these interceptors also needs records without state of its own in ``local``."""
        self.hears_commits: Final = bool(self._committing or self._operating)
        """Whether any interceptor hears which offsets were committed."""
        self.hears_operations: Final = bool(self._operating)
        """Whether any interceptor hears of receives and commits."""
        self.surrounds: Final = bool(self._surrounding)
        """Whether any interceptor surrounds the application's processing of records."""
        self.hears_processing: Final = bool(self._surrounding or self._processing)
        """Whether any interceptor surrounds the processing, or hears of its end."""
        self.takes_objects: Final = bool(self._objects)
        """Whether the application sends and gets objects, which a step serializes."""
        self.ticks: Final = bool(self._ticking)
        """Whether any interceptor has something to do from time to time."""
        self.hears_statistics: Final = bool(self._hearing_statistics)
        """Whether any interceptor hears librdkafka's statistics."""
        self.polls: Final = bool(self._polling)
        """Whether any interceptor releases consumed records on its own."""
        self.reassembles: Final = bool(self._reassembling)
        """Whether any interceptor makes one record of several, so that offsets need care."""
        self.reorders: Final = any(step.states("reorders") for step in self._steps)
        """Whether a record may come after later records of its partition."""
        self.names_of_waiting: Final = [
            step.name
            for step in self._steps
            if any(each is step for each, _ in [*self._reassembling, *self._polling])
        ]
        """The interceptors that keep a record back until others of its partition have come."""
        if check is not None:
            try:
                check(self)
            except BaseException:
                self.close()
                raise
        for step, right in zip(self._steps, self._rights, strict=True):
            step.overhead.rights = (*step.overhead.rights, right)
        self._counters.add(
            self.own_stats, (lambda: None) if previous is None else partial(self._take_over, previous)
        )

    def _take_over(self, previous: Session) -> None:
        """Become the owner of the steps that go on in this session; the previous one closes the others."""
        going_on = [step for step in self._steps if step.earlier is not None]
        self._going_on = frozenset(step.name for step in going_on)
        for step in going_on:
            step.earlier = None  # else a session would keep all its predecessors in memory
        self._owned = list(self._steps)
        previous._owned = [step for step in previous._owned if step.name not in self._going_on]
        self._previous, previous._successor = previous, self

    def keeps_waiting(self, previous: Session) -> bool:
        """Return whether all steps of the previous session that make one record of several go on here."""
        return all(step.name in self._going_on for step, _ in previous._reassembling)

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps, in the order of sending."""
        return tuple(self._steps)

    def _with_checks(self) -> tuple[list[Step], list[Step]]:
        """Return the steps of sending and of consuming, with the session's own checks among them."""
        sending, consuming = list(self._steps), list(self._steps)
        # Between the steps that see objects and the steps that see bytes.
        between = self._objects - 0.5
        # A step reads compact keys on its own topics only; elsewhere they are still encoded.
        elsewhere = Elsewhere(step.topics for step in self._steps if step.states("writes_ids"))
        ids_elsewhere = Elsewhere([elsewhere])
        consuming[self._objects : self._objects] = [
            _check("consume", refuse_compacted, refuse_compacted_batch, between, elsewhere),
            _check("consume", refuse_encodings, refuse_encodings_batch, between, ids_elsewhere),
        ]
        # Consuming ends with these steps, in the order of the steps that they belong to.
        first = -len(self._steps) - 1
        consuming[:0] = [
            accepting for at, step in enumerate(self._steps) if (accepting := step.accepting(first + at))
        ]
        if self._objects:
            sending.insert(self._objects, _check("send", to_wire, to_wire_batch, between, Elsewhere([])))
        end = float(len(self._steps))
        sending += [
            _check("send", require_plain_names, require_plain_names_batch, end, elsewhere),
            _check("send", require_wire_names, require_wire_names_batch, end, ids_elsewhere),
        ]
        return sending, consuming

    # Records

    def send(self, records: Iterable[Record]) -> list[Record]:
        """Send records through the chain, left to right, and return the records for the wire.

        Raises:
            HeaderwareError: the first error of any of the records.
        """
        return _raised(self.send_outcomes(list(records)))

    def consume(self, records: Iterable[Record]) -> list[Record]:
        """Take records from the wire through the chain, right to left, and return them for the application.

        Raises:
            HeaderwareError: the first error of any of the records.
        """
        return _raised(self.consume_outcomes(list(records)))

    def send_outcomes(self, records: Sequence[Record]) -> Sequence[Outcome]:
        """Return one outcome per record, in order; a record that fails does not affect the others.

        It is a :class:`~headerware.core.batch.Batch` if a batch came out, one record for each that went in.
        """
        return records if self.is_empty else self._send.many(records)

    def consume_outcomes(self, records: Sequence[Record]) -> Sequence[Outcome]:
        """Return one outcome per record, in order; a record that fails does not affect the others.

        It is a list, or of a :class:`~headerware.core.batch.Batch` also a batch, as of :meth:`send_outcomes`.
        """
        if self.is_empty:
            return list(map(_unless_unreadable, records))
        outcomes = self._consume.many(records)
        if isinstance(outcomes, Batch):
            return outcomes if isinstance(records, Batch) else [*outcomes.records()]
        return list(outcomes)

    # Events

    def acknowledge(
        self, record: Record, metadata: RecordMetadata | None, error: BaseException | None
    ) -> None:
        """Tell every interceptor, once, the outcome of a record that the application sent."""
        for step, interceptor in self._acknowledging:
            if step.topics.matches(record.topic):
                # The code of _guarded without its call, because this runs for every sent record.
                try:
                    interceptor.on_acknowledgement(record, metadata, error)
                except Exception as failure:  # noqa: BLE001 - it is logged and counted
                    _note_failure(step, "on_acknowledgement", failure)

    def processed(self, record: Record, error: BaseException | None = None) -> None:
        """Tell every interceptor that the application has finished with a record."""
        for step, interceptor in self._processing:
            if step.topics.matches(record.topic):
                _guarded(step, "on_processed", interceptor.on_processed, record, error)

    @contextmanager
    def processing(self, records: Sequence[Record]) -> Iterator[list[Record]]:
        """Surround the processing of records, and tell every interceptor when it has ended or failed.

        Meanwhile the records are at work (:mod:`headerware.core.carry`).

        An exception of the block goes to the interceptors, and is raised again. ``on_processed`` follows for
        the records in the list that the block gets; the block may remove records that will be processed
        again.
        """
        told = list(records)
        left: list[tuple[Step, AbstractContextManager[object]]] = []
        for step, interceptor in self._surrounding:
            own = [record for record in records if step.topics.matches(record.topic)]
            manager = own and _guarded(step, "processing", interceptor.processing, own)
            if manager and _guarded(step, "processing", _enter, manager):
                left.append((step, manager))
        error: BaseException | None = None
        try:
            with AtWork(records):
                yield told
        except BaseException as raised:
            error = raised
            raise
        finally:
            for step, manager in reversed(left):
                _guarded(step, "processing", manager.__exit__, *exit_arguments(error))
            for record in told:
                self.processed(record, error)

    def stopped(self, record: Record, outcome: str, error: BaseException | None) -> None:
        """Tell interceptors of a consumed record that the application gave up; any thread may call it."""
        self._tell_stopped("consume", record, PROCESSING, outcome, error)

    def keep_originals(self) -> None:
        """Keep each consumed record as it was on the wire, in its local state under ``ORIGINAL``.

        The original of a reassembled record is the record just after reassembly. An original takes memory as
        long as its record lives.
        """
        self._consume.keep_originals()

    def dead_letter(
        self,
        original: Record,
        error: InterceptorError,
        *,
        topic: str,
        names: str,
        stage: str = PROCESSING_STAGE,
    ) -> bool:
        """Publish the dead letter of a record that the application gave up; return once it is stored.

        ``topic`` and ``names`` are as an interceptor's ``dead_letter_topic`` and ``dead_letter_headers``.
        Return False if the record is a dead letter itself, which gets no other. Any thread may call this.

        Raises:
            DeadLetterError: it could not be stored.
        """
        step = Step(
            position=0,
            name=PROCESSING,
            interceptor=SimpleNamespace(dead_letter_topic=topic, dead_letter_headers=names),
            opened=None,
            topics=Elsewhere([]),
            on_error="dead_letter",
        )
        sending = self._publish_dead_letter(stage, original, error, step)
        try:
            while True:
                next(sending)  # it waits for the part that it has sent
        except StopIteration as ended:
            return bool(ended.value)
        except Exception as unstored:
            pass_on_interrupt(unstored)
            raise not_stored(unstored, error).at(step.name, original) from unstored

    def operation(self, operation: Operation) -> None:
        """Tell interceptors of a receive or a commit, each with the records and offsets of its own topics."""
        concerned = [*operation.records, *operation.offsets]
        for step, interceptor in self._operating:
            own = operation
            if concerned and not all(step.topics.matches(each.topic) for each in concerned):
                records = [record for record in operation.records if step.topics.matches(record.topic)]
                offsets = [offset for offset in operation.offsets if step.topics.matches(offset.topic)]
                if not (records or offsets):
                    continue
                own = msgspec.structs.replace(operation, records=records, offsets=offsets)
            _guarded(step, "on_operation", interceptor.on_operation, own)

    def awaits_operations(self) -> bool:
        """Return whether any interceptor would do something now if it heard of an operation."""
        return any(idling is None or not idling.is_idle() for idling in self._idling)

    def committed(self, offsets: Sequence[Any]) -> None:
        """Tell every interceptor which offsets have been committed."""
        for step, interceptor in self._committing:
            _guarded(step, "on_commit", interceptor.on_commit, offsets)

    def tick(self) -> None:
        """Let interceptors do what they have to do from time to time."""
        now = self.context.now_ms()
        for step, interceptor in self._ticking:
            _guarded(step, "tick", interceptor.tick, now)

    @property
    def statistics_interval_ms(self) -> int | None:
        """The shortest interval in which an interceptor wants librdkafka's statistics, in milliseconds."""
        wanted = [interceptor.statistics_interval_ms for _, interceptor in self._hearing_statistics]
        return min((interval for interval in wanted if interval is not None), default=None)

    def statistics(self, text: str) -> None:
        """Tell interceptors librdkafka's statistics, as JSON."""
        for step, interceptor in self._hearing_statistics:
            _guarded(step, "on_statistics", interceptor.on_statistics, text)

    def begin(self, work: str) -> None:
        """Tell every interceptor which piece of work the client begins, such as one batch of a job."""
        for _, interceptor in self._beginning:
            interceptor.begin(work)

    def poll(self, now_ms: int | None = None) -> list[Outcome]:
        """Return the records that the consuming side releases by now, and the errors of expired records."""
        now = self.context.now_ms() if now_ms is None else now_ms
        outcomes: list[Outcome] = []
        for step, interceptor in self._polling:
            outcomes.extend(self._consume.run_released(step, interceptor.poll, now))
        return outcomes

    def is_due(self) -> bool:
        """Return whether an interceptor has so much to release that :meth:`poll` is to be called now."""
        return any(interceptor.is_due() for _, interceptor in self._reassembling)

    def flush(self) -> list[Outcome]:
        """Return the records that interceptors still hold back on the sending side."""
        outcomes: list[Outcome] = []
        for step, interceptor in self._flushing:
            outcomes.extend(self._send.run_released(step, interceptor.flush))
        return outcomes

    # Offsets

    def reached(self, topic: str, partition: int, offset: int) -> None:
        """Note how far a partition has been read, for records that do not come through the chain."""
        for _, interceptor in self._reassembling:
            interceptor.reached(topic, partition, offset)

    def waiting_offsets(self) -> dict[TopicPartitionKey, list[int]]:
        """Return the offsets of the records that still wait for others of their message, by partition."""
        waiting: dict[TopicPartitionKey, list[int]] = {}
        for _, interceptor in self._reassembling:
            for topic_partition, offsets in interceptor.waiting_offsets().items():
                waiting.setdefault(topic_partition, []).extend(offsets)
        return waiting

    def revoke(self, partitions: Iterable[TopicPartitionKey]) -> None:
        """Forget the state of partitions that have gone to another consumer."""
        gone = list(partitions)
        for _, interceptor in self._revoking:
            interceptor.revoke(gone)

    def seek(self, topic: str, partition: int, offset: int) -> int:
        """Return the offset at which to begin, so that the record at ``offset`` is complete."""
        begin = offset
        for _, interceptor in self._reassembling:
            earlier = interceptor.seek(topic, partition, offset)
            begin = begin if earlier is None else min(begin, earlier)
        return begin

    def safe_offset(self, topic: str, partition: int, position: int) -> int:
        """Return the largest offset up to ``position`` from which a restart loses nothing."""
        return min(
            (interceptor.safe_offset(topic, partition, position) for _, interceptor in self._reassembling),
            default=position,
        )

    def safe_offsets(self) -> dict[TopicPartitionKey, int]:
        """Return the first offset of an incomplete message, for each partition that has one."""
        safest: dict[TopicPartitionKey, int] = {}
        for _, interceptor in self._reassembling:
            for topic_partition, offset in interceptor.safe_offsets().items():
                safest[topic_partition] = min(offset, safest.get(topic_partition, offset))
        return safest

    # Counters and closing

    def stats(self) -> dict[str, dict[str, int]]:
        """Return the counters of each interceptor, by name."""
        return self._stats_of(self._steps)

    def own_stats(self) -> dict[str, dict[str, int]]:
        """Return the counters of each interceptor that does not go on in a later session, by name."""
        return self._stats_of(self._owned)

    def _stats_of(self, steps: Sequence[Step]) -> dict[str, dict[str, int]]:
        records = self._records_by_step()
        return {
            step.name: {
                "sent": records[step.name][0],
                "consumed": records[step.name][1],
                **step.counts,
                **({"patterns_unmatched": len(step.topics.unmatched)} if step.topics.unmatched else {}),
                **({} if (own := offered(step.opened, services.Counts)) is None else own.stats()),
            }
            for step in steps
        }

    def _records_by_step(self) -> dict[str, tuple[int, int]]:
        """Count the records that each step has sent and consumed, also in the sessions before this one."""
        sent, consumed = self._send.records_by_step(), self._consume.records_by_step()
        previous = self._previous
        earlier = self._carried if previous is None else previous._records_by_step()  # noqa: SLF001 - a session
        found: dict[str, tuple[int, int]] = {}
        for step in self._steps:
            before = earlier.get(step.name, (0, 0)) if step.name in self._going_on else (0, 0)
            found[step.name] = (sent.get(step.name, 0) + before[0], consumed.get(step.name, 0) + before[1])
        return found

    def close(self) -> None:
        """Close every interceptor once, even if another fails to close; calling this again does nothing.

        A later session closes the interceptors that go on there.
        """
        if self._closed:
            return
        self._closed = True
        successor, self._successor = self._successor, None
        if successor is not None:
            successor._carried, successor._previous = self._records_by_step(), None  # noqa: SLF001 - a session
            for step, right in zip(self._steps, self._rights, strict=True):
                step.overhead.drop(right)
        unmatched = [
            f"{step.name} ({', '.join(found)})" for step in self._owned if (found := step.topics.unmatched)
        ]
        if unmatched:
            _log.warning("patterns of topics that matched no topic of this client: %s", "; ".join(unmatched))
        self._acknowledging = []
        for step in self._owned:
            closing = offered(step.opened, services.Closes)
            if closing is not None:
                _guarded(step, "close", closing.close)
        if successor is not None:
            self._counters.close(self.own_stats)

    def __enter__(self) -> Self:
        """Return the session itself."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the session."""
        self.close()

    def _tell_stopped(
        self,
        direction: Direction,
        record: Record,
        name: str,
        outcome: str,
        error: BaseException | None,
    ) -> None:
        """Tell interceptors of a record that a step stopped; its topic may be of any type at the boundary."""
        topic: object = record.topic
        for step, interceptor in self._stopping:
            if isinstance(topic, str) and step.topics.matches(topic):
                _guarded(step, "on_stopped", interceptor.on_stopped, direction, record, name, outcome, error)

    def _offering(self, service: Callable[..., Service]) -> list[tuple[Step, Service]]:
        """Return the steps whose interceptors offer a service, each with its interceptor."""
        return [(step, found) for step in self._steps if (found := offered(step.opened, service)) is not None]

    def _publish_dead_letter(
        self, stage: str, original: Record, error: InterceptorError, step: Step
    ) -> Generator[Publication, None, bool]:
        """Publish the dead letter of a record and return True once it is stored, or raise.

        Yield each part that is on its way, and wait for it if the caller goes on before it is stored. Return
        False for a record that gets no dead letter: a dead letter itself, a record with objects that were
        never serialized, or a record that is being sent through a chain that hides its content.
        """
        if original.value.__class__ not in WIRE_TYPES or original.key.__class__ not in WIRE_TYPES:
            return False
        if stage == "ON_SEND" and self.hides(original.topic):
            return False
        interceptor = step.interceptor
        topic = str(getattr(interceptor, "dead_letter_topic", "{topic}.dead-letter"))
        if is_dead_letter_topic(topic, original.topic):
            return False
        publish = self.context.publish
        if publish is None:
            raise DeadLetterError("this session's context has no publish port to send a dead letter with")
        policy = getattr(interceptor, "dead_letter_too_large", "stub")
        names = str(getattr(interceptor, "dead_letter_headers", "connect"))
        how: dict[str, Any] = {
            "topic": topic,
            "names": names,
            "stage": stage,
            "group_id": self.context.group_id,
            "cluster": self.context.cluster_id() if names == "headerware" else None,
            "now_ms": self.context.now_ms(),
        }
        letter: Record | None = dead_letter(original, error, **how)
        others: Iterator[tuple[Record, bool]] | None = None  # made when a topic has refused the first one
        is_stub, refusal = False, None
        while letter is not None:
            try:
                parts = tuple(map(publish, self._split(letter)))
                letter = None  # many wait here, and the client has copied what it sends
                while parts:
                    part, parts = parts[0], parts[1:]
                    if part is not None:
                        yield part
                        part.result()
            except InterceptorError as unstored:
                if isinstance(unstored, DeadLetterError) and not unstored.unfit:
                    raise
                refusal = unstored
            else:
                if is_stub and refusal is not None:
                    _note_stub(step, original, refusal)
                return True
            if others is None:
                # A record that is being sent is stored nowhere else, so its application keeps it.
                stubs = policy == "stub" and stage != "ON_SEND"
                others = dead_letters(original, error, stubs=stubs, **how)
                next(others)
            letter, is_stub = next(others, (None, False))
        assert refusal is not None  # noqa: S101 - there is always a dead letter to try
        raise refusal

    def hides(self, topic: str) -> bool:
        """Return whether the chain hides the content of records of a topic."""
        return any(step.states("hides") and step.topics.matches(topic) for step in self._steps)

    def _split(self, dead_letter: Record) -> Iterable[Record]:
        """Split the dead letter of a reassembled message, which may be too large for one record."""
        for step in self._steps:
            if step.states("splits") and (split := step.hook("on_send")):
                parts: Record | Iterable[Record] = split(dead_letter)
                if not isinstance(parts, Record):
                    return parts
        return (dead_letter,)


def _note_stub(step: Step, original: Record, refusal: InterceptorError) -> None:
    """Count a dead letter that is only a stub, and log the first one of a step."""
    step.counts["stubs"] = step.counts.get("stubs", 0) + 1
    if step.logged.is_new("stub"):
        _log.warning(
            "%s: the dead letter of %s is a stub without the payload, because %s (further stubs are only "
            "counted)",
            step.name,
            position(original.topic, original.partition, original.offset),
            refusal.message,
        )


def _unchanged(record: Record) -> Outcome:
    return record


def _unless_unreadable(record: Record) -> Outcome:
    """Return a consumed record as it is, or the error of its headers if they cannot be read."""
    if record.headers.__class__ is not Headers:
        try:
            Headers(record.headers)
        except HeaderwareError as error:
            return error
    return record


def _check(
    direction: Direction,
    check: Callable[[Record], Record],
    check_batch: Callable[[Batch], Batch],
    position: float,
    topics: TopicPatterns,
) -> Step:
    """Make a step of the session itself, which checks the records of one direction."""
    hook = f"on_{direction}"
    return Step(
        position=position,
        name=BOUNDARY,
        interceptor=None,
        opened=SimpleNamespace(**{hook: check, f"{hook}_batch": check_batch}),
        topics=topics,
        on_error="raise",
    )


def exit_arguments(
    error: BaseException | None,
) -> tuple[type[BaseException] | None, BaseException | None, TracebackType | None]:
    """Return the arguments of ``__exit__`` for an error; contextlib drops a traceback that is not passed."""
    return (None, None, None) if error is None else (type(error), error, error.__traceback__)


def _enter(manager: AbstractContextManager[object]) -> bool:
    manager.__enter__()
    return True


def _guarded(step: Step, name: str, hook: Callable[..., Any], *arguments: Any) -> Any:
    """Call a hook that only observes, and return its result; log and count a failure, and return None."""
    try:
        return hook(*arguments)
    except Exception as error:  # noqa: BLE001 - it is logged and counted
        _note_failure(step, name, error)
        return None


def _note_failure(step: Step, name: str, error: Exception) -> None:
    """Count a failure of a hook that only observes, and log the first one."""
    pass_on_interrupt(error)
    step.counts["failed"] += 1
    if step.logged.is_new(name):
        # The error's own text may quote a payload, so only its type and position are logged.
        _log.warning(
            "%s failed in %s: %s%s (further failures are only counted)",
            step.name,
            name,
            type(error).__name__,
            raised_at(error),
        )


def _raised(outcomes: Sequence[Outcome]) -> list[Record]:
    found: Sequence[Any] = outcomes.records() if isinstance(outcomes, Batch) else outcomes
    if {Record}.issuperset(map(type, found)):  # the usual case, at a tenth of the cost
        return list(found)
    records: list[Record] = []
    for outcome in map(known_outcome, found):
        if isinstance(outcome, HeaderwareError):
            raise outcome
        if isinstance(outcome, Record):
            records.append(outcome)
        elif outcome is not DROP:
            records.extend(outcome)
    return records
