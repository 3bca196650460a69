"""The consumer: confluent-kafka's, with a chain between the wire and the application.

A record goes through ``poll`` or ``consume`` in these steps:

1. confluent-kafka's own method fetches a message.
2. The chain makes one record, several, none or an error of the message's record.
3. One record goes to the application at once. Every other outcome waits in the inbox of :class:`Delivery`
   (``delivery.py``), which says what to give, and which partitions and offsets to pause, resume, seek, store
   and commit. This class carries that out.

A refused record comes alone, never in a list with others. If the application dies of the error, it has
processed all records before the refused one and has got none after it, so the offset after the refused record
may be committed at once (``refused_records.py``). Dead letters are sent in batches; the records after a dead
letter wait until it is stored. After an interrupt between two steps, ``interrupts.py`` recovers the records.
"""

from __future__ import annotations

import inspect
import logging
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from math import inf
from threading import get_ident
from types import CodeType, FrameType, TracebackType
from typing import Any, ClassVar, Final

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition, cimpl
from confluent_kafka.error import ConsumeError

from headerware.clients.callbacks import call_back, guard_callbacks
from headerware.clients.cluster_id import ClusterIdPort, cluster_id_port
from headerware.clients.commits import commit_offsets, commit_quietly, commit_stored, on_commit
from headerware.clients.dead_letters import MAX_MESSAGE_BYTES, DeadLetters, PublishedRecord, close_all
from headerware.clients.delivery import (
    Command,
    Commit,
    CommitRefused,
    Delivery,
    Entry,
    Pause,
    Resume,
    Seek,
    Store,
    wire_partition,
)
from headerware.clients.executor import OUTCOMES, Client, Executor
from headerware.clients.forked import refuse_in_children
from headerware.clients.interrupts import COMMITTED_TIMEOUT_S, Fetch
from headerware.clients.live_chain import FollowsFile
from headerware.clients.offsets import (
    Offsets,
    at_offset,
    register_consumer,
    topic_partition_of,
    with_own_metadata,
)
from headerware.clients.processing import MessageLoop, Processes
from headerware.clients.raw import (
    INVALID_ARG,
    NO_OFFSET,
    STATE,
    TIMED_OUT,
    instrumented_by,
    unless_chained,
)
from headerware.clients.refused_records import (
    RefusedMessage,
    RefusedOffsets,
    RefusedRecordError,
    as_message,
    raisable,
)
from headerware.clients.run_options import OnFailure, Order, RunOptions
from headerware.clients.sessions import InUse, Sessions
from headerware.clients.settings import (
    chain_by_name,
    flattened,
    initialise,
    listen_to_statistics,
    merged,
    tell_statistics,
)
from headerware.core.chain import Chain
from headerware.core.client_chain import DEAD_LETTER, PROCESSING
from headerware.core.context import Context
from headerware.core.errors import ConfigError, HeaderwareError, SerdeError
from headerware.core.hooks import DeadLetterHeaders, DeadLetterUnavailable
from headerware.core.record import Record
from headerware.core.services import TopicPartitionKey
from headerware.core.session import Session
from headerware.core.step import LoggedReasons
from headerware.kafka.messages import record_of
from headerware.kafka.settings import boolean, bootstrap_servers, number

RebalanceCallback = Callable[[Any, list[TopicPartition]], Any]
# Not by the name in confluent_kafka, which our instrumentation and others replace.
_C: Final[Any] = cimpl.Consumer
_c_init, _c_poll, _c_consume = _C.__init__, _C.poll, _C.consume
_c_commit, _c_store = _C.commit, _C.store_offsets
_TICK_S: Final = 0.5
_KEEP_ALIVE_S: Final = 0.1
"""The least time between two polls whose only purpose is to remain in the group."""
_LOOP_S: Final = 0.1
"""How long a loop waits before it looks whether ``stop`` was called."""
_LONG_WAIT_S: Final = 1.0
"""How long there may be no room for dead letters before a poll tells the group that this consumer lives."""
_REPORTS_S: Final = 0.05
"""How long to wait for the reports of dead letters before the next fetch."""
_LAST_REPORTS_S: Final = 5.0
"""How long to wait for dead letters on their way before partitions go, or the consumer closes."""
_MAX_BATCH: Final = 1_000_000
_log: Final = logging.getLogger("headerware")


def _pause(consumer: Any, partitions: list[TopicPartition]) -> None:
    # This raises if the consumer is closed; confluent-kafka's pause would then end the process (2.13).
    _C.assignment(consumer)
    _C.pause(consumer, partitions)


def _resume(consumer: Any, partitions: list[TopicPartition]) -> None:
    _C.assignment(consumer)  # as above
    _C.resume(consumer, partitions)


