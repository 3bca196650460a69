"""The rules of retention by header: whether a record has expired.

The lifetime of a record comes from its header ``hw.expires``, or else from the first rule that fits its topic
and headers. A record without a lifetime, or with one that cannot be read, stays. A tombstone stays too,
because it tells consumers that its key is deleted. A legal hold is a separate header with any value; a record
with a legal hold always stays.

The rule is a :class:`~headerware.ops.compaction.rules.CopyRule`, so the worker of compaction can copy by it.
:mod:`headerware.ops.retention.plan` decides what can be removed from a partition.

With a chain, a lifetime counts only if the signature covers it. A legal hold counts for any writer, in upper
or lower case, and even if it was added after signing, because keeping a record is always safe.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, ClassVar, Final, Literal, NamedTuple

import msgspec

from headerware.core.bounded_cache import BoundedCache
from headerware.core.errors import ConfigError, HeaderError, WireFormatError
from headerware.core.header_ids import parse_id
from headerware.core.headers import Headers
from headerware.core.record import bytes_of
from headerware.core.topics import TopicPatterns, check_patterns
from headerware.interceptors.slice.header import SLICE_HEADER, SliceHeader
from headerware.interceptors.times.moments import EXPIRES_HEADER, Milliseconds, decode_moment, moment_of
from headerware.kafka.messages import headers_of, is_readable, record_of
from headerware.keyring.signature import SIGNATURE_HEADER
from headerware.ops.compaction.rules import Judged, Lost
from headerware.registry.names import named_headers
from headerware.registry.wire.compact_keys import MARKER
from headerware.registry.wire.packed_block import HEADER as PACKED_HEADER

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Message

    from headerware.core.record import Record

RetentionDisposition = Literal[
    "expired",
    "alive",
    "no_lifetime",
    "malformed",
    "unknown_id",
    "held",
    "tombstone",
    "incomplete",
    "not_remembered",
    "unverified",
    "signed",
    "stale",
]
"""The disposition of a record; records with any other than ``expired`` or ``stale`` stay."""
DISPOSITIONS: Final[dict[RetentionDisposition, str]] = {
    "expired": "they have expired",
    "alive": "they have not expired yet",
    "no_lifetime": "they have no lifetime",
    "malformed": "their lifetime or hw.slice cannot be read",
    "held": "they are under a legal hold",
    "tombstone": "they are tombstones",
    "incomplete": "they are slices of incomplete messages",
    "not_remembered": "they are slices of more messages than a pass can remember",
    "unknown_id": "they have header ids whose names are not known",
    "unverified": "the chain does not verify them, or they are not signed",
    "signed": "they have expired, but their consumers would refuse unsigned tombstones",
    "stale": "they are not verified, or cannot be read, and are older than --unverified-after",
}
NO_CHAIN: Final = "they are signed, and no chain is given that verifies them; give --config"
"""Why records are not verified if there is no chain."""
_UNJUDGED: Final[frozenset[RetentionDisposition]] = frozenset({"unverified", "malformed"})

_MAX_READINGS: Final = 1_024
_READINGS_BYTES: Final = 1 << 20


class Lifetime(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The lifetime of records without ``hw.expires``.

    Args:
        topics: patterns of the topics that this lifetime applies to.
        after_ms: how long after its timestamp a record expires, in milliseconds.
        header: apply this lifetime only to records with this header; None applies it to all records.
        value: apply it only to records whose last such header has this value; None accepts any value.

    Raises:
        ConfigError: there is no pattern, a pattern matches no topic, or there is a value without a header.
    """

    topics: tuple[str, ...]
    after_ms: Milliseconds
    header: str | None = None
    value: str | None = None

    def __post_init__(self) -> None:
        """Refuse a lifetime that can apply to no record."""
        check_patterns(self.topics, path="topics")
        if not self.topics:
            raise ConfigError("expected patterns of topics, such as 'clicks-*'; found none", path="topics")
        if self.value is not None and self.header is None:
            raise ConfigError("expected the header that has this value", path="header")

    def is_for(self, record: Record) -> bool:
        """Return whether this lifetime applies to a record, by its headers."""
        if self.header is None:
            return True
        found = record.headers.all(self.header)
        return bool(found) and (self.value is None or found[-1] == self.value.encode())


class RetentionRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rule of retention: the lifetimes of records.

    Args:
        lifetimes: the lifetimes of records without ``hw.expires``; the first that fits counts.
        hold: the name of the header for a legal hold, compared without regard to case.
        clock_skew_ms: how long a record still counts as alive after it expires, in milliseconds.
        unverified_after_ms: how long after its timestamp a record is removed that is not verified or cannot
            be read, in milliseconds; must be longer than all lifetimes. With None such records stay forever.

    Raises:
        ConfigError: the header's name is empty, or unverified records would be removed before others expire.
    """

    worker: ClassVar[str] = "retain"
    alone: ClassVar[Lost | None] = "expired"

    lifetimes: tuple[Lifetime, ...] = ()
    hold: str = "legal-hold"
    clock_skew_ms: int = 5_000
    unverified_after_ms: Milliseconds | None = None

    def __post_init__(self) -> None:
        """Refuse an empty name for the legal hold, a negative skew, and a time that is too short."""
        if not self.hold:
            raise ConfigError("expected the name of the header for a legal hold, found none", path="hold")
        if self.clock_skew_ms < 0:
            raise ConfigError("expected milliseconds, 0 or more", path="clock_skew_ms")
        longest_ms = max((each.after_ms for each in self.lifetimes), default=0)
        if self.unverified_after_ms is not None and self.unverified_after_ms <= longest_ms:
            raise ConfigError(
                f"expected more than the longest lifetime of the rules, {longest_ms:,} ms, found "
                f"{self.unverified_after_ms:,}: unsigned records must not be removed before others expire",
                path="unverified_after_ms",
            )

    def for_topic(self, topic: str) -> RetentionRule:
        """Return the rule with only the lifetimes that apply to a topic."""
        fitting = (each for each in self.lifetimes if TopicPatterns(each.topics).matches(topic))
        return msgspec.structs.replace(self, lifetimes=tuple(fitting))

    def holds(self, headers: Headers) -> bool:
        """Return whether headers have a legal hold, in upper or lower case."""
        hold = self.hold.casefold()
        return any(name.casefold() == hold for name, _ in headers)

    def disposition_of(self, record: Record, now_ms: int) -> RetentionDisposition:
        """Return the disposition of a record at a time; the record's headers must have names, not ids.

        Call this on the rule for the record's topic (:meth:`for_topic`).
        """
        if self.holds(record.headers):
            return "held"
        if any(name[:1].isdigit() and parse_id(name) is not None for name, _ in record.headers):
            return "unknown_id"  # the id may stand for the legal hold
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

    def unless_stale(
        self, disposition: RetentionDisposition, timestamp_ms: int | None, now_ms: int
    ) -> RetentionDisposition:
        """Return ``stale`` if a record cannot be judged and is too old, else the given disposition."""
        if disposition not in _UNJUDGED or self.unverified_after_ms is None or timestamp_ms is None:
            return disposition
        age_ms = now_ms - timestamp_ms
        return "stale" if age_ms > self.unverified_after_ms + self.clock_skew_ms else disposition

    def disposition_on_the_wire(
        self, record: Record, now_ms: int, verified: Callable[[Record], Record | None] | None = None
    ) -> tuple[RetentionDisposition, SliceHeader | None]:
        """Return the disposition of a record as it is on the wire, and its slice header if it is a slice.

        ``verified`` returns a record as a chain verifies it, or None if it does not verify; without this
        function, signed records stay.
        """
        if not is_readable(record):
            return "malformed", None
        try:
            named = named_headers(record)
            is_held = self.holds(named)  # needs no signature, because it removes no record
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
            return "held" if self.holds(record.headers) else "malformed", None
        return "held" if is_held else self.disposition_of(read, now_ms), part

    def judged(
        self,
        record: Record,
        *,
        now_ms: int,
        verified: Callable[[Record], Record | None] | None = None,
        compacts: bool = False,  # noqa: ARG002 - never copies into a compacted topic
    ) -> Judged:
        """Return the judgement of a record for a copy of its topic: the record is kept or has expired.

        A message in slices is kept if its first slice is kept, or if any slice is under a legal hold.
        """
        at = record.partition or 0, record.offset or 0
        if not is_readable(record):
            return Judged(*at, len(record.key or b"") + len(record.value or b""), None, 0, "unreadable")
        disposition, part = self.disposition_on_the_wire(record, now_ms, verified)
        disposition = self.unless_stale(disposition, record.timestamp_ms, now_ms)
        is_later = part is not None and part.index > 0
        is_kept = disposition == "held" if is_later else disposition not in ("expired", "stale")
        return Judged(*at, bytes_of(record), None, 0, "kept" if is_kept else None, part)


class _Reading(NamedTuple):
    """How to judge all records whose headers have the same names."""

    expires_at: int | None
    """The index of ``hw.expires`` among the headers; None without it."""
    after_ms: int | None
    """The lifetime by a rule, for records without ``hw.expires``; None without a rule."""


class Judge:
    """Judge the records of a topic as they are on the wire, by a rule; for one caller at a time.

    Most records of a topic have the same header names. If the names show that only the time of expiry
    matters, only that time is read.

    Args:
        rule: the topic's rule.
        now_ms: the time to judge at, in milliseconds since the epoch.
        verified: returns a record as a chain verifies it, or None if it does not verify; without this
            function, signed records stay.
        compacted: whether the topic is compacted. In a compacted topic, expired signed records stay, because
            their consumers would refuse an unsigned tombstone.
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

    def disposition_of(self, message: Message) -> tuple[RetentionDisposition, SliceHeader | None]:
        """Return the disposition of a message, and its slice header if it is a slice."""
        disposition, part = self._disposition_of(message)
        if disposition in _UNJUDGED:
            kind, timestamp_ms = message.timestamp()
            disposition = self._rule.unless_stale(disposition, timestamp_ms if kind else None, self._now_ms)
        return disposition, part

    def _disposition_of(self, message: Message) -> tuple[RetentionDisposition, SliceHeader | None]:
        headers = headers_of(message)
        if headers is None:
            return "malformed", None
        reading = self._readings[tuple([pair[0] for pair in headers])]
        if reading is None:
            return self._disposition_by_all(record_of(message))
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

    def _disposition_by_all(self, record: Record) -> tuple[RetentionDisposition, SliceHeader | None]:
        disposition, part = self._rule.disposition_on_the_wire(record, self._now_ms, self._verified)
        if disposition == "expired" and self._compacted and _may_be_signed(record):
            return "signed", part
        return disposition, part

    def _reading_of(self, names: tuple[str, ...]) -> _Reading | None:
        """Return how to judge records by their header names; None if their complete headers are needed."""
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
