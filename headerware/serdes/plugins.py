"""Find serdes by the word that configuration uses for them, and open them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headerware.core.errors import PluginError, below
from headerware.core.plugins import Catalogue, require_arguments
from headerware.serdes.serde import Serde, SerdeContext, is_serializer_or_deserializer

if TYPE_CHECKING:
    from collections.abc import Iterable

serde_type: Final[Catalogue[Serde]] = Catalogue(
    "serde type",
    Serde,
    {
        "avro": "headerware.serdes.avro.serde:Avro",
        "bytes": "headerware.serdes.formats.plain:Bytes",
        "cbor": "headerware.serdes.formats.cbor:Cbor",
        "cloudevents": "headerware.serdes.cloudevents.serde:CloudEvents",
        "confluent-avro": "headerware.serdes.confluent.serde:ConfluentAvro",
        "confluent-json": "headerware.serdes.confluent.serde:ConfluentJson",
        "confluent-protobuf": "headerware.serdes.confluent.serde:ConfluentProtobuf",
        "connect": "headerware.serdes.connect:Connect",
        "double": "headerware.serdes.formats.primitives:Double",
        "float": "headerware.serdes.formats.primitives:Float",
        "integer": "headerware.serdes.formats.primitives:Integer",
        "json": "headerware.serdes.formats.plain:Json",
        "long": "headerware.serdes.formats.primitives:Long",
        "msgpack": "headerware.serdes.formats.msgpack:MessagePack",
        "polyglot": "headerware.serdes.polyglot:Polyglot",
        "protobuf": "headerware.serdes.formats.protobuf:Protobuf",
        "short": "headerware.serdes.formats.primitives:Short",
        "string": "headerware.serdes.formats.primitives:String",
        "text": "headerware.serdes.formats.plain:Text",
        "uuid": "headerware.serdes.formats.primitives:Uuid",
    },
    "headerware.serdes",
)
"""The serdes by word; others come from entry points of the group ``headerware.serdes``."""

_CALLED: Final = {"serialize": ("topic", "headers", "value"), "deserialize": ("topic", "headers", "payload")}


def require_serde(serde: Any, *, path: str = "") -> None:
    """Raise PluginError for an object that can neither serialize nor deserialize; None passes."""
    if serde is None or isinstance(serde, Serde) or is_serializer_or_deserializer(serde):
        return
    if not callable(serde) or isinstance(serde, type):
        shown = type(serde).__name__
        if isinstance(serde, type):
            shown = f"the class {serde.__name__}; write {serde.__name__}(...)"
        raise PluginError(
            f"expected a serde, an object with serialize or deserialize, or a function, found {shown}",
            path=path,
        )


def first_unsignable(serdes: Iterable[Any]) -> str | None:
    """Return the first reason why a serde cannot be used for signed records, or None if all can be."""
    return next((why for serde in serdes if (why := getattr(serde, "unsignable", None))), None)


def open_serde(serde: Any, context: SerdeContext, *, path: str = "") -> Any:
    """Return the functions of a :class:`Serde`, or of an object that has them, or of a callable.

    A callable is treated as a function of confluent-kafka: ``serializer(obj, ctx)`` on send,
    ``deserializer(data, ctx)`` on consume.
    """
    with below(path):
        found = serde.open(context) if isinstance(serde, Serde) else serde
    require_serde(found, path=path)
    if is_serializer_or_deserializer(found):
        require_arguments(found, _CALLED, path=path)
        return found
    from headerware.serdes.confluent.functions import from_confluent  # noqa: PLC0415 - it imports confluent_kafka

    return from_confluent(found, context)
