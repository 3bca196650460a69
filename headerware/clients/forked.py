"""Refuse clients that were made before a fork: librdkafka's threads are only in the parent.

In the child such a client would take records that nobody sends, and wait for ever in ``flush``. So the
methods of its instance are replaced in the child, which costs nothing in the parent. ``close`` does nothing
there, because the client is the parent's. For the same reason the child never frees the client and closes
none of its sessions, also not at its exit: librdkafka may wait for its threads in that, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from ctypes import py_object, pythonapi
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, Final
from weakref import WeakValueDictionary

_USABLE: Final = frozenset({"chain_in_force", "local", "stats", "stop", "verified"})
"""The methods that use no thread of the client."""
_ENTERED_BY: Final = "_hw_running_loop"
"""The method by which ``async with`` begins to use an asyncio producer."""
_OURS: Final = frozenset({"cimpl", "confluent_kafka", "headerware"})
_clients: Final[WeakValueDictionary[int, Any]] = WeakValueDictionary()
"""The clients of this process by their ids, because an application's class may not be hashable."""


def refuse_in_children(client: object) -> None:
    """Let the methods of a client raise a RuntimeError in each process that is forked from this one."""
    _clients[id(client)] = client


def _refuse_all() -> None:
    for client in list(_clients.values()):
        _leave_to_parent(client)
        for name, method in _methods(type(client)):
            answer: Callable[..., Any] = partial(_refuse, type(client).__name__, name)
            if name == "close":
                answer = _close_async if iscoroutinefunction(method) else _close
            vars(client)[name] = answer
    _clients.clear()


def _leave_to_parent(client: Any) -> None:
    pythonapi.Py_IncRef(py_object(client))  # a reference that the end of the interpreter does not drop
    own = vars(client)
    if "_hw_sessions" in own:
        own["_hw_sessions"].leave()
    if "_hw_finish" in own:
        own["_hw_finish"].detach()


def _methods(kind: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Return the public methods of a client, and not those that the application's class adds."""
    found: dict[str, Any] = {}
    for base in kind.__mro__:
        if base.__module__.partition(".")[0] in _OURS:
            found = {**vars(base), **found}
    return ((name, each) for name, each in found.items() if _is_refused(name, each))


def _is_refused(name: str, found: Any) -> bool:
    return name == _ENTERED_BY or (callable(found) and not name.startswith("_") and name not in _USABLE)


def _refuse(kind: str, name: str, *_: Any, **__: Any) -> None:
    called = "async with" if name == _ENTERED_BY else name
    raise RuntimeError(
        f"{called}: this {kind} was made before the fork, and its threads are only in the parent process; "
        "make the client after the fork"
    )


def _close() -> bool:
    return True


async def _close_async() -> None:
    pass


os.register_at_fork(after_in_child=_refuse_all)
