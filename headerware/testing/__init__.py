"""Parts for tests, benches and demos: clusters, Kafka's console tools, and tests for plug-ins to inherit.

Loaded lazily, so that ``python -m headerware.testing.broker`` runs its module once.
"""

from headerware.core.lazy import lazy

__getattr__, __dir__, __all__ = lazy(__name__)
