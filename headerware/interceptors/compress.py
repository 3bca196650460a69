"""Compress: the value of each record is compressed by itself, if that pays (spec/compress.md).

Header ``hw.compress`` is the name of the codec, as in HTTP's Content-Encoding: ``zstd`` or ``gzip``. A value
is exactly one zstd frame or one gzip member. If a trained dictionary was used, the header is base64 of a
layout that names it (:mod:`headerware.dictionaries.dictionary`), and the value is one zstd frame that was
written with it.

A client's own batch compression is better for large batches of small records. This interceptor pays if values
are encrypted afterwards, if batches are small, or if records are stored outside of Kafka. If an attacker can
choose a part of a value that is then encrypted, the length of the ciphertext reveals something about the
other parts.
"""

from __future__ import annotations

import logging
import zlib
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, NamedTuple

import msgspec
import zstandard

from headerware.core.awaited import Awaited
from headerware.core.batch import header_names
from headerware.core.bounded_cache import BoundedCache
from headerware.core.errors import (
    CompressionError,
    ConfigError,
    DictionaryError,
    HeldBackError,
    WireFormatError,
)
from headerware.core.headers import Headers, HeaderValue
from headerware.core.hooks import Interceptor, Place, Role
from headerware.core.native import NativeForm, NativeState
from headerware.core.options import kinds
from headerware.core.topics import TopicPatterns
from headerware.dictionaries.dictionary import (
    COMPRESS_HEADER,
    DictionaryId,
    checked_id,
    decode_mark,
    encode_mark,
)
from headerware.dictionaries.store import (
    Dictionaries,
    SharedStore,
    dictionaries_type,
    is_store,
    open_shared,
    use_for,
)

if TYPE_CHECKING:
    from headerware.core.batch import Batch
    from headerware.core.context import Context
    from headerware.core.headers import Pair
    from headerware.core.record import Record
    from headerware.core.services import Direction

_HEADER_BYTES: Final = 1 + len(COMPRESS_HEADER) + 1 + 4
"""The size of the header in a record: both lengths, its name and its value."""
_DECISIVE: Final = frozenset({COMPRESS_HEADER, "content-type", "Content-Type"})
"""Headers that decide whether to compress. Kafka compares names with case; HTTP bridges keep HTTP's case."""
_MAX_CONTENT_TYPES: Final = 256
_MAX_DICTIONARIES: Final = 64
"""How many dictionaries are ready for use in each direction."""
_MAX_MISSING: Final = 1024
_MIN_BYTES: Final = 128
_MIN_BYTES_WITH_DICTIONARY: Final = 64
_log = logging.getLogger("headerware.interceptors.compress")
_REASONS: Final[tuple[str, ...]] = ("empty", "small", "encoded", "content_type", "format", "incompressible")
_new_headers: Final = tuple.__new__

_COMPRESSED_CONTENT_TYPES: Final = (
    "image/*",
    "!image/svg+xml",
    "!image/bmp",
    "video/*",
    "audio/*",
    "font/woff*",
    "application/gzip",
    "application/x-gzip",
    "application/zip",
    "application/zstd",
    "application/x-bzip2",
    "application/x-xz",
    "application/x-lz4",
    "application/x-7z-compressed",
    "application/vnd.rar",
    "application/x-rar-compressed",
    "application/java-archive",
    "application/epub+zip",
    "application/vnd.android.package-archive",
    "application/vnd.openxmlformats-officedocument.*",
    "application/vnd.oasis.opendocument.*",
    "application/vnd.apache.parquet",
)


