"""The rules of compaction by header: the version of a record, and which of two records of a key is kept.

For each key in a partition, the record with the highest version is kept; among equal versions, the last
record. A tombstone is treated like any other record: it deletes its key only if the tombstone is kept. A
message in slices counts as one record with the key and version of its first slice and the offset of the slice
that came last.

A record that cannot be judged is unresolved: it is kept, in a side topic or in the target, and is not
compared with other records.
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
"""The form of a version in a header: ASCII digits, eight bytes as Java writes a long, or an ISO 8601 time."""
Missing = Literal["unresolved", "oldest", "timestamp"]
"""How a record without a version is treated."""
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
"""Why a record cannot be judged."""
UNRESOLVED: Final[dict[Unresolved, str]] = {
    "no_key": "they have no key",
    "no_version": "they have no version; choose with --missing how such records are treated",
    "malformed": "their version or hw.slice cannot be read, or is there twice",
    "unverified": "the chain does not verify them, or they are not signed",
    "unreadable": "their headers can be neither read nor written; they are not copied",
    "refused": "a topic refuses them, see below; they are not copied unless a side topic takes them",
    "exposed_slices": "they are slices of a message, and the compacted target would keep only one of them",
    "incomplete": "they are slices of incomplete messages; more are pending than a commit's metadata can "
    "contain",
}
Why = Unresolved | Literal["kept"]
"""Why a record cannot be judged; or ``kept``, if a rule that judges each record alone keeps it."""
Lost = Literal["older", "tie", "no_version", "expired"]
"""Why a record is not kept."""
LOST: Final[dict[Lost, str]] = {
    "older": "their key has a record with a higher version",
    "tie": "their key has a later record with the same version",
    "no_version": "they have no version, and their key has a record with one",
    "expired": "they have expired",
}
OLDEST: Final = -(2**63)
"""The version of a record without the header, if such records count as the oldest."""
_HIGHEST: Final = 2**63 - 1
_NUMBER: Final = re.compile(rb"-?[0-9]{1,19}")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_MAX_TIME_BYTES: Final = 40


class Rank(NamedTuple):
    """The rank of a record among the records of its key; the record with the greatest rank is kept."""

    version: int
    offset: int


class CopyRule(Protocol):
    """A rule that decides which records of a topic are kept.

    It is a frozen msgspec struct: its contents identify the copy, so another rule cannot continue the copy.
    """

    worker: ClassVar[str]
    """The name of the command, for groups and accounts."""
    alone: ClassVar[Lost | None]
    """None for a rule that keeps one record of each key. For a rule that judges each record alone, the reason
    why a record without a ``why`` is lost."""

    def for_topic(self, topic: str, /) -> CopyRule:
        """Return the rule as it applies to a topic."""
        ...

    def judged(
        self,
        record: Record,
        *,
        now_ms: int,
        verified: Callable[[Record], Record | None] | None = None,
        compacts: bool = False,
    ) -> Judged:
        """Return the rule's judgement of a record as it is on the wire; see :func:`judge`."""
        ...


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """The header that has the version of a record, and its form.

    Args:
        header: the header's name.
        form: the form of the version: ``number`` (ASCII digits), ``long`` (eight bytes, as in KIP-280) or
            ``time`` (ISO 8601, in UTC unless it has an offset). A version must fit into 64 bits; times are
            compared in microseconds.
        missing: how a record without the header is treated: it is ``unresolved``; it counts as the ``oldest``
            of its key; or its ``timestamp`` is its version, in milliseconds, or as a time with the form
            ``time``.

    Raises:
        ConfigError: the header's name is empty, or the form or ``missing`` is unknown.
    """

    worker: ClassVar[str] = "compact"
    alone: ClassVar[Lost | None] = None

    header: str
    form: Form = "number"
    missing: Missing = "unresolved"

    def __post_init__(self) -> None:
        """Refuse an empty name and unknown words."""
        if not self.header:
            raise ConfigError("expected the name of the header with the version, found none", path="header")
        for path, found, known in (
            ("form", self.form, get_args(Form)),
            ("missing", self.missing, get_args(Missing)),
        ):
            if found not in known:
                raise ConfigError(f"expected {', '.join(known)}; found {found!r}", path=path)

    def for_topic(self, _topic: str, /) -> Rule:
        """Return the rule itself, which is the same for all topics."""
        return self

    def judged(
        self,
        record: Record,
        *,
        now_ms: int,  # noqa: ARG002 - versions do not expire
        verified: Callable[[Record], Record | None] | None = None,
        compacts: bool = False,
    ) -> Judged:
        """Return the judgement of a record; see :func:`judge`."""
        return judge(record, self, verified=verified, compacts=compacts)

    def version_of(self, record: Record) -> int | Unresolved:
        """Return the version of a record, whose headers have names, or why the record cannot be judged."""
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
    """The judgement of a record, or of a message in slices.

    ``digest`` is the digest of the key. ``why`` is the reason why the record is unresolved, or ``kept``. Only
    a slice has a ``part``. The offset of a message is the offset of the slice that came last.
    """

    partition: int
    offset: int
    size_bytes: int
    digest: bytes | None
    version: int
    why: Why | None
    part: SliceHeader | None = None


class Verdict(NamedTuple):
    """The decision about a record or a message, and its reason."""

    outcome: Literal["wins", "loses", "unresolved"]
    why: Unresolved | Lost | None = None


def judged_message(slices: Sequence[Judged]) -> Judged:
    """Return the judgement of a message from the judgements of all its slices, in the order of their indexes.

    Its key and version are those of the first slice; its ``why`` is the first ``why`` of any slice.
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
    """Return the decision about a record or a message by a rule that judges each record alone."""
    if why is None:
        return Verdict("loses", lost)
    return Verdict("wins") if why == "kept" else Verdict("unresolved", why)


def digest_of(key: bytes, partition: int) -> bytes:
    """Return the digest that identifies a key in a partition."""
    return blake2b(key, digest_size=16, salt=partition.to_bytes(4)).digest()


def judge(
    record: Record,
    rule: Rule,
    *,
    verified: Callable[[Record], Record | None] | None = None,
    compacts: bool = False,
) -> Judged:
    """Return a rule's judgement of a record.

    Args:
        record: the record as it is on the wire.
        rule: the rule.
        verified: returns the record as a chain verifies it, or None if it does not verify; without this
            function, signatures are not checked.
        compacts: whether the target is compacted, so that the broker keeps only one record of each key.
    """
    at = record.partition or 0, record.offset or 0
    headers: object = record.headers
    if not isinstance(headers, Headers):  # like messages.is_readable, which needs a client
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
    """Return why a record is not kept, from its version and the version of the kept record."""
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
