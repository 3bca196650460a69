"""What each process makes for itself."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING

from headerware.core.per_process import PerProcess

if TYPE_CHECKING:
    import pytest


def test_is_made_once_in_a_process() -> None:
    held = PerProcess(object)
    assert held.get() is held.get()


def test_a_child_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    held = PerProcess(object)
    parents = held.get()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert held.get() is not parents
    assert held.get() is held.get()


def test_threads_that_meet_in_a_child_share_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else two of them would hold one lock."""
    both = Barrier(2, timeout=60)
    in_child = False

    def make() -> object:
        if in_child:
            both.wait()
        return object()

    held = PerProcess(make)
    in_child = True
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(lambda _: held.get(), range(2))
    assert first is second
