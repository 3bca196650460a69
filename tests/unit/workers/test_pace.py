from __future__ import annotations

import pytest

from headerware.core.stop_flag import StopFlag
from headerware.workers import pace as pace_module
from headerware.workers.pace import Pace


class Clock(StopFlag):
    """A clock that a wait moves on."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now

    def wait(self, timeout_s: float) -> bool:
        self.now += timeout_s
        return False


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(pace_module, "time", clock)
    return clock


def work(pace: Pace, clock: Clock, *counts: int, took_s: float = 0.0) -> float:
    began = clock.now
    for count in counts:
        pace.begin()
        clock.now += took_s
        pace.keep(count)
    return clock.now - began


class TestPace:
    def test_keeps_a_rate(self, clock: Clock) -> None:
        assert work(Pace(50, clock), clock, *[10] * 20) == pytest.approx(4.0)

    def test_counts_the_work_itself(self, clock: Clock) -> None:
        assert work(Pace(50, clock), clock, *[10] * 20, took_s=0.1) == pytest.approx(4.0)

    def test_does_not_make_up_for_a_pause_or_for_slow_work(self, clock: Clock) -> None:
        pace = Pace(50, clock)
        work(pace, clock, 10)
        clock.now += 60
        work(pace, clock, 1, took_s=60)
        assert work(pace, clock, *[10] * 20) == pytest.approx(4.0)

    def test_without_a_rate_never_waits(self, clock: Clock) -> None:
        assert work(Pace(None, clock), clock, 10, 10) == 0.0

    @pytest.mark.parametrize(("rate", "size"), [(None, 500), (1e9, 500), (100.5, 100), (0.1, 1)])
    def test_a_batch_takes_about_a_second(self, clock: Clock, rate: float | None, size: int) -> None:
        assert Pace(rate, clock).batch(500) == size
