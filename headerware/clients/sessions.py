"""The sessions of a client whose chain may change, each closed when nothing uses it any more."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headerware.core.session import Session


class InUse:
    """Hold a session for whoever uses it."""

    __slots__ = ("__weakref__", "session")

    def __init__(self, session: Session) -> None:
        self.session: Final = session


class Sessions:
    """Close each session when its holder is gone, and all that are left when the client closes.

    The holder is an object that whoever uses the session keeps: the client itself while the chain is in
    force, a thread inside a hook, the report of a record in flight. CPython frees it with the last of them,
    so nothing has to be counted for each record.
    """

    def __init__(self, holder: object, session: Session) -> None:
        self._finish: Final[list[weakref.finalize[..., object]]] = []
        self.add(holder, session)

    def add(self, holder: object, session: Session) -> None:
        """Take in one more session."""
        self._finish[:] = [*(finish for finish in self._finish if finish.alive)]
        self._finish.append(weakref.finalize(holder, session.close))

    def close(self) -> None:
        """Close all sessions that are still open."""
        for finish in self._finish:
            finish()
