"""Stores of offsets: what they have in common, and how configuration names them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

import msgspec

from headerware.core.plugins import Catalogue
from headerware.sources.offsets import OffsetEntry, OffsetKey

if TYPE_CHECKING:
    from headerware.sources.offsets import Offsets


def tasks_key(source: str) -> OffsetKey:
    """Return the key of the entry whose record number is how many tasks a source has; no object has it."""
    return OffsetKey({"source": source, "tasks": "count"})


def of_objects(entries: Iterable[tuple[bytes, bytes]]) -> list[tuple[OffsetKey, OffsetEntry]]:
    """Return stored entries, those of objects only."""
    found = [(OffsetKey.from_bytes(key), entry) for key, entry in entries]
    return [(key, OffsetEntry.from_bytes(entry)) for key, entry in found if "object" in key.partition]


class InTransactions(Protocol):
    """A store whose entries go into the transaction of the records themselves."""

    def records(self, entries: Mapping[OffsetKey, OffsetEntry]) -> list[tuple[str, bytes, bytes]]:
        """Return the topic, the key and the value of each record that keeps an entry."""
        ...

    def committed(self, entries: Mapping[OffsetKey, OffsetEntry]) -> None:
        """Note that a transaction with these entries is committed."""
        ...


class OffsetStore(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hold the options of a store of offsets, and open it."""

    type: ClassVar[str] = ""
    """The word for it in configuration."""
    transactional: ClassVar[bool] = False
    """Whether it keeps entries in the transaction of the records, and so is :class:`InTransactions`."""

    def open(
        self, kafka: Mapping[str, Any], *, source: str, writer: str | None, settled: bool = False
    ) -> Offsets:
        """Open the store.

        Args:
            kafka: the client's settings.
            source: the name of the source; only its offsets are there.
            writer: the name of the task that will write, so that no other process does; None only reads.
            settled: whether to wait for the transactions of others that are open now, so that nothing that
                was committed is missing.

        Raises:
            SourceError: it cannot be opened, or another process writes to it under this name.
        """
        raise NotImplementedError


offsets_type: Final[Catalogue[OffsetStore]] = Catalogue(
    "store of offsets",
    OffsetStore,
    {
        "sqlite": "headerware.sources.runtime.sqlite_offsets:SqliteOffsets",
        "topic": "headerware.sources.runtime.topic_offsets:TopicOffsets",
    },
)
"""The stores of offsets by word."""
