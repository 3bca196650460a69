"""The clients of a table in a topic: their configuration, what their errors mean, and making the topic."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from headerware.core.errors import RegistryError

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer

_log = logging.getLogger("headerware.registry")

_LEAST_S: Final = 0.05
"""Admin requests refuse a timeout of nothing."""
_GROUP: Final = "headerware-table"
"""librdkafka wants one; nothing joins it, and nothing is committed."""
_READING: Final = {
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "allow.auto.create.topics": False,
}
_QUIET: Final = {"log_level": 0}
"""Brokers that are away are told of once, by the table, and not by a line at each attempt."""
_WRITING: Final = {"enable.idempotence": True, "acks": "all", "linger.ms": 0}
_OF_PRODUCERS: Final = (
    "acks",
    "batch.",
    "compression.",
    "delivery.",
    "enable.gapless.guarantee",
    "enable.idempotence",
    "linger.",
    "max.in.flight",
    "message.send.max.retries",
    "message.timeout.ms",
    "partitioner",
    "queue.buffering.",
    "request.required.acks",
    "request.timeout.ms",
    "retries",
    "sticky.partitioning.",
    "transaction.",
    "transactional.",
)
_OF_CONSUMERS: Final = (
    "allow.auto.create.topics",
    "auto.",
    "check.crcs",
    "coordinator.",
    "enable.auto.",
    "enable.partition.eof",
    "fetch.",
    "group.",
    "heartbeat.",
    "isolation.level",
    "max.partition.fetch.bytes",
    "max.poll.",
    "partition.assignment.",
    "queued.",
    "session.timeout.ms",
)


class UnreachableError(RegistryError):
    """Brokers that do not answer in time."""


def left(deadline: float) -> float:
    """Return the seconds until a deadline of the monotonic clock, or 0."""
    return max(deadline - time.monotonic(), 0.0)


def failure(what: str, error: KafkaError) -> RegistryError:
    """Say what an error of librdkafka's means: it is refused for good, or the brokers are out of reach."""
    refused = (
        error.TOPIC_AUTHORIZATION_FAILED,
        error.GROUP_AUTHORIZATION_FAILED,
        error.CLUSTER_AUTHORIZATION_FAILED,
        error.SASL_AUTHENTICATION_FAILED,
        error._AUTHENTICATION,  # noqa: SLF001 - librdkafka's own codes are written so
        error.TOPIC_EXCEPTION,
        error.MSG_SIZE_TOO_LARGE,
        error.RECORD_LIST_TOO_LARGE,
        error.INVALID_RECORD,
        error.POLICY_VIOLATION,
    )
    kind = RegistryError if error.code() in refused else UnreachableError
    return kind(f"{what}: {error.str()}")


def make_consumer(conf: Mapping[str, Any]) -> Consumer:
    """Make a consumer that commits nothing.

    Raises:
        RegistryError: librdkafka refuses the configuration.
    """
    from confluent_kafka import Consumer, KafkaException  # noqa: PLC0415 - heavy

    try:
        return Consumer({"group.id": _GROUP, **_QUIET, **_without(conf, _OF_PRODUCERS), **_READING})
    except (KafkaException, TypeError, ValueError) as error:
        raise RegistryError(f"the Kafka client refuses its configuration: {error}") from error


def make_producer(conf: Mapping[str, Any]) -> Producer:
    """Make a producer that writes each record once; a consumer was made of the same configuration."""
    from confluent_kafka import Producer  # noqa: PLC0415 - heavy

    return Producer({**_QUIET, **_without(conf, _OF_CONSUMERS + _OF_PRODUCERS), **_WRITING})


def create_topic(conf: Mapping[str, Any], topic: str, *, replication_factor: int, timeout_s: float) -> None:
    """Create a compacted topic of one partition; nothing if another process has been faster.

    Raises:
        UnreachableError: no answer in time.
        RegistryError: the brokers refuse.
    """
    from confluent_kafka import KafkaException  # noqa: PLC0415 - heavy
    from confluent_kafka.cimpl import NewTopic  # noqa: PLC0415 - heavy; its stub shows it here only

    config = {"cleanup.policy": "compact"}
    wanted = NewTopic(topic, num_partitions=1, replication_factor=replication_factor, config=config)
    admin = _admin(conf)  # without a name it would be gone before the answer
    try:
        admin.create_topics([wanted], request_timeout=max(timeout_s, _LEAST_S))[topic].result()
    except KafkaException as error:
        cause: KafkaError = error.args[0]
        if cause.code() == cause.TOPIC_ALREADY_EXISTS:
            return
        kind = UnreachableError if cause.code() in (cause._TIMED_OUT, cause._TRANSPORT) else RegistryError  # noqa: SLF001
        raise kind(f"topic {topic!r} cannot be created: {cause.str()}") from error


def warn_of_deletion(conf: Mapping[str, Any], topic: str, *, timeout_s: float) -> None:
    """Warn of a topic whose records the brokers delete by their age."""
    from confluent_kafka import KafkaException  # noqa: PLC0415 - heavy
    from confluent_kafka.admin import ConfigResource  # type: ignore[attr-defined]  # noqa: PLC0415 - its stub; heavy

    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = _admin(conf)
    try:
        asked = admin.describe_configs([resource], request_timeout=max(timeout_s, _LEAST_S))
        found = asked[resource].result()
    except KafkaException as error:  # who may read need not be allowed to ask
        _log.debug("topic %s: its cleanup.policy is not known: %s", topic, error)
        return
    policy, retention = found["cleanup.policy"].value, found["retention.ms"].value
    if "delete" in policy and retention != "-1":
        text = "topic %s: records are deleted by their age (cleanup.policy=%s, retention.ms=%s); compact it"
        _log.warning(text, topic, policy, retention)


def _admin(conf: Mapping[str, Any]) -> Any:
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415 - heavy

    return AdminClient(_without(conf, _OF_CONSUMERS + _OF_PRODUCERS))


def _without(conf: Mapping[str, Any], prefixes: tuple[str, ...]) -> dict[str, Any]:
    """Leave out what begins so: librdkafka warns of properties that a client does not use."""
    return {name: value for name, value in conf.items() if not name.startswith(prefixes)}
