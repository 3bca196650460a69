"""Forking while something is at work, as a thread of the application may at any moment."""

from __future__ import annotations

import os
import signal
import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
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
            signal.alarm(60)
            try:
                os._exit(not check())
            finally:
                os._exit(2)
        raise OSError("it is not read here")

    patching.setattr(function, fork)
    with suppress(OSError):
        call()
    return os.waitpid(children[0], 0)[1] == 0


def as_nobody(told: Callable[[Path], str]) -> str:
    """Ask in a process of somebody who has no power over permissions, which root has, in a folder of his.

    A process that changes its user interrupts all of its threads, and librdkafka's do not bear that.
    """
    with tempfile.TemporaryDirectory() as name:
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            try:
                if os.geteuid() == 0:
                    os.chown(name, 65_534, 65_534)
                    os.setuid(65_534)
                os.write(writing, told(Path(name)).encode())
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as answer:
            said = answer.read().decode()
        os.waitpid(child, 0)
    return said