class Compress(Interceptor, frozen=True, kw_only=True):
    """Compress values on send if that makes them smaller, and decompress them on consume.

    Null and empty values stay as they are, and so do values that are small, that are compressed already (by
    their content type or their first bytes), or that do not shrink by the margin.

    Args:
        codec: ``zstd``, or ``gzip`` for readers that have nothing else.
        level: zstd's -7 to 22, by default 3; gzip's 1 to 9, by default 6. Not 0.
        min_bytes: the size in bytes below which values are not compressed; None means 128, or 64 with a
            dictionary. Smaller JSON or plain text saves less than the header takes (17 bytes, or 37), and
            each try costs some microseconds.
        margin: the share of its size by which a value must shrink, header included.
        skip_content_types: patterns of content types that are not compressed; a leading ``!`` excludes.
            Parameters (``; charset=...``) and case are ignored.
        max_decompressed_bytes: the largest size of a decompressed value, whatever size the value states.
        dictionaries: the store of trained dictionaries; by type: ``folder`` or ``topic``. Values of a topic
            with a dictionary are compressed with it, if the codec is ``zstd``. If the store is out of reach,
            producers compress values without a dictionary.
        trusted_dictionaries: ids of the dictionaries that may be used, in both directions; if empty, all
            dictionaries of the store may be used.
        missing_dictionary_wait_ms: how long a consumer holds back a record whose dictionary the store does
            not have yet, in milliseconds. After this time, records with that dictionary are refused
            at once for ten times as long.

    Raises:
        ConfigError: the codec or its level is unknown, or dictionaries are combined with gzip.

    Safe for use by several threads at once.
    """

    type: ClassVar[str] = "compress"
    role: ClassVar[Role] = Role.TRANSFORM
    place: ClassVar[Place | None] = Place.COMPRESS
    decodes: ClassVar[tuple[str, ...]] = (COMPRESS_HEADER,)

    codec: Literal["zstd", "gzip"] = "zstd"
    level: int | None = None
    min_bytes: Annotated[int, msgspec.Meta(ge=0)] | None = None
    margin: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.05
    skip_content_types: tuple[str, ...] = _COMPRESSED_CONTENT_TYPES
    max_decompressed_bytes: Annotated[int, msgspec.Meta(ge=1, le=1 << 40)] = 256 << 20
    dictionaries: Annotated[Any, kinds(dictionaries_type)] = None
    trusted_dictionaries: tuple[DictionaryId, ...] = ()
    missing_dictionary_wait_ms: Annotated[int, msgspec.Meta(ge=0, le=600_000)] = 10_000

    def __post_init__(self) -> None:
        """Refuse an unknown codec, and a level that the codec does not have."""
        if self.codec not in CODECS:  # options from code are not checked before
            message = f"expected one of {', '.join(CODECS)}, found {self.codec!r}"
            raise ConfigError(message, path="codec")
        levels = CODECS[self.codec].levels
        if self.level is not None and (self.level not in levels or self.level == 0):
            message = (
                f"expected a level of {self.codec}, {levels[0]} to {levels[-1]} without 0, "
                f"found {self.level!r}"
            )
            raise ConfigError(message, path="level")
        if self.dictionaries is not None:
            if not (isinstance(self.dictionaries, Dictionaries) or is_store(self.dictionaries)):
                message = f"expected a store of dictionaries, found {type(self.dictionaries).__name__}"
                raise ConfigError(message, path="dictionaries")
            if self.codec != "zstd":
                message = f"expected the codec 'zstd' for dictionaries, found {self.codec!r}"
                raise ConfigError(message, path="dictionaries")
        for each in self.trusted_dictionaries:
            try:
                checked_id(each)
            except DictionaryError as error:
                raise ConfigError(str(error), path="trusted_dictionaries") from None

    def open(self, context: Context) -> _CompressStep:
        """Return the hooks for one session.

        A session that may send reads the store of dictionaries first, for two seconds at most.
        """
        if self.dictionaries is None:
            return _CompressStep(self, None)
        opened = _SessionDictionaries(self, open_shared(self.dictionaries), context)
        if context.side != "consumer":
            opened.start()
        return _CompressStep(self, opened)


def _pooled(make: Callable[[], _Codec]) -> _Codec:
    """Return a codec for all threads: each call takes an idle one, because a shared one would crash."""
    idle: deque[_Codec] = deque()
    take, put_back = idle.pop, idle.append

    def call(value: bytes) -> bytes:
        try:
            codec = take()
        except IndexError:
            codec = make()
        try:
            return codec(value)
        finally:
            put_back(codec)

    return call


