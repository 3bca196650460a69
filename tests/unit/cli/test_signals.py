from __future__ import annotations

import os
import signal

import pytest

from headerware.cli.signals import stopped_by_signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_finds_the_former_handler_while_the_first_still_stops_the_work(number: int) -> None:
    former = signal.getsignal(number)
    found: list[object] = []
    with stopped_by_signals(lambda: found.append(signal.getsignal(number))):
        os.kill(os.getpid(), number)
        assert found == [former]
    assert signal.getsignal(number) == former
