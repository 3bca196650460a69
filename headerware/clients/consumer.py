"""The consumer: confluent-kafka's, with a chain between the wire and the application."""

from __future__ import annotations

import logging
import sys
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import get_ident
from types import TracebackType
from typing import Any, Final

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.error import ConsumeError

from headerware.clients.cluster import cluster_id_port
from headerware.clients.codes import TIMED_OUT
from headerware.clients.consumer_inbox import InboxConsumer
from headerware.clients.dead_letters import LARGEST_BYTES, DeadLetters
from headerware.clients.inbox import Inbox
from headerware.clients.messages import fitted, record_of
from headerware.clients.offsets import Offsets, Place
from headerware.clients.raw import unless_chained
from headerware.clients.rebalance import commit_callback
from headerware.clients.serde_errors import RefusedRecordError
from headerware.clients.settings import boolean, flattened, merged, number
from headerware.core.chain import Chain
from headerware.core.client_chain import DEAD_LETTER, client_chain
from headerware.core.context import Context
from headerware.core.errors import HeaderwareError, SerdeError
from headerware.core.interrupts import pass_on_interrupt
from headerware.core.record import Record
from headerware.core.session import Session

_C: Final[Any] = confluent_kafka.Consumer
_c_init, _c_poll, _c_consume = _C.__init__, _C.poll, _C.consume
_TICK_S: Final = 0.5
_RECALL_TIMEOUT_S: Final = 5.0
_MAX_BATCH: Final = 1_000_000
_log = logging.getLogger("headerware")


