"""Sources that are ready to use; each is imported when it is first used."""

from headerware.core.lazy import lazy

__getattr__, __dir__, __all__ = lazy(__name__)
