"""Why a serializer or deserializer of confluent-kafka's refused something, without the payload.

Its messages may quote what they refuse: a JSON validator shows the value, and so does fastavro. So of most
only the type is told, and the rest is left to the cause. The texts of a Schema Registry and of the network,
and those that confluent-kafka makes of lengths and numbers, hold no payload.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headerware.core.errors import SerdeError, UnknownSchemaError

if TYPE_CHECKING:
    from headerware.serdes.serde import Part

_REGISTRY_ERROR: Final = "confluent_kafka.schema_registry.error.SchemaRegistryError"
# By name, for asking whether an error is one of them must not import what may not be installed.
_SAFE_KINDS: Final = frozenset(
    {_REGISTRY_ERROR, "httpx.HTTPError", "httpx2.HTTPError", "builtins.ConnectionError"}
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


def refused(name: str, part: Part, method: str, error: Exception) -> SerdeError:
    """Make the error for what a function of confluent-kafka's kind raised; raise it from that.

    Args:
        name: the function's name.
        part: the part of the record.
        method: what was asked of it, ``serialize`` or ``deserialize``.
        error: what it raised.
    """
    kinds = _names(error)
    text = _safe_text(error, kinds)
    problem = f"{name} cannot {method} the {part}: {type(error).__name__}"
    problem += f": {text}" if text else "; the cause says more"
    unknown = _REGISTRY_ERROR in kinds and getattr(error, "http_status_code", None) == _NOT_FOUND
    refusal = UnknownSchemaError(problem) if unknown else SerdeError(problem)
    refusal.part = part
    return refusal


def _names(error: Exception) -> set[str]:
    return {f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__}


def _safe_text(error: Exception, kinds: set[str]) -> str:
    text = str(error)
    if kinds & _SAFE_KINDS or text.startswith(_SAFE_BEGINNINGS):
        return text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + "..."
    return ""
