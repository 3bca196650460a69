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
from types import CodeType, FrameType, TracebackType
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


_MAX_FAMILIAR: Final = 1_000
_familiar: Final[dict[tuple[int, ...], list[CodeType]]] = {}
"""The calls through which an exception of no handler came, by the ids of their code, which is kept alive.

A flood of refused records comes through few of them, and a look at the variables of a call makes a dict.
"""


def calls_through(step: TracebackType | None) -> tuple[tuple[int, ...], list[CodeType]]:
    """Return the calls that an exception came through, and their code.

    The calls are a key as long as the code is kept alive: it has the id of each code, and its instruction.
    """
    codes: list[CodeType] = []
    calls: list[int] = []
    while step is not None:
        code = step.tb_frame.f_code
        codes.append(code)
        calls += id(code), step.tb_lasti
        step = step.tb_next
    return tuple(calls), codes


def _was_raised_by_handler(error: BaseException) -> bool:
    key, codes = calls_through(error.__traceback__)
    if key in _familiar:
        return False
    if _has_come_through_a_handler(error.__traceback__):
        return True
    if len(_familiar) >= _MAX_FAMILIAR:
        _familiar.clear()
    _familiar[key] = codes
    return False


def _has_come_through_a_handler(step: TracebackType | None) -> bool:
    interrupted: FrameType | None = None
    while step is not None:
        if interrupted is not None and any(
            argument is interrupted or _is_of_an_import(argument) for argument in _arguments(step.tb_frame)
        ):
            return True
        interrupted, step = step.tb_frame, step.tb_next
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
    more = found.get(code.co_varnames[count + code.co_kwonlyargcount], ()) if takes_more else ()
    return (*given, *(more or ()))
