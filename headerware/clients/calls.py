"""Whether a call of a client is under way, read off the stack.

A mark that a call sets and takes back may be left behind: an interrupt (Ctrl-C, or a signal's handler that
raises) can come between any two steps, ``try`` and ``with`` included. So a mark is only a hint that it is
worth looking at the stack, which cannot be wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection
    from types import CodeType, FrameType


def is_under_way(client: Any, calls: Collection[CodeType], frame: FrameType | None) -> bool:
    """Return whether a frame, or one that called it, is one of these methods of the client."""
    while frame is not None:
        if frame.f_code in calls and frame.f_locals.get("self") is client:
            return True
        frame = frame.f_back
    return False
