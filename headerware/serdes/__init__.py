"""Serdes: serializers and deserializers that see headers; each is loaded when it is first asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from headerware.serdes.adapters import ConfluentDeserializer, ConfluentSerializer, from_confluent
    from headerware.serdes.avro import Avro
    from headerware.serdes.cloudevents import CloudEvents
    from headerware.serdes.cloudevents_event import CloudEvent
    from headerware.serdes.confluent import ConfluentAvro, ConfluentJson, ConfluentProtobuf
    from headerware.serdes.content_types import ContentType, parse_content_type
    from headerware.serdes.plain import Bytes, Cbor, Json, MessagePack, Text
    from headerware.serdes.polyglot import Polyglot
    from headerware.serdes.primitives import Double, Float, Integer, Long, Short, String, Uuid
    from headerware.serdes.protobuf import Protobuf
    from headerware.serdes.serde import Deserializer, Serde, SerdeContext, Serializer

__all__ = [
    "Avro",
    "Bytes",
    "Cbor",
    "CloudEvent",
    "CloudEvents",
    "ConfluentAvro",
    "ConfluentDeserializer",
    "ConfluentJson",
    "ConfluentProtobuf",
    "ConfluentSerializer",
    "ContentType",
    "Deserializer",
    "Double",
    "Float",
    "Integer",
    "Json",
    "Long",
    "MessagePack",
    "Polyglot",
    "Protobuf",
    "Serde",
    "SerdeContext",
    "Serializer",
    "Short",
    "String",
    "Text",
    "Uuid",
    "from_confluent",
    "parse_content_type",
]

_HOMES: Final = {
    "Avro": "avro",
    "Bytes": "plain",
    "Cbor": "plain",
    "CloudEvent": "cloudevents_event",
    "CloudEvents": "cloudevents",
    "ConfluentAvro": "confluent",
    "ConfluentDeserializer": "adapters",
    "ConfluentJson": "confluent",
    "ConfluentProtobuf": "confluent",
    "ConfluentSerializer": "adapters",
    "ContentType": "content_types",
    "Deserializer": "serde",
    "Double": "primitives",
    "Float": "primitives",
    "Integer": "primitives",
    "Json": "plain",
    "Long": "primitives",
    "MessagePack": "plain",
    "Polyglot": "polyglot",
    "Protobuf": "protobuf",
    "Serde": "serde",
    "SerdeContext": "serde",
    "Serializer": "serde",
    "Short": "primitives",
    "String": "primitives",
    "Text": "plain",
    "Uuid": "primitives",
    "from_confluent": "adapters",
    "parse_content_type": "content_types",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    found = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
