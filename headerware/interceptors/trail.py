"""Trail: the paper trail of a record, from its first producer through every mirror (spec/trail.md).

Header ``hw.trail``, version 1:

    1;left=7,at=1767225600000;by=shop;into=eu/orders,at=1767225601500;by=mirror;from=eu/orders;into=us/orders

    trail  = "1" [";left=" count] *entry          oldest first
    entry  = ",at=" time [";by=" text] [";from=" place] [";into=" place]
    place  = (text / "?") "/" (text / "?")        cluster and topic; "?" is unknown, not both
    count  = 1 to 65,535: entries that were dropped between the first and the second
    time   = milliseconds since the epoch, a signed integer of 64 bits
    text   = up to 255 bytes: letters, digits, "-._~:@#+" and, after "by=", "/"; all else is
             percent-encoded UTF-8

The value is ASCII, has at most 65,535 bytes, and resembles HTTP's Forwarded header (RFC 7239). An entry is
appended to the value, and completed there, without decoding the earlier entries.
"""

from __future__ import annotations

import os
import re
import socket
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal
from urllib.parse import quote, unquote_to_bytes

import msgspec

from headerware.core.batch import Batch, Repeated, header_names
from headerware.core.bounded_cache import BoundedCache
from headerware.core.errors import ConfigError, WireFormatError
from headerware.core.headers import Headers, HeadersLike, Pair
from headerware.core.hooks import Interceptor, Place, Role
from headerware.core.native import NativeForm, NativeState
from headerware.core.options import PATH
from headerware.core.origins import Origins
from headerware.core.requirement import Require, requirement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headerware.core.context import Context
    from headerware.core.record import Record
    from headerware.core.services import Direction

TRAIL_HEADER: Final = "hw.trail"
PROOF_HEADER: Final = "hw.trail.proof"
_VERSION: Final = 1
_MAX_TRAIL_BYTES: Final = 0xFFFF
_MAX_START_BYTES: Final = len(b"1;left=65535")
MAX_ENTRY_BYTES: Final = len(b",at=-9223372036854775808;by=;from=/;into=/") + 5 * 255
_START: Final = b"1"
"""A trail without entries."""

_MAX_TEXT_BYTES: Final = 255
MAX_LEFT_OUT: Final = 0xFFFF
_UNNAMED: Final = (
    "entries name the client's client.id, or this host's name if it has none, and every reader of the topic "
    'sees it; write service = "..." to name the application'
)
_TIMES: Final = range(-(2**63), 2**63)
_PLAIN: Final = ":@#+"  # in addition to letters, digits and "-._~"

_BEGINNINGS: Final = (_START + b",", _START + b";")
_NO_PLACE: Final = [b"?", b"?"]

_NUMBER = rb"0|-?[1-9][0-9]{0,18}"
_TEXT = rb"[A-Za-z0-9._~:@#+%-]*"
_BY = _TEXT.replace(rb"@#", rb"@#/")
_PLACE = rb"(\?|TEXT)/(\?|TEXT)".replace(b"TEXT", _TEXT)
_start = re.compile(rb"1(?:;left=([1-9][0-9]{0,4}))?")
_entry = re.compile(rb"at=(%b)(?:;by=(%b))?(?:;from=%b)?(?:;into=%b)?" % (_NUMBER, _BY, _PLACE, _PLACE))

MIN_BOUND_BYTES: Final = _MAX_START_BYTES + 2 * MAX_ENTRY_BYTES
"""Room for the first and the latest entry, whatever their size."""

_MAX_TOPICS: Final = 1024
_MAX_BATCH: Final = 0xFFFF
_OF_SIGNED: Final = (
    "keyring",
    "key_id",
    "signers",
    "require",
    "accept_origins",
    "batch_records",
    "keyring_root",
    "keyring_counter",
)
"""The options that only a signed trail has a use for."""
_REVEALS: Final = (
    "a signed trail has digests of keys and values as they are before encryption, so everybody who reads the "
    "topic can test a guess of a value; do not sign the trails of encrypted values that can be guessed"
)
_new_headers: Final = tuple.__new__
"""Make headers from checked pairs, without checking them again."""


