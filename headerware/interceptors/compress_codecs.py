"""The codecs of ``hw.compress``: how each compresses, and how it decompresses below a cap.

Whatever a frame says of its size, no more than the cap comes out, no more than that and an eighth is held
meanwhile (beside zstd's window), and nothing is allocated for a size that the frame cannot have. A value is
exactly one zstd frame or one gzip member (spec/compress.md).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from io import BytesIO
from typing import Final

import msgspec
import zstandard

from headerware.core.errors import CompressionError

Codec = Callable[[bytes], bytes]

MAX_WINDOW_BYTES: Final = 8 << 20
"""The window that a frame of unknown size may ask for: what RFC 8878 tells every decoder to support."""

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_MAX_RATIO = 32_768
"""The most that a byte of zstd can mean: blocks of 128 KiB take four bytes at least."""
_MIN_PIECE_BYTES = 16
_PIECE_BYTES = 1 << 20
_PIECES = 16
"""How much is decompressed at once where the size is not known: so much, or such a part of the cap."""
_INPUT_BYTES = 1 << 16
"""How much zlib is given at once, for it copies what it has not used."""
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP = 31
"""zlib's window bits for a gzip member, of any window."""
_GZIP_SIZE = slice(-4, None)


class CodecKind(msgspec.Struct, frozen=True):
    """What the name of a codec stands for.

    Args:
        levels: the levels that it has; 0 is none of them.
        default_level: the level where none is chosen.
        compressor: makes a compressor of a level, for one thread at a time.
        decompressor: makes a decompressor with a cap in bytes, for one thread at a time. What it gives
            raises CompressionError for all that is not one whole frame below the cap.
    """

    levels: range
    default_level: int
    compressor: Callable[[int], Codec]
    decompressor: Callable[[int], Codec]


def _zstd_compressor(level: int) -> Codec:
    return zstandard.ZstdCompressor(level=level).compress


def _gzip_compressor(level: int) -> Codec:
    # zlib itself writes the member's header, with no time in it: the same bytes at every call.
    return lambda value: zlib.compress(value, level, _GZIP)


def _zstd_decompressor(cap: int) -> Codec:
    decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES)
    whole = decompressor.decompress
    size_of = zstandard.frame_content_size

    def decompress(value: bytes) -> bytes:
        try:
            size = size_of(value)
            if size <= 0:
                return _streamed(decompressor, value, cap)
            if size > cap or size > len(value) * _MAX_RATIO:
                raise CompressionError(_excess(cap, size, len(value)))
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
    plain = (
        BytesIO()
    )  # grows in place and gives its bytes without a copy; joined pieces would take twice that
    piece_bytes = max(_PIECE_BYTES, cap // _PIECES)
    at = 0
    while at < len(value) and not stream.eof:
        end = at + max(_MIN_PIECE_BYTES, min(cap - plain.tell(), piece_bytes) // _MAX_RATIO)
        plain.write(stream.decompress(value[at:end]))
        at = end
        if plain.tell() > cap:
            raise CompressionError(_excess(cap))
    if not stream.eof or stream.unused_data or at < len(value):
        raise CompressionError(_not_whole("zstd frame", ended=stream.eof))
    return plain.getvalue()


def _gzip_decompressor(cap: int) -> Codec:
    def decompress(value: bytes) -> bytes:
        if not value.startswith(_GZIP_MAGIC):
            message = "a value that is no gzip member"
            raise CompressionError(message)
        # A member ends with its size; an honest one that is too large is refused without any work.
        stated = int.from_bytes(value[_GZIP_SIZE], "little")
        if stated > cap:
            raise CompressionError(_excess(cap, stated, len(value)))
        stream = zlib.decompressobj(_GZIP)
        try:
            return _inflated(stream, value, cap)
        except zlib.error as error:
            message = f"a gzip member that is corrupt: {error}"
            raise CompressionError(message) from error

    return decompress


def _inflated(stream: zlib._Decompress, value: bytes, cap: int) -> bytes:
    """Decompress piece by piece: zlib's own list of pieces, joined, would take twice what comes out."""
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
            raise CompressionError(_excess(cap))
        piece = stream.unconsumed_tail
    if not stream.eof or stream.unused_data or at < len(value):
        raise CompressionError(_not_whole("gzip member", ended=stream.eof))
    return plain.getvalue()


def _excess(cap: int, stated: int | None = None, held: int = 0) -> str:
    if stated is None:
        return f"the decompressed value passes the cap of {cap} bytes"
    if stated > cap:
        return f"the value states {stated} bytes when decompressed, above the cap of {cap}"
    return f"the value states {stated} bytes when decompressed, more than {held} bytes can hold"


def _not_whole(what: str, *, ended: bool) -> str:
    return f"a {what} with other bytes after it" if ended else f"a {what} that is cut"


CODECS: Final = {
    "zstd": CodecKind(range(-7, 23), 3, _zstd_compressor, _zstd_decompressor),
    "gzip": CodecKind(range(1, 10), 6, _gzip_compressor, _gzip_decompressor),
}
