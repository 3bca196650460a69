"""Plan which records of a partition can be removed: its beginning, or keys.

A message in slices counts as one record. It has the lifetime of its first slice, is held if any slice is
held, stays while it is incomplete, and is removed either completely or not at all.

There are three ways to remove records. The beginning of a partition, where all records have expired, is
deleted up to an offset; the broker permits this if ``cleanup.policy`` contains ``delete``. A key of a
compacted topic gets a tombstone if the latest record of the key has expired, no record of the key is held,
and no other partition has a record of the key that stays. All other expired records need a copy, which the
worker of compaction makes.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec

from headerware.ops.retention.keys import digest_of
from headerware.workers.units import Room, SlicedMessage

if TYPE_CHECKING:
    from collections.abc import Collection

    from headerware.interceptors.slice.header import SliceHeader
    from headerware.ops.retention.keys import Keys
    from headerware.ops.retention.rules import RetentionDisposition


class PartitionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What may be deleted at the beginning of a partition.

    Args:
        delete_before: all records before this offset have expired, including all slices of their messages.
        deleted: how many records are before this offset.
        first_kept: the disposition of the first record that stays; None if no record stays.
        first_kept_offset: the offset of that record.
        dispositions: how many records have each disposition.
    """

    delete_before: int
    deleted: int
    first_kept: RetentionDisposition | None
    first_kept_offset: int | None
    dispositions: dict[RetentionDisposition, int]


class _Message(SlicedMessage):
    """A message in slices, and its disposition."""

    __slots__ = ("digest", "digests", "disposition", "singles_before")

    def __init__(self, part: SliceHeader, offset: int, room: Room, singles_before: int) -> None:
        super().__init__(part, offset, room)
        self.singles_before: Final = singles_before
        self.disposition: RetentionDisposition = "incomplete"
        self.digest: bytes | None = None
        self.digests: set[bytes] = set()

    def take(self, part: SliceHeader, offset: int, disposition: RetentionDisposition) -> None:
        """Add a slice; forget the offsets when the message is complete."""
        self.add(part, offset)
        if self.is_complete:
            self.take_offsets()
        if disposition == "held" or self.disposition == "held":
            self.disposition = "held"
        elif not part.same_message(self.part) or self.disposition == "malformed":
            self.disposition = "malformed"
        elif part.index == 0:
            # If two first slices differ, neither is believed.
            self.disposition = disposition if self.disposition in ("incomplete", disposition) else "malformed"

    def add_key(self, digest: bytes) -> bool:
        """Remember the key of a slice; return False if there is no room."""
        if self.digest is None or digest == self.digest:
            self.digest = digest
        elif digest not in self.digests:
            if not self._room.take():
                return False
            self.digests.add(digest)
        return True

    def forget(self) -> None:
        """Give back the room of the keys and of the message."""
        self._room.left += len(self.digests)
        super().forget()

    @property
    def judged(self) -> RetentionDisposition:
        """The disposition by the slices that have come so far."""
        if self.disposition in ("expired", "signed", "stale") and not self.is_complete:
            return "incomplete"
        return self.disposition


