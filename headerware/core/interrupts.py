"""Tell exceptions of signal handlers, which the application must get, from failures of hooks.

``KeyboardInterrupt`` and ``SystemExit`` are not caught by ``except Exception``. But an application's own
handler may raise any exception: a ``TimeoutError`` by ``signal.alarm`` looks like a hook's. The interpreter
calls a handler on top of the frame that it interrupted, with that frame as an argument. No other function is
called like this, and a traceback has both frames; only importing takes its own frames out of tracebacks.
"""

from __future__ import annotations

import threading
from inspect import CO_VARARGS
from types import FrameType
from typing import Final

_CAUSES_LIMIT: Final = 10
_IMPORTING: Final = "<frozen importlib"


def pass_on_interrupt(error: Exception) -> None:
    """Raise the exception of a signal handler if that is the error or one of its causes; else do nothing.

    A handler that is written in C, or has deleted its argument, is not recognised.
    """
    if threading.current_thread() is not threading.main_thread():
        return  # handlers run there only
    found: BaseException | None = error
    for _ in range(_CAUSES_LIMIT):
        if found is None:
            break
        if _is_of_a_handler(found):
            raise found
        found = found.__cause__


def _is_of_a_handler(error: BaseException) -> bool:
    interrupted, step = None, error.__traceback__
    while step is not None:
        if interrupted is not None and (
            is_handler_on(interrupted, step.tb_frame) or _is_handler_on_an_import(step.tb_frame)
        ):
            return True
        interrupted, step = step.tb_frame, step.tb_next
    return False


def is_handler_on(interrupted: FrameType, frame: FrameType) -> bool:
    """Return whether a frame is that of a signal handler, called on top of another frame.

    The interpreter gives the handler the frame that it interrupted as an argument.
    """
    return any(argument is interrupted for argument in _arguments(frame))


def _is_handler_on_an_import(frame: FrameType) -> bool:
    """Return whether a frame is that of a signal handler, called while Python imported something."""
    return any(
        isinstance(argument, FrameType) and argument.f_code.co_filename.startswith(_IMPORTING)
        for argument in _arguments(frame)
    )


def _arguments(frame: FrameType) -> tuple[object, ...]:
    code = frame.f_code
    plain = code.co_argcount + code.co_kwonlyargcount
    names = code.co_varnames[: plain + bool(code.co_flags & CO_VARARGS)]
    given = [frame.f_locals.get(name) for name in names]
    more = given[plain] if len(given) > plain else ()
    return (*given[:plain], *(more or ()))
