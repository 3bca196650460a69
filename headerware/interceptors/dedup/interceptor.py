"""The interceptor ``dedup``: its options, identities given on send, and copies dropped on consume."""

from __future__ import annotations

import os
from functools import partial
from itertools import starmap
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final
from weakref import WeakSet

import msgspec

from headerware.core.bounded_cache import BoundedCache
from headerware.core.dead_letter import GivenUp
from headerware.core.errors import ConfigError, InterceptorError, WireFormatError
from headerware.core.header_text import encode_text
from headerware.core.headers import Headers
from headerware.core.hooks import DROP, HookResult, Interceptor, Place, Role
from headerware.core.native import NativeForm, NativeState
from headerware.core.options import path_unless
from headerware.core.record import Record
from headerware.core.sequences import Sequences
from headerware.interceptors.dedup.identity import (
    DERIVED,
    ID_HEADER,
    NUMBERED,
    SOURCE_BYTES,
    Identity,
    content_digest,
    identity_of,
    layout_of,
    pack_sequence,
    scope_of,
)
from headerware.interceptors.dedup.windows import MemoryWindows, SqliteWindow

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headerware.core.batch import Batch
    from headerware.core.context import Context
    from headerware.core.services import Direction

_LOCAL: Final = "dedup"
"""The name in ``record.local`` of an :class:`Identity` that the application chose."""
_UNACCEPTED: Final = "hw.unaccepted-id"
"""The name in ``record.local`` of the identity, until all steps have accepted the record."""
_MAX_TOPICS: Final = 1024
_DAY_MS: Final = 86_400_000
_new_headers: Final = tuple.__new__
"""Make headers from checked pairs, without checking them again."""


class Dedup(Interceptor, frozen=True, kw_only=True):
    """Give each record an identity on send, and drop copies on consume.

    A record is a copy if its identity was seen at another position. The same identity at the same topic,
    partition and offset is a record read again, after a seek or a restart, and is delivered.

    On send, the identity is taken from ``record.local["dedup"]``. If there is none there, it is made with
    ``id_from`` or ``id_from_key`` as a digest of these parts, the topic and ``producer``. Without these
    options it is the session's random producer id with a sequence. So a record that an application sends
    twice is two records, unless its identity comes from its content. A record that a mirror copies byte for
    byte into another topic is a copy.

    A record is remembered once all steps have accepted it. If a record was refused, a copy of it is
    delivered, and so is its dead letter. A record that was delivered but not processed comes again only from
    its own position, so commit offsets after processing, not before. A step that replaces a record's
    ``local`` must keep the entries in it.

    Without ``sign`` to its right, anybody who can write to a topic can use the identities of other records.

    Args:
        id_from: names of headers that the application sets and that together identify a record, such as
            ``ce_source`` and ``ce_id``. A record that lacks one is refused.
        id_from_key: whether the key, too, is a part that identifies a record.
        producer: a name that all instances of one logical producer share; it distinguishes their digests from
            other producers' digests in the same topic.
        window: how many identities of one producer are remembered in memory. A copy is recognised if fewer
            records of its producer lie between the first record and the copy.
        max_identities: how many identities are remembered in total: about 120 bytes each in memory, or 100 in
            the store.
        store: path of a SQLite file to remember identities in, across restarts and for all consumers of one
            group on one machine. In a TOML file, the path is relative to that file. It must be on a local
            disk. None means memory.
        retain_ms: how long a store remembers an identity, in milliseconds.

    Raises:
        ConfigError: options contradict one another.
    """

    type: ClassVar[str] = "dedup"
    role: ClassVar[Role] = Role.TRANSFORM
    place: ClassVar[Place | None] = Place.DEDUP
    decodes: ClassVar[tuple[str, ...]] = (ID_HEADER,)

    id_from: tuple[Annotated[str, msgspec.Meta(min_length=1)], ...] = ()
    id_from_key: bool = False
    producer: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    window: Annotated[int, msgspec.Meta(ge=1)] = 10_000
    max_identities: Annotated[int, msgspec.Meta(ge=1)] = 1_000_000
    store: Annotated[str, path_unless(lambda text: not text)] | None = None
    retain_ms: Annotated[int, msgspec.Meta(ge=1)] = 7 * _DAY_MS

    def __post_init__(self) -> None:
        """Normalize the options, and refuse options that contradict one another."""
        if self.store is not None:
            msgspec.structs.force_setattr(self, "store", os.fspath(self.store) or None)
        if self.producer is not None and not (self.id_from or self.id_from_key):
            raise ConfigError(
                "expected id_from or id_from_key together with producer, found neither; without them, each "
                "session draws a producer id of its own",
                path="producer",
            )
        if self.store is None and self.max_identities < 2 * self.window:
            raise ConfigError(
                f"expected at least twice the window ({self.window}), which one producer may take, found "
                f"{self.max_identities}",
                path="max_identities",
            )

    def open(self, context: Context) -> DedupStep:
        """Return the hooks of one session; a consumer's session opens the store.

        Raises:
            ConfigError: the store cannot be opened, or is a file of another kind.
        """
        return DedupStep(self, context)


