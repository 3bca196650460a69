"""How long records wait for something that may still arrive, such as the next version of a key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

from headerware.core.bounded_cache import BoundedCache

if TYPE_CHECKING:
    from collections.abc import Callable

Name = TypeVar("Name")
_MAX_AWAITED: Final = 1024
_GIVEN_UP: Final = -1
_VAIN_SHARE: Final = 10


class Awaited(Generic[Name]):
    """Decide how long records wait for something that may still arrive.

    A writer can name things that never arrive. So the wait is counted from the first record that needs a
    thing, and is not repeated for the next record. After a wait in vain no other wait begins for ten times as
    long, so a flood of names takes less than a tenth of the time.
    """

    def __init__(self, wait_ms: int, now_ms: Callable[[], int]) -> None:
        self._wait_ms: Final = wait_ms
        self._now_ms: Final = now_ms
        self._since: Final[BoundedCache[Name, int]] = BoundedCache(_MAX_AWAITED)
        self._not_before_ms = 0

    def waits(self, name: Name) -> bool:
        """Return whether a record waits now for a thing of this name."""
        now_ms = self._now_ms()
        since_ms = self._since.get(name)
        if since_ms is None and self._wait_ms and now_ms >= self._not_before_ms:
            since_ms = self._since[name] = now_ms
        if since_ms is None or since_ms == _GIVEN_UP:
            return False
        if 0 <= now_ms - since_ms < self._wait_ms:
            return True
        self._since[name] = _GIVEN_UP
        self._not_before_ms = max(self._not_before_ms, now_ms + _VAIN_SHARE * self._wait_ms)
        return False