class _CompressStep:
    """The hooks of one session.

    The counts are exact if the interpreter has its global lock, and approximate otherwise.
    """

    __slots__ = (
        "_bytes_in",
        "_bytes_out",
        "_cap",
        "_compress",
        "_compressed",
        "_decompress",
        "_decompressed",
        "_dictionaries",
        "_is_skipped",
        "_keep",
        "_left_alone",
        "_level_of_zstd",
        "_mark",
        "_min_bytes",
        "_min_plain_bytes",
        "_skips",
        "_with_dictionary",
    )

    def __init__(self, options: Compress, dictionaries: _SessionDictionaries | None) -> None:
        kind = CODECS[options.codec]
        level = _level(options)
        self._level_of_zstd = level if options.codec == "zstd" else None
        self._cap = cap = options.max_decompressed_bytes
        self._dictionaries = dictionaries
        self._compress = _pooled(partial(kind.compressor, level))
        self._decompress = {
            name.encode(): _pooled(partial(known.decompressor, cap)) for name, known in CODECS.items()
        }
        self._mark: Pair = (COMPRESS_HEADER, options.codec.encode())
        least = _MIN_BYTES if dictionaries is None else _MIN_BYTES_WITH_DICTIONARY
        self._min_bytes = least if options.min_bytes is None else options.min_bytes
        has_least = self._min_bytes == _MIN_BYTES_WITH_DICTIONARY
        self._min_plain_bytes = _MIN_BYTES if has_least else self._min_bytes
        """The same for a value without a dictionary, where others have one."""
        self._keep = 1 - options.margin
        patterns = [pattern.lower() for pattern in options.skip_content_types]
        self._skips = TopicPatterns(patterns) if patterns else None
        self._is_skipped: BoundedCache[bytes, bool] = BoundedCache(_MAX_CONTENT_TYPES, self._skips_type)
        self._bytes_in = self._bytes_out = self._compressed = self._decompressed = self._with_dictionary = 0
        self._left_alone = dict.fromkeys(_REASONS, 0)

    def on_send(self, record: Record) -> Record:
        """Compress the value if that pays."""
        made = self._compressed_parts(record.topic, record.value, record.headers)
        return record if made is None else record.with_value(*made)

    def on_send_batch(self, batch: Batch) -> Batch:
        """Do as :meth:`on_send` for each record."""
        compress = partial(self._compressed_parts, batch.topic)
        return batch.remake(("value", "headers"), compress, batch.values, batch.headers)

    def on_consume(self, record: Record) -> Record:
        """Decompress the value if there is ``hw.compress``, and remove that header."""
        made = self._plain_parts(record.value, record.headers)
        return record if made is None else record.with_value(*made)

    def on_consume_batch(self, batch: Batch) -> Batch:
        """Do as :meth:`on_consume` for each record."""
        if COMPRESS_HEADER not in header_names(batch.headers):
            return batch
        return batch.remake(("value", "headers"), self._plain_parts, batch.values, batch.headers)

    def native_form(self, direction: Direction, topic: str) -> NativeForm | None:
        """Return the native form of a batch hook; gzip is written in Python."""
        if direction == "consume":
            return NativeForm(self._native_reading)
        return NativeForm(partial(self._native_writing, topic)) if self._level_of_zstd is not None else None

    def _native_reading(self, _batch: Batch) -> NativeState:
        # The dictionaries of records that came before; another one is fetched by the hooks.
        dictionaries, no_marks = self._dictionaries, frozenset[HeaderValue]()
        marks = no_marks if dictionaries is None else frozenset(dictionaries.readers.entries())

        def arguments() -> tuple[int, list[bytes]]:
            known = [] if dictionaries is None else map(dictionaries.known, marks)
            return self._cap, [content for content in known if content is not None]

        return NativeState("decompress", marks, arguments, note=self._note_decompressed)

    def _note_decompressed(self, _batch: Batch, _not_taken: Sequence[int], decompressed: int) -> None:
        self._decompressed += decompressed

    def _native_writing(self, topic: str, _batch: Batch) -> NativeState:
        # What was decided for records that came before; the hooks decide about other content types.
        skips = frozenset(self._is_skipped.entries().items())
        writers = None if self._dictionaries is None else self._dictionaries.chosen(topic)

        def arguments() -> _Writing:
            assert self._level_of_zstd is not None  # noqa: S101 - native_form has looked
            return _Writing(
                level=self._level_of_zstd,
                share=self._keep,
                min_bytes=self._min_bytes,
                min_plain_bytes=self._min_plain_bytes,
                formats=list(_FORMATS.values()),
                skips=list(skips),
                writers=None
                if writers is None
                else [(content_type, writer and writer.dictionary) for content_type, writer in writers],
            )

        return NativeState("compress", (skips, writers), arguments, note=self._note_compressed)

    def _note_compressed(self, _batch: Batch, _not_taken: Sequence[int], facts: Any) -> None:
        left_alone, compressed, bytes_in, bytes_out, with_dictionary = facts
        for reason, count in zip(_REASONS, left_alone, strict=True):
            self._left_alone[reason] += count
        self._compressed += compressed
        self._bytes_in += bytes_in
        self._bytes_out += bytes_out
        self._with_dictionary += with_dictionary

    def _compressed_parts(self, topic: str, value: Any, headers: Headers) -> tuple[bytes, Headers] | None:
        """Return a compressed value, and the headers with the mark; None if the value stays as it is."""
        if not value:
            return self._left("empty")
        size = len(value)
        if size < self._min_bytes:
            return self._left("small")
        content_type: HeaderValue = None
        for name, content in headers:
            if name in _DECISIVE:
                if name == COMPRESS_HEADER:
                    return self._left("encoded")
                content_type = content
        if content_type is not None and self._is_skipped[content_type]:
            return self._left("content_type")
        if value[0] in FIRST_BYTES and is_compressed(value):
            return self._left("format")
        compress, mark, header_bytes = self._compress, self._mark, _HEADER_BYTES
        if self._dictionaries is not None:
            writer = self._dictionaries.writer(topic, content_type)
            if writer is not None:
                compress, mark, header_bytes, _ = writer
            elif size < self._min_plain_bytes:
                return self._left("small")
        smaller = compress(value)
        if len(smaller) + header_bytes > size * self._keep:
            return self._left("incompressible")
        self._compressed += 1
        self._bytes_in += size
        self._bytes_out += len(smaller)
        if mark is not self._mark:
            self._with_dictionary += 1
        return smaller, _new_headers(Headers, (*headers, mark))

    def _plain_parts(self, value: Any, headers: Headers) -> tuple[bytes, Headers] | None:
        """Return a decompressed value, and the headers without the mark; None if there is no mark."""
        kept: list[Pair] = []
        mark: Pair | None = None
        for pair in headers:
            if pair[0] != COMPRESS_HEADER:
                kept.append(pair)
            elif mark is None:
                mark = pair
            else:
                raise CompressionError(_mark_problem(value, headers))
        if mark is None:
            return None
        if value is None:
            raise CompressionError(_mark_problem(value, headers))
        decompress = self._decompress.get(mark[1])  # type: ignore[arg-type]  # null is in no table
        if decompress is None:
            decompress = self._with_a_dictionary(mark[1], value, headers)
        plain = decompress(value)
        self._decompressed += 1
        return plain, _new_headers(Headers, kept)

    def _with_a_dictionary(self, mark: HeaderValue, value: Any, headers: Headers) -> _Codec:
        """Return the decompressor for the value; raise CompressionError if there is no dictionary for it."""
        try:
            if self._dictionaries is not None:
                return self._dictionaries.readers[mark]
            dictionary_id = decode_mark(mark)
        except WireFormatError:
            raise CompressionError(_mark_problem(value, headers)) from None
        message = (
            f"the value is compressed with dictionary {dictionary_id}; name the store that has it in the "
            "option dictionaries of compress"
        )
        raise CompressionError(message)

    def stats(self) -> dict[str, int]:
        """Return the counts of values by outcome, and of their bytes."""
        return {
            "bytes_in": self._bytes_in,
            "bytes_out": self._bytes_out,
            "compressed": self._compressed,
            "decompressed": self._decompressed,
            **{f"left_alone_{reason}": count for reason, count in self._left_alone.items()},
            **(
                {}
                if self._dictionaries is None
                else {"compressed_with_dictionary": self._with_dictionary, **self._dictionaries.stats()}
            ),
        }

    def close(self) -> None:
        """Release the store of dictionaries; a second call does nothing."""
        if self._dictionaries is not None:
            self._dictionaries.close()

    def _left(self, reason: str) -> tuple[bytes, Headers] | None:
        self._left_alone[reason] += 1
        return None

    def _skips_type(self, content_type: bytes) -> bool:
        essence = content_type.partition(b";")[0].strip().lower().decode("utf-8", "replace")
        return self._skips is not None and self._skips.matches(essence)


