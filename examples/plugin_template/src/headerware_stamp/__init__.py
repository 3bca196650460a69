"""Your own plug-ins: an interceptor, and a transform and a predicate as in Kafka Connect."""

from headerware_stamp.in_topics import InTopics
from headerware_stamp.stamp import Stamp, StampStep
from headerware_stamp.truncate import Truncate

__all__ = ["InTopics", "Stamp", "StampStep", "Truncate"]
