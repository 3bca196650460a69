"""Delivery: records that a consumer has read and the application has not got yet. No client, threads or I/O.

The input is messages with the outcomes of the chain, ticks of time, and changes of partitions. The output is
the messages to give (``given``), the record to tell the application of (returned by :meth:`Delivery.give`),
and ``commands``: partitions to pause and to resume, offsets to seek, to store and to commit. The consumer
carries the commands out, in order; to carry one out twice does no harm. ``record_states.py`` has the table of
the states of a record.

- **The inbox** (``entries``) has the records that cannot be given at once, in the order of the wire: records
  that the chain added or reassembled from slices, refused records, and all records after them. No record goes
  past an entry that waits, unless the entry's partition is paused.
- **An entry is always in ``entries`` or in ``leaving``, and a message is in ``given`` until it is returned**,
  also if an interrupt comes: CPython looks for signals after calls, but not within C nor between two
  assignments. So these are changed by single assignments, or in C. ``interrupts.py`` puts the entries back.
- **Pauses.** The application pauses partitions, and a record whose moment has not come pauses its partition.
  librdkafka has one pause for each partition, so a partition is resumed when neither of the two pauses it.
- **Retries.** A record whose dead letter could not be stored, or that no step could judge, is not passed
  over. It is tried again, with pauses that grow.
- **Offsets** are held back to where a restart loses nothing (``offsets.py``). Entries of the inbox hold them
  back, too, and so do dead letters that are on their way.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from confluent_kafka import OFFSET_END, Message, TopicPartition

from headerware.clients.messages import (
    hide_own_headers,
    message_of,
    updated_message,
    wire_topic_and_local,
)
from headerware.clients.offsets import Offsets, topic_partition_of
from headerware.clients.record_states import TRANSITIONS, Event, State
from headerware.core.backoff import Backoff
from headerware.core.errors import DelayedError, HeaderwareError, HeldBackError
from headerware.core.hooks import DROP
from headerware.core.record import ORIGINAL, Record
from headerware.core.services import TopicPartitionKey
from headerware.core.step import PendingDeadLetter
from headerware.kafka.messages import record_of

if TYPE_CHECKING:
    from headerware.clients.sessions import InUse
    from headerware.core.session import Session

_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 10.0
MAX_WAITING: Final = 1_000
MAX_WAITING_BYTES: Final = 32 * 1024 * 1024
"""How many bytes of records may wait in the inbox after a dead letter that is on its way."""
_SIZED_EVERY: Final = 32
"""After how many records the size of the inbox is added up."""
_LOOK_AT_CLOCK_S: Final = 1.0
"""How long a record waits before the clock is asked again whether its moment has come."""


class Pause(NamedTuple):
    """Stop fetching a partition."""

    topic_partition: TopicPartitionKey


class Resume(NamedTuple):
    """Fetch a partition again."""

    topic_partition: TopicPartitionKey


class Seek(NamedTuple):
    """Read a partition from an offset on."""

    topic_partition: TopicPartitionKey
    offset: int


class Store(NamedTuple):
    """Store an offset, which librdkafka commits with the next commit."""

    offset: TopicPartition


class Commit(NamedTuple):
    """Commit offsets that librdkafka would not commit although they are stored."""

    offsets: list[TopicPartition]


class CommitRefused(NamedTuple):
    """Commit the offset after a refused record at once, so that a restart does not read the record again."""

    offset: TopicPartition


Command = Pause | Resume | Seek | Store | Commit | CommitRefused


class Entry:
    """An entry of the inbox: a message, an error, a dead letter on its way, or only an offset to pass.

    ``offset`` is the record's offset. ``position`` is the consumer's position after the entry, and
    ``leader_epoch`` belongs to that position; a position of None does not move the consumer. ``original`` is
    the record on the wire, if that record alone is enough for another attempt.
    """

    __slots__ = (
        "dead_letter",
        "error",
        "in_use",
        "leader_epoch",
        "message",
        "offset",
        "original",
        "position",
        "state",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartitionKey,
        *,
        offset: int | None = None,
        position: int | None = None,
        leader_epoch: int | None = None,
        message: Message | None = None,
        error: HeaderwareError | None = None,
        original: Record | None = None,
        dead_letter: PendingDeadLetter | None = None,
        in_use: InUse | None = None,
    ) -> None:
        self.topic_partition: Final = topic_partition
        self.offset: Final = offset
        self.position: int | None = position
        self.leader_epoch: int | None = leader_epoch
        self.message: Final = message
        self.error: HeaderwareError | None = error
        self.original: Final = original
        self.dead_letter: PendingDeadLetter | None = dead_letter
        self.in_use: InUse | None = in_use
        """Keeps the session that sent the dead letter open."""
        self.state: State = TRANSITIONS["read", _event_of(message, error, dead_letter)][0]

    def happens(self, event: Event) -> str:
        """Take the state that follows an event, and return the action to do."""
        self.state, action = TRANSITIONS[self.state, event]
        return action


def _event_of(
    message: object, error: HeaderwareError | None, dead_letter: PendingDeadLetter | None
) -> Literal["accepted", "dropped", "dead letter sent", "delayed", "held back", "refused"]:
    """Return the event that the outcome of the chain is."""
    if error is not None:
        if isinstance(error, DelayedError):
            return "delayed"
        return "held back" if isinstance(error, HeldBackError) else "refused"
    if dead_letter is not None:
        return "dead letter sent"
    return "dropped" if message is None else "accepted"


_Batch = tuple[list[Message], list[Record], Sequence[Any], dict[TopicPartitionKey, int]]
"""Messages, their records, the outcomes of the records, and the positions after the messages."""


class Delivery:
    """Keep records in order between the wire and the application, and tell the client what to do.

    Args:
        session: the chain at work.
        in_use: keeps the session open.
        stores: whether offsets are stored as records are given.
        commits_every_s: how often the client commits by itself, in seconds; 0 if it does not.
        hides_headers: whether messages hide our headers.
        clock: returns seconds, and never goes back.
    """

    __slots__ = (
        "_awaits_dead_letter",
        "_is_large",
        "_next_watermarks",
        "_retries",
        "_taken_batch",
        "application_paused",
        "commands",
        "commits_every_s",
        "consume",
        "delayed",
        "entries",
        "given",
        "hides_headers",
        "in_use",
        "keeps_originals",
        "leaving",
        "now",
        "offsets",
        "positions",
        "reassembles",
        "refused",
        "repeated",
        "runs",
        "session",
        "stores",
    )

    def __init__(
        self,
        session: Session,
        in_use: InUse | None = None,
        *,
        stores: bool = True,
        commits_every_s: float = 5.0,
        hides_headers: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.entries: deque[Entry] = deque()
        self.leaving: list[Entry] = []
        """The entries that were popped by a call that has not returned yet."""
        self.given: list[Message] = []
        """The messages that the current call will return."""
        self.commands: deque[Command] = deque()
        self.positions: dict[TopicPartitionKey, int] = {}
        """For each partition, the first offset that has not been read yet; negative if reading began at a
        symbolic offset, such as OFFSET_STORED."""
        self.application_paused: set[TopicPartitionKey] = set()
        """The partitions that the application paused."""
        self.delayed: dict[TopicPartitionKey, tuple[int, float]] = {}
        """The partitions whose first record waits: the moment by the session's clock, and when to look at
        that clock again, by our clock."""
        self.stores: bool = stores
        self.commits_every_s: float = commits_every_s
        """How often the client commits by itself; 0 if it does not."""
        self.hides_headers: bool = hides_headers
        self.runs: bool = False
        """Whether ``run`` is under way; ``run`` stores offsets itself."""
        self.keeps_originals: bool = False
        self.now: Callable[[], float] = clock
        self.refused: int = 0
        self.repeated: int = 0
        self._retries = Retries(clock)
        self._next_watermarks = 0.0
        self._awaits_dead_letter = self._is_large = False
        self._taken_batch: _Batch | None = None
        self.offsets: Final = Offsets(session, self.first_offset)
        self.use(session, in_use)

    def use(self, session: Session, in_use: InUse | None) -> None:
        """Let records go through a session from now on."""
        self.session: Session = session
        self.in_use: InUse | None = in_use
        self.consume: Callable[[Record], Any] = session.consume_outcome
        self.offsets.follow(session)
        self.reassembles: bool = self.offsets.reassembles
        if self.keeps_originals:
            session.keep_originals()

    def read_again_unless_kept(self, session: Session) -> None:
        """Go back to where a restart would begin, unless the new session keeps the slices that wait."""
        earlier = self.session
        if session.keeps_waiting(earlier):
            return
        waiting = earlier.waiting_offsets()
        for topic_partition, taken in list(self.positions.items()):
            self._read_again_from_safe(topic_partition, taken, waiting.get(topic_partition, ()))

    def keep_originals(self) -> None:
        """From now on, also in a later chain, keep each record as it was on the wire.

        Records in the inbox have no original yet, so they are read again.
        """
        self.keeps_originals = True
        self.session.keep_originals()
        for topic_partition in list(self.positions):
            first = self.first_offset(topic_partition)
            if first is not None:
                self.drop({topic_partition})
                self.read_again(topic_partition, first)

    # From the wire

    def give_at_once(self, message: Message, record: Record, outcome: Record) -> None:
        """Give a message, changed as the chain has changed its record.

        Call this only if the inbox is empty and the chain makes no record of several. Store the offset after
        the message first, because a transform may change the message's topic.
        """
        message = updated_message(message, record, outcome)
        if self.hides_headers:
            hide_own_headers(message)
        topic_partition, position = (record.topic, record.partition or 0), (record.offset or 0) + 1
        self.given = [message]  # no call follows, so an interrupt comes before this or after both lines
        self.positions[topic_partition] = position

    def add_event(self, message: Message) -> None:
        """Put an error event, or the end of a partition, into the inbox, to be given unchanged."""
        self.entries.append(Entry((message.topic() or "", -1), message=message))

    def take_batch(self, messages: list[Message]) -> list[Message]:
        """Take messages through the chain; if all may be given at once, return the last of each partition.

        Store the offsets of the returned messages before :meth:`give_batch`, because a transform may change a
        topic. If one message may not be given at once, all go to the inbox, and events between them, too.
        """
        records = [record_of(message) for message in messages if message.error() is None]
        outcomes = self.session.consume_outcomes(records)
        plain = not self.reassembles and not self.entries and len(records) == len(messages)
        if not plain or set(map(type, outcomes)) != {Record}:
            self._add_batch(messages, records, outcomes)
            return []
        last: dict[TopicPartitionKey, int] = {}
        before = records[0]
        for index, record in enumerate(records):
            if record.partition != before.partition or record.topic != before.topic:
                last[before.topic, before.partition or 0] = index - 1
            before = record
        last[before.topic, before.partition or 0] = len(records) - 1
        positions = {key: (records[index].offset or 0) + 1 for key, index in last.items()}
        self._taken_batch = messages, records, outcomes, positions
        return [messages[index] for index in last.values()]

    def give_batch(self) -> None:
        """Give the messages of the last :meth:`take_batch`, changed as their records were."""
        taken, self._taken_batch = self._taken_batch, None
        assert taken is not None  # noqa: S101 - the caller has called take_batch
        messages, records, outcomes, positions = taken
        given = [*self.given, *map(updated_message, messages, records, outcomes)]
        if self.hides_headers:
            for message in given:
                hide_own_headers(message)
        self.given, self.positions = given, self.positions | positions

    def add(self, message: Message, record: Record, outcome: Any) -> None:
        """Put the outcome of a message into the inbox."""
        topic_partition, position = (record.topic, record.partition or 0), (record.offset or 0) + 1
        self.entries.extend(list(self._entries_of(message, record, outcome)))
        self.positions[topic_partition] = position
        self.offsets.note_read(topic_partition, position)

    def _add_batch(self, messages: list[Message], records: list[Record], outcomes: Sequence[Any]) -> None:
        results = iter(zip(records, outcomes, strict=True))
        for message in messages:
            if message.error() is not None:
                self.add_event(message)
            else:
                self.add(message, *next(results))

    def _entries_of(self, message: Message, record: Record, outcome: Any) -> Iterable[Entry]:
        topic_partition, position = (record.topic, record.partition or 0), (record.offset or 0) + 1
        if isinstance(outcome, Record):
            yield Entry(
                topic_partition,
                offset=outcome.offset,
                position=position,
                leader_epoch=record.leader_epoch,
                message=updated_message(message, record, outcome),
            )
            return
        outcome = _listed(outcome)
        if isinstance(outcome, list) and outcome:
            entries = [_extra(extra, topic_partition) for extra in outcome]
            # Only the last sibling moves the offset.
            entries[-1].position, entries[-1].leader_epoch = position, record.leader_epoch
            yield from entries
            return
        error = outcome if isinstance(outcome, HeaderwareError) else None
        pending = outcome if isinstance(outcome, PendingDeadLetter) else None
        # The record that came last does not make a reassembled message again by itself.
        alone = isinstance(error, HeldBackError) and _is_made_of(error.last_record, record)
        yield Entry(
            topic_partition,
            offset=record.offset,
            position=position,
            leader_epoch=record.leader_epoch,
            error=error,
            original=record if alone or pending is not None else None,
            dead_letter=pending,
            in_use=None if pending is None else self.in_use,
        )

    def add_released(self, outcome: Any) -> None:
        """Put records that the chain released in front, because they are older. They move no offset."""
        outcome = _listed(outcome)
        if isinstance(outcome, HeaderwareError):
            topic = getattr(outcome, "topic", None) or ""
            partition = getattr(outcome, "partition", None)
            topic_partition = (topic, -1 if partition is None else partition)
            released = [Entry(topic_partition, offset=getattr(outcome, "offset", None), error=outcome)]
        else:
            released = [] if outcome is DROP else list(map(_extra, outcome))
        self.entries.extendleft(reversed(released))

    # To the application

    @property
    def awaits_dead_letter(self) -> bool:
        """Whether the application gets nothing until a dead letter on its way is stored."""
        return self._awaits_dead_letter and bool(self.entries)

    @property
    def is_full(self) -> bool:
        """Whether so many records wait in the inbox that none is to be read until a dead letter is stored."""
        count = len(self.entries)
        if count >= MAX_WAITING:
            return True
        if count % _SIZED_EVERY == 0 or self._is_large:
            size_bytes = sum(_size_of(entry.message) for entry in self.entries)
            self._is_large = size_bytes >= MAX_WAITING_BYTES
        return self._is_large

    @property
    def retry_at(self) -> float:
        """When the record that stops the stream may be tried again, by the clock; 0 without such a record."""
        return self._retries.until if self.entries else 0.0

    def give(self, limit: int) -> Entry | None:
        """Move up to ``limit`` messages that the application may get now to ``given``.

        A refused record comes alone, never with messages. If the application is to be told of one now, return
        its entry. The entry's state is "told" if the record is passed over, "waiting" if it is tried again.
        """
        messages = [*self.given]
        passed: dict[TopicPartitionKey, tuple[int, int | None]] = {}
        self._retries.until, self._awaits_dead_letter = 0.0, False
        told: Entry | None = None
        while len(messages) < limit and told is None:
            entry = self._pop()
            if entry is None:
                break
            event = self._event_now(entry, is_first=not messages)
            if event is None:
                self._put_back(entry)
                if entry.topic_partition in self.delayed:
                    continue  # the entries of other partitions go past it
                break
            following, action = TRANSITIONS[entry.state, event]
            if action == "try again":
                self._try_again(entry)
                continue
            entry.state = following
            if action == "wait":
                self._put_back(entry)
            elif action == "hold":
                self._put_back(entry)
                self._retries.postpone(entry)
                told = entry
            else:
                if action == "give" and entry.message is not None:
                    if self.hides_headers:
                        hide_own_headers(entry.message)
                    messages.append(entry.message)
                if entry.position is not None:
                    passed[entry.topic_partition] = entry.position, entry.leader_epoch
                told = entry if action == "tell" else None
        self._store_passed(passed)
        if told is None:
            self.given, self.leaving = messages, []
        elif told.state == "told":
            self.refused += 1
            self._commit_refused(told)
        return told

    def _event_now(self, entry: Entry, *, is_first: bool) -> Event | None:
        """Return the event that an entry gets now; None if the entry has to wait."""
        state = entry.state
        if state == "passed":
            return "taken"
        if state == "pending":
            return self._dead_letter_event(entry)
        if self._was_delivered(entry):
            return "delivered before"
        if state == "ready":
            return "taken"
        if state == "delayed":
            return None if self._delays(entry) or not is_first else "due"
        if not is_first:
            return None
        if state == "refused":
            return "taken"
        if not self._retries.is_due(entry):
            return None
        return "due" if state == "waiting" or self._retries.were_for_another(entry) else "taken"

    def _dead_letter_event(self, entry: Entry) -> Event | None:
        dead_letter = entry.dead_letter
        assert dead_letter is not None  # noqa: S101 - its state says so
        if not dead_letter.done():
            self._awaits_dead_letter = True
            return None
        outcome = dead_letter.outcome()
        if outcome is DROP:
            return "dead letter stored"
        entry.error = outcome
        return "held back" if isinstance(outcome, HeldBackError) else "refused"

    def _was_delivered(self, entry: Entry) -> bool:
        if entry.offset is None or not self.offsets.was_delivered(entry.topic_partition, entry.offset):
            return False
        self.repeated += 1
        return True

    def _try_again(self, entry: Entry) -> None:
        """Take a record through the chain again; if it was made of several records, read those again."""
        self._retries.begin(entry)
        if entry.original is None:
            if entry.offset is None:  # there is nothing to read again, so the application is told again
                self._keep(entry, "held back")
                return
            self.leaving = self.leaving[:-1]
            # The seek drops all entries of the partition, and some are smaller if the chain reorders.
            waiting = self.first_offset(entry.topic_partition)
            offset = entry.offset if waiting is None else min(entry.offset, waiting)
            self.seek(entry.topic_partition, offset, self.offsets.note_resumed)
            return
        outcome = _listed(self.consume(entry.original))
        if isinstance(outcome, PendingDeadLetter):
            entry.dead_letter, entry.in_use = outcome, self.in_use
            self._keep(entry, "dead letter sent")
            return
        if isinstance(outcome, HeldBackError):
            entry.error = outcome
            self._keep(entry, "delayed" if isinstance(outcome, DelayedError) else "held back")
            return
        if isinstance(outcome, HeaderwareError):
            entries = [Entry(entry.topic_partition, offset=entry.offset, error=outcome)]
        else:
            records = [] if outcome is DROP else outcome
            entries = [
                *(_extra(record, entry.topic_partition) for record in records),
                Entry(entry.topic_partition),
            ]
        entries[-1].position, entries[-1].leader_epoch = entry.position, entry.leader_epoch
        self.entries, self.leaving = deque([*entries, *self.entries]), self.leaving[:-1]

    def _keep(self, entry: Entry, event: Event) -> None:
        """Give an entry that went through the chain again its new state, and put it back."""
        entry.state = TRANSITIONS["read", event][0]
        self._put_back(entry)

    def _store_passed(self, positions: dict[TopicPartitionKey, tuple[int, int | None]]) -> None:
        """Store the positions that have been passed, one for each partition."""
        for topic_partition, (position, leader_epoch) in positions.items() if self.stores else ():
            self._store(self.offsets.offset_to_store(topic_partition, position, None, leader_epoch))

    def _store(self, offset: TopicPartition) -> None:
        self.commands.append(Store(offset))

    def _commit_refused(self, entry: Entry) -> None:
        """Commit the offset after a refused record, if the client commits by itself."""
        if not self.stores:
            return
        if entry.position is not None:
            found = [
                self.offsets.safe_offset(entry.topic_partition, entry.position, None, entry.leader_epoch)
            ]
        else:  # slices were given up, and no longer hold an offset back
            found = self.offsets.refreshed()
            for safe in found:
                self._store(safe)
        if self.commits_every_s:
            own = (safe for safe in found if topic_partition_of(safe) == entry.topic_partition)
            self.commands.extend(map(CommitRefused, own))

    # The inbox

    def _pop(self) -> Entry | None:
        """Move the first entry of a partition that is not paused to ``leaving``, and return it."""
        paused = self.held()
        if paused and self.entries and self.entries[0].topic_partition in paused:
            # Other partitions go first. The order within each partition does not change.
            self.entries = deque(sorted(self.entries, key=lambda entry: entry.topic_partition in paused))
            if self.entries[0].topic_partition in paused:
                return None
        if not self.entries:
            return None
        self.leaving.extend(map(deque.popleft, (self.entries,)))  # in C, so no interrupt comes between
        return self.leaving[-1]

    def _put_back(self, entry: Entry) -> None:
        """Put the entry that was popped last back in front of the inbox."""
        if self.leaving:
            self.entries.extendleft(map(list.pop, (self.leaving,)))  # in C, as in _pop
        else:
            self.entries.appendleft(entry)

    def inbox_position(self, topic_partition: TopicPartitionKey) -> int | None:
        """Return the position after the entries of a partition, or None if there are none."""
        own = (entry for entry in reversed(self.entries) if entry.topic_partition == topic_partition)
        return next((entry.position for entry in own if entry.position is not None), None)

    def first_offset(self, topic_partition: TopicPartitionKey) -> int | None:
        """Return the smallest offset of a partition's entries, or None if there are none."""
        lowest: int | None = None
        for entry in self.entries:
            if entry.topic_partition != topic_partition:
                continue
            offset = entry.offset
            if offset is None and entry.position is not None:
                offset = entry.position - 1
            if offset is not None:
                lowest = offset if lowest is None else min(lowest, offset)
            if entry.position is not None and not self.session.reorders:
                break  # the following entries came later
        return lowest

    def pending(self, topic_partitions: Collection[TopicPartitionKey] | None = None) -> int:
        """Count the dead letters on their way, of all partitions or of some."""
        return sum(
            entry.state == "pending"
            and entry.dead_letter is not None
            and not entry.dead_letter.done()
            and (topic_partitions is None or entry.topic_partition in topic_partitions)
            for entry in self.entries
        )

    def pass_stored(self) -> None:
        """Pass the first records of each partition if their dead letters are stored, or they were dropped."""
        passed: dict[TopicPartitionKey, tuple[int, int | None]] = {}
        kept: deque[Entry] = deque()
        ended: set[TopicPartitionKey] = set()
        for entry in self.entries:
            own = entry.topic_partition
            if own not in ended and (entry.state == "passed" or self._is_stored(entry)):
                if entry.position is not None:
                    passed[own] = entry.position, entry.leader_epoch
                continue
            ended.add(own)
            kept.append(entry)
        self.entries = kept
        self._store_passed(passed)

    def _is_stored(self, entry: Entry) -> bool:
        dead_letter = entry.dead_letter if entry.state == "pending" else None
        return dead_letter is not None and dead_letter.done() and dead_letter.outcome() is DROP

    def drop(self, topic_partitions: Collection[TopicPartitionKey]) -> None:
        """Forget the entries of partitions that have gone, or are read again."""
        self.entries = deque(entry for entry in self.entries if entry.topic_partition not in topic_partitions)

    def clear(self) -> None:
        """Forget everything."""
        self.entries, self.leaving, self.given = deque(), [], []
        self.commands.clear()

    # Pauses

    def held(self) -> set[TopicPartitionKey]:
        """Return the paused partitions, whose records the application does not get now."""
        return self.application_paused | self.delayed.keys() if self.delayed else self.application_paused

    def _delays(self, entry: Entry) -> bool:
        """Return whether a record's moment has not come; if so, pause its partition."""
        error = entry.error
        assert isinstance(error, DelayedError)  # noqa: S101 - its state says so
        waits = self._waits(entry.topic_partition, error.until_ms)
        if waits:
            self.commands.append(Pause(entry.topic_partition))
        return waits

    def _waits(self, topic_partition: TopicPartitionKey, until_ms: int) -> bool:
        left_ms = until_ms - self.session.context.now_ms()
        if left_ms > 0:
            # Somebody may set the clock, so we look at it now and then.
            self.delayed[topic_partition] = until_ms, self.now() + min(left_ms / 1000, _LOOK_AT_CLOCK_S)
        return left_ms > 0

    def until_next_look(self) -> float:
        """Return how many seconds remain until the clock has to be asked for a delayed record."""
        return max(0.0, min(look for _, look in self.delayed.values()) - self.now())

    def end_delays(self) -> bool:
        """Resume partitions whose moment has come, or whose record has gone; return whether there are any."""
        now = self.now()
        ended = [
            topic_partition
            for topic_partition, (until_ms, look) in list(self.delayed.items())
            if self.first_offset(topic_partition) is None
            or (now >= look and not self._waits(topic_partition, until_ms))
        ]
        for topic_partition in ended:
            if topic_partition not in self.application_paused:
                self.commands.append(Resume(topic_partition))
            self.delayed.pop(topic_partition, None)
        return bool(ended)

    # Ticks of time

    def tick(self) -> None:
        """Take the records that the chain releases, and commit watermarks; called twice a second."""
        now = self.now()
        self.session.tick()
        self._retries.count(now, holds=bool(self.delayed))
        if self._retries.held_s and not self.session.safe_offsets():
            self._retries.held_s = 0.0
        for outcome in self.session.poll(self.session.context.now_ms() - int(self._retries.held_s * 1000)):
            self.add_released(outcome)
        if self.reassembles and not self.entries and not self.runs:
            self.store_refreshed()
        if self.commits_every_s and now >= self._next_watermarks:
            self._next_watermarks = now + self.commits_every_s
            if held := self.offsets.take_watermarked():
                self.commands.append(Commit(held))

    def store_refreshed(self) -> None:
        """Store the offsets that slices no longer hold back: they have expired, or were given up."""
        for safe in self.offsets.refreshed():
            self._store(safe)

    def store_processed(
        self, topic_partition: TopicPartitionKey, position: int, leader_epoch: int | None
    ) -> TopicPartition:
        """Store the position up to which ``run`` has processed a partition; return the stored offset."""
        safe = self.offsets.offset_to_store(topic_partition, position, None, leader_epoch)
        self._store(safe)
        return safe

    # Partitions

    def begin(self, partitions: Iterable[TopicPartition]) -> set[TopicPartitionKey]:
        """Begin to read partitions; return the partitions for which the application has chosen an offset."""
        given = list(partitions)
        chosen = self.offsets.note_assigned(given)
        self.positions.update({topic_partition_of(each): each.offset for each in given})
        return chosen

    def forget(self, topic_partitions: Collection[TopicPartitionKey]) -> None:
        """Forget partitions that have gone to another consumer, or begin anew."""
        self.session.revoke(topic_partitions)
        self.drop(topic_partitions)
        self.offsets.forget(topic_partitions)
        self.application_paused.difference_update(topic_partitions)
        self._retries.forget(topic_partitions)
        self._forget_commands(topic_partitions)
        for topic_partition in topic_partitions:
            self.positions.pop(topic_partition, None)
        if self.delayed:
            self.end_delays()

    def _forget_commands(self, topic_partitions: Collection[TopicPartitionKey]) -> None:
        self.commands = deque(
            each
            for each in self.commands
            if isinstance(each, Resume | Commit) or _partition_of(each) not in topic_partitions
        )

    def seek(
        self,
        topic_partition: TopicPartitionKey,
        offset: int,
        note: Callable[[TopicPartitionKey, int, int], None] | None = None,
    ) -> None:
        """Read a partition from an offset on, or from the first slice of the message that ends there."""
        begin = self.seek_offset(topic_partition, offset)
        self.note_seek(topic_partition, begin, offset, note)
        self.commands.append(Seek(topic_partition, begin))

    def seek_offset(self, topic_partition: TopicPartitionKey, offset: int) -> int:
        """Return the offset at which reading has to begin so that the record at ``offset`` is complete."""
        return min(
            self.session.seek(*topic_partition, offset), self.offsets.read_up_to(topic_partition, offset)
        )

    def note_seek(
        self,
        topic_partition: TopicPartitionKey,
        begin: int,
        wanted: int,
        note: Callable[[TopicPartitionKey, int, int], None] | None = None,
    ) -> None:
        """Note that reading begins at an offset; records of the partition that waited are not delivered.

        Records from the offset ``wanted`` on are delivered. ``note`` is told both offsets.
        """
        if begin < 0 and begin != OFFSET_END:  # after the end, messages that have begun may go on
            self.session.revoke([topic_partition])
        self._forget_commands({topic_partition})
        self.positions[topic_partition] = begin
        self.drop({topic_partition})
        (note or self.offsets.note_seek)(topic_partition, begin, wanted)

    def _read_again_from_safe(
        self, topic_partition: TopicPartitionKey, taken: int, slices: Iterable[int]
    ) -> None:
        """Go back to where a restart would begin, if slices or records of the partition wait."""
        safe = self.offsets.safe_offset(topic_partition, taken).offset if taken >= 0 else taken
        if safe == taken:
            return
        first = self.first_offset(topic_partition)
        given = taken if first is None else min(taken, first)
        self.offsets.note_resumed(topic_partition, safe, given, slices)
        self.positions[topic_partition] = safe
        self.drop({topic_partition})
        self.commands.append(Seek(topic_partition, safe))

    # After an interrupt

    def restore(self) -> None:
        """Put the entries and messages that were about to be given back in front of the inbox."""
        for entry in self.leaving:
            if entry.state in {"given", "told"}:
                entry.happens("interrupted")
        self.entries, self.leaving, self.given = (
            deque([*self._entries_of_given(), *self.leaving, *self.entries]),
            [],
            [],
        )

    def _entries_of_given(self) -> list[Entry]:
        """Return entries for the messages that were to be given; only the last sibling moves the offset."""
        entries: list[Entry] = []
        lowest: dict[TopicPartitionKey, int] = {}
        for message in reversed(self.given):
            topic_partition, offset = wire_partition(message), message.offset()
            entry = Entry(topic_partition, offset=offset, message=message)
            if offset is not None and 0 <= offset < lowest.get(topic_partition, offset + 1):
                entry.position, lowest[topic_partition] = offset + 1, offset
            entries.append(entry)
        return entries[::-1]

    def read_again(self, topic_partition: TopicPartitionKey, taken: int) -> None:
        """Go back to an offset, and to the first slice of a message that was incomplete there."""
        begin = wanted = taken
        if self.reassembles and taken >= 0:
            safe = self.session.safe_offset(*topic_partition, taken)
            begin = min(self.offsets.first_incomplete(topic_partition, taken), safe)
            waiting = self.first_offset(topic_partition)
            if waiting is not None and waiting < taken:
                # Records that wait here are read again, too: the session forgets where their slices began.
                wanted = waiting
                begin = min(begin, self.session.safe_offset(*topic_partition, waiting))
        # The order matters, because an interrupt may come here, too.
        undelivered = range(begin, wanted) if self.session.reorders else ()
        self.offsets.note_resumed(topic_partition, begin, wanted, undelivered)
        self.positions[topic_partition] = begin
        if begin < taken:
            self.drop({topic_partition})
        self.session.revoke([topic_partition])
        self.commands.append(Seek(topic_partition, begin))

    def store_position(self, topic_partition: TopicPartitionKey) -> None:
        """Store the position up to which a partition was given."""
        self._store(self.offsets.offset_to_store(topic_partition, self.positions[topic_partition]))


