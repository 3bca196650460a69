"""Chargeback in Spark: usage counted from frames of the Kafka connector, in batches and in streams.

Prices, the bill and the report need no Spark: they are in ``headerware.ops.chargeback``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headerware.core.lazy import lazy

if TYPE_CHECKING:
    from headerware.spark_bridge.chargeback.audited import audit_counts
    from headerware.spark_bridge.chargeback.counting import usage, usage_rows
    from headerware.spark_bridge.chargeback.stored import snapshot, stored_offsets, stored_usage, usage_sink

__all__ = ["audit_counts", "snapshot", "stored_offsets", "stored_usage", "usage", "usage_rows", "usage_sink"]

_HOMES: Final = {
    "audit_counts": "audited",
    "snapshot": "stored",
    "stored_offsets": "stored",
    "stored_usage": "stored",
    "usage": "counting",
    "usage_rows": "counting",
    "usage_sink": "stored",
}

_load: Final = lazy(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    return _load(name)


def __dir__() -> list[str]:
    return [*__all__]
