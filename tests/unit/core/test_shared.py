"""Resources that are opened once for equal settings."""

from __future__ import annotations

import subprocess
import sys

FORKED = """
import os, signal, threading
from headerware.core.shared import Shared

shared = Shared(lambda one, other: one == other)
inherited = shared.acquire("settings", object)
under_way, end = threading.Event(), threading.Event()
threading.Thread(target=shared.acquire, args=("slow", lambda: (under_way.set(), end.wait()))).start()
under_way.wait()
child = os.fork()
if child == 0:
    signal.alarm(20)  # a lock that nobody releases would hang
    own = shared.acquire("settings", object)
    assert own is not inherited
    assert not shared.release(inherited)
    assert shared.release(own)
    os._exit(0)
end.set()
assert shared.acquire("settings", object) is inherited
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_begins_anew_while_its_parent_opens_something() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
