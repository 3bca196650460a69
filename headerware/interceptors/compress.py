"""Compress: the value of each record is compressed by itself, if that pays (spec/compress.md).

Header ``hw.compress`` is the name of the codec, as in HTTP's Content-Encoding: ``zstd`` or ``gzip``. A value
is exactly one zstd frame or one gzip member.

A client's own batch compression does better on large batches of small records. This one pays if values are
encrypted afterwards, if batches are small, or if records are stored outside of Kafka. If an attacker chooses
part of a value that is then encrypted, its length reveals something about the rest.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal

import msgspec
import zstandard

from headerware.core.bounded_cache import BoundedCache
from headerware.core.errors import CompressionError, ConfigError
from headerware.core.headers import Headers
from headerware.core.hooks import Interceptor, Place, Role
from headerware.core.topics import TopicPatterns

if TYPE_CHECKING:
    from headerware.core.context import Context
    from headerware.core.headers import HeaderValue, Pair
    from headerware.core.record import Record

COMPRESS_HEADER: Final = "hw.compress"

_HEADER_BYTES: Final = 1 + len(COMPRESS_HEADER) + 1 + 4
"""The size of the header in a record: both lengths, its name and its value."""
_TELLING: Final = frozenset({COMPRESS_HEADER, "content-type", "Content-Type"})
"""Headers that say whether to try; names have case in Kafka, and bridges from HTTP keep HTTP's spelling."""
_MAX_CONTENT_TYPES: Final = 256
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
        min_bytes: the size in bytes below which values are not tried. Below 128 bytes neither JSON nor plain
            text saves as much as the header's 17 bytes, and each try costs some microseconds.
        margin: the share of its size by which a value must shrink, header included.
        skip_content_types: patterns of content types that are not tried; a leading ``!`` excludes.
            Parameters (``; charset=...``) and case do not count.
        max_decompressed_bytes: the most bytes that one value may be when decompressed, whatever it states.

    Raises:
        ConfigError: there is no such codec, or it has no such level.

    Safe for use by several threads at once.
    """

    type: ClassVar[str] = "compress"
    role: ClassVar[Role] = Role.TRANSFORM
    place: ClassVar[Place | None] = Place.COMPRESS
    decodes: ClassVar[tuple[str, ...]] = (COMPRESS_HEADER,)

    codec: Literal["zstd", "gzip"] = "zstd"
    level: int | None = None
    min_bytes: Annotated[int, msgspec.Meta(ge=0)] = 128
    margin: Annotated[float, msgspec.Meta(ge=0, lt=1)] = 0.05
    skip_content_types: tuple[str, ...] = _COMPRESSED_CONTENT_TYPES
    max_decompressed_bytes: Annotated[int, msgspec.Meta(ge=1, le=1 << 40)] = 256 << 20

    def __post_init__(self) -> None:
        """Refuse an unknown codec, and a level that the codec does not have."""
        if self.codec not in CODECS:  # in code it was not checked before
            message = f"expected one of {', '.join(CODECS)}, found {self.codec!r}"
            raise ConfigError(message, path="codec")
        levels = CODECS[self.codec].levels
        if self.level is not None and (self.level not in levels or self.level == 0):
            message = (
                f"expected a level of {self.codec}, {levels[0]} to {levels[-1]} without 0, "
                f"found {self.level!r}"
            )
            raise ConfigError(message, path="level")

    def open(self, context: Context) -> _CompressStep:  # noqa: ARG002 - it needs nothing of the session's
        """Return the hooks for one session."""
        return _CompressStep(self)


def _pooled(make: Callable[[], _Codec]) -> _Codec:
    """Return a codec for all threads; each call takes an idle one, for a shared one crashes the process."""
    idle: deque[_Codec] = deque()
    take, put_back = idle.pop, idle.append

    def run(value: bytes) -> bytes:
        try:
            codec = take()
        except IndexError:
            codec = make()
        try:
            return codec(value)
        finally:
            put_back(codec)

    return run


class _CompressStep:
    """The hooks of one session.

    The counts are exact as long as the interpreter has its global lock, and close to it otherwise.
    """

    __slots__ = (
        "_bytes_in",
        "_bytes_out",
        "_compress",
        "_compressed",
        "_decompress",
        "_decompressed",
        "_is_skipped",
        "_keep",
        "_left_alone",
        "_mark",
        "_min_bytes",
        "_skips",
    )

    def __init__(self, options: Compress) -> None:
        kind = CODECS[options.codec]
        level = kind.default_level if options.level is None else options.level
        cap = options.max_decompressed_bytes
        self._compress = _pooled(partial(kind.compressor, level))
        self._decompress = {
            name.encode(): _pooled(partial(known.decompressor, cap)) for name, known in CODECS.items()
        }
        self._mark: Pair = (COMPRESS_HEADER, options.codec.encode())
        self._min_bytes = options.min_bytes
        self._keep = 1 - options.margin
        patterns = [pattern.lower() for pattern in options.skip_content_types]
        self._skips = TopicPatterns(patterns) if patterns else None
        self._is_skipped: BoundedCache[bytes, bool] = BoundedCache(_MAX_CONTENT_TYPES, self._skips_type)
        self._bytes_in = self._bytes_out = self._compressed = self._decompressed = 0
        self._left_alone = dict.fromkeys(_REASONS, 0)

    def on_send(self, record: Record) -> Record:
        """Compress the value if that pays."""
        value = record.value
        if not value:
            return self._leave(record, "empty")
        size = len(value)
        if size < self._min_bytes:
            return self._leave(record, "small")
        headers = record.headers
        content_type: HeaderValue = None
        for name, content in headers:
            if name in _TELLING:
                if name == COMPRESS_HEADER:
                    return self._leave(record, "encoded")
                content_type = content
        if content_type is not None and self._is_skipped[content_type]:
            return self._leave(record, "content_type")
        if value[0] in FIRST_BYTES and is_compressed(value):
            return self._leave(record, "format")
        smaller = self._compress(value)
        if len(smaller) + _HEADER_BYTES > size * self._keep:
            return self._leave(record, "incompressible")
        self._compressed += 1
        self._bytes_in += size
        self._bytes_out += len(smaller)
        return record.with_value(smaller, _new_headers(Headers, (*headers, self._mark)))

    def on_consume(self, record: Record) -> Record:
        """Decompress the value if there is ``hw.compress``, and take that header off."""
        headers = record.headers
        kept: list[Pair] = []
        mark: Pair | None = None
        for pair in headers:
            if pair[0] != COMPRESS_HEADER:
                kept.append(pair)
            elif mark is None:
                mark = pair
            else:
                raise CompressionError(_mark_problem(record))
        if mark is None:
            return record
        decompress = self._decompress.get(mark[1])  # type: ignore[arg-type]  # null is in no table
        if decompress is None or record.value is None:
            raise CompressionError(_mark_problem(record))
        plain = decompress(record.value)
        self._decompressed += 1
        return record.with_value(plain, _new_headers(Headers, kept))

    def stats(self) -> dict[str, int]:
        """Count values by outcome, and their bytes."""
        return {
            "bytes_in": self._bytes_in,
            "bytes_out": self._bytes_out,
            "compressed": self._compressed,
            "decompressed": self._decompressed,
            **{f"left_alone_{reason}": count for reason, count in self._left_alone.items()},
        }

    def _leave(self, record: Record, reason: str) -> Record:
        self._left_alone[reason] += 1
        return record

    def _skips_type(self, content_type: bytes) -> bool:
        essence = content_type.partition(b";")[0].strip().lower().decode("utf-8", "replace")
        return self._skips is not None and self._skips.matches(essence)


def _mark_problem(record: Record) -> str:
    """Return what is wrong with the ``hw.compress`` of a record."""
    marks = record.headers.all(COMPRESS_HEADER)
    mark = marks[-1]
    if len(marks) > 1:
        return f"{COMPRESS_HEADER} stands {len(marks)} times, expected once"
    if mark is None or mark.decode("utf-8", "replace") not in CODECS:
        found = "null" if mark is None else "another codec, or another form of its name"
        return f"{COMPRESS_HEADER}: expected {' or '.join(CODECS)}, found {found}"
    return f"{COMPRESS_HEADER} on a null value: there is nothing to decompress"


# Codecs: they return no more than the cap, whatever size a value states. While they run, they hold at most an
# eighth more (beside zstd's window), and they allocate nothing for a size that the value cannot have.

_Codec = Callable[[bytes], bytes]

_MAX_WINDOW_BYTES: Final = 8 << 20
"""The largest window that a frame of unknown size may ask for, as RFC 8878 recommends to all decoders."""

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_MAX_RATIO = 32_768
"""The most bytes that one byte of zstd can stand for: a block of 128 KiB takes at least four."""
_MIN_PIECE_BYTES = 16
_PIECE_BYTES = 1 << 20
_PIECES = 16
"""The size of a decompressed piece if the size is not known: so many bytes, or this part of the cap."""
_INPUT_BYTES = 1 << 16
"""The bytes that zlib gets at once; it copies those that it has not used."""
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP = 31
"""zlib's window bits for a gzip member, of any window."""
_GZIP_SIZE = slice(-4, None)


