"""Adapters between our serdes and confluent-kafka's, so that either work in the clients of the other.

Importing this module imports confluent_kafka.

confluent-kafka's serializers are called ``serializer(obj, ctx)``, and find the headers in ``ctx.headers``,
where they append to whatever list the caller passed. So a list that is used again grows with every record,
None and tuples are refused, and a reader, who takes the first of several ids, takes the stalest. Here a
serializer gets a list of its own each time, and an id of Confluent's replaces the one that stood there.
"""

from __future__ import annotations

import inspect
import threading
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final, Literal

from confluent_kafka.serialization import Deserializer, MessageField, SerializationContext, Serializer

from headerware.core.errors import HeaderError, PluginError, SerdeError, raised_at
from headerware.core.headers import Headers
from headerware.core.options import from_option
from headerware.serdes.confluent.errors import as_confluent
from headerware.serdes.confluent.framing import ID_HEADERS
from headerware.serdes.confluent.refusals import refused
from headerware.serdes.plugins import opened, serde_type
from headerware.serdes.serde import Part, SerdeContext

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


_FIELDS: Final[dict[Part, MessageField]] = {"key": MessageField.KEY, "value": MessageField.VALUE}
_PARTS: Final[dict[MessageField, Part]] = {field: part for part, field in _FIELDS.items()}
_REGISTRY_SERDES: Final = "confluent_kafka.schema_registry."
_CONTEXT_NAMES: Final = ("ctx", "context")
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_Method = Literal["serialize", "deserialize"]


def from_confluent(function: Callable[..., Any], context: SerdeContext) -> ConfluentFunction:
    """Make a serializer or deserializer of confluent-kafka's work as one of ours.

    Args:
        function: called as ``function(obj, ctx)``; as ``function(obj)`` where it takes no second argument,
            or an optional one that is not called ``ctx`` or ``context``.
        context: for which part of the records it is.

    Raises:
        PluginError: it is a coroutine function.
    """
    return ConfluentFunction(function, context)


class ConfluentFunction:
    """One function of confluent-kafka's kind, in both roles; as safe for use by several threads as that is.

    Args:
        function: the function.
        context: for which part of the records it is.

    Raises:
        PluginError: it is a coroutine function.
    """

    __slots__ = ("_field", "_function", "_id_header", "_lock", "_part", "_takes_context")

    def __init__(self, function: Callable[..., Any], context: SerdeContext) -> None:
        if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
            raise PluginError(f"{_name(function)} is a coroutine function; expected one that blocks")
        self._function: Final = function
        self._part: Final = context.part
        self._field: Final = _FIELDS[context.part]
        self._takes_context: Final = _takes_context(function)
        # Those of a Schema Registry say by which schema they wrote; what said so before is stale.
        is_registrys = any(kind.__module__.startswith(_REGISTRY_SERDES) for kind in type(function).__mro__)
        self._id_header: Final = ID_HEADERS[context.part] if is_registrys else None
        # Those of confluent-kafka 2.13 keep the id of the record at hand where another thread overwrites it.
        # Re-entrant, for their to_dict, a rule or a finalizer may serialize, too.
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
        if isinstance(payload, str):  # which confluent-kafka's clients send as UTF-8
            try:
                return payload.encode(), headers
            except UnicodeEncodeError:  # its text quotes the payload
                raise self._refusal("gave text that UTF-8 cannot express") from None
        raise self._refusal(f"gave {type(payload).__qualname__}, expected bytes, text or None")

    def deserialize(self, topic: str, headers: Headers, payload: bytes | None) -> tuple[Any, Headers]:
        """Read a payload; see :class:`headerware.serdes.serde.Deserializer`."""
        return self._called("deserialize", topic, headers, payload)

    def _called(self, method: _Method, topic: str, headers: Headers, given: Any) -> tuple[Any, Headers]:
        """Call the function, and give its result with the headers as it left them."""
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
        except Exception as error:
            raise refused(_name(self._function), self._part, method, error) from error
        if result.__class__ is CoroutineType:
            result.close()
            raise self._refusal("gave a coroutine; expected a function that blocks")
        if not self._takes_context or tuple(own) == headers:
            return result, headers
        return result, self._taken_over(headers, own)

    def _taken_over(self, before: Headers, after: Iterable[Any]) -> Headers:
        """Return the headers that a function left behind, without the ids that it has replaced."""
        try:
            changed = Headers(after)
        except HeaderError as error:
            raise self._refusal(f"left headers that are none: {error}") from error
        for name in ID_HEADERS.values():
            ids = changed.all(name)
            if len(ids) > 1 and ids != before.all(name):
                changed = changed.put(name, ids[-1])
        return changed

    def _refusal(self, problem: str) -> SerdeError:
        error = SerdeError(f"the {self._part}'s {_name(self._function)} {problem}")
        error.part = self._part
        return error


