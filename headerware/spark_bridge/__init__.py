"""The same chains over Spark's DataFrames and in ``foreachBatch``; a name is loaded when it is first used."""

from headerware.core.lazy import lazy

__getattr__, __dir__, __all__ = lazy(__name__, needs="pyspark", extra="spark")
