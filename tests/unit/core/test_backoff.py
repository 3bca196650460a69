from __future__ import annotations

import random
from typing import Final

import pytest

from headerware.core.backoff import Backoff, jittered, pause_s
from headerware.core.stop_flag import StopFlag

MANY: Final = 10_000


class TestPause:
    def test_doubles_up_to_the_longest(self) -> None:
        assert [pause_s(failures, 0.5, 3.0) for failures in range(1, 6)] == [0.5, 1.0, 2.0, 3.0, 3.0]

    def test_is_a_number_after_any_number_of_failures(self) -> None:
        assert pause_s(MANY, 0.001, 60.0) == 60.0

    def test_is_the_longest_if_the_first_is_longer(self) -> None:
        assert pause_s(1, 5.0, 1.0) == 1.0

    @pytest.mark.parametrize(("chance", "seconds"), [(0.0, 1.0), (1.0, 2.0)])
    def test_with_jitter_is_between_half_of_it_and_all_of_it(self, chance: float, seconds: float) -> None:
        assert jittered(2.0, lambda: chance) == seconds

    def test_takes_no_number_from_an_application_that_seeds(self) -> None:
        before = random.getstate()
        assert 1.0 <= jittered(2.0) <= 2.0
        assert random.getstate() == before


class TestBackoff:
    def test_begins_anew_after_a_success(self) -> None:
        backoff = Backoff(1.0, 3.0)
        fresh = [backoff.is_fresh]
        assert [backoff.next_s() for _ in range(4)] == [1.0, 2.0, 3.0, 3.0]
        fresh.append(backoff.is_fresh)
        backoff.reset()
        assert [*fresh, backoff.is_fresh] == [True, False, True]
        assert backoff.next_s() == 1.0

    def test_shortens_each_pause_by_chance_if_it_is_told_to(self) -> None:
        backoff = Backoff(1.0, 1.0, jitter=True)
        pauses = [backoff.next_s() for _ in range(100)]
        assert all(0.5 <= pause <= 1.0 for pause in pauses)
        assert len(set(pauses)) > 1

    def test_says_whether_to_stop(self) -> None:
        backoff, stop = Backoff(0.001, 60.0), StopFlag()
        assert not backoff.wait(stop)
        stop.set()
        for _ in range(MANY):
            assert backoff.wait(stop)
