"""Units: a record, or all slices of a message, which a worker decides about as one.

This module gathers the slices of messages for all workers, in bounded memory. A message is complete when each
of its slices has come, in any order. A slice that does not fit is a unit of its own, about which the worker
decides: a repeated slice, or a slice whose header contradicts the header of the first slice that came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from headerware.core.bounded_cache import BoundedCache
from headerware.core.errors import HeaderError, WireFormatError
from headerware.core.record import Record, bytes_of
from headerware.interceptors.slice.header import SLICE_HEADER, SliceHeader
from headerware.kafka.messages import is_readable
from headerware.registry.names import named_headers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from headerware.core.services import TopicPartitionKey

MAX_REMEMBERED: Final = 500_000
"""How many messages in slices, and slices of incomplete messages, are remembered; they take some 200 MiB."""
Problem = Literal["unreadable", "repeated", "stray", "gone", "incomplete"]
"""The reason why a unit is not what its headers say."""
_MAX_RECORDS: Final = 100_000
_MAX_BYTES: Final = 64 << 20


def slice_header_of(record: Record) -> SliceHeader | None:
    """Return the slice header of a record on the wire; None if it has none, or an invalid one."""
    if not is_readable(record):
        return None
    try:
        value = named_headers(record).last(SLICE_HEADER)
        return None if value is None else SliceHeader.decode(value)
    except (WireFormatError, HeaderError):
        return None


class Room:
    """The memory that is left for messages in slices, in all partitions together.

    Args:
        entries: how many messages, and slices of incomplete messages, may be remembered.
    """

    __slots__ = ("left",)

    def __init__(self, entries: int = MAX_REMEMBERED) -> None:
        self.left: int = entries

    def take(self) -> bool:
        """Take an entry, if there is one."""
        if self.left <= 0:
            return False
        self.left -= 1
        return True


class SlicedMessage:
    """A message in slices: the slices that have come, and their offsets.

    Args:
        part: the header of the first slice that came.
        offset: the offset of that slice; :meth:`add` is called for it, too.
        room: has an entry for each slice except the first and the last that come; the caller has taken an
            entry for the message before.
    """

    __slots__ = ("_room", "count", "first", "is_complete", "last", "offsets", "part")

    def __init__(self, part: SliceHeader, offset: int, room: Room) -> None:
        self._room: Final = room
        self.part: Final = part
        self.first: Final = offset
        self.last: int = offset
        self.count: int = 0
        """How many slices have come, repeated slices included."""
        self.offsets: dict[int, int] = {}
        """The offsets of the slices by their indexes; empty again once it is complete."""
        self.is_complete: bool = False
        """Whether all slices have come."""

    def add(self, part: SliceHeader, offset: int) -> bool:
        """Add a slice; return False if it has come before, or if there is no room to remember it."""
        self.count += 1
        self.last = offset
        if self.is_complete or part.index in self.offsets:
            return False
        is_last = len(self.offsets) + 1 == self.part.count
        if self.offsets and not is_last and not self._room.take():
            return False
        self.offsets[part.index] = offset
        self.is_complete = is_last
        return True

    def take_offsets(self) -> list[int]:
        """Return the offsets of the slices in the order of their indexes, and forget them."""
        offsets, self.offsets = self.offsets, {}
        self._room.left += max(0, len(offsets) - 1 - self.is_complete)
        return [offsets[index] for index in sorted(offsets)]

    def forget(self) -> None:
        """Give back the entries of the slices, and the entry of the message itself."""
        self.take_offsets()
        self._room.left += 1


class Unit(NamedTuple):
    """A record, or all slices of a message in the order of their indexes.

    Args:
        records: the records as on the wire.
        problem: None; ``unreadable`` for a record whose headers cannot be read; ``repeated`` for a slice that
            has come before; ``stray`` for a slice that does not fit its message; ``gone`` for a message of
            which the topic no longer has all slices; ``incomplete`` for the slices of a message that is given
            up.
        offsets: the offsets of the unit, also of records that are gone.
    """

    records: tuple[Record, ...]
    offsets: tuple[int, ...]
    problem: Problem | None = None

    @property
    def topic_partition(self) -> TopicPartitionKey:
        """The partition of the unit."""
        last = self.records[-1]
        return last.topic, last.partition or 0


class Units:
    """Make units of records; for one caller at a time.

    The slices of a message are kept in memory up to a bound; other slices are fetched again when the message
    is complete.

    Args:
        fetch: returns a record that was read before, by its position; None if it is gone.
        part_of: returns the slice header of a record; None if the record is not a slice.
        max_remembered: how many messages, and slices of incomplete messages, are remembered. For one more,
            the message that came first is forgotten.
        max_bytes: the size of the slices that are kept in memory.
    """

    def __init__(
        self,
        fetch: Callable[[str, int, int], Record | None],
        *,
        part_of: Callable[[Record], SliceHeader | None] = slice_header_of,
        max_remembered: int = MAX_REMEMBERED,
        max_bytes: int = _MAX_BYTES,
    ) -> None:
        self._fetch: Final = fetch
        self._part_of: Final = part_of
        self._room: Final = Room(max_remembered)
        self._messages: Final[dict[tuple[str, int, bytes], SlicedMessage]] = {}
        self._kept: Final[BoundedCache[tuple[str, int, int], Record]] = BoundedCache(
            _MAX_RECORDS, max_cost=max_bytes, cost=lambda _, record: bytes_of(record)
        )

    def add(self, record: Record) -> Unit | None:
        """Return the unit that a record makes complete; None if its message lacks other slices."""
        part, offset = self._part_of(record), record.offset or 0
        if part is None:
            return Unit((record,), (offset,), None if is_readable(record) else "unreadable")
        of = record.topic, record.partition or 0, part.message_id
        message = self._messages.get(of)
        if message is None:
            self._make_room()
            message = self._messages[of] = SlicedMessage(part, offset, self._room)
        elif not self._room.left:
            self._make_room(of)
        if not message.part.same_message(part):
            return Unit((record,), (offset,), "stray")
        is_repeated = part.index in message.offsets
        if not message.add(part, offset):
            return Unit((record,), (offset,), "repeated" if is_repeated else "stray")
        self._kept[of[0], of[1], offset] = record
        return self._taken(of, record) if message.is_complete else None

    def _taken(self, of: tuple[str, int, bytes], last: Record | None = None) -> Unit:
        """Forget a message, and return its slices; the last one need not be fetched."""
        message = self._messages.pop(of)
        offsets = tuple(message.take_offsets())
        message.forget()
        known = {} if last is None else {last.offset: last}
        places = [(of[0], of[1], offset) for offset in offsets]
        found = [known.get(at[2]) or self._kept.get(at) or self._fetch(*at) for at in places]
        records = tuple(each for each in found if each is not None)
        return Unit(records, offsets, None if len(records) == len(offsets) else "gone")

    def give_up(
        self,
        count: int | None = None,
        *,
        lost: Callable[[TopicPartitionKey, int], object] = lambda *_: None,
    ) -> Iterator[Unit]:
        """Forget the first ``count`` messages, or all, and yield the slices of each that still exist.

        ``lost`` is told the offset of each slice of a message that has no slices any more.
        """
        for of in [*self._messages][:count]:
            unit = self._taken(of)
            if unit.records:
                yield unit._replace(problem="incomplete")
                continue
            for offset in unit.offsets:
                lost((of[0], of[1]), offset)

    def _make_room(self, but: tuple[str, int, bytes] | None = None) -> None:
        """Take an entry for a new message, or make room for one more slice of the message ``but``."""
        while not self._room.take():
            oldest = next((of for of in self._messages if of != but), None)
            if oldest is None:
                return
            self._messages.pop(oldest).forget()
        self._room.left += but is not None

    def forget(self, keys: Iterable[TopicPartitionKey]) -> None:
        """Forget the messages of partitions that others may have now."""
        gone = set(keys)
        for of in [of for of in self._messages if of[:2] in gone]:
            self._messages.pop(of).forget()

    def __len__(self) -> int:
        """Count the messages that lack slices."""
        return len(self._messages)

    def incomplete(self) -> dict[TopicPartitionKey, list[SlicedMessage]]:
        """Return the messages that lack slices, by partition."""
        found: dict[TopicPartitionKey, list[SlicedMessage]] = {}
        for (topic, partition, _), message in self._messages.items():
            found.setdefault((topic, partition), []).append(message)
        return found
