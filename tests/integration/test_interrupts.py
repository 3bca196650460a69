"""Real signals at random moments, in a program of its own; at each moment in turn: tests/unit/clients."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

PROGRAM = Path(__file__).parent / "programs" / "interrupts.py"


@pytest.mark.parametrize("arguments", [["800"], ["200", "slices"]], ids=["plain", "slices"])
def test_nothing_is_lost_or_comes_twice(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *arguments], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    assert found.pop("raised") > 10
    assert found.pop("consumed") > 100
    assert set(found.values()) == {0}, found