def _level(options: Compress) -> int:
    return CODECS[options.codec].default_level if options.level is None else options.level


def _mark_problem(value: bytes | None, headers: Headers) -> str:
    """Return the problem of the ``hw.compress`` of a record."""
    marks = headers.all(COMPRESS_HEADER)
    mark = marks[-1]
    if len(marks) > 1:
        return f"{COMPRESS_HEADER} appears {len(marks)} times, expected once"
    if value is None and mark is not None and _is_sound(mark):
        return f"{COMPRESS_HEADER} on a null value: there is nothing to decompress"
    found = "null" if mark is None else "another codec, or another form of its name"
    return f"{COMPRESS_HEADER}: expected {' or '.join(CODECS)}, or a dictionary's id, found {found}"


def _is_sound(mark: bytes) -> bool:
    if mark.decode("utf-8", "replace") in CODECS:
        return True
    try:
        decode_mark(mark)
    except WireFormatError:
        return False
    return True


class _Writing(NamedTuple):
    """The arguments of the native step that compresses."""

    level: int
    share: float
    """The share of its size to which a value must shrink."""
    min_bytes: int
    min_plain_bytes: int
    formats: list[_Marks]
    skips: list[tuple[bytes, bool]]
    """The content types that are known, and whether they are skipped."""
    writers: list[tuple[HeaderValue, bytes | None]] | None
    """The content types whose dictionary is known, and the dictionary; None if there are no dictionaries."""