class Consumer(InboxConsumer):
    """Consume from Kafka through a chain; a drop-in for ``confluent_kafka.Consumer``.

    Args:
        conf: confluent-kafka's configuration, with the chain's own keys (``interceptors``,
            ``interceptors.*``, ``headerware.config``) among it, and ``headerware.dead_letter.<key>`` for
            the producer of dead letters; keywords are merged into it.
        chain: the chain, where code makes it.

    Raises:
        ConfigError: the chain's configuration is wrong.
        KafkaException: confluent-kafka refuses the rest.

    Without a chain it is the raw client: confluent-kafka's own methods answer. A record that the chain
    refuses is met once, and its offset counts as consumed, also over a restart. It is raised where
    ``chain`` was passed; where the chain comes from configuration, for an application that does not know of
    it, it is a message whose ``error()`` is set. As confluent-kafka's, it has one caller at a time.
    """

    chain: Chain = Chain()
    """The chain; empty for a raw client."""

    def __init__(self, *args: Any, chain: Chain | None = None, **conf: Any) -> None:
        given = merged(args, conf)
        if given is None:
            _c_init(self, *args, **conf)  # raises what confluent-kafka raises
            raise TypeError("expected configuration dict")
        self._raises = chain is not None
        self.chain, rest = self._chain_for(given, chain)
        if not self.chain:
            _c_init(self, {key: value for key, value in rest.items() if not str(key).startswith(DEAD_LETTER)})
            return
        self._open(flattened(rest))

    def _chain_for(self, conf: dict[str, Any], chain: Chain | None) -> tuple[Chain, dict[str, Any]]:
        """Find the chain, and what of the configuration remains for the client itself."""
        return client_chain(conf, chain)

    def _open(self, conf: dict[str, Any]) -> None:
        letters = DeadLetters(conf)
        session = self._session = self.chain.open(
            Context(
                side="consumer",
                client_id=conf.get("client.id"),
                group_id=conf.get("group.id"),
                cluster_id=cluster_id_port(self, conf),
                publish=letters.publish,
                pick_partition=letters.pick_partition,
                max_message_bytes=number(conf, f"{DEAD_LETTER}message.max.bytes", LARGEST_BYTES),
            )
        )
        try:
            self._inbox = Inbox(session.consume_outcome)
            self._offsets = Offsets(session, self._inbox.first_offset)
            self._stores = boolean(conf, "enable.auto.offset.store", default=True)
            self._commits_s = (
                number(conf, "auto.commit.interval.ms", 5_000) / 1000
                if boolean(conf, "enable.auto.commit", default=True)
                else 0.0
            )
            _c_init(self, _raw_settings(conf, session))
        except BaseException:
            session.close()
            raise
        self._take_in = session.consume_outcome
        self._paused: set[Place] = set()
        self._next: dict[Place, int] = {}
        self._silenced: list[TopicPartition] = []
        self._begins_first = conf.get("auto.offset.reset") in {"earliest", "beginning", "smallest"}
        self._simple = not self._offsets.gathers
        self._ticks = session.polls or self._offsets.gathers
        self._next_tick = self._next_commit = 0.0
        self._repeated = self._refused = 0
        self._logged: set[tuple[str | None, str]] = set()
        self._refused_offsets: dict[Place, TopicPartition] = {}
        self._pauses: dict[Place, tuple[int | None, float, float]] = {}
        self._next_refused_commit = self._held_until = self._next_poll = 0.0
        self._held_at = self._held_s = 0.0
        self._deferred: Exception | None = None
        self._finish = weakref.finalize(self, _close_all, session, letters)
        self._chained = True

    # Records

    def poll(self, timeout: float = -1) -> Message | None:
        """Return the next message, or None after ``timeout`` seconds without one.

        Goes on through dropped and waiting records until the deadline. A refused record is a message whose
        ``error()`` is set, unless the chain was passed in code.

        Raises:
            HeaderwareError: the chain, passed in code, refused a record; it is not delivered again.
        """
        if not self._chained:
            return _c_poll(self, timeout)  # type: ignore[no-any-return]
        self._begin()
        deadline = time.monotonic() + timeout if timeout > 0 else None
        asked = False
        while True:
            if self._inbox:
                try:
                    messages = self._drain(1, [])
                    if messages and self._raises_events:
                        self._raise_event(messages[0])
                except (HeaderwareError, ConsumeError):
                    self._inbox.leaving, self._taking = [], 0
                    raise
                # From here on no call and no loop, so that an interrupt comes before this or after us.
                self._inbox.leaving = []
                if messages:
                    self._taking = 0
                    return messages[0]
            left = timeout if deadline is None or not asked else deadline - time.monotonic()
            if asked and timeout >= 0 and left <= 0:
                self._taking = 0
                return None
            if self._held_until and self._waits_for_a_letter(left):
                asked = True
                continue
            message: Message | None = _c_poll(self, self._patience(left))
            asked = True
            if self._ticks:
                self._tick()
            if message is None:
                continue
            if message.error() is not None:
                self._taking = 0
                if self._raises_events:
                    self._raise_event(message)
                return message
            record = record_of(message)
            if self._offsets.gathers:
                self._recall(record)
            outcome = self._take_in(record)
            if outcome.__class__ is Record and self._simple and not self._inbox:
                if self._stores:
                    self._store_message(message)
                message = fitted(message, record, outcome)
                self._next[record.topic, record.partition or 0] = (record.offset or 0) + 1
                self._taking = 0
                return message
            self._queue(message, record, outcome)

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Give up to ``num_messages`` messages, or an empty list after ``timeout`` seconds.

        Gives those before a refused record, and answers for that, alone, at the next call: with a message
        whose ``error()`` is set, or by raising where the chain was passed in code.

        Raises:
            HeaderwareError: the chain, passed in code, refused a record; it is not delivered again.
        """
        if not self._chained or not 0 < num_messages <= _MAX_BATCH:
            return list(_c_consume(self, num_messages, timeout))
        self._begin()
        deadline = time.monotonic() + timeout if timeout > 0 else None
        asked, enough = False, True
        while True:
            if self._inbox:
                try:
                    messages = self._drain(num_messages, self._inbox.given)
                except HeaderwareError:
                    self._inbox.leaving, self._taking = [], 0
                    raise
                self._inbox.given, self._inbox.leaving = messages, []
            enough = enough or bool(self._inbox) or self._deferred is not None
            left = timeout if deadline is None or not asked else deadline - time.monotonic()
            if (enough and self._inbox.given) or (asked and timeout >= 0 and left <= 0):
                messages, self._inbox.given = self._inbox.given, []
                # What a callback threw away is read again when the application has heard of it.
                self._taking = 0 if self._deferred is None else self._taking
                return messages
            if self._held_until and self._waits_for_a_letter(left):
                asked = True
                continue
            # One alone where a batch was thrown away, or a callback that always raises would stop all.
            wanted = 1 if self._careful else num_messages - len(self._inbox.given)
            asked = True
            fetched = self._fetched(wanted, self._patience(left))
            if self._ticks:
                self._tick()
            if fetched:
                self._careful = False
                self._batch(fetched)
            # A batch that is short was cut off by our own patience, not by the caller's.
            enough = len(fetched) == wanted or (not fetched and bool(self._inbox))

    def _raise_event(self, message: Message) -> None:
        """Raise an event, or a refused record, as confluent-kafka's deserializing consumer does."""
        error = message.error()
        if error is None:
            return
        if not isinstance(error, RefusedRecordError):
            raise ConsumeError(error, kafka_message=message)
        refused = self._raisable(error.cause)
        if isinstance(refused, SerdeError):
            raise refused
        raise ConsumeError(error, refused, message) from refused

    def _begin(self) -> None:
        """Begin to take records from the wire to the application, after what is left of the last time."""
        deferred, self._deferred = self._deferred, None
        if deferred is not None:
            raise deferred
        if self._taking:
            self._taking = get_ident()
            # Not _getframe(2): a thread may have begun with the call.
            self._go_back(sys._getframe(1).f_back)  # noqa: SLF001 - as inspect does
        self._batches = None
        self._taking = get_ident()
        if self._refused_offsets:
            self._commit_refused()

    def _fetched(self, count: int, timeout: float) -> list[Message]:
        """Fetch from the wire; what a callback raises waits until the messages before it have been given."""
        try:
            batches = self._batches = []
            batches.extend(map(_c_consume, (self,), (count,), (timeout,)))  # in C, so that nothing gets lost
            return batches[0]
        except Exception as raised:
            pass_on_interrupt(raised)
            if not self._inbox.given:
                raise
            self._deferred = raised
            return []

    def _patience(self, left: float) -> float:
        """Return how long to wait for the wire before the chain has to be asked again."""
        return _TICK_S if self._ticks and not 0 <= left <= _TICK_S else left

    def _batch(self, fetched: list[Message]) -> None:
        """Take a batch in: its messages are to be given, or wait in the inbox with all else."""
        records = [record_of(message) for message in fetched if message.error() is None]
        if self._offsets.gathers:
            for record in records:
                self._recall(record)
        outcomes = self._session.consume_outcomes(records)
        plain = self._simple and not self._inbox and len(records) == len(fetched)
        if not plain or set(map(type, outcomes)) != {Record}:
            self._queue_all(fetched, records, outcomes)
            return
        last: dict[Place, int] = {}
        before = records[0]
        for index, record in enumerate(records):
            if record.partition != before.partition or record.topic != before.topic:
                last[before.topic, before.partition or 0] = index - 1
            before = record
        last[before.topic, before.partition or 0] = len(records) - 1
        if self._stores:
            # By message, and so before the chain's changes: the topic is that on the wire.
            for index in last.values():
                self._store_message(fetched[index])
        taken = {place: (records[index].offset or 0) + 1 for place, index in last.items()}
        good: list[Any] = outcomes
        given = [*self._inbox.given, *map(fitted, fetched, records, good)]
        self._inbox.given, self._next = given, self._next | taken

    def _queue_all(self, fetched: list[Message], records: list[Record], outcomes: list[Any]) -> None:
        """Let a batch go through the inbox, with events between the records where they stood."""
        results = iter(zip(records, outcomes, strict=True))
        for message in fetched:
            if message.error() is not None:
                self._inbox.add_event(message)
            else:
                self._queue(message, *next(results))

    # What goes on between records

    def _tick(self) -> None:
        """Ask the chain, now and then, for what has expired, and bring watermarks to the broker."""
        now = time.monotonic()
        if now < self._next_tick:
            return
        self._next_tick = now + _TICK_S
        self._count_held(now)
        if self._held_s and not self._session.safe_offsets():
            self._held_s = 0.0
        for outcome in self._session.poll(self._session.context.now_ms() - int(self._held_s * 1000)):
            self._inbox.add_released(outcome)
        if self._offsets.gathers and not self._inbox:
            # What has expired holds nothing back any more.
            for safe in self._offsets.refreshed():
                self._store_offset(safe)
        if self._commits_s and now >= self._next_commit:
            self._next_commit = now + self._commits_s
            if held := self._offsets.watermarked():
                self._commit_quietly(held, asynchronous=True)

    def _recall(self, record: Record) -> None:
        """Look, at the first record of a partition, for the watermark of the consumer before this one."""
        place = (record.topic, record.partition or 0)
        if not self._offsets.take_fresh(place):
            return

        def end() -> int:
            found = self.get_watermark_offsets(TopicPartition(*place), timeout=_RECALL_TIMEOUT_S)
            if found is None:
                raise KafkaException(KafkaError(TIMED_OUT))
            return found[1]

        try:
            committed = _C.committed(self, [TopicPartition(*place)], _RECALL_TIMEOUT_S)[0]
            self._offsets.recall(place, committed, record.offset or 0, end)
        except KafkaException as error:
            _log.warning("no committed offset of %s[%s], or no end, so records may repeat: %s", *place, error)

    @contextmanager
    def processing(self, message: Message) -> Iterator[Message]:
        """Tell the interceptors, at the end of a ``with`` block, that a message has been processed.

        What the block raises is passed to them, and on.
        """
        if not self._chained or message.error() is not None:
            yield message
            return
        record = record_of(message).replace(local=self._found(message)[1])
        try:
            yield message
        except BaseException as error:
            self._session.processed(record, error)
            raise
        self._session.processed(record, None)

    # The end

    def stats(self) -> dict[str, dict[str, int]]:
        """Return the counters of each interceptor, and those of the client under ``client``."""
        if not self._chained:
            return {"client": {}}
        own = {"pending": len(self._inbox), "repeated": self._repeated, "refused": self._refused}
        return {**self._session.stats(), "client": own}

    @unless_chained(_C.close)
    def close(self) -> None:
        """Commit what is safe, leave the group, and close the interceptors, once."""
        if not self._finish.alive:
            _C.close(self)
            return
        try:
            self._commit_watermarks()
            _C.close(self)
        finally:
            self._inbox.clear()
            self._refused_offsets.clear()
            self._finish()

    @unless_chained(_C.__exit__)
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        exc_traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.chain!r}>"


Consumer._CALLS = frozenset({Consumer.poll.__code__, Consumer.consume.__code__})  # noqa: SLF001 - our own


def _raw_settings(conf: Mapping[str, Any], session: Session) -> dict[str, Any]:
    """Return the raw client's configuration: offsets are ours to store, and commits ours to hear of."""
    raw = {key: value for key, value in conf.items() if not str(key).startswith(DEAD_LETTER)}
    raw["enable.auto.offset.store"] = False
    callback = raw.get("on_commit")
    if callable(callback) or (callback is None and session.hears_commits):
        raw["on_commit"] = commit_callback(session, callback)
    return raw


def _close_all(session: Session, letters: DeadLetters) -> None:
    try:
        session.close()
    finally:
        letters.close()