class DedupStep:
    """The hooks of one session; sending is safe for several threads, consuming has one caller.

    ``producer`` is the session's producer id, 16 bytes; None draws one at random.
    """

    __slots__ = (
        "__weakref__",
        "_id_from",
        "_options",
        "_prefix",
        "_reader",
        "_scopes",
        "_sequences",
        "close",
        "on_accepted",
        "on_accepted_batch",
        "on_consume",
        "on_consume_batch",
        "on_stopped",
        "stats",
    )

    def __init__(
        self, options: Dedup, context: Context, *, producer: bytes | None = None, sequence: int = 0
    ) -> None:
        self._options = options
        self._prefix = NUMBERED + (producer or os.urandom(SOURCE_BYTES))
        self._sequences: Final = Sequences(sequence)
        self._id_from = tuple((name, name.encode()) for name in options.id_from)
        self._scopes: BoundedCache[str, bytes] = BoundedCache(_MAX_TOPICS, self._scope)
        store = _store(options, context)
        window = store or MemoryWindows(options.window, options.max_identities)
        port = context.is_duplicate
        self._reader: Final = _Reader(port or window.is_duplicate, store, at_once=port is not None)
        reader = self._reader
        self.on_consume: Final = reader.on_consume
        self.stats: Final = reader.stats
        if port is None:
            self.on_consume_batch: Callable[[Batch], Batch] = reader.on_consume_batch
            self.on_accepted: Callable[[Record], Any] = reader.on_accepted
            self.on_accepted_batch: Callable[[Batch], Batch] = reader.on_accepted_batch
            self.on_stopped: GivenUp = window.given_up
        if store is not None:
            self.close: Callable[[], None] = store.close
        _open_steps.add(self)

    def on_send(self, record: Record) -> Record:
        """Add the record's identity."""
        value = self._identity_of(record.topic, record.key, record.headers, record.local)
        return record.with_headers(_new_headers(Headers, (*record.headers, (ID_HEADER, value))))

    def on_send_batch(self, batch: Batch) -> Batch:
        """Do as :meth:`on_send` for each record."""
        identity_of, topic = self._identity_of, batch.topic

        def identified(key: Any, headers: Headers, local: Mapping[str, Any] | None) -> tuple[Headers]:
            value = identity_of(topic, key, headers, local)
            return (_new_headers(Headers, (*headers, (ID_HEADER, value))),)

        return batch.remake(("headers",), identified, batch.keys, batch.headers, batch.locals)

    def _identity_of(self, topic: str, key: Any, headers: Headers, local: Mapping[str, Any] | None) -> bytes:
        """Return the value of the header of a record that is sent."""
        if local is not None and _LOCAL in local:
            return _given(local[_LOCAL])
        if self._id_from or self._options.id_from_key:
            return self._derived(topic, key, headers)
        return encode_text(self._prefix + pack_sequence(self._sequences.draw()))

    def native_form(self, direction: Direction, topic: str) -> NativeForm | None:
        """Return the native form of a batch hook; None if copies are found when they arrive."""
        if direction == "consume":
            return self._reader.native_form()
        derives = bool(self._id_from or self._options.id_from_key)
        derived = self._options.producer, self._options.id_from, self._options.id_from_key
        forms = partial(self._native_digests, topic, derived) if derives else self._native_sequences
        return NativeForm(forms)

    def _native_digests(self, topic: str, derived: tuple[Any, ...], batch: Batch) -> NativeState | None:
        return (
            None if _any_given(batch) else NativeState("derive_identity", (topic, derived), lambda: derived)
        )

    def _native_sequences(self, batch: Batch) -> NativeState | None:
        if _any_given(batch):
            return None
        source = self._prefix[len(NUMBERED) :]
        drawn: list[int] = []

        def numbers() -> list[int]:
            drawn.extend(self._sequences.draw_many(len(batch)))
            return drawn

        def note(_batch: Batch, not_taken: Sequence[int], _facts: Any) -> None:
            self._sequences.give_back(drawn[at] for at in not_taken)

        def undo() -> None:
            self._sequences.give_back(drawn)

        return NativeState("number_identity", source, lambda: (source,), numbers, note, undo)

    def renew_producer(self) -> None:
        """Draw another producer id, as after a fork, so that no sequence is used twice."""
        self._prefix = NUMBERED + os.urandom(SOURCE_BYTES)

    def _derived(self, topic: str, key: Any, headers: Headers) -> bytes:
        parts: list[bytes] = []
        for name, encoded in self._id_from:
            value = headers.last(name)
            if not value:
                raise InterceptorError(
                    f"expected a header {name!r} with a value to make the identity from (id_from), found none"
                )
            parts += (encoded, value)
        if self._options.id_from_key:
            if not key:
                raise InterceptorError("expected a key to make the identity from (id_from_key), found none")
            parts.append(key)
        return encode_text(DERIVED + self._scopes[topic] + content_digest(parts))

    def _scope(self, topic: str) -> bytes:
        # The topic is part of the scope: one order in two topics is two records.
        return scope_of((self._options.producer or "", topic))


