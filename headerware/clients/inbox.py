"""The inbox of a consumer: what the chain gave and the application has not taken yet, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, Final

from headerware.clients.messages import fitted, message_of
from headerware.clients.offsets import Place
from headerware.core.errors import DeadLetterError, HeaderwareError
from headerware.core.hooks import DROP
from headerware.core.record import Record

if TYPE_CHECKING:
    from confluent_kafka import Message


class Entry:
    """One step of the consumer: a message, an error, or only an offset that has been passed.

    Args:
        place: topic and partition on the wire.
        offset: of the record that is delivered, or None.
        position: where the consumer stands once the entry is taken; None leaves it where it is.
        leader_epoch: of the position, or None.
        message: what to deliver, or None.
        record: the record behind the message.
        error: what to raise, or None.
        again: tries once more what could not be stored as a dead letter. ``raised`` says that the
            application knows.
    """

    __slots__ = (
        "again",
        "error",
        "leader_epoch",
        "message",
        "offset",
        "place",
        "position",
        "raised",
        "record",
    )

    def __init__(
        self,
        place: Place,
        *,
        offset: int | None = None,
        position: int | None = None,
        leader_epoch: int | None = None,
        message: Message | None = None,
        record: Record | None = None,
        error: HeaderwareError | None = None,
        again: Callable[[], Any] | None = None,
    ) -> None:
        self.place = place
        self.offset = offset
        self.position = position
        self.leader_epoch = leader_epoch
        self.message = message
        self.record = record
        self.error = error
        self.again = again
        self.raised = False


class Inbox:
    """Queue entries, and give them in order, those of paused partitions later.

    Args:
        consume: takes one record through the chain, for what has to be tried again.
    """

    def __init__(self, consume: Callable[[Record], Any]) -> None:
        self._consume: Final = consume
        self._entries: deque[Entry] = deque()

    def __len__(self) -> int:
        """Count the entries."""
        return len(self._entries)

    def add(self, message: Message, record: Record, outcome: Any) -> None:
        """Append what became of a message."""
        self._entries.extend(self._entries_of(message, record, outcome))

    def add_event(self, message: Message) -> None:
        """Append an error or the end of a partition, which goes to the application as it is."""
        self._entries.append(Entry((message.topic() or "", -1), message=message))

    def add_released(self, outcome: Any) -> None:
        """Append what the chain gave of its own accord; it moves no offset."""
        if isinstance(outcome, HeaderwareError):
            topic = getattr(outcome, "topic", None) or ""
            partition = getattr(outcome, "partition", None)
            again = _again(outcome, None, self._consume)
            place = (topic, -1 if partition is None else partition)
            self._entries.append(Entry(place, error=outcome, again=again))
        elif outcome is not DROP:
            for record in [outcome] if isinstance(outcome, Record) else outcome:
                self._entries.append(_extra(record))

    def put_back(self, entry: Entry) -> None:
        """Put an entry in front again."""
        self._entries.appendleft(entry)

    def retried(self, entry: Entry) -> bool:
        """Try a dead letter again, and whether that changed anything."""
        assert entry.again is not None  # noqa: S101 - the caller has looked
        outcome = entry.again()
        if isinstance(outcome, DeadLetterError):
            entry.error = outcome
            return False
        if isinstance(outcome, HeaderwareError):
            entries = [Entry(entry.place, error=outcome, position=entry.position)]
        else:
            records = [] if outcome is DROP else [outcome] if isinstance(outcome, Record) else list(outcome)
            entries = [*map(_extra, records), Entry(entry.place, position=entry.position)]
        self._entries.extendleft(reversed(entries))
        return True

    def pop(self, paused: Collection[Place]) -> Entry | None:
        """Take the first entry that may go."""
        if not paused:
            return self._entries.popleft() if self._entries else None
        for index, entry in enumerate(self._entries):
            if entry.place not in paused:
                del self._entries[index]
                return entry
        return None

    def drop(self, places: Collection[Place]) -> None:
        """Forget the entries of partitions that have gone."""
        self._entries = deque(entry for entry in self._entries if entry.place not in places)

    def _entries_of(self, message: Message, record: Record, outcome: Any) -> Iterable[Entry]:
        place, position = (record.topic, record.partition or 0), (record.offset or 0) + 1
        if isinstance(outcome, Record):
            yield Entry(
                place,
                offset=outcome.offset,
                position=position,
                leader_epoch=record.leader_epoch,
                message=fitted(message, record, outcome),
                record=outcome,
            )
            return
        outcome = _listed(outcome)
        if isinstance(outcome, list) and outcome:
            entries = [_extra(extra, place) for extra in outcome]
            # Only the last sibling moves the offset.
            entries[-1].position, entries[-1].leader_epoch = position, record.leader_epoch
            yield from entries
            return
        error = outcome if isinstance(outcome, HeaderwareError) else None
        again = _again(error, record, self._consume)
        yield Entry(
            place,
            offset=record.offset,
            position=position,
            leader_epoch=record.leader_epoch,
            error=error,
            again=again,
        )


def _listed(outcome: Any) -> Any:
    """Make all records of a fan-out; those that are cut lazily fail late."""
    if outcome is DROP or isinstance(outcome, HeaderwareError):
        return outcome
    try:
        return list(outcome)
    except HeaderwareError as error:
        return error


def _extra(record: Record, place: Place | None = None) -> Entry:
    """Make the entry of a record that the chain made; it moves no offset."""
    return Entry(
        place or (record.topic, record.partition or 0),
        offset=record.offset,
        message=message_of(record),
        record=record,
    )


def _again(
    error: HeaderwareError | None, record: Record | None, consume: Callable[[Record], Any]
) -> Callable[[], Any] | None:
    """Give what tries a dead letter again, or None."""
    if not isinstance(error, DeadLetterError):
        return None
    retry: Callable[[], Any] | None = getattr(error, "retry", None)
    original = record if record is not None else error.last_record
    if retry is not None or original is None:
        return retry
    return lambda: consume(original)
