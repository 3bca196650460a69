"""Chargeback: count traffic, compute a bill by owner, and write a report, without Spark.

``count_usage`` counts in one process, ``headerware.spark_bridge.chargeback`` counts in Spark, and both get
the same figures. The prices, the bill and the report are the same for both.
"""

from headerware.core.lazy import lazy

__getattr__, __dir__, __all__ = lazy(__name__)
