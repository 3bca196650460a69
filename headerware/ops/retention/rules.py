"""The rules of retention by header: whether a record has expired, and what may be removed of a partition.

A record's lifetime is its header ``hw.expires``, or that of the first rule for its topic and headers. What
has no lifetime, or one that cannot be read, stays. So does a tombstone, for it says that a key is gone. A
legal hold is a header of its own, whatever its value, and wins over all.

A message in slices is one record: it has the lifetime of its first slice, is held if any slice is, stays
while it is not whole, and is removed whole or not at all.

Kafka removes records in three ways. The beginning of a partition, where all has expired, is deleted up to an
offset; the broker permits that where ``cleanup.policy`` has ``delete``. The key of a compacted topic gets a
tombstone, if its latest record has expired and none of its records is held. All else takes a copy, which the
worker of compaction makes: the rule here is a :class:`~headerware.ops.compaction.rules.Decision`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, ClassVar, Final, Literal, NamedTuple

import msgspec

from headerware.clients.messages import is_readable
from headerware.core.errors import ConfigError, HeaderError, WireFormatError
from headerware.core.record import bytes_of
from headerware.core.topics import TopicPatterns, check_patterns
from headerware.interceptors.slice.header import SLICE_HEADER, SliceHeader, is_slice_key
from headerware.interceptors.times.moments import EXPIRES_HEADER, Milliseconds, moment_of
from headerware.ops.compaction.rules import Judged, Lost
from headerware.ops.slices import named_headers

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware.core.record import Record

Fate = Literal[
    "expired",
    "alive",
    "no_lifetime",
    "malformed",
    "held",
    "tombstone",
    "not_whole",
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
    "unverified": "the chain does not verify them, or they are not signed",
    "signed": "they have expired, but their readers would refuse a tombstone that nobody has signed",
}


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
        hold: the header of a legal hold.
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

    def fate_of(self, record: Record, now_ms: int) -> Fate:
        """Return what becomes of a record at a moment; its headers have their names.

        The rule is that of the record's topic (:meth:`for_topic`).
        """
        if self.hold in record.headers:
            return "held"
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

        ``verified`` returns a record as a chain verifies it, or None; without it nothing is verified.
        """
        if not is_readable(record):
            return "malformed", None
        try:
            read = record if verified is None else verified(record)
            if read is None:
                return "unverified", None
            read = read.with_headers(named_headers(read))
            found = read.headers.last(SLICE_HEADER)
            part = SliceHeader.decode(found) if SLICE_HEADER in read.headers else None
        except (WireFormatError, HeaderError):
            return "malformed", None
        return self.fate_of(read, now_ms), part

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


class Tombstone(NamedTuple):
    """A key that may be deleted, as long as no record of it stands behind an offset."""

    key: bytes
    latest: int


class PartitionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What may be removed of a partition, and how.

    Args:
        delete_before: all that stands before this offset has expired, messages in slices whole.
        deleted: how many records that are.
        tombstones: the keys whose latest record has expired, in the order of these; behind the key of a
            message in slices stand those of its slices.
        replaced: how many expired records these are.
        rest: how many expired records only a copy can leave out. Of a compacted topic these are the latest
            ones of keys that have a held record, too; the broker removes those that are not the latest.
        fates: how many records there are of each fate.
    """

    delete_before: int
    deleted: int
    tombstones: tuple[Tombstone, ...]
    replaced: int
    rest: int
    fates: dict[Fate, int]


class _Unit:
    """A record, or a message in slices, as far as it was seen."""

    __slots__ = ("count", "fate", "first", "keys", "last", "numbers", "own_keys", "part", "singles_before")

    def __init__(self, first: int, fate: Fate, singles_before: int, part: SliceHeader | None = None) -> None:
        self.first = self.last = first
        self.keys: set[bytes] = set()
        self.fate = fate
        self.part = part
        self.singles_before = singles_before
        self.count = 1
        self.numbers: set[int] = set()
        self.own_keys: list[bytes] = []


class Partition:
    """Find out what may be removed of a partition, from its records in the order of their offsets.

    Memory is bounded by the messages in slices, and where the topic is compacted by the keys.

    Args:
        begin: the first offset.
        deletes: whether ``cleanup.policy`` has ``delete``.
        compacts: whether it has ``compact``.
    """

    def __init__(self, begin: int, *, deletes: bool, compacts: bool) -> None:
        self._begin: Final = begin
        self._deletes: Final = deletes
        self._compacts: Final = compacts
        self._fates: Final[Counter[Fate]] = Counter()
        self._first_kept: int | None = None
        self._singles = self._singles_before_kept = 0
        self._messages: Final[dict[bytes, _Unit]] = {}
        self._latest: Final[dict[bytes, tuple[int, _Unit]]] = {}
        self._held: Final[set[bytes]] = set()

    def take(self, record: Record, fate: Fate, part: SliceHeader | None = None) -> None:
        """Take the next record; ``part`` says which slice of a message it is."""
        offset = record.offset or 0
        if part is not None:
            unit = self._slice(record, fate, part)
        else:
            unit = _Unit(offset, fate, self._singles)
            self._fates[fate] += 1
            if fate == "expired":
                self._singles += 1
            elif self._first_kept is None:
                self._first_kept, self._singles_before_kept = offset, self._singles
        if self._compacts and record.key is not None and not is_slice_key(record.key):
            self._latest[record.key] = offset, unit
            if fate == "held":
                self._held.add(record.key)

    @property
    def beginning_is_known(self) -> bool:
        """Whether nothing that comes later changes how much of the beginning may be deleted."""
        first_message = next(iter(self._messages.values()), None)
        return self._first_kept is not None and (
            first_message is None or first_message.first > self._first_kept
        )

    def _slice(self, record: Record, fate: Fate, part: SliceHeader) -> _Unit:
        offset = record.offset or 0
        unit = self._messages.get(part.message_id)
        if unit is None:
            unit = _Unit(offset, "not_whole", self._singles, part)
            self._messages[part.message_id] = unit
        else:
            unit.count += 1
        unit.last = offset
        unit.numbers.add(part.index)
        if is_slice_key(record.key):
            unit.own_keys.append(record.key)
        elif record.key is not None:
            unit.keys.add(record.key)
        if fate == "held" or unit.fate == "held":
            unit.fate = "held"
        elif unit.fate == "malformed" or unit.part is None or not part.same_message(unit.part):
            unit.fate = "malformed"
        elif part.index == 0:
            # Two first slices that say different things are believed neither.
            unit.fate = fate if unit.fate in ("not_whole", fate) else "malformed"
        return unit

    def plan(self, end: int) -> PartitionPlan:
        """Return what may be removed, having taken all up to an offset."""
        fates = self._fates.copy()
        whole: list[_Unit] = []
        before, singles = end, self._singles
        if self._first_kept is not None:
            before, singles = self._first_kept, self._singles_before_kept
        for unit in self._messages.values():
            fate = self._fate(unit)
            fates[fate] += unit.count
            if fate == "held":
                self._held.update(unit.keys)
            if fate == "expired":
                whole.append(unit)
            elif unit.first < before:
                before, singles = unit.first, unit.singles_before
        # A message that ends behind stays whole, and then so does what ends behind its beginning.
        whole.sort(key=lambda unit: unit.last, reverse=True)
        for unit in whole:
            if unit.last < before:
                break
            if unit.first < before:
                before, singles = unit.first, unit.singles_before
        deleted = singles + sum(unit.count for unit in whole if unit.last < before)
        if not self._deletes or before <= self._begin:
            before, deleted = self._begin, 0
        tombstones, replaced, left = self._tombstones(before)
        return PartitionPlan(
            delete_before=before,
            deleted=deleted,
            tombstones=tombstones,
            replaced=replaced,
            rest=left if self._compacts else fates["expired"] - deleted,
            fates={fate: count for fate, count in fates.items() if count},
        )

    def _fate(self, unit: _Unit) -> Fate:
        """Return what becomes of a record or a message, with what is known by now."""
        if unit.part is None or unit.fate != "expired":
            return unit.fate
        return "expired" if len(unit.numbers) == unit.part.count else "not_whole"

    def _tombstones(self, before: int) -> tuple[tuple[Tombstone, ...], int, int]:
        """Return the keys that may be deleted, how many records these are, and how many stay for a hold."""
        found: list[Tombstone] = []
        replaced = left = 0
        for key, (latest, unit) in sorted(self._latest.items(), key=lambda item: item[1][0]):
            if unit.last < before or self._fate(unit) != "expired":
                continue
            if key in self._held:  # a tombstone would let the broker remove what is held
                left += unit.count
                continue
            found += [Tombstone(each, latest) for each in (key, *unit.own_keys)]
            replaced += unit.count
        return tuple(found), replaced, left
