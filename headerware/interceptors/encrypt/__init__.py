"""Encryption of values and of fields in them, under data keys that a key service wraps."""

from headerware.core.lazy import lazy

__getattr__, __dir__, __all__ = lazy(__name__)
