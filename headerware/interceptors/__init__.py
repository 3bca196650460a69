"""Interceptors: one concern a file, in both directions; each is loaded when it is first asked for."""

from headerware.core.lazy import lazy

__getattr__, __dir__, __all__ = lazy(__name__)
