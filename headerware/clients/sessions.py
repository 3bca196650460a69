"""The sessions of a client whose chain may change, each closed when nothing uses it any more."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headerware.core.session import Session


class InUse:
    """Keep a session open as long as something refers to this object."""

    __slots__ = ("__weakref__", "session")

    def __init__(self, session: Session) -> None:
        self.session: Final = session


class Sessions:
    """Close each session when its holder is gone, and all others when the client closes.

    All users of a session refer to its holder: the client while the chain is in force, a thread inside a
    hook, the report of a record in flight. CPython frees the holder with the last reference, so no count of
    users is needed.
    """

    def __init__(self, holder: object, session: Session) -> None:
        self._finish: Final[list[weakref.finalize[..., object]]] = []
        self.add(holder, session)

    def add(self, holder: object, session: Session) -> None:
        """Add a session."""
        self._finish[:] = [*(finish for finish in self._finish if finish.alive)]
        self._finish.append(weakref.finalize(holder, session.close))

    def close(self) -> None:
        """Close all sessions that are still open."""
        for finish in self._finish:
            finish()

    def leave(self) -> None:
        """Close no session from now on, because the sessions are those of the parent process."""
        for finish in self._finish:
            finish.detach()
