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
_ARGUMENTS_OF_A_HANDLER: Final = 2


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
    interrupted: FrameType | None = None
    step = error.__traceback__
    while step is not None:
        frame = step.tb_frame
        if interrupted is not None and any(
            argument is interrupted or _is_of_an_import(argument) for argument in _arguments(frame)
        ):
            return True
        interrupted, step = frame, step.tb_next
    return False


def is_handler_on(interrupted: FrameType, frame: FrameType) -> bool:
    """Return whether a frame belongs to a signal handler, called on top of another frame.

    The interpreter gives the handler the frame that it interrupted as an argument.
    """
    return any(argument is interrupted for argument in _arguments(frame))


def _is_of_an_import(argument: object) -> bool:
    """Return whether an argument of a signal handler is a frame of Python's own import."""
    return isinstance(argument, FrameType) and argument.f_code.co_filename.startswith(_IMPORTING)


def _arguments(frame: FrameType) -> tuple[object, ...]:
    """Return the positional arguments of a call; none if it cannot be that of a handler, which takes two."""
    code = frame.f_code
    count, takes_more = code.co_argcount, bool(code.co_flags & CO_VARARGS)
    if count < _ARGUMENTS_OF_A_HANDLER and not takes_more:
        return ()
    found = frame.f_locals  # each time it is asked for, the interpreter fills a dict with all variables
    given = [found.get(name) for name in code.co_varnames[:count]]
    more = found.get(code.co_varnames[count + code.co_kwonlyargcount]) if takes_more else None
    return (*given, *more) if isinstance(more, tuple) else (*given,)  # a call may give the name another value
