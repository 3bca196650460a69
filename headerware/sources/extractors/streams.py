"""Open streams of bytes for extractors: buffered, and decompressed within limits.

    gzip      1f 8b 08            consecutive members, as bgzip and log rotation write them
    bzip2     "BZh"               consecutive streams, as pbzip2 writes them
    xz        fd "7zXZ" 00        consecutive streams
    zstd      28 b5 2f fd         consecutive frames; 50..5f 2a 4d 18 begins a frame that is skipped
    snappy    ff 06 00 00 "sNaPpY"  the framing format of `.sz` files

The standard library's file objects are not used, because they raise OSError for damage, which would look like
a temporary failure; and zstandard's reader takes a truncated frame for the end. Here damage and truncation
raise ObjectError, and OSError comes only from the underlying stream.
"""

from __future__ import annotations

import bz2
import io
import lzma
import zlib
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, Final, Literal, NamedTuple, Protocol, cast

import zstandard

from headerware.core.errors import ConfigError, MissingPartError, ObjectError
from headerware.core.extras import install_command
from headerware.sources.extractor import Extractor, Input

Compression = Literal["auto", "none", "gzip", "bzip2", "xz", "zstd", "snappy"]

_BUFFER_BYTES: Final = 1 << 18
_PIECE_BYTES: Final = 1 << 16
_ZSTD_PIECE_BYTES: Final = 1 << 10
"""zstd's decompressor has no limit, and 4 bytes may become 128 KiB: this size becomes at most 32 MiB."""
_MEMORY_BYTES: Final = 256 << 20
"""How much memory decompressing an xz or zstd stream may take."""
FREE_BYTES: Final = 64 << 20
"""Up to this size in memory, the expansion of an object is not limited."""
_MAGIC: Final[Mapping[bytes, Compression]] = {
    b"\x1f\x8b\x08": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xff\x06\x00\x00sNaPpY": "snappy",
    **{bytes((low,)) + b"\x2a\x4d\x18": "zstd" for low in range(0x50, 0x60)},
}
_MAGIC_BYTES: Final = max(map(len, _MAGIC))
_SNAPPY_HEAD: Final = b"\xff\x06\x00\x00sNaPpY"
_SNAPPY_CHUNK_BYTES: Final = 76_494
"""The longest chunk: 64 KiB that cannot be compressed, and a checksum."""


class OpenedStream(NamedTuple):
    """A stream of an object's plain bytes, and whether the stream can seek."""

    stream: io.BufferedIOBase
    seekable: bool

    def peeked(self, count: int, given: Input) -> tuple[bytes, OpenedStream]:
        """Return the first bytes, and a stream that begins with them."""
        head = self.stream.read(count)
        if self.seekable:
            self.stream.seek(0)
            return head, self
        rejoined = cast("BinaryIO", _Rejoined(head, self.stream))
        return head, OpenedStream(buffered(rejoined, given), seekable=False)

    def read_past(self, count: int) -> int:
        """Skip a number of bytes by reading; return how many bytes there were."""
        left = count
        while left > 0 and (found := len(self.stream.read(min(left, _BUFFER_BYTES)))):
            left -= found
        return count - left


class StreamExtractor(Extractor, frozen=True, kw_only=True):
    """The base of extractors of streams; a subclass reads the stream that :meth:`open_plain` returns.

    Args:
        max_record_bytes: see :class:`~headerware.sources.Extractor`.
        compression: ``auto`` recognizes gzip, bzip2, xz, zstd and snappy (framing format) by the first bytes;
            ``none`` decompresses nothing.
        max_expansion: how many times the size of its compressed bytes an object may have, beyond 64 MiB.

    Raises:
        ConfigError: a limit is less than 1.
    """

    compression: Compression = "auto"
    max_expansion: int = 250

    def __post_init__(self) -> None:
        """Refuse limits less than 1."""
        for option in ("max_record_bytes", "max_expansion"):
            if getattr(self, option) < 1:
                raise ConfigError(f"expected at least 1, found {getattr(self, option)}", path=option)

    def open_plain(self, given: Input) -> OpenedStream:
        """Return a new stream of the object's plain bytes, which is closed with the input.

        Raises:
            NotAStreamError: the object has no bytes to read.
            OSError: the object cannot be read now.
            ObjectError: the object cannot be read.
        """
        stream = buffered(given.open_stream(), given)
        opened = OpenedStream(stream, stream.seekable())
        codec = self.compression
        if codec == "auto":
            head, opened = opened.peeked(_MAGIC_BYTES, given)
            codec = next((name for magic, name in _MAGIC.items() if head.startswith(magic)), "none")
        if codec == "none":
            return opened
        plain = _Decompressed(opened.stream, codec, self.max_expansion)
        return OpenedStream(buffered(cast("BinaryIO", plain), given), seekable=False)


