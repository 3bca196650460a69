"""The rules of retention by header: whether a record has expired, and what may be removed of a partition.

A record's lifetime is its header ``hw.expires``, or that of the first rule for its topic and headers. What
has no lifetime, or one that cannot be read, stays. So does a tombstone, for it says that a key is gone. A
legal hold is a header of its own, whatever its value and in capitals or not, and wins over all.

A message in slices is one record: it has the lifetime of its first slice, is held if any slice is, stays
while it is not whole, and is removed whole or not at all.

Kafka removes records in three ways. The beginning of a partition, where all has expired, is deleted up to an
offset; the broker permits that where ``cleanup.policy`` has ``delete``. The key of a compacted topic gets a
tombstone, if its latest record has expired, none of its records is held, and no other partition has a record
of it that stays. All else takes a copy, which the worker of compaction makes: the rule here is a
:class:`~headerware.ops.compaction.rules.Decision`.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, ClassVar, Final, Literal, NamedTuple

import msgspec

from headerware.clients.messages import headers_of, is_readable, record_of
from headerware.core.bounded_cache import BoundedCache
from headerware.core.errors import ConfigError, HeaderError, WireFormatError
from headerware.core.header_ids import parse_id
from headerware.core.headers import Headers
from headerware.core.record import bytes_of
from headerware.core.topics import TopicPatterns, check_patterns
from headerware.interceptors.slice.header import SLICE_HEADER, SliceHeader, is_slice_key
from headerware.interceptors.times.moments import EXPIRES_HEADER, Milliseconds, decode_moment, moment_of
from headerware.keyring.signature import SIGNATURE_HEADER
from headerware.ops.compaction.rules import Judged, Lost
from headerware.ops.retention.keys import digest_of
from headerware.registry.names import named_headers
from headerware.registry.wire.compact_keys import MARKER
from headerware.registry.wire.packed_block import HEADER as PACKED_HEADER

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from confluent_kafka import Message

    from headerware.core.record import Record
    from headerware.ops.retention.keys import Keys

Fate = Literal[
    "expired",
    "alive",
    "no_lifetime",
    "malformed",
    "unknown_id",
    "held",
    "tombstone",
    "not_whole",
    "not_remembered",
    "unverified",
    "signed",
]
"""What becomes of a record; all but ``expired`` stay."""
FATES: Final[dict[Fate, str]] = {
    "expired": "they have outlived their time",
    "alive": "their time has not come",
    "no_lifetime": "they have no lifetime",
    "malformed": "their lifetime, or their hw.slice, cannot be read",
    "held": "a legal hold is on them",
    "tombstone": "they are tombstones",
    "not_whole": "they are slices of messages that are not whole",
    "not_remembered": "they are slices of more messages than a pass can remember",
    "unknown_id": "they have headers with ids whose names are not known here",
    "unverified": "the chain does not verify them, they are not signed, or they are and no chain is given",
    "signed": "they have expired, but their readers would refuse tombstones, which nobody has signed",
}

_MAX_READINGS: Final = 1_024
_READINGS_BYTES: Final = 1 << 20
MAX_REMEMBERED: Final = 500_000
"""Messages in slices that a pass remembers, which take some 200 MiB."""


class Lifetime(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long records live that have no lifetime of their own.

    Args:
        topics: globs of the topics that it is for.
        after_ms: how long after its timestamp a record expires, in milliseconds.
        header: it is for records with this header only; None is for all.
        value: it is for records whose last such header has this value; None is for any.

    Raises:
        ConfigError: a pattern that matches no topic, or a value without a header.
    """

    topics: tuple[str, ...]
    after_ms: Milliseconds
    header: str | None = None
    value: str | None = None

    def __post_init__(self) -> None:
        """Refuse what is for no record."""
        check_patterns(self.topics, path="topics")
        if not self.topics:
            raise ConfigError("expected globs of topics, such as 'clicks-*'", path="topics")
        if self.value is not None and self.header is None:
            raise ConfigError("expected the header that has this value", path="header")

    def is_for(self, record: Record) -> bool:
        """Return whether a record's headers are those that it is for."""
        if self.header is None:
            return True
        found = record.headers.all(self.header)
        return bool(found) and (self.value is None or found[-1] == self.value.encode())


class RetentionRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long records live.

    Args:
        lifetimes: for records without ``hw.expires``; the first that fits counts.
        hold: the header of a legal hold, in capitals or not.
        clock_skew_ms: how long a record still counts as alive after its moment, in milliseconds.

    Raises:
        ConfigError: no header for a hold.
    """

    worker: ClassVar[str] = "retain"
    alone: ClassVar[Lost | None] = "expired"

    lifetimes: tuple[Lifetime, ...] = ()
    hold: str = "legal-hold"
    clock_skew_ms: int = 5_000

    def __post_init__(self) -> None:
        """Refuse a hold that nothing could have, and a skew that would expire records early."""
        if not self.hold:
            raise ConfigError("expected the name of the header of a legal hold", path="hold")
        if self.clock_skew_ms < 0:
            raise ConfigError("expected milliseconds, 0 or more", path="clock_skew_ms")

    def for_topic(self, topic: str) -> RetentionRule:
        """Return the rule with the lifetimes that are for a topic."""
        fitting = (each for each in self.lifetimes if TopicPatterns(each.topics).matches(topic))
        return msgspec.structs.replace(self, lifetimes=tuple(fitting))

    def holds(self, headers: Headers) -> bool:
        """Return whether headers have a legal hold; who has mistaken its capitals means it, too."""
        hold = self.hold.casefold()
        return any(name.casefold() == hold for name, _ in headers)

    def fate_of(self, record: Record, now_ms: int) -> Fate:
        """Return what becomes of a record at a moment; its headers have their names.

        The rule is that of the record's topic (:meth:`for_topic`).
        """
        if self.holds(record.headers):
            return "held"
        if any(name[:1].isdigit() and parse_id(name) is not None for name, _ in record.headers):
            return "unknown_id"  # it may be the hold
        try:
            expires_ms = moment_of(record, EXPIRES_HEADER)
        except WireFormatError:
            return "malformed"
        if record.value is None:
            return "tombstone"
        if expires_ms is None and record.timestamp_ms is not None:
            after = next((each.after_ms for each in self.lifetimes if each.is_for(record)), None)
            expires_ms = None if after is None else record.timestamp_ms + after
        if expires_ms is None:
            return "no_lifetime"
        return "expired" if now_ms - expires_ms > self.clock_skew_ms else "alive"

    def fate_on_the_wire(
        self, record: Record, now_ms: int, verified: Callable[[Record], Record | None] | None = None
    ) -> tuple[Fate, SliceHeader | None]:
        """Return what becomes of a record as on the wire, and which slice of a message it is.

        ``verified`` returns a record as a chain verifies it, or None; without it what is signed stays.
        """
        if not is_readable(record):
            return "malformed", None
        try:
            named = named_headers(record)
            is_held = self.holds(named)  # that is believed of anybody: it removes nothing
            read: Record | None = record
            if verified is not None:
                read = verified(record)
            elif SIGNATURE_HEADER in named:
                read = None
            if read is None and not is_held:
                return "unverified", None
            read = record if read is None else read
            read = read.with_headers(named_headers(read))
            found = read.headers.last(SLICE_HEADER)
            part = SliceHeader.decode(found) if SLICE_HEADER in read.headers else None
        except (WireFormatError, HeaderError):
            return "malformed", None
        return "held" if is_held else self.fate_of(read, now_ms), part

    def judged(
        self,
        record: Record,
        *,
        now_ms: int,
        verified: Callable[[Record], Record | None] | None = None,
        compacts: bool = False,  # noqa: ARG002 - it copies into no compacted topic
    ) -> Judged:
        """Return a record as a copy of its topic takes it: it is kept, or has expired.

        A message in slices is kept if its first slice is, or if any of them is under a legal hold.
        """
        at = record.partition or 0, record.offset or 0
        if not is_readable(record):
            return Judged(*at, len(record.key or b"") + len(record.value or b""), None, 0, "unreadable")
        fate, part = self.fate_on_the_wire(record, now_ms, verified)
        is_later = part is not None and part.index > 0
        is_kept = fate == "held" if is_later else fate != "expired"
        return Judged(*at, bytes_of(record), None, 0, "kept" if is_kept else None, part)


class _Reading(NamedTuple):
    """How to judge records whose headers have certain names: by these and two values."""

    expires_at: int | None
    """Where ``hw.expires`` stands among them."""
    after_ms: int | None
    """The lifetime by a rule, if it has none of its own."""


class Judge:
    """Judge the records of a topic as on the wire, of each what the rule says; for one caller at a time.

    Most of them have headers of the same names. Where these names say that nothing counts but a moment, the
    moment is all that is looked at.

    Args:
        rule: the topic's rule.
        now_ms: the moment, in milliseconds since the epoch.
        verified: returns a record as a chain verifies it, or None; without it what is signed stays.
        compacted: whether the topic is compacted: there signed records that have expired stay, for their
            readers would refuse a tombstone that nobody has signed.
    """

    def __init__(
        self,
        rule: RetentionRule,
        now_ms: int,
        verified: Callable[[Record], Record | None] | None = None,
        *,
        compacted: bool = False,
    ) -> None:
        self._rule: Final = rule
        self._now_ms: Final = now_ms
        self._newest_expired_ms: Final = now_ms - rule.clock_skew_ms - 1
        self._verified: Final = verified
        self._compacted: Final = compacted
        self._readings: Final[BoundedCache[tuple[str, ...], _Reading | None]] = BoundedCache(
            _MAX_READINGS, self._reading_of, max_cost=_READINGS_BYTES, cost=_size_of
        )

    def fate_of(self, message: Message) -> tuple[Fate, SliceHeader | None]:
        """Return what becomes of a message, and which slice of a larger one it is."""
        headers = headers_of(message)
        if headers is None:
            return "malformed", None
        reading = self._readings[tuple([pair[0] for pair in headers])]
        if reading is None:
            return self._fate_by_all(record_of(message))
        expires_ms: int | None = None
        if reading.expires_at is not None:
            try:
                expires_ms = decode_moment(headers[reading.expires_at][1], EXPIRES_HEADER)
            except WireFormatError:
                return "malformed", None
        if message.value() is None:
            return "tombstone", None
        if reading.after_ms is not None:
            kind, timestamp_ms = message.timestamp()
            expires_ms = timestamp_ms + reading.after_ms if kind else None
        if expires_ms is None:
            return "no_lifetime", None
        return "expired" if expires_ms <= self._newest_expired_ms else "alive", None

    def _fate_by_all(self, record: Record) -> tuple[Fate, SliceHeader | None]:
        fate, part = self._rule.fate_on_the_wire(record, self._now_ms, self._verified)
        if fate == "expired" and self._compacted and _may_be_signed(record):
            return "signed", part
        return fate, part

    def _reading_of(self, names: tuple[str, ...]) -> _Reading | None:
        """Return how to judge records by the names of their headers; None if it takes all that they have."""
        if self._verified is not None or names.count(EXPIRES_HEADER) > 1:
            return None
        if (
            not self._rule.holds(Headers.trusted((name, None) for name in names))
            and not any(name.startswith(MARKER) or parse_id(name) is not None for name in names)
            and not {PACKED_HEADER, SIGNATURE_HEADER, SLICE_HEADER}.intersection(names)
        ):
            if EXPIRES_HEADER in names:
                return _Reading(names.index(EXPIRES_HEADER), None)
            fitting = (each for each in self._rule.lifetimes if each.header is None or each.header in names)
            first = next(fitting, None)
            if first is None or first.value is None:
                return _Reading(None, None if first is None else first.after_ms)
        return None


def _size_of(names: tuple[str, ...], _: _Reading | None) -> int:
    return sum(map(sys.getsizeof, names), sys.getsizeof(names))


def _may_be_signed(record: Record) -> bool:
    try:
        return SIGNATURE_HEADER in named_headers(record)
    except (WireFormatError, HeaderError):
        return True


class PartitionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What may be deleted at the beginning of a partition.

    Args:
        delete_before: all that stands before this offset has expired, messages in slices whole.
        deleted: how many records that are.
        stays: what the first record that stays is; None if none does.
        fates: how many records there are of each fate.
    """

    delete_before: int
    deleted: int
    stays: Fate | None
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
        "has_own_keys",
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
        """Which slices have come in a row, on a compacted topic from the second on and the first one last."""
        self.apart: set[int] | None = None
        """Which others have come."""
        self.digest: bytes | None = None
        self.digests: set[bytes] | None = None
        self.has_own_keys = False

    def add(self, offset: int, key: bytes | None, fate: Fate, part: SliceHeader) -> None:
        """Add a slice."""
        self.count += 1
        self.last = offset
        self._add_number(part.index)
        own_key = is_slice_key(key)
        self.has_own_keys = self.has_own_keys or own_key
        # A key of another message's slice would be deleted with this one.
        lies = not part.same_message(self.part) or (own_key and key != part.own_key)
        if fate == "held" or self.fate == "held":
            self.fate = "held"
        elif lies or self.fate == "malformed":
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
        """Remember the key of a slice that has none of its own, if there is room."""
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
        if self.fate in ("expired", "signed") and not self.is_whole:
            return "not_whole"
        return self.fate

    @property
    def slice_keys(self) -> Collection[bytes]:
        """The keys that its slices have of their own."""
        if not self.has_own_keys:
            return ()
        return [
            msgspec.structs.replace(self.part, index=index).own_key for index in range(1, self.part.count)
        ]


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
            message.add(offset, key, fate, part)
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
        if self._keys is not None and key is not None and not is_slice_key(key):
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
        return fate == "expired" or (fate == "signed" and self._deletes)

    def plan(self, end: int) -> PartitionPlan:
        """Return what may be deleted, having taken all up to an offset; what the keys say is settled then."""
        fates = self._fates.copy()
        whole: list[_Message] = []
        before, singles, stays = end, self._singles, self._stays
        if self._first_kept is not None:
            before, singles = self._first_kept, self._singles_before_kept
        for message in self._messages.values():
            fates[message.judged] += message.count
            if self._goes(message.judged):
                whole.append(message)
            elif message.first < before:
                before, singles, stays = message.first, message.singles_before, message.judged
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
                slice_keys=message.slice_keys if message.judged == "expired" else (),
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
