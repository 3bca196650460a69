"""Records, which are immutable, and the facts that a step has verified about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, Final, Literal

import msgspec

from headerware.core.headers import EMPTY, Headers

VERIFIED: Final = "headerware.verified"
"""The key of :class:`Verified` in ``record.local``."""


CERTIFIED: Final = "headerware.certified"
"""The key in ``record.local`` of the thumbprint that the signing key must have, if a step demands one."""

ORIGINAL: Final = "headerware.original"
"""The key in ``record.local`` of the record as it was on the wire, if a session keeps it."""


class TimestampType(IntEnum):
    """The origin of a record's timestamp, numbered as in confluent-kafka."""

    NOT_AVAILABLE = 0
    CREATE_TIME = 1
    LOG_APPEND_TIME = 2


class Verified(msgspec.Struct, frozen=True, gc=False):
    """The verified facts of a consumed record, in ``record.verified`` and ``consumer.verified(message)``.

    A message that was reassembled from slices has the facts of its first slice; all its slices have one
    signer.

    Args:
        key_id: the id of the key that signed.
        key_version: the key's version.
        signed_at_ms: the time of signing, by the signer's clock, in milliseconds since the epoch.
        cluster: the cluster that it was signed for; empty if the signer did not know it.
        topic: the topic that it was signed for.
        producer: the session that signed, 8 bytes drawn at random.
        sequence: the number of the record in that session.
        uncovered: the names of the headers that the signature does not cover, in order.
        set_aside: these headers themselves, if the application is to get them; no step sees them.
        thumbprint: the JWK thumbprint (RFC 7638) of the key that signed; empty for HMAC.
        subject: the holder of the key, by the certificate with which ``admission`` admitted the record; empty
            without ``admission``.
        issuer: the issuer of this certificate; empty without ``admission``.
    """

    key_id: str
    key_version: int
    signed_at_ms: int
    cluster: str
    topic: str
    producer: bytes
    sequence: int
    uncovered: tuple[str, ...] = ()
    set_aside: Headers = EMPTY
    thumbprint: str = ""
    subject: str = ""
    issuer: str = ""

    @property
    def signer(self) -> tuple[str, bytes]:
        """The key's id and the session that signed with it: the same for all slices of one message."""
        return self.key_id, self.producer


class Record(msgspec.Struct, frozen=True):
    """One Kafka record, on its way to a topic or from one.

    Args:
        topic: the topic's name.
        value: the payload; bytes or None on the wire, anything at the object stage. None is a tombstone.
        key: the key, likewise.
        headers: the :class:`Headers`; pass ``Headers(...)`` to normalise a mapping or pairs.
        partition: the partition, or None to let the partitioner choose.
        timestamp_ms: milliseconds since the epoch, or None for the time of sending.
        timestamp_type: a :class:`TimestampType`.
        offset: the offset in the partition, or None before it is known.
        leader_epoch: the leader epoch in which it was read, or None.
        local: an interceptor's own state; it never travels and survives :meth:`replace`.
    """

    topic: str
    value: Any = None
    key: Any = None
    headers: Headers = EMPTY
    partition: int | None = None
    timestamp_ms: int | None = None
    timestamp_type: int = 0
    offset: int | None = None
    leader_epoch: int | None = None
    local: Mapping[str, Any] | None = None

    @property
    def verified(self) -> Verified | None:
        """The facts that a step has verified about a consumed record; None if no step has."""
        local = self.local
        return None if local is None else local.get(VERIFIED)

    def replace(self, **changes: Any) -> Record:
        """Return a copy with some fields changed."""
        return msgspec.structs.replace(self, **changes)

    def with_headers(self, headers: Headers) -> Record:
        """Return a copy with other headers; a third of the cost of :meth:`replace`."""
        return Record(
            self.topic,
            self.value,
            self.key,
            headers,
            self.partition,
            self.timestamp_ms,
            self.timestamp_type,
            self.offset,
            self.leader_epoch,
            self.local,
        )

    def with_value(self, value: Any, headers: Headers | None = None) -> Record:
        """Return a copy with another value, and other headers if any are given.

        It costs a third of :meth:`replace`.
        """
        return Record(
            self.topic,
            value,
            self.key,
            self.headers if headers is None else headers,
            self.partition,
            self.timestamp_ms,
            self.timestamp_type,
            self.offset,
            self.leader_epoch,
            self.local,
        )

    def with_parts(self, value: Any, key: Any, headers: Headers, local: Mapping[str, Any] | None) -> Record:
        """Return a copy with another value, key, headers and local state."""
        return Record(
            self.topic,
            value,
            key,
            headers,
            self.partition,
            self.timestamp_ms,
            self.timestamp_type,
            self.offset,
            self.leader_epoch,
            local,
        )

    def with_local(self, name: str, state: Any) -> Record:
        """Return a copy with the state of an interceptor, under a name of its own."""
        return Record(
            self.topic,
            self.value,
            self.key,
            self.headers,
            self.partition,
            self.timestamp_ms,
            self.timestamp_type,
            self.offset,
            self.leader_epoch,
            {name: state} if self.local is None else {**self.local, name: state},
        )

    def __repr__(self) -> str:
        """Show the position and sizes only, for payloads may be secret."""
        return (
            f"Record(topic={self.topic!r}, partition={self.partition}, offset={self.offset}, "
            f"key={_size(self.key)}, value={_size(self.value)}, headers={self.headers!r})"
        )


class RecordMetadata(msgspec.Struct, frozen=True):
    """The position that the broker gave a record (KIP-42's acknowledgement).

    Args:
        topic: the topic's name.
        partition: the partition, or None if none was chosen.
        offset: the offset, or None if the broker returned none.
        timestamp_ms: the record's timestamp in milliseconds since the epoch, or None.
    """

    topic: str
    partition: int | None = None
    offset: int | None = None
    timestamp_ms: int | None = None


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a client to its cluster that concerns several records.

    Args:
        name: of a consumer: ``receive``, for a poll or a consume that returned records (of ``run``, for each
            record that a handler gets), or ``commit``. Of a producer: ``begin_transaction``,
            ``commit_transaction`` or ``abort_transaction``; the records of a transaction are acknowledged
            before its end is reported.
        began_ns: when it began, in nanoseconds since the epoch.
        ended_ns: when it ended; equal to ``began_ns`` for a commit that librdkafka made by itself.
        records: the records that the application receives, as it sees them.
        offsets: the topic-partitions of a commit, with their offsets.
        error: why it failed, or None.
    """

    name: Literal["receive", "commit", "begin_transaction", "commit_transaction", "abort_transaction"]
    began_ns: int
    ended_ns: int
    records: Sequence[Record] = ()
    offsets: Sequence[Any] = ()
    error: BaseException | None = None


def bytes_of(record: Record) -> int:
    """Return the length of a record's key, value and headers; objects count as 0."""
    key, value = record.key, record.value
    size = len(value) if value.__class__ is bytes or value.__class__ is str else 0
    if key.__class__ is bytes or key.__class__ is str:
        size += len(key)
    for name, content in record.headers:
        size += len(name) if content is None else len(name) + len(content)
    return size


def _size(payload: Any) -> str:
    if payload is None:
        return "null"
    if isinstance(payload, bytes | str):
        return f"{len(payload)} bytes"
    return type(payload).__name__
