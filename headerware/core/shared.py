"""Resources that are opened once for equal settings, and closed with their last user."""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Thing = TypeVar("Thing")


class _Use(Generic[Thing]):
    __slots__ = ("settings", "thing", "users")

    def __init__(self, settings: Any, thing: Thing) -> None:
        self.settings: Final = settings
        self.thing: Final = thing
        self.users = 0


class Shared(Generic[Thing]):
    """Count the users of resources that are opened by settings.

    Safe for use by several threads at once, and by finalizers: at any line, the garbage collector may
    finalize a client that closes its serdes. A forked child begins without resources: the threads and
    connections of inherited resources, and the holder of the lock, are in its parent.
    """

    def __init__(self, is_same: Callable[[Any, Any], bool]) -> None:
        self._is_same: Final = is_same
        self._begin()
        _all.add(self)

    def _begin(self) -> None:
        self._uses: list[_Use[Thing]] = []
        self._lock = threading.RLock()

    def acquire(self, settings: Any, opens: Callable[[], Thing]) -> Thing:
        """Return the resource for some settings, opened if needed; each call needs a `release`."""
        with self._lock:
            while True:
                alike = (use for use in tuple(self._uses) if self._is_same(use.settings, settings))
                use = next(alike, None)
                if use is None:
                    use = _Use(settings, opens())
                    self._uses.append(use)
                use.users += 1
                if any(known is use for known in self._uses):  # the last user may have released it meanwhile
                    return use.thing

    def release(self, thing: Thing) -> bool:
        """Release one use; return True if it was the last, and the caller must close the resource."""
        with self._lock:
            use = next((use for use in self._uses if use.thing is thing), None)
            if use is None:
                return False
            use.users -= 1
            if use.users:
                return False
            self._uses.remove(use)
            return True

    def __len__(self) -> int:
        return len(self._uses)


_all: Final[weakref.WeakSet[Shared[Any]]] = weakref.WeakSet()


def _begin_in_child() -> None:
    for shared in _all:
        shared._begin()  # noqa: SLF001 - its own module


os.register_at_fork(after_in_child=_begin_in_child)