class ConfluentSerializer(Serializer):
    """One of our serdes as a serializer of confluent-kafka's, for its ``SerializingProducer``.

    Headers that the serde adds go into the list, or dict, that was passed to ``produce``, where they replace
    those of the same name, so that a list may be used for many records. confluent-kafka passes no others
    on, so a record without headers needs ``headers=[]`` as soon as the serde adds any. A polyglot needs a
    new list for each record: it writes by the content type that it finds, be it the last record's.

    Args:
        serde: a :class:`~headerware.serdes.Serde`, its word, or an object with ``serialize``.
        part: whether it serves as ``key.serializer`` or as ``value.serializer``.

    Raises:
        ConfigError: the serde cannot be opened, or does not serialize.
    """

    __slots__ = ("_opened", "_part")

    def __init__(self, serde: Any, part: Part = "value") -> None:
        self._part: Final = part
        self._opened: Final = _opened(serde, SerdeContext(part=part, side="producer"), "serialize")

    def __call__(self, obj: Any, ctx: SerializationContext | None = None) -> bytes | None:
        """Write an object, and put what belongs to it into the context's headers.

        Raises:
            ConfluentSerdeError: the object does not fit, or there is nowhere to put the headers.
        """
        payload: bytes | None
        payload, before, after = _through(self._opened.serialize, self._part, obj, ctx)
        if after is not before and not _put_back(ctx, after):
            names = ", ".join(sorted(set(after.names()) - set(before.names()))) or "those that were there"
            found = "None" if ctx is None or ctx.headers is None else type(ctx.headers).__name__
            problem = f"the {self._part}'s serde changes headers ({names}), which cannot be passed on"
            advice = f"expected a list, found {found}: pass headers=[] to produce"
            raise as_confluent(SerdeError(f"{problem}; {advice}"), self._part)
        return payload

    def close(self) -> None:
        """Close what the serde has opened."""
        _close(self._opened)


class ConfluentDeserializer(Deserializer):
    """One of our serdes as a deserializer of confluent-kafka's, for its ``DeserializingConsumer``.

    What a serde takes off the headers is gone from the message's ``headers()``, too.

    Args:
        serde: a :class:`~headerware.serdes.Serde`, its word, or an object with ``deserialize``.
        part: whether it serves as ``key.deserializer`` or as ``value.deserializer``.

    Raises:
        ConfigError: the serde cannot be opened, or does not deserialize.
    """

    __slots__ = ("_opened", "_part")

    def __init__(self, serde: Any, part: Part = "value") -> None:
        self._part: Final = part
        self._opened: Final = _opened(serde, SerdeContext(part=part, side="consumer"), "deserialize")

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> Any:
        """Read a payload.

        Raises:
            ConfluentSerdeError: the bytes are not what they should be.
        """
        result, before, after = _through(self._opened.deserialize, self._part, value, ctx)
        if after is not before:
            _put_back(ctx, after)  # where it cannot, the headers merely stay as they came
        return result

    def close(self) -> None:
        """Close what the serde has opened."""
        _close(self._opened)


def _through(
    function: Callable[..., Any], part: Part, given: Any, ctx: SerializationContext | None
) -> tuple[Any, Headers, Headers]:
    """Call one of our functions with confluent-kafka's context; give its result, and both headers."""
    try:
        _require_part(part, ctx)
        before = Headers(None if ctx is None else ctx.headers)
        result, after = function("" if ctx is None else ctx.topic, before, given)
    except SerdeError as error:
        raise as_confluent(error, part) from error
    except Exception as error:
        # Only our own texts are known to quote no payload.
        problem = f"the {part}'s serde raised {type(error).__name__}{raised_at(error)}; the cause says more"
        raise as_confluent(SerdeError(problem), part) from error
    return result, before, after


def _require_part(part: Part, ctx: SerializationContext | None) -> None:
    """Refuse a serde that was put in the other one's place: its headers would say the wrong thing."""
    used_for = part if ctx is None else _PARTS.get(ctx.field, part)
    if used_for != part:
        raise SerdeError(f"the serde was made for the {part} of records, and is used for the {used_for}")


def _put_back(ctx: SerializationContext | None, headers: Headers) -> bool:
    """Change the caller's headers in place; whether that could be done."""
    theirs: Any = None if ctx is None else ctx.headers
    if isinstance(theirs, list):
        theirs[:] = headers
        return True
    if isinstance(theirs, dict) and len(set(headers.names())) == len(headers):
        theirs.clear()
        theirs.update(headers)
        return True
    return False


def _opened(serde: Any, context: SerdeContext, method: _Method) -> Any:
    found = opened(from_option(serde, serde_type, path="serde"), context, path="serde")
    if not callable(getattr(found, method, None)):
        raise PluginError(f"expected an object with {method}, found {type(found).__name__}", path="serde")
    return found


def _close(opened_serde: Any) -> None:
    close = getattr(opened_serde, "close", None)
    if callable(close):
        close()


def _takes_context(function: Callable[..., Any]) -> bool:
    """Return whether a function is to be called with a context, as all of confluent-kafka's are."""
    if isinstance(function, Serializer | Deserializer):
        return True
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (ValueError, TypeError):  # written in C, and so for no context
        return False
    if any(parameter.kind is inspect.Parameter.VAR_POSITIONAL for parameter in parameters[:2]):
        return True
    second = [parameter for parameter in parameters if parameter.kind in _POSITIONAL][1:2]
    return any(
        parameter.default is inspect.Parameter.empty or parameter.name.strip("_") in _CONTEXT_NAMES
        for parameter in second
    )


def _name(function: Any) -> str:
    return getattr(function, "__qualname__", None) or type(function).__qualname__
