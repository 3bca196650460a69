"""Chargeback: what traffic costs, and whom; from counts to a bill and a report, without Spark.

``count_usage`` counts in one process, and ``headerware.spark_bridge.chargeback`` in Spark, to the same
figures. Prices, the bill and the page that shows it are the same for both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headerware.core.lazy import lazy
from headerware.ops.chargeback.bill import Bill, Traffic, UnknownReads, charge
from headerware.ops.chargeback.prices import Prices, Rates, TopicRates, load_prices
from headerware.ops.chargeback.reads import Covered, GroupOffset
from headerware.ops.chargeback.report import write_report
from headerware.ops.chargeback.sizes import record_bytes
from headerware.ops.chargeback.usage import Usage

if TYPE_CHECKING:
    from headerware.ops.chargeback.counter import Counted, count_usage
    from headerware.ops.chargeback.kept import KeptUsage

__all__ = [
    "Bill",
    "Counted",
    "Covered",
    "GroupOffset",
    "KeptUsage",
    "Prices",
    "Rates",
    "TopicRates",
    "Traffic",
    "UnknownReads",
    "Usage",
    "charge",
    "count_usage",
    "load_prices",
    "record_bytes",
    "write_report",
]

_HOMES: Final = {"Counted": "counter", "KeptUsage": "kept", "count_usage": "counter"}
"""What counts needs a client; the audit's reports, which it reads, are made into rows of usage."""

_load: Final = lazy(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    return _load(name)


def __dir__() -> list[str]:
    return [*__all__]
