"""Trail: the paper trail of a record, from its first producer through every mirror (seed 004).

Wire format: header ``hw.trail``, laid out in :mod:`headerware.interceptors.trail_entries`.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal

import msgspec

from headerware.core.headers import Headers, Pair
from headerware.core.hooks import Interceptor, Place, Role
from headerware.interceptors.trail_entries import (
    MAX_ENTRY_BYTES,
    MAX_START_BYTES,
    MAX_TRAIL_BYTES,
    TRAIL_HEADER,
    TrailEntry,
    checked,
    encode_texts,
    is_completable,
    shortened,
)

if TYPE_CHECKING:
    from headerware.core.context import Context
    from headerware.core.record import Record

MIN_BOUND_BYTES: Final = MAX_START_BYTES + 2 * MAX_ENTRY_BYTES
"""Two entries of the largest size: below that the first and the latest might not fit."""

_MAX_TOPICS: Final = 1024
_new_headers: Final = tuple.__new__
"""Headers of pairs that are known to be right, without a further call."""


class Trail(Interceptor, frozen=True, kw_only=True):
    """Write down by whom, when, from where and into where a record went, in ``hw.trail``.

    On consume an entry is added: by whom, when, read from. On send the latest entry is completed when it
    was read but not yet produced, as in a mirror; otherwise an entry is added: by whom, when, produced
    into. The trail stays on consumed records, so that an application that sends their headers on
    continues it. Over a bound the first entry and the latest ones stay; the others are counted.

    Args:
        service: by whom; the client's id where it is None, and the host's name where that is None too.
        cluster: a readable name of the cluster; its id, once it is known, where this is None.
        max_entries: the bound on entries.
        max_bytes: the bound on the header's value.

    Where a client works at one thing after the other, as Spark does with its batches, entries are by
    ``service/job#batch``.

    Safe for use by several threads at once.
    """

    type: ClassVar[str] = "trail"
    role: ClassVar[Role] = Role.OBSERVE
    place: ClassVar[Place | None] = Place.TRAIL

    service: str | None = None
    cluster: str | None = None
    max_entries: Annotated[int, msgspec.Meta(ge=2, le=1000)] = 32
    max_bytes: Annotated[int, msgspec.Meta(ge=MIN_BOUND_BYTES, le=MAX_TRAIL_BYTES)] = 4096

    def open(self, context: Context) -> _TrailStep:
        """Return the hooks for one session."""
        return _TrailStep(self, context)


class _Parts(msgspec.Struct, frozen=True):
    """What is the same for every entry about one topic, behind its time."""

    entry: bytes
    completion: bytes | None
    """What completes the latest entry; None where nothing may."""


_Verb = Literal["produced_into", "read_from"]


class _TrailStep:
    """The hooks of one session."""

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
    )

    def __init__(self, options: Trail, context: Context) -> None:
        self._now_ms = context.now_ms
        self._find_cluster = context.cluster_id
        self._cluster = options.cluster
        self._by_whom = options.service or context.client_id or socket.gethostname() or None
        self._service = self._by_whom
        self._max_entries, self._max_bytes = options.max_entries, options.max_bytes
        self._produced: dict[str, _Parts] = {}
        self._read: dict[str, _Parts] = {}

    def begin(self, work: str) -> None:
        """Write entries as ``service/work`` from now on, so that they say which batch of a job it was."""
        by_whom = f"{self._service}/{work}" if self._service else work
        if by_whom != self._by_whom:
            self._by_whom = by_whom
            self._produced, self._read = {}, {}

    def on_send(self, record: Record) -> Record:
        """Complete the latest entry, or add one."""
        topic, headers = record.topic, record.headers
        if self._cluster is None:
            self._look_for_cluster()
        parts = self._produced.get(topic) or self._new_parts(topic, self._produced, "produced_into")
        for pair in headers:
            if pair[0] == TRAIL_HEADER:
                return self._continued(record, parts, pair[1])
        fresh = b"1,at=%d%b" % (self._now_ms(), parts.entry)
        return record.with_headers(_new_headers(Headers, (*headers, (TRAIL_HEADER, fresh))))

    def on_consume(self, record: Record) -> Record:
        """Add an entry."""
        topic, headers = record.topic, record.headers
        if self._cluster is None:
            self._look_for_cluster()
        parts = self._read.get(topic) or self._new_parts(topic, self._read, "read_from")
        for pair in headers:
            if pair[0] == TRAIL_HEADER:
                return self._continued(record, parts, pair[1])
        fresh = b"1,at=%d%b" % (self._now_ms(), parts.entry)
        return record.with_headers(_new_headers(Headers, (*headers, (TRAIL_HEADER, fresh))))

    def _continued(self, record: Record, parts: _Parts, found: bytes | None) -> Record:
        """Go on with the trail that is there: the last one, where there are several."""
        headers = record.headers
        others: list[Pair] = [pair for pair in headers if pair[0] != TRAIL_HEADER]
        if len(others) + 1 < len(headers):
            found = headers.last(TRAIL_HEADER)
        value = checked(found)
        if parts.completion is not None and is_completable(value):
            value += parts.completion
        else:
            value = b"%b,at=%d%b" % (value, self._now_ms(), parts.entry)
        if value.count(b",at=") > self._max_entries or len(value) > self._max_bytes:
            value = shortened(value, self._max_entries, self._max_bytes)
        others.append((TRAIL_HEADER, value))
        return record.with_headers(_new_headers(Headers, others))

    def _look_for_cluster(self) -> None:
        """Take the cluster's id once it is known; what was prepared without it is made anew."""
        self._cluster = self._find_cluster()
        if self._cluster is not None:
            # Other dicts, for a thread that prepares without the id still holds the old ones.
            self._produced, self._read = {}, {}

    def _new_parts(self, topic: str, known: dict[str, _Parts], verb: _Verb) -> _Parts:
        """Prepare what is the same for every entry about a topic."""
        if len(known) >= _MAX_TOPICS:
            known.clear()
        place = {f"{verb}_cluster": self._cluster, f"{verb}_topic": topic}
        parts = known[topic] = _Parts(
            entry=encode_texts(TrailEntry(when_ms=0, by_whom=self._by_whom, **place)),
            completion=encode_texts(TrailEntry(when_ms=0, **place)) if verb == "produced_into" else None,
        )
        return parts
