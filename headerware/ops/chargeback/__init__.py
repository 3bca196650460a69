"""Chargeback: what traffic costs, and whom; from counts to a bill and a report, without Spark.

``headerware.spark_bridge.chargeback`` counts; here are prices, the bill and the page that shows it.
"""

from headerware.ops.chargeback.bill import Bill, Traffic, UnknownReads, charge
from headerware.ops.chargeback.prices import Prices, Rates, TopicRates, load_prices
from headerware.ops.chargeback.reads import Covered, GroupOffset
from headerware.ops.chargeback.report import write_report
from headerware.ops.chargeback.sizes import record_bytes
from headerware.ops.chargeback.usage import Usage

__all__ = [
    "Bill",
    "Covered",
    "GroupOffset",
    "Prices",
    "Rates",
    "TopicRates",
    "Traffic",
    "UnknownReads",
    "Usage",
    "charge",
    "load_prices",
    "record_bytes",
    "write_report",
]