class Trail(Interceptor, frozen=True, kw_only=True):
    """Record in ``hw.trail`` which services read and produced a record, when, and in which topics.

    On consume, an entry is added with the service, the time, and the topic that the record was read from. On
    send, the latest entry is completed with the topic that the record is produced into, if that entry has
    only been read, as in a mirror; otherwise such an entry is added. Consumed records keep their trail, and
    records that are sent while one is processed continue its trail. If a trail exceeds a bound, its first
    entry and its latest entries stay; the others are dropped and counted.

    Args:
        service: the name of the service in its entries; None means the client's id, or the host's name if
            the client has no id.
        cluster: a readable name of the cluster; None means the cluster's id, for which the first record
            waits, two seconds at most.
        max_entries: the maximum number of entries in a trail, 2 to 1,000.
        max_bytes: the maximum size of the header's value, in bytes; also that of ``hw.trail.proof``.
        signed: whether each entry is signed on send, in ``hw.trail.proof``, and verified on consume. It needs
            ``keyring``.
        keyring: path of the keyring file (spec/keyring.md), a text or any ``os.PathLike``. In a TOML file it
            is relative to that file.
        key_id: the key to sign with; None means the key with the id of ``service``. Consumers need none.
        signers: services that keys may speak for, as ``KEY=SERVICE``: a key's id, and the name of a service,
            in which ``*`` and ``?`` are wildcards, after the last ``=``. Without this, a key may speak for
            the service that has the name of its id, and for ``service/...``.
        require: what happens to a consumed record whose trail is missing or not proven: ``off`` passes it
            without verifying anything, ``warn`` counts it and logs each topic once, ``enforce`` refuses it.
            False and True mean off and enforce.
        accept_origins: other topics whose records are proven here, and at each hop before, if a mirror copies
            them byte for byte without an entry: ``cluster/topic``, in which ``*`` and ``?`` are wildcards,
            and ``{topic}`` is the topic that is read.
        batch_records: how many records that are sent together one signature covers at most, 1 to 65,535, as
            in ``sign``. It pays for asymmetric keys when signing takes more time than can be spent: each
            record has a path of 32 bytes for each doubling in addition to the signature.
        keyring_permissions: ``owner``, or ``kubernetes`` for a mounted secret: symbolic links, and files
            that the group can read.
        keyring_max_stale_ms: how long the last good keyring is used while the file is missing or broken,
            in milliseconds; then nothing is signed or proven until it is good again.
        keyring_root: path of a keyring file with the public half of an offline root. The keyring must then
            be a snapshot that the root has signed, newer than earlier snapshots and not expired.
        keyring_counter: with ``keyring_root``, a file in which to remember the counter of the newest
            snapshot, so that no older snapshot is accepted after a restart.

    Raises:
        ConfigError: an option is not valid, or is one of a signed trail and ``signed`` is not set.

    If a client works on one batch after the other, as Spark does, entries name ``service/job#batch``.

    Safe for use by several threads at once.
    """

    type: ClassVar[str] = "trail"
    place: ClassVar[Place | None] = Place.TRAIL
    names_cluster: ClassVar[bool] = True

    service: str | None = None
    cluster: str | None = None
    max_entries: Annotated[int, msgspec.Meta(ge=2, le=1000)] = 32
    max_bytes: Annotated[int, msgspec.Meta(ge=MIN_BOUND_BYTES, le=_MAX_TRAIL_BYTES)] = 4096
    signed: bool = False
    keyring: Annotated[str | None, PATH] = None
    key_id: str | None = None
    signers: tuple[str, ...] = ()
    require: Require = "off"
    accept_origins: tuple[str, ...] = ()
    batch_records: Annotated[int, msgspec.Meta(ge=1, le=0xFFFF)] = 1
    keyring_permissions: Literal["owner", "kubernetes"] = "owner"
    keyring_max_stale_ms: Annotated[int, msgspec.Meta(ge=0)] = 300_000
    keyring_root: Annotated[str | None, PATH] = None
    keyring_counter: Annotated[str | None, PATH] = None

    def __post_init__(self) -> None:
        """Normalize the options, and refuse options that are not valid."""
        msgspec.structs.force_setattr(self, "require", requirement(self.require))
        if self.keyring is not None:
            msgspec.structs.force_setattr(self, "keyring", os.fspath(self.keyring))
        Origins(self.accept_origins)
        for signer in self.signers:
            if not all(signer.rpartition("=")):
                raise ConfigError(f"expected KEY=SERVICE, found {signer!r}", path="signers")
        if self.signed and not self.keyring:
            raise ConfigError("a signed trail needs the path of a keyring", path="keyring")
        if not self.signed:
            for option in _OF_SIGNED:
                if getattr(self, option) not in (None, "off", (), 1):
                    raise ConfigError("this is about signed trails: set signed = true, too", path=option)
        if not 1 <= self.batch_records <= _MAX_BATCH:
            raise ConfigError(f"expected 1 to {_MAX_BATCH}, found {self.batch_records}", path="batch_records")
        if self.keyring_counter is not None and self.keyring_root is None:
            raise ConfigError("only snapshots have counters: set keyring_root, too", path="keyring_counter")

    @property
    def caution(self) -> str | None:
        """That records carry the host's name, unless the service or each client has a name."""
        return None if self.service else _UNNAMED

    @property
    def role(self) -> Role:  # type: ignore[override]  # a trail that is proof protects
        """PROTECT for signed trails, because a failure must not be skipped; otherwise OBSERVE."""
        return Role.PROTECT if self.signed else Role.OBSERVE

    @property
    def reveals(self) -> str | None:
        """What a signed trail reveals about values that a later step hides."""
        return _REVEALS if self.signed else None

    def check_files(self) -> None:
        """Read the keyring and the file of its root if this machine has them."""
        if self.keyring is not None:
            from headerware.keyring.file import check_keyring, of_keyring_option  # noqa: PLC0415 - see open

            with of_keyring_option("keyring", "keyring_root"):
                check_keyring(self.keyring, self.keyring_root)

    def open(self, context: Context) -> TrailStep:
        """Return the hooks for one session.

        Raises:
            ConfigError: a producer's signed trail has neither ``key_id`` nor ``service``.
            KeyringError: the keyring cannot be read, or does not have the key to sign with.
        """
        if not self.signed:
            return TrailStep(self, context)
        from headerware.interceptors.trail_proof import SignedTrailStep  # noqa: PLC0415 - it loads keys

        return SignedTrailStep(self, context)

    def carried_on(self, headers: Headers) -> Pair | Headers | None:
        """Return the trail that is continued for a consumed record, or None if it has no valid trail.

        If the trail has proofs, they are returned with it. A signed trail keeps to its bounds on send, where
        the proofs of dropped entries are folded.
        """
        trail, proofs = (
            next((pair for pair in reversed(headers) if pair[0] == name), None)
            for name in (TRAIL_HEADER, PROOF_HEADER)
        )
        if trail is None:
            return None
        try:
            value = checked_trail(trail[1])
            if not self.signed:
                value = bounded(value, self.max_entries, self.max_bytes)
        except WireFormatError:
            return None  # a new trail begins here
        if proofs is None or len(proofs[1] or b"") > _MAX_TRAIL_BYTES:
            return TRAIL_HEADER, value
        return Headers.trusted(((TRAIL_HEADER, value), proofs))


