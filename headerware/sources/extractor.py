"""Extractors: they make records of one object.

    class Lines(Extractor, frozen=True, kw_only=True):
        type = "lines"

        def extract(self, given):
            for line in given.open_stream():
                yield Extracted(line, size_bytes=len(line))

An extractor yields, one for each record number, from the record on at which it begins:

    Extracted          a record
    BadRecordError     a record that cannot be read; the next one can
    a list of these    records that were read together, such as those of a block; fewer calls for each
    (raises)           an error of the object: nothing behind it can be read

A bad record is yielded and not raised, because a generator that has raised is over: so the records behind it
can still be read, and no error passes for the end of the object. It streams: whatever the size of the object,
it holds a record or a block of them.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from tempfile import SpooledTemporaryFile, gettempdir
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Final, Self, cast

import msgspec

from headerware.core.errors import BadRecordError, ConfigError, SourceError, SourceUnavailableError
from headerware.core.headers import EMPTY, Headers
from headerware.core.options import from_option
from headerware.core.plugins import Catalogue, require_arguments
from headerware.core.typed_options import TypedOptions

if TYPE_CHECKING:
    from headerware.connect.data.schema import Schema
    from headerware.sources.source import NativeItem

_SPOOLED_IN_MEMORY: Final = 1 << 20
_NO_ROOM: Final = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}
_EXTRACTORS: Final = "headerware.sources.extractors"
_BUILT_IN: Final = {
    "avro": f"{_EXTRACTORS}.avro:AvroExtractor",
    "bytes": f"{_EXTRACTORS}.bytes:BytesExtractor",
    "csv": f"{_EXTRACTORS}.csv:CsvExtractor",
    "jsonl": f"{_EXTRACTORS}.json_lines:JsonLinesExtractor",
    "parquet": f"{_EXTRACTORS}.parquet:ParquetExtractor",
}


class Extracted(msgspec.Struct, frozen=True, gc=False):
    """One record, as an extractor reads it; nothing of it is changed later.

    Args:
        value: the value: bytes, a plain Python value, or one that fits the schema.
        schema: the value's schema; None if it has none. A Struct of Connect's brings its own.
        key: the record's key; None if there is none.
        key_schema: the key's schema.
        timestamp_ms: its time in milliseconds since the epoch; None is the item's, or else that of sending.
        headers: headers of its own.
        properties: where it ends in the object, such as ``{"byte": 1024}``: whatever helps to begin behind it
            later. It is kept with the offset, so that it should be small.
        size_bytes: its approximate size in memory, for the limits of the queue; 0 if that is not known.
    """

    value: Any
    schema: Schema | None = None
    key: Any = None
    key_schema: Schema | None = None
    timestamp_ms: int | None = None
    headers: Headers = EMPTY
    properties: Mapping[str, Any] | None = None
    size_bytes: int = 0


Found = Extracted | BadRecordError
"""One record of an object, or why it cannot be read."""


class Split(msgspec.Struct, frozen=True):
    """A part of an object that can be read by itself; where Spark reads, it is pickled.

    Args:
        begin: the first unit of the part: a byte, a row group, whatever the extractor counts.
        end: the first unit behind it.
        first_record: the number of its first record, or None if that is not known without reading. Then a
            record's number is that within the split.
    """

    begin: int
    end: int
    first_record: int | None = None


class Input:
    """One object while it is read. It closes all streams that were opened through it.

    Args:
        item: the object.
        skip: how many records at the beginning are known. An extractor may yield them, and they are passed
            over; or it begins behind them, and says so by :attr:`skipped`.
        properties: those of the offset behind the record ``skip``; empty at the beginning.
        split: the part to read; None is the whole object.
    """

    def __init__(
        self,
        item: NativeItem,
        *,
        skip: int = 0,
        properties: Mapping[str, Any] | None = None,
        split: Split | None = None,
    ) -> None:
        self.item: Final = item
        self.skip: Final = skip
        self.properties: Final[Mapping[str, Any]] = {} if properties is None else properties
        self.split: Final = split
        self.skipped: int = 0
        """How many records the extractor has passed over by itself, ``skip`` at most. It sets this before it
        yields its first record, if it can begin there cheaply, by seeking for instance."""
        self._stream: BinaryIO | None = None
        self._open = ExitStack()

    def open_stream(self) -> BinaryIO:
        """Return a fresh stream of the object's bytes, which is closed with this.

        Raises:
            NotAStreamError: the object has no bytes to read.
            OSError: it cannot be read now.
            ObjectError: it cannot be read.
        """
        self._stream = stream = self._open.enter_context(self.item.open_stream())
        return stream

    @property
    def position(self) -> int:
        """Where the latest stream is, in bytes; 0 if it does not tell."""
        try:
            return 0 if self._stream is None else self._stream.tell()
        except (AttributeError, OSError, ValueError):
            return 0

    def open_seekable(self) -> BinaryIO:
        """Return a fresh stream that can seek; one that cannot is copied to a temporary file first.

        Raises:
            OSError: as for :meth:`open_stream`, or there is no room for the copy.
        """
        stream = self.open_stream()
        return stream if stream.seekable() else self.spooled(stream)

    def spooled(self, stream: BinaryIO) -> BinaryIO:
        """Return a copy of a stream that can seek: in memory, or in a temporary file if it is large.

        Raises:
            OSError: the stream cannot be read now, or there is no room for the copy.
        """
        copy = SpooledTemporaryFile(_SPOOLED_IN_MEMORY)  # noqa: SIM115 - closed with the others
        self._open.callback(copy.close)
        try:
            shutil.copyfileobj(stream, copy)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            raise SourceUnavailableError(
                f"there is no room for a copy of it in {gettempdir()}", after_s=0
            ) from error
        copy.seek(0)
        return cast("BinaryIO", copy)

    def closing(self, stream: BinaryIO) -> BinaryIO:
        """Return a stream that was made of another one, such as a decompressor; it is closed with this."""
        return self._open.enter_context(stream)

    def close(self) -> None:
        """Close all streams, the latest first, all of them even if one cannot be closed."""
        self._open.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Extractor(TypedOptions, frozen=True, kw_only=True):
    """Hold the options of an extractor, and read objects; it has no other state.

    A subclass adds its options as fields. Its entry point stands in the group ``headerware.extractors``.

    Args:
        max_record_bytes: the largest record, in bytes as read; a larger one is a bad record if the extractor
            can find the next one, or else an error of the object.
    """

    gives: ClassVar[Any] = object
    """The type of the values that it yields, for the checks of transformers; ``object`` is any."""
    content_type: ClassVar[str | None] = None
    """The media type of the values, if they are bytes."""

    max_record_bytes: int = 16 << 20

    def extract(self, given: Input) -> Iterator[Found | list[Found]]:
        """Yield the records of an object or of a split, in an order that is the same each time.

        The iterator is closed on every path, and what was opened through ``given`` is closed then, too.

        Raises:
            OSError: the object cannot be read now; this is tried again behind the last record.
            ObjectError: it is cut off or damaged.
        """
        raise NotImplementedError

    def splits(self, given: Input, size_bytes: int) -> Iterable[Split]:  # noqa: ARG002 - for subclasses
        """Return parts of about a size that cover the object once; none if it cannot be split."""
        return ()


class _ExtractorCatalogue(Catalogue[Extractor]):
    """Find extractors whatever the case of the word."""

    def find(self, word: str, *, path: str = "") -> Any:
        found = super().find(word, path=path)
        if found is not None:
            return found
        same = [name for name in self.names() if name.casefold() == word.casefold()]
        return super().find(same[0], path=path) if len(same) == 1 else None


extractor_type: Final[Catalogue[Extractor]] = _ExtractorCatalogue(
    "extractor type", Extractor, _BUILT_IN, "headerware.extractors"
)
"""The extractors by word, whatever its case; others come from the group ``headerware.extractors``."""


def extractor_from(options: Any, *, path: str = "extractor") -> Extractor:
    """Return the extractor that an option names.

    Args:
        options: an :class:`Extractor`; or, as configuration has it, the word for one or a table of ``type``
            and its options.
        path: the option's path, for errors.

    Raises:
        ConfigError: an option that cannot work, or no such extractor.
    """
    found = from_option(options, extractor_type, path=path)
    if not isinstance(found, Extractor):
        raise ConfigError(f"expected an Extractor, found {type(found).__name__}", path=path)
    if type(found).extract is Extractor.extract:
        raise ConfigError(f"{type(found).__name__} has no extract(given)", path=path)
    require_arguments(found, {"extract": ("given",), "splits": ("given", "size_bytes")}, path=path)
    return found


def extracted(extractor: Extractor, given: Input) -> Iterator[tuple[int, Found]]:
    """Yield the records behind those that are known, each with its number; close everything in the end.

    Raises:
        SourceError: the extractor says that it has passed over more than it may, or yields something else.
    """
    with closing(extracted_runs(extractor, given)) as runs:
        for first, run in runs:
            yield from enumerate(run, first)


def extracted_runs(extractor: Extractor, given: Input) -> Generator[tuple[int, Sequence[Found]], None, None]:
    """Yield runs of the records behind those that are known, each with the number of its first one.

    The one way in which an extractor is called: by the engine, by Spark and by the conformance suite. It
    closes everything in the end.

    Raises:
        SourceError: the extractor says that it has passed over more than it may, or yields something else.
    """
    first = 1 if given.split is None or given.split.first_record is None else given.split.first_record
    with given:
        records = iter(extractor.extract(given))
        try:
            following = None
            for found in records:
                run: Sequence[Found] = found if isinstance(found, list) else (found,)
                if following is None:
                    if not 0 <= given.skipped <= given.skip:
                        raise SourceError(
                            f"{extractor.type}: it passed over {given.skipped} records, and {given.skip} are "
                            "known"
                        )
                    following = first + given.skipped
                following += len(run)
                if following - len(run) < first + given.skip:
                    run = run[first + given.skip - following + len(run) :]
                if not _KINDS.issuperset(map(type, run)):
                    _require_found(extractor, run)
                if run:
                    yield following - len(run), run
        finally:
            close = getattr(records, "close", None)
            if close is not None:
                close()


_KINDS: Final = frozenset({Extracted, BadRecordError})


def _require_found(extractor: Extractor, run: Sequence[Any]) -> None:
    for record in run:
        if not isinstance(record, Extracted | BadRecordError):
            raise SourceError(
                f"{extractor.type}: expected an Extracted or a BadRecordError, found {type(record).__name__}"
            )
