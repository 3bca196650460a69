"""Compressed objects: each codec, members one behind another, cut-off ends, damage and bombs."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import cramjam
import pytest
import zstandard

from headerware.core.errors import ConfigError, ObjectError
from headerware.sources import Input
from headerware.sources.extractors import BytesExtractor, JsonLinesExtractor
from tests.source_objects import MadeObject, MemoryObject, values

COMPRESS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "gzip": lambda data: gzip.compress(data, mtime=0),
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": zstandard.ZstdCompressor().compress,
    "snappy": lambda data: bytes(cramjam.snappy.compress(data)),
}
LINES: Final = b'{"n": 1}\n{"n": 2}\n{"n": 3}\n'
NUMBERS: Final = [{"n": 1}, {"n": 2}, {"n": 3}]
codecs = pytest.mark.parametrize("codec", COMPRESS)


def plain(data: bytes | MadeObject, **options: Any) -> bytes:
    return b"".join(values(BytesExtractor(compression="auto", **options), data))


class TestCompression:
    @codecs
    def test_is_told_by_content(self, codec: str) -> None:
        assert values(JsonLinesExtractor(), COMPRESS[codec](LINES)) == NUMBERS

    @codecs
    def test_is_told_by_content_of_a_stream_that_cannot_seek(self, codec: str) -> None:
        item = MemoryObject(COMPRESS[codec](LINES), seekable=False)
        assert values(JsonLinesExtractor(), item) == NUMBERS

    @codecs
    def test_may_be_named(self, codec: str) -> None:
        extractor = JsonLinesExtractor(compression=codec)  # type: ignore[arg-type]  # the words are these
        assert values(extractor, COMPRESS[codec](LINES)) == NUMBERS

    @codecs
    def test_joins_members(self, codec: str) -> None:
        compress = COMPRESS[codec]
        data = compress(LINES[:9]) + compress(b"") + compress(LINES[9:])
        assert values(JsonLinesExtractor(), data) == NUMBERS

    @codecs
    def test_gives_large_objects_whole(self, codec: str) -> None:
        data = os.urandom(300_000) + bytes(700_000) + os.urandom(70_000)
        assert plain(COMPRESS[codec](data)) == data

    @codecs
    @pytest.mark.parametrize("kept", [0.3, 0.6, 0.9, 0.999])
    def test_never_takes_a_cut_off_object_for_its_end(self, codec: str, kept: float) -> None:
        whole = COMPRESS[codec](os.urandom(200_000))
        with pytest.raises(ObjectError):
            plain(whole[: int(len(whole) * kept)])

    @codecs
    def test_tells_of_damage(self, codec: str) -> None:
        whole = bytearray(COMPRESS[codec](os.urandom(50_000)))
        whole[len(whole) // 2] ^= 0x10
        whole[-9] ^= 0x10
        if codec == "zstd":  # it has no checksum unless it is asked for one
            whole = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(os.urandom(50_000)))
            whole[len(whole) // 2] ^= 0x10
        with pytest.raises(ObjectError, match="damaged"):
            plain(bytes(whole))

    def test_is_left_alone_where_the_options_say_so(self) -> None:
        data = COMPRESS["gzip"](LINES)
        assert values(BytesExtractor(), data) == [data]

    @pytest.mark.parametrize("codec", ["gzip", "xz"])
    def test_permits_zeros_behind_the_end(self, codec: str) -> None:
        assert plain(COMPRESS[codec](LINES) + bytes(512)) == LINES

    def test_refuses_other_bytes_behind_the_end(self) -> None:
        with pytest.raises(ObjectError):
            plain(COMPRESS["gzip"](LINES) + b"more")

    @pytest.mark.parametrize(
        "chunk", [b"\xff\x06\x00\x00sNaPpX", b"\x02\x01\x00\x00a", b"\x00\x00\x00\x03" + bytes(3 << 16)]
    )
    def test_refuses_chunks_that_snappy_does_not_have(self, chunk: bytes) -> None:
        with pytest.raises(ObjectError):
            plain(COMPRESS["snappy"](LINES) + chunk)

    def test_skips_padding_of_snappy(self) -> None:
        padding = b"\xfe\x05\x00\x00" + bytes(5)
        assert plain(COMPRESS["snappy"](LINES) + padding + COMPRESS["snappy"](LINES)) == LINES * 2

    @pytest.mark.parametrize("at", [0, 1, 2])
    def test_skips_frames_of_zstd_that_are_no_data(self, at: int) -> None:
        frames = [COMPRESS["zstd"](LINES[:9]), COMPRESS["zstd"](LINES[9:])]
        frames.insert(at, b"\x5e\x2a\x4d\x18\x04\x00\x00\x00size")
        assert values(JsonLinesExtractor(), b"".join(frames)) == NUMBERS

    def test_leaves_errors_of_the_stream_as_they_are(self) -> None:
        def failing() -> Iterator[bytes]:
            yield COMPRESS["gzip"](os.urandom(200_000))[:100_000]
            raise ConnectionResetError

        with pytest.raises(ConnectionResetError):
            plain(MadeObject(failing()))

    def test_takes_an_empty_object(self) -> None:
        assert plain(b"") == b""

    @pytest.mark.parametrize("option", ["max_record_bytes", "max_expansion"])
    def test_refuses_limits_that_nothing_keeps(self, option: str) -> None:
        with pytest.raises(ConfigError, match=option):
            JsonLinesExtractor(**{option: 0})  # type: ignore[arg-type]  # only these are given


class TestBombs:
    @pytest.mark.parametrize("codec", ["gzip", "bzip2", "xz", "zstd"])
    def test_are_refused_early(self, codec: str) -> None:
        bomb = COMPRESS[codec](bytes(70 << 20))
        extractor = BytesExtractor(compression="auto", max_expansion=100)
        reading = extractor.extract(Input(MemoryObject(bomb)))
        for _ in range(64):
            next(reading)
        with pytest.raises(ObjectError, match="max_expansion"):
            list(reading)

    def test_of_xz_may_not_ask_for_much_memory(self) -> None:
        data = bytearray(lzma.compress(b"x" * 10))
        end = 12 + (data[12] + 1) * 4  # of the block's header, whose last four bytes are its checksum
        data[16] = 40  # the size of the dictionary: 4 GiB
        data[end - 4 : end] = zlib.crc32(data[12 : end - 4]).to_bytes(4, "little")
        with pytest.raises(ObjectError, match="too large"):
            plain(bytes(data))
