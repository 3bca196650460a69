"""Claim check: large values go to an object store, and records carry a claim on them (spec/claim-check.md).

The layout of ``hw.claim``, before it becomes base64 text:

    0      1          17         49           57      58            58+n
    +------+----------+----------+------------+-------+-------------+---------+
    | 0x01 | id       | SHA-256  | length     | n     | alias       | topic   |
    +------+----------+----------+------------+-------+-------------+---------+

SHA-256 and length are of the object: the value as it comes to this step, so encrypted if ``encrypt`` is
to the left. The alias names a store of the configuration, and the object's name in it is the topic, a slash
and the id in hexadecimal. So a record can name neither an address nor a path.

The id is random. A name made from the content would show which values are equal, and an object that several
records share could be deleted with none of them. The record's value is a fixed text, not null, because a null
value would delete the record's key from a compacted topic, and because a record without its header could then
not be distinguished from a tombstone.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import struct
import time
from collections.abc import Mapping
from io import BytesIO
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, NamedTuple

from msgspec import Meta
from msgspec.structs import force_setattr

from headerware.core.boundary import header_ids_advice
from headerware.core.errors import (
    ClaimError,
    ConfigError,
    HeldBackError,
    MissingObjectError,
    NoSuchObjectError,
    ObjectStoreError,
    WireFormatError,
)
from headerware.core.header_text import decode_text, encode_text
from headerware.core.headers import Headers
from headerware.core.hooks import Interceptor, Place, Role
from headerware.core.options import from_option, kinds
from headerware.core.topics import TopicPatterns, check_patterns, is_topic_name
from headerware.object_store.store import ObjectStore, object_store_type, open_object_store

if TYPE_CHECKING:
    from headerware.core.context import Context
    from headerware.core.record import Record

CLAIM_HEADER: Final = "hw.claim"
STUB: Final = b"The value of this record is an object in a store; its header hw.claim says which.\n"
"""The value of every record with a claim."""
ID_BYTES: Final = 16

_VERSION: Final = 1
_FIXED: Final = struct.Struct(f">B{ID_BYTES}s32sQB")
_ALIAS: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_DEFAULT_MIN_BYTES: Final = 900_000
_SLOWEST_BYTES_PER_S: Final = 1 << 20
_PAUSE_S: Final = 1.0
"""How long a store that has kept a reader waiting is not asked again, at most: a batch takes less."""
_new_headers: Final = tuple.__new__


class Claim(NamedTuple):
    """A record's reference to the object that is its value."""

    store: str
    """The alias of the store, as configurations name it."""
    topic: str
    """The topic that the record was first sent to."""
    object_id: bytes
    """16 random bytes."""
    sha256: bytes
    """The digest of the object."""
    length: int
    """The size of the object, in bytes."""

    @property
    def name(self) -> str:
        """The name of the object in its store: the topic, a slash and the id in hexadecimal."""
        return f"{self.topic}/{self.object_id.hex()}"

    def encode(self) -> bytes:
        """Return the value of ``hw.claim``."""
        alias = self.store.encode()
        fixed = _FIXED.pack(_VERSION, self.object_id, self.sha256, self.length, len(alias))
        return encode_text(fixed + alias + self.topic.encode())


def decode_claim(text: bytes | None) -> Claim:
    """Decode the value of ``hw.claim``.

    Raises:
        WireFormatError: the value has another layout, or a name in it is not valid.
    """
    layout = decode_text(text, CLAIM_HEADER)
    if layout[0] != _VERSION:
        raise WireFormatError(f"{CLAIM_HEADER}: expected version {_VERSION}, found {layout[0]}")
    if len(layout) <= _FIXED.size:
        raise WireFormatError(f"{CLAIM_HEADER}: it is cut after {len(layout)} bytes")
    _, object_id, sha256, length, alias_bytes = _FIXED.unpack_from(layout)
    names = layout[_FIXED.size :].decode("latin-1")
    alias, topic = names[:alias_bytes], names[alias_bytes:]
    if not _ALIAS.fullmatch(alias):
        raise WireFormatError(f"{CLAIM_HEADER}: its alias is not valid for a store")
    if not is_topic_name(topic):
        raise WireFormatError(f"{CLAIM_HEADER}: its topic is not a valid name")
    return Claim(alias, topic, object_id, sha256, length)


