"""The consumer: confluent-kafka's, with a chain between the wire and the application."""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final

import confluent_kafka
from confluent_kafka import KafkaException, Message, TopicPartition

from headerware.clients.cluster import cluster_id_port
from headerware.clients.consumer_inbox import InboxConsumer
from headerware.clients.dead_letters import DeadLetters
from headerware.clients.inbox import Inbox
from headerware.clients.messages import fitted, record_of
from headerware.clients.offsets import Offsets, Place
from headerware.clients.raw import become_raw
from headerware.clients.rebalance import commit_callback
from headerware.clients.settings import boolean, flattened, merged, number
from headerware.core.chain import Chain
from headerware.core.client_chain import DEAD_LETTER, client_chain
from headerware.core.context import Context
from headerware.core.record import Record
from headerware.core.session import Session
from headerware.core.verified import Verified

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

    Without a chain it is the raw client: its methods are confluent-kafka's own. A record that the chain
    refuses is raised once, and its offset counts as consumed. As confluent-kafka's, it has one caller
    at a time.
    """

    chain: Chain
    """The chain; empty for a raw client."""

    def __init__(self, *args: Any, chain: Chain | None = None, **conf: Any) -> None:
        given = merged(args, conf)
        if given is None:
            _c_init(self, *args, **conf)  # raises what confluent-kafka raises
            raise TypeError("expected configuration dict")
        self.chain, rest = self._chain_for(given, chain)
        if not self.chain:
            become_raw(self, _RawConsumer)
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
                max_message_bytes=number(conf, f"{DEAD_LETTER}message.max.bytes", 1_000_000),
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
        self._simple = not self._offsets.gathers
        self._ticks = session.has("poll") or self._offsets.gathers
        self._next_tick = self._next_commit = 0.0
        self._repeated = 0
        self._deferred: Exception | None = None
        self._finish = weakref.finalize(self, _close_all, session, letters)

    # Records

    def poll(self, timeout: float = -1) -> Message | None:
        """Give the next message, or None after ``timeout`` seconds without one.

        Goes on through dropped and waiting records until the deadline.

        Raises:
            HeaderwareError: the chain refused a record; it is not delivered again.
        """
        self._raise_deferred()
        deadline = time.monotonic() + timeout if timeout > 0 else None
        asked = False
        while True:
            if self._inbox and (messages := self._drain(1, [])):
                return messages[0]
            left = timeout if deadline is None or not asked else deadline - time.monotonic()
            if asked and timeout >= 0 and left <= 0:
                return None
            message: Message | None = _c_poll(self, self._patience(left))
            asked = True
            if self._ticks:
                self._tick()
            if message is None:
                continue
            if message.error() is not None:
                return message
            record = record_of(message)
            if self._offsets.gathers:
                self._recall(record)
            outcome = self._take_in(record)
            if outcome.__class__ is Record and self._simple and not self._inbox:
                if self._stores:
                    self._store_message(message)
                return fitted(message, record, outcome)
            self._inbox.add(message, record, outcome)

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Give up to ``num_messages`` messages, or an empty list after ``timeout`` seconds.

        Gives those before a refused record, and raises at the next call.

        Raises:
            HeaderwareError: the chain refused a record; it is not delivered again.
        """
        if not 0 < num_messages <= _MAX_BATCH:
            return list(_c_consume(self, num_messages, timeout))
        self._raise_deferred()
        messages: list[Message] = []
        deadline = time.monotonic() + timeout if timeout > 0 else None
        asked = False
        while True:
            if self._inbox:
                messages = self._drain(num_messages, messages)
                if messages:
                    return messages
            left = timeout if deadline is None or not asked else deadline - time.monotonic()
            if asked and timeout >= 0 and left <= 0:
                return messages
            wanted, asked = num_messages - len(messages), True
            fetched = self._fetched(wanted, self._patience(left), messages)
            if self._ticks:
                self._tick()
            messages = self._batch(fetched, num_messages, messages) if fetched else messages
            # A batch that is short was cut off by our own patience, not by the caller's.
            if messages and (len(fetched) == wanted or self._inbox or self._deferred is not None):
                return messages

    def _fetched(self, count: int, timeout: float, messages: list[Message]) -> list[Message]:
        """Fetch from the wire; what a callback raises waits until the messages before it have been given."""
        try:
            return list(_c_consume(self, count, timeout))
        except Exception as raised:
            if not messages:
                raise
            self._deferred = raised
            return []

    def _raise_deferred(self) -> None:
        deferred, self._deferred = self._deferred, None
        if deferred is not None:
            raise deferred

    def _patience(self, left: float) -> float:
        """Give how long to wait for the wire before the chain has to be asked again."""
        return _TICK_S if self._ticks and not 0 <= left <= _TICK_S else left

    def _batch(self, fetched: list[Message], limit: int, messages: list[Message]) -> list[Message]:
        """Take a batch in, and add its messages to those that are there."""
        records = [record_of(message) for message in fetched if message.error() is None]
        if self._offsets.gathers:
            for record in records:
                self._recall(record)
        outcomes = self._session.consume_outcomes(records)
        if not self._simple or self._inbox or len(records) < len(fetched):
            return self._queued(fetched, records, outcomes, limit, messages)
        good = 0
        last: dict[tuple[str, int | None], Message] = {}
        before: Record | None = None
        for record, outcome in zip(records, outcomes, strict=True):
            if outcome.__class__ is not Record:
                break
            if before is not None and (record.partition != before.partition or record.topic != before.topic):
                last[before.topic, before.partition] = fetched[good - 1]
            before = record
            good += 1
        if before is not None and self._stores:
            last[before.topic, before.partition] = fetched[good - 1]
            # By message, and so before the chain's changes: the topic is that on the wire.
            for message in last.values():
                self._store_message(message)
        delivered: list[Any] = outcomes[:good]
        messages.extend(map(fitted, fetched, records, delivered))
        if good == len(fetched):
            return messages
        for rest in zip(fetched[good:], records[good:], outcomes[good:], strict=True):
            self._inbox.add(*rest)
        return self._drain(limit, messages)

    def _queued(
        self,
        fetched: list[Message],
        records: list[Record],
        outcomes: list[Any],
        limit: int,
        messages: list[Message],
    ) -> list[Message]:
        """Let a batch go through the inbox, with events between the records where they stood."""
        results = iter(zip(records, outcomes, strict=True))
        for message in fetched:
            if message.error() is not None:
                self._inbox.add_event(message)
            else:
                self._inbox.add(message, *next(results))
        return self._drain(limit, messages)

    # What goes on between records

    def _tick(self) -> None:
        """Ask the chain, now and then, for what has expired, and bring watermarks to the broker."""
        now = time.monotonic()
        if now < self._next_tick:
            return
        self._next_tick = now + _TICK_S
        for outcome in self._session.poll():
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
        if not self._offsets.is_fresh(place):
            return
        committed: TopicPartition | None = None
        try:
            committed = _C.committed(self, [TopicPartition(*place)], _RECALL_TIMEOUT_S)[0]
        except KafkaException as error:
            _log.warning("no committed offset of %s[%s], so records may repeat: %s", *place, error)
        self._offsets.recall(place, committed, record.offset or 0)

    @contextmanager
    def processing(self, message: Message) -> Iterator[Message]:
        """Tell the interceptors, at the end of a ``with`` block, that a message has been processed.

        What the block raises is passed to them, and on.
        """
        if message.error() is not None:
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
        """Give the counters of each interceptor, and those of the client under ``client``."""
        own = {"pending": len(self._inbox), "repeated": self._repeated}
        return {**self._session.stats(), "client": own}

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
            self._finish()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        exc_traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.chain!r}>"


