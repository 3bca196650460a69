"""Tell exceptions of signal handlers, which the application must get, from failures of hooks.

``KeyboardInterrupt`` and ``SystemExit`` are not caught by ``except Exception``. But an application's own
handler may raise any exception: a ``TimeoutError`` after ``signal.alarm`` looks like an error of a hook. The
interpreter calls a handler on top of the frame that it interrupted, with that frame as an argument. No other
function is called like this, and a traceback has both frames, except that Python removes the frames of its
own import system from tracebacks.
"""

from __future__ import annotations

import threading
from inspect import CO_VARARGS
from types import FrameType
from typing import Final

_CAUSES_LIMIT: Final = 10
_IMPORTING: Final = "<frozen importlib"


def pass_on_interrupt(error: Exception) -> None:
    """Raise the error, or one of its causes, if a signal handler raised it; else do nothing.

    A handler that is written in C, or has deleted its argument, is not recognised.
    """
    if threading.current_thread() is not threading.main_thread():
        return  # Python calls signal handlers in the main thread only
    found: BaseException | None = error
    for _ in range(_CAUSES_LIMIT):
        if found is None:
            break
        if _was_raised_by_handler(found):
            raise found
        found = found.__cause__


def _was_raised_by_handler(error: BaseException) -> bool:
    interrupted, step = None, error.__traceback__
    while step is not None:
        if interrupted is not None and (
            is_handler_on(interrupted, step.tb_frame) or _is_handler_on_an_import(step.tb_frame)
        ):
            return True
        interrupted, step = step.tb_frame, step.tb_next
    return False


def is_handler_on(interrupted: FrameType, frame: FrameType) -> bool:
    """Return whether a frame belongs to a signal handler, called on top of another frame.

    The interpreter gives the handler the frame that it interrupted as an argument.
    """
    return any(argument is interrupted for argument in _arguments(frame))


def _is_handler_on_an_import(frame: FrameType) -> bool:
    """Return whether a frame belongs to a signal handler, called while Python imported something."""
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
