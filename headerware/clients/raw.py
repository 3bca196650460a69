"""A client without a chain, or one that was never initialised: confluent-kafka's own methods answer.

One class serves both, so that ``type(client)`` is the class that was called. Never bind a C method to the
client itself (``self.produce = super().produce``): that is a cycle which keeps the client's threads alive
after ``del``, and it hides a subclass's own ``produce``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

_Method = TypeVar("_Method", bound=Callable[..., Any])


def unless_chained(c_method: Callable[..., Any]) -> Callable[[_Method], _Method]:
    """Decorate a method of a client for which, without a chain, a method of confluent-kafka's answers.

    It gets the caller's arguments as they are. Methods that are called for each record look at
    ``_chained`` themselves: a call by position is as fast as the caller's own call by keyword.
    """

    def decorated(method: _Method) -> _Method:
        @wraps(method)
        def answer(self: Any, *args: Any, **keywords: Any) -> Any:
            return (method if self._chained else c_method)(self, *args, **keywords)

        return answer  # type: ignore[return-value]  # it takes what the method takes

    return decorated
