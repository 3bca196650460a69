"""The inbox of a consumer: how what the chain gave goes to the application, one refusal at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import confluent_kafka
from confluent_kafka import KafkaException, Message

from headerware.clients.consumer_partitions import PartitionsConsumer
from headerware.clients.inbox import Entry
from headerware.clients.messages import message_of, record_of
from headerware.clients.offsets import Place, place_of, positioned
from headerware.clients.serde_errors import as_client_error
from headerware.core.errors import HeaderwareError
from headerware.core.record import Record
from headerware.core.verified import LOCAL, Verified

_C: Final[Any] = confluent_kafka.Consumer
_c_poll = _C.poll


class InboxConsumer(PartitionsConsumer):
    """A consumer that hands out its inbox in order, and tells what interceptors know of a message."""

    _take_in: Callable[[Record], Any]
    _repeated: int

    def _drain(self, limit: int, messages: list[Message]) -> list[Message]:
        """Add messages of the inbox, up to a refused record; raise that only if there are none before it."""
        passed: dict[Place, tuple[int, int | None]] = {}
        refused: HeaderwareError | None = None
        while len(messages) < limit and refused is None:
            entry = self._inbox.pop(self._paused)
            if entry is None:
                break
            if entry.error is not None and not self._was_delivered(entry):
                if entry.raised and self._retried(entry):
                    continue
                if messages or entry.blocked:
                    self._inbox.put_back(entry)
                    if messages:
                        break
                    entry.raised = True
                refused = entry.error
                if entry.blocked:
                    self._stay_in_the_group()
                    break
            elif entry.message is not None and not self._was_delivered(entry):
                messages.append(entry.message)
            if entry.position is not None:
                passed[entry.place] = entry.position, entry.leader_epoch
        if passed and self._stores:
            self._pass(passed)
        if refused is not None:
            messages.append(self._refuse(refused))
        return messages

    def _refuse(self, error: HeaderwareError) -> Message:
        """Answer for a refused record; a client whose application does not know of us gives a message."""
        record = getattr(error, "last_record", None)
        raise as_client_error(error, "consume", None if record is None else message_of(record))

    def _stay_in_the_group(self) -> None:
        """Poll with all partitions paused, so that an outage of dead letters costs no membership."""
        going = [partition for partition in _C.assignment(self) if place_of(partition) not in self._paused]
        _C.pause(self, going)
        try:
            event: Message | None = _c_poll(self, 0)
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
            self._inbox.put_back(entry)
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
        found: Verified | None = self.local(message).get(LOCAL)
        return found
