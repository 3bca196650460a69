"""How large the batches of a producer may be, so that no topic refuses records that fit one by one.

A broker weighs a batch as a whole against ``max.message.bytes`` of its topic, and librdkafka makes batches of
up to 1,000,000 bytes for all topics alike (``batch.size``).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]  # their stub

from headerware.clients.settings import connection_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LARGEST: Final = 1_000_000
"""librdkafka's own ``batch.size``."""
_ANSWER_S: Final = 2.0
"""How long to wait for limits, which brokers tell in milliseconds; without them only batches are slower."""


def batch_size(conf: Mapping[str, Any], topics: Iterable[str]) -> int:
    """Return ``batch.size`` for a producer: the least ``max.message.bytes`` of its topics, if that is less.

    Topics that do not exist, or whose configuration this user may not see, do not count. Then a batch may be
    refused, and the records go one by one.

    Args:
        conf: the settings of a client of confluent-kafka.
        topics: the topics that the producer writes.
    """
    resources = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in dict.fromkeys(topics)]
    if not resources:
        return LARGEST
    admin = AdminClient({**connection_settings(conf), "log_level": 0})
    limits = [LARGEST]
    for asked in admin.describe_configs(resources, request_timeout=_ANSWER_S).values():
        with suppress(KafkaException):
            limits.append(int(asked.result()["max.message.bytes"].value))
    return min(limits)
