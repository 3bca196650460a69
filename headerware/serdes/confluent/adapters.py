"""Our serdes as confluent-kafka's serializers and deserializers, for its own clients.

Importing this module imports confluent_kafka. A serde's error is raised again as an error that is also
confluent-kafka's; both classes pickle like other Headerware errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from confluent_kafka.serialization import (
    Deserializer,
    MessageField,
    SerializationContext,
    SerializationError,
    Serializer,
)

from headerware.core.errors import HeldBackError, PluginError, SerdeError, UnknownSchemaError, raised_at
from headerware.core.headers import Headers
from headerware.core.options import from_option
from headerware.serdes.confluent.functions import FIELDS
from headerware.serdes.plugins import open_serde, serde_type
from headerware.serdes.serde import Part, SerdeContext

if TYPE_CHECKING:
    from collections.abc import Callable


_PARTS: Final[dict[MessageField, Part]] = {field: part for part, field in FIELDS.items()}
_Method = Literal["serialize", "deserialize"]


class ConfluentSerdeError(SerdeError, SerializationError):
    """A :class:`~headerware.SerdeError` that is confluent-kafka's ``SerializationError``, too."""


class ConfluentUnknownSchemaError(UnknownSchemaError, ConfluentSerdeError):
    """An :class:`~headerware.UnknownSchemaError` that is confluent-kafka's ``SerializationError``, too."""


class ConfluentSerializer(Serializer):
    """Use one of our serdes as a serializer in confluent-kafka's ``SerializingProducer``.

    Headers that the serde adds go into the list or dict that was passed to ``produce``. They replace headers
    of the same name, so that a list may be used for many records. confluent-kafka sends no other headers, so
    a record without headers needs ``headers=[]`` if the serde adds any. A polyglot needs a new list for each
    record: it writes by the content type that it finds, even if the last record left it there. Calls raise
    SerdeErrors that are confluent-kafka's ``SerializationError``, too.

    Args:
        serde: a :class:`~headerware.serdes.Serde`, its word, or an object with ``serialize``.
        part: whether the serde is used as ``key.serializer`` or as ``value.serializer``.

    Raises:
        ConfigError: the serde cannot be opened, or does not serialize.
    """

    __slots__ = ("_opened", "_part")

    def __init__(self, serde: Any, part: Part = "value") -> None:
        self._part: Final = part
        self._opened: Final = _opened(serde, SerdeContext(part=part, side="producer"), "serialize")

    def __call__(self, obj: Any, ctx: SerializationContext | None = None) -> bytes | None:
        """Write an object, and put its headers into the context's."""
        payload: bytes | None
        payload, before, after = _through(self._opened.serialize, self._part, obj, ctx)
        if after is not before and not _put_back(ctx, after):
            names = ", ".join(sorted(set(after.names()) - set(before.names()))) or "existing ones"
            found = "None" if ctx is None or ctx.headers is None else type(ctx.headers).__name__
            problem = f"the {self._part}'s serde changes headers ({names}), which cannot be passed on"
            advice = f"expected a list, found {found}: pass headers=[] to produce"
            raise as_confluent(SerdeError(f"{problem}; {advice}"), self._part)
        return payload

    def close(self) -> None:
        """Close the serde."""
        _close(self._opened)


class ConfluentDeserializer(Deserializer):
    """Use one of our serdes as a deserializer in confluent-kafka's ``DeserializingConsumer``.

    Headers that the serde removes are removed from the message's ``headers()``, too. Calls raise SerdeErrors
    that are confluent-kafka's ``SerializationError``, too.

    Args:
        serde: a :class:`~headerware.serdes.Serde`, its word, or an object with ``deserialize``.
        part: whether the serde is used as ``key.deserializer`` or as ``value.deserializer``.

    Raises:
        ConfigError: the serde cannot be opened, or does not deserialize.
    """

    __slots__ = ("_opened", "_part")

    def __init__(self, serde: Any, part: Part = "value") -> None:
        self._part: Final = part
        self._opened: Final = _opened(serde, SerdeContext(part=part, side="consumer"), "deserialize")

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> Any:
        """Read a payload."""
        result, before, after = _through(self._opened.deserialize, self._part, value, ctx)
        if after is not before:
            _put_back(ctx, after)  # if this fails, the message keeps its headers
        return result

    def close(self) -> None:
        """Close the serde."""
        _close(self._opened)


def as_confluent(error: SerdeError, part: Part) -> ConfluentSerdeError:
    """Return a serde's error as an error that is also confluent-kafka's."""
    kind = ConfluentUnknownSchemaError if isinstance(error, UnknownSchemaError) else ConfluentSerdeError
    made = kind(error.message)
    made.__dict__.update(error.__dict__, part=part)
    return made


def _through(
    function: Callable[..., Any], part: Part, given: Any, ctx: SerializationContext | None
) -> tuple[Any, Headers, Headers]:
    """Call one of our functions; return its result, and the headers before and after."""
    try:
        _require_part(part, ctx)
        before = Headers(None if ctx is None else ctx.headers)
        result, after = function("" if ctx is None else ctx.topic, before, given)
    except SerdeError as error:
        raise as_confluent(error, part) from error
    except HeldBackError as error:  # confluent-kafka's clients cannot hold a record back
        raise as_confluent(SerdeError(error.message), part) from error
    except Exception as error:
        # The text of a foreign error may quote a payload.
        problem = f"the {part}'s serde raised {type(error).__name__}{raised_at(error)}; the cause says more"
        raise as_confluent(SerdeError(problem), part) from error
    return result, before, after


def _require_part(part: Part, ctx: SerializationContext | None) -> None:
    """Refuse a key's serde that is used for values, or the reverse: its headers would be wrong."""
    used_for = part if ctx is None else _PARTS.get(ctx.field, part)
    if used_for != part:
        raise SerdeError(f"the serde was made for the {part} of records, and is used for the {used_for}")


def _put_back(ctx: SerializationContext | None, headers: Headers) -> bool:
    """Change the caller's headers in place; return False if that is not possible."""
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
    found = open_serde(from_option(serde, serde_type, path="serde"), context, path="serde")
    if not callable(getattr(found, method, None)):
        raise PluginError(f"expected an object with {method}, found {type(found).__name__}", path="serde")
    return found


def _close(opened_serde: Any) -> None:
    close = getattr(opened_serde, "close", None)
    if callable(close):
        close()
