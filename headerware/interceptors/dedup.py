"""Dedup: every record says who it is, and a reader takes each one once (spec/dedup.md).

Kafka delivers at least once: a producer without idempotence, a task that is tried again or a mirror that
starts over write a record twice. On send a record gets an identity; on consume a copy is dropped. Where it
is not certain that a record is a copy it is delivered: twice is better than never.
"""

from __future__ import annotations

import os
from itertools import count
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final
from weakref import WeakSet

import msgspec

from headerware.core.errors import ConfigError, InterceptorError
from headerware.core.header_text import encode_text
from headerware.core.headers import Headers
from headerware.core.hooks import Interceptor, Place, Role
from headerware.core.options import path_unless
from headerware.interceptors.dedup_read import Reading
from headerware.interceptors.dedup_sqlite import SqliteWindow
from headerware.interceptors.dedup_windows import MemoryWindows
from headerware.interceptors.dedup_wire import (
    DERIVED,
    HEADER,
    NUMBERED,
    SOURCE_BYTES,
    Identity,
    content_digest,
    pack_sequence,
    scope_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headerware.core.context import Context
    from headerware.core.record import Record

__all__ = ["Dedup", "Identity"]

LOCAL: Final = "dedup"
"""Where a record carries an :class:`Identity` that it was given before it came to the chain."""

_TOPICS_MAX: Final = 1024
_DAY_MS: Final = 86_400_000
_new_headers: Final = tuple.__new__
"""Headers of pairs that are known to be right, without a further call."""


class Dedup(Interceptor, frozen=True, kw_only=True):
    """Give each record an identity on send, and drop copies on consume.

    A record is a copy when its identity has come before from another place. The same identity at the same
    topic, partition and offset is a record read again, after a seek or a restart, and is delivered.

    On send the identity is the one in ``record.local["dedup"]``; else, with ``id_from`` or ``id_from_key``,
    a digest of what they name, the topic and ``producer``; else the session's random producer id with a
    sequence. So an application that sends a record again by itself makes a second record, unless its
    identity comes from what it says. A copy in another topic that a mirror made byte for byte is a copy.

    A record is remembered when no step has refused it: of one that was refused, a copy and its dead letter
    are delivered. What was delivered and not processed comes again from its place only, so commit what has
    been processed, and nothing before. A step that gives a record another ``local`` must keep what is there.

    Without ``sign`` to its right whoever can write to a topic can announce another's identities.

    Args:
        id_from: names of headers that the application sets and that together name a record, such as
            ``ce_source`` and ``ce_id``. A record that lacks one is refused.
        id_from_key: whether the key, too, is part of what names a record.
        producer: what all instances of one logical producer have in common, to keep its digests apart from
            those of others in the same topic.
        window: how many identities of one producer to remember in memory. At least so many records lie
            between a record and the first copy of it that may pass.
        max_identities: how many to remember in all.
        store: path of a SQLite file to remember identities in, across restarts and for all consumers of one
            group on one machine. In a TOML file it is relative to that file. Memory where it is None.
        retain_ms: how long a store remembers, in milliseconds.

    Raises:
        ConfigError: options that contradict one another.
    """

    type: ClassVar[str] = "dedup"
    role: ClassVar[Role] = Role.TRANSFORM
    place: ClassVar[Place | None] = Place.DEDUP
    decodes: ClassVar[tuple[str, ...]] = (HEADER,)

    id_from: tuple[Annotated[str, msgspec.Meta(min_length=1)], ...] = ()
    id_from_key: bool = False
    producer: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    window: Annotated[int, msgspec.Meta(ge=1)] = 10_000
    max_identities: Annotated[int, msgspec.Meta(ge=1)] = 1_000_000
    store: Annotated[str, path_unless(lambda text: not text)] | None = None
    retain_ms: Annotated[int, msgspec.Meta(ge=1)] = 7 * _DAY_MS

    def __post_init__(self) -> None:
        """Bring the options to one form, and compare them with one another."""
        if self.store is not None:
            msgspec.structs.force_setattr(self, "store", os.fspath(self.store) or None)
        if self.producer is not None and not (self.id_from or self.id_from_key):
            raise ConfigError(
                "names the scope of identities from id_from or id_from_key, and neither is given; "
                "producers of numbered records draw an id of their own",
                path="producer",
            )
        if self.store is None and self.max_identities < 2 * self.window:
            raise ConfigError(
                f"is {self.max_identities}, less than twice the window ({self.window}), which one producer "
                f"may take",
                path="max_identities",
            )

    def open(self, context: Context) -> DedupStep:
        """Return the hooks of one session; a consumer's opens the store.

        Raises:
            ConfigError: a store that cannot be opened, or is a file of another kind.
        """
        return DedupStep(self, context)


class DedupStep:
    """The hooks of one session; sending is safe for several threads, consuming has one caller.

    Args:
        options: the interceptor.
        context: the session's surroundings.
        producer: the session's producer id, 16 bytes; None draws one.
        sequence: the number of the session's first record.
    """

    __slots__ = (
        "__weakref__",
        "_id_from",
        "_next",
        "_options",
        "_prefix",
        "_scopes",
        "close",
        "on_consume",
        "settle",
        "settle_batch",
        "stats",
    )

    def __init__(
        self, options: Dedup, context: Context, *, producer: bytes | None = None, sequence: int = 0
    ) -> None:
        self._options = options
        self._prefix = NUMBERED + (producer or os.urandom(SOURCE_BYTES))
        self._next = count(sequence).__next__
        self._id_from = tuple((name, name.encode()) for name in options.id_from)
        self._scopes: dict[str, bytes] = {}
        store = _store(options, context)
        seen = store or MemoryWindows(options.window, options.max_identities)
        asked = context.is_duplicate
        reading = Reading(asked or seen.is_duplicate, store, at_once=asked is not None)
        self.on_consume: Final = reading.on_consume
        self.stats: Final = reading.stats
        if asked is None:
            self.settle: Callable[[Record], Any] = reading.settle
        if store is not None:  # without one a batch costs as much as its records do
            self.settle_batch: Callable[[Sequence[Record]], list[Any]] = reading.settle_batch
            self.close: Callable[[], None] = store.close
        _open_steps.add(self)

    def on_send(self, record: Record) -> Record:
        """Add the record's identity.

        Raises:
            InterceptorError: a header or key is missing that the identity is to come from.
        """
        if record.local is not None and LOCAL in record.local:
            value = _given(record.local[LOCAL])
        elif self._id_from or self._options.id_from_key:
            value = self._derived(record)
        else:
            value = encode_text(self._prefix + pack_sequence(self._next()))
        return record.with_headers(_new_headers(Headers, (*record.headers, (HEADER, value))))

    def renew_producer(self) -> None:
        """Become another producer, as after a fork, so that no sequence is used twice."""
        self._prefix = NUMBERED + os.urandom(SOURCE_BYTES)

    def _derived(self, record: Record) -> bytes:
        parts: list[bytes] = []
        for name, encoded in self._id_from:
            value = record.headers.last(name)
            if not value:
                raise InterceptorError(
                    f"expected a header {name!r} with a value to make the identity from (id_from), found none"
                )
            parts += (encoded, value)
        if self._options.id_from_key:
            if not record.key:
                raise InterceptorError("expected a key to make the identity from (id_from_key), found none")
            parts.append(record.key)
        scope = self._scopes.get(record.topic) or self._scope(record.topic)
        return encode_text(DERIVED + scope + content_digest(parts))

    def _scope(self, topic: str) -> bytes:
        # The topic is part of it, for one order in two topics is two records.
        if len(self._scopes) >= _TOPICS_MAX:
            self._scopes.clear()
        scope = self._scopes[topic] = scope_of((self._options.producer or "", topic))
        return scope


def _given(identity: object) -> bytes:
    if not isinstance(identity, Identity):
        raise InterceptorError(
            f'expected an Identity in record.local["{LOCAL}"], found {type(identity).__name__}'
        )
    return identity.encode()


def _store(options: Dedup, context: Context) -> SqliteWindow | None:
    """Open the store, where there is one and this session has to remember by itself."""
    if options.store is None or context.side == "producer" or context.is_duplicate is not None:
        return None
    return SqliteWindow(
        options.store,
        group=context.group_id or "",
        retain_ms=options.retain_ms,
        max_identities=options.max_identities,
        now_ms=context.now_ms,
    )


_open_steps: WeakSet[DedupStep] = WeakSet()


def _renew_producers() -> None:
    for step in tuple(_open_steps):
        step.renew_producer()


os.register_at_fork(after_in_child=_renew_producers)