class ClaimCheck(Interceptor, frozen=True, kw_only=True):
    """Send large values to an object store, and fetch them on consume.

    An object is stored before its record is sent, so no record claims an object that was never stored. If
    sending fails afterwards, the object is an orphan (``headerware claims orphans`` finds it).

    Args:
        stores: the object stores by alias; by type: ``folder`` or ``s3``. All clients of a topic use the same
            aliases. A record that names another alias is refused.
        store: the alias of the store that values are sent to; None if there is one store only.
        min_bytes: the size in bytes above which a value goes to the store; None means 900,000, or nine tenths
            of the client's largest message if that is less.
        max_object_bytes: the largest object that is stored or fetched, in bytes.
        accept_topics: patterns of other topics whose claims are accepted here, too, such as the topics of
            dead letters and mirrored records.
        timeout_ms: how long a store may take for one object, in milliseconds, with one second more for each
            mebibyte of the object.

    Raises:
        ConfigError: there is no store, an alias is not valid, or options contradict one another; on opening,
            a producer has several stores and no ``store`` to write to.
    """

    type: ClassVar[str] = "claim_check"
    role: ClassVar[Role] = Role.TRANSFORM
    place: ClassVar[Place | None] = Place.CLAIM_CHECK
    decodes: ClassVar[tuple[str, ...]] = (CLAIM_HEADER,)
    blocks: ClassVar[bool] = True

    stores: dict[str, Annotated[Any, kinds(object_store_type)]]
    store: str | None = None
    min_bytes: Annotated[int, Meta(ge=0)] | None = None
    max_object_bytes: Annotated[int, Meta(ge=1, le=5 << 30)] = 256 << 20
    accept_topics: tuple[str, ...] = ()
    timeout_ms: Annotated[int, Meta(ge=1, le=3_600_000)] = 30_000

    def __post_init__(self) -> None:
        """Normalize the options, and refuse options that are not valid."""
        if not self.stores:
            raise ConfigError("expected at least one store", path="stores")
        for alias in self.stores:
            if not _ALIAS.fullmatch(alias):
                raise ConfigError(
                    "expected aliases of 1 to 63 ASCII letters, digits, dots, underscores and hyphens",
                    path="stores",
                )
        opened = {
            alias: from_option(store, object_store_type, path=f"stores.{alias}")
            if isinstance(store, str | Mapping)
            else store
            for alias, store in self.stores.items()
        }
        force_setattr(self, "stores", opened)
        if self.store is None and len(self.stores) == 1:
            force_setattr(self, "store", next(iter(self.stores)))
        if self.store is not None and self.store not in self.stores:
            raise ConfigError(
                f"expected one of the stores' aliases ({', '.join(self.stores)}), found {self.store!r}",
                path="store",
            )
        if self.min_bytes is not None and self.min_bytes > self.max_object_bytes:
            raise ConfigError(
                f"expected at most max_object_bytes ({self.max_object_bytes}), found {self.min_bytes}: no "
                f"value would be stored",
                path="min_bytes",
            )
        check_patterns(self.accept_topics, path="accept_topics")

    @property
    def carries_bytes(self) -> tuple[int, int]:
        """The size above which this step stores values, and the largest value that it stores."""
        least = _DEFAULT_MIN_BYTES if self.min_bytes is None else self.min_bytes
        return min(least, self.max_object_bytes), self.max_object_bytes

    def open(self, context: Context) -> ClaimCheckStep:
        """Open the stores, and return the hooks of one session.

        Raises:
            ConfigError: a producer's chain has several stores and no ``store`` to write to.
            MissingPartError: a package that a store needs is not installed.
        """
        return ClaimCheckStep(self, context)


