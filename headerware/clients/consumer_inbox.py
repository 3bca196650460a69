"""The inbox of a consumer: how what the chain gave goes to the application, one refusal at a time.

A refused record comes alone, never in a list with others. Whoever dies of it has processed what came before
it and has not been given what comes behind it, so the offset behind it may be committed at once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, ClassVar, Final

import confluent_kafka
from confluent_kafka import KafkaException, Message

from headerware.clients.consumer_partitions import PartitionsConsumer
from headerware.clients.inbox import Entry
from headerware.clients.messages import message_of, record_of
from headerware.clients.offsets import Place, place_of, positioned
from headerware.clients.serde_errors import as_client_error, as_message
from headerware.core.errors import HeaderwareError
from headerware.core.record import Record

_C: Final[Any] = confluent_kafka.Consumer
_c_poll = _C.poll
_REMEMBERED: Final = 10_000
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 10.0
_BETWEEN_POLLS_S: Final = 0.1
_log: Final = logging.getLogger("headerware")


class InboxConsumer(PartitionsConsumer):
    """A consumer that hands out its inbox in order, and remembers what messages have no room for."""

    _take_in: Callable[[Record], Any]
    _raises_events: ClassVar[bool] = False
    """Whether ``poll`` raises error events, so that nobody overlooks them."""
    _raises: bool
    _logged: set[tuple[str | None, str]]
    _repeated: int
    _refused: int
    _pauses: dict[Place, tuple[int | None, float, float]]
    _held_until: float
    _next_poll: float

    def _drain(self, limit: int, messages: list[Message]) -> list[Message]:
        """Add messages of the inbox, up to a refused record, or answer for that if none is before it."""
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
                if entry.raised and self._retried(entry):
                    continue
                if entry.position is not None and not entry.blocked:
                    passed[entry.place] = entry.position, entry.leader_epoch
                self._pass(passed)
                return [self._refuse(entry)]
            if entry.message is not None and not self._was_delivered(entry):
                self._remember(entry.place[0], entry.record)
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
        """Whether a dead letter may be tried again; the pause grows with each attempt."""
        offset, _, due = self._pauses.get(entry.place, (None, 0.0, 0.0))
        if not entry.blocked or offset != entry.offset or time.monotonic() >= due:
            return True
        self._held_until = due
        return False

    def _hold(self, entry: Entry) -> None:
        """Keep a record whose dead letter could not be stored."""
        entry.raised = True
        self._inbox.put_back(entry)
        offset, pause, _ = self._pauses.get(entry.place, (None, 0.0, 0.0))
        pause = min(pause * 2, _LONGEST_PAUSE_S) if offset == entry.offset and pause else _FIRST_PAUSE_S
        self._pauses[entry.place] = entry.offset, pause, time.monotonic() + pause
        self._stay_in_the_group(0)

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
        _C.pause(self, going)
        try:
            event: Message | None = _c_poll(self, timeout)
            if event is not None and event.error() is not None:
                self._inbox.add_event(event)
            elif event is not None:
                record = record_of(event)
                self._inbox.add(event, record, self._take_in(record))
        finally:
            # Those that were lost meanwhile, too, for a partition that comes back would still be paused.
            for partition in going:
                with suppress(KafkaException):
                    _C.resume(self, [partition])

    def _retried(self, entry: Entry) -> bool:
        """Try once more to store a dead letter, and tell whether that changed anything."""
        if entry.original is not None:
            return self._inbox.retried(entry)
        if entry.offset is None:
            return False
        try:
            # It was glued from several records, so they are read again.
            PartitionsConsumer.seek(self, positioned(entry.place, entry.offset))
        except KafkaException:
            self._hold(entry)
            raise
        return True

    def _was_delivered(self, entry: Entry) -> bool:
        if entry.offset is None or not self._offsets.was_delivered(entry.place, entry.offset):
            return False
        self._repeated += 1
        return True

    def _remember(self, topic: str, record: Record | None) -> None:
        """Keep what a message has no room for: an interceptor's state, and the topic on the wire."""
        if record is None or not (record.local or record.topic != topic):
            return
        self._remembered[record.topic, record.partition or 0, record.offset or 0] = topic, record.local
        if len(self._remembered) > _REMEMBERED:
            self._remembered.popitem(last=False)

    def local(self, message: Message) -> Mapping[str, Any]:
        """Give the interceptors' state of a message that was delivered, by interceptor; empty where none is.

        The last 10,000 messages that have any are remembered.
        """
        return self._found(message)[1] or {}
