"""Compress: values made smaller one by one, where that pays (seed 004: per-record custom compression).

Header ``hw.compress``, two bytes (spec/compress.md):

    version  u8  1
    codec    u8  1 zstd, 2 gzip

A client's own batch compression does better on large batches of small records; this pays where values are
encrypted afterwards, where batches are small, and where records are stored beyond Kafka. Compression
before encryption lets the length tell of the content where an attacker chooses part of it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal

import msgspec

from headerware.core.errors import CompressionError, ConfigError
from headerware.core.headers import Headers
from headerware.core.hooks import Interceptor, Place, Role
from headerware.core.topics import TopicPatterns
from headerware.interceptors.compress_codecs import CODECS
from headerware.interceptors.compressed_formats import COMPRESSED_CONTENT_TYPES, is_compressed

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware.core.context import Context
    from headerware.core.headers import HeaderValue, Pair
    from headerware.core.record import Record
    from headerware.interceptors.compress_codecs import Codec

COMPRESS_HEADER: Final = "hw.compress"
VERSION: Final = 1

_HEADER_BYTES: Final = 1 + len(COMPRESS_HEADER) + 1 + 2
"""What the header takes in a record: both lengths, its name and its value."""
_CONTENT_TYPE: Final = "content-type"
_MAX_CONTENT_TYPES: Final = 256
_new_headers: Final = tuple.__new__


class Compress(Interceptor, frozen=True, kw_only=True):
    """Compress values on send where that makes them smaller, and decompress them on consume.

    Null and empty values stay as they are, and so do values that are small, compressed already (told by
    their content type or their first bytes), or do not shrink by the margin.

    Args:
        codec: ``zstd``, or ``gzip`` for readers that have nothing else.
        level: zstd's -7 to 22, by default 3; gzip's 1 to 9, by default 6. Not 0.
        min_bytes: values below this size are not tried: below 128 bytes neither JSON nor plain text wins
            back the header's 15, and each try costs some microseconds.
        margin: the share of its size by which a value must shrink, header included.
        skip_content_types: patterns of content types that are not tried; a leading ``!`` excludes.
            Parameters (``; charset=...``) and case do not count.
        max_decompressed_bytes: the cap on what comes out of one value, whatever it claims.

    Raises:
        ConfigError: the codec has no such level.

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
    skip_content_types: tuple[str, ...] = COMPRESSED_CONTENT_TYPES
    max_decompressed_bytes: Annotated[int, msgspec.Meta(ge=1, le=1 << 40)] = 256 << 20

    def __post_init__(self) -> None:
        """Refuse a level that the codec does not have."""
        levels = CODECS[self.codec].levels
        if self.level is not None and (self.level not in levels or self.level == 0):
            message = f"expected a level of {self.codec}, {levels[0]} to {levels[-1]} without 0, found {self.level}"
            raise ConfigError(message, path="level")

    def open(self, context: Context) -> _CompressStep:  # noqa: ARG002 - it needs nothing of the session's
        """Give the hooks for one session."""
        return _CompressStep(self)


class _Pool:
    """Codecs that are idle: each is used by one thread at a time, for sharing one crashes the process."""

    __slots__ = ("_idle", "_make")

    def __init__(self, make: Callable[[], Codec]) -> None:
        self._make = make
        self._idle: deque[Codec] = deque()

    def run(self, value: bytes) -> bytes:
        """Run a value through a codec that no other thread has."""
        try:
            codec = self._idle.pop()
        except IndexError:
            codec = self._make()
        try:
            return codec(value)
        finally:
            self._idle.append(codec)


class _CompressStep:
    """The hooks of one session.

    The counts are exact as long as the interpreter has its global lock, and close to it otherwise.
    """

    __slots__ = (
        "_compress",
        "_counts",
        "_decompress",
        "_keep",
        "_mark",
        "_min_bytes",
        "_skips",
        "_skips_known",
    )

    def __init__(self, options: Compress) -> None:
        kind = CODECS[options.codec]
        level = kind.default_level if options.level is None else options.level
        cap = options.max_decompressed_bytes
        self._compress = _Pool(lambda: kind.compressor(level)).run
        self._decompress = {
            bytes((VERSION, known.id)): _Pool(lambda known=known: known.decompressor(cap)).run  # type: ignore[misc]
            for known in CODECS.values()
        }
        self._mark: Pair = (COMPRESS_HEADER, bytes((VERSION, kind.id)))
        self._min_bytes = options.min_bytes
        self._keep = 1 - options.margin
        patterns = [pattern.lower() for pattern in options.skip_content_types]
        self._skips = TopicPatterns(patterns) if patterns else None
        self._skips_known: dict[bytes, bool] = {}
        self._counts = _Counts()
