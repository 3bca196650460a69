"""Native sources: what somebody writes who wants a system's objects in Kafka.

    class Spool(Source, frozen=True, kw_only=True):
        type = "spool"
        keys = TextKeys()
        folder: str

        def items(self, start):
            for name in sorted(os.listdir(self.folder)):
                if start is None or name >= start:
                    yield SpoolFile(ItemContext(key=name), ...)

A source lists its objects, and an item opens one. Everything else (queueing, retries, extraction, resuming,
headers, statistics, closing) is the framework's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Final, Generic, Protocol, TypeVar

import msgspec

from headerware.core.errors import ConfigError, NotAStreamError, ObjectError, PluginError, SourceError
from headerware.core.options import from_option
from headerware.core.plugins import Catalogue, require_arguments
from headerware.core.typed_options import SecretOptions
from headerware.sources.keys import KeySerde

if TYPE_CHECKING:
    from headerware.sources.evolving import EvolvingRecord
    from headerware.sources.offsets import OffsetEntry

UNKNOWN_LENGTH: Final = -1
"""The length of an item whose size nobody knows."""
_READY: Final = "headerware.sources.ready"
_BUILT_IN: Final = {
    "files": f"{_READY}.files:Files",
    "http": f"{_READY}.http_pages:HttpPages",
    "objects": f"{_READY}.objects:ObjectStorage",
    "sql": f"{_READY}.sql:SqlTables",
}

Key = TypeVar("Key")
_Listed_contra = TypeVar("_Listed_contra", contravariant=True)
_Errors = tuple[type[Exception], ...]


class ItemContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a listing tells of an object, before it is opened.

    Args:
        key: the native key: immutable, hashable, and ordered among the keys of its source.
        topic: a hint at the topic of its records, for the template ``{topic}``; or None.
        partition: a hint at the partition, for the template ``{partition}``; or None.
        version: changes when the object does, such as an etag, or size and time; None if that is not known,
            so that a complete object is never read again.
        timestamp_ms: the time of its records if they have none, in milliseconds since the epoch; or None.
        content_type: the media type of its records, such as ``application/json``; or None.
        grows: whether more may be written at its end while it is read. The extractor then leaves an
            unfinished last record for later, rather than refuse it.
    """

    key: Any
    topic: str | None = None
    partition: int | None = None
    version: str | None = None
    timestamp_ms: int | None = None
    content_type: str | None = None
    grows: bool = False


class NativeItem:
    """One object of a source; a subclass opens it.

    It holds what a listing told, and nothing that must be closed: most items are never opened. Where Spark
    reads, it is pickled.

    Args:
        context: its key, and what else the listing told.
        length: the estimated length in bytes, or :data:`UNKNOWN_LENGTH`; nothing is ever allocated from it.
    """

    def __init__(self, context: ItemContext, length: int = UNKNOWN_LENGTH) -> None:
        self.context: ItemContext = context
        self.length: int = length

    def open_stream(self) -> BinaryIO:
        """Return a fresh stream of the object's bytes; the framework closes it.

        A stream that can seek is sought in, and one that cannot is read past.

        Raises:
            NotAStreamError: the object has no bytes to read.
            OSError: it cannot be read now; this is tried again, to a deadline, but FileNotFoundError is not.
            ObjectError: it cannot be read, such as one that has vanished; this is not tried again.
        """
        raise NotAStreamError(f"a {type(self).__name__} has no bytes; it needs an extractor of its own")

    def extends(self, version: str) -> bool:  # noqa: ARG002 - for subclasses
        """Return whether the object is an earlier version with more at its end.

        Then reading goes on behind the last record, rather than start again.

        Args:
            version: the version that was read, as an item of the same key had it in its context.
        """
        return False

    def continues(self, key: Any, version: str) -> bool:  # noqa: ARG002 - for subclasses
        """Return whether the object was another one's earlier version before it got this key.

        Then reading goes on behind the last record of that one. It is asked if the object is not known, or
        if its key had another object before.

        Args:
            key: the native key of the other one.
            version: the version of the other one that was read.
        """
        return False

    def beginnings(self, lengths: Iterable[str]) -> Iterable[str]:  # noqa: ARG002 - for subclasses
        """Return what may stand before the first dot in the version of an object that this one continues.

        Others are not asked about by :meth:`continues`.

        Args:
            lengths: what stands before the first colon in known versions.
        """
        return ()

    def __repr__(self) -> str:
        """Show the key."""
        return f"<{type(self).__name__} {self.context.key!r}>"


class ObjectMovedError(ObjectError):
    """The key has another object by now; a later listing has it, so this is no error of the object."""


