"""Streams of bytes as extractors read them: buffered, and decompressed with bounds.

    gzip      1f 8b 08            members one behind another, as bgzip and log rotation write them
    bzip2     "BZh"               streams one behind another, as pbzip2 writes them
    xz        fd "7zXZ" 00        streams one behind another
    zstd      28 b5 2f fd         frames one behind another; 50..5f 2a 4d 18 begins one that is skipped
    snappy    ff 06 00 00 "sNaPpY"  the framing format, such as `.sz` files have it

The standard library's file objects are not used, since they raise OSError for damage, which would be taken
for a failure that passes; and zstandard's reader takes a frame that is cut off for the end. Here damage and
cut-off ends are an ObjectError, and an OSError is one of the stream beneath.
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
"""Four bytes of zstd may stand for 128 KiB, and its decompressor has no bound; so this is 32 MiB at most."""
_MEMORY_BYTES: Final = 256 << 20
"""The most that an xz or zstd stream may ask for to be decompressed."""
FREE_BYTES: Final = 64 << 20
"""How large an object may become, whatever its size."""
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
"""The longest compressed or plain chunk: 64 KiB that cannot be compressed, and a checksum."""


class OpenedStream(NamedTuple):
    """A stream of an object's plain bytes, and whether it can be sought in."""

    stream: io.BufferedIOBase
    seekable: bool

    def peeked(self, count: int, given: Input) -> tuple[bytes, OpenedStream]:
        """Return the first bytes, and the stream as if they had not been read."""
        head = self.stream.read(count)
        if self.seekable:
            self.stream.seek(0)
            return head, self
        rejoined = cast("BinaryIO", _Rejoined(head, self.stream))
        return head, OpenedStream(buffered(rejoined, given), seekable=False)

    def read_past(self, count: int) -> int:
        """Read and forget a number of bytes; return how many there were."""
        left = count
        while left > 0 and (found := len(self.stream.read(min(left, _BUFFER_BYTES)))):
            left -= found
        return count - left


class StreamExtractor(Extractor, frozen=True, kw_only=True):
    """Hold what extractors of streams have in common; a subclass reads what :meth:`open_plain` returns.

    Args:
        max_record_bytes: see :class:`~headerware.sources.Extractor`.
        compression: ``auto`` tells gzip, bzip2, xz, zstd and snappy (its framing format) by the first bytes;
            ``none`` takes the bytes as they are.
        max_expansion: how many times as large as its compressed bytes an object may become, beyond 64 MiB.

    Raises:
        ConfigError: a limit below 1.
    """

    compression: Compression = "auto"
    max_expansion: int = 250

    def __post_init__(self) -> None:
        """Refuse limits that nothing could keep."""
        for option in ("max_record_bytes", "max_expansion"):
            if getattr(self, option) < 1:
                raise ConfigError(f"expected at least 1, found {getattr(self, option)}", path=option)

    def open_plain(self, given: Input) -> OpenedStream:
        """Return a fresh stream of the object's plain bytes, which is closed with the input.

        Raises:
            NotAStreamError: the object has no bytes to read.
            OSError: it cannot be read now.
            ObjectError: it cannot be read.
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
    """Return a stream that reads ahead, and that is closed with the input."""
    if isinstance(stream, io.BufferedIOBase):
        return stream
    raw = stream if isinstance(stream, io.RawIOBase) else _Raw(stream)
    made = io.BufferedReader(raw, _BUFFER_BYTES)
    given.closing(cast("BinaryIO", made))
    return made


class ReadingStream(io.RawIOBase):
    """A stream of which a subclass gives the next bytes, and which cannot seek."""

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer, or a part of it; 0 is the end."""
        found = self.give(len(buffer))
        buffer[: len(found)] = found
        return len(found)

    def give(self, most: int) -> bytes | memoryview:
        """Return the next bytes, ``most`` at most; none are the end."""
        raise NotImplementedError


class _Raw(ReadingStream):
    """A stream that only has read, seek and tell, as some clients' are."""

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
    """The first bytes of a stream, which were read already, and the rest of it."""

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
    """One member of a compressed stream, as bz2 and lzma have it."""

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
    """A frame of zstd, fed in small pieces, for its decompressor gives all that these stand for at once."""

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
    """The chunks of snappy's framing format; cramjam decompresses each one, and checks its checksum."""

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
        """Return the length of the first chunk with its head, which may not be there yet."""
        return 4 + int.from_bytes(self._held[1:4], "little") if len(self._held) >= 4 else 4

    def _plain(self, chunk: bytes) -> bytes:
        kind = chunk[0]
        if kind == 0xFF and chunk != _SNAPPY_HEAD:
            raise ValueError("the stream identifier is another one")
        if kind in {0x00, 0x01}:
            if len(chunk) > 4 + _SNAPPY_CHUNK_BYTES:
                raise ValueError("a chunk is too long")
            return bytes(self._snappy.decompress(_SNAPPY_HEAD + chunk))
        if 0x02 <= kind <= 0x7F:
            raise ValueError("a chunk of an unknown kind")
        return b""  # padding, and what may be skipped


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
"""What begins a member, by the word for its codec."""
_PADDED: Final = frozenset({"gzip", "xz"})
"""Zeros may stand behind the members of these."""


def decompressed(decoder: Decoder, data: bytes, most: int, codec: str) -> bytes | memoryview:
    """Decompress a piece.

    Raises:
        ObjectError: it is damaged.
    """
    try:
        return decoder.decompress(data, most)
    except MissingPartError:
        raise
    except Exception as error:  # each library has an error of its own; none of them has read the stream
        raise ObjectError(f"its {codec} data is damaged, or too large to be decompressed") from error


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
                raise ObjectError(f"its {self._codec} data is cut off behind byte {self._read}")
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
                f"its {self._codec} data expands to more than {self._max_expansion} times its size, the "
                "limit (max_expansion)"
            )
