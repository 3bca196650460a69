"""The inbox of a consumer: how what the chain gave goes to the application, one refusal at a time.

A refused record comes alone, never in a list with others. Whoever dies of it has processed what came before
it and has not been given what comes behind it, so the offset behind it may be committed at once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import get_ident
from types import CodeType, FrameType
from typing import Any, ClassVar, Final

import confluent_kafka
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    KafkaException,
    Message,
    TopicPartition,
)

from headerware.clients.calls import is_under_way
from headerware.clients.consumer_partitions import PartitionsConsumer
from headerware.clients.inbox import Entry
from headerware.clients.messages import message_of, record_of
from headerware.clients.offsets import Place, place_of, positioned
from headerware.clients.serde_errors import as_client_error, as_message
from headerware.core.errors import HeaderwareError
from headerware.core.record import VERIFIED, Record, Verified

_C: Final[Any] = confluent_kafka.Consumer
_c_poll = _C.poll
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 10.0
_BETWEEN_POLLS_S: Final = 0.1
_log: Final = logging.getLogger("headerware")
_COMMITTED_TIMEOUT_S: Final = 5.0


class InboxConsumer(PartitionsConsumer):
    """A consumer that hands out its inbox in order, and tells what interceptors know of a message."""

    _CALLS: ClassVar[frozenset[CodeType]] = frozenset()
    """The methods that take records from the wire to the application."""
    _take_in: Callable[[Record], Any]
    _raises_events: ClassVar[bool] = False
    """Whether ``poll`` raises error events, so that nobody overlooks them."""
    _raises: bool
    _logged: set[tuple[str | None, str]]
    _repeated: int
    _refused: int
    _pauses: dict[Place, tuple[int | None, float, float]]
    _held_until: float
    _held_at: float
    """Up to when the time of standing still has been counted; 0 while nothing is held back."""
    _held_s: float
    """How long nothing could come, so that what waits for more of its message has not waited in vain."""
    _next_poll: float

    _silenced: list[TopicPartition]
    """Partitions that are paused for the moment of a poll."""
    _batches: list[list[Message]] | None = None
    """What a ``consume`` got from the wire, and none of it where C raised; None in a ``poll``."""
    _careful: bool = False
    """Whether the last batch was thrown away."""
    _begins_first: bool
    """Whether a partition without a committed offset is read from its beginning."""

    def _drain(self, limit: int, messages: list[Message]) -> list[Message]:
        """Add messages of the inbox, up to a refused record, or answer for that if none is before it."""
        messages = [*messages]
        passed: dict[Place, tuple[int, int | None]] = {}
        self._held_until = 0.0
        while len(messages) < limit:
            entry = self._inbox.pop(self._paused)
            if entry is None:
                break
            if entry.error is not None and not self._was_delivered(entry):
                if messages or not self._is_due(entry):
                    self._inbox.put_back(entry)
                    break
                if (entry.raised or self._has_waited(entry)) and self._retried(entry):
                    continue
                if entry.position is not None and not entry.blocked:
                    passed[entry.place] = entry.position, entry.leader_epoch
                self._pass(passed)
                return [self._refuse(entry)]
            if entry.message is not None and not self._was_delivered(entry):
                messages.append(entry.message)
            if entry.position is not None:
                passed[entry.place] = entry.position, entry.leader_epoch
        self._pass(passed)
        return messages

    def _refuse(self, entry: Entry) -> Message:
        """Answer for a refused record: raise, or give a message where the application does not know of us."""
        error = entry.error
        assert error is not None  # noqa: S101 - the caller has looked
        if entry.blocked:
            self._hold(entry)
        else:
            self._refused += 1
            self._pass_refused(entry)
        if self._raises:
            raise self._raisable(error)
        cause = getattr(error, "step", None), type(error.__cause__ or error).__name__
        if cause not in self._logged and not self._raises_events:
            self._logged.add(cause)
            # Its text, for a handler may keep what it is given, and the error knows the record.
            _log.warning("%s (refused; further ones of this kind are only counted)", str(error))
        return as_message(error, entry.place, entry.offset)

    def _raisable(self, error: HeaderwareError) -> HeaderwareError:
        record = getattr(error, "last_record", None)
        return as_client_error(error, "consume", None if record is None else message_of(record))

    def _pass_refused(self, entry: Entry) -> None:
        """Bring the offset behind a refused record to the broker."""
        if not self._stores:
            return
        if entry.position is not None:
            self._note_refused(self._offsets.safe(entry.place, entry.position, None, entry.leader_epoch))
            return
        # Slices that were given up hold nothing back any more.
        for safe in self._offsets.refreshed():
            self._store_offset(safe)
            if place_of(safe) == entry.place:
                self._note_refused(safe)

    # Dead letters that cannot be stored

    def _is_due(self, entry: Entry) -> bool:
        """Return whether a dead letter may be tried again; the pause grows with each attempt."""
        offset, _, due = self._pauses.get(entry.place, (None, 0.0, 0.0))
        if not entry.blocked or offset != entry.offset or time.monotonic() >= due:
            return True
        self._held_until = due
        return False

    def _has_waited(self, entry: Entry) -> bool:
        """Return whether a blocked record was last tried before another of its partition held it up."""
        offset, _, _ = self._pauses.get(entry.place, (None, 0.0, 0.0))
        return entry.blocked and entry.original is not None and offset not in {None, entry.offset}

    def _hold(self, entry: Entry) -> None:
        """Keep a record whose dead letter could not be stored."""
        entry.raised = True
        self._inbox.put_back(entry)
        offset, pause, _ = self._pauses.get(entry.place, (None, 0.0, 0.0))
        pause = min(pause * 2, _LONGEST_PAUSE_S) if offset == entry.offset and pause else _FIRST_PAUSE_S
        self._pauses[entry.place] = entry.offset, pause, time.monotonic() + pause
        self._count_held(time.monotonic())
        self._held_at = self._held_at or time.monotonic()
        self._stay_in_the_group(0)

    def _count_held(self, now: float) -> None:
        """Add up how long the stream has stood still."""
        if self._held_at:
            self._held_s += now - self._held_at
            self._held_at = now if self._held_until else 0.0

    def _waits_for_a_letter(self, left: float) -> bool:
        """Wait until a dead letter may be tried again; False if none holds the stream."""
        waits = self._held_until - time.monotonic() if self._inbox else 0.0
        if waits <= 0:
            return False
        self._stay_in_the_group(min(waits, left) if left >= 0 else waits)
        return True

    def _stay_in_the_group(self, timeout: float) -> None:
        """Poll with all partitions paused, so that an outage of dead letters costs no membership."""
        now = time.monotonic()
        if not timeout and now < self._next_poll:
            return
        self._next_poll = now + _BETWEEN_POLLS_S
        going = [partition for partition in _C.assignment(self) if place_of(partition) not in self._paused]
        self._silenced = going
        _C.pause(self, going)
        try:
            event: Message | None = _c_poll(self, timeout)
            if event is not None and event.error() is not None:
                self._inbox.add_event(event)
            elif event is not None:
                record = record_of(event)
                self._queue(event, record, self._take_in(record))
        finally:
            self._resume_silenced()

    def _resume_silenced(self) -> None:
        # Those that were lost meanwhile, too, for a partition that comes back would still be paused.
        for partition in self._silenced:
            if place_of(partition) in self._paused:
                continue  # by a callback, or after an interrupt
            with suppress(KafkaException):
                _C.resume(self, [partition])
        self._silenced = []

    def _queue(self, message: Message, record: Record, outcome: Any) -> None:
        """Put what became of a message into the inbox."""
        self._inbox.add(message, record, outcome)
        self._next[record.topic, record.partition or 0] = (record.offset or 0) + 1

    def _go_back(self, caller: FrameType | None) -> None:
        """Take up what an interrupt, or a callback that raised, left between wire and application.

        The wire's position says what confluent-kafka has given out; ours says what has arrived, and what
        lies between is read again. Where a callback raises in ``consume``, confluent-kafka throws a batch
        away, at times with a record more than its position says.

        Args:
            caller: the frame from which on no call of this consumer may be under way, such as one that has
                called a callback which now commits.
        """
        if self._taking != get_ident() or is_under_way(self, self._CALLS, caller):
            return
        self._resume_silenced()
        self._inbox.restore(self._given_again())
        positions = {place_of(found): found.offset for found in _C.position(self, _C.assignment(self))}
        gone = [TopicPartition(*place) for place in self._next if place not in positions]
        self._leave(gone, commit=False)
        threw_away = self._careful = self._batches == []
        for place, position in positions.items():
            if place not in self._next:  # its callback was interrupted
                self._arrive([TopicPartition(*place)])
            taken = self._next[place] = max(self._next[place], self._inbox.position(place) or OFFSET_INVALID)
            if taken < 0:
                taken = self._first_taken(place, taken, position, threw_away=threw_away)
            if taken != OFFSET_INVALID and (taken < position or threw_away):
                self._read_again(place, taken)
            if taken >= 0 and self._stores:
                self._store_offset(self._offsets.stored(place, self._next[place]))
        self._taking = 0

    def _given_again(self) -> list[Entry]:
        """Return entries for what was to be given; each moves the offset, unless more of it comes later."""
        entries: list[Entry] = []
        lowest: dict[Place, int] = {}
        for message in reversed(self._inbox.given):
            place, offset = place_of(self._behind(message)), message.offset()
            entry = Entry(place, offset=offset, message=message)
            if offset is not None and 0 <= offset < lowest.get(place, offset + 1):
                entry.position, lowest[place] = offset + 1, offset
            entries.append(entry)
        return entries[::-1]

    def _first_taken(self, place: Place, began: int, position: int, *, threw_away: bool) -> int:
        """Return where to read a partition again of which nothing has arrived, if anything came."""
        messages = [message for batch in self._batches or () for message in batch if _is_at(message, place)]
        if messages:
            return min(message.offset() or 0 for message in messages)
        if threw_away and began == OFFSET_BEGINNING:
            return began
        if threw_away and began != OFFSET_END and self._begins_first:
            with suppress(KafkaException):  # it cannot be asked just now
                committed: int = _C.committed(self, [TopicPartition(*place)], _COMMITTED_TIMEOUT_S)[0].offset
                return committed if committed >= 0 else OFFSET_BEGINNING
        return OFFSET_INVALID if position < 0 else position - 1

    def _read_again(self, place: Place, taken: int) -> None:
        """Go back to an offset, and to the first slice of a message that was not whole there."""
        begin = wanted = taken
        if self._offsets.gathers and taken >= 0:
            begin = min(self._offsets.held(place, taken), self._session.safe_offset(*place, taken))
            waiting = self._inbox.first_offset(place)
            wanted = taken if waiting is None or begin == taken else min(taken, waiting)
        # In this order, for this may be interrupted, too.
        self._offsets.resumed(place, begin, wanted)
        self._next[place] = begin
        if begin < taken:
            self._inbox.drop({place})
        self._session.revoke([place])
        with suppress(KafkaException):  # it has gone meanwhile
            _C.seek(self, positioned(place, begin))

    def _retried(self, entry: Entry) -> bool:
        """Try once more to store a dead letter, and tell whether that changed anything."""
        if entry.original is not None:
            return self._inbox.retried(entry)
        if entry.offset is None:
            return False
        try:
            # It was glued from several records, so they are read again.
            PartitionsConsumer.seek(self, positioned(entry.place, entry.offset))
            self._inbox.leaving = self._inbox.leaving[:-1]
        except KafkaException:
            self._hold(entry)
            raise
        return True

    def _was_delivered(self, entry: Entry) -> bool:
        if entry.offset is None or not self._offsets.was_delivered(entry.place, entry.offset):
            return False
        self._repeated += 1
        return True

    def local(self, message: Message) -> Mapping[str, Any]:
        """Return the interceptors' state of a message that was delivered, by interceptor; empty if none is.

        It is there as long as the message is, and as the message keeps the headers that it came with.
        """
        return (self._found(message)[1] or {}) if self._chained else {}

    def verified(self, message: Message) -> Verified | None:
        """Return what was verified of a message that was delivered; None if nobody vouches for it.

        It is there as long as the message is, and as the message keeps the headers that it came with.
        """
        found: Verified | None = self.local(message).get(VERIFIED)
        return found


def _is_at(message: Message, place: Place) -> bool:
    return message.error() is None and (message.topic(), message.partition()) == place