def new_backoff() -> Backoff:
    """Return the pauses between attempts at a record that is held back."""
    return Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)


class _Attempts:
    """The attempts at one record: the pauses between them, and when the latest pause ends."""

    __slots__ = ("backoff", "due", "offset")

    def __init__(self, offset: int | None) -> None:
        self.offset: Final = offset
        self.backoff: Final = new_backoff()
        self.due: float = 0.0


class Retries:
    """Say when a record that is held back is tried again, and for how long it has stopped the stream."""

    __slots__ = ("_attempts", "_clock", "_counted_until", "held_s", "until")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.until: float = 0.0
        """When the record that stops the stream may be tried again; 0 without such a record."""
        self.held_s: float = 0.0
        """For how long the stream was stopped; pending slices do not expire during that time."""
        self._counted_until = 0.0  # 0 while nothing is held back
        self._attempts: dict[TopicPartitionKey, _Attempts] = {}
        """The attempts at the record that stops each partition."""

    def is_due(self, entry: Entry) -> bool:
        """Return whether an entry may be tried again."""
        known = self._attempts.get(entry.topic_partition)
        if known is None or known.offset != entry.offset or self._clock() >= known.due:
            return True
        self.until = known.due
        return False

    def were_for_another(self, entry: Entry) -> bool:
        """Return whether another record of the partition was held back after this entry's last attempt."""
        known = self._attempts.get(entry.topic_partition)
        return entry.original is not None and known is not None and known.offset not in {None, entry.offset}

    def begin(self, entry: Entry) -> _Attempts:
        """Note that an entry is tried again now."""
        known = self._attempts.get(entry.topic_partition)
        if known is None or known.offset != entry.offset:
            known = self._attempts[entry.topic_partition] = _Attempts(entry.offset)
        return known

    def postpone(self, entry: Entry) -> None:
        """Begin a pause before the next attempt; it grows with each attempt."""
        now, known = self._clock(), self.begin(entry)
        known.due = now + known.backoff.next_s()
        self.count(now)
        self._counted_until = self._counted_until or now

    def forget(self, topic_partitions: Iterable[TopicPartitionKey]) -> None:
        """Forget partitions that have gone, so that the first pause is short if they come back."""
        for topic_partition in topic_partitions:
            self._attempts.pop(topic_partition, None)

    def count(self, now: float, *, holds: bool = False) -> None:
        """Add up the time for which the stream was stopped; ``holds`` says that a partition is paused now."""
        if self._counted_until:
            self.held_s += now - self._counted_until
            self._counted_until = now if self.until else 0.0
        if holds:
            self._counted_until = now


