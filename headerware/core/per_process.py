"""Objects that each process makes for itself: a fork must not share its parent's connections or locks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Made = TypeVar("Made")


class PerProcess(Generic[Made]):
    """Make something once in each process, such as a client of a service.

    The same holds for a lock: a thread of the parent may have held it when the child was made, and no thread
    of the child would release it.
    """

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], Made]) -> None:
        self._make: Final = make
        # A child does not close its parent's object, because that would close it in the parent, too.
        self._made: Final[dict[int, Made]] = {os.getpid(): make()}

    def get(self) -> Made:
        """Return this process's object; threads that race in a new child may make several, but get one."""
        process = os.getpid()
        made = self._made.get(process)
        return self._made.setdefault(process, self._make()) if made is None else made
