"""Call the application's callbacks, which librdkafka's calls run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import iscoroutine
from typing import Any, Final

_NAMES: Final = ("error_cb", "stats_cb", "throttle_cb")


def call_back(callback: Callable[..., Any], *arguments: Any) -> None:
    """Call a callback; its exception reaches the caller of ``poll`` or ``flush`` with its traceback.

    Raises:
        TypeError: the callback returned a coroutine, which nobody would await.
        BaseException: the callback's own exception.
    """
    try:
        result = callback(*arguments)
    except BaseException:  # noqa: TRY203 - see the comment
        # Before CPython 3.12, an error that C raised has no exception object until somebody catches it.
        # confluent-kafka does not make the object, and raises a SystemError instead.
        raise
    if result is not None and iscoroutine(result):
        result.close()
        name = getattr(callback, "__qualname__", type(callback).__name__)
        raise TypeError(
            f"expected a function as callback, found the coroutine function {name}, which nobody awaits; "
            "make it a function, or use the asyncio client"
        )


def guard_callbacks(conf: dict[str, Any]) -> None:
    """Let the callbacks for events in a client's configuration be called by :func:`call_back`."""
    for name in _NAMES:
        if callable(conf.get(name)):
            conf[name] = partial(call_back, conf[name])
