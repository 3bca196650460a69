"""The share consumer (KIP-932): confluent-kafka's, with a chain between the wire and the application.

The members of a share group get single records, and answer for each: accept, release or reject. So there is
no position to hold back, and the chain answers for records that the application does not get:

- A record that the chain drops is accepted.
- A refused record is a message whose ``error()`` is set, in its place, and is rejected, so that nobody gets
  it again.
- All other records are the application's, as ``share.acknowledgement.mode`` says.

A record that cannot be judged yet is kept, and tried again with pauses that grow, before it is released: the
broker would return it at once, and gives a record up after a few deliveries. Meanwhile nothing else is
fetched, for librdkafka fetches only when every record has its answer.

The raw client is always in explicit mode, for in implicit mode it would accept refused records, too.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

import confluent_kafka
import msgspec
from confluent_kafka import Message

from headerware.clients.callbacks import guard_callbacks
from headerware.clients.consumer import consumer_context
from headerware.clients.dead_letters import DeadLetters, close_all
from headerware.clients.forked import refuse_in_children
from headerware.clients.live_chain import FollowsFile
from headerware.clients.messages import hide_own_headers, message_of, updated_message, wire_topic_and_local
from headerware.clients.processing import Processes
from headerware.clients.raw import unless_chained
from headerware.clients.refused_records import as_message
from headerware.clients.sessions import InUse, Sessions
from headerware.clients.settings import chain_by_name, flattened, initialise, listen_to_statistics, merged
from headerware.core.backoff import Backoff
from headerware.core.chain import Chain
from headerware.core.client_chain import DEAD_LETTER
from headerware.core.errors import ConfigError, HeaderwareError, HeldBackError, MissingPartError
from headerware.core.hooks import DROP
from headerware.core.record import Record
from headerware.kafka.messages import record_of

if TYPE_CHECKING:
    from confluent_kafka import Messages
    from confluent_kafka import ShareConsumer as _Base

    from headerware.core.session import Session
else:

    class _Missing:
        """Stands in for confluent-kafka's class before version 2.16."""

        def __init__(self, *_: Any, **__: Any) -> None:
            raise MissingPartError(
                f"share consumers need confluent-kafka 2.16 or later; found {confluent_kafka.__version__}"
            )

        poll = acknowledge = acknowledge_offset = commit_sync = commit_async = close = __exit__ = None

    _Base = getattr(confluent_kafka, "ShareConsumer", _Missing)

_C: Final[Any] = _Base
_MODE: Final = "share.acknowledgement.mode"
_TICK_S: Final = 0.5
_ACCEPT: Final = 1
_RELEASE: Final = 2
_REJECT: Final = 3
_Position = tuple[str, int, int]
_HOLD_S: Final = 10.0
"""How long a record is kept at most; by default, an acquisition lock of a broker lasts at least 15 s."""
_FIRST_PAUSE_S: Final = 0.1
_CANNOT_WAIT: Final = "a share group gives a record to another member when its lock ends"


