"""The rules of retention by header: whether a record has expired.

A record's lifetime is its header ``hw.expires``, or that of the first rule for its topic and headers. What
has no lifetime, or one that cannot be read, stays. So does a tombstone, for it says that a key is gone. A
legal hold is a header of its own, whatever its value and in capitals or not, and wins over all.

The rule is a :class:`~headerware.ops.compaction.rules.CopyRule`: the worker of compaction copies by it, too.
What may be removed of a partition is in :mod:`headerware.ops.retention.plan`.

A lifetime is believed only as far as a signature covers it. A legal hold counts whoever wrote it, in any
capitals, also if it was added after the signature: to keep a record is always safe.
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
"""What becomes of a record; all but ``expired`` and ``stale`` stay."""
DISPOSITIONS: Final[dict[RetentionDisposition, str]] = {
    "expired": "they have outlived their time",
    "alive": "their time has not come",
    "no_lifetime": "they have no lifetime",
    "malformed": "their lifetime, or their hw.slice, cannot be read",
    "held": "a legal hold is on them",
    "tombstone": "they are tombstones",
    "incomplete": "they are slices of messages that are not complete",
    "not_remembered": "they are slices of more messages than a pass can remember",
    "unknown_id": "they have headers with ids whose names are not known here",
    "unverified": "the chain does not verify them, they are not signed, or they are and no chain is given",
    "signed": "they have expired, but their readers would refuse tombstones, which nobody has signed",
    "stale": "they are not verified, or cannot be read, and older than --unverified-after",
}
_UNJUDGED: Final[frozenset[RetentionDisposition]] = frozenset({"unverified", "malformed"})

_MAX_READINGS: Final = 1_024
_READINGS_BYTES: Final = 1 << 20


class Lifetime(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long records live that have no lifetime of their own.

    Args:
        topics: patterns of the topics that it is for.
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
            raise ConfigError("expected patterns of topics, such as 'clicks-*'", path="topics")
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
        unverified_after_ms: how long after its timestamp a record goes that is not verified or readable, in
            milliseconds; longer than all lifetimes. Without it such a record stays for ever.

    Raises:
        ConfigError: no header for a hold, or unverified records would go before others have expired.
    """

    worker: ClassVar[str] = "retain"
    alone: ClassVar[Lost | None] = "expired"

    lifetimes: tuple[Lifetime, ...] = ()
    hold: str = "legal-hold"
    clock_skew_ms: int = 5_000
    unverified_after_ms: Milliseconds | None = None

    def __post_init__(self) -> None:
        """Refuse a hold that nothing could have, and a skew that would expire records early."""
        if not self.hold:
            raise ConfigError("expected the name of the header of a legal hold", path="hold")
        if self.clock_skew_ms < 0:
            raise ConfigError("expected milliseconds, 0 or more", path="clock_skew_ms")
        longest_ms = max((each.after_ms for each in self.lifetimes), default=0)
        if self.unverified_after_ms is not None and self.unverified_after_ms <= longest_ms:
            raise ConfigError(
                f"expected more than the longest lifetime of the rules, {longest_ms:,} ms, found "
                f"{self.unverified_after_ms:,}; else a record would go sooner for being unsigned",
                path="unverified_after_ms",
            )

    def for_topic(self, topic: str) -> RetentionRule:
        """Return the rule with the lifetimes that are for a topic."""
        fitting = (each for each in self.lifetimes if TopicPatterns(each.topics).matches(topic))
        return msgspec.structs.replace(self, lifetimes=tuple(fitting))

    def holds(self, headers: Headers) -> bool:
        """Return whether headers have a legal hold; who has mistaken its capitals means it, too."""
        hold = self.hold.casefold()
        return any(name.casefold() == hold for name, _ in headers)

    def disposition_of(self, record: Record, now_ms: int) -> RetentionDisposition:
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

    def unless_stale(
        self, disposition: RetentionDisposition, timestamp_ms: int | None, now_ms: int
    ) -> RetentionDisposition:
        """Return a record's disposition, which is another one if it could not be judged for too long."""
        if disposition not in _UNJUDGED or self.unverified_after_ms is None or timestamp_ms is None:
            return disposition
        age_ms = now_ms - timestamp_ms
        return "stale" if age_ms > self.unverified_after_ms + self.clock_skew_ms else disposition

    def disposition_on_the_wire(
        self, record: Record, now_ms: int, verified: Callable[[Record], Record | None] | None = None
    ) -> tuple[RetentionDisposition, SliceHeader | None]:
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
            return "held" if self.holds(record.headers) else "malformed", None
        return "held" if is_held else self.disposition_of(read, now_ms), part

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
        disposition, part = self.disposition_on_the_wire(record, now_ms, verified)
        disposition = self.unless_stale(disposition, record.timestamp_ms, now_ms)
        is_later = part is not None and part.index > 0
        is_kept = disposition == "held" if is_later else disposition not in ("expired", "stale")
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

    def disposition_of(self, message: Message) -> tuple[RetentionDisposition, SliceHeader | None]:
        """Return what becomes of a message, and which slice of a larger one it is."""
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