class Consumer(FollowsFile, Processes, cimpl.Consumer):
    """Consume from Kafka through a chain; a drop-in for ``confluent_kafka.Consumer``.

    Args:
        conf: confluent-kafka's configuration, with the chain's own keys (``interceptors``,
            ``interceptors.*``, ``headerware.config``) among it, and ``headerware.dead_letter.<key>`` for
            the producer of dead letters; keywords are merged into it.
        chain: the chain, if code makes it.

    Raises:
        ConfigError: the chain's configuration is wrong.
        KafkaException: confluent-kafka refuses the rest.

    Without a chain it is the raw client: confluent-kafka's own methods answer. The application is told of a
    refused record once, and the record's offset counts as consumed, also after a restart. The error is raised
    if ``chain`` was passed. If the chain comes from configuration, for an application that does not know of
    the chain, the record is a message whose ``error()`` is set. Like confluent-kafka's consumer, the client
    has one caller at a time.
    """

    _hw_hides_headers = False
    """Repeated here, because a serializing client has this base before an instrumented class."""
    _hw_raises_events: bool = False
    """Whether ``poll`` raises error events rather than return them as messages."""
    _hw_is_directed: bool = False
    _hw_warned_in: frozenset[str] = frozenset()
    """Whether the application has subscribed, or has assigned partitions; unknown without a chain."""
    _hw_stopping: bool = False
    """Whether ``stop`` was called."""
    _HW_FETCHING: ClassVar[frozenset[CodeType]] = frozenset()
    """The methods that take records from the wire to the application."""

    @chain_by_name
    def __init__(self, *args: Any, chain: Chain | None = None, **conf: Any) -> None:
        given = merged(args, conf)
        if given is None:
            _c_init(self, *args, **conf)  # raises as confluent-kafka does
            raise TypeError("expected configuration dict")
        self._hw_raises_errors = chain is not None
        self._hw_chain, rest = self._hw_chain_for(given, chain)
        mode = self._hw_take_options(rest, chain)
        # An application that passed a chain, or says so, may call run, for which we store the offsets.
        if not (self._hw_may_have_a_chain() or chain or mode == "said"):
            own = {key: value for key, value in rest.items() if not str(key).startswith(DEAD_LETTER)}
            initialise(_c_init, self, own)
            return
        self._hw_open(flattened(rest))
        refuse_in_children(self)
        if self._hw_live is not None:
            self._hw_live.follow(self)

    def _hw_open(self, conf: dict[str, Any]) -> None:
        # Two producers, because we wait for dead letters, and never for reports.
        dead_letters, reports = DeadLetters(conf), DeadLetters(conf, is_checked=True)
        context = consumer_context(self, conf, dead_letters.publish, dead_letters, reports)
        assert isinstance(context.cluster_id, ClusterIdPort)  # noqa: S101 - it was made there
        self._hw_cluster_id, self._hw_dead_letters = context.cluster_id, dead_letters
        self._hw_executor: Executor | None = None
        starts = conf.get("auto.offset.reset") in {"earliest", "beginning", "smallest"}
        self._hw_fetch = Fetch(starts_at_beginning=starts)
        session = self._hw_session = self._hw_chain.open(context)
        try:
            self._hw_commit_interval_s = number(conf, "auto.commit.interval.ms", 5_000) / 1000
            self._hw_commits = (
                boolean(conf, "enable.auto.commit", default=True) and self._hw_commit_interval_s > 0
            )
            delivery = self._hw_delivery = Delivery(
                session,
                stores=boolean(conf, "enable.auto.offset.store", default=True),
                commits_every_s=self._hw_commit_interval_s if self._hw_commits else 0.0,
                hides_headers=self._hw_hides_headers,
            )
            hears_commits = session.hears_commits or self._hw_live is not None
            raw = _raw_settings(conf, delivery.offsets, hears_commits=hears_commits)
            reference = weakref.ref(self)
            guard_callbacks(raw)
            listen_to_statistics(raw, session, lambda: _session_of(reference()))
            initialise(_c_init, self, raw)
        except BaseException:
            session.close()
            raise
        self._hw_in_process = None
        self._hw_next_chain = None
        self._hw_next_tick = self._hw_next_keep_alive = 0.0
        self._hw_logged = LoggedReasons()
        self._hw_run_counts = dict.fromkeys(OUTCOMES, 0)
        self._hw_refused_offsets = RefusedOffsets()
        self._hw_in_use = InUse(session)
        self._hw_bind(session)
        self._hw_sessions = Sessions(self._hw_in_use, session)
        self._hw_finish = weakref.finalize(self, close_all, self._hw_sessions, dead_letters, reports)
        self._hw_chained = True
        # CPython 3.11 reads an attribute of a subclass of a C type in 20 ns, but in 9 ns if its dict shares
        # no keys with others of its class; poll reads a dozen of them for each record.
        self.__dict__ = dict(vars(self))

    def _hw_bind(self, session: Session) -> None:
        """Let records go through a session from now on."""
        self._hw_session = session
        self._hw_observe(session)
        self._hw_delivery.use(session, self._hw_in_use)
        self._hw_needs_ticks = session.polls or session.ticks or self._hw_delivery.reassembles

    # Another chain

    def reload(self) -> bool:
        """Read the file of the chain again, and take the next record from the wire through the new chain.

        It works as in other clients. In addition, a message that is not complete yet keeps its slices, or
        they are read again if the new chain treats slices in another way.
        """
        if self._hw_chained:
            self._hw_recover(sys._getframe())  # noqa: SLF001 - as inspect does
        return FollowsFile.reload(self)

    def _hw_use_chain(self, chain: Chain) -> None:
        earlier = self._hw_session
        session = chain.open(earlier.context, previous=earlier)
        self._hw_delivery.read_again_unless_kept(session)
        self._hw_chain, self._hw_in_use = chain, InUse(session)
        self._hw_bind(session)
        self._hw_sessions.add(self._hw_in_use, session)
        self._hw_carry_out()

    # Subscription and assignment

    @unless_chained(_C.subscribe)
    def subscribe(
        self,
        topics: list[str],
        on_assign: RebalanceCallback | None = None,
        on_revoke: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
    ) -> None:
        """Subscribe to topics; the chain forgets revoked partitions after the application's callback."""
        if isinstance(topics, str):  # type: ignore[unreachable]  # as an application might
            raise TypeError(f"expected a list of topics, found text; write subscribe([{topics!r}])")
        _C.subscribe(self, topics, **_rebalance_callbacks(on_assign, on_revoke, on_lost))
        self._hw_is_directed = True

    @unless_chained(_C.unsubscribe)
    def unsubscribe(self) -> None:
        """Leave the subscription, and forget records that were not delivered."""
        self._hw_end_implicit()
        gone = _C.assignment(self)
        self._hw_commit_before_leaving(gone)
        _C.unsubscribe(self)
        self._hw_remove_partitions(gone, commit=False)

    @unless_chained(_C.assign)
    def assign(self, partitions: list[TopicPartition]) -> None:
        """Assign partitions; those without an offset begin at their committed offset."""
        gone = _C.assignment(self)
        self._hw_commit_before_leaving(gone)
        _C.assign(self, partitions)
        self._hw_remove_partitions(gone, commit=False)
        self._hw_add_partitions(partitions)

    @unless_chained(_C.unassign)
    def unassign(self) -> None:
        """Give up all partitions."""
        gone = _C.assignment(self)
        self._hw_commit_before_leaving(gone)
        _C.unassign(self)
        self._hw_remove_partitions(gone, commit=False)

    @unless_chained(_C.incremental_assign)
    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Add partitions to the assignment."""
        _C.incremental_assign(self, partitions)
        self._hw_add_partitions(partitions)

    @unless_chained(_C.incremental_unassign)
    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Remove partitions from the assignment."""
        self._hw_commit_before_leaving(partitions)
        _C.incremental_unassign(self, partitions)
        self._hw_remove_partitions(partitions, commit=False)

    def _hw_commit_before_leaving(self, partitions: Iterable[TopicPartition]) -> None:
        """Commit the safe offsets of partitions before the application gives the partitions up."""
        topic_partitions = {topic_partition_of(partition) for partition in partitions}
        self._hw_await_reports(topic_partitions)
        if self._hw_executor is not None:
            self._hw_executor.commit_processed(topic_partitions)
        self._hw_commit_watermarks()

    def _hw_add_partitions(self, partitions: list[TopicPartition]) -> None:
        """Begin to read partitions."""
        self._hw_is_directed = True
        chosen = self._hw_delivery.begin(partitions)
        if self._hw_executor is not None:
            self._hw_executor.begin(chosen)

    def _hw_before_revocation(self, partitions: list[TopicPartition], *, lost: bool = False) -> None:
        """Wait for the records at work of partitions that go, and commit them."""
        topic_partitions = {topic_partition_of(partition) for partition in partitions}
        if not lost:
            self._hw_await_reports(topic_partitions)
        if self._hw_executor is not None:
            self._hw_executor.revoke(topic_partitions, lost=lost)

    def _hw_remove_partitions(self, partitions: Iterable[TopicPartition], *, commit: bool) -> None:
        """Forget partitions that have gone to another consumer, or begin anew."""
        topic_partitions = {topic_partition_of(partition) for partition in partitions}
        if commit:
            self._hw_commit_watermarks()
        if self._hw_executor is not None:
            self._hw_executor.forget(topic_partitions)
        self._hw_delivery.forget(topic_partitions)
        for topic_partition in topic_partitions:
            # librdkafka has committed the stored offset if the partition was still ours.
            self._hw_refused_offsets.pop(topic_partition, None)

    # Records

    def poll(self, timeout: float = -1) -> Message | None:
        """Return the next message, or None after ``timeout`` seconds without one.

        Goes on through dropped and waiting records until the deadline. A refused record is a message whose
        ``error()`` is set, unless the chain was passed in code.

        Raises:
            HeaderwareError: the chain, passed in code, refused a record; it is not delivered again.
        """
        if not self._hw_chained:
            message: Message | None = _c_poll(self, timeout)
            if self._hw_looks_at and message is not None:
                self._hw_look_at([message])
            return message
        if not (self._hw_is_directed or self._hw_warned_in):
            self._hw_warn_unless_directed("poll")
        messages = self._hw_next(1, timeout, polls=True)
        return messages[0] if messages else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return up to ``num_messages`` messages, or an empty list after ``timeout`` seconds.

        Returns only the messages before a refused record. The next call answers for the refused record: it
        returns a message whose ``error()`` is set, or raises if the chain was passed in code.

        Raises:
            HeaderwareError: the chain, passed in code, refused a record; it is not delivered again.
        """
        if not self._hw_chained or not 0 < num_messages <= _MAX_BATCH:
            found = list(_c_consume(self, num_messages, timeout))
            if self._hw_looks_at:
                self._hw_look_at(found)
            return found
        if not (self._hw_is_directed or self._hw_warned_in):
            self._hw_warn_unless_directed("consume")
        return self._hw_next(num_messages, timeout)

    def _hw_next(self, limit: int, timeout: float, *, polls: bool = False) -> list[Message]:
        """Return the next messages; with ``polls``, confluent-kafka's ``poll`` fetches the only one."""
        self._hw_begin_fetch()
        delivery, fetch = self._hw_delivery, self._hw_fetch
        began_ns = time.time_ns() if self._hw_observes and self._hw_is_awaited() else 0
        deadline = time.monotonic() + timeout if timeout > 0 else None
        asked, enough, came = False, True, True
        while True:
            if delivery.entries:
                self._hw_give(limit, raises=polls and self._hw_raises_events)
            if delivery.delayed and delivery.end_delays():
                continue
            if delivery.commands:
                self._hw_carry_out()
            left = timeout if deadline is None or not asked else deadline - time.monotonic()
            if delivery.given and (enough or delivery.entries or fetch.deferred_error is not None):
                break
            if asked and timeout >= 0 and left <= 0:
                break
            asked, room, wait_s = True, limit, left
            if delivery.entries:
                if self._hw_wait_for_retry(left):
                    continue
                if delivery.awaits_dead_letter:
                    room, wait_s = self._hw_listen_for_reports(left, waits=not came), 0.0
                    if not room:
                        continue
            wait_s = self._hw_poll_timeout(wait_s)
            if polls:
                message: Message | None = _c_poll(self, wait_s)
                if self._hw_needs_ticks:
                    self._hw_tick()
                came = message is not None
                if message is None:
                    continue
                if message.error() is not None:
                    delivery.add_event(message)
                    continue
                record = record_of(message)
                if delivery.reassembles:
                    self._hw_recall_watermark(message)
                outcome = delivery.consume(record)
                if outcome.__class__ is Record and not delivery.reassembles and not delivery.entries:
                    if delivery.stores:
                        self._hw_store_message(message)
                    delivery.give_at_once(message, record, outcome)
                    break
                delivery.add(message, record, outcome)
            else:
                # After a batch was thrown away, fetch one: else a callback that always raises stops all.
                wanted = 1 if fetch.lost_a_batch else min(room, limit - len(delivery.given))
                batch = fetch.consume(self, wanted, wait_s, may_raise=not delivery.given)
                if self._hw_needs_ticks:
                    self._hw_tick()
                came = bool(batch)
                if batch:
                    fetch.lost_a_batch = False
                    self._hw_take_batch(batch)
                # A short batch was cut off by our own timeout, not by the caller's timeout.
                enough = len(batch) == wanted or (not batch and bool(delivery.entries))
        if began_ns or self._hw_only_at_work:
            self._hw_hand_over(delivery.given, began_ns)
        if self._hw_looks_at:
            self._hw_look_at(delivery.given)
        # No call and no loop follows, so an interrupt comes before this line or after the method.
        messages, delivery.given = delivery.given, []
        # Records that a callback threw away are read again after the application has got the error.
        fetch.thread = 0 if fetch.deferred_error is None else fetch.thread
        return messages

    def _hw_listen_for_reports(self, left: float, *, waits: bool) -> int:
        """Take the reports of dead letters, and return how many more may be sent.

        ``waits`` says that the last fetch was empty, so there is time to wait for a report.
        """
        dead_letters, delivery = self._hw_dead_letters, self._hw_delivery
        if waits or not dead_letters.room or delivery.is_full:
            dead_letters.wait(_REPORTS_S if left < 0 else min(left, _REPORTS_S))
        else:
            dead_letters.wait(0)
        room = 0 if delivery.is_full else dead_letters.room
        if room:
            # A pause throws away what librdkafka has fetched, so only a long wait justifies one.
            self._hw_next_keep_alive = time.monotonic() + _LONG_WAIT_S
        else:
            self._hw_poll_timeout(0)
            self._hw_stay_in_the_group(0)
        return room

    def _hw_end_implicit(self, error: BaseException | None = None) -> None:
        if self._hw_in_process is not None and (self._hw_delivery.given or self._hw_delivery.leaving):
            self._hw_in_process[1].clear()  # an interrupt came before the application got these records
        Processes._hw_end_implicit(self, error)  # noqa: SLF001 - not super(): instrumented classes are none of ours

    def _hw_begin_fetch(self) -> None:
        """Raise a deferred error, recover from an interrupt, and note that this thread fetches now."""
        fetch = self._hw_fetch
        if fetch.deferred_error is not None:
            deferred, fetch.deferred_error = fetch.deferred_error, None
            raise deferred
        in_process = self._hw_in_process
        if in_process is not None:
            if self._hw_only_at_work:  # without further calls, because poll does this for each record
                in_process[0].__exit__(None, None, None)
                self._hw_in_process = None
            else:
                self._hw_end_implicit()
        if fetch.thread:
            fetch.thread = get_ident()
            # Not _getframe(3), which a thread that begins with the call does not have.
            caller = sys._getframe(2)  # noqa: SLF001 - as inspect does
            self._hw_recover(caller.f_back)
        if self._hw_next_chain is not None:
            self._hw_take_next_chain()
        if self._hw_executor is not None:
            self._hw_cluster_id.ask_for_others()
        fetch.batches = None
        fetch.thread = get_ident()
        if self._hw_refused_offsets:
            self._hw_refused_offsets.commit_if_due(self)

    def _hw_is_polled_elsewhere(self) -> bool:
        """Return whether another thread polls."""
        if self._hw_executor is not None:
            return not self._hw_executor.is_poller()
        return self._hw_fetch.thread not in (0, get_ident())

    def _hw_poll_timeout(self, left: float) -> float:
        """Return how long a fetch may wait before the chain has to be asked again."""
        if self._hw_needs_ticks and not 0 <= left <= _TICK_S:
            left = _TICK_S
        if not self._hw_delivery.delayed:
            return left
        first = self._hw_delivery.until_next_look()
        return first if left < 0 else min(left, first)

    def _hw_take_batch(self, batch: list[Message]) -> None:
        """Take a batch through the chain; give its messages at once, or put them into the inbox."""
        delivery = self._hw_delivery
        if delivery.reassembles:
            for message in batch:
                self._hw_recall_watermark(message)
        last = delivery.take_batch(batch)
        if last:
            if delivery.stores:
                for message in last:
                    self._hw_store_message(message)
            delivery.give_batch()

    def _hw_give(self, limit: int, *, raises: bool = False) -> None:
        """Take messages out of the inbox, or answer for a refused record.

        Args:
            limit: how many messages.
            raises: whether events, and errors of refused records, are raised.
        """
        delivery, fetch = self._hw_delivery, self._hw_fetch
        told = delivery.give(limit)
        try:
            if told is not None:
                message = self._hw_tell(told)
                delivery.given, delivery.leaving = [message], []
            if raises and delivery.given:
                self._hw_raise_event(delivery.given[0])
        except (HeaderwareError, ConsumeError):
            delivery.given, delivery.leaving, fetch.thread = [], [], 0
            raise

    def _hw_raise_event(self, message: Message) -> None:
        """Raise an event, or a refused record, as confluent-kafka's deserializing consumer does."""
        error = message.error()
        if error is None:
            return
        if not isinstance(error, RefusedRecordError):
            raise ConsumeError(error, kafka_message=message)
        refused = raisable(error.cause)
        if isinstance(refused, SerdeError):
            raise refused
        raise ConsumeError(error, refused, message) from refused

    def _hw_tell(self, entry: Entry) -> Message:
        """Answer for a refused record: raise, or return a message if the chain was not passed in code."""
        error = entry.error
        assert error is not None  # noqa: S101 - its state says so
        self._hw_carry_out()
        if entry.state == "waiting":
            self._hw_stay_in_the_group(0)
        if self._hw_raises_errors:
            raise raisable(error)
        if not self._hw_raises_events and self._hw_executor is None and self._hw_logged.is_new_error(error):
            # Log its text only: a handler may keep the arguments, and the error refers to the record.
            _log.warning(
                "%s (refused: its message has error() and no value; further ones for this reason are only "
                "counted)",
                str(error),
            )
        return as_message(error, entry.topic_partition, entry.offset)

    # The commands of Delivery

    def _hw_carry_out(self) -> None:
        """Carry out the commands of Delivery; an interrupted command is carried out again."""
        delivery = self._hw_delivery
        while delivery.commands:
            command = delivery.commands[0]
            self._hw_do(command)
            if delivery.commands and delivery.commands[0] is command:
                delivery.commands.popleft()

    def _hw_do(self, command: Command) -> None:
        match command:
            case Store(offset):
                self._hw_store_offset(offset)
            case Pause(topic_partition):
                with suppress(KafkaException):  # it has gone meanwhile
                    _C.pause(self, [TopicPartition(*topic_partition)])
            case Resume(topic_partition):
                with suppress(KafkaException):
                    _C.resume(self, [TopicPartition(*topic_partition)])
            case Seek(topic_partition, offset):
                try:
                    _C.seek(self, at_offset(topic_partition, offset))
                except KafkaException:
                    if topic_partition in map(topic_partition_of, _C.assignment(self)):
                        raise  # the next call tries it again
            case Commit(offsets):
                commit_quietly(self, self._hw_session, offsets, waits=False)
            case CommitRefused(offset):
                self._hw_refused_offsets.commit_soon(self, offset)

    def _hw_store_offset(self, offset: TopicPartition) -> None:
        try:
            _c_store(self, offsets=[offset])
        except KafkaException as error:
            _log.debug("%s is not assigned any more: %s", offset, error)

    def _hw_store_message(self, message: Message) -> None:
        """Store the offset after a message; this takes a third of the time of storing by partition."""
        try:
            _c_store(self, message)
        except KafkaException as error:
            _log.debug("%s is not assigned any more: %s", message.topic(), error)

    # Dead letters, and records that are held back

    def _hw_await_reports(
        self, topic_partitions: set[TopicPartitionKey] | None = None, timeout_s: float = _LAST_REPORTS_S
    ) -> None:
        """Wait for the dead letters on their way, of all or some partitions; pass over their records."""
        delivery, deadline = self._hw_delivery, time.monotonic() + timeout_s
        while delivery.pending(topic_partitions) and time.monotonic() < deadline:
            self._hw_dead_letters.wait(_REPORTS_S)
        delivery.pass_stored()
        self._hw_carry_out()

    def _hw_wait_for_retry(self, left: float) -> bool:
        """Wait until a record that is held back may be tried again; return whether there is such a record."""
        retry_at = self._hw_delivery.retry_at
        if not retry_at:
            return False
        # It may have become due since Delivery looked; then there is no wait, and it is tried again.
        waits = max(0.0, retry_at - time.monotonic())
        self._hw_stay_in_the_group(min(waits, left) if left >= 0 else waits)
        return True

    def _hw_stay_in_the_group(self, timeout: float) -> None:
        """Poll with all partitions paused, so that the group keeps this member while dead letters wait."""
        now = time.monotonic()
        if not timeout and now < self._hw_next_keep_alive:
            return
        self._hw_next_keep_alive = now + _KEEP_ALIVE_S
        delivery, fetch = self._hw_delivery, self._hw_fetch
        fetch.pause_briefly(self, delivery.held())
        try:
            message: Message | None = _c_poll(self, timeout)
            if message is not None and message.error() is not None:
                delivery.add_event(message)
            elif message is not None:
                record = record_of(message)
                delivery.add(message, record, delivery.consume(record))
        finally:
            fetch.resume_briefly_paused(self, delivery)

    # Between records

    def _hw_tick(self) -> None:
        """Now and then, take expired records from the chain, and commit watermarks."""
        now = time.monotonic()
        if now < self._hw_next_tick and not self._hw_session.is_due():
            return
        self._hw_next_tick = now + _TICK_S
        self._hw_delivery.tick()

    def _hw_recall_watermark(self, message: Message) -> None:
        """At the first record of a partition, look for the watermark of an earlier consumer."""
        offsets, topic_partition = (
            self._hw_delivery.offsets,
            (message.topic() or "", message.partition() or 0),
        )
        if message.error() is not None or not offsets.take_unread_metadata(topic_partition):
            return

        def end() -> int:
            found = self.get_watermark_offsets(TopicPartition(*topic_partition), timeout=COMMITTED_TIMEOUT_S)
            if found is None:
                raise KafkaException(KafkaError(TIMED_OUT))
            return found[1]

        try:
            committed = _C.committed(self, [TopicPartition(*topic_partition)], COMMITTED_TIMEOUT_S)[0]
            offsets.recall_watermark(topic_partition, committed, message.offset() or 0, end)
        except KafkaException as error:
            _log.warning(
                "no committed offset of %s[%s], or no end, so records may repeat: %s", *topic_partition, error
            )

    # Position

    @unless_chained(_pause)
    def pause(self, partitions: list[TopicPartition]) -> None:
        """Pause partitions, including their records that the chain has already seen."""
        _pause(self, partitions)
        self._hw_delivery.application_paused.update(map(topic_partition_of, partitions))

    @unless_chained(_resume)
    def resume(self, partitions: list[TopicPartition]) -> None:
        """Resume partitions; a partition whose first record waits for its moment goes on at that moment."""
        delivery = self._hw_delivery
        _resume(self, [each for each in partitions if topic_partition_of(each) not in delivery.delayed])
        delivery.application_paused.difference_update(map(topic_partition_of, partitions))

    @unless_chained(_C.seek)
    def seek(self, partition: TopicPartition) -> None:
        """Go to an offset, or to the first slice of a message that was delivered there in this session.

        While :meth:`run` is under way, any thread may call this. Records that were read of the partition are
        forgotten.
        """
        (self._hw_seek if self._hw_executor is None else self._hw_executor.seek)(partition)

    def _hw_seek(self, partition: TopicPartition) -> None:
        self._hw_recover(sys._getframe())  # noqa: SLF001 - as inspect does
        delivery, wanted = self._hw_delivery, getattr(partition, "offset", -1)
        if wanted < 0:
            _C.seek(self, partition)  # raises unless it is a TopicPartition
            begin = wanted
        else:
            begin = delivery.seek_offset(topic_partition_of(partition), wanted)
            target = partition if begin == wanted else at_offset(topic_partition_of(partition), begin)
            _C.seek(self, target)
        delivery.note_seek(topic_partition_of(partition), begin, wanted)

    # Offsets

    def store_offsets(
        self, message: Message | None = None, offsets: list[TopicPartition] | None = None
    ) -> None:
        """Store the offset after a message, or offsets, held back to where a restart loses nothing.

        Raises:
            KafkaException: the partition is not assigned; the message was not read, so that it has no
                offset; the client stores offsets itself, unless ``enable.auto.offset.store`` is false; or
                :meth:`run` is under way.
        """
        unclear = (message is None) == (offsets is None) or (message is not None and not _is_good(message))
        if not self._hw_chained or unclear:
            _c_store(self, _for_c(message), offsets)  # raises if the arguments are unclear
            return
        self._hw_refuse_offsets_of_the_application()
        if self._hw_delivery.stores:
            reason = "StoreOffsets failed: Local: Invalid argument or configuration"
            raise KafkaException(KafkaError(INVALID_ARG, f"{reason} (set enable.auto.offset.store=false)"))
        if self._hw_fetch.thread:
            self._hw_recover(sys._getframe())  # noqa: SLF001 - as inspect does
        wanted = [_offset_after(message)] if message is not None else offsets or []
        held = [self._hw_delivery.offsets.offset_to_store(*_parts_of(partition)) for partition in wanted]
        _c_store(self, offsets=held)

    @unless_chained(_c_commit)
    def commit(
        self,
        message: Message | None = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: bool = True,  # noqa: FBT001, FBT002 - confluent-kafka's signature
        *more: Any,
        **keywords: Any,
    ) -> Any:
        """Commit the offset after a message, offsets, or the stored offsets, held back as stores are.

        Returns:
            the committed offsets; None if it is asynchronous.

        Raises:
            KafkaException: the commit failed; the message was not read, so that it has no offset
                (``_NO_OFFSET``); or :meth:`run` is under way, which commits by itself. Only its
                callbacks, and tasks, may then commit the stored offsets.
        """
        self._hw_recover(sys._getframe())  # noqa: SLF001 - as inspect does
        waits = not (more[0] if more else keywords.pop("async", asynchronous))
        unclear = message is not None and (offsets is not None or not _is_good(message))
        if keywords or len(more) > 1 or unclear:
            return _c_commit(self, _for_c(message), offsets, asynchronous, *more, **keywords)
        may_commit = self._hw_executor is None or self._hw_executor.is_poller()
        if message is None and offsets is None and may_commit:
            return self._hw_commit_stored(waits=waits)
        self._hw_refuse_offsets_of_the_application()
        wanted = [_offset_after(message)] if message is not None else offsets
        return commit_offsets(self, self._hw_session, self._hw_committable(wanted or []), waits=waits)

    def _hw_commit_stored(self, *, waits: bool) -> Any:
        self._hw_delivery.pass_stored()
        self._hw_carry_out()
        return commit_stored(self, self._hw_delivery.offsets, waits=waits)

    @unless_chained(_C.committed)
    def committed(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """Return the group's committed offsets, with the application's own metadata."""
        return [with_own_metadata(found) for found in _C.committed(self, partitions, timeout)]

    def committable(self, positions: list[TopicPartition]) -> list[TopicPartition]:
        """Return positions held back to where a restart loses nothing, with watermarks in their metadata.

        Raises:
            KafkaException: :meth:`run` is under way, which alone knows what is processed.
        """
        return self._hw_committable(positions) if self._hw_chained else positions

    def _hw_committable(self, positions: list[TopicPartition]) -> list[TopicPartition]:
        delivery = self._hw_delivery
        # A transaction may ask for partitions of another consumer of the group.
        if any(topic_partition_of(position) in delivery.positions for position in positions):
            self._hw_refuse_offsets_of_the_application()
        self._hw_recover(sys._getframe())  # noqa: SLF001 - as inspect does
        return [delivery.offsets.safe_offset(*_parts_of(partition)) for partition in positions]

    @unless_chained(_C.consumer_group_metadata)
    def consumer_group_metadata(self) -> Any:
        """Return the group metadata, by which a transaction's offsets find this consumer again."""
        metadata = _C.consumer_group_metadata(self)
        register_consumer(metadata, self, Consumer._hw_committable)
        return metadata

    def _hw_commit_watermarks(self) -> None:
        """Commit the last watermarks, if the client commits by itself."""
        self._hw_recover(sys._getframe())  # noqa: SLF001 - as inspect does
        held = self._hw_delivery.offsets.take_watermarked(everything=True) if self._hw_commits else []
        if held:
            commit_quietly(self, self._hw_session, held, waits=True)

    def _hw_recover(self, caller: FrameType | None, *, ends: bool = False) -> None:
        """Recover records that an interrupt, or a callback that raised, left between wire and application.

        ``caller`` and ``ends`` are explained by
        :meth:`~headerware.clients.interrupts.Fetch.was_interrupted`.
        """
        fetch = self._hw_fetch
        if not fetch.was_interrupted(self, self._HW_FETCHING, caller, ends=ends):
            return
        fetch.recover(
            self,
            self._hw_delivery,
            begin=self._hw_add_partitions,
            remove=partial(self._hw_remove_partitions, commit=False),
        )
        self._hw_carry_out()
        fetch.thread = 0

    # Processing

    def messages(self, timeout: float = -1) -> MessageLoop:
        """Iterate over messages; each is in :meth:`processing` while the loop's body runs.

        Args:
            timeout: end after so many seconds without a message; a negative number waits for ever.

        The loop also ends after :meth:`stop`. Refused records, and events, come as :meth:`poll` gives them. A
        ``for`` loop does not tell its iterator why it ends. If its body raises or breaks, interceptors get a
        GeneratorExit. In ``with consumer.messages() as messages: for message in messages: ...`` they get the
        error, and None after a ``break``.
        """
        self._hw_warn_unless_directed("messages")
        return MessageLoop(partial(self._hw_next_message, timeout), self.processing)

    def _hw_warn_unless_directed(self, method: str) -> None:
        """Warn, once for each method, that nothing comes unless somebody calls another method meanwhile."""
        if self._hw_chained and not self._hw_is_directed and method not in self._hw_warned_in:
            self._hw_warned_in |= {method}
            _log.warning(
                "%s: %s waits for records, but the consumer has neither subscribed to a topic nor been "
                "assigned a partition; call subscribe or assign first",
                *(self._hw_name or type(self).__name__, method),
            )

    def run(
        self,
        handler: Callable[[Message], object],
        *,
        workers: int = 8,
        order: Order = "key",
        on_failure: OnFailure = "raise",
        attempts: int = 1,
        retry_on: tuple[type[Exception], ...] = (Exception,),
        backoff_s: float = 0.5,
        max_backoff_s: float = 30.0,
        dead_letter_topic: str = "{topic}.dead-letter",
        dead_letter_headers: DeadLetterHeaders = "connect",
        dead_letter_unavailable: DeadLetterUnavailable = "hold",
        max_pending: int = 1_000,
        stop_timeout_s: float = 30.0,
        revoke_timeout_s: float = 10.0,
    ) -> None:
        """Process messages on several threads until :meth:`stop`.

        This thread polls. An offset is committed once everything before it is processed, whatever
        ``enable.auto.commit`` says, so a crash repeats records and loses none.

        Args:
            handler: called with each message by one of the workers; the message is processed when it returns.
            workers: how many messages are processed at once.
            order: which records are processed one after the other: records of one ``key``, of one
                ``partition``, or ``none``. Records without a key keep the order of their partition.
            on_failure: what happens to a record that the chain refused, or on which the last attempt of the
                handler failed: ``raise`` ends ``run`` with that error, ``skip`` passes the record over, and
                ``dead_letter`` first stores the record as it was on the wire in another topic.
            attempts: how often the handler is called for one record.
            retry_on: the exceptions that are worth another attempt.
            backoff_s: seconds before the second attempt; they double with each further attempt. Up to half of
                the pause is left out, at random.
            max_backoff_s: the longest pause between two attempts, in seconds.
            dead_letter_topic: the topic of dead letters; ``{topic}`` stands for the record's own.
            dead_letter_headers: the headers that say why: ``connect``, ``spring`` or ``headerware``.
            dead_letter_unavailable: what happens to a record whose dead letter cannot be stored: ``hold``
                tries again and again, and the offset waits; ``refuse`` passes the record over, as ``skip``.
            max_pending: how many records may wait or be at work, shared by the assigned partitions.
            stop_timeout_s: how long to wait for records at work at the end, in seconds.
            revoke_timeout_s: how long to wait for records at work of a partition that goes to another
                consumer, in seconds.

        Raises:
            ConfigError: an option cannot work; or the client stores offsets by itself, see below.
            TypeError: the handler is no function, or a coroutine function.
            KafkaException: the client failed.
            Exception: with ``on_failure="raise"``, the error of the handler, or of the chain that refused.

        A client without a chain stores an offset when ``poll`` returns the message, so it needs
        ``headerware.processing = "explicit"``.
        """
        options = RunOptions(
            workers=workers,
            order=order,
            on_failure=on_failure,
            attempts=attempts,
            retry_on=retry_on,
            backoff_s=backoff_s,
            max_backoff_s=max_backoff_s,
            dead_letter_topic=dead_letter_topic,
            dead_letter_headers=dead_letter_headers,
            dead_letter_unavailable=dead_letter_unavailable,
            max_pending=max_pending,
            stop_timeout_s=stop_timeout_s,
            revoke_timeout_s=revoke_timeout_s,
        )
        if inspect.iscoroutinefunction(handler):
            raise TypeError("expected a function as handler, found a coroutine function (see AsyncConsumer)")
        if not self._hw_chained:
            raise ConfigError(
                f"a consumer without a chain stores an offset when poll returns the message; set "
                f"{PROCESSING} = 'explicit' to use run without a chain"
            )
        if self._hw_executor is not None:
            raise ConfigError("run is under way already; a consumer has one caller at a time")
        executor = Executor(self._hw_client(), self._hw_delivery, handler, options, self._hw_run_counts)
        self._hw_warn_unless_directed("run")
        self._hw_begin_explicit()
        self._hw_run(executor)

    def _hw_client(self) -> Client:
        """Return the calls that an executor makes to this consumer."""
        return Client(
            poll=self.poll,
            pause=self.pause,
            resume=self.resume,
            seek=self._hw_seek,
            commit=self._hw_commit_stored,
            stay_in_the_group=partial(self._hw_stay_in_the_group, 0),
            is_stopping=lambda: self._hw_stopping,
            commit_interval_s=None if self._hw_commits else self._hw_commit_interval_s,
        )

    def _hw_run(self, executor: Executor) -> None:
        """Let an executor process the records; restore the consumer's settings afterwards."""
        delivery, options = self._hw_delivery, executor.options
        if options.on_failure == "dead_letter" or self._hw_session.takes_objects:
            self._hw_keep_originals()
        if options.on_failure == "dead_letter" and options.dead_letter_headers == "headerware":
            self._hw_session.context.awaited_cluster_id()  # the workers cannot ask while this thread polls
        before = delivery.stores, self._hw_raises_errors, self._hw_raises_events, self._hw_is_given_later
        # Records that poll returns are not processed yet, and the executor answers for refused records.
        delivery.stores = self._hw_raises_errors = self._hw_raises_events = False
        self._hw_is_given_later = delivery.runs = True
        self._hw_executor = executor
        self._hw_observe(self._hw_session)
        try:
            executor.run()
        finally:
            self._hw_executor, self._hw_stopping, delivery.runs = None, False, False
            delivery.stores, self._hw_raises_errors, self._hw_raises_events, self._hw_is_given_later = before
            self._hw_observe(self._hw_session)

    def _hw_keep_originals(self) -> None:
        """From now on, also in a later chain, keep each record as it was on the wire."""
        if not self._hw_delivery.keeps_originals:
            self._hw_recover(sys._getframe())  # noqa: SLF001 - as inspect does
            self._hw_delivery.keep_originals()
            self._hw_carry_out()

    def _hw_refuse_offsets_of_the_application(self) -> None:
        """Raise if ``run`` is under way, because the application could commit records that are at work."""
        if self._hw_executor is not None:
            raise KafkaException(
                KafkaError(
                    STATE,
                    "run is under way, and commits an offset once all records before it are processed; let "
                    "the handler return instead of committing or storing offsets",
                )
            )

    def _hw_next_message(self, timeout: float) -> Message | None:
        """Return the next message for a loop, or None at its end."""
        deadline = inf if timeout < 0 else time.monotonic() + timeout
        while not self._hw_stopping:
            left = deadline - time.monotonic()
            message = self.poll(max(0.0, min(left, _LOOP_S)))
            if message is not None or left <= _LOOP_S:
                return message
        self._hw_stopping = False
        return None

    def stop(self) -> None:
        """End :meth:`run` and :meth:`messages`, now or at their next call; records at work are finished.

        Any thread may call it, and so may a signal's handler.
        """
        self._hw_stopping = True

    def stats(self) -> dict[str, dict[str, int]]:
        """Return the counters of each interceptor, and those of the client under ``client``."""
        if not self._hw_chained:
            return {"client": {}}
        delivery = self._hw_delivery
        own = {"pending": len(delivery.entries), "repeated": delivery.repeated, "refused": delivery.refused}
        if self._hw_live is not None:
            own |= self._hw_live.stats()
        return {**self._hw_session.stats(), "client": {**own, **self._hw_run_counts}}

    # The end

    @unless_chained(_C.close)
    def close(self) -> None:
        """Commit safe offsets, leave the group, and close the interceptors, once."""
        if not self._hw_finish.alive:
            _C.close(self)
            return
        self._hw_end_implicit()
        if self._hw_live is not None:
            self._hw_live.close(self)
        try:
            self._hw_recover(sys._getframe(), ends=True)  # noqa: SLF001 - as inspect does
            self._hw_await_reports()
            self._hw_commit_watermarks()
            _C.close(self)
        finally:
            self._hw_delivery.clear()
            self._hw_refused_offsets.clear()
            self._hw_finish()

    @unless_chained(_C.__exit__)
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        exc_traceback: TracebackType | None,
    ) -> None:
        self._hw_end_implicit(exc_value)
        self.close()

    def __del__(self) -> None:
        # Not at the exit of the process: then the collector has removed the consumer from that mapping.
        if getattr(self, "_hw_in_process", None) is not None:
            self._hw_end_implicit()
        refused = getattr(self, "_hw_refused_offsets", None)
        if refused:
            refused.commit(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._hw_chain!r}>"