class Partition:
    """Plan what can be removed from a partition, from its records in the order of their offsets.

    With ``keys``, all messages in slices are remembered; without, only messages that begin before the first
    record that stays, and incomplete messages. If there is no room for a message, its slices stay, and so do
    the records with their keys.

    Args:
        number: the partition.
        begin: the first offset.
        deletes: whether ``cleanup.policy`` contains ``delete``.
        keys: stores the keys of the topic if ``cleanup.policy`` contains ``compact``; else None.
        room: the room for messages in slices, shared with other partitions.
    """

    def __init__(
        self, number: int, begin: int, *, deletes: bool, keys: Keys | None, room: Room | None = None
    ) -> None:
        self._number: Final = number
        self._begin: Final = begin
        self._deletes: Final = deletes
        self._keys: Final = keys
        self._room: Final = Room() if room is None else room
        self._dispositions: Final[Counter[RetentionDisposition]] = Counter()
        self._first_kept: int | None = None
        self._first_kept_is: RetentionDisposition | None = None
        self._singles = self._singles_before_kept = 0
        self._messages: Final[dict[bytes, _Message]] = {}

    def take(
        self,
        offset: int,
        key: bytes | None,
        disposition: RetentionDisposition,
        part: SliceHeader | None = None,
    ) -> None:
        """Add the next record; ``part`` is its slice header if it is a slice."""
        message: _Message | None = None
        if part is not None:
            message = self._messages.get(part.message_id)
            if message is None and self._room.take():
                message = _Message(part, offset, self._room, self._singles)
                self._messages[part.message_id] = message
            if message is None:
                disposition = "held" if disposition == "held" else "not_remembered"
        if message is not None and part is not None:
            message.take(part, offset, disposition)
            if message.is_complete and self._keys is None and self._is_after_kept(message):
                # The message cannot change the plan any more. A repeated slice will count as another message.
                self._dispositions[message.judged] += message.count
                message.forget()
                del self._messages[part.message_id]
        else:
            self._dispositions[disposition] += 1
            if self._goes(disposition):
                self._singles += 1
            elif self._first_kept is None:
                self._first_kept, self._singles_before_kept, self._first_kept_is = (
                    offset,
                    self._singles,
                    disposition,
                )
        if self._keys is not None and key is not None:
            if part is None:
                self._keys.note(self._number, key, offset, disposition, None)
            elif message is not None and message.add_key(digest_of(key)):
                self._keys.note(self._number, key, offset, disposition, part.message_id)
            else:
                self._keys.note(self._number, key, offset, "held", None)

    @property
    def beginning_is_known(self) -> bool:
        """Whether later records cannot change how much of the beginning can be deleted."""
        first_message = next(iter(self._messages.values()), None)
        return self._first_kept is not None and (
            first_message is None or first_message.first > self._first_kept
        )

    def _is_after_kept(self, message: _Message) -> bool:
        return self._first_kept is not None and self._first_kept < message.first

    def _goes(self, disposition: RetentionDisposition) -> bool:
        """Return whether a record with this disposition can be deleted with the beginning."""
        return disposition == "expired" or (disposition in ("signed", "stale") and self._deletes)

    def plan(self, end: int) -> PartitionPlan:
        """Return the plan after all records up to ``end`` are added; also settle the keys."""
        dispositions = self._dispositions.copy()
        complete: list[_Message] = []
        before, singles, stays, first_kept_offset = end, self._singles, self._first_kept_is, self._first_kept
        if self._first_kept is not None:
            before, singles = self._first_kept, self._singles_before_kept
        for message in self._messages.values():
            dispositions[message.judged] += message.count
            if self._goes(message.judged):
                complete.append(message)
            elif message.first < before:
                before, singles, stays = message.first, message.singles_before, message.judged
                first_kept_offset = message.first
        # A message whose last slice is not deleted stays completely, and so do records after its first slice.
        complete.sort(key=lambda message: message.last, reverse=True)
        for message in complete:
            if message.last < before:
                break
            if message.first < before:
                before, singles = message.first, message.singles_before
        deleted = singles + sum(message.count for message in complete if message.last < before)
        if not self._deletes or before <= self._begin:
            before, deleted = self._begin, 0
        if self._keys is not None:
            self._settle(self._keys)
        return PartitionPlan(
            delete_before=before,
            deleted=deleted,
            first_kept=stays,
            first_kept_offset=first_kept_offset,
            dispositions={disposition: count for disposition, count in dispositions.items() if count},
        )

    def _settle(self, keys: Keys) -> None:
        """Set the dispositions of messages in slices in the keys."""
        for message in self._messages.values():
            if message.judged == "held" and message.digest is not None:
                for digest in (message.digest, *message.digests):
                    keys.hold(self._number, digest)
        for digest, message_id in keys.messages(self._number):
            message = self._messages[message_id]
            keys.settle(
                self._number,
                digest,
                message.judged,
                last=message.last,
                count=message.count,
            )


class Tombstones:
    """Check that each tombstone of a batch comes after all other records of its key.

    The records of the partition are added in their order, including uncommitted and aborted records. If a
    transaction is aborted and written again, the tombstones are written again after the records that came in
    between.

    Args:
        keys: the keys of the batch.
    """

    def __init__(self, keys: Collection[bytes]) -> None:
        self._keys: Final = frozenset(keys)
        self._written: Final[set[bytes]] = set()
        self._after: Final[set[bytes]] = set()
        self._seen: Final[set[bytes]] = set()
        self._newer: Final[set[bytes]] = set()

    def begin(self) -> None:
        """Begin another reading of the stored records."""
        self._seen.clear()

    def see(self, key: bytes, *, own: bool) -> None:
        """Add the next record with a key; ``own`` is True if it is a tombstone of the batch."""
        if key not in self._keys:
            return
        if not own:
            (self._after if key in self._written else self._newer).add(key)
            return
        self._written.add(key)
        self._seen.add(key)
        if key in self._after:
            self._newer.add(key)

    @property
    def complete(self) -> bool:
        """Whether all tombstones were seen since :meth:`begin`."""
        return len(self._seen) == len(self._keys)

    @property
    def safe(self) -> bool:
        """Whether no record that came after the pass is before a tombstone of its key."""
        return not self._newer

    @property
    def renewed(self) -> frozenset[bytes]:
        """The keys that get no tombstone if the batch is aborted, because newer records of them have come."""
        return frozenset(self._newer | self._after)
