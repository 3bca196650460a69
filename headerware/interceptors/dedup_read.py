"""The consuming half of ``dedup``: take identities off, and drop what has come before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headerware.core.errors import InterceptorError, WireFormatError
from headerware.core.headers import Headers, Pair
from headerware.core.hooks import DROP, HookResult
from headerware.interceptors.dedup_wire import HEADER, identity_of, layout_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headerware.core.record import Record
    from headerware.interceptors.dedup_sqlite import SqliteWindow

_new_headers: Final = tuple.__new__
"""Headers of pairs that are known to be right, without a further call."""


class Reading:
    """Read a session's records, for one caller at a time.

    Args:
        is_duplicate: remembers a record by its identity, and says whether it has come before from another
            place.
        store: takes whole batches at once; None where batches are no cheaper.
    """

    __slots__ = ("_duplicates", "_is_duplicate", "_store", "_without_id")

    def __init__(self, is_duplicate: Callable[[bytes, Record], bool], store: SqliteWindow | None) -> None:
        self._is_duplicate = is_duplicate
        self._store = store
        self._duplicates = self._without_id = 0

    def on_consume(self, record: Record) -> HookResult:
        """Take the identity off, and drop the record where it is a copy.

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
        if self._is_duplicate(identity, record):
            self._duplicates += 1
            return DROP
        return record.with_headers(_new_headers(Headers, kept))

    def on_consume_batch(self, records: Sequence[Record]) -> list[Any]:
        """Do the same for many records with one visit to the store."""
        assert self._store is not None  # noqa: S101 - batches come only where there is one
        outcomes: list[Any] = list(records)
        named: list[tuple[int, list[Pair]]] = []
        wanted: list[tuple[bytes, Record]] = []
        for index, record in enumerate(records):
            kept = [pair for pair in record.headers if pair[0] != HEADER]
            if len(kept) == len(record.headers):
                self._without_id += 1
                continue
            try:
                wanted.append((identity_of(record), record))
            except InterceptorError as error:
                outcomes[index] = error
            else:
                named.append((index, kept))
        for (index, kept), duplicate in zip(named, self._store.are_duplicates(wanted), strict=True):
            self._duplicates += duplicate
            outcomes[index] = DROP if duplicate else records[index].with_headers(Headers.trusted(kept))
        return outcomes

    def stats(self) -> dict[str, int]:
        """Count the copies that were dropped, the records without an identity, and the store's failures."""
        counts = {"duplicates": self._duplicates, "without_id": self._without_id}
        return counts if self._store is None else {**counts, "store_failures": self._store.failures}
