"""The source framework: read objects of other systems, and produce Kafka records (docs/sources.md).

Each name is imported when it is first used.

Provisional: a minor release may change the names of this package (docs/stability.md).
"""

from headerware.core.lazy import lazy

__getattr__, __dir__, __all__ = lazy(__name__)