Consumer._HW_FETCHING = frozenset({Consumer.poll.__code__, Consumer.consume.__code__})  # noqa: SLF001 - our own


def _raw_settings(conf: Mapping[str, Any], offsets: Offsets, *, hears_commits: bool) -> dict[str, Any]:
    """Return the raw client's configuration, by which we store the offsets and are told of commits."""
    raw = {key: value for key, value in conf.items() if not str(key).startswith(DEAD_LETTER)}
    raw["enable.auto.offset.store"] = False
    callback = raw.get("on_commit")
    if callable(callback) or (callback is None and hears_commits):
        raw["on_commit"] = partial(on_commit, offsets, callback)
    return raw


def _session_of(consumer: Consumer | None) -> Session | None:
    return None if consumer is None else consumer._hw_session  # noqa: SLF001 - our own


def _is_good(message: Any) -> bool:
    """Return whether confluent-kafka would take the message for a position."""
    return type(message) is Message and message.error() is None


def _for_c(message: Any) -> Any:
    """Return an argument as confluent-kafka takes it, which refuses a message with an error by its text."""
    return message.plain() if isinstance(message, RefusedMessage) else message


def _parts_of(partition: TopicPartition) -> tuple[TopicPartitionKey, int, str | None, int | None]:
    return topic_partition_of(partition), partition.offset, partition.metadata, partition.leader_epoch


