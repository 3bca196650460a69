"""What may be removed of a partition by the fates of its records: its beginning, or keys by tombstones.

A message in slices is one record: it has the lifetime of its first slice, is held if any slice is, stays
while it is not whole, and is removed whole or not at all.

Kafka removes records in three ways. The beginning of a partition, where all has expired, is deleted up to an
offset; the broker permits that where ``cleanup.policy`` has ``delete``. The key of a compacted topic gets a
tombstone, if its latest record has expired, none of its records is held, and no other partition has a record
of it that stays. All else takes a copy, which the worker of compaction makes.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec

from headerware.ops.retention.keys import digest_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from headerware.interceptors.slice.header import SliceHeader
    from headerware.ops.retention.keys import Keys
    from headerware.ops.retention.rules import Fate

MAX_REMEMBERED: Final = 500_000
"""Messages in slices that a pass remembers, which take some 200 MiB."""


class PartitionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What may be deleted at the beginning of a partition.

    Args:
        delete_before: all that stands before this offset has expired, messages in slices whole.
        deleted: how many records that are.
        stays: what the first record that stays is; None if none does.
        stays_at: its offset.
        fates: how many records there are of each fate.
    """

    delete_before: int
    deleted: int
    stays: Fate | None
    stays_at: int | None
    fates: dict[Fate, int]


