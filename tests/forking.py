"""Forking while something is at work, as a thread of the application may at any moment."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest


def succeeds_in_a_child_made_within(
    patching: pytest.MonkeyPatch, function: str, call: Callable[[], object], check: Callable[[], object]
) -> bool:
    """Call something, fork where it calls a function, and return whether a check holds in the child."""
    children: list[int] = []

    def fork(*_arguments: Any, **_options: Any) -> Any:
        patching.undo()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
            children.append(os.fork())
        if not children[0]:  # pragma: no cover - in the child
            signal.alarm(10)
            try:
                os._exit(not check())
            finally:
                os._exit(2)
        raise OSError("it is not read here")

    patching.setattr(function, fork)
    with suppress(OSError):
        call()
    return os.waitpid(children[0], 0)[1] == 0
