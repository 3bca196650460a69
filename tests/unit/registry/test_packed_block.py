from __future__ import annotations

import tracemalloc

import pytest

from headerware.core.errors import WireFormatError
from headerware.core.headers import HeaderValue, Pair
from headerware.registry.wire.packed_block import HEADER, MAX_PACKED, Spelling, pack, unpack, varint

A: Pair = ("a", b"1")
B: Pair = ("b", None)
NAMES = {1: "one", 2: "two", 300: "many"}
SPELLINGS: dict[str, Spelling] = {
    "one": (b"\x01", 3),
    "two": (b"\x02", 3),
    "many": (b"\xac\x02", 3),
    "~x": "~~x",
    "a": None,
    "b": None,
}


class TestVarint:
    @pytest.mark.parametrize(
        ("number", "wire"),
        [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (16_384, "808001"), (2**32 - 1, "ffffffff0f")],
    )
    def test_writes_the_fewest_bytes(self, number: int, wire: str) -> None:
        assert varint(number).hex() == wire


class TestPack:
    def test_changes_nothing_where_nothing_has_an_id(self) -> None:
        assert pack([A, B], SPELLINGS) is None
        assert pack([], SPELLINGS) is None

    def test_stands_where_its_first_header_was(self) -> None:
        assert pack([A, ("one", b"x"), B], SPELLINGS) == ([A, (HEADER, b"\x01\x01\x02x"), B], -6)

    def test_tells_where_plain_headers_stand(self) -> None:
        packed = pack([("one", None), A, B, ("many", b"")], SPELLINGS)
        assert packed == ([(HEADER, b"\x01\x01\x00\x00\x02\xac\x02\x01"), A, B], -5)

    def test_escapes_plain_names(self) -> None:
        assert pack([("~x", b"1")], SPELLINGS) == ([("~~x", b"1")], -1)

    @pytest.mark.parametrize("size", [0, 126, 127, 128, 1_022, 1_023, 16_383, 16_384, 3_000_000])
    def test_takes_a_value_of_any_size(self, size: int) -> None:
        headers: list[Pair] = [("one", b"x" * size), A, ("two", b"y" * size)]
        packed = pack(headers, SPELLINGS)
        assert packed is not None
        ((_, block), plain) = packed[0]
        assert unpack(block, [plain], NAMES) == headers


class TestUnpack:
    @pytest.mark.parametrize(
        ("block", "message"),
        [
            (None, "is null, expected a block"),
            (b"", "expected version 1, found no byte"),
            (b"\x07\x01\x00", "expected version 1, found version 7"),
            (b"\x01", "ends within an item, at byte 1"),
            (b"\x01\x01", "ends within an item, at byte 2"),
            (b"\x01\x01\x05abc", "a value ends 1 bytes behind the block's end"),
            (b"\x01\x81\x00\x00", "the number at byte 1 is longer than need be"),
            (b"\x01\x01\x80\x80\x80\x80\x10", "the number at byte 2 is larger than 4294967295"),
            (b"\x01\x00\x01\x01\x00", "plain headers stand first, or twice in a row"),
            (
                b"\x01\x01\x00\x00\x03\x01\x00",
                "says that 3 plain headers stand in one place, where 2 are left",
            ),
            (
                b"\x01\x01\x00\x00\x00\x01\x00",
                "says that 0 plain headers stand in one place, where 2 are left",
            ),
        ],
    )
    def test_says_what_is_wrong(self, block: HeaderValue, message: str) -> None:
        with pytest.raises(WireFormatError, match=message):
            unpack(block, [A, B], NAMES)

    def test_reads_a_null_behind_a_long_id_at_the_very_end(self) -> None:
        assert unpack(b"\x01\xac\x02\x00", [], NAMES) == [("many", None)]

    def test_takes_as_many_headers_as_may_be(self) -> None:
        assert len(unpack(b"\x01" + b"\x01\x00" * MAX_PACKED, [], NAMES)) == MAX_PACKED

    @pytest.mark.parametrize(
        "block",
        [
            pytest.param(b"\x01\x01\xff\xff\xff\xff\x0f", id="a length of 4 GiB"),
            pytest.param(b"\x01\x01\x00\x00\xff\xff\xff\xff\x0f\x01\x00", id="four billion plain headers"),
            pytest.param(b"\x01" + b"\x01\x00" * 500_000, id="a megabyte of null headers"),
            pytest.param(b"\x01" + b"\x80" * 1_000_000, id="a number without end"),
        ],
    )
    def test_allocates_little_for_what_is_declared(self, block: bytes) -> None:
        tracemalloc.start()
        try:
            with pytest.raises(WireFormatError):
                unpack(block, [A], NAMES)
            assert tracemalloc.get_traced_memory()[1] < 2_000_000
        finally:
            tracemalloc.stop()