class SourceContext(msgspec.Struct, frozen=True, kw_only=True):
    """The surroundings of an opened source.

    Args:
        name: the name under which the source's offsets are kept.
        task: the number of the task that reads it, from 0.
        tasks: how many tasks share the source. Each lists all keys, and the framework deals them out.
    """

    name: str = ""
    task: int = 0
    tasks: int = 1


class OpenSource(Protocol[_Listed_contra]):
    """A source that is connected: it lists, and is closed once."""

    def items(self, start: _Listed_contra | None) -> Iterator[NativeItem]:
        """Yield the objects from a key on, in the order of their keys, which is the same each time.

        Called again and again, from one thread; it begins a new listing each time. It yields as it goes, and
        holds no more than a page. It may end after a page: the framework then goes on from the last key.

        Args:
            start: the first key to list, or, if :attr:`Source.includes_start` is false, the key behind
                which to begin; None for the beginning. It may be gone meanwhile.

        Raises:
            OSError: the source cannot be listed now; this is tried again, to a deadline.
            SourceError: it cannot be listed; this is not tried again.
        """
        ...

    def close(self) -> None:
        """Release connections; called once, also after a failure."""
        ...


class Source(SecretOptions, Generic[Key], frozen=True, kw_only=True):
    """Hold the options of a source, and open it.

    A subclass adds its options as fields. It has ``items`` and, if need be, ``close`` itself, or returns an
    object that has them from :meth:`open`. Its entry point stands in the group ``headerware.sources``.
    """

    keys: ClassVar[KeySerde[Any] | None] = None
    """Brings keys to text and back. Without one there is no start key, and keys are text, bytes or integers,
    unless :meth:`partition` is there."""
    includes_start: ClassVar[bool] = True
    """Whether ``items(start)`` begins with the start key itself."""
    repeats_order: ClassVar[bool] = True
    """Whether listings have the order of keys. If not, each one begins at the configured start."""
    repeats_records: ClassVar[bool] = True
    """Whether an object has the same records in the same order each time. If not, an object that was read in
    part starts again."""
    fixed: ClassVar[Mapping[str, Any]] = {}
    """Options of the framework that the source decides, such as ``{"extractor": "csv"}``; a user may not."""
    retried: ClassVar[_Errors] = ()
    """Errors beside OSError that are worth another attempt, such as a client library's."""

    def open(self, context: SourceContext) -> OpenSource[Key]:  # noqa: ARG002 - a stateless source needs none
        """Return the connected source; by default the options themselves.

        Raises:
            ConfigError: an option that cannot work.
            OSError: the system cannot be reached now; this is tried again, to a deadline.
        """
        return self  # type: ignore[return-value]  # open_source checks it

    def close(self) -> None:
        """Release connections; here nothing."""

    def partition(self, key: Key) -> dict[str, Any]:
        """Return the partition map under which the offset of an object is kept, always the same for a key.

        It never depends on what was read of the object.

        Raises:
            SourceError: the key has no text, and is of a type that no store keeps.
        """
        if self.keys is not None:
            return {"key": self.keys.to_text(key)}
        if type(key) in (str, bytes, int):
            return {"key": key}
        raise SourceError(
            f"{self.type}: a key is text, bytes or an integer, or there is a key serde; found "
            f"{type(key).__name__}"
        )

    def resumed(self, key: Key, entry: OffsetEntry) -> OffsetEntry | None:  # noqa: ARG002 - for subclasses
        """Return the offset from which an object that was read in part goes on; None starts it again."""
        return entry if self.repeats_records else None

    def last_evolution(self, record: EvolvingRecord) -> EvolvingRecord:
        """Return a record as it is to be sent: the last change before Connect's transforms and the chain.

        Called once for each record that is sent, after extraction. It may change everything but the native
        key and the record number, with ``record.replace(...)``. An error counts as one of the record.
        """
        return record


source_type: Final[Catalogue[Source[Any]]] = Catalogue("source type", Source, _BUILT_IN, "headerware.sources")
"""The sources by word; others come from entry points of the group ``headerware.sources``."""

_CALLED: Final = {"items": ("start",), "close": ()}


def open_source(options: Any, context: SourceContext, *, path: str = "source") -> OpenSource[Any]:
    """Open the source that an option names.

    Args:
        options: a :class:`Source`; or, as configuration has it, the word for one or a table of ``type`` and
            its options.
        context: the surroundings.
        path: the option's path, for errors.

    Raises:
        ConfigError: an option that cannot work, or no such source.
        OSError: the system cannot be reached now.
    """
    source = from_option(options, source_type, path=path)
    if not isinstance(source, Source):
        raise ConfigError(f"expected a Source, found {type(source).__name__}", path=path)
    opened = source.open(context)
    for method in _CALLED:
        if not callable(getattr(opened, method, None)):
            raise PluginError(f"{type(opened).__name__} has no {method}()", path=path)
    require_arguments(opened, _CALLED, path=path)
    return opened
