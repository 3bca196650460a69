"""Parts for tests, benches and demos: clusters, Java's own console tools, what plug-ins must do.

Loaded lazily, so that ``python -m headerware.testing.broker`` runs its module once.
"""

from headerware.core.lazy import lazy

__getattr__, __dir__, __all__ = lazy(__name__)