class _RawConsumer(Consumer):
    """A consumer with an empty chain: the C methods themselves."""

    __slots__ = ()

    poll = _C.poll
    consume = _C.consume
    store_offsets = _C.store_offsets
    commit = _C.commit
    committed = _C.committed
    consumer_group_metadata = _C.consumer_group_metadata
    subscribe = _C.subscribe
    unsubscribe = _C.unsubscribe
    assign = _C.assign
    unassign = _C.unassign
    incremental_assign = _C.incremental_assign
    incremental_unassign = _C.incremental_unassign
    pause = _C.pause
    resume = _C.resume
    seek = _C.seek
    close = _C.close
    __exit__ = _C.__exit__

    @contextmanager
    def processing(self, message: Message) -> Iterator[Message]:
        yield message

    def local(self, message: Message) -> Mapping[str, Any]:  # noqa: ARG002 - nobody has any
        return {}

    def verified(self, message: Message) -> Verified | None:  # noqa: ARG002 - nobody has verified anything
        return None

    def clamped(self, positions: list[TopicPartition]) -> list[TopicPartition]:
        return positions

    def stats(self) -> dict[str, dict[str, int]]:
        return {"client": {}}


def _raw_settings(conf: Mapping[str, Any], session: Session) -> dict[str, Any]:
    """Give the raw client's configuration: offsets are ours to store, and commits ours to hear of."""
    raw = {key: value for key, value in conf.items() if not str(key).startswith(DEAD_LETTER)}
    raw["enable.auto.offset.store"] = False
    callback = raw.get("on_commit")
    if callable(callback) or (callback is None and session.has("on_commit")):
        raw["on_commit"] = commit_callback(session, callback)
    return raw


def _close_all(session: Session, letters: DeadLetters) -> None:
    try:
        session.close()
    finally:
        letters.close()
