"""Find serdes by the word that configuration uses for them, and open what was found."""

from __future__ import annotations

from typing import Any, Final

from headerware.core.errors import PluginError
from headerware.core.plugins import Catalogue
from headerware.serdes.serde import Deserializer, Serde, SerdeContext, Serializer

serde_type: Final = Catalogue(
    "serde",
    Serde,
    {
        "avro": "headerware.serdes.avro:Avro",
        "bytes": "headerware.serdes.plain:Bytes",
        "cbor": "headerware.serdes.plain:Cbor",
        "cloudevents": "headerware.serdes.cloudevents:CloudEvents",
        "confluent-avro": "headerware.serdes.confluent:ConfluentAvro",
        "confluent-json": "headerware.serdes.confluent:ConfluentJson",
        "confluent-protobuf": "headerware.serdes.confluent:ConfluentProtobuf",
        "double": "headerware.serdes.primitives:Double",
        "float": "headerware.serdes.primitives:Float",
        "integer": "headerware.serdes.primitives:Integer",
        "json": "headerware.serdes.plain:Json",
        "long": "headerware.serdes.primitives:Long",
        "msgpack": "headerware.serdes.plain:MessagePack",
        "polyglot": "headerware.serdes.polyglot:Polyglot",
        "protobuf": "headerware.serdes.protobuf:Protobuf",
        "short": "headerware.serdes.primitives:Short",
        "string": "headerware.serdes.primitives:String",
        "text": "headerware.serdes.plain:Text",
        "uuid": "headerware.serdes.primitives:Uuid",
    },
    "headerware.serdes",
)
"""The serdes, by word; others come by entry points of the group ``headerware.serdes``."""


def require_serde(serde: Any, *, path: str = "") -> None:
    """Refuse what can neither serialize nor deserialize; None, for no serde, passes.

    Raises:
        PluginError: what it is instead.
    """
    if serde is None or isinstance(serde, Serde | Serializer | Deserializer):
        return
    if not callable(serde) or isinstance(serde, type):
        shown = serde.__name__ if isinstance(serde, type) else type(serde).__name__
        raise PluginError(
            f"expected a serde, an object with serialize or deserialize, or a function, found {shown}",
            path=path,
        )


def opened(serde: Any, context: SerdeContext, *, path: str = "") -> Any:
    """Give the object with the functions: of a :class:`Serde`, of an object that has them, or of a callable.

    A callable is taken as confluent-kafka's: ``serializer(obj, ctx)`` on send, ``deserializer(data, ctx)``
    on consume.

    Raises:
        PluginError: it can neither serialize nor deserialize.
    """
    found = serde.open(context) if isinstance(serde, Serde) else serde
    require_serde(found, path=path)
    if isinstance(found, Serializer | Deserializer):
        return found
    from headerware.serdes.adapters import from_confluent  # noqa: PLC0415 - it imports confluent_kafka

    return from_confluent(found, context)
