"""Extractors: read the records of one object.

    class Lines(Extractor, frozen=True, kw_only=True):
        type = "lines"

        def extract(self, given):
            for line in given.open_stream():
                yield Extracted(line, size_bytes=len(line))

An extractor yields one result for each record number, from the record at which it begins:

    Extracted          a record
    BadRecordError     a record that cannot be read; later records can be read
    a list of these    records that were read together, such as a block, which needs fewer calls
    (raises)           an error of the object: later records cannot be read

A bad record is yielded, not raised, because a generator ends when it raises. Later records can therefore
still be read, and an error is never taken for the end of the object. Extractors stream: for any size of
object, they hold only one record or one block of records in memory.
"""

from __future__ import annotations

import errno
import io
import shutil
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from tempfile import SpooledTemporaryFile, gettempdir
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Final, cast

import msgspec

from headerware.connect.data.schema import Schema
from headerware.core.closing import Closing
from headerware.core.errors import BadRecordError, ConfigError, SourceError, SourceUnavailableError
from headerware.core.headers import EMPTY, Headers
from headerware.core.options import from_option
from headerware.core.plugins import Catalogue, require_arguments
from headerware.core.typed_options import TypedOptions

if TYPE_CHECKING:
    from headerware.sources.source import NativeItem

_SPOOLED_IN_MEMORY: Final = 1 << 20
_BUFFER_BYTES: Final = 1 << 18
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
    """One record as an extractor reads it; the record is never changed.

    Args:
        value: the value: bytes, a plain Python value, or a value that fits the schema.
        schema: the value's schema; None if it has none. A Connect Struct has its own.
        key: the record's key, or None.
        key_schema: the key's schema.
        timestamp_ms: the timestamp in milliseconds since the epoch; None means the item's timestamp, or
            without one the time of sending.
        headers: the headers of this record.
        properties: the position after the record, such as ``{"byte": 1024}``, or other facts that help to
            resume there. They are stored with the offset, so they should be small.
        size_bytes: the approximate size in memory, for the limits of the queue; 0 if it is not known.
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
"""One record of an object, or the error if it cannot be read."""


class Split(msgspec.Struct, frozen=True):
    """A part of an object that can be read independently; for Spark it is pickled.

    Args:
        begin: the first unit of the part; the extractor defines the unit, such as a byte or a row group.
        end: the first unit after the part.
        first_record: the number of the part's first record. None if it is not known without reading; records
            are then numbered within the part.
    """

    begin: int
    end: int
    first_record: int | None = None


class Input(Closing):
    """One object while it is read. Closing it closes all streams that were opened through it.

    Args:
        item: the object.
        skip: how many records at the beginning are stored already. An extractor may yield these records,
            which are then skipped, or begin after them and set :attr:`skipped`.
        properties: the offset's properties after record number ``skip``; empty at the beginning.
        split: the part to read; None reads the complete object.
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
        """How many records the extractor has skipped itself, at most ``skip``. An extractor sets this before
        it yields its first record, if it can begin later at low cost, for example by seeking."""
        self._stream: BinaryIO | None = None
        self._open = ExitStack()

    def open_stream(self) -> BinaryIO:
        """Return a new stream of the object's bytes, which :meth:`close` closes.

        Raises:
            NotAStreamError: the object has no bytes to read.
            OSError: the object cannot be read now. The stream raises it, too, if it ends before the exact
                length of its item.
            ObjectError: the object cannot be read.
        """
        stream = self._open.enter_context(self.item.open_stream())
        if self.item.length_is_exact and self.item.length > 0:
            checked = io.BufferedReader(_WholeStream(stream, self.item.length), _BUFFER_BYTES)
            stream = self._open.enter_context(checked)
        self._stream = stream
        return stream

    @property
    def position(self) -> int:
        """The position of the latest stream, in bytes; 0 if it is not known."""
        try:
            return 0 if self._stream is None else self._stream.tell()
        except (AttributeError, OSError, ValueError):
            return 0

    def open_seekable(self) -> BinaryIO:
        """Return a new stream that can seek; a stream that cannot is first copied with :meth:`spooled`.

        Raises:
            OSError: as for :meth:`open_stream`, or there is no space for the copy.
        """
        stream = self.open_stream()
        return stream if stream.seekable() else self.spooled(stream)

    def spooled(self, stream: BinaryIO) -> BinaryIO:
        """Return a seekable copy of a stream: in memory, or in a temporary file if it is large.

        Raises:
            OSError: the stream cannot be read now, or there is no space for the copy.
        """
        copy = SpooledTemporaryFile(_SPOOLED_IN_MEMORY)  # noqa: SIM115 - close() closes it
        self._open.callback(copy.close)
        try:
            shutil.copyfileobj(stream, copy)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            raise SourceUnavailableError(
                f"there is no space for a copy of the object in {gettempdir()}", after_s=0
            ) from error
        copy.seek(0)
        return cast("BinaryIO", copy)

    def closing(self, stream: BinaryIO) -> BinaryIO:
        """Register a stream that was made of another one, such as a decompressor, to be closed too."""
        return self._open.enter_context(stream)

    def close(self) -> None:
        """Close all streams, the latest first, even if closing one of them fails."""
        self._open.close()


