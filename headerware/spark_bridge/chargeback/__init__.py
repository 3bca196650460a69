"""Chargeback in Spark: usage counted from frames of the Kafka connector, in batches and in streams.

Prices, the bill and the report need no Spark: they are in ``headerware.ops.chargeback``.
"""

from headerware.core.lazy import lazy

__getattr__, __dir__, __all__ = lazy(__name__, extra="spark")