def wire_partition(message: Message) -> TopicPartitionKey:
    """Return the partition of a message, on the topic of the wire."""
    return wire_topic_and_local(message)[0], message.partition() or 0


def _partition_of(command: Pause | Seek | Store | CommitRefused) -> TopicPartitionKey:
    return (
        command.topic_partition if isinstance(command, Pause | Seek) else topic_partition_of(command.offset)
    )


def _is_made_of(last: Record | None, record: Record) -> bool:
    """Return whether the refused record was made of this one record of the wire alone."""
    if last is None:
        return False
    kept = (last.local or {}).get(ORIGINAL)
    return last == record if kept is None else kept is record


def _size_of(message: Message | None) -> int:
    value: object = None if message is None else message.value()
    return len(value) if isinstance(value, bytes) else 0


def _listed(outcome: Any) -> Any:
    """Return the records of an outcome as a list, or the error of records that are made only here."""
    if outcome is DROP or isinstance(outcome, HeaderwareError | PendingDeadLetter):
        return outcome
    try:
        return [outcome] if isinstance(outcome, Record) else list(outcome)
    except HeaderwareError as error:
        return error


def _extra(record: Record, topic_partition: TopicPartitionKey | None = None) -> Entry:
    """Return the entry of a record that the chain made; it moves no offset."""
    return Entry(
        topic_partition or (record.topic, record.partition or 0),
        offset=record.offset,
        message=message_of(record, None if topic_partition is None else topic_partition[0]),
    )