class Room:
    """How much a pass may still remember of messages in slices, in all partitions.

    Args:
        entries: messages, and slices that have come out of their order.
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


class _Message:
    """A message in slices, as far as it was seen."""

    __slots__ = (
        "apart",
        "begin",
        "count",
        "digest",
        "digests",
        "end",
        "fate",
        "first",
        "last",
        "part",
        "room",
        "singles_before",
    )

    def __init__(self, part: SliceHeader, first: int, singles_before: int, room: Room) -> None:
        self.part = part
        self.first = self.last = first
        self.singles_before = singles_before
        self.room = room
        self.fate: Fate = "not_whole"
        self.count = 0
        self.begin = self.end = part.index
        """Which slices have come in a row."""
        self.apart: set[int] | None = None
        """Which others have come."""
        self.digest: bytes | None = None
        self.digests: set[bytes] | None = None

    def add(self, offset: int, fate: Fate, part: SliceHeader) -> None:
        """Add a slice."""
        self.count += 1
        self.last = offset
        self._add_number(part.index)
        if fate == "held" or self.fate == "held":
            self.fate = "held"
        elif not part.same_message(self.part) or self.fate == "malformed":
            self.fate = "malformed"
        elif part.index == 0:
            # Two first slices that say different things are believed neither.
            self.fate = fate if self.fate in ("not_whole", fate) else "malformed"

    def _add_number(self, number: int) -> None:
        apart = self.apart
        if number == self.end:
            self.end += 1
        elif number == self.begin - 1:
            self.begin -= 1
        elif not self.begin <= number < self.end and (apart is None or number not in apart):
            if self.room.take():  # else it is never whole, and stays
                self.apart = set() if apart is None else apart
                self.apart.add(number)
            return
        while self.apart:
            if self.end in self.apart:
                self.apart.remove(self.end)
                self.end += 1
            elif self.begin - 1 in self.apart:
                self.begin -= 1
                self.apart.remove(self.begin)
            else:
                return
            self.room.left += 1

    def add_key(self, digest: bytes) -> bool:
        """Remember the key of a slice, if there is room."""
        if self.digest is None or digest == self.digest:
            self.digest = digest
        elif self.digests is None or digest not in self.digests:
            if not self.room.take():
                return False
            self.digests = set() if self.digests is None else self.digests
            self.digests.add(digest)
        return True

    def forget(self) -> None:
        """Give back the room that it has taken."""
        self.room.left += 1 + len(self.apart or ()) + len(self.digests or ())

    @property
    def is_whole(self) -> bool:
        """Whether all slices have come."""
        return self.end - self.begin >= self.part.count

    @property
    def judged(self) -> Fate:
        """What becomes of it, with what is known by now."""
        if self.fate in ("expired", "signed", "stale") and not self.is_whole:
            return "not_whole"
        return self.fate


class Partition:
    """Find out what may be removed of a partition, from its records in the order of their offsets.

    Of messages in slices it remembers all with ``keys``, and else those that begin before the first record
    that stays, or are not whole; as many as there is room. The slices of others stay, and so does what has
    their keys.

    Args:
        number: the partition.
        begin: the first offset.
        deletes: whether ``cleanup.policy`` has ``delete``.
        keys: notes the keys of the topic, if ``cleanup.policy`` has ``compact``; else None.
        room: for messages in slices, shared with other partitions.
    """

    def __init__(
        self, number: int, begin: int, *, deletes: bool, keys: Keys | None, room: Room | None = None
    ) -> None:
        self._number: Final = number
        self._begin: Final = begin
        self._deletes: Final = deletes
        self._keys: Final = keys
        self._room: Final = Room() if room is None else room
        self._fates: Final[Counter[Fate]] = Counter()
        self._first_kept: int | None = None
        self._stays: Fate | None = None
        self._singles = self._singles_before_kept = 0
        self._messages: Final[dict[bytes, _Message]] = {}

    def take(self, offset: int, key: bytes | None, fate: Fate, part: SliceHeader | None = None) -> None:
        """Take the next record; ``part`` says which slice of a message it is."""
        message: _Message | None = None
        if part is not None:
            message = self._messages.get(part.message_id)
            if message is None and self._room.take():
                message = _Message(part, offset, self._singles, self._room)
                self._messages[part.message_id] = message
            if message is None:
                fate = "held" if fate == "held" else "not_remembered"
        if message is not None and part is not None:
            message.add(offset, fate, part)
            if message.is_whole and self._keys is None and self._stays_anyhow(message):
                # Nothing depends on it any more. What comes of it once more is taken as another message.
                self._fates[message.judged] += message.count
                message.forget()
                del self._messages[part.message_id]
        else:
            self._fates[fate] += 1
            if self._goes(fate):
                self._singles += 1
            elif self._first_kept is None:
                self._first_kept, self._singles_before_kept, self._stays = offset, self._singles, fate
        if self._keys is not None and key is not None:
            if part is None:
                self._keys.note(self._number, key, offset, fate, None)
            elif message is not None and message.add_key(digest_of(key)):
                self._keys.note(self._number, key, offset, fate, part.message_id)
            else:
                self._keys.note(self._number, key, offset, "held", None)

    @property
    def beginning_is_known(self) -> bool:
        """Whether nothing that comes later changes how much of the beginning may be deleted."""
        first_message = next(iter(self._messages.values()), None)
        return self._first_kept is not None and (
            first_message is None or first_message.first > self._first_kept
        )

    def _stays_anyhow(self, message: _Message) -> bool:
        return self._first_kept is not None and self._first_kept < message.first

    def _goes(self, fate: Fate) -> bool:
        """Return whether a record of a fate may go with the beginning; that takes no tombstone."""
        return fate == "expired" or (fate in ("signed", "stale") and self._deletes)

    def plan(self, end: int) -> PartitionPlan:
        """Return what may be deleted, having taken all up to an offset; what the keys say is settled then."""
        fates = self._fates.copy()
        whole: list[_Message] = []
        before, singles, stays, stays_at = end, self._singles, self._stays, self._first_kept
        if self._first_kept is not None:
            before, singles = self._first_kept, self._singles_before_kept
        for message in self._messages.values():
            fates[message.judged] += message.count
            if self._goes(message.judged):
                whole.append(message)
            elif message.first < before:
                before, singles, stays = message.first, message.singles_before, message.judged
                stays_at = message.first
        # A message that ends behind stays whole, and then so does what ends behind its beginning.
        whole.sort(key=lambda message: message.last, reverse=True)
        for message in whole:
            if message.last < before:
                break
            if message.first < before:
                before, singles = message.first, message.singles_before
        deleted = singles + sum(message.count for message in whole if message.last < before)
        if not self._deletes or before <= self._begin:
            before, deleted = self._begin, 0
        if self._keys is not None:
            self._settle(self._keys)
        return PartitionPlan(
            delete_before=before,
            deleted=deleted,
            stays=stays,
            stays_at=stays_at,
            fates={fate: count for fate, count in fates.items() if count},
        )

    def _settle(self, keys: Keys) -> None:
        """Tell the keys what becomes of messages in slices."""
        for message in self._messages.values():
            if message.judged == "held" and message.digest is not None:
                for digest in (message.digest, *(message.digests or ())):
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
    """Whether each tombstone of a batch stands behind all other records of its key.

    It sees the records of a partition as they stand, also those that are not committed, or never will be. If
    a transaction is done again, the tombstones come again, and what has come between stands before them.

    Args:
        keys: the keys of the batch.
    """

    def __init__(self, keys: Collection[bytes]) -> None:
        self._keys: Final = frozenset(keys)
        self._written: Final[set[bytes]] = set()
        self._behind: Final[set[bytes]] = set()
        self._seen: Final[set[bytes]] = set()
        self._newer: Final[set[bytes]] = set()

    def begin(self) -> None:
        """Begin to look at what was stored by now."""
        self._seen.clear()

    def see(self, key: bytes, *, own: bool) -> None:
        """See the next record of one of the keys; ``own`` says that it is a tombstone of the batch."""
        if key not in self._keys:
            return
        if not own:
            (self._behind if key in self._written else self._newer).add(key)
            return
        self._written.add(key)
        self._seen.add(key)
        if key in self._behind:
            self._newer.add(key)

    @property
    def complete(self) -> bool:
        """Whether all tombstones were seen since :meth:`begin`."""
        return len(self._seen) == len(self._keys)

    @property
    def safe(self) -> bool:
        """Whether nothing stands before a tombstone that came behind the pass."""
        return not self._newer

    @property
    def renewed(self) -> frozenset[bytes]:
        """The keys that get no tombstone if the batch is undone: records of theirs have come."""
        return frozenset(self._newer | self._behind)
