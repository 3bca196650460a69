"""confluent-kafka's serializers and deserializers as serdes; importing this module imports confluent_kafka.

confluent-kafka's serializers are called as ``serializer(obj, ctx)``, and append to the caller's list in
``ctx.headers``. So a list that is used again grows with every record, None and tuples are refused, and a
reader, which takes the first of several ids, takes the oldest. Here a serializer gets a new list each time,
and an id of Confluent's replaces the earlier one.

The messages of their errors may quote a payload; JSON validators and fastavro do so. Therefore our error
has only the type of most errors; the rest is in its cause. The messages of a Schema Registry, of the network,
and of confluent-kafka about lengths and numbers hold no payload, and are kept.
"""

from __future__ import annotations

import inspect
import threading
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final, Literal

from confluent_kafka.serialization import Deserializer, MessageField, SerializationContext, Serializer

from headerware.core.errors import HeaderError, HeldBackError, PluginError, SerdeError, UnknownSchemaError
from headerware.core.headers import Headers
from headerware.serdes.confluent.client import client_of, named_registry
from headerware.serdes.confluent.framing import ID_HEADERS
from headerware.serdes.serde import Part, SerdeContext
from headerware.serdes.stores.schema_registry import is_temporary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

FIELDS: Final[dict[Part, MessageField]] = {"key": MessageField.KEY, "value": MessageField.VALUE}
_REGISTRY_SERDES: Final = "confluent_kafka.schema_registry."
_CONTEXT_NAMES: Final = ("ctx", "context")
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_Method = Literal["serialize", "deserialize"]
_REGISTRY_ERROR: Final = "confluent_kafka.schema_registry.error.SchemaRegistryError"
# By name: the packages may not be installed, and must not be imported for this.
_SAFE_KINDS: Final = frozenset(
    {_REGISTRY_ERROR, "httpx.HTTPError", "httpx2.HTTPError", "builtins.ConnectionError"}
)
_OUT_OF_REACH: Final = frozenset(
    {"httpx.TransportError", "httpx2.TransportError", "builtins.ConnectionError"}
)
_SAFE_BEGINNINGS: Final = (
    "Invalid magic byte",
    "Expecting data framing of length",
    "Invalid msgidx array length",
    "Unexpected EOF",
    "message index ",
    "Schema ID is not set",
    "Schema GUID is not set",
)
_NOT_FOUND: Final = 404
_MAX_TEXT: Final = 400


def from_confluent(function: Callable[..., Any], context: SerdeContext) -> ConfluentFunction:
    """Return the serde of a serializer or deserializer of confluent-kafka.

    Args:
        function: called as ``function(obj, ctx)``; or as ``function(obj)`` if it takes no second argument,
            or an optional one that is not called ``ctx`` or ``context``.
        context: the part of the records that the function is for.

    Raises:
        PluginError: the function is a coroutine function.
    """
    return ConfluentFunction(function, context)


