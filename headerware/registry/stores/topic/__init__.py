"""The registry on a compacted topic."""

from headerware.registry.stores.topic.store import TopicStore

__all__ = ["TopicStore"]