class _Writer(NamedTuple):
    """The compressor with a topic's dictionary, and the header that names the dictionary."""

    compress: _Codec
    mark: Pair
    header_bytes: int
    dictionary: bytes


_Choice = BoundedCache[tuple[str, "HeaderValue"], "_Writer | None"]
_Chosen = tuple[Hashable, _Choice]
"""A generation of the store, and the writers that were chosen with it, by topic and content type."""


class _SessionDictionaries:
    """The dictionaries of one session; sending is safe for several threads, consuming has one caller.

    A producer may always compress without a dictionary. So it reads its store once, when it is opened, and
    not while it sends. A consumer needs the dictionary that a record names, and holds the record back until
    the dictionary is there.
    """

    def __init__(self, options: Compress, shared: SharedStore, context: Context) -> None:
        self._level: Final = _level(options)
        self._cap: Final = options.max_decompressed_bytes
        self._trusted: Final = frozenset(options.trusted_dictionaries)
        self._shared: Final = shared
        self._store: Final = shared.store
        self._writers: Final[BoundedCache[str, _Writer]] = BoundedCache(_MAX_DICTIONARIES)
        self.readers: Final[BoundedCache[HeaderValue, _Codec]] = BoundedCache(
            _MAX_DICTIONARIES, self._new_reader
        )
        """The decompressors, by the value of ``hw.compress``."""
        self._chosen: _Chosen = self._new_choice()
        self._missing: Final = _MissingDictionaries(
            options.missing_dictionary_wait_ms if context.tries_again else 0, context.now_ms
        )
        self._warned: set[str] = set()
        self._unusable = 0

    def start(self) -> None:
        """Read the store; if that fails, values are compressed without a dictionary meanwhile."""
        try:
            self._store.start()
        except DictionaryError as error:
            _log.warning("values are compressed without a dictionary until the store answers: %s", error)
        self._chosen = self._new_choice()

    def writer(self, topic: str, content_type: HeaderValue) -> _Writer | None:
        """Return the writer for a topic and content type, or None if there is no dictionary."""
        return self._current_choice()[topic, content_type]

    def chosen(self, topic: str) -> frozenset[tuple[HeaderValue, _Writer | None]]:
        """Return the writers of a topic that were asked for before, by content type."""
        chosen = self._current_choice().entries().items()
        return frozenset((content_type, writer) for (own, content_type), writer in chosen if own == topic)

    def _current_choice(self) -> _Choice:
        generation, chosen = self._chosen
        if self._store.generation != generation:
            _, chosen = self._chosen = self._new_choice()
        return chosen

    def known(self, mark: HeaderValue) -> bytes | None:
        """Return the dictionary that ``hw.compress`` names if the store has it here."""
        return self._store.known(decode_mark(mark))

    def stats(self) -> dict[str, int]:
        """Return the counts of records with a missing dictionary, and of unusable dictionaries."""
        return {
            "dictionary_held_back": self._missing.held_back,
            "dictionary_missing": self._missing.refused,
            "dictionary_unusable": self._unusable,
        }

    def close(self) -> None:
        self._shared.close()

    def _new_choice(self) -> _Chosen:
        generation = self._store.generation  # read before the rows, so that a change in between is noticed
        return generation, BoundedCache(_MAX_CONTENT_TYPES, self._choose)

    def _choose(self, about: tuple[str, HeaderValue]) -> _Writer | None:
        use = use_for(self._store, *about)
        if use is None:
            return None
        dictionary_id = use.current.dictionary
        found = self._writers.get(dictionary_id)
        if found is None:
            try:
                found = self._new_writer(dictionary_id)
            except DictionaryError as error:
                self._unusable += 1
                if dictionary_id not in self._warned and len(self._warned) < _MAX_MISSING:
                    self._warned.add(dictionary_id)
                    text = "topic %s is compressed without its dictionary: %s"
                    _log.warning(text, use.topic, error)
                return None
            self._writers[dictionary_id] = found
        return found

    def _new_writer(self, dictionary_id: str) -> _Writer:
        if self._trusted and dictionary_id not in self._trusted:
            raise DictionaryError(f"dictionary {dictionary_id} is not among trusted_dictionaries")
        content = self._store.known(dictionary_id)
        if content is None:
            raise DictionaryError(f"dictionary {dictionary_id} is not in the store")
        compress = dictionary_compressor(content, self._level)
        mark = encode_mark(dictionary_id)
        return _Writer(compress, (COMPRESS_HEADER, mark), 2 + len(COMPRESS_HEADER) + len(mark), content)

    def _new_reader(self, mark: HeaderValue) -> _Codec:
        """Return the decompressor with the dictionary that ``hw.compress`` names.

        Raises:
            WireFormatError: ``mark`` names no dictionary.
            HeldBackError: the store is out of reach, or may still get the dictionary.
            CompressionError: the dictionary is not trusted, is damaged, or is not there.
        """
        dictionary_id = decode_mark(mark)
        if self._trusted and dictionary_id not in self._trusted:
            message = f"dictionary {dictionary_id} is not among trusted_dictionaries"
            raise CompressionError(message)
        try:
            content = self._store.get(dictionary_id)
        except DictionaryError as error:
            message = (
                f"the value is compressed with dictionary {dictionary_id}, which cannot be fetched: {error}"
            )
            raise HeldBackError(message) from error
        if content is None:
            raise self._missing.error(dictionary_id)
        try:
            return dictionary_decompressor(content, self._cap)
        except DictionaryError as error:
            message = f"dictionary {dictionary_id}: {error}"
            raise CompressionError(message) from error


