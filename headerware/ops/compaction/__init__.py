"""Compaction by header: of each key the record with the highest version is kept, in a copy of its topic."""

from headerware.core.lazy import lazy

__getattr__, __dir__, __all__ = lazy(__name__)
