"""A flag that a signal handler may set while the interrupted thread waits for it."""

from __future__ import annotations

import time
from typing import Final

_LOOK_S: Final = 0.05


class StopFlag:
    """Stop work from any thread, and from signal handlers.

    A signal handler runs on top of the main thread. If that thread is waiting for a ``threading.Event``, it
    may hold the event's lock, and ``set()`` in the handler would wait for this lock for good. This flag has
    no lock: setting it assigns an attribute, and waiting looks at it again and again.
    """

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        """Set the flag, for good."""
        self._is_set = True

    def is_set(self) -> bool:
        """Return whether the flag is set."""
        return self._is_set

    def wait(self, timeout_s: float) -> bool:
        """Wait until the flag is set, or for a time in seconds, and return whether it is set."""
        until = time.monotonic() + timeout_s
        while not self._is_set and (left_s := until - time.monotonic()) > 0:
            time.sleep(min(left_s, _LOOK_S))
        return self._is_set