class _WholeStream(io.RawIOBase):
    """A stream that raises an error if it ends before an expected length."""

    def __init__(self, stream: BinaryIO, length: int) -> None:
        super().__init__()
        self._stream = stream
        self._length = length
        # Some streams wait until they have all of the bytes that read() asks for.
        self._read = getattr(stream, "read1", stream.read)
        self._position = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        found = self._read(len(buffer))
        if not found:
            self._require_end(self._position)
        buffer[: len(found)] = found
        self._position += len(found)
        return len(found)

    def seekable(self) -> bool:
        return self._stream.seekable()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = self._stream.seek(offset, whence)
        if whence == io.SEEK_END:
            self._require_end(self._position - offset)
        return self._position

    def tell(self) -> int:
        return self._position

    def _require_end(self, end: int) -> None:
        if end < self._length:
            raise SourceUnavailableError(
                f"expected {self._length} bytes, the listed length, found {end} before the stream ended"
            )


class Extractor(TypedOptions, frozen=True, kw_only=True):
    """The options of an extractor, and the method that reads objects; an extractor has no other state.

    A subclass adds its options as fields, and has an entry point in the group ``headerware.extractors``.

    Args:
        max_record_bytes: the largest record, in bytes as read. A larger record is a bad record if the
            extractor can find the next one, else an error of the object.
    """

    gives: ClassVar[Any] = object
    """The type of the yielded values, for the checks of transformers; ``object`` means any type."""
    content_type: ClassVar[str | None] = None
    """The media type of the values, if they are bytes."""

    max_record_bytes: int = 16 << 20

    def extract(self, given: Input) -> Iterator[Found | list[Found]]:
        """Yield the records of an object or a split, in the same order each time.

        The caller always closes the iterator, and all streams that were opened through ``given``.

        Raises:
            OSError: the object cannot be read now; the engine tries again after the last record.
            ObjectError: the object is truncated or damaged.
        """
        raise NotImplementedError

    def require_parts(self) -> None:
        """Raise MissingPartError if a package is missing without which no object can be read."""

    def splits(self, given: Input, size_bytes: int) -> Iterable[Split]:  # noqa: ARG002 - for subclasses
        """Return parts of about a size that cover the object once; return none if it cannot be split."""
        return ()


class _ExtractorCatalogue(Catalogue[Extractor]):
    """Find extractors without regard to the case of the word."""

    any_case = True

    def find(self, word: str, *, path: str = "") -> Any:
        found = super().find(word, path=path)
        if found is not None:
            return found
        same = [name for name in self.names() if name.casefold() == word.casefold()]
        return super().find(same[0], path=path) if len(same) == 1 else None


extractor_type: Final[Catalogue[Extractor]] = _ExtractorCatalogue(
    "extractor type", Extractor, _BUILT_IN, "headerware.extractors"
)
"""The extractors by word, in any case; plug-ins are in the group ``headerware.extractors``."""


def extractor_from(options: Any, *, path: str = "extractor") -> Extractor:
    """Return the extractor that an option names.

    Args:
        options: an :class:`Extractor`, the word for one, or a table of ``type`` and its options.
        path: the option's path, for errors.

    Raises:
        ConfigError: the extractor is unknown, or an option cannot work.
    """
    found = from_option(options, extractor_type, path=path)
    if not isinstance(found, Extractor):
        raise ConfigError(f"expected an Extractor, found {type(found).__name__}", path=path)
    if type(found).extract is Extractor.extract:
        raise ConfigError(f"{type(found).__name__} needs a method extract(given)", path=path)
    require_arguments(found, {"extract": ("given",), "splits": ("given", "size_bytes")}, path=path)
    return found


def extracted(extractor: Extractor, given: Input) -> Iterator[tuple[int, Found]]:
    """Yield the records after the skipped ones, each with its number; close all streams at the end.

    Raises:
        SourceError: the extractor has skipped too many records, or yields another type.
    """
    with closing(extracted_runs(extractor, given)) as runs:
        for first, run in runs:
            yield from enumerate(run, first)


def extracted_runs(extractor: Extractor, given: Input) -> Generator[tuple[int, Sequence[Found]], None, None]:
    """Yield runs of consecutive records after the skipped ones, each with the number of its first record.

    The engine, Spark and the conformance suite all call extractors through this function. It closes all
    streams at the end.

    Raises:
        SourceError: the extractor has skipped too many records, or yields another type.
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
                            f"{extractor.type}: expected at most {given.skip} skipped records, found "
                            f"{given.skipped}"
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
