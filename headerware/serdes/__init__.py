"""Serdes: serializers and deserializers that see headers; each is loaded when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headerware.core.lazy import lazy

if TYPE_CHECKING:
    from headerware.serdes.avro.serde import Avro
    from headerware.serdes.cloudevents.event import CloudEvent
    from headerware.serdes.cloudevents.serde import CloudEvents
    from headerware.serdes.confluent.adapters import ConfluentDeserializer, ConfluentSerializer
    from headerware.serdes.confluent.functions import from_confluent
    from headerware.serdes.confluent.serde import ConfluentAvro, ConfluentJson, ConfluentProtobuf
    from headerware.serdes.connect import Connect
    from headerware.serdes.content_types import ContentType, parse_content_type
    from headerware.serdes.formats.cbor import Cbor
    from headerware.serdes.formats.msgpack import MessagePack
    from headerware.serdes.formats.plain import Bytes, Json, Text
    from headerware.serdes.formats.primitives import Double, Float, Integer, Long, Short, String, Uuid
    from headerware.serdes.formats.protobuf import Protobuf
    from headerware.serdes.polyglot import Polyglot
    from headerware.serdes.serde import Deserializer, Serde, SerdeContext, Serializer
    from headerware.serdes.stores.folder import FolderSchemas
    from headerware.serdes.stores.schema_registry import RegistrySchemas
    from headerware.serdes.stores.topic import TopicSchemas

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
    "Connect",
    "ContentType",
    "Deserializer",
    "Double",
    "Float",
    "FolderSchemas",
    "Integer",
    "Json",
    "Long",
    "MessagePack",
    "Polyglot",
    "Protobuf",
    "RegistrySchemas",
    "Serde",
    "SerdeContext",
    "Serializer",
    "Short",
    "String",
    "Text",
    "TopicSchemas",
    "Uuid",
    "from_confluent",
    "parse_content_type",
]

_HOMES: Final = {
    "Avro": "avro.serde",
    "Bytes": "formats.plain",
    "Cbor": "formats.cbor",
    "CloudEvent": "cloudevents.event",
    "CloudEvents": "cloudevents.serde",
    "ConfluentAvro": "confluent.serde",
    "ConfluentDeserializer": "confluent.adapters",
    "ConfluentJson": "confluent.serde",
    "ConfluentProtobuf": "confluent.serde",
    "ConfluentSerializer": "confluent.adapters",
    "Connect": "connect",
    "ContentType": "content_types",
    "Deserializer": "serde",
    "Double": "formats.primitives",
    "Float": "formats.primitives",
    "FolderSchemas": "stores.folder",
    "Integer": "formats.primitives",
    "Json": "formats.plain",
    "Long": "formats.primitives",
    "MessagePack": "formats.msgpack",
    "Polyglot": "polyglot",
    "Protobuf": "formats.protobuf",
    "RegistrySchemas": "stores.schema_registry",
    "Serde": "serde",
    "SerdeContext": "serde",
    "Serializer": "serde",
    "Short": "formats.primitives",
    "String": "formats.primitives",
    "Text": "formats.plain",
    "TopicSchemas": "stores.topic",
    "Uuid": "formats.primitives",
    "from_confluent": "confluent.functions",
    "parse_content_type": "content_types",
}

_load: Final = lazy(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    return _load(name)


def __dir__() -> list[str]:
    return [*__all__]
