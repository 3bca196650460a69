"""The rules of compaction by header: the version of a record, and which of two records of a key is kept.

Of the records of a key in a partition the one with the highest version is kept; of equal versions the one
that came last. A tombstone is a record as any other: it deletes its key only if it is the one that is kept.
A message in slices is one record. It has key and version of its first slice, and comes when its last slice
has come.

What cannot be judged is unresolved: it is kept, in a side topic or among the others, and takes no part in the
choice.
"""

from __future__ import annotations

import re
import struct
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import TYPE_CHECKING, ClassVar, Final, Literal, NamedTuple, Protocol, get_args

import msgspec

from headerware.core.errors import ConfigError, HeaderError, WireFormatError
from headerware.core.headers import Headers
from headerware.core.record import bytes_of
from headerware.interceptors.slice.header import SLICE_HEADER, SliceHeader
from headerware.registry.names import named_headers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headerware.core.record import Record

Form = Literal["number", "long", "time"]
"""How a header has a version: ASCII digits, eight bytes as Java writes a long, or a time in ISO 8601."""
Missing = Literal["unresolved", "oldest", "timestamp"]
"""What is done with a record that has no version."""
Unresolved = Literal[
    "no_key",
    "no_version",
    "malformed",
    "unverified",
    "unreadable",
    "exposed_slices",
    "incomplete",
    "refused",
]
"""Why a record is not judged."""
UNRESOLVED: Final[dict[Unresolved, str]] = {
    "no_key": "they have no key",
    "no_version": "they have no version; --missing says what else may be done with them",
    "malformed": "their version, or their hw.slice, cannot be read, or stands twice",
    "unverified": "the chain does not verify them, or they are not signed",
    "unreadable": "their headers cannot be read, nor written; they stay in the source alone",
    "refused": "their new topic refuses them, see below; what it refuses stays in the source alone",
    "exposed_slices": "they are slices of a message, of which the target, which is compacted, would keep one",
    "incomplete": "they are slices of messages that lack others; more wait than a commit can note",
}
Why = Unresolved | Literal["kept"]
"""Why a record is not judged, or that it is kept by a rule that judges each record alone."""
Lost = Literal["older", "tie", "no_version", "expired"]
"""Why a record is not kept."""
LOST: Final[dict[Lost, str]] = {
    "older": "their key has a higher version",
    "tie": "their key has the same version later",
    "no_version": "they have no version, and their key has one",
    "expired": "they have outlived their time",
}
OLDEST: Final = -(2**63)
"""The version of a record without one, where such a record is the oldest."""
_HIGHEST: Final = 2**63 - 1
_NUMBER: Final = re.compile(rb"-?[0-9]{1,19}")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_MAX_TIME_BYTES: Final = 40


class Rank(NamedTuple):
    """What decides which record of a key is kept: the greater one is."""

    version: int
    offset: int


class CopyRule(Protocol):
    """What is kept of a topic.

    It is a frozen msgspec struct: a copy that was begun by one is not gone on with by another.
    """

    worker: ClassVar[str]
    """The command's name, for groups and accounts."""
    alone: ClassVar[Lost | None]
    """None where of each key one record is kept. Else why a record is lost that has no ``why``."""

    def for_topic(self, topic: str, /) -> CopyRule:
        """Return it as it is for a topic."""
        ...

    def judged(
        self,
        record: Record,
        *,
        now_ms: int,
        verified: Callable[[Record], Record | None] | None = None,
        compacts: bool = False,
    ) -> Judged:
        """Return a record of the topic as on the wire, as this sees it; see :func:`judge`."""
        ...


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """Where the version of a record stands.

    Args:
        header: the header's name.
        form: how it has the version: ``number`` (ASCII digits), ``long`` (eight bytes, as in KIP-280) or
            ``time`` (ISO 8601, in UTC unless it says otherwise). Each must fit into 64 bits; times count in
            microseconds.
        missing: what becomes of a record without the header: it stays ``unresolved``; it is the ``oldest`` of
            its key; or its ``timestamp`` is its version, in milliseconds, with ``time`` as a time.

    Raises:
        ConfigError: a header without a name, or another word than these.
    """

    worker: ClassVar[str] = "compact"
    alone: ClassVar[Lost | None] = None

    header: str
    form: Form = "number"
    missing: Missing = "unresolved"

    def __post_init__(self) -> None:
        """Refuse what is no rule."""
        if not self.header:
            raise ConfigError("expected the name of the header that has the version", path="header")
        for path, found, known in (
            ("form", self.form, get_args(Form)),
            ("missing", self.missing, get_args(Missing)),
        ):
            if found not in known:
                raise ConfigError(f"expected {', '.join(known)}; found {found!r}", path=path)

    def for_topic(self, _topic: str, /) -> Rule:
        """Return itself: it is the same for all topics."""
        return self

    def judged(
        self,
        record: Record,
        *,
        now_ms: int,  # noqa: ARG002 - versions do not pass
        verified: Callable[[Record], Record | None] | None = None,
        compacts: bool = False,
    ) -> Judged:
        """Return a record as it sees it."""
        return judge(record, self, verified=verified, compacts=compacts)

    def version_of(self, record: Record) -> int | Unresolved:
        """Return a record's version, or why it is not judged; its headers have their names."""
        if record.key is None:
            return "no_key"
        found = record.headers.all(self.header)
        if not found:
            return self._without_header(record)
        version = None if len(found) > 1 or found[0] is None else _READ[self.form](found[0])
        return "malformed" if version is None else version

    def _without_header(self, record: Record) -> int | Unresolved:
        if self.missing == "oldest":
            return OLDEST
        if self.missing == "unresolved" or record.timestamp_ms is None:
            return "no_version"
        return record.timestamp_ms * (1_000 if self.form == "time" else 1)


