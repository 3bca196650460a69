"""Stores of offsets: what they have in common, and how configuration names them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple, Protocol

import msgspec

from headerware.core.context import wall_clock_ms
from headerware.core.errors import SourceError
from headerware.core.plugins import Catalogue
from headerware.core.record import Record
from headerware.core.typed_options import TypedOptions
from headerware.sources.engine.statistics import Statistics
from headerware.sources.offsets import OffsetEntry, OffsetKey, Offsets


class Sharing(NamedTuple):
    """How the tasks of a source share it. Two that differ would both read an object."""

    tasks: int
    distribution: str

    def writer(self, source: str, task: int) -> str:
        """Return the name under which a task writes; that of another sharing has another."""
        return f"{source}-{task}-of-{self.tasks}-by-{self.distribution}"

    def writers(self, source: str) -> list[str]:
        """Return the names of all tasks."""
        return [self.writer(source, task) for task in range(self.tasks)]


def sharings_key(source: str) -> OffsetKey:
    """Return the key of the entry that says how a source is shared; no object has it."""
    return OffsetKey({"source": source, "sharing": "tasks"})


def sharings_in(offsets: Offsets, source: str) -> list[Sharing]:
    """Return the sharing that a source has, and behind it those whose tasks may still be running."""
    entry = offsets.get(sharings_key(source))
    return [] if entry is None else [Sharing(**each) for each in entry.properties["sharings"]]


def sharings_entry(source: str, sharings: Iterable[Sharing]) -> dict[OffsetKey, OffsetEntry]:
    """Return the entry that says this, by its key."""
    kept = [each._asdict() for each in sharings]
    return {sharings_key(source): OffsetEntry(properties={"sharings": kept})}


SIGN_INTERVAL_S: float = 30.0
"""How often a task stores that it is at work. If its offsets were reset, this fails, and the task ends."""


def sign_of_life(source: str, writer: str, statistics: Statistics) -> dict[OffsetKey, OffsetEntry]:
    """Return the entry that says when a task was at work, and what it had counted, by its key."""
    counts = {name: value for name, value in msgspec.structs.asdict(statistics).items() if value}
    properties = {"at_ms": wall_clock_ms(), "counts": counts}
    return {OffsetKey({"source": source, "task": writer}): OffsetEntry(properties=properties)}


class Sign(NamedTuple):
    """When a task was at work, and what it had counted."""

    task: str
    at_ms: int
    counts: Mapping[str, int]


class OffsetsUnavailableError(SourceError):
    """Offsets that cannot be stored now; the same is tried again."""


class OtherWriterError(SourceError):
    """Another process writes under the same name.

    Args:
        writer: the name.
        text: what happened, and what to do.
    """

    def __init__(self, writer: str, text: str) -> None:
        super().__init__(text)
        self.writer: Final = writer


def of_objects(entries: Iterable[tuple[bytes, bytes]]) -> list[tuple[OffsetKey, OffsetEntry]]:
    """Return stored entries, those of objects only."""
    found = [(OffsetKey.from_bytes(key), entry) for key, entry in entries]
    return [(key, OffsetEntry.from_bytes(entry)) for key, entry in found if "object" in key.partition]


def signs_in(entries: Iterable[tuple[bytes, bytes]]) -> list[Sign]:
    """Return when each task was at work last, also of tasks that have ended long ago."""
    found = [(OffsetKey.from_bytes(key).partition, entry) for key, entry in entries]
    return [
        Sign(partition["task"], **OffsetEntry.from_bytes(entry).properties)
        for partition, entry in found
        if "task" in partition
    ]


class StoredOffsets(Offsets, Protocol):
    """The offsets of one source in a store, as its tasks in this process share them."""

    def signs(self) -> list[Sign]:
        """Return when each task was at work last."""
        ...

    def put(self, entries: Mapping[OffsetKey, OffsetEntry | None], writer: str | None = None) -> None:
        """Keep entries as one of the writers; None is the only one.

        Raises:
            OtherWriterError: another process writes under this name.
            OffsetsUnavailableError: they could not be kept; another time they may be.
            SourceError: they could not be kept.
        """
        ...


class InTransactions(StoredOffsets, Protocol):
    """Offsets that go into the transaction of the records themselves."""

    def records(self, entries: Mapping[OffsetKey, OffsetEntry]) -> list[Record]:
        """Return the records that keep entries."""
        ...

    def committed(self, entries: Mapping[OffsetKey, OffsetEntry]) -> None:
        """Note that a transaction with these entries is committed."""
        ...


class OffsetStore(TypedOptions, frozen=True, kw_only=True):
    """Hold the options of a store of offsets, and open it."""

    transactional: ClassVar[bool] = False
    """Whether it keeps entries in the transaction of the records, and so is :class:`InTransactions`."""

    def open(
        self, kafka: Mapping[str, Any], *, source: str, writers: Sequence[str] = (), settled: bool = False
    ) -> StoredOffsets:
        """Open the store, once for all tasks of a process.

        Args:
            kafka: the client's settings.
            source: the name of the source; only its offsets are there.
            writers: the names of the tasks that will write, so that no other process does; without them it is
                read only.
            settled: whether to wait for the transactions of others that are open now, so that nothing that
                was committed is missing.

        Raises:
            OtherWriterError: another process writes to it under one of these names.
            SourceError: it cannot be opened.
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
