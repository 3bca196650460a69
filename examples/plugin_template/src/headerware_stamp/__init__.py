"""Plug-ins of one's own: an interceptor, and a transform and a predicate as Kafka Connect has them."""

from headerware_stamp.in_topics import InTopics
from headerware_stamp.stamp import Stamp, StampStep
from headerware_stamp.truncate import Truncate

__all__ = ["InTopics", "Stamp", "StampStep", "Truncate"]
