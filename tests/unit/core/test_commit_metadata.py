"""Pending offsets, and the metadata of a commit that notes them."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headerware.core import commit_metadata
from headerware.core.commit_metadata import PendingOffsets, decode_metadata, encode_metadata
from headerware.core.errors import WireFormatError


def encoded(pending: PendingOffsets, position: int) -> tuple[int, str | None] | None:
    try:
        return pending.encode(position)
    except WireFormatError:
        return None


class TestPendingOffsets:
    @given(
        st.lists(st.tuples(st.booleans(), st.integers(0, 300)), max_size=60),
        st.integers(0, 5_000_000_000),
        st.none() | st.text(min_size=1, max_size=100),
    )
    def test_are_those_of_a_set(self, changes: list[tuple[bool, int]], base: int, own: str | None) -> None:
        pending, expected = PendingOffsets([base + 40]), {base + 40}
        for is_added, offset in changes:
            (pending.add if is_added else pending.discard)(base + offset)
            (expected.add if is_added else expected.discard)(base + offset)
            assert len(pending) == len(expected)
            assert (base + offset in pending) is is_added
        position = base + 301
        offset, metadata = pending.encode(position, own)
        assert offset == min(expected, default=position)
        found = decode_metadata(offset, metadata)
        assert (found.position or offset, found.pending, found.own) == (position, frozenset(expected), own)

    @given(
        st.lists(st.tuples(st.sampled_from(["add", "discard", "encode"]), st.integers(0, 300)), max_size=60)
    )
    def test_fit_a_commit_whenever_the_same_offsets_alone_do(self, changes: list[tuple[str, int]]) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(commit_metadata, "MAX_FIELD_BYTES", 8)
            pending, expected = PendingOffsets(), set[int]()
            for change, offset in changes:
                if change != "encode":
                    getattr(pending, change)(offset)
                    getattr(expected, change)(offset)
                    assert len(pending) == len(expected)
                    assert set(pending) == expected
                    continue
                position = max(expected, default=0) + 1
                assert encoded(pending, position) == encoded(PendingOffsets(expected), position)

    def test_that_were_too_far_from_others_come_back_once_these_are_done(self) -> None:
        pending = PendingOffsets([0])
        pending.add(33_000_000)
        pending.discard(0)
        assert pending.encode(33_000_001) == PendingOffsets([33_000_000]).encode(33_000_001)

    def test_leave_room_for_the_metadata_of_the_application(self) -> None:
        pending = PendingOffsets(random.Random(4).sample(range(22_000), 11_000))
        offset, metadata = pending.encode(22_000, "x")
        assert metadata is not None
        own = "x" * (commit_metadata.MAX_BYTES - len(metadata) + 1)
        assert pending.encode(22_000, own)[0] == offset
        with pytest.raises(WireFormatError, match="do not fit"):
            pending.encode(22_000, f"{own}x")

    def test_so_far_apart_that_no_commit_notes_them_take_no_room(self) -> None:
        pending = PendingOffsets([0])
        pending.add(1 << 60)
        pending.add(5)
        assert len(pending) == 3
        with pytest.raises(WireFormatError, match="3 pending offsets do not fit"):
            pending.encode((1 << 60) + 1)
        pending.discard(1 << 60)
        assert pending.encode(6)[0] == 0

    def test_that_move_on_leave_nothing_behind(self) -> None:
        pending = PendingOffsets()
        for offset in range(0, 40_000_000, 10_000):  # more than a commit's bits span
            pending.add(offset)
            pending.discard(offset - 20_000)
            assert pending.encode(offset + 1)[0] == max(0, offset - 10_000)

    def test_at_random_are_bounded_by_the_metadata(self) -> None:
        chance = random.Random(4)
        with pytest.raises(WireFormatError, match="do not fit"):
            PendingOffsets(chance.sample(range(100_000), 50_000)).encode(100_000)

    @pytest.mark.parametrize(
        ("position", "offsets"), [(10**17, {0}), (2_000_000, set(range(1_000_001)))], ids=["far", "many"]
    )
    def test_that_do_not_fit_are_refused_before_they_take_memory(
        self, position: int, offsets: set[int]
    ) -> None:
        with pytest.raises(WireFormatError, match="do not fit"):
            PendingOffsets(offsets).encode(position)


class TestMetadata:
    @pytest.mark.parametrize("own", [None, "mine", "hw1:", "hw1:5:x", "a:b", "ü"])
    @pytest.mark.parametrize("position", [None, 0, 2**63 - 1])
    def test_comes_back_as_it_was(self, own: str | None, position: int | None) -> None:
        assert decode_metadata(0, encode_metadata(position, own)) == (position, frozenset(), own)

    @pytest.mark.parametrize(
        "foreign",
        ["hw1", "hw1:5", "hw1:-5:x", "hw1:x:y", "hw1:٣:", "hw2:5:x", "hw1:" + "9" * 20 + ":", "hw1:~AA:"],
    )
    def test_leaves_foreign_text_alone(self, foreign: str) -> None:
        assert decode_metadata(0, foreign) == (None, frozenset(), foreign)
