"""Real signals whose handler uses the client that it interrupted, each in a program of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

PROGRAM: Final = Path(__file__).parent / "programs" / "signals.py"
TIMEOUT_S: Final = 300
CLOSED_WITHIN_A_CALL: Final = (
    "cannot close the producer within one of its calls, neither in a callback nor in a signal's handler; "
    "call flush() there, and close() after the call"
)
SEEN: Final[dict[str, dict[str, Any]]] = {
    "in_poll": {"handler": 0, "left": 0, "seen": {"handler": 100, "later": 1, "after": 1}},
    "in_flush": {"handler": 100, "flushed": 100, "seen": {}},
    "in_produce": {"handler": 0, "left": 0, "seen": {"main": 18, "sliced": 1, "after": 1}},
    "flush_of_a_callback": {"handler": 101, "left": 0, "seen": {"main": 1, "callback": 100, "after": 1}},
    "close_in_poll": {"refused": CLOSED_WITHIN_A_CALL, "left": 0, "seen": {"after": 1}},
    "commit_in_poll": {"handler": None, "left": 0, "seen": {"handler": 100, "main": 1, "after": 1}},
    "exit_in_poll": {"handler": 0, "exited": True, "left": 0, "seen": {"handler": 100, "after": 1}},
    "close_in_consume": {"read": [0, 1, 2], "left": 0, "seen": {"main": 3, "after": 1}},
    "consume": {"poll": 100, "consume": 100, "left": 0, "seen": {"main": 300, "after": 1}},
}


def play(scene: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), scene], capture_output=True, text=True, check=False, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("scene", SEEN)
def test_a_handler_delivers_what_is_queued_and_the_client_goes_on(scene: str) -> None:
    assert play(scene) == SEEN[scene]


def test_a_handler_that_interrupts_a_callback_delivers_all_but_what_that_holds_up() -> None:
    found = play("in_callback")
    assert 0 < found.pop("handler") <= 100
    assert found == {"in_handler": 100, "left": 0, "seen": {"main": 100, "handler": 100, "after": 1}}