class _MissingDictionaries:
    """Decide whether a record whose dictionary the store does not have is held back or refused."""

    def __init__(self, wait_ms: int, now_ms: Callable[[], int]) -> None:
        self._wait_ms: Final = wait_ms
        self._awaited: Final[Awaited[str]] = Awaited(wait_ms, now_ms)
        self.held_back = self.refused = 0

    def error(self, dictionary_id: str) -> CompressionError | HeldBackError:
        """Return the error to raise now for a record with this dictionary."""
        message = f"the value is compressed with dictionary {dictionary_id}, which the store does not have"
        if self._awaited.waits(dictionary_id):
            self.held_back += 1
            return HeldBackError(f"{message} yet; records wait for it, {self._wait_ms / 1000:g} s at most")
        self.refused += 1
        return CompressionError(f"{message}; publish it in the store")


# Codecs return at most the cap, whatever size a value states. While they work they hold at most an eighth
# more (and zstd's window), and they allocate no memory for a size that the value cannot have.

_Codec = Callable[[bytes], bytes]

_MAX_WINDOW_BYTES: Final = 8 << 20
"""The largest window that a frame may ask for beyond its size, as RFC 8878 recommends to all decoders."""

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_EMPTY_FRAME: Final = zstandard.ZstdCompressor().compress(b"")
_MAX_RATIO = 32_768
"""The most bytes that one byte of zstd can stand for: a block of 128 KiB takes at least four."""
_NO_SIZE: Final = frozenset({0, zstandard.CONTENTSIZE_UNKNOWN})
_MIN_PIECE_BYTES = 16
_PIECE_BYTES = 1 << 20
_PIECES = 16
"""The size of a decompressed piece if a frame states no size: this many bytes, or this part of the cap."""
_INPUT_BYTES = 1 << 16
"""The bytes that zlib gets at once, because it copies the bytes that it has not used."""
_GZIP_MAGIC = b"\x1f\x8b\x08"
"""The beginning of a member that is deflated; the flags follow."""
_GZIP = 31
"""zlib's window bits for a gzip member, of any window."""
_GZIP_FLAGS: Final = slice(3, 4)
_GZIP_SIZE = slice(-4, None)


class _CodecKind(msgspec.Struct, frozen=True):
    """A codec. Compressors and decompressors are for one thread at a time."""

    levels: range
    """The levels that it has, except 0."""
    default_level: int
    compressor: Callable[[int], _Codec]
    """Make a compressor of a level."""
    decompressor: Callable[[int], _Codec]
    """Make a decompressor with a cap in bytes; it refuses anything but one complete frame below the cap."""


def _zstd_compressor(level: int) -> _Codec:
    return zstandard.ZstdCompressor(level=level).compress


def _gzip_compressor(level: int) -> _Codec:
    # zlib writes a header without a time, so the same value always has the same bytes.
    return lambda value: zlib.compress(value, level, _GZIP)


def dictionary_compressor(content: bytes, level: int) -> _Codec:
    """Return a compressor with a dictionary, for all threads.

    Raises:
        DictionaryError: zstd cannot use the dictionary.
    """
    dictionary = _loaded(content)
    try:
        dictionary.precompute_compress(level=level)  # once for all threads

        def make() -> _Codec:
            return zstandard.ZstdCompressor(level=level, dict_data=dictionary).compress

        make()(b"")
    except zstandard.ZstdError as error:
        raise _unusable(error) from error
    return _pooled(make)


