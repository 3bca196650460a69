from __future__ import annotations

import pytest

from headerware.core.awaited import Awaited


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_wait_is_counted_from_the_first_record_and_not_repeated(clock: Clock) -> None:
    awaited = Awaited[str](100, clock)
    found = []
    for _ in range(6):
        found.append(awaited.waits("a"))
        clock.now += 40
    assert found == [True, True, True, False, False, False]
    clock.now += 10_000_000
    assert not awaited.waits("a")


def test_waits_at_the_same_time_overlap(clock: Clock) -> None:
    awaited = Awaited[str](100, clock)
    assert awaited.waits("a")
    clock.now += 60
    assert awaited.waits("b")
    clock.now += 60
    assert (awaited.waits("a"), awaited.waits("b")) == (False, True)


def test_after_a_wait_in_vain_no_other_begins_for_ten_times_as_long(clock: Clock) -> None:
    awaited = Awaited[int](100, clock)
    waited = 0
    for name in range(10_000):
        if awaited.waits(name):
            clock.now += 100
            waited += 100
            assert not awaited.waits(name)
        clock.now += 1
    assert 0 < waited <= (10_000 + waited) / 10


@pytest.mark.parametrize("back_ms", [1, 3_600_000])
def test_a_clock_that_is_set_back_prolongs_no_wait(clock: Clock, back_ms: int) -> None:
    awaited = Awaited[str](100, clock)
    assert awaited.waits("a")
    clock.now -= back_ms
    assert not awaited.waits("a")


def test_nothing_is_waited_for_without_a_time(clock: Clock) -> None:
    assert not Awaited[str](0, clock).waits("a")
