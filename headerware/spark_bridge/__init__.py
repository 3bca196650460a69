"""The same chains over Spark's DataFrames and in ``foreachBatch``; a name is loaded when it is first used.

Provisional: a minor release may change the names of this package (docs/stability.md).
"""

from headerware.core.lazy import lazy

__getattr__, __dir__, __all__ = lazy(__name__, extra="spark")