class Judged(NamedTuple):
    """A record, or a message in slices, as the rules see it.

    ``digest`` is that of its key; ``why`` says that it is unresolved, or kept. Only a slice of a message has
    ``part``. A message has the offset of its slice that came last.
    """

    partition: int
    offset: int
    size_bytes: int
    digest: bytes | None
    version: int
    why: Why | None
    part: SliceHeader | None = None


class Verdict(NamedTuple):
    """What becomes of a record or a message, and why."""

    outcome: Literal["wins", "loses", "unresolved"]
    why: Unresolved | Lost | None = None


def judged_message(slices: Sequence[Judged]) -> Judged:
    """Return a message as the rules see it, of which these are all slices in the order of their indexes.

    It has key and version of its first slice, and any slice says why it is unresolved, or kept.
    """
    came = sorted(slices, key=lambda each: each.offset)
    why = next((each.why for each in came if each.why is not None), None)
    first = slices[0]
    return Judged(
        first.partition,
        came[-1].offset,
        sum(each.size_bytes for each in came),
        None if why else first.digest,
        first.version,
        why,
    )


def verdict_alone(why: Why | None, lost: Lost) -> Verdict:
    """Return what becomes of a record or a message by a rule that judges each alone."""
    if why is None:
        return Verdict("loses", lost)
    return Verdict("wins") if why == "kept" else Verdict("unresolved", why)


def digest_of(key: bytes, partition: int) -> bytes:
    """Return what stands for a key in a partition."""
    return blake2b(key, digest_size=16, salt=partition.to_bytes(4)).digest()


def judge(
    record: Record,
    rule: Rule,
    *,
    verified: Callable[[Record], Record | None] | None = None,
    compacts: bool = False,
) -> Judged:
    """Return a record of a partition as a rule sees it.

    Args:
        record: the record as on the wire.
        rule: where its version stands.
        verified: returns the record as a chain verifies it, or None; without it nothing is verified.
        compacts: whether the broker compacts the target, and so keeps one record of each key.
    """
    at = record.partition or 0, record.offset or 0
    headers: object = record.headers
    if not isinstance(headers, Headers):  # as messages.is_readable, for where there is no client
        return Judged(*at, len(record.key or b"") + len(record.value or b""), None, 0, "unreadable")
    size = bytes_of(record)
    read = record if verified is None else verified(record)
    if read is None:
        return Judged(*at, size, None, 0, "unverified")
    try:
        read = read.with_headers(named_headers(read))
    except (WireFormatError, HeaderError):
        return Judged(*at, size, None, 0, "unreadable")
    try:
        stated = read.headers.last(SLICE_HEADER)
        part = SliceHeader.decode(stated) if SLICE_HEADER in read.headers else None
    except WireFormatError:
        return Judged(*at, size, None, 0, "malformed")
    if part is not None and part.index:
        return Judged(*at, size, None, 0, "exposed_slices" if compacts else None, part)
    version = rule.version_of(read)
    if isinstance(version, str):
        return Judged(*at, size, None, 0, version, part)
    return Judged(*at, size, digest_of(record.key, at[0]), version, None, part)


def lost_because(own: int, kept: int) -> Lost:
    """Return why a record is not kept, by its version and that of the one that is."""
    if own == kept:
        return "tie"
    return "no_version" if own == OLDEST else "older"


def _number(value: bytes) -> int | None:
    if not _NUMBER.fullmatch(value):
        return None
    number = int(value)
    return number if OLDEST <= number <= _HIGHEST else None


def _long(value: bytes) -> int | None:
    return struct.unpack(">q", value)[0] if len(value) == 8 else None


def _time(value: bytes) -> int | None:
    if len(value) > _MAX_TIME_BYTES or not value.isascii():
        return None
    try:
        moment = datetime.fromisoformat(value.decode())
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return (moment - _EPOCH) // _MICROSECOND
    except (ValueError, OverflowError):
        return None


_READ: Final[dict[Form, Callable[[bytes], int | None]]] = {"number": _number, "long": _long, "time": _time}