class ShareConsumer(FollowsFile, Processes, _Base):
    """Consume from Kafka as a member of a share group, through a chain.

    A drop-in for ``confluent_kafka.ShareConsumer``.

    Args:
        conf: confluent-kafka's configuration, with the chain's own keys among it, as
            :class:`~headerware.Consumer` takes it; keywords are merged into it.
        chain: the chain, if code makes it.

    Raises:
        ConfigError: the chain's configuration is wrong, or one of its interceptors waits for other records of
            a partition, as ``slice`` does: they may go to other members of the group.
        MissingPartError: this confluent-kafka has no share consumers.

    Without a chain it is the raw client. With one, a refused record is a message whose ``error()`` is set,
    and is rejected; a record that an interceptor drops is accepted. Interceptors that remember records, such
    as ``dedup`` without a store, or a window against replays, remember the records of this member only.
    """

    @chain_by_name
    def __init__(self, *args: Any, chain: Chain | None = None, **conf: Any) -> None:
        given = merged(args, conf)
        if given is None:
            _C.__init__(self, *args, **conf)  # raises as confluent-kafka does
            raise TypeError("expected configuration dict")
        self._hw_chain, rest = self._hw_chain_for(given, chain)
        self._hw_take_options(rest, chain)
        raw = {key: value for key, value in flattened(rest).items() if not str(key).startswith(DEAD_LETTER)}
        if not self._hw_may_have_a_chain():
            initialise(_C.__init__, self, raw)
            return
        # Two producers, because we wait for dead letters, and never for reports.
        dead_letters, reports = DeadLetters(rest), DeadLetters(rest, is_checked=True)
        session = self._hw_session = self._hw_chain.open(
            msgspec.structs.replace(
                consumer_context(self, rest, dead_letters.store, dead_letters, reports),
                cannot_wait=_CANNOT_WAIT,
            )
        )
        try:
            _require_single_records(session)
            reference = weakref.ref(self)
            guard_callbacks(raw)
            listen_to_statistics(raw, session, lambda: _session_of(reference()))
            # confluent-kafka refuses any other mode.
            self._hw_accepts = raw.get(_MODE, "implicit") == "implicit"
            initialise(_C.__init__, self, {**raw, _MODE: "explicit"} if self._hw_accepts else raw)
        except BaseException:
            session.close()
            raise
        self._hw_observe(session)
        self._hw_refused = 0
        # The records of the last fetch without an answer; all of them until a poll returns.
        self._hw_unanswered: dict[_Position, None] = {}
        # Records that cannot be judged yet, each with the time at which it is released.
        self._hw_held: dict[_Position, tuple[Message, float]] = {}
        self._hw_next_attempt = 0.0
        self._hw_backoff = Backoff(_FIRST_PAUSE_S, _HOLD_S)
        self._hw_is_fetching = False
        self._hw_next_tick = 0.0
        self._hw_next_chain = None
        self._hw_in_use = InUse(session)
        self._hw_sessions = Sessions(self._hw_in_use, session)
        self._hw_finish = weakref.finalize(self, close_all, self._hw_sessions, dead_letters, reports)
        self._hw_chained = True
        refuse_in_children(self)
        if self._hw_live is not None:
            self._hw_live.follow(self)

    def _hw_use_chain(self, chain: Chain) -> None:
        earlier = self._hw_session
        with chain.open(msgspec.structs.replace(earlier.context, dry_run=True)) as trial:
            _require_single_records(trial)
        session = chain.open(earlier.context, previous=earlier)
        self._hw_session = session
        self._hw_observe(session)
        self._hw_chain, self._hw_in_use = chain, InUse(session)
        self._hw_sessions.add(self._hw_in_use, session)

    def poll(self, timeout: float = -1) -> Messages:
        """Return the next messages, or none after ``timeout`` seconds.

        A refused record is a message whose ``error()`` is set; the client has answered for it.

        Raises:
            IllegalStateException: in explicit mode, a record of the last poll was not acknowledged.
        """
        if not self._hw_chained:
            found: Messages = _C.poll(self, timeout)
            if self._hw_looks_at:
                self._hw_look_at(list(found))
            return found
        self._hw_end_implicit()
        self._hw_answer_for_the_last()
        if self._hw_held and self._hw_unanswered:
            _C.poll(self, 0)  # raises, because in explicit mode the application has not answered
        began_ns = time.time_ns() if self._hw_observes and self._hw_is_awaited() else 0
        deadline = time.monotonic() + timeout if timeout > 0 else None
        left = timeout
        while True:
            self._hw_is_fetching = True
            if self._hw_next_chain is not None:
                self._hw_take_next_chain()
            fetched = self._hw_due_again(left) if self._hw_held else self._hw_fetch(left)
            if self._hw_session.ticks and time.monotonic() >= self._hw_next_tick:
                self._hw_next_tick = time.monotonic() + _TICK_S
                self._hw_session.tick()
            given = self._hw_given(fetched)
            left = timeout if deadline is None else deadline - time.monotonic()
            if given or (timeout >= 0 and left <= 0):
                if began_ns or self._hw_only_at_work:
                    self._hw_hand_over(given, began_ns)
                self._hw_is_fetching = False
                return confluent_kafka.Messages(given)

    def _hw_fetch(self, left: float) -> list[Message]:
        """Fetch from the wire; these records have no answer yet."""
        fetched = list(
            _C.poll(self, _TICK_S if self._hw_session.ticks and not 0 <= left <= _TICK_S else left)
        )
        self._hw_unanswered = dict.fromkeys(_position_of(each) for each in fetched if each.error() is None)
        self._hw_backoff.reset()
        return fetched

    def _hw_due_again(self, left: float) -> list[Message]:
        """Wait until the kept records may be tried again, and return them; return none if time is up."""
        waits = self._hw_next_attempt - time.monotonic()
        if waits > 0:
            time.sleep(min(waits, left) if left >= 0 else waits)
            if 0 <= left < waits:
                return []
        again = [message for message, _ in self._hw_held.values()]
        self._hw_unanswered.update(dict.fromkeys(self._hw_held))
        return again

    def _hw_given(self, fetched: Sequence[Message]) -> list[Message]:
        """Take messages through the chain; answer for records that the application does not get."""
        records = [record_of(message) for message in fetched if message.error() is None]
        results = iter(zip(records, self._hw_session.consume_outcomes(records), strict=True))
        given: list[Message] = []
        for message in fetched:
            if message.error() is not None:
                given.append(message)
                continue
            record, outcome = next(results)
            made = _made_of(outcome)
            was_held = self._hw_held.pop(_position_of(message), None)
            if not made:
                self._hw_answer(record, _ACCEPT)
            elif isinstance(made[0], HeldBackError):
                self._hw_hold(message, record, was_held)
                if was_held is None:
                    given.append(self._hw_refused_message(record, made[0]))
            elif isinstance(made[0], HeaderwareError):
                self._hw_answer(record, _REJECT)
                given.append(self._hw_refused_message(record, made[0]))
            elif made == [outcome]:
                given.append(updated_message(message, record, made[0]))
            else:
                given.extend(message_of(each, record.topic) for each in made)
        if self._hw_hides_headers:
            for message in given:
                hide_own_headers(message)
        if fetched and self._hw_held:
            ends = min(until for _, until in self._hw_held.values())
            self._hw_next_attempt = min(time.monotonic() + self._hw_backoff.next_s(), ends)
        return given

    def _hw_hold(self, message: Message, record: Record, was_held: tuple[Message, float] | None) -> None:
        """Keep a record that cannot be judged yet, or release it if it was kept long enough."""
        now = time.monotonic()
        until = now + _HOLD_S if was_held is None else was_held[1]
        if now >= until:
            self._hw_answer(record, _RELEASE)
            return
        position = _position_of(message)
        self._hw_unanswered.pop(position, None)
        self._hw_held[position] = message, until

    def _hw_refused_message(self, record: Record, error: HeaderwareError) -> Message:
        self._hw_refused += 1
        return as_message(error, (record.topic, record.partition or 0), record.offset)

    def _hw_answer(self, record: Record, answer: int) -> None:
        position = record.topic, record.partition or 0, record.offset or 0
        _C.acknowledge_offset(self, *position, answer)
        self._hw_unanswered.pop(position, None)

    def _hw_answer_for_the_last(self) -> None:
        """Accept the records of the last poll in implicit mode; after an interrupt, release them."""
        if not (self._hw_accepts or self._hw_is_fetching):
            return
        answer = _ACCEPT
        if self._hw_is_fetching:
            answer = _RELEASE
            self._hw_unanswered.update(dict.fromkeys(self._hw_held))
            self._hw_held.clear()
        for position in list(self._hw_unanswered):
            _C.acknowledge_offset(self, *position, answer)
            del self._hw_unanswered[position]
        self._hw_is_fetching = False

    # Acknowledgements

    @unless_chained(_C.acknowledge)
    def acknowledge(self, message: Message, ack_type: Any = _ACCEPT) -> None:
        """Answer for a record of the last poll: accept, release or reject it.

        Raises:
            IllegalStateException: the client is in implicit mode, or the record is not of the last poll.
        """
        given: object = message
        if not isinstance(given, Message):
            _C.acknowledge(self, given, ack_type)  # raises as confluent-kafka does
        topic, _ = wire_topic_and_local(message)
        self.acknowledge_offset(topic, message.partition() or 0, message.offset() or 0, ack_type)

    @unless_chained(_C.acknowledge_offset)
    def acknowledge_offset(self, topic: str, partition: int, offset: int, ack_type: Any = _ACCEPT) -> None:
        """Answer for a record by its position, as :meth:`acknowledge` does."""
        if self._hw_accepts:
            raise confluent_kafka.IllegalStateException(
                f"the consumer acknowledges by itself; set {_MODE} = 'explicit' to do it"
            )
        _C.acknowledge_offset(self, topic, partition, offset, ack_type)
        self._hw_unanswered.pop((topic, partition, offset), None)

    @unless_chained(_C.commit_sync)
    def commit_sync(self, timeout: float = 60) -> Any:
        """Send the acknowledgements and wait for the answer; in implicit mode, accept the last poll first."""
        self._hw_end_implicit()
        self._hw_answer_for_the_last()
        return _C.commit_sync(self, timeout)

    @unless_chained(_C.commit_async)
    def commit_async(self) -> None:
        """Send the acknowledgements; in implicit mode, accept the last poll first."""
        self._hw_end_implicit()
        self._hw_answer_for_the_last()
        _C.commit_async(self)

    def stats(self) -> dict[str, dict[str, int]]:
        """Return the counters of each interceptor, and those of the client under ``client``."""
        if not self._hw_chained:
            return {"client": {}}
        own = {"refused": self._hw_refused, "held_back": len(self._hw_held)}
        if self._hw_live is not None:
            own |= self._hw_live.stats()
        return {**self._hw_session.stats(), "client": own}

    # The end

    @unless_chained(_C.close)
    def close(self) -> None:
        """Send the acknowledgements, leave the group, and close the interceptors, once.

        Records without an answer are released, in implicit mode, too, as confluent-kafka does.
        """
        if not self._hw_finish.alive:
            _C.close(self)
            return
        self._hw_end_implicit()
        if self._hw_live is not None:
            self._hw_live.close(self)
        try:
            _C.close(self)
        finally:
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

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._hw_chain!r}>"


def _require_single_records(session: Session) -> None:
    """Raise a ConfigError if an interceptor waits for other records of a partition."""
    waits = session.names_of_waiting
    if waits:
        raise ConfigError(
            f"{', '.join(waits)} waits for other records of a partition, and in a share group these may "
            f"go to other members; leave it out, or use a Consumer",
            path="chain",
        )


def _session_of(consumer: ShareConsumer | None) -> Session | None:
    return None if consumer is None else consumer._hw_session  # noqa: SLF001 - our own


def _position_of(message: Message) -> _Position:
    return message.topic() or "", message.partition() or 0, message.offset() or 0


def _made_of(outcome: Any) -> list[Any]:
    """Return the records that the chain made of one record, or its error."""
    if isinstance(outcome, Record | HeaderwareError):
        return [outcome]
    try:
        return [] if outcome is DROP else list(outcome)
    except HeaderwareError as error:  # records that are made only here may fail here
        return [error]
