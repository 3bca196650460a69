"""The interface of the stores of offsets, and their names in configuration."""

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
    """How the tasks of a source share its objects. Two sharings at once could read an object twice."""

    tasks: int
    distribution: str

    def writer(self, source: str, task: int) -> str:
        """Return the name under which a task writes; it differs for each sharing."""
        return f"{source}-{task}-of-{self.tasks}-by-{self.distribution}"

    def writers(self, source: str) -> list[str]:
        """Return the names of all tasks."""
        return [self.writer(source, task) for task in range(self.tasks)]


def sharings_key(source: str) -> OffsetKey:
    """Return the key of the entry that stores how a source is shared; no object has this key."""
    return OffsetKey({"source": source, "sharing": "tasks"})


def sharings_in(offsets: Offsets, source: str) -> list[Sharing]:
    """Return the current sharing of a source, then former sharings whose tasks may still be running."""
    entry = offsets.get(sharings_key(source))
    return [] if entry is None else [Sharing(**each) for each in entry.properties["sharings"]]


def sharings_entry(source: str, sharings: Iterable[Sharing]) -> dict[OffsetKey, OffsetEntry]:
    """Return the entry that stores these sharings, by its key."""
    kept = [each._asdict() for each in sharings]
    return {sharings_key(source): OffsetEntry(properties={"sharings": kept})}


SIGN_INTERVAL_S: float = 30.0
"""How often a task stores a sign of life. After its offsets were reset, this fails, and the task ends."""


def sign_of_life(source: str, writer: str, statistics: Statistics) -> dict[OffsetKey, OffsetEntry]:
    """Return the entry that stores the current time and the task's statistics, by its key."""
    counts = {name: value for name, value in msgspec.structs.asdict(statistics).items() if value}
    properties = {"at_ms": wall_clock_ms(), "counts": counts}
    return {OffsetKey({"source": source, "task": writer}): OffsetEntry(properties=properties)}


class Sign(NamedTuple):
    """When a task last stored a sign of life, and its statistics then."""

    task: str
    at_ms: int
    counts: Mapping[str, int]


class OffsetsUnavailableError(SourceError):
    """Offsets cannot be stored now; storing the same offsets again may succeed."""


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
    """Return the stored entries that are offsets of objects."""
    found = [(OffsetKey.from_bytes(key), entry) for key, entry in entries]
    return [(key, OffsetEntry.from_bytes(entry)) for key, entry in found if "object" in key.partition]


def signs_in(entries: Iterable[tuple[bytes, bytes]]) -> list[Sign]:
    """Return the last sign of each task, also of tasks that ended long ago."""
    found = [(OffsetKey.from_bytes(key).partition, entry) for key, entry in entries]
    return [
        Sign(partition["task"], **OffsetEntry.from_bytes(entry).properties)
        for partition, entry in found
        if "task" in partition
    ]


class StoredOffsets(Offsets, Protocol):
    """The offsets of one source in a store; all tasks of the source in this process share the object."""

    def signs(self) -> list[Sign]:
        """Return the last sign of each task."""
        ...

    def put(self, entries: Mapping[OffsetKey, OffsetEntry | None], writer: str | None = None) -> None:
        """Store entries as one of the writers; if there is one writer only, ``writer`` may be None.

        Raises:
            OtherWriterError: another process writes under this name.
            OffsetsUnavailableError: the entries could not be stored now; another attempt may succeed.
            SourceError: the entries could not be stored.
        """
        ...


class InTransactions(StoredOffsets, Protocol):
    """Offsets that are stored in the same transaction as the records of the source."""

    def records(self, entries: Mapping[OffsetKey, OffsetEntry]) -> list[Record]:
        """Return the records that store entries."""
        ...

    def committed(self, entries: Mapping[OffsetKey, OffsetEntry]) -> None:
        """Note that a transaction with these entries is committed."""
        ...


class OffsetStore(TypedOptions, frozen=True, kw_only=True):
    """Hold the options of a store of offsets, and open the store."""

    transactional: ClassVar[bool] = False
    """Whether :meth:`open` returns :class:`InTransactions`."""

    def open(
        self, kafka: Mapping[str, Any], *, source: str, writers: Sequence[str] = (), settled: bool = False
    ) -> StoredOffsets:
        """Open the store, once for all tasks of a process.

        Args:
            kafka: the client's settings.
            source: the name of the source whose offsets are opened.
            writers: the names of the tasks that will write; no other process can then write under these
                names. Without writers the store is read only.
            settled: whether to wait until transactions of other processes that are open now have ended, so
                that no committed offset is missing.

        Raises:
            OtherWriterError: another process writes under one of these names.
            SourceError: the store cannot be opened.
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
"""The stores of offsets by name."""