def _offset_after(message: Message) -> TopicPartition:
    """Return the offset after a message; raise if the message was not read from a topic."""
    parts = ("topic", "partition", "offset")
    missing = [name for name in parts if getattr(message, name)() in {None, "", -1}]
    if missing:
        raise KafkaException(
            KafkaError(NO_OFFSET, f"expected a message that was read, found one without {missing[-1]}")
        )
    return at_offset(wire_partition(message), (message.offset() or 0) + 1, None, message.leader_epoch())


# Rebalances. The callbacks are functions of the module, and get the consumer as an argument. A closure over
# the consumer would be a cycle through C, which keeps the client's threads alive.


def _rebalance_callbacks(
    on_assign: RebalanceCallback | None,
    on_revoke: RebalanceCallback | None,
    on_lost: RebalanceCallback | None,
) -> dict[str, RebalanceCallback]:
    """Wrap an application's callbacks; without ``on_lost`` the C client falls back to ``on_revoke``."""
    given = {"on_assign": on_assign, "on_revoke": on_revoke, "on_lost": on_lost}
    for name, callback in given.items():
        if callback is not None and not callable(callback):
            raise TypeError(f"{name} expects a callable")
    wrapped: dict[str, RebalanceCallback] = {
        "on_assign": partial(_on_assign, on_assign),
        "on_revoke": partial(_on_revoke, on_revoke),
    }
    if on_lost is not None:
        wrapped["on_lost"] = partial(_on_lost, on_lost)
    return wrapped


