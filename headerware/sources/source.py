"""Native sources: the interface for reading a system's objects into Kafka.

    class Spool(Source, frozen=True, kw_only=True):
        type = "spool"
        keys = TextKeys()
        folder: str

        def items(self, start):
            for name in sorted(os.listdir(self.folder)):
                if start is None or name >= start:
                    yield SpoolFile(ItemContext(key=name), ...)

A source lists its objects as items, and an item opens its object. The framework does everything else:
queueing, retries, extraction, resuming, headers, statistics, closing.
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
"""The length of an item of unknown size."""
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
    """The facts that a listing gives of an object, before the object is opened.

    Args:
        key: the native key: immutable, hashable, and ordered among the keys of the source.
        topic: the value of ``{topic}`` in templates; or None.
        partition: the value of ``{partition}`` in templates; or None.
        version: a text that changes when the object changes, such as an etag, or size and time; None if
            unknown: an object that was read completely is then never read again.
        timestamp_ms: the time of records without a timestamp, in milliseconds since the epoch; or None.
        content_type: the media type of the records, such as ``application/json``; or None.
        grows: whether another program may append to the object while it is read. The extractor then leaves
            an unfinished last record for later, rather than refuse it.
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

    An item has the facts from the listing, and no resource that must be closed, because most items are never
    opened. Spark pickles items.

    Args:
        context: the key and the other facts from the listing.
        length: the length in bytes, estimated unless the class sets :attr:`length_is_exact`, or
            :data:`UNKNOWN_LENGTH`; no memory is allocated by it.
    """

    length_is_exact: bool = False
    """Whether the stream has at least ``length`` bytes, so that an earlier end is an error.

    Set it if the listing states the exact length. A connection that is lost can look like the end of the
    stream, and the object would count as complete without its last records."""

    def __init__(self, context: ItemContext, length: int = UNKNOWN_LENGTH) -> None:
        self.context: ItemContext = context
        self.length: int = length

    def open_stream(self) -> BinaryIO:
        """Return a fresh stream of the object's bytes; the framework closes it.

        A stream that ends before the object ends must raise OSError, unless :attr:`length_is_exact` is set:
        then the framework raises it. ``http.client`` and ``urllib.request`` do not raise one.

        To skip bytes, the framework seeks if the stream can seek, and else reads them.

        Raises:
            NotAStreamError: the object has no bytes to read.
            OSError: the object cannot be read now; the framework tries again until a deadline, except after a
                FileNotFoundError.
            ObjectError: the object cannot be read, because it was removed, for instance; the framework does
                not try again.
        """
        raise NotAStreamError(
            f"a {type(self).__name__} is not a stream of bytes; it needs an extractor of its own"
        )

    def extends(self, version: str) -> bool:  # noqa: ARG002 - for subclasses
        """Return whether the object is an earlier version with more bytes at its end.

        If so, reading continues after the last record, rather than start again.

        Args:
            version: the version that was read, from the context of an item of the same key.
        """
        return False

    def continues(self, key: Any, version: str) -> bool:  # noqa: ARG002 - for subclasses
        """Return whether the object was read under another key, and perhaps has more bytes at its end now.

        If so, reading continues after the last record that was read under the other key. The framework calls
        this if the object is not known, or if its key had another object before.

        Args:
            key: the native key under which the object was read.
            version: the version that was read under this key.
        """
        return False

    def beginnings(self, lengths: Iterable[str]) -> Iterable[str]:  # noqa: ARG002 - for subclasses
        """Return the possible texts before the first dot of the version that this object continues.

        The framework calls :meth:`continues` only for versions that begin with one of these texts.

        Args:
            lengths: the texts before the first colon of known versions.
        """
        return ()

    def __repr__(self) -> str:
        """Show the key."""
        return f"<{type(self).__name__} {self.context.key!r}>"


class ObjectMovedError(ObjectError):
    """The key has another object by now. A later listing has the moved object, which has not failed."""


class SourceContext(msgspec.Struct, frozen=True, kw_only=True):
    """The name and the tasks for which a source is opened.

    Args:
        name: the name under which the source's offsets are stored.
        task: the number of the task that reads the source, from 0.
        tasks: how many tasks share the source. Each task lists all keys, and the framework assigns each key
            to one task.
    """

    name: str = ""
    task: int = 0
    tasks: int = 1


class OpenSource(Protocol[_Listed_contra]):
    """A connected source: it lists its objects, and is closed once."""

    def items(self, start: _Listed_contra | None) -> Iterator[NativeItem]:
        """Yield the objects in the order of their keys, from a start key, in the same order each time.

        One thread calls this many times, and each call begins a new listing. A listing yields each object as
        it is found, and keeps no more than a page in memory. A listing may end after a page: the framework
        then continues from the last key.

        Args:
            start: the first key to list, or, if :attr:`Source.includes_start` is false, the key after which
                to begin; None for the beginning. The object of this key may have been removed.

        Raises:
            OSError: the source cannot be listed now; the framework tries again until a deadline.
            SourceError: the source cannot be listed; the framework does not try again.
        """
        ...

    def close(self) -> None:
        """Release connections; called once, also after a failure."""
        ...


class Source(SecretOptions, Generic[Key], frozen=True, kw_only=True):
    """Hold the options of a source, and open the source.

    A subclass adds its options as fields. It defines ``items`` and, if needed, ``close``, or returns an
    object with both from :meth:`open`. Its entry point is in the group ``headerware.sources``.
    """

    keys: ClassVar[KeySerde[Any] | None] = None
    """Converts keys to text and back. Without a key serde there is no start key, and keys must be text, bytes
    or integers, unless the subclass defines :meth:`partition`."""
    includes_start: ClassVar[bool] = True
    """Whether ``items(start)`` begins with the start key itself."""
    repeats_order: ClassVar[bool] = True
    """Whether listings are in the order of keys. If not, each listing begins at the configured start."""
    repeats_records: ClassVar[bool] = True
    """Whether an object has the same records in the same order each time. If not, an object that was read in
    part starts again."""
    fixed: ClassVar[Mapping[str, Any]] = {}
    """Options of the framework that the source sets and users cannot, such as ``{"extractor": "csv"}``."""
    retried: ClassVar[_Errors] = ()
    """Errors after which the framework tries again, as after OSError, such as a client library's errors."""

    def open(self, context: SourceContext) -> OpenSource[Key]:  # noqa: ARG002 - a stateless source needs none
        """Return the connected source; by default the options themselves.

        Raises:
            ConfigError: an option is invalid.
            OSError: the system cannot be reached now; the framework tries again until a deadline.
        """
        return self  # type: ignore[return-value]  # open_source checks it

    def close(self) -> None:
        """Release connections; the default does nothing."""

    def partition(self, key: Key) -> dict[str, Any]:
        """Return the partition map under which the offset of an object is stored.

        The partition map depends on the key alone, and is equal each time.

        Raises:
            SourceError: there is no key serde, and the key is not text, bytes or an integer.
        """
        if self.keys is not None:
            return {"key": self.keys.to_text(key)}
        if type(key) in (str, bytes, int):
            return {"key": key}
        raise SourceError(
            f"{self.type}: expected a key of text, bytes or an integer, or a key serde; found "
            f"{type(key).__name__}"
        )

    def resumed(self, key: Key, entry: OffsetEntry) -> OffsetEntry | None:  # noqa: ARG002 - for subclasses
        """Return the offset from which to continue a partly read object; None to read it from the start."""
        return entry if self.repeats_records else None

    def last_evolution(self, record: EvolvingRecord) -> EvolvingRecord:
        """Change a record for the last time before Connect's transforms and the chain.

        Called once for each record that is sent, after extraction. ``record.replace(...)`` can change
        everything except the native key and the record number. An error counts as an error of the record.
        """
        return record


source_type: Final[Catalogue[Source[Any]]] = Catalogue("source type", Source, _BUILT_IN, "headerware.sources")
"""The sources by name; other sources come from entry points of the group ``headerware.sources``."""

_CALLED: Final = {"items": ("start",), "close": ()}


def open_source(options: Any, context: SourceContext, *, path: str = "source") -> OpenSource[Any]:
    """Open the source that an option names.

    Args:
        options: a :class:`Source`; or, from configuration, a type or a table of ``type`` and options.
        context: the name and the tasks for which to open the source.
        path: the option's path, for errors.

    Raises:
        ConfigError: an option is invalid, or the source is unknown.
        OSError: the system cannot be reached now.
    """
    source = from_option(options, source_type, path=path)
    if not isinstance(source, Source):
        raise ConfigError(f"expected a Source, found {type(source).__name__}", path=path)
    opened = source.open(context)
    for method in _CALLED:
        if not callable(getattr(opened, method, None)):
            raise PluginError(
                f"expected a method {method}() of {type(opened).__name__}, found none", path=path
            )
    require_arguments(opened, _CALLED, path=path)
    return opened
