"""The source framework: native objects in, Kafka records out, resumable (see docs/sources.md).

Each name is loaded when it is first asked for.
"""

from headerware.core.lazy import lazy

__getattr__, __dir__, __all__ = lazy(__name__)