def buffered(stream: BinaryIO, given: Input) -> io.BufferedIOBase:
    """Return a buffered stream, which is closed with the input."""
    if isinstance(stream, io.BufferedIOBase):
        return stream
    raw = stream if isinstance(stream, io.RawIOBase) else _Raw(stream)
    made = io.BufferedReader(raw, _BUFFER_BYTES)
    given.closing(cast("BinaryIO", made))
    return made


class ReadingStream(io.RawIOBase):
    """A stream that cannot seek; a subclass returns the next bytes from :meth:`give`."""

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer or a part of it, and return the number of bytes; 0 at the end."""
        found = self.give(len(buffer))
        buffer[: len(found)] = found
        return len(found)

    def give(self, most: int) -> bytes | memoryview:
        """Return the next bytes, at most ``most``; no bytes at the end."""
        raise NotImplementedError


class _Raw(ReadingStream):
    """A stream that has only read, seek and tell, such as those of some client libraries."""

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__()
        self._stream = stream

    def give(self, most: int) -> bytes:
        return bytes(self._stream.read(most))

    def seekable(self) -> bool:
        return bool(self._stream.seekable())

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._stream.seek(offset, whence)
        return int(self._stream.tell())

    def tell(self) -> int:
        return int(self._stream.tell())


class _Rejoined(ReadingStream):
    """A stream of bytes that were read already, followed by the rest."""

    def __init__(self, head: bytes, rest: io.BufferedIOBase) -> None:
        super().__init__()
        self._head = head
        self._rest = rest

    def give(self, most: int) -> bytes:
        if self._head:
            found, self._head = self._head[:most], self._head[most:]
            return found
        return self._rest.read1(most)


class Decoder(Protocol):
    """The decoder of one member of a compressed stream, with the interface of bz2 and lzma."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes | memoryview: ...


class _Inflated:
    """A member of gzip, or Avro's deflate."""

    def __init__(self, window_bits: int) -> None:
        self._inner = zlib.decompressobj(window_bits)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        tail = self._inner.unconsumed_tail
        found = self._inner.decompress(tail + data if tail else data, max_length)
        self.needs_input = not self._inner.unconsumed_tail and len(found) < max_length
        return found


class _Zstd:
    """A frame of zstd, decoded in small pieces: the decompressor returns a piece's complete output."""

    def __init__(self) -> None:
        self._inner = zstandard.ZstdDecompressor(max_window_size=_MEMORY_BYTES).decompressobj()
        self._waiting = memoryview(b"")
        self._ready = memoryview(b"")

    @property
    def eof(self) -> bool:
        return self._inner.eof and not self._ready

    @property
    def needs_input(self) -> bool:
        return not self._ready and not self._waiting

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data + bytes(self._waiting)

    def decompress(self, data: bytes, max_length: int, /) -> memoryview:
        if data:
            self._waiting = memoryview(data)
        while self._waiting and not self._ready and not self._inner.eof:
            piece, self._waiting = self._waiting[:_ZSTD_PIECE_BYTES], self._waiting[_ZSTD_PIECE_BYTES:]
            self._ready = memoryview(self._inner.decompress(piece))
        found, self._ready = self._ready[:max_length], self._ready[max_length:]
        return found


