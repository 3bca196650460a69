"""The consuming half of ``dedup``: take identities off, and drop what has come before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from headerware.core.errors import WireFormatError
from headerware.core.headers import Headers
from headerware.core.hooks import DROP, HookResult
from headerware.core.record import Record
from headerware.interceptors.dedup_wire import HEADER, identity_of, layout_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headerware.interceptors.dedup_sqlite import SqliteWindow

_UNSETTLED: Final = "hw.unsettled-id"
"""Where a record carries its identity until no step has refused it."""
_new_headers: Final = tuple.__new__
"""Headers of pairs that are known to be right, without a further call."""


class _Unsettled(msgspec.Struct, frozen=True, gc=False):
    """What is known of a record that no step has accepted yet."""

    by: Reading
    identity: bytes
    record: Record
    """As it came to this step, for its place."""


class Reading:
    """Read a session's records, for one caller at a time.

    Args:
        is_duplicate: remembers a record by its identity, and says whether it has come before from another
            place.
        at_once: whether records are remembered as they come, and not when no step has refused them.
        store: takes whole batches at once; None where batches are no cheaper.
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
        """Take the identity off, and keep it for :meth:`settle`.

        Raises:
            InterceptorError: more than one ``hw.id``, or one that cannot be read.
        """
        headers = record.headers
        kept = [pair for pair in headers if pair[0] != HEADER]
        found = len(headers) - len(kept)
        if not found:
            self._without_id += 1
            return record
        name, value = headers[-1]
        try:
            # Nearly always it stands last, where its own step put it.
            identity = layout_of(value) if name == HEADER and found == 1 else identity_of(record)
        except WireFormatError:
            identity = identity_of(record)  # which tells it
        local = record.local
        if self._at_once:
            if self._is_duplicate(identity, record):
                self._duplicates += 1
                return DROP
        else:
            mine = _Unsettled(self, identity, record)
            local = {_UNSETTLED: mine} if local is None else {**local, _UNSETTLED: mine}
        return Record(
            record.topic,
            record.value,
            record.key,
            _new_headers(Headers, kept),
            record.partition,
            record.timestamp_ms,
            record.timestamp_type,
            record.offset,
            record.leader_epoch,
            local,
        )

    def settle(self, record: Record) -> HookResult:
        """Remember a record that no step has refused, or drop it if it has come before from another place."""
        mine = self._unsettled(record)
        if mine is None:
            return record
        if self._is_duplicate(mine.identity, mine.record):
            self._duplicates += 1
            return DROP
        return _settled(record)

    def settle_batch(self, records: Sequence[Record]) -> list[HookResult]:
        """Do the same for many records with one visit to the store."""
        assert self._store is not None  # noqa: S101 - batches come only where there is one
        outcomes: list[HookResult] = list(records)
        found = [(index, mine) for index, each in enumerate(records) if (mine := self._unsettled(each))]
        wanted = [(mine.identity, mine.record) for _, mine in found]
        for (index, _), duplicate in zip(found, self._store.are_duplicates(wanted), strict=True):
            self._duplicates += duplicate
            outcomes[index] = DROP if duplicate else _settled(records[index])
        return outcomes

    def _unsettled(self, record: Record) -> _Unsettled | None:
        local = record.local
        mine: _Unsettled | None = None if local is None else local.get(_UNSETTLED)
        return None if mine is None or mine.by is not self else mine

    def stats(self) -> dict[str, int]:
        """Count the copies that were dropped, the records without an identity, and the store's failures."""
        counts = {"duplicates": self._duplicates, "without_id": self._without_id}
        return counts if self._store is None else {**counts, "store_failures": self._store.failures}


def _settled(record: Record) -> Record:
    # Empty rather than None, for the session gives a record without any the state of the one before.
    rest = {name: state for name, state in (record.local or {}).items() if name != _UNSETTLED}
    return Record(
        record.topic,
        record.value,
        record.key,
        record.headers,
        record.partition,
        record.timestamp_ms,
        record.timestamp_type,
        record.offset,
        record.leader_epoch,
        rest,
    )
