"""What the cluster tells of its topics' settings, and how large a producer's batches may be after them.

A broker weighs a batch as a whole against ``max.message.bytes`` of its topic, and librdkafka makes batches of
up to 1,000,000 bytes for all topics alike (``batch.size``).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]  # their stub

from headerware.kafka.settings import connection_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LARGEST: Final = 1_000_000
"""librdkafka's own ``batch.size``."""
_ANSWER_S: Final = 2.0
"""How long to wait for settings, which brokers tell in milliseconds."""


def batch_size(conf: Mapping[str, Any], topics: Iterable[str]) -> int:
    """Return ``batch.size`` for a producer: the least ``max.message.bytes`` of its topics, if that is less.

    Topics that do not exist, or whose settings this user may not see, do not count. Then a batch may be
    refused, and the records go one by one.

    Args:
        conf: the settings of a client of confluent-kafka.
        topics: the topics that the producer writes.
    """
    told = topic_settings(conf, topics).values()
    return min([LARGEST, *(int(settings["max.message.bytes"]) for settings in told)])


def topic_settings(conf: Mapping[str, Any], topics: Iterable[str]) -> dict[str, Mapping[str, str]]:
    """Return topics' settings by topic, without those that do not exist or may not be seen by this user.

    Args:
        conf: the settings of a client of confluent-kafka.
        topics: the topics' names.
    """
    resources = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in dict.fromkeys(topics)]
    if not resources:
        return {}
    admin = AdminClient({**connection_settings(conf), "log_level": 0})
    if not _has_controller(admin):
        return {}
    told: dict[str, Mapping[str, str]] = {}
    for resource, asked in admin.describe_configs(resources, request_timeout=_ANSWER_S).items():
        with suppress(KafkaException):
            told[resource.name] = {name: entry.value for name, entry in asked.result().items()}
    return told


def _has_controller(admin: AdminClient) -> bool:
    """Return whether anybody can answer; an embedded cluster has none, and would let us wait."""
    try:
        metadata = admin.list_topics(timeout=_ANSWER_S)
    except KafkaException:
        return False
    return metadata.controller_id in metadata.brokers
