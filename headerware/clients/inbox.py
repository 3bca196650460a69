"""The inbox of a consumer: in order, the outcomes of the chain that the application has not got yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, Final

from headerware.clients.messages import message_of, updated_message
from headerware.core.errors import HeaderwareError, HeldBackError
from headerware.core.hooks import DROP
from headerware.core.record import ORIGINAL, Record
from headerware.core.services import TopicPartitionKey

if TYPE_CHECKING:
    from confluent_kafka import Message


class Entry:
    """An entry of the inbox: a message, an error, or only an offset that has been passed.

    ``offset`` is that of the record that is delivered. ``position`` is where the consumer stands once the
    entry is taken, and ``leader_epoch`` is of that position; None leaves the consumer where it is.
    ``original`` is the record on the wire, if it alone is enough for another attempt. An entry is ``blocked``
    if its dead letter could not be stored, or nobody could judge it; ``raised`` says that the application has
    been told.
    """

    __slots__ = (
        "blocked",
        "error",
        "leader_epoch",
        "message",
        "offset",
        "original",
        "position",
        "raised",
        "record",
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
        record: Record | None = None,
        error: HeaderwareError | None = None,
        original: Record | None = None,
    ) -> None:
        self.topic_partition: Final = topic_partition
        self.offset: Final = offset
        self.position: int | None = position
        self.leader_epoch: int | None = leader_epoch
        self.message: Final = message
        self.record: Final = record
        self.error: HeaderwareError | None = error
        self.original: Final = original
        self.blocked: bool = isinstance(error, HeldBackError)
        self.raised: bool = False


class Inbox:
    """A queue of entries, from which those of paused partitions come later.

    ``consume`` takes one record through the chain, for entries that have to be tried again.

    An entry is always in the queue or in ``leaving``, also if an interrupt comes: CPython looks for signals
    after calls, but not within C nor between two assignments.
    """

    def __init__(self, consume: Callable[[Record], Any]) -> None:
        self.consume: Callable[[Record], Any] = consume
        self._entries: deque[Entry] = deque()
        self.leaving: list[Entry] = []
        """The entries that a call has popped which has not returned yet."""
        self.given: list[Message] = []
        """The messages that a call will return when it has more of them."""

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, message: Message, record: Record, outcome: Any) -> None:
        """Append the outcome of a message."""
        self._entries.extend(list(self._entries_of(message, record, outcome)))

    def add_event(self, message: Message) -> None:
        """Append an error event or the end of a partition, which is delivered as it is."""
        self._entries.append(Entry((message.topic() or "", -1), message=message))

    def add_released(self, outcome: Any) -> None:
        """Put records that the chain released in front, because they are older; they move no offset."""
        outcome = _listed(outcome)
        if isinstance(outcome, HeaderwareError):
            topic = getattr(outcome, "topic", None) or ""
            partition = getattr(outcome, "partition", None)
            topic_partition = (topic, -1 if partition is None else partition)
            released = [Entry(topic_partition, offset=getattr(outcome, "offset", None), error=outcome)]
        else:
            released = [] if outcome is DROP else list(map(_extra, outcome))
        self._entries.extendleft(reversed(released))

    def put_back(self, entry: Entry) -> None:
        """Put the entry that was popped last in front again."""
        if self.leaving:
            self._entries.extendleft(map(list.pop, (self.leaving,)))  # in C, as in pop
        else:
            self._entries.appendleft(entry)

    def restore(self, given: list[Entry]) -> None:
        """Put ``given`` and the entries that were leaving in an interrupted call in front again."""
        self._entries, self.leaving, self.given = deque([*given, *self.leaving, *self._entries]), [], []

    def retry(self, entry: Entry) -> bool:
        """Take a blocked record through the chain again, and return whether that changed anything."""
        assert entry.original is not None  # noqa: S101 - the caller has looked
        outcome = _listed(self.consume(entry.original))
        if isinstance(outcome, HeldBackError):
            entry.error = outcome
            return False
        if isinstance(outcome, HeaderwareError):
            entries = [
                Entry(entry.topic_partition, offset=entry.offset, error=outcome, position=entry.position)
            ]
        else:
            records = [] if outcome is DROP else outcome
            extras = [_extra(record, entry.topic_partition) for record in records]
            entries = [*extras, Entry(entry.topic_partition, position=entry.position)]
        self._entries, self.leaving = deque([*entries, *self._entries]), self.leaving[:-1]
        return True

    def pop(self, paused: Collection[TopicPartitionKey]) -> Entry | None:
        """Take the first entry that may go."""
        if not paused:
            if not self._entries:
                return None
            self.leaving.extend(map(deque.popleft, (self._entries,)))  # in C, from the one to the other
            return self.leaving[-1]
        for index, entry in enumerate(self._entries):
            if entry.topic_partition not in paused:
                others = deque(self._entries)
                del others[index]
                self._entries, self.leaving = others, [*self.leaving, entry]
                return entry
        return None

    def position(self, topic_partition: TopicPartitionKey) -> int | None:
        """Return the position behind the entries of a partition, or None if there are none."""
        own = (entry for entry in reversed(self._entries) if entry.topic_partition == topic_partition)
        return next((entry.position for entry in own if entry.position is not None), None)

    def first_offset(self, topic_partition: TopicPartitionKey) -> int | None:
        """Return the smallest offset of a partition's entries, or None if there are none."""
        lowest: int | None = None
        for entry in self._entries:
            if entry.topic_partition != topic_partition:
                continue
            offset = entry.offset
            if offset is None and entry.position is not None:
                offset = entry.position - 1
            if offset is not None:
                lowest = offset if lowest is None else min(lowest, offset)
            if entry.position is not None:
                break  # the following entries came later
        return lowest

    def clear(self) -> None:
        """Forget everything."""
        self.restore([])
        self._entries.clear()

    def drop(self, topic_partitions: Collection[TopicPartitionKey]) -> None:
        """Forget the entries of partitions that have gone."""
        self._entries = deque(
            entry for entry in self._entries if entry.topic_partition not in topic_partitions
        )

    def _entries_of(self, message: Message, record: Record, outcome: Any) -> Iterable[Entry]:
        topic_partition, position = (record.topic, record.partition or 0), (record.offset or 0) + 1
        if isinstance(outcome, Record):
            yield Entry(
                topic_partition,
                offset=outcome.offset,
                position=position,
                leader_epoch=record.leader_epoch,
                message=updated_message(message, record, outcome),
                record=outcome,
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
        # A reassembled message is not the record that came last; that record alone would not make it again.
        alone = isinstance(error, HeldBackError) and _is_made_of(error.last_record, record)
        yield Entry(
            topic_partition,
            offset=record.offset,
            position=position,
            leader_epoch=record.leader_epoch,
            error=error,
            original=record if alone else None,
        )


def _is_made_of(last: Record | None, record: Record) -> bool:
    """Return whether the record that was refused is the one of the wire, and no other."""
    if last is None:
        return False
    kept = (last.local or {}).get(ORIGINAL)
    return last == record if kept is None else kept is record


def _listed(outcome: Any) -> Any:
    """Return the records of an outcome as a list; records that are split lazily fail only here."""
    if outcome is DROP or isinstance(outcome, HeaderwareError):
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
        record=record,
    )