class _CodecKind(msgspec.Struct, frozen=True):
    """A codec. Compressors and decompressors are for one thread at a time."""

    levels: range
    """The levels that it has, except 0."""
    default_level: int
    compressor: Callable[[int], _Codec]
    """Make a compressor of a level."""
    decompressor: Callable[[int], _Codec]
    """Make a decompressor with a cap in bytes; it refuses what is not one whole frame below the cap."""


def _zstd_compressor(level: int) -> _Codec:
    return zstandard.ZstdCompressor(level=level).compress


def _gzip_compressor(level: int) -> _Codec:
    # zlib writes a header without a time, so the same value always has the same bytes.
    return lambda value: zlib.compress(value, level, _GZIP)


def _zstd_decompressor(cap: int) -> _Codec:
    decompressor = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES)
    whole = decompressor.decompress
    size_of = zstandard.frame_content_size

    def decompress(value: bytes) -> bytes:
        try:
            size = size_of(value)
            if size <= 0:
                return _streamed(decompressor, value, cap)
            if size > cap or size > len(value) * _MAX_RATIO:
                raise CompressionError(_too_large(cap, size, len(value)))
            return whole(value, 0, False, False)  # noqa: FBT003 - keywords cost; one frame, nothing after it
        except zstandard.ZstdError as error:
            message = f"a zstd frame that is corrupt, cut or followed by other bytes: {error}"
            raise CompressionError(message) from error

    return decompress


