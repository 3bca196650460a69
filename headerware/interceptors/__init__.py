"""Interceptors: one concern a file, in both directions; each is loaded when it is first asked for.

Provisional: a minor release may change the names of this package (docs/stability.md).
"""

from headerware.core.lazy import lazy

__getattr__, __dir__, __all__ = lazy(__name__)
