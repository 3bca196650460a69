"""Calls of confluent-kafka's own methods, which answer if a client has no chain.

A client without a chain, or a client that was never initialised, is the raw client. It has the same class, so
``type(client)`` is the class that was called. Never bind a C method to the client itself (``self.produce =
super().produce``): such a cycle keeps the client's threads alive after ``del``, and it hides the ``produce``
of a subclass.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError

_Method = TypeVar("_Method", bound=Callable[..., Any])

# librdkafka's local error codes; confluent-kafka writes them with an underscore, though they are public.
BAD_MSG: Final = KafkaError._BAD_MSG  # noqa: SLF001 - a public code, see above
APPLICATION: Final = KafkaError._APPLICATION  # noqa: SLF001
INVALID_ARG: Final = KafkaError._INVALID_ARG  # noqa: SLF001
KEY_DESERIALIZATION: Final = KafkaError._KEY_DESERIALIZATION  # noqa: SLF001
KEY_SERIALIZATION: Final = KafkaError._KEY_SERIALIZATION  # noqa: SLF001
MAX_POLL_EXCEEDED: Final = KafkaError._MAX_POLL_EXCEEDED  # noqa: SLF001
MSG_SIZE_TOO_LARGE: Final = KafkaError.MSG_SIZE_TOO_LARGE
MSG_TIMED_OUT: Final = KafkaError._MSG_TIMED_OUT  # noqa: SLF001
NO_OFFSET: Final = KafkaError._NO_OFFSET  # noqa: SLF001
PARTITION_EOF: Final = KafkaError._PARTITION_EOF  # noqa: SLF001
PURGE_INFLIGHT: Final = KafkaError._PURGE_INFLIGHT  # noqa: SLF001
PURGE_QUEUE: Final = KafkaError._PURGE_QUEUE  # noqa: SLF001
QUEUE_FULL: Final = KafkaError._QUEUE_FULL  # noqa: SLF001
RETRY: Final = KafkaError._RETRY  # noqa: SLF001
STATE: Final = KafkaError._STATE  # noqa: SLF001
TIMED_OUT: Final = KafkaError._TIMED_OUT  # noqa: SLF001
UNKNOWN_TOPIC: Final = KafkaError._UNKNOWN_TOPIC  # noqa: SLF001
VALUE_DESERIALIZATION: Final = KafkaError._VALUE_DESERIALIZATION  # noqa: SLF001
VALUE_SERIALIZATION: Final = KafkaError._VALUE_SERIALIZATION  # noqa: SLF001


def unless_chained(c_method: Callable[..., Any]) -> Callable[[_Method], _Method]:
    """Decorate a client's method; without a chain, confluent-kafka's own method answers the call.

    That method gets the caller's arguments unchanged. Methods that are called for each record do not use
    this, and look at ``_hw_chained`` themselves, because this takes longer.
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