class ConfluentFunction:
    """A function of confluent-kafka as a serde; as safe for use by several threads as the function."""

    __slots__ = ("_field", "_function", "_id_header", "_lock", "_part", "_registry", "_takes_context")

    def __init__(self, function: Callable[..., Any], context: SerdeContext) -> None:
        if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
            raise PluginError(f"{_name(function)} is a coroutine function; expected one that blocks")
        self._function: Final = function
        self._part: Final = context.part
        self._field: Final = FIELDS[context.part]
        self._takes_context: Final = _takes_context(function)
        # The serializers for a Schema Registry add the id of their schema; an earlier id is stale.
        kinds = type(inspect.unwrap(function)).__mro__
        is_registrys = any(kind.__module__.startswith(_REGISTRY_SERDES) for kind in kinds)
        self._id_header: Final = ID_HEADERS[context.part] if is_registrys else None
        self._registry: Final = named_registry(client_of(function)) if is_registrys else ""
        # In confluent-kafka 2.13 they keep the current record's id in an attribute that all threads share.
        # The lock is re-entrant, because a to_dict, a rule or a finalizer may serialize, too.
        self._lock: Final = threading.RLock()

    def serialize(self, topic: str, headers: Headers, value: Any) -> tuple[bytes | None, Headers]:
        """Write an object; see :class:`headerware.serdes.serde.Serializer`."""
        if self._id_header is None:
            payload, headers = self._called("serialize", topic, headers, value)
        else:
            headers = headers.remove(self._id_header)
            with self._lock:
                payload, headers = self._called("serialize", topic, headers, value)
        if payload.__class__ is bytes or payload is None:
            return payload, headers
        if isinstance(payload, str):  # confluent-kafka's clients send it as UTF-8
            try:
                return payload.encode(), headers
            except UnicodeEncodeError:  # its text quotes the payload
                raise self._refusal("returned text that UTF-8 cannot express") from None
        raise self._refusal(f"returned {type(payload).__qualname__}, expected bytes, text or None")

    def deserialize(self, topic: str, headers: Headers, payload: bytes | None) -> tuple[Any, Headers]:
        """Read a payload; see :class:`headerware.serdes.serde.Deserializer`."""
        return self._called("deserialize", topic, headers, payload)

    def _called(self, method: _Method, topic: str, headers: Headers, given: Any) -> tuple[Any, Headers]:
        """Call the function, and return its result and the headers, which it may have changed."""
        own: list[Any] = []
        try:
            if self._takes_context:
                own = list(headers)
                result = self._function(given, SerializationContext(topic, self._field, own))
            else:
                result = self._function(given)
        except SerdeError as error:
            error.part = self._part
            raise
        except HeldBackError:
            raise
        except Exception as error:
            raise _refused(_name(self._function), self._part, method, error, self._registry) from error
        if result.__class__ is CoroutineType:
            result.close()
            raise self._refusal("returned a coroutine; expected a function that blocks")
        if not self._takes_context or tuple(own) == headers:
            return result, headers
        return result, self._taken_over(headers, own)

    def _taken_over(self, before: Headers, after: Iterable[Any]) -> Headers:
        """Return the headers that a function has changed, without ids that it has replaced."""
        try:
            changed = Headers(after)
        except HeaderError as error:
            raise self._refusal(f"left invalid headers: {error}") from error
        for name in ID_HEADERS.values():
            ids = changed.all(name)
            if len(ids) > 1 and ids != before.all(name):
                changed = changed.put(name, ids[-1])
        return changed

    def _refusal(self, problem: str) -> SerdeError:
        error = SerdeError(f"the {self._part}'s {_name(self._function)} {problem}")
        error.part = self._part
        return error


def _takes_context(function: Callable[..., Any]) -> bool:
    """Return whether to call a function with a context, as all of confluent-kafka's are called."""
    if isinstance(function, Serializer | Deserializer):
        return True
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (ValueError, TypeError):  # a function in C, which takes no context
        return False
    if any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters[:2]):
        return True
    second = [parameter for parameter in parameters if parameter.kind in _POSITIONAL][1:2]
    return any(
        parameter.default is inspect.Parameter.empty or parameter.name.strip("_") in _CONTEXT_NAMES
        for parameter in second
    )


def _name(function: Any) -> str:
    named = inspect.unwrap(function)
    return getattr(named, "__qualname__", None) or type(named).__qualname__


def _refused(
    name: str, part: Part, method: _Method, error: Exception, registry: str
) -> SerdeError | HeldBackError:
    """Return our error for an error that a function of confluent-kafka raised."""
    kinds = _class_names(error)
    text = _safe_text(error, kinds)
    problem = f"{name} cannot {method} the {part}: {type(error).__name__}"
    problem += f": {text}" if text else "; the cause says more"
    problem += f" (from the {registry})" if registry and kinds & _SAFE_KINDS else ""
    status = getattr(error, "http_status_code", 0) if _REGISTRY_ERROR in kinds else 0
    if method == "deserialize" and (is_temporary(status) or kinds & _OUT_OF_REACH):
        return HeldBackError(problem)
    unknown = status == _NOT_FOUND
    refusal = UnknownSchemaError(problem) if unknown else SerdeError(problem)
    refusal.part = part
    return refusal


def _class_names(error: Exception) -> set[str]:
    return {f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__}


def _safe_text(error: Exception, kinds: set[str]) -> str:
    text = str(error)
    if kinds & _SAFE_KINDS or text.startswith(_SAFE_BEGINNINGS):
        return text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + "..."
    return ""
