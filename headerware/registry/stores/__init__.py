"""The stores of registries: TOML files, Kafka topics, and the built-in registry."""

from headerware.registry.stores.locations import create_store, open_store
from headerware.registry.stores.store import BuiltInStore, Store

__all__ = ["BuiltInStore", "Store", "create_store", "open_store"]
