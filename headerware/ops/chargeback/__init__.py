"""Chargeback: what traffic costs, and whom; from counts to a bill and a report, without Spark.

``count_usage`` counts in one process, and ``headerware.spark_bridge.chargeback`` in Spark, to the same
figures. Prices, the bill and the page that shows it are the same for both.
"""

from headerware.core.lazy import lazy

__getattr__, __dir__, __all__ = lazy(__name__)
