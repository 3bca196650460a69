from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headerware import Headers, SerdeError
from headerware.serdes.formats.msgpack import _LARGE, MessagePack, has_array_keys
from headerware.serdes.serde import SerdeContext
from tests.work import cpu_within

encode = msgspec.msgpack.encode
BITS = 1 << 64
SIZES = (0, 1, 15, 16, 31, 32, 255, 256, 65535, 65536)


def large(entry: Any, size: int = _LARGE) -> dict[Any, Any]:
    return {**{str(number): number for number in range(size - 1)}, **entry}


def colliding(count: int) -> bytes:
    """Make a map whose keys are pairs with one hash (xxHash, as tuples have it, run backwards)."""
    first, second, seed = 11400714785074694791, 14029467366897019727, 2870177450012600261
    before = 99 * pow(first, -1, BITS) % BITS
    turned = (before >> 31 | before << 33) % BITS
    pairs: list[tuple[int, int]] = []
    lane = 0
    while len(pairs) < count:
        mixed = seed + lane * second
        mixed = (mixed << 31 | mixed % BITS >> 33) % BITS * first % BITS
        other = (turned - mixed) * pow(second, -1, BITS) % BITS
        if other < (1 << 61) - 1:
            pairs.append((lane, other))
        lane += 1
    assert len({hash(pair) for pair in pairs}) == 1
    return b"\xdf" + count.to_bytes(4, "big") + b"".join(encode(pair) + b"\xc0" for pair in pairs)


class TestHasArrayKeys:
    @pytest.mark.parametrize(
        "value",
        [
            large({(1, 2): 3}),
            large({(): 3}),
            large({tuple(range(20)): 3}),
            large({tuple(range(70_000)): 3}),
            [large({(1,): 3})],
            {"a": [1, {"b": large({(1,): 3})}]},
            [large({"a": large({"b": 1})}), large({(1,): 3})],
            large({(1,): 3}, 70_000),
        ],
    )
    def test_finds_them(self, value: Any) -> None:
        assert has_array_keys(encode(value))

    @pytest.mark.parametrize(
        "value",
        [
            large({}),
            large({"a": (1, 2), "b": [[]], "c": {(1,): 2}}),
            large({"a": 1}, 70_000),
            large({1: 2, 2.5: 3, False: 1, b"\xde\xff\xff\xdf": 4, None: 5}),
            {(1,): 2},
            [1, [2], large({"a": {}})],
            ["\u07ff" * 500],
            [[large({})] * 3, [(1, 2)] * 99],
        ],
    )
    def test_finds_no_others(self, value: Any) -> None:
        assert not has_array_keys(encode(value))

    @pytest.mark.parametrize("size", SIZES)
    @pytest.mark.parametrize("make", [lambda size: "x" * size, bytes, lambda size: [None] * size])
    def test_skips_the_items_before(self, size: int, make: Any) -> None:
        assert has_array_keys(encode([make(size), large({(1,): 2})]))
        assert not has_array_keys(encode([make(size), large({1: (2,)})]))

    @pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5, 8, 9, 16, 17, 255, 256, 65536])
    def test_passes_over_extensions(self, size: int) -> None:
        extension = msgspec.msgpack.Ext(5, b"\xdf" * size)
        assert has_array_keys(encode([extension, large({(1,): 2})]))
        assert not has_array_keys(encode([extension, large({1: (2,)})]))

    @pytest.mark.parametrize(
        "value", [-1, -33, -129, -32769, -(2**40), 128, 256, 65536, 2**40, 1.5, True, False, None]
    )
    def test_passes_over_scalars(self, value: Any) -> None:
        assert has_array_keys(encode([value, large({(1,): 2})]))
        assert not has_array_keys(encode([value, large({1: (2,)})]))

    def test_finds_them_before_the_end_is_missing(self) -> None:
        assert has_array_keys(b"\xdf\xff\xff\xff\xff\x91\x01\x02")

    @pytest.mark.parametrize(
        "payload", [b"\xdf", b"\xde\xff", b"\xdf\xff\xff\xff\xff\xdf", b"\xc1\xdf", b"\xdf" + b"\x91" * 9_999]
    )
    def test_broken_payloads_are_left_to_the_decoder(self, payload: bytes) -> None:
        has_array_keys(payload)
        with pytest.raises(SerdeError):
            MessagePack().open(SerdeContext()).deserialize("t", Headers(), payload)


class TestMessagePack:
    def test_keys_made_to_collide_are_refused_at_once(self) -> None:
        payload = colliding(5_000)
        functions = MessagePack().open(SerdeContext())
        with cpu_within(0.1):
            for _ in range(50):  # each would take a fifth of a second
                with pytest.raises(SerdeError, match="found an array"):
                    functions.deserialize("t", Headers(), payload)
