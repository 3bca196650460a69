"""The largest size of a producer's batches, by the settings of its topics.

A broker compares the size of a batch with ``max.message.bytes`` of its topic, and librdkafka makes batches of
up to 1,000,000 bytes for all topics alike (``batch.size``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headerware.kafka.admin import Admin

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LARGEST: Final = 1_000_000
"""librdkafka's own ``batch.size``."""
SETTINGS_TIMEOUT_S: Final = 2.0
"""How long to wait for settings; brokers usually answer within milliseconds."""


def batch_size(conf: Mapping[str, Any], topics: Iterable[str]) -> int:
    """Return ``batch.size`` for a producer: the least ``max.message.bytes`` of its topics, if that is less.

    Topics that do not exist, or whose settings this user may not see, do not count. Then a batch may be
    refused, and the records go one by one.

    Args:
        conf: the settings of a client of confluent-kafka.
        topics: the topics that the producer writes.
    """
    told = Admin(conf, timeout_s=SETTINGS_TIMEOUT_S).told_settings(topics).values()
    return min([LARGEST, *(int(settings["max.message.bytes"]) for settings in told)])
