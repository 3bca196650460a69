from __future__ import annotations

import tracemalloc

import pytest

from headerware.core.errors import WireFormatError
from headerware.core.headers import HeaderValue, Pair
from headerware.registry.wire.packed_block import HEADER, MAX_PACKED, Spelling, encode_number, pack, unpack

A: Pair = ("a", b"1")
B: Pair = ("b", None)
NAMES = {1: "one", 2: "two", 300: "many"}
SPELLINGS: dict[str, Spelling] = {
    "one": (b'"', 3),
    "two": (b"#", 3),
    "many": (b"M%", 3),
    "~x": "~~x",
    "a": None,
    "b": None,
}


class TestNumber:
    @pytest.mark.parametrize(
        ("number", "wire"),
        [(0, "!"), (29, ">"), (30, "?!"), (300, "M%"), (1_949, "~>"), (1_950, "??!"), (2**32 - 1, "`````$")],
    )
    def test_writes_the_fewest_characters(self, number: int, wire: str) -> None:
        assert encode_number(number).decode() == wire


class TestPack:
    def test_changes_nothing_where_nothing_has_an_id(self) -> None:
        assert pack([A, B], SPELLINGS) is None
        assert pack([], SPELLINGS) is None

    def test_stands_where_its_first_header_was(self) -> None:
        assert pack([A, ("one", b"x"), B], SPELLINGS) == ([A, (HEADER, b'1"#x'), B], -6)

    def test_tells_where_plain_headers_stand(self) -> None:
        packed = pack([("one", None), A, B, ("many", b"")], SPELLINGS)
        assert packed == ([(HEADER, b'1"!!#M%"'), A, B], -5)

    def test_escapes_plain_names(self) -> None:
        assert pack([("~x", b"1")], SPELLINGS) == ([("~~x", b"1")], -1)

    @pytest.mark.parametrize(
        "size", [0, 28, 29, 30, 127, 128, 1_021, 1_022, 1_023, 1_948, 1_949, 16_384, 3_000_000]
    )
    def test_takes_a_value_of_any_size(self, size: int) -> None:
        headers: list[Pair] = [("one", b"x" * size), A, ("two", b"y" * size)]
        packed = pack(headers, SPELLINGS)
        assert packed is not None
        ((_, block), plain) = packed[0]
        assert unpack(block, [plain], NAMES) == headers

    @pytest.mark.parametrize("size", [0, 31, 128, 5_000, 40_000])
    def test_of_texts_is_text(self, size: int) -> None:
        packed = pack([("many", b"x" * size), A, B, ("one", "\u00fc".encode() * size)], SPELLINGS)
        assert packed is not None
        assert len((packed[0][0][1] or b"").decode()) > 2 * size


class TestUnpack:
    @pytest.mark.parametrize(
        ("block", "message"),
        [
            (None, "is null, expected a block"),
            (b"", "expected version 1, found no byte"),
            (b'\x01"!', "expected version 1, found another version"),
            (b"1", "ends within an item, at byte 1"),
            (b'1"', "ends within an item, at byte 2"),
            (b'1"&abc', "a value ends 1 bytes after the block's end"),
            (b"1 !", "the byte at 1 is not part of a number"),
            (b'1"\x7f!', "the byte at 2 is not part of a number"),
            (b'1"?\xff', "the byte at 3 is not part of a number"),
            (b'1"`````%', "the number at byte 2 is larger than 4294967295"),
            (b'1!""!', "plain headers stand first, or twice in a row"),
            (
                b'1"!!$"!',
                "says that 3 plain headers come in one place, where 2 are left",
            ),
            (
                b'1"!!!"!',
                "says that 0 plain headers come in one place, where 2 are left",
            ),
        ],
    )
    def test_says_what_is_wrong(self, block: HeaderValue, message: str) -> None:
        with pytest.raises(WireFormatError, match=message):
            unpack(block, [A, B], NAMES)

    def test_reads_a_null_behind_a_long_id_at_the_very_end(self) -> None:
        assert unpack(b"1M%!", [], NAMES) == [("many", None)]

    def test_takes_as_many_headers_as_may_be(self) -> None:
        assert len(unpack(b"1" + b'"!' * MAX_PACKED, [], NAMES)) == MAX_PACKED

    @pytest.mark.parametrize(
        "block",
        [
            pytest.param(b'1"~~~~~~>', id="a length of 4 GiB"),
            pytest.param(b'1"!!~~~~~~>"!', id="four billion plain headers"),
            pytest.param(b"1" + b'"!' * 500_000, id="a megabyte of null headers"),
            pytest.param(b"1" + b"~" * 1_000_000, id="a number without end"),
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
