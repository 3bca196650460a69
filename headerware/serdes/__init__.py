"""Serdes: serializers and deserializers that see headers; each is loaded when it is first used.

Provisional: a minor release may change the names of this package (docs/stability.md).
"""

from headerware.core.lazy import lazy

__getattr__, __dir__, __all__ = lazy(__name__)
