from __future__ import annotations

import subprocess
import sys
import threading
import time
from typing import Final

from headerware.core.stop_flag import StopFlag

HANDLERS: Final = """
import random, signal
from headerware.core.stop_flag import StopFlag

flag = StopFlag()
signal.signal(signal.SIGALRM, lambda *_: flag.set())
for _ in range(20_000):
    flag = StopFlag()
    signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 2e-4))
    while not flag.wait(1e-6):
        pass
"""
"""With threading.Event in place of the flag, this hangs after some seconds."""


class TestStopFlag:
    def test_can_be_set_by_a_signal_handler_at_any_moment_of_a_wait(self) -> None:
        subprocess.run([sys.executable, "-c", HANDLERS], check=True, timeout=300)

    def test_ends_the_wait_of_another_thread(self) -> None:
        flag, ended = StopFlag(), list[bool]()
        thread = threading.Thread(target=lambda: ended.append(flag.wait(300)))
        thread.start()
        flag.set()
        thread.join(60)
        assert (ended, flag.is_set()) == ([True], True)

    def test_waits_no_longer_than_it_is_asked_to(self) -> None:
        began = time.monotonic()
        assert not StopFlag().wait(0.05)
        assert time.monotonic() - began >= 0.05
