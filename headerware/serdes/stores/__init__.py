"""Schema stores: a folder of files, a compacted topic, Confluent's Schema Registry; cached and shared."""

from headerware.serdes.stores.store import Fingerprint, Schema, SchemaStore, Store, store_type

__all__ = ["Fingerprint", "Schema", "SchemaStore", "Store", "store_type"]