def dictionary_decompressor(content: bytes, cap: int) -> _Codec:
    """Return a decompressor with a dictionary and a cap in bytes, for all threads.

    Raises:
        DictionaryError: zstd cannot use the dictionary.
    """
    dictionary = _loaded(content)

    try:
        # The first frame digests the dictionary, here in one thread for all threads.
        zstandard.ZstdDecompressor(dict_data=dictionary).decompress(_EMPTY_FRAME)
    except zstandard.ZstdError as error:
        raise _unusable(error) from error
    return _pooled(partial(_zstd_decompressor, cap, dictionary))


def _loaded(content: bytes) -> zstandard.ZstdCompressionDict:
    # DICT_TYPE_FULLDICT refuses bytes that are no dictionary of zstd; other types take them as raw content.
    return zstandard.ZstdCompressionDict(content, dict_type=zstandard.DICT_TYPE_FULLDICT)


def _unusable(error: Exception) -> DictionaryError:
    return DictionaryError(f"zstd cannot use it, because it is damaged: {error}")


def _zstd_decompressor(cap: int, dictionary: zstandard.ZstdCompressionDict | None = None) -> _Codec:
    decompressor = zstandard.ZstdDecompressor(dict_data=dictionary, max_window_size=_MAX_WINDOW_BYTES)
    decompress_frame, header_of, magic = decompressor.decompress, zstandard.get_frame_parameters, _ZSTD_MAGIC
    known_id = 0 if dictionary is None else dictionary.dict_id()

    def decompress(value: bytes) -> bytes:
        if not value.startswith(magic):
            raise CompressionError("a value that is no zstd frame")
        try:
            header = header_of(value)
            size = header.content_size
            if header.dict_id != known_id:
                raise CompressionError(_other_dictionary(header.dict_id))
            if size in _NO_SIZE:
                _check_window(header.window_size)
                return _streamed(decompressor, value, cap)
            if size > cap or size > len(value) * _MAX_RATIO:
                raise CompressionError(_too_large(cap, size, len(value)))
            if header.window_size > size:
                _check_window(header.window_size)
            # One frame, and nothing after it.
            return decompress_frame(value, 0, False, False)  # noqa: FBT003 - keywords are slower
        except zstandard.ZstdError as error:
            message = f"a zstd frame that is corrupt, cut or followed by other bytes: {error}"
            raise CompressionError(message) from error

    return decompress


def _check_window(window_bytes: int) -> None:
    if window_bytes > _MAX_WINDOW_BYTES:
        raise CompressionError(
            f"the frame asks for a window of {window_bytes} bytes, above {_MAX_WINDOW_BYTES} and its own size"
        )


def _other_dictionary(named: int) -> str:
    if named:
        return "a zstd frame that names another dictionary than hw.compress"
    return "a zstd frame that names no dictionary, expected the one of hw.compress"