class _Unaccepted(msgspec.Struct, gc=False):
    """A record that not all steps have accepted yet."""

    reader: _Reader
    identity: bytes
    record: Record
    """The record as it came to this step, or to the steps in native code, for its position."""
    is_copy: bool | None = None
    """Whether the record is a copy; None until that is checked."""


class _Reader:
    """Remove identities from consumed records, and drop copies; for one caller at a time.

    ``is_duplicate`` remembers a record by its identity, and returns whether the identity was seen at another
    position. ``store`` remembers many records in one transaction, if there is one. With ``at_once``
    records are remembered when they arrive, not when all steps have accepted them.
    """

    __slots__ = ("_at_once", "_duplicates", "_is_duplicate", "_store", "_without_id")

    def __init__(
        self,
        is_duplicate: Callable[[bytes, Record], bool],
        store: SqliteWindow | None,
        *,
        at_once: bool = False,
    ) -> None:
        self._is_duplicate = is_duplicate
        self._at_once = at_once
        self._store = store
        self._duplicates = self._without_id = 0

    def on_consume(self, record: Record) -> HookResult:
        """Remove the identity, and keep it for :meth:`on_accepted`, or drop a copy at once."""
        found = self._identified(record)
        if found is None:
            return record
        headers, identity = found
        if not self._at_once:
            return record.with_parts(record.value, record.key, headers, self._keeping(identity, record))
        if self._is_duplicate(identity, record):
            self._duplicates += 1
            return DROP
        return record.with_headers(headers)

    def on_consume_batch(self, batch: Batch) -> Batch:
        """Do as :meth:`on_consume` for each record."""

        def read(record: Record) -> tuple[Headers, dict[str, Any]] | None:
            found = self._identified(record)
            return None if found is None else (found[0], self._keeping(found[1], record))

        return batch.remake(("headers", "local"), read, batch.records())

    def native_form(self) -> NativeForm | None:
        """Return the native form of ``on_consume_batch``; None if copies are dropped at once."""

        def note(batch: Batch, not_taken: Sequence[int], identities: list[bytes | None]) -> dict[str, Any]:
            more: list[dict[str, Any] | None] = [None] * len(batch)
            apart, records = set(not_taken), batch.records()
            taken = [at for at in range(len(batch)) if at not in apart]
            for at, identity in zip(taken, identities, strict=True):
                if identity is not None:
                    more[at] = {_UNACCEPTED: _Unaccepted(self, identity, records[at])}
            self._without_id += identities.count(None)
            return {"locals": more}

        state = NativeState("read_identity", None, tuple, note=note)
        return None if self._at_once else NativeForm(lambda _batch: state)

    def _identified(self, record: Record) -> tuple[Headers, bytes] | None:
        """Return the headers without the identity, and the identity; None if there is none."""
        headers = record.headers
        kept = [pair for pair in headers if pair[0] != ID_HEADER]
        found = len(headers) - len(kept)
        if not found:
            self._without_id += 1
            return None
        name, value = headers[-1]
        try:
            # Nearly always it is the last header, where the sending step put it.
            identity = layout_of(value) if name == ID_HEADER and found == 1 else identity_of(record)
        except WireFormatError:
            identity = identity_of(record)  # raises the error with its reason
        return _new_headers(Headers, kept), identity

    def _keeping(self, identity: bytes, record: Record) -> dict[str, Any]:
        """Return the local state of a record that is remembered once all steps have accepted it."""
        unaccepted = _Unaccepted(self, identity, record)
        return (
            {_UNACCEPTED: unaccepted} if record.local is None else {**record.local, _UNACCEPTED: unaccepted}
        )

    def on_accepted(self, record: Record) -> HookResult:
        """Remember a record that all steps have accepted, or drop it if it is a copy."""
        unaccepted = self._unaccepted(record.local)
        if unaccepted is None:
            return record
        if unaccepted.is_copy is None:
            unaccepted.is_copy = self._is_duplicate(unaccepted.identity, unaccepted.record)
        if unaccepted.is_copy:
            self._duplicates += 1
            return DROP
        return record.with_parts(record.value, record.key, record.headers, _accepted(record.local))

    def on_accepted_batch(self, batch: Batch) -> Batch:
        """Remember many records, in one transaction of a store; leave copies to :meth:`on_accepted`."""
        local = list(batch.locals)
        found = {at: mine for at, own in enumerate(local) if (mine := self._unaccepted(own)) is not None}
        wanted = [(unaccepted.identity, unaccepted.record) for unaccepted in found.values()]
        if self._store is None:
            copied = list(starmap(self._is_duplicate, wanted))
        else:
            copied = self._store.are_duplicates(wanted)
        for (at, unaccepted), is_copy in zip(found.items(), copied, strict=True):
            unaccepted.is_copy = is_copy
            local[at] = _accepted(local[at])
        copies = [at for at, unaccepted in found.items() if unaccepted.is_copy]
        return batch.replace(locals=local, not_taken=copies)

    def _unaccepted(self, local: Mapping[str, Any] | None) -> _Unaccepted | None:
        unaccepted: _Unaccepted | None = None if local is None else local.get(_UNACCEPTED)
        return None if unaccepted is None or unaccepted.reader is not self else unaccepted

    def stats(self) -> dict[str, int]:
        """Return the counts of dropped copies, of records without an identity, and of store failures."""
        counts = {"duplicates": self._duplicates, "without_id": self._without_id}
        return counts if self._store is None else {**counts, "store_failures": self._store.failures}


def _accepted(local: Mapping[str, Any] | None) -> dict[str, Any]:
    # Empty rather than None: the session would replace None by the state of the record before the hook.
    return {name: state for name, state in (local or {}).items() if name != _UNACCEPTED}


def _any_given(batch: Batch) -> bool:
    """Return whether the application has chosen the identity of any record."""
    return any(local is not None and _LOCAL in local for local in batch.locals)


def _given(identity: object) -> bytes:
    if not isinstance(identity, Identity):
        raise InterceptorError(
            f'expected an Identity in record.local["{_LOCAL}"], found {type(identity).__name__}'
        )
    return identity.encode()


def _store(options: Dedup, context: Context) -> SqliteWindow | None:
    """Open the store, if there is one and this session remembers the records itself."""
    if (
        options.store is None
        or context.side == "producer"
        or context.is_duplicate is not None
        or context.dry_run
    ):
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