class Parts(msgspec.Struct, frozen=True):
    """The parts that all entries about one topic share."""

    entry: bytes
    """An entry without its time."""
    completion: bytes | None
    """The bytes that complete the latest entry; None for entries that are read."""


class TrailStep:
    """The hooks of one session, without signatures."""

    __slots__ = (
        "_by_whom",
        "_cluster",
        "_find_cluster",
        "_max_bytes",
        "_max_entries",
        "_now_ms",
        "_produced",
        "_read",
        "_service",
        "carried_on",
    )

    def __init__(self, options: Trail, context: Context) -> None:
        self._now_ms = context.now_ms
        self._find_cluster = context.awaited_cluster_id
        self._cluster = options.cluster
        self._by_whom = options.service or context.client_id or socket.gethostname() or None
        self._service = self._by_whom
        self._max_entries, self._max_bytes = options.max_entries, options.max_bytes
        self.carried_on: Callable[[Headers], Pair | Headers | None] = options.carried_on
        self._forget_parts()

    def begin(self, work: str) -> None:
        """Name ``service/work`` in entries from now on, so that they state the job and its batch."""
        by_whom = f"{self._service}/{work}" if self._service else work
        if by_whom != self._by_whom:
            self._by_whom = by_whom
            self._forget_parts()

    def on_send(self, record: Record) -> Record:
        """Complete the latest entry, or add an entry."""
        if self._cluster is None:
            self._look_for_cluster()
        return self._with_entry(record, self._produced[record.topic])

    def on_consume(self, record: Record) -> Record:
        """Add an entry."""
        if self._cluster is None:
            self._look_for_cluster()
        return self._with_entry(record, self._read[record.topic])

    def on_send_batch(self, batch: Batch) -> Batch:
        """Do as :meth:`on_send` for each record; all entries have the same time."""
        if self._cluster is None:
            self._look_for_cluster()
        return self._with_entries(batch, self._produced[batch.topic])

    def on_consume_batch(self, batch: Batch) -> Batch:
        """Do as :meth:`on_consume` for each record; all entries have the same time."""
        if self._cluster is None:
            self._look_for_cluster()
        return self._with_entries(batch, self._read[batch.topic])

    def native_form(self, direction: Direction, topic: str) -> NativeForm:
        """Return the native form of a batch hook."""
        step = "trail_sent" if direction == "send" else "trail_read"

        def state(_batch: Batch) -> NativeState:
            if self._cluster is None:
                self._look_for_cluster()
            parts = (self._produced if direction == "send" else self._read)[topic]
            made_of = self._by_whom, self._cluster, self._max_entries, self._max_bytes
            return NativeState(step, parts, lambda: made_of, lambda: (self._now_ms(),))

        return NativeForm(state)

    def _with_entry(self, record: Record, parts: Parts) -> Record:
        """Continue the trail of the record, or the last one if there are several, or begin one."""
        others, trail = apart(record.headers)
        value = self._extended(trail, parts, self._now_ms())
        return record.with_headers(_new_headers(Headers, (*others, (TRAIL_HEADER, value))))

    def _with_entries(self, batch: Batch, parts: Parts) -> Batch:
        now_ms = self._now_ms()
        if TRAIL_HEADER not in header_names(batch.headers):
            return batch.append_header(
                TRAIL_HEADER, Repeated(self._extended(None, parts, now_ms), len(batch))
            )
        # Records that were sent together often have the same trail.
        extended: dict[Pair | None, Pair] = {}
        failures: dict[int, Exception] = {}
        headers: list[Headers] = []
        for at, own in enumerate(batch.headers):
            others, trail = apart(own)
            pair = extended.get(trail)
            if pair is None:
                try:
                    pair = TRAIL_HEADER, self._extended(trail, parts, now_ms)
                except WireFormatError as error:
                    failures[at] = error
                    headers.append(own)
                    continue
                extended[trail] = pair
            headers.append(_new_headers(Headers, (*others, pair)))
        return batch.replace(headers=headers, failures=failures)

    def _extended(self, trail: Pair | None, parts: Parts, now_ms: int) -> bytes:
        if trail is None:
            return b"1,at=%d%b" % (now_ms, parts.entry)
        return bounded(continued(checked_trail(trail[1]), parts, now_ms), self._max_entries, self._max_bytes)

    def _look_for_cluster(self) -> None:
        """Use the cluster's id once it is known; forget the parts that were made without it."""
        self._cluster = self._find_cluster()
        if self._cluster is not None:
            self._forget_parts()

    def _forget_parts(self) -> None:
        # New caches, not cleared ones: a thread that is making parts may still fill the old caches.
        self._produced: BoundedCache[str, Parts] = BoundedCache(_MAX_TOPICS, self._produced_into)
        self._read: BoundedCache[str, Parts] = BoundedCache(_MAX_TOPICS, self._read_from)

    def _produced_into(self, topic: str) -> Parts:
        entry = TrailEntry(
            when_ms=0,
            by_whom=self._by_whom,
            produced_into_cluster=self._cluster,
            produced_into_topic=topic,
        )
        completion = msgspec.structs.replace(entry, by_whom=None)
        return Parts(entry=_encode_texts(entry), completion=_encode_texts(completion))

    def _read_from(self, topic: str) -> Parts:
        entry = TrailEntry(
            when_ms=0, by_whom=self._by_whom, read_from_cluster=self._cluster, read_from_topic=topic
        )
        return Parts(entry=_encode_texts(entry), completion=None)


class TrailEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of a trail: a service read the record from a topic, produced it into one, or both.

    Args:
        by_whom: the service, or None if the entry names none.
        produced_into_cluster: the cluster that the record was produced into, or None if that is not known.
        produced_into_topic: the topic that the record was produced into; None if it was only read.
        when_ms: when the entry was made, in milliseconds since the epoch, by the service's clock.
        read_from_cluster: the cluster that the record was read from, or None if that is not known.
        read_from_topic: the topic that the record was read from; None if it was only produced.
    """

    by_whom: str | None = None
    produced_into_cluster: str | None = None
    produced_into_topic: str | None = None
    when_ms: int
    read_from_cluster: str | None = None
    read_from_topic: str | None = None


class TrailReading(msgspec.Struct, frozen=True):
    """A trail that was read: a sequence of entries, and how many were dropped.

    Args:
        entries: the entries, oldest first.
        left_out: how many entries between the first and the second were dropped, to stay within a bound.
    """

    entries: tuple[TrailEntry, ...] = ()
    left_out: int = 0

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self.entries)

    def __iter__(self) -> Iterator[TrailEntry]:
        """Iterate over the entries, oldest first."""
        return iter(self.entries)

    def __getitem__(self, index: int) -> TrailEntry:
        """Return one entry; -1 is the latest."""
        return self.entries[index]


def read_trail(headers: HeadersLike) -> TrailReading:
    """Read the trail in a record's headers; it is empty if there is none.

    Args:
        headers: headers in any of the forms that Headerware takes; of several trails the last counts.

    Raises:
        WireFormatError: the header does not follow spec/trail.md.
        HeaderError: ``headers`` has none of these forms.
    """
    values = Headers(headers).all(TRAIL_HEADER)
    return decode_trail(values[-1]) if values else TrailReading()


def decode_trail(value: bytes | None) -> TrailReading:
    """Decode the value of one ``hw.trail`` header."""
    start, *entries = checked_trail(value).split(b",")
    return TrailReading(tuple(map(_decode_entry, entries, range(len(entries)))), count_left_out(start))


def encode_trail(reading: TrailReading) -> bytes:
    """Encode a trail as the value of ``hw.trail``; texts are cut if they take more than 255 bytes."""
    if not 0 <= reading.left_out <= MAX_LEFT_OUT:
        message = f"{TRAIL_HEADER}: expected 0 to {MAX_LEFT_OUT} entries left out, found {reading.left_out}"
        raise WireFormatError(message)
    value = _encode_start(reading.left_out) + b"".join(map(_encode_entry, reading.entries))
    if len(value) > _MAX_TRAIL_BYTES:
        message = f"{TRAIL_HEADER}: expected at most {_MAX_TRAIL_BYTES} bytes, found {len(value)}"
        raise WireFormatError(message)
    return value


def _encode_entry(entry: TrailEntry) -> bytes:
    """Encode one entry, the comma before it included."""
    if entry.when_ms not in _TIMES:
        message = f"{TRAIL_HEADER}: expected a time of signed 64 bits, found {entry.when_ms}"
        raise WireFormatError(message)
    return b",at=%d%b" % (entry.when_ms, _encode_texts(entry))


def _encode_texts(entry: TrailEntry) -> bytes:
    """Encode an entry without its time."""
    by_whom = "" if entry.by_whom is None else f";by={_quoted(entry.by_whom, _PLAIN + '/')}"
    read_from = _encode_place(";from=", entry.read_from_cluster, entry.read_from_topic)
    produced_into = _encode_place(";into=", entry.produced_into_cluster, entry.produced_into_topic)
    return f"{by_whom}{read_from}{produced_into}".encode()


def apart(headers: Headers) -> tuple[list[Pair], Pair | None]:
    """Return the headers without trails, and the last trail."""
    others: list[Pair] = []
    trail: Pair | None = None
    for pair in headers:
        if pair[0] == TRAIL_HEADER:
            trail = pair
        else:
            others.append(pair)
    return others, trail


def checked_trail(value: bytes | None) -> bytes:
    """Return a trail that an entry can be added to, or raise WireFormatError; do not decode its entries."""
    if (
        value is not None
        and len(value) <= _MAX_TRAIL_BYTES
        and value.isascii()
        and (value.startswith(_BEGINNINGS) or value == _START)
    ):
        return value
    raise WireFormatError(_why_not(value))


def continued(value: bytes, parts: Parts, now_ms: int) -> bytes:
    """Complete the latest entry of a checked trail, or add an entry; the trail may then exceed its bounds."""
    if parts.completion is not None and _is_completable(value):
        return value + parts.completion
    return b"%b,at=%d%b" % (value, now_ms, parts.entry)


def _is_completable(value: bytes) -> bool:
    """Return whether the latest entry was read, but not yet produced."""
    latest = value.rfind(b",")
    return value.find(b";from=", latest) > 0 > value.find(b";into=", latest)


def bounded(value: bytes, max_entries: int, max_bytes: int) -> bytes:
    if value.count(b",at=") > max_entries or len(value) > max_bytes:
        return shortened(value, max_entries, max_bytes)
    return value


def shortened(value: bytes, max_entries: int, max_bytes: int) -> bytes:
    """Drop as few entries as possible from the second on, and count them; the first and the latest stay."""
    start, first, *others = value.split(b",")
    left_out = count_left_out(start)
    dropped = max(0, len(others) + 1 - max_entries)
    size = len(first) + 1 + sum(len(entry) + 1 for entry in others[dropped:])
    while len(_encode_start(left_out + dropped)) + size > max_bytes and dropped < len(others) - 1:
        size -= len(others[dropped]) + 1
        dropped += 1
    short = b",".join((_encode_start(left_out + dropped), first, *others[dropped:]))
    if len(short) > max_bytes:
        message = f"{TRAIL_HEADER}: expected entries of at most {MAX_ENTRY_BYTES} bytes, found a longer one"
        raise WireFormatError(message)
    return short


def count_left_out(start: bytes) -> int:
    found = _start.fullmatch(start)
    left_out = int(found[1] or 0) if found else MAX_LEFT_OUT + 1
    if left_out > MAX_LEFT_OUT:
        message = f'{TRAIL_HEADER}: expected a start of "1", or of "1;left=" and 1 to {MAX_LEFT_OUT}'
        raise WireFormatError(message)
    return left_out


def _encode_start(left_out: int) -> bytes:
    return b"%b;left=%d" % (_START, min(left_out, MAX_LEFT_OUT)) if left_out else _START


def _decode_entry(entry: bytes, index: int) -> TrailEntry:
    found = _entry.fullmatch(entry)
    try:
        if found is None or int(found[1]) not in _TIMES:
            raise ValueError  # noqa: TRY301 - one message for all below
        _, by_whom, *places = found.groups()
        texts = [_unquoted(by_whom, _PLAIN + "/"), *map(_decode_part, places)]
        if _NO_PLACE in (places[:2], places[2:]):
            raise ValueError  # noqa: TRY301
    except ValueError:
        message = (
            f"{TRAIL_HEADER}: entry {index} is malformed, expected at=, by=, from= and into= with texts in "
            "their one encoding (spec/trail.md)"
        )
        raise WireFormatError(message) from None
    return TrailEntry(
        when_ms=int(found[1]),
        by_whom=texts[0],
        read_from_cluster=texts[1],
        read_from_topic=texts[2],
        produced_into_cluster=texts[3],
        produced_into_topic=texts[4],
    )


def _encode_place(label: str, cluster: str | None, topic: str | None) -> str:
    if cluster is None and topic is None:
        return ""
    return f"{label}{_encode_part(cluster)}/{_encode_part(topic)}"


def _encode_part(text: str | None) -> str:
    return "?" if text is None else _quoted(text, _PLAIN)


def _quoted(text: str, plain: str) -> str:
    """Percent-encode a text; it is cut after the last complete character that fits."""
    quoted = quote(text, plain, errors="replace")
    while len(quoted) > _MAX_TEXT_BYTES:
        text = text[: min(len(text) - 1, _MAX_TEXT_BYTES)]
        quoted = quote(text, plain, errors="replace")
    return quoted


def _decode_part(part: bytes | None) -> str | None:
    return None if part == b"?" else _unquoted(part, _PLAIN)


def _unquoted(quoted: bytes | None, plain: str) -> str | None:
    """Decode a text; raise ValueError if it is not UTF-8, too long, or not in its one encoding."""
    if quoted is None:
        return None
    text = unquote_to_bytes(quoted).decode() if b"%" in quoted else quoted.decode()
    if len(quoted) > _MAX_TEXT_BYTES or (b"%" in quoted and quote(text, plain).encode() != quoted):
        raise ValueError
    return text


def _why_not(value: bytes | None) -> str:
    if value is None:
        return f"{TRAIL_HEADER}: expected a trail, found null"
    if len(value) > _MAX_TRAIL_BYTES:
        return f"{TRAIL_HEADER}: expected at most {_MAX_TRAIL_BYTES} bytes, found {len(value)}"
    if value.isascii():
        return f"{TRAIL_HEADER}: expected version {_VERSION}, found another version"
    return f"{TRAIL_HEADER}: expected percent-encoded texts, found bytes that are not ASCII"