class _Snappy:
    """The chunks of snappy's framing format; cramjam decompresses each chunk and checks its checksum."""

    def __init__(self) -> None:
        self._snappy = _cramjam().snappy
        self._held = b""
        self._ready = memoryview(b"")
        self.unused_data = b""

    @property
    def eof(self) -> bool:
        return not self._held and not self._ready

    @property
    def needs_input(self) -> bool:
        return not self._ready and self._chunk_bytes() > len(self._held)

    def decompress(self, data: bytes, max_length: int, /) -> memoryview:
        self._held += data
        while not self._ready and self._held and len(self._held) >= (size := self._chunk_bytes()):
            chunk, self._held = self._held[:size], self._held[size:]
            self._ready = memoryview(self._plain(chunk))
        found, self._ready = self._ready[:max_length], self._ready[max_length:]
        return found

    def _chunk_bytes(self) -> int:
        """Return the length of the first chunk; 4 if its head has not been read yet."""
        return 4 + int.from_bytes(self._held[1:4], "little") if len(self._held) >= 4 else 4

    def _plain(self, chunk: bytes) -> bytes:
        kind = chunk[0]
        if kind == 0xFF and chunk != _SNAPPY_HEAD:
            raise ValueError("expected snappy's stream identifier")
        if kind in {0x00, 0x01}:
            if len(chunk) > 4 + _SNAPPY_CHUNK_BYTES:
                raise ValueError("a chunk is too long")
            return bytes(self._snappy.decompress(_SNAPPY_HEAD + chunk))
        if 0x02 <= kind <= 0x7F:
            raise ValueError("a chunk of an unknown kind")
        return b""  # padding and skippable chunks


def _cramjam() -> Any:
    try:
        import cramjam  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingPartError(f"snappy needs cramjam: {install_command('sources')}") from error
    return cramjam


DECODERS: Final[Mapping[str, Callable[[], Decoder]]] = {
    "gzip": lambda: _Inflated(16 + zlib.MAX_WBITS),
    "deflate": lambda: _Inflated(-zlib.MAX_WBITS),
    "bzip2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MEMORY_BYTES),
    "zstd": _Zstd,
    "snappy": _Snappy,
}
"""Functions that make a decoder for one member, by codec."""
_PADDED: Final = frozenset({"gzip", "xz"})
"""Codecs whose members may be followed by zeros."""


def decompressed(decoder: Decoder, data: bytes, most: int, codec: str) -> bytes | memoryview:
    """Return the decompressed bytes of a piece; raise ObjectError if the piece is damaged."""
    try:
        return decoder.decompress(data, most)
    except MissingPartError:
        raise
    except Exception as error:  # each library has its own error; none of them reads the stream
        raise ObjectError(f"the {codec} data is damaged, or too large to be decompressed") from error


class _Decompressed(ReadingStream):
    """The plain bytes of a compressed stream, member by member."""

    def __init__(self, source: io.BufferedIOBase, codec: str, max_expansion: int) -> None:
        super().__init__()
        self._source = source
        self._codec = codec
        self._max_expansion = max_expansion
        self._decoder: Decoder | None = None
        self._waiting = b""
        self._read = 0
        self._given = 0

    def give(self, most: int) -> bytes | memoryview:
        while True:
            decoder = self._decoder
            if decoder is None:
                if not self._begins():
                    return b""
                decoder = self._decoder = DECODERS[self._codec]()
            data, self._waiting = self._waiting, b""
            if not data and decoder.needs_input and not (data := self._more()):
                raise ObjectError(f"the {self._codec} data is truncated after byte {self._read}")
            found = decompressed(decoder, data, most, self._codec)
            if decoder.eof:
                self._waiting, self._decoder = decoder.unused_data, None
            if found:
                self._count(len(found))
                return found

    def _begins(self) -> bool:
        """Return whether a member follows."""
        while True:
            if self._codec in _PADDED and self._read:
                self._waiting = self._waiting.lstrip(b"\0")
            if self._waiting:
                return True
            self._waiting = self._more()
            if not self._waiting:
                return False

    def _more(self) -> bytes:
        found = self._source.read1(_PIECE_BYTES)
        self._read += len(found)
        return found

    def _count(self, given: int) -> None:
        self._given += given
        if self._given > FREE_BYTES and self._given > self._max_expansion * self._read:
            raise ObjectError(
                f"the {self._codec} data expands to more than {self._max_expansion} times its size, the "
                "limit (max_expansion)"
            )
