"""Which records below a position stay, as what a commit can note."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headerware.core.errors import WireFormatError
from headerware.ops.stays import Stays, decode_stays


class TestStays:
    @given(
        st.lists(st.tuples(st.booleans(), st.integers(0, 300)), max_size=60), st.integers(0, 5_000_000_000)
    )
    def test_are_those_of_a_set(self, changes: list[tuple[bool, int]], base: int) -> None:
        stays, expected = Stays([base + 40]), {base + 40}
        for is_added, offset in changes:
            (stays.add if is_added else stays.discard)(base + offset)
            (expected.add if is_added else expected.discard)(base + offset)
            assert len(stays) == len(expected)
            position = base + 301
            offset_, metadata = stays.encode(position)
            assert offset_ == min(expected, default=position)
            assert decode_stays(offset_, metadata) == (position, frozenset(expected))

    def test_so_far_apart_that_no_commit_notes_them_take_no_room(self) -> None:
        stays = Stays([0])
        stays.add(1 << 60)
        stays.add(5)
        assert len(stays) == 3
        with pytest.raises(WireFormatError, match="the 3 records that stay"):
            stays.encode((1 << 60) + 1)
        stays.discard(1 << 60)
        assert stays.encode(6)[0] == 0

    def test_that_move_on_leave_nothing_behind(self) -> None:
        stays = Stays()
        for offset in range(0, 40_000_000, 10_000):  # more than a commit's bits span
            stays.add(offset)
            stays.discard(offset - 20_000)
            assert stays.encode(offset + 1)[0] == max(0, offset - 10_000)

    def test_at_random_are_bounded_by_the_metadata(self) -> None:
        rest = random.Random(4)
        with pytest.raises(WireFormatError, match="do not fit"):
            Stays(rest.sample(range(100_000), 50_000)).encode(100_000)
