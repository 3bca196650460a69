"""What a worker is done with, and what it commits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headerware.core.errors import HeaderwareError
from headerware.workers.done import Commit, Done

KEY = ("orders", 0)


def begun(*, low: int = 0, high: int = 100, committed: tuple[int, str] | None = None) -> Done:
    done = Done("group")
    done.begin(KEY, low, high, committed)
    return done


def restarted(done: Done, *, low: int = 0, high: int = 100) -> tuple[Done, int]:
    (commit,) = done.commits(everything=True).values()
    again = Done("group")
    return again, again.begin(KEY, low, high, (commit.offset, commit.metadata or ""))


class TestDone:
    def test_begins_at_the_first_offset_without_a_commit(self) -> None:
        done = Done("group")
        assert done.begin(KEY, 5, 10, None) == 5
        assert done.commits() == {}

    def test_commits_the_position_when_nothing_is_pending(self) -> None:
        done = begun()
        for offset in range(3):
            done.note(KEY, offset)
        assert done.commits() == {KEY: Commit(3, None)}
        done.committed(done.commits())
        assert done.commits() == {}

    @given(st.dictionaries(st.integers(0, 60), st.booleans(), min_size=1))
    def test_a_restart_does_what_is_pending_and_nothing_else(self, seen: dict[int, bool]) -> None:
        done = begun()
        for offset, is_pending in seen.items():
            done.note(KEY, offset, is_pending=is_pending)
        again, start = restarted(done)
        pending = {offset for offset, is_pending in seen.items() if is_pending}
        position = max(seen) + 1
        assert start == min(pending, default=position)
        assert {offset for offset in range(position + 5) if not again.was_done(KEY, offset)} == {
            *pending,
            *range(position, position + 5),
        }

    def test_what_was_pending_is_done_once_it_was_decided(self) -> None:
        done = begun()
        done.note(KEY, 0, is_pending=True)
        done.note(KEY, 1)
        again, _ = restarted(done)
        again.note(KEY, 0)
        assert again.commits() == {KEY: Commit(2, None)}

    def test_counts_what_the_topic_has_lost(self) -> None:
        done = begun()
        done.note(KEY, 0, is_pending=True)
        done.note(KEY, 9)
        again, start = restarted(done, low=20)
        assert (start, again.deleted) == (20, 1 + 10)
        assert again.commits() == {KEY: Commit(20, None)}

    def test_refuses_a_topic_that_was_made_again(self) -> None:
        done = begun()
        done.note(KEY, 50)
        with pytest.raises(HeaderwareError, match=r"up to offset 51, but it ends at 7: .* made again"):
            restarted(done, high=7)

    @pytest.mark.parametrize("metadata", ["by another", "hw1:7:by another"])
    def test_refuses_a_group_that_has_done_something_else(self, metadata: str) -> None:
        with pytest.raises(HeaderwareError, match="for something else"):
            begun(committed=(5, metadata))

    def test_forgets_partitions(self) -> None:
        done = begun()
        done.note(KEY, 1)
        done.forget([KEY])
        assert done.partitions == []
        assert done.commits() == {}

    def test_marks_of_transactions_at_the_end_are_passed(self) -> None:
        done = begun()
        done.note(KEY, 0)
        done.reached(KEY, 4)
        assert done.commits() == {KEY: Commit(4, None)}

    def test_what_was_pending_and_does_not_come_again_is_gone(self) -> None:
        done = begun()
        for offset in (1, 3, 5, 7):
            done.note(KEY, offset, is_pending=True)
        again, _ = restarted(done)
        again.read(KEY, 3)
        assert (again.commits()[KEY].offset, again.deleted) == (3, 1)
        again.note(KEY, 3)
        again.read(KEY, 7)
        again.note(KEY, 7)
        assert (again.commits(), again.deleted) == ({KEY: Commit(8, None)}, 2)

    def test_what_was_pending_and_is_missing_at_the_end_is_gone(self) -> None:
        done = begun()
        done.note(KEY, 7, is_pending=True)
        again, _ = restarted(done)
        again.reached(KEY, 8)
        assert (again.commits(), again.deleted) == ({KEY: Commit(8, None)}, 1)

    def test_what_is_read_once_more_is_not_gone(self) -> None:
        done = begun()
        for offset in (1, 3):
            done.note(KEY, offset, is_pending=True)
        again, _ = restarted(done)
        for offset in (1, 3):
            again.read(KEY, offset)
        again.read_again(KEY, [3, 1])
        assert not again.was_done(KEY, 1)
        again.read(KEY, 1)
        assert [again.was_done(KEY, offset) for offset in (1, 2, 3, 4)] == [True, True, False, False]