def _streamed(decompressor: zstandard.ZstdDecompressor, value: bytes, cap: int) -> bytes:
    """Decompress a frame that states no size, in pieces too small to overshoot the cap by much."""
    stream = decompressor.decompressobj()
    plain = BytesIO()  # grows in place, and returns its bytes without a copy
    piece_bytes = max(_PIECE_BYTES, cap // _PIECES)
    at = 0
    while at < len(value) and not stream.eof:
        end = at + max(_MIN_PIECE_BYTES, min(cap - plain.tell(), piece_bytes) // _MAX_RATIO)
        plain.write(stream.decompress(value[at:end]))
        at = end
        if plain.tell() > cap:
            raise CompressionError(_too_large(cap))
    if not stream.eof or stream.unused_data or at < len(value):
        raise CompressionError(_incomplete("zstd frame", ended=stream.eof))
    return plain.getvalue()


def _gzip_decompressor(cap: int) -> _Codec:
    def decompress(value: bytes) -> bytes:
        if not value.startswith(_GZIP_MAGIC):
            raise CompressionError("a value that is no gzip member, or not a deflated one")
        if value[_GZIP_FLAGS] != b"\0":
            raise CompressionError(
                "a gzip member with flags, such as the flag of a file's name; expected none, found "
                f"{value[_GZIP_FLAGS].hex() or 'the end'}"
            )
        # A member ends with its size: one that states too much is refused before it is decompressed.
        stated = int.from_bytes(value[_GZIP_SIZE], "little")
        if stated > cap:
            raise CompressionError(_too_large(cap, stated, len(value)))
        stream = zlib.decompressobj(_GZIP)
        try:
            return _inflated(stream, value, cap)
        except zlib.error as error:
            message = f"a gzip member that is corrupt: {error}"
            raise CompressionError(message) from error

    return decompress


def _inflated(stream: zlib._Decompress, value: bytes, cap: int) -> bytes:
    """Decompress piece by piece into a buffer, because joining a list of pieces takes twice the memory."""
    plain = BytesIO()
    source = memoryview(value)
    at = 0
    piece: bytes | memoryview = b""
    while not stream.eof:
        if not piece:
            piece, at = source[at : at + _INPUT_BYTES], at + _INPUT_BYTES
            if not piece:
                break
        plain.write(stream.decompress(piece, min(_PIECE_BYTES, cap + 1 - plain.tell())))
        if plain.tell() > cap:
            raise CompressionError(_too_large(cap))
        piece = stream.unconsumed_tail
    if not stream.eof or stream.unused_data or at < len(value):
        raise CompressionError(_incomplete("gzip member", ended=stream.eof))
    return plain.getvalue()


def _too_large(cap: int, stated: int | None = None, held: int = 0) -> str:
    if stated is None:
        return f"the decompressed value exceeds the cap of {cap} bytes"
    if stated > cap:
        return f"the value states {stated} bytes when decompressed, above the cap of {cap}"
    return f"the value states {stated} bytes when decompressed, more than {held} bytes can hold"


def _incomplete(what: str, *, ended: bool) -> str:
    return f"a {what} with other bytes after it" if ended else f"a {what} that is cut"


CODECS: Final = {
    "zstd": _CodecKind(range(-7, 23), 3, _zstd_compressor, _zstd_decompressor),
    "gzip": _CodecKind(range(1, 10), 6, _gzip_compressor, _gzip_decompressor),
}


# Formats that are compressed already

_Marks = tuple[tuple[int, bytes], ...]
"""The bytes that identify a format, each with its index."""

_FORMATS: Final[dict[str, _Marks]] = {
    "gzip": ((0, b"\x1f\x8b\x08"),),
    "compress": ((0, b"\x1f\x9d"),),
    "zstd": ((0, b"\x28\xb5\x2f\xfd"),),
    "zip, jar, xlsx": ((0, b"PK\x03\x04"),),
    "empty zip": ((0, b"PK\x05\x06"),),
    "spanned zip": ((0, b"PK\x07\x08"),),
    "bzip2": ((0, b"BZh"), (4, b"1AY&SY")),
    "xz": ((0, b"\xfd7zXZ\x00"),),
    "lzip": ((0, b"LZIP\x01"),),
    "lz4 frame": ((0, b"\x04\x22\x4d\x18"),),
    "snappy framed": ((0, b"\xff\x06\x00\x00sNaPpY"),),
    "snappy, Java": ((0, b"\x82SNAPPY\x00"),),
    "7z": ((0, b"7z\xbc\xaf\x27\x1c"),),
    "rar": ((0, b"Rar!\x1a\x07"),),
    "cab": ((0, b"MSCF\x00\x00\x00\x00"),),
    "png": ((0, b"\x89PNG\r\n\x1a\n"),),
    "jpeg": ((0, b"\xff\xd8\xff"),),
    "gif 87": ((0, b"GIF87a"),),
    "gif 89": ((0, b"GIF89a"),),
    "webp": ((0, b"RIFF"), (8, b"WEBP")),
    "mp4, mov, heic, avif": ((0, b"\x00\x00"), (4, b"ftyp")),
    "matroska, webm": ((0, b"\x1a\x45\xdf\xa3"),),
    "ogg": ((0, b"OggS"),),
    "flac": ((0, b"fLaC"),),
    "mp3": ((0, b"ID3"),),
    "parquet": ((0, b"PAR1"),),
    "woff": ((0, b"wOFF"),),
    "woff2": ((0, b"wOF2"),),
}

_BY_FIRST_BYTE: Final[dict[int, list[_Marks]]] = {}
for _marks in _FORMATS.values():
    _BY_FIRST_BYTE.setdefault(_marks[0][1][0], []).append(_marks)

FIRST_BYTES: Final = frozenset(_BY_FIRST_BYTE)
"""The first bytes of compressed formats: checking one byte rules out most other values."""


def is_compressed(value: bytes) -> bool:
    """Return whether a value that is not empty begins as a compressed format does."""
    formats = _BY_FIRST_BYTE.get(value[0], ())
    return any(all(value.startswith(mark, at) for at, mark in marks) for marks in formats)
