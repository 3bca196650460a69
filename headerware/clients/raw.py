"""Calls through to confluent-kafka: without a chain its own methods answer, and interrupts leave no mark.

A client without a chain, or one that was never initialised, is the raw client. One class serves all, so that
``type(client)`` is the class that was called. Never bind a C method to the client itself
(``self.produce = super().produce``): that is a cycle which keeps the client's threads alive after ``del``,
and it hides a subclass's own ``produce``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum
from functools import wraps
from threading import Thread
from types import CodeType, FrameType
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError

from headerware.core.interrupts import is_handler_on

_Method = TypeVar("_Method", bound=Callable[..., Any])

# librdkafka's local error codes; confluent-kafka writes them with an underscore, though they are public.
BAD_MSG: Final = KafkaError._BAD_MSG  # noqa: SLF001 - a public code, see above
APPLICATION: Final = KafkaError._APPLICATION  # noqa: SLF001
INVALID_ARG: Final = KafkaError._INVALID_ARG  # noqa: SLF001
KEY_DESERIALIZATION: Final = KafkaError._KEY_DESERIALIZATION  # noqa: SLF001
KEY_SERIALIZATION: Final = KafkaError._KEY_SERIALIZATION  # noqa: SLF001
MAX_POLL_EXCEEDED: Final = KafkaError._MAX_POLL_EXCEEDED  # noqa: SLF001
MSG_SIZE_TOO_LARGE: Final = KafkaError.MSG_SIZE_TOO_LARGE
NO_OFFSET: Final = KafkaError._NO_OFFSET  # noqa: SLF001
PARTITION_EOF: Final = KafkaError._PARTITION_EOF  # noqa: SLF001
QUEUE_FULL: Final = KafkaError._QUEUE_FULL  # noqa: SLF001
RETRY: Final = KafkaError._RETRY  # noqa: SLF001
STATE: Final = KafkaError._STATE  # noqa: SLF001
TIMED_OUT: Final = KafkaError._TIMED_OUT  # noqa: SLF001
UNKNOWN_TOPIC: Final = KafkaError._UNKNOWN_TOPIC  # noqa: SLF001
VALUE_DESERIALIZATION: Final = KafkaError._VALUE_DESERIALIZATION  # noqa: SLF001
VALUE_SERIALIZATION: Final = KafkaError._VALUE_SERIALIZATION  # noqa: SLF001


def unless_chained(c_method: Callable[..., Any]) -> Callable[[_Method], _Method]:
    """Decorate a client's method; without a chain, confluent-kafka's own method answers the call.

    It gets the caller's arguments as they are. Methods that are called for each record look at
    ``_hw_chained`` themselves: a call by position is as fast as the caller's own call by keyword.
    """

    def decorated(method: _Method) -> _Method:
        @wraps(method)
        def answer(self: Any, *args: Any, **keywords: Any) -> Any:
            return (method if self._hw_chained else c_method)(self, *args, **keywords)

        return answer  # type: ignore[return-value]  # it takes what the method takes

    return decorated


def instrumented_by(client: object) -> str | None:
    """Return the package of OpenTelemetry that instruments the client's base class; None if none does."""
    modules = (each.__module__ for each in type(client).__mro__)
    return next((module for module in modules if module.startswith("opentelemetry.instrumentation.")), None)


class CalledFrom(Enum):
    """Where on the stack a call of a client is made."""

    OUTSIDE = "no call into C is under way on this thread"
    IN_HANDLER = "a signal's handler interrupted a call into C"
    IN_CALLBACK = "a call into C called back"
    IN_HANDLER_IN_CALLBACK = "a signal's handler interrupted what a call into C called back"


def called_from(client: Any, calls: Collection[CodeType], frame: FrameType | None) -> CalledFrom:
    """Return where a frame stands, if these methods of the client are its calls into C.

    A mark that a call sets and takes back may be left behind: an interrupt (Ctrl-C, or a signal's handler
    that raises) can come between any two steps, ``try`` and ``with`` included. So a mark is only a hint that
    it is worth looking at the stack, which cannot be wrong.
    """
    inner: FrameType | None = None
    in_handler = False
    while frame is not None:
        interrupts = inner is not None and is_handler_on(frame, inner)
        in_handler = in_handler or interrupts
        if frame.f_code in calls and frame.f_locals.get("self") is client:
            if not in_handler:
                return CalledFrom.IN_CALLBACK
            return CalledFrom.IN_HANDLER if interrupts else CalledFrom.IN_HANDLER_IN_CALLBACK
        inner, frame = frame, frame.f_back
    return CalledFrom.OUTSIDE


def on_another_thread(call: Callable[[], Any]) -> Any:
    """Make a call on a thread of its own, and return what it returns, or raise what it raises.

    It is for a handler that interrupted a call into C on this thread: confluent-kafka keeps one call a thread
    in mind, and ends the process at the next callback if a second one took its place.
    """
    ended: list[tuple[Any, BaseException | None]] = []

    def run() -> None:
        try:
            ended.append((call(), None))
        except BaseException as raised:  # noqa: BLE001 - it is raised on the thread that waits
            ended.append((None, raised))

    thread = Thread(target=run, name="headerware-handler", daemon=True)
    thread.start()
    thread.join()
    found, error = ended[0]
    if error is not None:
        raise error
    return found