def _on_assign(callback: RebalanceCallback | None, consumer: Any, partitions: list[TopicPartition]) -> None:
    consumer._hw_add_partitions(partitions)  # noqa: SLF001 - the client itself, without a cycle
    if callback is not None:
        call_back(callback, consumer, partitions)


def _on_revoke(callback: RebalanceCallback | None, consumer: Any, partitions: list[TopicPartition]) -> None:
    try:
        consumer._hw_before_revocation(partitions)  # noqa: SLF001 - as above
        if callback is not None:
            call_back(callback, consumer, partitions)
    finally:
        consumer._hw_remove_partitions(partitions, commit=True)  # noqa: SLF001 - as above


def _on_lost(callback: RebalanceCallback, consumer: Any, partitions: list[TopicPartition]) -> None:
    try:
        consumer._hw_before_revocation(partitions, lost=True)  # noqa: SLF001 - as above
        call_back(callback, consumer, partitions)
    finally:
        consumer._hw_remove_partitions(partitions, commit=False)  # noqa: SLF001 - as above


_CALLBACKS: Final = frozenset(
    callback.__code__ for callback in (_on_assign, _on_revoke, _on_lost, on_commit, tell_statistics)
)
"""The callbacks of clients, by which a call knows that it is inside one."""


def consumer_context(
    client: Any,
    conf: Mapping[str, Any],
    publish: Callable[[Record], PublishedRecord | None],
    dead_letters: DeadLetters,
    reports: DeadLetters,
) -> Context:
    """Return the context of the session of a consumer or share consumer.

    ``publish`` is the method of ``dead_letters`` that sends a dead letter.
    """
    cluster_id = cluster_id_port(client, conf, may_ask=_may_ask)
    return Context(
        side="consumer",
        client_id=conf.get("client.id"),
        group_id=conf.get("group.id"),
        bootstrap_servers=bootstrap_servers(conf),
        instrumented_by=instrumented_by(client),
        cluster_id=cluster_id,
        wait_for_cluster_id=cluster_id.wait,
        publish=publish,
        post=reports.post,
        pick_partition=dead_letters.pick_partition,
        max_message_bytes=number(conf, f"{DEAD_LETTER}message.max.bytes", MAX_MESSAGE_BYTES),
    )


def _may_ask(consumer: Any) -> bool:
    """Return whether this thread may call a consumer: no other thread polls, and no callback runs."""
    is_polled_elsewhere: Callable[[], bool] | None = getattr(consumer, "_hw_is_polled_elsewhere", None)
    return not ((is_polled_elsewhere is not None and is_polled_elsewhere()) or _is_in_callback())


def _is_in_callback() -> bool:
    """Return whether this thread is inside a callback of any of our consumers."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - as inspect does
    while frame is not None:
        if frame.f_code in _CALLBACKS:
            return True
        frame = frame.f_back
    return False
