"""Schema stores: a folder of files, a compacted topic, Confluent's Schema Registry; cached and shared."""

from typing import TYPE_CHECKING, Any

from headerware.serdes.stores.store import SchemaStore, Store, store_type

if TYPE_CHECKING:
    from headerware.serdes.avro.schema import Fingerprint, Schema

__all__ = ["Fingerprint", "Schema", "SchemaStore", "Store", "store_type"]


def __getattr__(name: str) -> Any:
    if name not in {"Fingerprint", "Schema"}:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    from headerware.serdes.avro import schema  # noqa: PLC0415 - it imports fastavro

    return getattr(schema, name)
