"""Compaction by header: copy a topic, and keep only the record with the highest version of each key."""

from headerware.core.lazy import lazy

__getattr__, __dir__, __all__ = lazy(__name__)