class ClaimCheckStep:
    """The hooks of one session; sending is safe for several threads, consuming has one caller.

    The counts are exact if the interpreter has its global lock, and approximate otherwise.
    """

    def __init__(self, options: ClaimCheck, context: Context) -> None:
        if options.store is None and context.side == "producer":
            raise ConfigError(
                f"there are several stores; expected the alias of the store to write to, one of "
                f"{', '.join(options.stores)}",
                path="store",
            )
        self._options: Final = options
        self._min_bytes: Final = _least(options, context)
        self._dry_run: Final = context.dry_run
        self._accepted: Final = TopicPatterns(options.accept_topics) if options.accept_topics else None
        self._stores: Final[dict[str, ObjectStore]] = {}
        self._failures: Final[dict[str, tuple[float, str]]] = {}
        """When a store that kept a reader waiting is asked again, by the monotonic clock, and its failure."""
        self._stored = self._stored_bytes = self._fetched = self._fetched_bytes = 0
        try:
            for alias, store in options.stores.items():
                self._stores[alias] = open_object_store(store, path=f"stores.{alias}")
        except BaseException:
            self.close()
            raise

    def on_send(self, record: Record) -> Record:
        """Store the value if it is large, and return the record with a claim on it."""
        value = record.value
        # A value that equals the stub is stored, too, so that a stub without a claim is always an error.
        if value is None or (len(value) <= self._min_bytes and value != STUB):
            return record
        options = self._options
        if len(value) > options.max_object_bytes:
            raise ClaimError(
                f"the value has {len(value)} bytes; max_object_bytes is {options.max_object_bytes}"
            )
        if options.store is None:
            raise ClaimError(
                "sending needs the store to write to, and there are several; set the option store"
            )
        if not is_topic_name(record.topic):
            raise ClaimError("the topic's name is not valid in Kafka")
        digest = hashlib.sha256(value).digest()
        claim = Claim(options.store, record.topic, os.urandom(ID_BYTES), digest, len(value))
        if not self._dry_run:
            try:
                self._stores[claim.store].put(claim.name, value, digest, self._timeout_s(claim.length))
            except ObjectStoreError as error:
                raise HeldBackError(f"cannot store the value, so nothing was sent: {error}") from error
        self._stored += 1
        self._stored_bytes += claim.length
        headers = _new_headers(Headers, (*record.headers, (CLAIM_HEADER, claim.encode())))
        return record.with_value(STUB, headers)

    def on_consume(self, record: Record) -> Record:
        """Fetch the value if there is ``hw.claim``, and remove that header."""
        claims = [value for name, value in record.headers if name == CLAIM_HEADER]
        if not claims:
            if record.value == STUB:
                raise ClaimError(
                    f"the value refers to a {CLAIM_HEADER} header, and there is none: it was taken off"
                    f"{header_ids_advice(record.headers)}"
                )
            return record
        if len(claims) > 1:
            raise ClaimError(f"{CLAIM_HEADER} appears {len(claims)} times, expected once")
        if record.value != STUB:
            raise ClaimError(f"it has a {CLAIM_HEADER}, and a value of its own")
        try:
            claim = decode_claim(claims[0])
        except WireFormatError as error:
            raise ClaimError(f"its claim cannot be read: {error}") from error
        value = self._fetch(claim, self._store_of(claim, record.topic))
        self._fetched += 1
        self._fetched_bytes += claim.length
        kept = [pair for pair in record.headers if pair[0] != CLAIM_HEADER]
        return record.with_value(value, _new_headers(Headers, kept))

    def stats(self) -> dict[str, int]:
        """Return the counts of values and of their bytes, in both directions."""
        return {
            "stored": self._stored,
            "stored_bytes": self._stored_bytes,
            "fetched": self._fetched,
            "fetched_bytes": self._fetched_bytes,
        }

    def close(self) -> None:
        """Close the stores; a second call does nothing."""
        while self._stores:
            self._stores.popitem()[1].close()

    def _store_of(self, claim: Claim, topic: str) -> ObjectStore:
        """Return the store of a claim that is accepted in a topic; no store is called."""
        if claim.topic != topic and not (self._accepted and self._accepted.matches(claim.topic)):
            raise ClaimError(
                f"it claims an object of the topic {claim.topic!r}; to accept claims of that topic, add the "
                f"topic to accept_topics"
            )
        store = self._stores.get(claim.store)
        if store is None:
            raise ClaimError(
                f"it claims an object of the store {claim.store!r}; configured are "
                f"{', '.join(sorted(self._stores))}; give the store the alias that the producer's chain has"
            )
        if claim.length > self._options.max_object_bytes:
            raise ClaimError(
                f"it claims an object of {claim.length} bytes; max_object_bytes is "
                f"{self._options.max_object_bytes}"
            )
        return store

    def _fetch(self, claim: Claim, store: ObjectStore) -> bytes:
        """Return the object of a claim; refuse any other content.

        After a failure for which it has waited, the store is not asked for a moment: each of the hundreds of
        records in a batch would wait as well.
        """
        began, timeout_s = time.monotonic(), self._timeout_s(claim.length)
        until, failure = self._failures.get(claim.store, (0.0, ""))
        if began < until:
            raise HeldBackError(failure)
        # No memory is allocated in advance for the stated length, and no bytes beyond it are kept.
        content, digest = BytesIO(), hashlib.sha256()
        cause: ObjectStoreError | None = None
        try:
            with store.read(claim.name, timeout_s) as found:
                if found.size_bytes != claim.length:
                    raise ClaimError(
                        f"its object has {found.size_bytes} bytes; the claim says {claim.length}"
                    )
                for chunk in found.chunks:
                    if content.tell() + len(chunk) > claim.length:
                        raise ClaimError(f"its object has more than the claim's {claim.length} bytes")
                    digest.update(chunk)
                    content.write(chunk)
        except NoSuchObjectError as error:
            raise MissingObjectError(
                f"its object is not there: {error}; it was deleted before its record, or the alias "
                f"{claim.store!r} is another store here than where the record was sent"
            ) from error
        except ObjectStoreError as error:
            cause = error
        if cause is not None or content.tell() < claim.length:
            returned = f"the store {claim.store!r} returned {content.tell()} of {claim.length} bytes"
            failure = f"cannot fetch the value: {cause or returned}"
            now = time.monotonic()
            if now - began >= min(_PAUSE_S, timeout_s / 2):
                self._failures[claim.store] = now + min(_PAUSE_S, now - began), failure
            raise HeldBackError(failure) from cause
        if not hmac.compare_digest(digest.digest(), claim.sha256):
            raise ClaimError("its object is another one: the digest differs from that of the claim")
        return content.getvalue()

    def _timeout_s(self, length: int) -> float:
        return self._options.timeout_ms / 1000 + length / _SLOWEST_BYTES_PER_S


def _least(options: ClaimCheck, context: Context) -> int:
    """Return the size above which values are stored."""
    if options.min_bytes is not None:
        return options.min_bytes
    client = None if context.side == "consumer" else context.max_message_bytes
    least = _DEFAULT_MIN_BYTES if client is None else min(_DEFAULT_MIN_BYTES, client * 9 // 10)
    return min(least, options.max_object_bytes)
