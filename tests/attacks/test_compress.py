"""What a hostile writer may put into a compressed value: it is refused, in little memory."""

from __future__ import annotations

import struct
import subprocess
import sys
import tracemalloc
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import zstandard

from headerware.core.context import Context
from headerware.core.errors import CompressionError
from headerware.core.headers import Headers
from headerware.core.record import Record
from headerware.dictionaries.dictionary import COMPRESS_HEADER
from headerware.interceptors.compress import Compress

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MIB = 1 << 20
ZSTD, GZIP = b"zstd", b"gzip"
MAGIC = b"\x28\xb5\x2f\xfd"
PLAIN = b"a value of some length, " * 8
ZEROS = bytes(32 * MIB)


def frame(plain: bytes, **options: Any) -> bytes:
    return zstandard.ZstdCompressor(**options).compress(plain)


def stating(size: int, value: bytes) -> bytes:
    """Make a frame of one block state another size, in eight bytes."""
    single_block = value[value.index(b"\x60") + 3 :] if value[4] == 0x60 else value[6:]
    return MAGIC + b"\xe0" + struct.pack("<Q", size) + single_block


WHOLE = {
    "zstd": (ZSTD, frame(PLAIN)),
    "zstd, no size": (ZSTD, frame(PLAIN, write_content_size=False)),
    "zstd, checksum": (ZSTD, frame(PLAIN, write_checksum=True)),
    "zstd, no size, checksum": (ZSTD, frame(PLAIN, write_content_size=False, write_checksum=True)),
    "gzip": (GZIP, zlib.compress(PLAIN, 6, 31)),
}
BOMBS = {
    "zstd": (ZSTD, frame(ZEROS)),
    "zstd, no size": (ZSTD, frame(ZEROS, write_content_size=False)),
    "zstd, states less": (ZSTD, MAGIC + b"\xa0" + struct.pack("<I", MIB) + frame(ZEROS)[9:]),
    "zstd, a run-length block": (ZSTD, MAGIC + b"\x00\x68" + (b"\x02\x00\x10z" * 256) + b"\x03\x00\x10z"),
    "gzip": (GZIP, zlib.compress(ZEROS, 9, 31)),
    "gzip, states less": (GZIP, zlib.compress(ZEROS, 9, 31)[:-4] + struct.pack("<I", 1000)),
    "gzip, states nothing": (GZIP, zlib.compress(ZEROS, 9, 31)[:-8]),
}
whole = pytest.mark.parametrize(("mark", "value"), WHOLE.values(), ids=WHOLE)
bombs = pytest.mark.parametrize(("mark", "value"), BOMBS.values(), ids=BOMBS)


def consume(mark: bytes, value: bytes, **options: Any) -> Any:
    return _consume(Compress(**options).open(Context()), mark, value)


def _consume(step: Any, mark: bytes, value: bytes) -> Any:
    return step.on_consume(Record("orders", value, headers=Headers([(COMPRESS_HEADER, mark)]))).value


