"""The consumer: confluent-kafka's, with a chain between the wire and the application.

A record goes through ``poll`` or ``consume`` in these steps:

1. confluent-kafka's own method fetches a message.
2. The chain makes of its record one record, several, none or an error.
3. One record goes to the application at once. Everything else waits in the inbox, in order:
   records that the chain added or reassembled from slices, events behind them, and refused records.
4. The offset behind a record is stored when the record is delivered, held back to where a restart loses
   nothing (``offsets.py``).

A refused record comes alone, never in a list with others. An application that dies of it has processed all
records before it and has got none behind it, so the offset behind it may be committed at once. The errors
that the application gets, that commit, and the pauses for a record that may not be passed over are in
``refused_records.py``.
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

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
    cimpl,
)
from confluent_kafka.error import ConsumeError

from headerware.clients import commits, pauses, rebalances
from headerware.clients.cluster_id import ClusterIdPort, cluster_id_port
from headerware.clients.dead_letters import MAX_MESSAGE_BYTES, DeadLetters, close_all
from headerware.clients.inbox import Entry, Inbox
from headerware.clients.lanes import OUTCOMES, Lanes
from headerware.clients.live_chain import FollowsFile
from headerware.clients.messages import hide_own_headers, updated_message, wire_topic_and_local
from headerware.clients.offsets import (
    Offsets,
    at_offset,
    register_consumer,
    topic_partition_of,
    with_own_metadata,
)
from headerware.clients.pauses import Pauses
from headerware.clients.processing import MessageLoop, Processes
from headerware.clients.progress import OnFailure, Order, Processing
from headerware.clients.raw import (
    INVALID_ARG,
    NO_OFFSET,
    STATE,
    TIMED_OUT,
    CalledFrom,
    called_from,
    instrumented_by,
    unless_chained,
)
from headerware.clients.rebalances import RebalanceCallback, rebalance_callbacks
from headerware.clients.refused_records import (
    RefusedOffsets,
    RefusedRecordError,
    RetryPauses,
    as_message,
    raisable,
)
from headerware.clients.sessions import InUse, Sessions
from headerware.clients.settings import flattened, listen_to_statistics, merged, tell_statistics
from headerware.core.chain import Chain
from headerware.core.client_chain import DEAD_LETTER, PROCESSING
from headerware.core.context import Context
from headerware.core.errors import ConfigError, DelayedError, HeaderwareError, SerdeError
from headerware.core.hooks import DeadLetterHeaders, DeadLetterUnavailable
from headerware.core.interrupts import pass_on_interrupt
from headerware.core.record import Record
from headerware.core.services import TopicPartitionKey
from headerware.core.session import Session
from headerware.core.step import LoggedReasons
from headerware.kafka.messages import record_of
from headerware.kafka.settings import boolean, bootstrap_servers, number

# Not by the name in confluent_kafka, which instrumentation changes, ours and others'.
_C: Final[Any] = cimpl.Consumer
_c_init, _c_poll, _c_consume = _C.__init__, _C.poll, _C.consume
_c_commit, _c_store = _C.commit, _C.store_offsets
_TICK_S: Final = 0.5
_KEEP_ALIVE_S: Final = 0.1
"""The least time between two polls whose only purpose is to stay in the group."""
_LOOP_S: Final = 0.1
"""How long a loop waits before it looks whether it was stopped."""
_COMMITTED_TIMEOUT_S: Final = 5.0
_MAX_BATCH: Final = 1_000_000
_log: Final = logging.getLogger("headerware")


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

    Without a chain it is the raw client: confluent-kafka's own methods answer. The application meets a
    record that the chain refuses once, and its offset counts as consumed, also over a restart. The error is
    raised if ``chain`` was passed. If the chain comes from configuration, for an application that does not
    know of it, it is a message whose ``error()`` is set. Like confluent-kafka's consumer, it has one caller
    at a time.
    """

    _hw_hides_headers = False
    """Said again, because a serializing client has this class before an instrumented one among its bases."""
    _hw_raises_events: bool = False
    """Whether ``poll`` raises error events, so that nobody overlooks them."""
    _hw_stopping: bool = False
    """Whether ``stop`` was called."""
    _HW_FETCHING: ClassVar[frozenset[CodeType]] = frozenset()
    """The methods that take records from the wire to the application."""

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
            _c_init(self, {key: value for key, value in rest.items() if not str(key).startswith(DEAD_LETTER)})
            return
        self._hw_open(flattened(rest))
        if self._hw_live is not None:
            self._hw_live.follow(self)

    def _hw_open(self, conf: dict[str, Any]) -> None:
        # Two, because a dead letter is waited for, and reports never are.
        dead_letters, reports = DeadLetters(conf), DeadLetters(conf)
        context = consumer_context(self, conf, dead_letters, reports)
        assert isinstance(context.cluster_id, ClusterIdPort)  # noqa: S101 - it was made there
        self._hw_cluster_id = context.cluster_id
        self._hw_lanes: Lanes | None = None
        # The thread that is between the wire and the application, or that an interrupt took away from
        # there; 0 if none is.
        self._hw_fetching_thread = 0
        session = self._hw_session = self._hw_chain.open(context)
        try:
            self._hw_inbox = Inbox(session.consume_outcome)
            self._hw_offsets = Offsets(session, self._hw_inbox.first_offset)
            self._hw_stores_offsets = boolean(conf, "enable.auto.offset.store", default=True)
            self._hw_run_commit_interval_s = number(conf, "auto.commit.interval.ms", 5_000) / 1000
            self._hw_commit_interval_s = (
                self._hw_run_commit_interval_s if boolean(conf, "enable.auto.commit", default=True) else 0.0
            )
            hears_commits = session.hears_commits or self._hw_live is not None
            raw = _raw_settings(conf, self._hw_offsets, hears_commits=hears_commits)
            reference = weakref.ref(self)
            listen_to_statistics(raw, session, lambda: _session_of(reference()))
            _c_init(self, raw)
        except BaseException:
            session.close()
            raise
        self._hw_keeps_originals = False
        self._hw_in_process = None
        self._hw_bind(session)
        self._hw_next_chain = None
        self._hw_next_tick = self._hw_next_commit = self._hw_next_keep_alive = 0.0
        self._hw_pauses = Pauses(session.context.now_ms)
        # The first offset of each partition that is neither in the inbox nor delivered; negative if reading
        # began at a symbolic offset, such as OFFSET_STORED.
        self._hw_next_offsets: dict[TopicPartitionKey, int] = {}
        self._hw_starts_at_beginning = conf.get("auto.offset.reset") in {"earliest", "beginning", "smallest"}
        self._hw_repeated = self._hw_refused = 0
        self._hw_logged = LoggedReasons()
        self._hw_run_counts = dict.fromkeys(OUTCOMES, 0)
        self._hw_refused_offsets = RefusedOffsets()
        self._hw_retries = RetryPauses()
        # The error of a callback, to be raised by the next call.
        self._hw_deferred_error: Exception | None = None
        # The batch that a ``consume`` got from the wire, none if C raised; None in a ``poll``.
        self._hw_fetched_batches: list[list[Message]] | None = None
        # Whether the last batch was thrown away.
        self._hw_lost_a_batch = False
        self._hw_in_use = InUse(session)
        self._hw_sessions = Sessions(self._hw_in_use, session)
        self._hw_finish = weakref.finalize(self, close_all, self._hw_sessions, dead_letters, reports)
        self._hw_chained = True
        # CPython 3.11 reads an attribute of a subclass of a C type in 20 ns, but in 9 ns if its dict shares
        # no keys with others of its class; poll reads a dozen of them for each record.
        self.__dict__ = dict(vars(self))

    def _hw_bind(self, session: Session) -> None:
        """Let records go through a session from now on."""
        self._hw_session = session
        self._hw_consume_record = session.consume_outcome
        self._hw_reassembles = self._hw_offsets.reassembles
        self._hw_observe(session)
        if self._hw_keeps_originals:
            session.keep_originals()
        self._hw_needs_ticks = session.polls or session.ticks or self._hw_reassembles

    # Another chain

    def reload(self) -> bool:
        """Read the file of the chain again, and take the next record from the wire through the new chain.

        As in other clients; and messages of which only some slices have come are kept, or read again if the
        new chain treats slices in another way.
        """
        self._hw_recover(sys._getframe())  # noqa: SLF001 - as inspect does
        return FollowsFile.reload(self)

    def _hw_use_chain(self, chain: Chain) -> None:
        earlier = self._hw_session
        session = chain.open(earlier.context, previous=earlier)
        if not session.keeps_waiting(earlier):
            waiting = earlier.waiting_offsets()
            for topic_partition, taken in list(self._hw_next_offsets.items()):
                self._hw_read_again_from_safe(topic_partition, taken, waiting.get(topic_partition, ()))
        self._hw_offsets.follow(session)
        self._hw_inbox.consume = session.consume_outcome
        self._hw_bind(session)
        self._hw_chain, self._hw_in_use = chain, InUse(session)
        self._hw_sessions.add(self._hw_in_use, session)

    def _hw_read_again_from_safe(
        self, topic_partition: TopicPartitionKey, taken: int, slices: Iterable[int]
    ) -> None:
        """Go back to where a restart would begin, if slices or records wait for the application."""
        safe = self._hw_offsets.safe_offset(topic_partition, taken).offset if taken >= 0 else taken
        if safe == taken:
            return
        first = self._hw_inbox.first_offset(topic_partition)
        given = taken if first is None else min(taken, first)
        self._hw_offsets.note_resumed(topic_partition, safe, given, slices)
        self._hw_next_offsets[topic_partition] = safe
        self._hw_inbox.drop({topic_partition})
        with suppress(KafkaException):  # it has gone meanwhile
            _C.seek(self, at_offset(topic_partition, safe))

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
        _C.subscribe(self, topics, **rebalance_callbacks(on_assign, on_revoke, on_lost))

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
        """Commit what is safe of partitions before the application gives them up."""
        if self._hw_lanes is not None:
            self._hw_lanes.commit_processed({topic_partition_of(partition) for partition in partitions})
        self._hw_commit_watermarks()

    def _hw_add_partitions(self, partitions: list[TopicPartition]) -> None:
        """Begin to read partitions."""
        chosen = self._hw_offsets.note_assigned(partitions)
        if self._hw_lanes is not None:
            self._hw_lanes.begin(chosen)
        self._hw_next_offsets.update({topic_partition_of(each): each.offset for each in partitions})

    def _hw_remove_partitions(self, partitions: Iterable[TopicPartition], *, commit: bool) -> None:
        """Forget partitions that have gone to another consumer, or begin anew."""
        topic_partitions = {topic_partition_of(partition) for partition in partitions}
        if commit:
            self._hw_commit_watermarks()
        if self._hw_lanes is not None:
            self._hw_lanes.forget(topic_partitions)
        self._hw_session.revoke(topic_partitions)
        self._hw_inbox.drop(topic_partitions)
        self._hw_offsets.forget(topic_partitions)
        self._hw_pauses.forget(topic_partitions)
        for topic_partition in topic_partitions:
            # librdkafka has committed the stored offset, if the partition was still ours.
            self._hw_refused_offsets.pop(topic_partition, None)
            self._hw_next_offsets.pop(topic_partition, None)
        if self._hw_pauses.delayed:
            self._hw_pauses.end_delays(self, self._hw_inbox.first_offset)

    # Records

    def poll(self, timeout: float = -1) -> Message | None:
        """Return the next message, or None after ``timeout`` seconds without one.

        Goes on through dropped and waiting records until the deadline. A refused record is a message whose
        ``error()`` is set, unless the chain was passed in code.

        Raises:
            HeaderwareError: the chain, passed in code, refused a record; it is not delivered again.
        """
        if not self._hw_chained:
            return _c_poll(self, timeout)  # type: ignore[no-any-return]
        self._hw_begin_fetch()
        began_ns = time.time_ns() if self._hw_observes and self._hw_is_awaited() else 0
        deadline = time.monotonic() + timeout if timeout > 0 else None
        asked = False
        while True:
            if self._hw_inbox:
                try:
                    messages = self._hw_drain_inbox(1, [])
                    if messages and self._hw_raises_events:
                        self._hw_raise_event(messages[0])
                except (HeaderwareError, ConsumeError):
                    self._hw_inbox.leaving, self._hw_fetching_thread = [], 0
                    raise
                if messages and (began_ns or self._hw_only_at_work):
                    self._hw_hand_over(messages, began_ns)
                # From here on no call and no loop, so that an interrupt comes before this or after us.
                self._hw_inbox.leaving = []
                if messages:
                    self._hw_fetching_thread = 0
                    return messages[0]
            if self._hw_pauses.delayed and self._hw_pauses.end_delays(self, self._hw_inbox.first_offset):
                continue
            left = timeout if deadline is None or not asked else deadline - time.monotonic()
            if asked and timeout >= 0 and left <= 0:
                self._hw_fetching_thread = 0
                return None
            if self._hw_retries.until and self._hw_wait_for_dead_letter(left):
                asked = True
                continue
            message: Message | None = _c_poll(self, self._hw_poll_timeout(left))
            asked = True
            if self._hw_needs_ticks:
                self._hw_tick()
            if message is None:
                continue
            if message.error() is not None:
                self._hw_fetching_thread = 0
                if self._hw_raises_events:
                    self._hw_raise_event(message)
                return message
            record = record_of(message)
            if self._hw_reassembles:
                self._hw_recall_watermark(record)
            outcome = self._hw_consume_record(record)
            if outcome.__class__ is Record and not self._hw_reassembles and not self._hw_inbox:
                if self._hw_stores_offsets:
                    self._hw_store_message(message)
                message = updated_message(message, record, outcome)
                if self._hw_hides_headers:
                    hide_own_headers(message)
                if began_ns:
                    self._hw_inbox.given = [message]
                    self._hw_hand_over(self._hw_inbox.given, began_ns)
                    self._hw_inbox.given = []
                elif self._hw_only_at_work:
                    self._hw_put_to_work((message,))
                # As above, no call from here on.
                self._hw_next_offsets[record.topic, record.partition or 0] = (record.offset or 0) + 1
                self._hw_fetching_thread = 0
                return message
            self._hw_enqueue(message, record, outcome)

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return up to ``num_messages`` messages, or an empty list after ``timeout`` seconds.

        Returns those before a refused record. The next call answers for the refused record alone: with a
        message whose ``error()`` is set, or by raising if the chain was passed in code.

        Raises:
            HeaderwareError: the chain, passed in code, refused a record; it is not delivered again.
        """
        if not self._hw_chained or not 0 < num_messages <= _MAX_BATCH:
            return list(_c_consume(self, num_messages, timeout))
        self._hw_begin_fetch()
        began_ns = time.time_ns() if self._hw_observes and self._hw_is_awaited() else 0
        deadline = time.monotonic() + timeout if timeout > 0 else None
        asked, enough = False, True
        while True:
            if self._hw_inbox:
                try:
                    messages = self._hw_drain_inbox(num_messages, self._hw_inbox.given)
                except HeaderwareError:
                    self._hw_inbox.leaving, self._hw_fetching_thread = [], 0
                    raise
                self._hw_inbox.given, self._hw_inbox.leaving = messages, []
            enough = enough or bool(self._hw_inbox) or self._hw_deferred_error is not None
            if self._hw_pauses.delayed and self._hw_pauses.end_delays(self, self._hw_inbox.first_offset):
                continue
            left = timeout if deadline is None or not asked else deadline - time.monotonic()
            if (enough and self._hw_inbox.given) or (asked and timeout >= 0 and left <= 0):
                if began_ns or self._hw_only_at_work:
                    self._hw_hand_over(self._hw_inbox.given, began_ns)
                messages, self._hw_inbox.given = self._hw_inbox.given, []
                # Records that a callback threw away are read again when the application has got its error.
                self._hw_fetching_thread = 0 if self._hw_deferred_error is None else self._hw_fetching_thread
                return messages
            if self._hw_retries.until and self._hw_wait_for_dead_letter(left):
                asked = True
                continue
            # Only one after a batch was thrown away, or a callback that always raises would stop everything.
            wanted = 1 if self._hw_lost_a_batch else num_messages - len(self._hw_inbox.given)
            asked = True
            fetched = self._hw_fetch_batch(wanted, self._hw_poll_timeout(left))
            if self._hw_needs_ticks:
                self._hw_tick()
            if fetched:
                self._hw_lost_a_batch = False
                self._hw_take_batch(fetched)
            # A batch that is short was cut off by our own timeout, not by the caller's.
            enough = len(fetched) == wanted or (not fetched and bool(self._hw_inbox))

    def _hw_end_implicit(self, error: BaseException | None = None) -> None:
        if self._hw_in_process is not None and (self._hw_inbox.given or self._hw_inbox.leaving):
            self._hw_in_process[1].clear()  # an interrupt came before the application got them
        Processes._hw_end_implicit(self, error)  # noqa: SLF001 - not super(): instrumented classes are none of ours

    def _hw_begin_fetch(self) -> None:
        """Raise a deferred error, recover from an interrupt, and note that this thread fetches now."""
        deferred, self._hw_deferred_error = self._hw_deferred_error, None
        if deferred is not None:
            raise deferred
        in_process = self._hw_in_process
        if in_process is not None:
            if self._hw_only_at_work:  # without further calls, for this is all that poll does about it
                in_process[0].__exit__(None, None, None)
                self._hw_in_process = None
            else:
                self._hw_end_implicit()
        if self._hw_fetching_thread:
            self._hw_fetching_thread = get_ident()
            # Not _getframe(2): a thread may have begun with the call.
            self._hw_recover(sys._getframe(1).f_back)  # noqa: SLF001 - as inspect does
        if self._hw_next_chain is not None:
            self._hw_take_next_chain()
        self._hw_fetched_batches = None
        self._hw_fetching_thread = get_ident()
        if self._hw_refused_offsets:
            self._hw_refused_offsets.commit_if_due(self)

    def _hw_is_polled_elsewhere(self) -> bool:
        """Return whether another thread polls, now or again and again."""
        if self._hw_lanes is not None:
            return not self._hw_lanes.is_poller()
        return self._hw_fetching_thread not in (0, get_ident())

    def _hw_poll_timeout(self, left: float) -> float:
        """Return how long to wait for the wire before the chain has to be asked again."""
        if self._hw_needs_ticks and not 0 <= left <= _TICK_S:
            left = _TICK_S
        if not self._hw_pauses.delayed:
            return left
        first = self._hw_pauses.until_next_look()
        return first if left < 0 else min(left, first)

    def _hw_fetch_batch(self, count: int, timeout: float) -> list[Message]:
        """Fetch from the wire; an error of a callback waits until the messages before it have been given."""
        try:
            batches = self._hw_fetched_batches = []
            batches.extend(map(_c_consume, (self,), (count,), (timeout,)))  # in C, so that nothing gets lost
            return batches[0]
        except Exception as raised:
            pass_on_interrupt(raised)
            if not self._hw_inbox.given:
                raise
            self._hw_deferred_error = raised
            return []

    def _hw_take_batch(self, fetched: list[Message]) -> None:
        """Take a batch through the chain; its messages are given at once, or go into the inbox."""
        records = [record_of(message) for message in fetched if message.error() is None]
        if self._hw_reassembles:
            for record in records:
                self._hw_recall_watermark(record)
        outcomes = self._hw_session.consume_outcomes(records)
        plain = not self._hw_reassembles and not self._hw_inbox and len(records) == len(fetched)
        if not plain or set(map(type, outcomes)) != {Record}:
            self._hw_enqueue_batch(fetched, records, outcomes)
            return
        last: dict[TopicPartitionKey, int] = {}
        before = records[0]
        for index, record in enumerate(records):
            if record.partition != before.partition or record.topic != before.topic:
                last[before.topic, before.partition or 0] = index - 1
            before = record
        last[before.topic, before.partition or 0] = len(records) - 1
        if self._hw_stores_offsets:
            # By message, and so before the chain's changes: the topic is that on the wire.
            for index in last.values():
                self._hw_store_message(fetched[index])
        taken = {topic_partition: (records[index].offset or 0) + 1 for topic_partition, index in last.items()}
        good: list[Any] = outcomes
        given = [*self._hw_inbox.given, *map(updated_message, fetched, records, good)]
        if self._hw_hides_headers:
            for message in given:
                hide_own_headers(message)
        self._hw_inbox.given, self._hw_next_offsets = given, self._hw_next_offsets | taken

    def _hw_enqueue_batch(self, fetched: list[Message], records: list[Record], outcomes: list[Any]) -> None:
        """Put a batch into the inbox, with events between the records, in the order of the wire."""
        results = iter(zip(records, outcomes, strict=True))
        for message in fetched:
            if message.error() is not None:
                self._hw_inbox.add_event(message)
            else:
                self._hw_enqueue(message, *next(results))

    def _hw_enqueue(self, message: Message, record: Record, outcome: Any) -> None:
        """Put the outcome of a message into the inbox."""
        topic_partition, position = (record.topic, record.partition or 0), (record.offset or 0) + 1
        self._hw_inbox.add(message, record, outcome)
        self._hw_next_offsets[topic_partition] = position
        self._hw_offsets.note_read(topic_partition, position)

    def _hw_drain_inbox(self, limit: int, messages: list[Message]) -> list[Message]:
        """Add messages from the inbox, up to a refused record; answer for that one if it is the first."""
        messages = [*messages]
        passed: dict[TopicPartitionKey, tuple[int, int | None]] = {}
        self._hw_retries.until = 0.0
        while len(messages) < limit:
            entry = self._hw_inbox.pop(self._hw_pauses.held())
            if entry is None:
                break
            if entry.error is not None and not self._hw_was_delivered(entry):
                if isinstance(entry.error, DelayedError):
                    if self._hw_delay(entry, entry.error):
                        continue
                    if not messages and (
                        self._hw_retry_dead_letter(entry) or self._hw_delay(entry, entry.error)
                    ):
                        continue
                if messages or not self._hw_retries.is_due(entry):
                    self._hw_inbox.put_back(entry)
                    break
                if (entry.raised or self._hw_retries.were_for_another(entry)) and self._hw_retry_dead_letter(
                    entry
                ):
                    continue
                if entry.position is not None and not entry.blocked:
                    passed[entry.topic_partition] = entry.position, entry.leader_epoch
                self._hw_store_passed(passed)
                return [self._hw_refuse_entry(entry)]
            if entry.message is not None and not self._hw_was_delivered(entry):
                if self._hw_hides_headers:
                    hide_own_headers(entry.message)
                messages.append(entry.message)
            if entry.position is not None:
                passed[entry.topic_partition] = entry.position, entry.leader_epoch
        self._hw_store_passed(passed)
        return messages

    def _hw_was_delivered(self, entry: Entry) -> bool:
        if entry.offset is None or not self._hw_offsets.was_delivered(entry.topic_partition, entry.offset):
            return False
        self._hw_repeated += 1
        return True

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

    def _hw_delay(self, entry: Entry, error: DelayedError) -> bool:
        """Put a record back whose moment has not come; return whether it has not."""
        waits = self._hw_pauses.delay(self, entry.topic_partition, error.until_ms)
        if waits:
            self._hw_inbox.put_back(entry)
        return waits

    # Refused records

    def _hw_refuse_entry(self, entry: Entry) -> Message:
        """Answer for a refused record: raise, or return a message if the application does not know of us."""
        error = entry.error
        assert error is not None  # noqa: S101 - the caller has looked
        if entry.blocked:
            self._hw_hold_entry(entry)
        else:
            self._hw_refused += 1
            self._hw_pass_refused(entry)
        if self._hw_raises_errors:
            raise raisable(error)
        if not self._hw_raises_events and self._hw_lanes is None and self._hw_logged.is_new_error(error):
            # Log its text only: a handler may keep the arguments, and the error refers to the record.
            _log.warning("%s (refused; further ones for this reason are only counted)", str(error))
        return as_message(error, entry.topic_partition, entry.offset)

    def _hw_pass_refused(self, entry: Entry) -> None:
        """Commit the offset behind a refused record."""
        if not self._hw_stores_offsets:
            return
        if entry.position is not None:
            safe = self._hw_offsets.safe_offset(
                entry.topic_partition, entry.position, None, entry.leader_epoch
            )
            self._hw_commit_refused(safe)
            return
        # Slices that were given up no longer hold anything back.
        for safe in self._hw_offsets.refreshed():
            self._hw_store_offset(safe)
            if topic_partition_of(safe) == entry.topic_partition:
                self._hw_commit_refused(safe)

    def _hw_commit_refused(self, offset: TopicPartition) -> None:
        if self._hw_commit_interval_s:
            self._hw_refused_offsets.commit_soon(self, offset)

    def _hw_hold_entry(self, entry: Entry) -> None:
        """Keep a record whose dead letter could not be stored."""
        entry.raised = True
        self._hw_inbox.put_back(entry)
        self._hw_retries.postpone(entry)
        self._hw_stay_in_the_group(0)

    def _hw_retry_dead_letter(self, entry: Entry) -> bool:
        """Try once more to store a dead letter, and return whether that changed anything."""
        if entry.original is not None:
            return self._hw_inbox.retry(entry)
        if entry.offset is None:
            return False
        try:
            # It was reassembled from several records, so they are read again.
            self._hw_seek(at_offset(entry.topic_partition, entry.offset), self._hw_offsets.note_resumed)
            self._hw_inbox.leaving = self._hw_inbox.leaving[:-1]
        except KafkaException:
            self._hw_hold_entry(entry)
            raise
        return True

    def _hw_wait_for_dead_letter(self, left: float) -> bool:
        """Wait until a dead letter may be tried again; return False if none holds the stream."""
        waits = self._hw_retries.until - time.monotonic() if self._hw_inbox else 0.0
        if waits <= 0:
            return False
        self._hw_stay_in_the_group(min(waits, left) if left >= 0 else waits)
        return True

    def _hw_stay_in_the_group(self, timeout: float) -> None:
        """Poll with all partitions paused, so that an outage of dead letters costs no membership."""
        now = time.monotonic()
        if not timeout and now < self._hw_next_keep_alive:
            return
        self._hw_next_keep_alive = now + _KEEP_ALIVE_S
        self._hw_pauses.pause_briefly(self)
        try:
            event: Message | None = _c_poll(self, timeout)
            if event is not None and event.error() is not None:
                self._hw_inbox.add_event(event)
            elif event is not None:
                record = record_of(event)
                self._hw_enqueue(event, record, self._hw_consume_record(record))
        finally:
            self._hw_pauses.resume_briefly_paused(self)

    # Between records

    def _hw_tick(self) -> None:
        """Ask the chain, now and then, for expired records, and bring watermarks to the broker."""
        now = time.monotonic()
        if now < self._hw_next_tick and not self._hw_session.is_due():
            return
        self._hw_next_tick = now + _TICK_S
        self._hw_session.tick()
        self._hw_retries.count(now, holds=bool(self._hw_pauses.delayed))
        if self._hw_retries.held_s and not self._hw_session.safe_offsets():
            self._hw_retries.held_s = 0.0
        for outcome in self._hw_session.poll(
            self._hw_session.context.now_ms() - int(self._hw_retries.held_s * 1000)
        ):
            self._hw_inbox.add_released(outcome)
        if self._hw_reassembles and not self._hw_inbox and self._hw_lanes is None:
            self._hw_store_refreshed()
        if self._hw_commit_interval_s and now >= self._hw_next_commit:
            self._hw_next_commit = now + self._hw_commit_interval_s
            if held := self._hw_offsets.take_watermarked():
                commits.commit_quietly(self, self._hw_session, held, waits=False)

    def _hw_recall_watermark(self, record: Record) -> None:
        """Look, at the first record of a partition, for the watermark of the consumer before this one."""
        topic_partition = (record.topic, record.partition or 0)
        if not self._hw_offsets.take_unread_metadata(topic_partition):
            return

        def end() -> int:
            found = self.get_watermark_offsets(TopicPartition(*topic_partition), timeout=_COMMITTED_TIMEOUT_S)
            if found is None:
                raise KafkaException(KafkaError(TIMED_OUT))
            return found[1]

        try:
            committed = _C.committed(self, [TopicPartition(*topic_partition)], _COMMITTED_TIMEOUT_S)[0]
            self._hw_offsets.recall_watermark(topic_partition, committed, record.offset or 0, end)
        except KafkaException as error:
            _log.warning(
                "no committed offset of %s[%s], or no end, so records may repeat: %s", *topic_partition, error
            )

    # Position

    @unless_chained(pauses.pause)
    def pause(self, partitions: list[TopicPartition]) -> None:
        """Pause partitions, including their records that the chain has already seen."""
        self._hw_pauses.pause(self, partitions)

    @unless_chained(pauses.resume)
    def resume(self, partitions: list[TopicPartition]) -> None:
        """Resume partitions."""
        self._hw_pauses.resume(self, partitions)

    @unless_chained(_C.seek)
    def seek(self, partition: TopicPartition) -> None:
        """Go to an offset; to the first slice of a message that was delivered there in this session.

        While :meth:`run` is under way, any thread may call it: what was read of the partition is forgotten.
        """
        (self._hw_seek if self._hw_lanes is None else self._hw_lanes.seek)(partition)

    def _hw_seek(
        self, partition: TopicPartition, note: Callable[[TopicPartitionKey, int, int], None] | None = None
    ) -> None:
        """Go to an offset; ``note`` is told where reading begins, and from where on records are wanted."""
        self._hw_recover(sys._getframe())  # noqa: SLF001 - as inspect does
        if getattr(partition, "offset", -1) < 0:
            _C.seek(self, partition)  # raises unless it is a TopicPartition
            begin = partition.offset
            topic_partition = topic_partition_of(partition)
            if begin != OFFSET_END:  # behind the end, messages that have begun may go on
                self._hw_session.revoke([topic_partition])
        else:
            topic_partition = topic_partition_of(partition)
            begin = min(
                self._hw_session.seek(partition.topic, partition.partition, partition.offset),
                self._hw_offsets.read_up_to(topic_partition, partition.offset),
            )
            _C.seek(self, partition if begin == partition.offset else at_offset(topic_partition, begin))
        self._hw_next_offsets[topic_partition] = begin
        self._hw_inbox.drop({topic_partition})
        (note or self._hw_offsets.note_seek)(topic_partition, begin, partition.offset)

    # Offsets

    def store_offsets(
        self, message: Message | None = None, offsets: list[TopicPartition] | None = None
    ) -> None:
        """Store the offset behind a message, or offsets, held back to where a restart loses nothing.

        Raises:
            KafkaException: the partition is not assigned; the message was not read, so that it has no
                offset; the client stores offsets itself, unless ``enable.auto.offset.store`` is false; or
                :meth:`run` is under way.
        """
        unclear = (message is None) == (offsets is None) or (message is not None and not _is_good(message))
        if not self._hw_chained or unclear:
            _c_store(self, message, offsets)  # raises if the arguments are unclear
            return
        self._hw_refuse_offsets_of_the_application()
        if self._hw_stores_offsets:
            reason = "StoreOffsets failed: Local: Invalid argument or configuration"
            raise KafkaException(KafkaError(INVALID_ARG, f"{reason} (set enable.auto.offset.store=false)"))
        if self._hw_fetching_thread:
            self._hw_recover(sys._getframe())  # noqa: SLF001 - as inspect does
        wanted = [self._hw_behind_read(message)] if message is not None else offsets or []
        _c_store(
            self, offsets=[self._hw_offsets.offset_to_store(*_parts_of(partition)) for partition in wanted]
        )

    @unless_chained(_c_commit)
    def commit(
        self,
        message: Message | None = None,
        offsets: list[TopicPartition] | None = None,
        asynchronous: bool = True,  # noqa: FBT001, FBT002 - confluent-kafka's signature
        *more: Any,
        **keywords: Any,
    ) -> Any:
        """Commit the offset behind a message, offsets, or the stored offsets, held back as stores are.

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
            return _c_commit(self, message, offsets, asynchronous, *more, **keywords)
        if message is None and offsets is None and (self._hw_lanes is None or self._hw_lanes.is_poller()):
            return commits.commit_stored(self, self._hw_offsets, waits=waits)
        self._hw_refuse_offsets_of_the_application()
        wanted = [self._hw_behind_read(message)] if message is not None else offsets
        return commits.commit(self, self._hw_session, self._hw_committable(wanted or []), waits=waits)

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
        # Those of other partitions may be of another consumer of the group, for which a transaction asks.
        if any(topic_partition_of(position) in self._hw_next_offsets for position in positions):
            self._hw_refuse_offsets_of_the_application()
        self._hw_recover(sys._getframe())  # noqa: SLF001 - as inspect does
        return [self._hw_offsets.safe_offset(*_parts_of(partition)) for partition in positions]

    @unless_chained(_C.consumer_group_metadata)
    def consumer_group_metadata(self) -> Any:
        """Return the group metadata, by which a transaction's offsets find this consumer again."""
        metadata = _C.consumer_group_metadata(self)
        register_consumer(metadata, self)
        return metadata

    def _hw_behind_read(self, message: Message) -> TopicPartition:
        """Return the offset behind a message; raise if it was not read from a topic, so that it has none."""
        missing = [
            name for name in ("topic", "partition", "offset") if getattr(message, name)() in {None, "", -1}
        ]
        if missing:
            raise KafkaException(
                KafkaError(NO_OFFSET, f"expected a message that was read, found one without {missing[-1]}")
            )
        return self._hw_behind(message)

    def _hw_behind(self, message: Message) -> TopicPartition:
        """Return the offset behind a message, on the topic of the wire."""
        topic_partition = (wire_topic_and_local(message)[0], message.partition() or 0)
        return at_offset(topic_partition, (message.offset() or 0) + 1, None, message.leader_epoch())

    def _hw_store_passed(self, positions: Mapping[TopicPartitionKey, tuple[int, int | None]]) -> None:
        """Store positions that have been passed, one a partition."""
        for topic_partition, (position, leader_epoch) in positions.items() if self._hw_stores_offsets else ():
            self._hw_store_offset(
                self._hw_offsets.offset_to_store(topic_partition, position, None, leader_epoch)
            )

    def _hw_store_refreshed(self) -> None:
        """Store the offsets that slices no longer hold back, because they have expired or were given up."""
        for safe in self._hw_offsets.refreshed():
            self._hw_store_offset(safe)

    def _hw_store_offset(self, offset: TopicPartition) -> None:
        try:
            _c_store(self, offsets=[offset])
        except KafkaException as error:
            _log.debug("%s is not assigned any more: %s", offset, error)

    def _hw_store_message(self, message: Message) -> None:
        """Store by message, which costs a third of storing by partition."""
        try:
            _c_store(self, message)
        except KafkaException as error:
            _log.debug("%s is not assigned any more: %s", message.topic(), error)

    def _hw_commit_watermarks(self) -> None:
        """Bring the last watermarks to the broker, if the client commits by itself."""
        self._hw_recover(sys._getframe())  # noqa: SLF001 - as inspect does
        if self._hw_commit_interval_s and (held := self._hw_offsets.take_watermarked(everything=True)):
            commits.commit_quietly(self, self._hw_session, held, waits=True)

    # After an interrupt

    def _hw_recover(self, caller: FrameType | None, *, ends: bool = False) -> None:
        """Recover records that an interrupt, or a callback that raised, left between wire and application.

        confluent-kafka's position is behind the last record that it gave out, ours behind the last one that
        arrived here. The records between the two are read again. If a callback raises in ``consume``,
        confluent-kafka throws a batch away, at times with a record more than its position says.

        Args:
            caller: the frame from which on no call of this consumer may be under way, such as one that has
                called a callback which now commits.
            ends: whether a call that a signal's handler interrupted will not go on, because that closes us.
        """
        if self._hw_fetching_thread != get_ident():
            return
        place = called_from(self, self._HW_FETCHING, caller)
        if place is not CalledFrom.OUTSIDE and not (ends and place is not CalledFrom.IN_CALLBACK):
            return
        self._hw_pauses.resume_briefly_paused(self)
        self._hw_inbox.restore(self._hw_entries_of_given())
        found = _C.position(self, _C.assignment(self))
        positions = {topic_partition_of(each): each.offset for each in found}
        gone = [TopicPartition(*each) for each in self._hw_next_offsets if each not in positions]
        self._hw_remove_partitions(gone, commit=False)
        threw_away = self._hw_lost_a_batch = self._hw_fetched_batches == []
        for topic_partition, position in positions.items():
            if topic_partition not in self._hw_next_offsets:  # its callback was interrupted
                self._hw_add_partitions([TopicPartition(*topic_partition)])
            taken = self._hw_next_offsets[topic_partition] = max(
                self._hw_next_offsets[topic_partition],
                self._hw_inbox.position(topic_partition) or OFFSET_INVALID,
            )
            if taken < 0:
                taken = self._hw_first_fetched(topic_partition, taken, position, threw_away=threw_away)
            if taken != OFFSET_INVALID and (taken < position or threw_away):
                self._hw_read_again(topic_partition, taken)
            if taken >= 0 and self._hw_stores_offsets:
                next_offset = self._hw_next_offsets[topic_partition]
                self._hw_store_offset(self._hw_offsets.offset_to_store(topic_partition, next_offset))
        self._hw_fetching_thread = 0

    def _hw_entries_of_given(self) -> list[Entry]:
        """Return entries for messages that were to be given; each moves the offset unless siblings follow."""
        entries: list[Entry] = []
        lowest: dict[TopicPartitionKey, int] = {}
        for message in reversed(self._hw_inbox.given):
            topic_partition, offset = topic_partition_of(self._hw_behind(message)), message.offset()
            entry = Entry(topic_partition, offset=offset, message=message)
            if offset is not None and 0 <= offset < lowest.get(topic_partition, offset + 1):
                entry.position, lowest[topic_partition] = offset + 1, offset
            entries.append(entry)
        return entries[::-1]

    def _hw_first_fetched(
        self, topic_partition: TopicPartitionKey, began: int, position: int, *, threw_away: bool
    ) -> int:
        """Return the offset from which to read a partition again of which nothing has arrived here."""
        fetched = [message for batch in self._hw_fetched_batches or () for message in batch]
        offsets = [message.offset() or 0 for message in fetched if _is_of(message, topic_partition)]
        if offsets:
            return min(offsets)
        if threw_away and began == OFFSET_BEGINNING:
            return began
        if threw_away and began != OFFSET_END and self._hw_starts_at_beginning:
            with suppress(KafkaException):  # it cannot be asked just now
                found = _C.committed(self, [TopicPartition(*topic_partition)], _COMMITTED_TIMEOUT_S)
                committed: int = found[0].offset
                return committed if committed >= 0 else OFFSET_BEGINNING
        return OFFSET_INVALID if position < 0 else position - 1

    def _hw_read_again(self, topic_partition: TopicPartitionKey, taken: int) -> None:
        """Go back to an offset, and to the first slice of a message that was incomplete there."""
        begin = wanted = taken
        if self._hw_reassembles and taken >= 0:
            safe = self._hw_session.safe_offset(*topic_partition, taken)
            begin = min(self._hw_offsets.first_incomplete(topic_partition, taken), safe)
            waiting = self._hw_inbox.first_offset(topic_partition)
            if begin < taken and waiting is not None and waiting < taken:
                # What waits here is read again, too, from its first slice on.
                wanted = waiting
                begin = min(begin, self._hw_session.safe_offset(*topic_partition, waiting))
        # In this order, because this may be interrupted, too.
        self._hw_offsets.note_resumed(topic_partition, begin, wanted)
        self._hw_next_offsets[topic_partition] = begin
        if begin < taken:
            self._hw_inbox.drop({topic_partition})
        self._hw_session.revoke([topic_partition])
        with suppress(KafkaException):  # it has gone meanwhile
            _C.seek(self, at_offset(topic_partition, begin))

    # Processing

    def messages(self, timeout: float = -1) -> MessageLoop:
        """Iterate over messages; each is in :meth:`processing` while the loop's body works at it.

        Args:
            timeout: end after so many seconds without a message; a negative number waits for ever.

        The loop also ends after :meth:`stop`. Refused records, and events, come as :meth:`poll` gives them.
        A ``for`` loop does not tell its iterator why it ends: if its body raises or breaks, interceptors hear
        of a GeneratorExit. In ``with consumer.messages() as messages: for message in messages: ...`` they
        hear of the error, and of none after a ``break``.
        """
        return MessageLoop(self, timeout)

    def run(
        self,
        handler: Callable[[Message], object],
        *,
        lanes: int = 8,
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
            handler: called with each message, on one of the lanes; it is done when it returns.
            lanes: how many messages are processed at once.
            order: what is processed one after the other: the records of one ``key``, of one
                ``partition``, or ``none``. Records without a key keep the order of their partition.
            on_failure: what becomes of a record that the handler failed on for good, or that the chain
                refused: ``raise`` ends ``run`` with that error, ``skip`` goes on behind it, and
                ``dead_letter`` keeps it as it was on the wire in another topic first.
            attempts: how often the handler is tried in all.
            retry_on: the exceptions that are worth another attempt.
            backoff_s: seconds before the second attempt; they double with each further one, and up to
                half of them, at random, is left out.
            max_backoff_s: the longest pause between two attempts, in seconds.
            dead_letter_topic: the topic of dead letters; ``{topic}`` stands for the record's own.
            dead_letter_headers: the headers that say why: ``connect``, ``spring`` or ``headerware``.
            dead_letter_unavailable: what becomes of a record whose dead letter cannot be stored: ``hold``
                tries again and again, and the offset waits; ``refuse`` goes on behind it, as ``skip`` does.
            max_pending: how many records may wait or be at work, shared by the assigned partitions.
            stop_timeout_s: how long to wait for records at work at the end, in seconds.
            revoke_timeout_s: how long to wait for those of a partition that goes to another consumer.

        Raises:
            ConfigError: an option cannot work; or the client stores offsets by itself, see below.
            TypeError: the handler is a coroutine function.
            KafkaException: the client failed.
            Exception: with ``on_failure="raise"``, what the handler raised, or why the chain refused.

        A client without a chain stores an offset when ``poll`` returns the message, so it needs
        ``headerware.processing = "explicit"``.
        """
        options = Processing(
            lanes=lanes,
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
        if self._hw_lanes is not None:
            raise ConfigError("run is under way already; a consumer has one caller at a time")
        self._hw_begin_explicit()
        Lanes(self, handler, options).run()

    def _hw_keep_originals(self) -> None:
        """Keep what each record was on the wire, from here on, and in a later chain, too.

        Records that wait for the application already came without, and are read again.
        """
        if self._hw_keeps_originals:
            return
        self._hw_keeps_originals = True
        self._hw_session.keep_originals()
        self._hw_recover(sys._getframe())  # noqa: SLF001 - as inspect does
        for topic_partition in list(self._hw_next_offsets):
            first = self._hw_inbox.first_offset(topic_partition)
            if first is not None:
                self._hw_inbox.drop({topic_partition})
                self._hw_read_again(topic_partition, first)

    def _hw_refuse_offsets_of_the_application(self) -> None:
        """Raise if ``run`` is under way: what is committed beside it may be at work still."""
        if self._hw_lanes is not None:
            raise KafkaException(
                KafkaError(
                    STATE,
                    "run is under way, and commits an offset once all before it is processed; let the "
                    "handler return instead of committing or storing offsets",
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

    def _hw_store_processed(
        self, topic_partition: TopicPartitionKey, position: int, leader_epoch: int | None
    ) -> TopicPartition:
        """Store the position up to which a partition is processed, and return what was stored for it."""
        safe = self._hw_offsets.offset_to_store(topic_partition, position, None, leader_epoch)
        self._hw_store_offset(safe)
        return safe

    def _hw_before_revocation(self, partitions: list[TopicPartition], *, lost: bool = False) -> None:
        """Let records at work of partitions that go be finished, and commit them."""
        if self._hw_lanes is not None:
            self._hw_lanes.revoke({topic_partition_of(partition) for partition in partitions}, lost=lost)

    def stats(self) -> dict[str, dict[str, int]]:
        """Return the counters of each interceptor, and those of the client under ``client``."""
        if not self._hw_chained:
            return {"client": {}}
        own = {"pending": len(self._hw_inbox), "repeated": self._hw_repeated, "refused": self._hw_refused}
        if self._hw_live is not None:
            own |= self._hw_live.stats()
        return {**self._hw_session.stats(), "client": {**own, **self._hw_run_counts}}

    # The end

    @unless_chained(_C.close)
    def close(self) -> None:
        """Commit what is safe, leave the group, and close the interceptors, once."""
        if not self._hw_finish.alive:
            _C.close(self)
            return
        self._hw_end_implicit()
        if self._hw_live is not None:
            self._hw_live.close(self)
        try:
            self._hw_recover(sys._getframe(), ends=True)  # noqa: SLF001 - as inspect does
            self._hw_commit_watermarks()
            _C.close(self)
        finally:
            self._hw_inbox.clear()
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
        # Not at the exit of the process: the cycle collector has taken the consumer out of that set by now.
        if getattr(self, "_hw_in_process", None) is not None:
            self._hw_end_implicit()
        refused = getattr(self, "_hw_refused_offsets", None)
        if refused:
            refused.commit(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._hw_chain!r}>"


Consumer._HW_FETCHING = frozenset({Consumer.poll.__code__, Consumer.consume.__code__})  # noqa: SLF001 - our own


def _raw_settings(conf: Mapping[str, Any], offsets: Offsets, *, hears_commits: bool) -> dict[str, Any]:
    """Return the raw client's configuration: we store the offsets, and hear of the commits."""
    raw = {key: value for key, value in conf.items() if not str(key).startswith(DEAD_LETTER)}
    raw["enable.auto.offset.store"] = False
    callback = raw.get("on_commit")
    if callable(callback) or (callback is None and hears_commits):
        raw["on_commit"] = partial(commits.on_commit, offsets, callback)
    return raw


def _session_of(consumer: Consumer | None) -> Session | None:
    return None if consumer is None else consumer._hw_session  # noqa: SLF001 - our own


def _is_good(message: Any) -> bool:
    """Return whether confluent-kafka would take the message for a position."""
    return type(message) is Message and message.error() is None


def _parts_of(partition: TopicPartition) -> tuple[TopicPartitionKey, int, str | None, int | None]:
    return topic_partition_of(partition), partition.offset, partition.metadata, partition.leader_epoch


def _is_of(message: Message, topic_partition: TopicPartitionKey) -> bool:
    return message.error() is None and (message.topic(), message.partition()) == topic_partition


_CALLBACKS: Final = rebalances.CALLBACKS | {commits.on_commit.__code__, tell_statistics.__code__}


def consumer_context(
    client: Any, conf: Mapping[str, Any], dead_letters: DeadLetters, reports: DeadLetters
) -> Context:
    """Return the surroundings of a consumer's session, also of a share consumer's."""
    cluster_id = cluster_id_port(client, conf, may_ask=_may_ask)
    return Context(
        side="consumer",
        client_id=conf.get("client.id"),
        group_id=conf.get("group.id"),
        bootstrap_servers=bootstrap_servers(conf),
        instrumented_by=instrumented_by(client),
        cluster_id=cluster_id,
        wait_for_cluster_id=cluster_id.wait,
        publish=dead_letters.publish,
        post=reports.post,
        pick_partition=dead_letters.pick_partition,
        max_message_bytes=number(conf, f"{DEAD_LETTER}message.max.bytes", MAX_MESSAGE_BYTES),
    )


def _may_ask(consumer: Any) -> bool:
    """Return whether this thread may call a consumer: no other polls it, nor is this inside a callback."""
    is_polled_elsewhere: Callable[[], bool] | None = getattr(consumer, "_hw_is_polled_elsewhere", None)
    return not ((is_polled_elsewhere is not None and is_polled_elsewhere()) or _is_in_callback())


def _is_in_callback() -> bool:
    """Return whether this thread is inside a callback of ours, of whichever consumer."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - as inspect does
    while frame is not None:
        if frame.f_code in _CALLBACKS:
            return True
        frame = frame.f_back
    return False