def _streamed(decompressor: zstandard.ZstdDecompressor, value: bytes, cap: int) -> bytes:
    """Decompress a frame that states no size, in pieces too small to overshoot the cap by much."""
    if not value.startswith(_ZSTD_MAGIC):
        message = "a value that is no zstd frame"
        raise CompressionError(message)
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
        raise CompressionError(_not_whole("zstd frame", ended=stream.eof))
    return plain.getvalue()


def _gzip_decompressor(cap: int) -> _Codec:
    def decompress(value: bytes) -> bytes:
        if not value.startswith(_GZIP_MAGIC):
            message = "a value that is no gzip member"
            raise CompressionError(message)
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
    """Decompress piece by piece, for a list of pieces that are joined takes twice the memory."""
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
        raise CompressionError(_not_whole("gzip member", ended=stream.eof))
    return plain.getvalue()


def _too_large(cap: int, stated: int | None = None, held: int = 0) -> str:
    if stated is None:
        return f"the decompressed value passes the cap of {cap} bytes"
    if stated > cap:
        return f"the value states {stated} bytes when decompressed, above the cap of {cap}"
    return f"the value states {stated} bytes when decompressed, more than {held} bytes can hold"


def _not_whole(what: str, *, ended: bool) -> str:
    return f"a {what} with other bytes after it" if ended else f"a {what} that is cut"


CODECS: Final = {
    "zstd": _CodecKind(range(-7, 23), 3, _zstd_compressor, _zstd_decompressor),
    "gzip": _CodecKind(range(1, 10), 6, _gzip_compressor, _gzip_decompressor),
}


# Formats that are compressed already

_Marks = tuple[tuple[int, bytes], ...]
"""Bytes that a format has, each with its index."""

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
"""The first bytes of compressed formats: a look at one byte rules out most other values."""


def is_compressed(value: bytes) -> bool:
    """Return whether a value that is not empty begins as a compressed format does."""
    formats = _BY_FIRST_BYTE.get(value[0], ())
    return any(all(value.startswith(mark, at) for at, mark in marks) for marks in formats)
