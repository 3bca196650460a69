"""Compress: values made smaller one by one, where that pays (seed 004: per-record custom compression).

Header ``hw.compress``, the codec's name as HTTP's Content-Encoding has it: ``zstd`` or ``gzip``
(spec/compress.md).

A client's own batch compression does better on large batches of small records; this pays where values are
encrypted afterwards, where batches are small, and where records are stored beyond Kafka. Compression
before encryption lets the length tell of the content where an attacker chooses part of it.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal

import msgspec

from headerware.core.errors import CompressionError, ConfigError
from headerware.core.headers import Headers
from headerware.core.hooks import Interceptor, Place, Role
from headerware.core.topics import TopicPatterns
from headerware.interceptors.compress_codecs import CODECS
from headerware.interceptors.compressed_formats import COMPRESSED_CONTENT_TYPES, FIRST_BYTES, is_compressed

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware.core.context import Context
    from headerware.core.headers import HeaderValue, Pair
    from headerware.core.record import Record
    from headerware.interceptors.compress_codecs import Codec

COMPRESS_HEADER: Final = "hw.compress"

_HEADER_BYTES: Final = 1 + len(COMPRESS_HEADER) + 1 + 4
"""What the header takes in a record: both lengths, its name and its value."""
_TELLING: Final = frozenset({COMPRESS_HEADER, "content-type", "Content-Type"})
"""Headers that tell whether to try; Kafka's names have case, and bridges from HTTP keep HTTP's."""
_MAX_CONTENT_TYPES: Final = 256
_REASONS: Final[tuple[str, ...]] = ("empty", "small", "encoded", "content_type", "format", "incompressible")
_new_headers: Final = tuple.__new__


class Compress(Interceptor, frozen=True, kw_only=True):
    """Compress values on send where that makes them smaller, and decompress them on consume.

    Null and empty values stay as they are, and so do values that are small, compressed already (told by
    their content type or their first bytes), or do not shrink by the margin.

    Args:
        codec: ``zstd``, or ``gzip`` for readers that have nothing else.
        level: zstd's -7 to 22, by default 3; gzip's 1 to 9, by default 6. Not 0.
        min_bytes: values below this size are not tried: below 128 bytes neither JSON nor plain text wins
            back the header's 17, and each try costs some microseconds.
        margin: the share of its size by which a value must shrink, header included.
        skip_content_types: patterns of content types that are not tried; a leading ``!`` excludes.
            Parameters (``; charset=...``) and case do not count.
        max_decompressed_bytes: the cap on what comes out of one value, whatever it claims.

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
    skip_content_types: tuple[str, ...] = COMPRESSED_CONTENT_TYPES
    max_decompressed_bytes: Annotated[int, msgspec.Meta(ge=1, le=1 << 40)] = 256 << 20

    def __post_init__(self) -> None:
        """Refuse an unknown codec, and a level that the codec does not have."""
        if self.codec not in CODECS:  # in code nothing has checked it yet
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


def _pooled(make: Callable[[], Codec]) -> Codec:
    """Return a codec for all threads: each call takes an idle one, for sharing one crashes the process."""
    idle: deque[Codec] = deque()
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
        "_keep",
        "_left_alone",
        "_mark",
        "_min_bytes",
        "_skips",
        "_skips_known",
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
        self._skips_known: dict[bytes, bool] = {}
        self._bytes_in = self._bytes_out = self._compressed = self._decompressed = 0
        self._left_alone = dict.fromkeys(_REASONS, 0)

    def on_send(self, record: Record) -> Record:
        """Compress the value where that pays."""
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
        if content_type is not None and self._is_skipped(content_type):
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
        """Decompress the value where ``hw.compress`` says so, and take that header off."""
        headers = record.headers
        kept: list[Pair] = []
        mark: Pair | None = None
        for pair in headers:
            if pair[0] != COMPRESS_HEADER:
                kept.append(pair)
            elif mark is None:
                mark = pair
            else:
                raise CompressionError(_why_not(record))
        if mark is None:
            return record
        decompress = self._decompress.get(mark[1])  # type: ignore[arg-type]  # null is in no table
        if decompress is None or record.value is None:
            raise CompressionError(_why_not(record))
        plain = decompress(record.value)
        self._decompressed += 1
        return record.with_value(plain, _new_headers(Headers, kept))

    def stats(self) -> dict[str, int]:
        """Count what was compressed, decompressed and left alone, by reason; bytes are those of values."""
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

    def _is_skipped(self, content_type: bytes) -> bool:
        """Return whether values of a content type are not tried; known types are remembered."""
        known = self._skips_known.get(content_type)
        if known is None:
            if len(self._skips_known) >= _MAX_CONTENT_TYPES:
                self._skips_known.clear()
            essence = content_type.partition(b";")[0].strip().lower().decode("utf-8", "replace")
            known = self._skips is not None and self._skips.matches(essence)
            self._skips_known[content_type] = known
        return known


def _why_not(record: Record) -> str:
    """Tell what is wrong with a record whose ``hw.compress`` cannot be followed."""
    marks = record.headers.all(COMPRESS_HEADER)
    mark = marks[-1]
    if len(marks) > 1:
        return f"{COMPRESS_HEADER} stands {len(marks)} times, expected once"
    if mark is None or mark.decode("utf-8", "replace") not in CODECS:
        found = "null" if mark is None else "another codec, or another form of its name"
        return f"{COMPRESS_HEADER}: expected {' or '.join(CODECS)}, found {found}"
    return f"{COMPRESS_HEADER} on a null value: there is nothing to decompress"