@contextmanager
def growth_below(size_bytes: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < size_bytes
    finally:
        tracemalloc.stop()


class TestBombs:
    @bombs
    def test_are_what_they_should_be(self, mark: bytes, value: bytes) -> None:
        assert len(value) * 900 < len(ZEROS)

    @bombs
    def test_are_refused_in_little_memory(self, mark: bytes, value: bytes) -> None:
        with growth_below(5 * MIB), pytest.raises(CompressionError):
            consume(mark, value, max_decompressed_bytes=MIB)

    @bombs
    def test_in_a_flood_are_refused_one_by_one(self, mark: bytes, value: bytes) -> None:
        step = Compress(max_decompressed_bytes=MIB).open(Context())
        with growth_below(5 * MIB):
            for _ in range(20):
                with pytest.raises(CompressionError):
                    _consume(step, mark, value)

    @pytest.mark.parametrize("bomb", ["zstd", "zstd, no size", "gzip"])
    def test_pass_where_the_cap_allows_them(self, bomb: str) -> None:
        mark, value = BOMBS[bomb]
        assert consume(mark, value, max_decompressed_bytes=len(ZEROS)) == ZEROS
        with pytest.raises(CompressionError, match="cap"):
            consume(mark, value, max_decompressed_bytes=len(ZEROS) - 1)

    def test_in_gzip_that_state_their_size_cost_no_work(self) -> None:
        with growth_below(MIB // 2), pytest.raises(CompressionError, match=f"states {len(ZEROS)} bytes"):
            consume(*BOMBS["gzip"], max_decompressed_bytes=MIB)


class TestMemory:
    @pytest.mark.parametrize("bomb", ["zstd", "zstd, no size", "gzip"])
    def test_of_a_value_at_the_cap_is_that_and_an_eighth(self, bomb: str) -> None:
        mark, value = BOMBS[bomb]
        with growth_below(len(ZEROS) * 9 // 8 + 5 * MIB):
            assert len(consume(mark, value, max_decompressed_bytes=len(ZEROS))) == len(ZEROS)

    @pytest.mark.parametrize("bomb", ["zstd, no size", "gzip, states less", "gzip, states nothing"])
    def test_of_a_value_above_the_cap_is_no_more(self, bomb: str) -> None:
        cap = len(ZEROS) - 1
        with growth_below(len(ZEROS) * 9 // 8 + 5 * MIB), pytest.raises(CompressionError):
            consume(*BOMBS[bomb], max_decompressed_bytes=cap)

    @pytest.mark.parametrize("bomb", ["zstd", "zstd, no size", "gzip"])
    def test_is_what_the_process_takes_too(self, bomb: str, tmp_path: Path) -> None:
        """What the libraries take beside Python's own allocator is in no trace of Python's."""
        mark, value = BOMBS[bomb]
        (tmp_path / "value").write_bytes(value)
        program = (
            "import resource, sys; from pathlib import Path; "
            "from headerware.interceptors.compress import CODECS; "
            "kind = CODECS[sys.argv[2]]; "
            "value = Path(sys.argv[1]).read_bytes(); "
            "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss; before = peak(); "
            f"kind.decompressor({len(ZEROS)})(value); print(peak() - before)"
        )
        command = [sys.executable, "-c", program, str(tmp_path / "value"), mark.decode()]
        taken = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        assert int(taken.stdout) * 1024 < len(ZEROS) * 9 // 8 + 12 * MIB  # with zstd's window of 8 MiB


class TestLyingSizes:
    @pytest.mark.parametrize("size", [0, 1, len(PLAIN) - 1, len(PLAIN) + 1, 65_000])
    def test_are_refused(self, size: int) -> None:
        with pytest.raises(CompressionError, match="corrupt"):
            consume(ZSTD, stating(size, frame(PLAIN)))

    def test_the_true_size_in_another_form_is_none(self) -> None:
        assert consume(ZSTD, stating(len(PLAIN), frame(PLAIN))) == PLAIN

    @pytest.mark.parametrize("size", [200 * MIB, 256 * MIB])
    def test_that_no_frame_can_hold_allocate_nothing(self, size: int) -> None:
        with growth_below(MIB), pytest.raises(CompressionError, match="can hold"):
            consume(ZSTD, stating(size, frame(PLAIN)))

    @pytest.mark.parametrize("size", [256 * MIB + 1, 2**40, 2**63, 2**64 - 3])
    def test_above_the_cap_allocate_nothing(self, size: int) -> None:
        with growth_below(MIB), pytest.raises(CompressionError, match="cap of 268435456"):
            consume(ZSTD, stating(size, frame(PLAIN)))

    @pytest.mark.parametrize("size", [2**64 - 2, 2**64 - 1])
    def test_that_are_the_librarys_own_signals_are_refused(self, size: int) -> None:
        with growth_below(MIB), pytest.raises(CompressionError):
            consume(ZSTD, stating(size, frame(PLAIN)))


class TestWindows:
    def test_above_8_mib_are_refused_where_no_size_is_stated(self) -> None:
        parameters = zstandard.ZstdCompressionParameters(window_log=27, write_content_size=False)
        stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
        value = stream.compress(PLAIN) + stream.flush()
        with growth_below(MIB), pytest.raises(CompressionError, match="a window of 134217728 bytes"):
            consume(ZSTD, value)

    def test_above_8_mib_and_the_stated_size_are_refused(self) -> None:
        block = (len(PLAIN) << 3 | 1).to_bytes(3, "little") + PLAIN
        value = MAGIC + b"\x80\x70" + struct.pack("<I", len(PLAIN)) + block
        with growth_below(MIB), pytest.raises(CompressionError, match="a window of 16777216 bytes"):
            consume(ZSTD, value)
        assert consume(ZSTD, value.replace(b"\x80\x70", b"\x80\x68", 1)) == PLAIN

    def test_of_8_mib_are_taken(self) -> None:
        parameters = zstandard.ZstdCompressionParameters(window_log=23, write_content_size=False)
        stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
        assert consume(ZSTD, stream.compress(PLAIN) + stream.flush()) == PLAIN

    def test_up_to_the_stated_size_are_taken(self) -> None:
        plain = bytes(16 * MIB)
        assert consume(ZSTD, frame(plain, level=22)) == plain
        parameters = zstandard.ZstdCompressionParameters(window_log=24, write_content_size=True)
        more = zstandard.ZstdCompressor(compression_params=parameters).compress(plain + b"more")
        assert zstandard.get_frame_parameters(more).window_size == 16 * MIB
        assert consume(ZSTD, more) == plain + b"more"


class TestGzipFlags:
    @pytest.mark.parametrize("flag", [1 << bit for bit in range(8)])
    def test_are_refused(self, flag: int) -> None:
        """Libraries differ in what they take and refuse of names, comments and reserved flags."""
        mark, value = WHOLE["gzip"]
        with pytest.raises(CompressionError, match="a gzip member with flags"):
            consume(mark, value[:3] + bytes([flag]) + value[4:])

    def test_a_member_with_a_name_is_refused(self) -> None:
        mark, value = WHOLE["gzip"]
        with pytest.raises(CompressionError, match="a gzip member with flags"):
            consume(mark, value[:3] + b"\x08" + value[4:10] + b"orders.json\0" + value[10:])


class TestCutAndJoined:
    @whole
    def test_every_truncation_is_refused(self, mark: bytes, value: bytes) -> None:
        for size in range(len(value)):
            with pytest.raises(CompressionError):
                consume(mark, value[:size])

    @whole
    @pytest.mark.parametrize("junk", [b"\0", b"junk", bytes(100_000)])
    def test_trailing_bytes_are_refused(self, mark: bytes, value: bytes, junk: bytes) -> None:
        with pytest.raises(CompressionError):
            consume(mark, value + junk)

    @whole
    def test_a_second_frame_is_refused(self, mark: bytes, value: bytes) -> None:
        with pytest.raises(CompressionError):
            consume(mark, value + value)

    @whole
    def test_the_other_codec_is_refused(self, mark: bytes, value: bytes) -> None:
        with pytest.raises(CompressionError):
            consume(ZSTD if mark == GZIP else GZIP, value)

    @pytest.mark.parametrize("kind", ["zstd, checksum", "zstd, no size, checksum", "gzip"])
    def test_every_changed_byte_is_refused_or_changes_nothing(self, kind: str) -> None:
        mark, value = WHOLE[kind]
        for at in range(len(value)):
            changed = value[:at] + bytes([value[at] ^ 0x55]) + value[at + 1 :]
            try:
                found = consume(mark, changed)
            except CompressionError:
                continue
            assert found == PLAIN

    def test_bytes_after_a_frame_that_fills_its_piece_are_refused(self) -> None:
        value = MAGIC + b"\x00\x38" + (7 << 3 | 1).to_bytes(3, "little") + b"7 bytes"
        assert len(value) == 16
        assert consume(ZSTD, value, max_decompressed_bytes=1000) == b"7 bytes"
        with pytest.raises(CompressionError, match="other bytes after"):
            consume(ZSTD, value + b"more", max_decompressed_bytes=1000)


class TestErrors:
    def test_hold_no_payload(self) -> None:
        for mark, value in WHOLE.values():
            for bad in (value[:-3], value + b"secret", b"secret" + value):
                with pytest.raises(CompressionError) as caught:
                    consume(mark, bad)
                assert "secret" not in str(caught.value)
                assert "some length" not in str(caught.value)
